/**
 * The thread that listens, and feeds what listens through it. All events come through one function here, which notes when each write's
 * event came; then it is the queue's. So what a queue costs is the difference to the arm `count`, where nothing follows.
 *
 * With `stay` the subscription is opened at the first arm and stays: what changes is who gets the events.
 */

const { quantile } = require('../support/statistics.js');
const { compare } = require('./compare.js');
const { clock, heapInUse, startMeter, turn } = require('./meter.js');
const { QUEUES } = require('./queues.js');

/** Without an event for so long, what has not come is missing. */
const PATIENCE_MS = 10_000;
const LOOK_MS = 20;

/** @typedef {import('../../lib/schedule-table.js').ScheduleTable} ScheduleTable */
/** @typedef {'none' | keyof typeof QUEUES} Arm */
/** @typedef {ReturnType<typeof newWindow>} Window */

/** What is counted of the events between `begin` and `end`. @param {number} from @param {number} count */
function newWindow(from, count) {
  return {
    from,
    /** When the event of each write came; 0 as long as it has not. */
    arrived: new Float64Array(count),
    left: count,
    /** Events of a write that another event had told of. */
    twice: 0,
    /** Events of writes before this window. */
    replayed: 0,
    /** Deletions, ends of transactions, whatever is no row. */
    others: 0,
    insideMs: 0,
  };
}

/**
 * @param {ScheduleTable} table @param {import('./queues.js').Rules} rules
 * @returns {import('./channel.js').Commands}
 */
function listening(table, rules) {
  /** @type {import('../../lib/schedule-table.js').Subscription | null} */
  let subscription = null;
  let stays = false;
  /** @type {Error | null} */
  let closed = null;
  /** Who gets the events; null: nobody, and they are but counted. @type {((event: any) => void) | null} */
  let next = null;
  let heard = 0;
  let replayedBefore = 0;
  /** @type {Window} */
  let window = newWindow(0, 0);
  /** What is used until the last event, once that has come. @type {Promise<any> | null} */
  let used = null;
  /** @type {ReturnType<typeof startMeter> | null} */
  let meter = null;
  /** @type {import('./queues.js').Queue | null} */
  let queue = null;
  const memory = { heap: 0, rss: 0 };

  /** @param {any} event */
  function receive(event) {
    heard += 1;
    if (next === null) {
      if (meter && heard === window.arrived.length) finishSoon();
      return;
    }
    const at = clock();
    note(event, at);
    next(event);
    window.insideMs += clock() - at;
    if (window.left === 0 && meter) finishSoon();
  }

  /** @param {any} event @param {number} at */
  function note(event, at) {
    const number = event.type === 'put' ? event.value?.writeNumber : undefined;
    const place = number - window.from;
    if (number === undefined) window.others += 1;
    else if (!(place >= 0 && place < window.arrived.length)) window.replayed += 1;
    else if (window.arrived[place] > 0) window.twice += 1;
    else {
      window.arrived[place] = at;
      window.left -= 1;
    }
  }

  /** What the queue puts off to the end of the turn is part of it. */
  function finishSoon() {
    const running = meter;
    meter = null;
    used = turn()
      .then(turn)
      .then(() => running?.stop());
  }

  /** The table as queues see it: they subscribe to what comes through here. @type {ScheduleTable} */
  const relay = {
    walk: (range) => table.walk(range),
    get: (key) => table.get(key),
    put: (key, row) => table.put(key, row),
    delete: (key) => table.delete(key),
    async subscribe(listener) {
      await open();
      next = listener;
      return { end: release };
    },
  };

  async function open() {
    subscription ??= await table.subscribe(receive, (why) => {
      closed = why;
    });
  }

  function release() {
    next = null;
    if (stays) return;
    subscription?.end();
    subscription = null;
  }

  /** Until it is so, or no event has come for too long. @param {() => boolean} isSo */
  async function patiently(isSo) {
    let before = -1;
    for (let waitedMs = 0; !isSo() && waitedMs < PATIENCE_MS; waitedMs += LOOK_MS) {
      if (closed) throw closed;
      if (heard !== before) waitedMs = 0;
      before = heard;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return isSo();
  }

  return {
    ready: () => process.pid,

    /** @param {{ arm: Arm, stay: boolean }} args */
    async arm({ arm, stay }) {
      stays = stay;
      if (stay) await open();
      memory.heap = heapInUse();
      memory.rss = process.memoryUsage.rss();
      heard = 0;
      window = newWindow(0, 0);
      if (arm !== 'none') queue = await QUEUES[arm](relay, rules);
    },

    /** Before a write of which `hear` then waits for the event. @param {{ number: number }} args */
    expect({ number }) {
      replayedBefore = window.replayed;
      window = newWindow(number, 1);
    },

    /** With that event all has come that the host had to replay: says how much it was. */
    async hear() {
      if (!subscription) return 0;
      if (!(await patiently(() => (next === null ? heard > 0 : window.left === 0))))
        throw new Error('a row was written, and no event came');
      return next === null ? heard - 1 : replayedBefore + window.replayed;
    },

    /** @param {{ from: number, count: number }} args */
    begin({ from, count }) {
      heard = 0;
      window = newWindow(from, count);
      used = null;
      meter = startMeter();
    },

    /** @param {{ sent: Float64Array, acknowledged: Float64Array }} args  by write, when */
    async end({ sent, acknowledged }) {
      const count = sent.length;
      if (!subscription || !(await patiently(() => used !== null))) finishSoon();
      const { ms, processUs, threadUs, gc } = await used;
      const rss = process.memoryUsage.rss();
      const figures = {
        ms,
        processUs: processUs / count,
        threadUs: threadUs / count,
        gc,
        events: heard / count,
        rss,
        rssGrowth: rss - memory.rss,
      };
      if (!queue) return { ...figures, missing: subscription ? Math.max(0, count - heard) : 0 };
      const { arrived, left, twice, replayed, others, insideMs } = window;
      const came = [...arrived.keys()].filter((i) => arrived[i] > 0);
      const fromSent = came.map((i) => arrived[i] - sent[i]);
      const fromAcknowledged = came.map((i) => arrived[i] - acknowledged[i]);
      return {
        ...figures,
        missing: left,
        twice,
        replayed,
        others,
        insideUs: (insideMs * 1e3) / Math.max(1, heard),
        lagSent: { p50: quantile(fromSent, 0.5), p99: quantile(fromSent, 0.99) },
        lagAcknowledged: {
          p50: quantile(fromAcknowledged, 0.5),
          p99: quantile(fromAcknowledged, 0.99),
        },
      };
    },

    /** What it holds, and whether that is what the table has; then it is gone. */
    async disarm() {
      const heap = heapInUse() - memory.heap;
      const held = { heapBytes: heap, keeperBytes: queue?.kept?.bytes() ?? 0 };
      const compared = queue?.kept ? await compare(table, queue.kept, rules) : null;
      await queue?.stop();
      queue = null;
      if (closed) throw closed;
      return { ...held, compared };
    },

    close() {
      stays = false;
      release();
    },
  };
}

module.exports = { listening };
