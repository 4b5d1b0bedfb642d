/**
 * Loaded into every thread of a host that is measured (`node -r`): what the listener of the thread that feeds is told, and
 * when the queue has it; and the whole table told to it once more, as Harper tells a live subscriber after a base copy.
 * Asked over a channel of the process (`inside.js`). Until then it does nothing but hold on to the listener.
 */

const { BroadcastChannel, isMainThread } = require('node:worker_threads');

const CHANNEL = 'queue-keeper-bench';
/** A multiple of what the queue takes at once, so that nothing is left over for a later turn. */
const CHUNK = 1024;

/** @typedef {import('../../lib/schedule-table.js').ScheduleEvent} ScheduleEvent */
/**
 * `seen`: of each event its key, its due time (null of a deletion), and when the queue had it (ns of the machine's
 * monotonic clock, which all its processes share), no later than said.
 * @typedef {{ keys: string[], dues: (number | null)[], hadAt: number[] }} Seen
 * @typedef {{ rows: number, ms: number, keeperMs: number, longestMs: number }} Resent
 */

/** @returns {Seen} */
const newSeen = () => ({ keys: [], dues: [], hadAt: [] });

function listen() {
  const { LmdbTable } = require('../../lib/standalone/table.js');
  /** The live subscription of this thread. @type {{ table: any, listener: (event: ScheduleEvent) => void } | null} */
  let live = null;
  /** @type {Seen | null} */
  let seen = null;
  let isStamping = false;

  /** After the queue's own flush, which the listener has asked for before. */
  function stampSoon() {
    if (isStamping) return;
    isStamping = true;
    setImmediate(() => {
      isStamping = false;
      const at = Number(process.hrtime.bigint());
      while (seen && seen.hadAt.length < seen.keys.length) seen.hadAt.push(at);
    });
  }

  const { subscribe } = LmdbTable.prototype;
  /** @param {(event: ScheduleEvent) => void} listener @param {(why: Error) => void} onClose */
  LmdbTable.prototype.subscribe = async function (listener, onClose) {
    const mine = {
      table: this,
      /** @param {ScheduleEvent} event */
      listener(event) {
        listener(event);
        if (!seen) return;
        seen.keys.push(String(event.id));
        seen.dues.push(/** @type {any} */ (event.value)?.nextRenderTime ?? null);
        stampSoon();
      },
    };
    const over = () => {
      if (live === mine) live = null;
    };
    const subscription = await subscribe.call(this, mine.listener, (why) => {
      over();
      onClose(why);
    });
    live = mine;
    return {
      end() {
        over();
        subscription.end();
      },
    };
  };

  /** Every row as it is, told a turn after it was read: what was written in between is newer. @returns {Promise<Resent>} */
  async function resend() {
    const began = performance.now();
    const sum = { rows: 0, ms: 0, keeperMs: 0, longestMs: 0 };
    for (let after = null; ; ) {
      if (!live) throw new Error('the subscription has ended');
      const { table, listener } = live;
      /** @type {any[]} */
      const rows = await table.walk({ after, limit: CHUNK });
      if (rows.length === 0) break;
      await new Promise((resolve) => setImmediate(resolve));
      const telling = performance.now();
      for (const value of rows) {
        const { cacheKey: id, version } = value;
        listener({ id, type: 'put', value, version, localTime: version });
      }
      const ms = performance.now() - telling;
      sum.rows += rows.length;
      sum.keeperMs += ms;
      sum.longestMs = Math.max(sum.longestMs, ms);
      after = rows[rows.length - 1].cacheKey;
      await new Promise((resolve) => setImmediate(resolve));
    }
    sum.ms = performance.now() - began;
    return sum;
  }

  /** @param {any} question */
  async function answer(question) {
    if (question.resend) return resend();
    if (question.watch) {
      seen = newSeen();
      return {};
    }
    const said = seen ?? newSeen();
    seen = null;
    while (said.hadAt.length < said.keys.length) said.hadAt.push(Number(process.hrtime.bigint()));
    return said;
  }

  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = async (/** @type {any} */ { data }) => {
    if (!data.question || !live) return;
    const to = data.id;
    try {
      channel.postMessage({ to, answer: await answer(data.question) });
    } catch (error) {
      channel.postMessage({ to, answer: { error: /** @type {Error} */ (error).message } });
    }
  };
  channel.unref();
}

/** Asks the thread that feeds, from the main thread. @returns {(question: object) => Promise<any>} */
function openChannel() {
  const channel = new BroadcastChannel(CHANNEL);
  channel.unref();
  let id = 0;
  /** @type {Map<number, (answer: any) => void>} */
  const waiting = new Map();
  channel.onmessage = (/** @type {any} */ { data }) => {
    waiting.get(data.to)?.(data.answer);
    waiting.delete(data.to);
  };
  return (question) =>
    new Promise((resolve) => {
      id += 1;
      waiting.set(id, resolve);
      channel.postMessage({ id, question });
    });
}

if (!isMainThread) listen();

module.exports = { openChannel };
