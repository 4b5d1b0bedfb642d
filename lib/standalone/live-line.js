'use strict';

/** The line at the bottom of the terminal: rewritten each second, or written each five where it is a file. */

/**
 * @param {object} parts
 * @param {() => any} parts.state  the state document
 * @param {() => number} parts.jobs  how many jobs were given out so far
 * @param {NodeJS.WriteStream} [parts.out]
 */
function startLiveLine({ state, jobs, out = process.stderr }) {
  const { isTTY } = out;
  const everyMs = isTTY ? 1_000 : 5_000;
  let before = jobs();
  let shown = false;

  const write = () => {
    const now = jobs();
    const perSecond = ((now - before) >>> 0) / (everyMs / 1_000);
    before = now;
    let text;
    try {
      text = lineOf(state(), perSecond);
    } catch (error) {
      text = `no state: ${/** @type {Error} */ (error).message}`;
    }
    if (isTTY) out.write(`\r\x1b[K${text.slice(0, (out.columns ?? 80) - 1)}`);
    else out.write(`${text}\n`);
    shown = true;
  };
  const timer = setInterval(write, everyMs);
  timer.unref();
  return {
    /** Writes a line of text above it. @param {string} text */
    print(text) {
      out.write(isTTY && shown ? `\r\x1b[K${text}\n` : `${text}\n`);
    },
    stop() {
      clearInterval(timer);
      if (isTTY && shown) out.write('\n');
    },
  };
}

/**
 * @param {any} document
 * @param {number} perSecond
 */
function lineOf(document, perSecond) {
  const { now, trust, lateness } = document;
  if (!trust.live) return `${trust.phase}: ${trust.keeper.rows} rows so far`;
  const parts = [
    `${now.status}`,
    `due ${now.due}`,
    `in flight ${now.inFlight}`,
    `held ${now.heldKeys}`,
    `${perSecond.toFixed(1)} claims/s`,
  ];
  const latest = lateness.classes[0];
  if (latest) {
    const late = latest.oldestLatenessCadences;
    const route = latest.route.replace(/^route:\w+:/, '');
    parts.push(`latest ${late === null ? '' : `${late.toFixed(2)} cadences `}${route}`);
  }
  return parts.join(' · ');
}

module.exports = { startLiveLine, lineOf };
