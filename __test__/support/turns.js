'use strict';

const fs = require('node:fs');
const { PerformanceObserver } = require('node:perf_hooks');

/** For how long this thread was ready to run and had no CPU, ms; 0 where the system does not tell. */
function waitedMs() {
  try {
    return Number(fs.readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[1]) / 1e6;
  } catch {
    return 0;
  }
}

/**
 * The longest turn of the event loop while a job is under way, ms: without what other programs held it up for, as they had the CPU,
 * and without V8's collections.
 *
 * @template T
 * @param {() => Promise<T>} job
 * @returns {Promise<{ ms: number, told: string, result: T }>}
 */
async function longestTurn(job) {
  /** @type {{ from: number, to: number }[]} */
  const collections = [];
  const observer = new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries())
      collections.push({ from: startTime, to: startTime + duration });
  });
  observer.observe({ entryTypes: ['gc'] });
  /** @type {{ at: number, waited: number }[]} */
  const moments = [{ at: performance.now(), waited: waitedMs() }];
  const look = () => moments.push({ at: performance.now(), waited: waitedMs() });
  let done = false;
  const turn = () => {
    look();
    if (!done) setImmediate(turn);
  };
  setImmediate(turn);
  const result = await job();
  look();
  done = true;
  // The observer is told of a collection in a later turn.
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
  observer.disconnect();
  let longest = { ms: 0, told: 'none' };
  for (let i = 1; i < moments.length; i++) {
    const [from, to] = [moments[i - 1], moments[i]];
    const turn = to.at - from.at;
    const waited = to.waited - from.waited;
    let collected = 0;
    for (const one of collections)
      collected += Math.max(0, Math.min(to.at, one.to) - Math.max(from.at, one.from));
    const ms = turn - waited - collected;
    if (ms > longest.ms) {
      const [all, waiting, collecting] = [turn, waited, collected].map((ms) => ms.toFixed(1));
      longest = {
        ms,
        told: `${all} ms, ${waiting} of them without a CPU, ${collecting} collecting`,
      };
    }
  }
  return { ...longest, result };
}

module.exports = { longestTurn };
