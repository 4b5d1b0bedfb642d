/**
 * What may be fed by the listener: nothing, the plain-JS keeper, this keeper. Each is started on a table, which it subscribes to
 * itself, and is up when `start` resolves.
 */

const { QueueKeeper } = require('../..');
const { Feeder } = require('../../lib/feeder.js');
const { createClassifier, createQueueKeeper } = require('../baseline/js-keeper.js');
const { PRIORITY } = require('../corpus.js');
const { turn } = require('./meter.js');

/** @typedef {import('../../lib/schedule-table.js').ScheduleTable} ScheduleTable */
/** @typedef {{ routes: import('../..').RouteRule[], defaultInterval: number }} Rules */
/**
 * @typedef {object} Kept
 * @property {() => number} size
 * @property {() => number} bytes  outside the JS heap
 * @property {(key: string) => any} describe
 * @property {(n: number) => number[]} topScores
 */
/** @typedef {{ kept: Kept | null, stop: () => Promise<void> }} Queue */

const CHUNK = 1_000;
let opened = 0;

/** @param {Pick<ScheduleTable, 'subscribe'>} table @param {(event: any) => void} [listener] */
async function listen(table, listener = () => {}) {
  /** @type {Error | null} */
  let closed = null;
  const subscription = await table.subscribe(listener, (why) => {
    closed = why;
  });
  return async () => {
    subscription.end();
    if (closed) throw closed;
  };
}

/** A subscription, and nothing behind it. @param {ScheduleTable} table @returns {Promise<Queue>} */
async function startNothing(table) {
  return { kept: null, stop: await listen(table) };
}

/**
 * The component's own keeper: subscribes, then walks the table.
 *
 * @param {ScheduleTable} table @param {Rules} rules @returns {Promise<Queue>}
 */
async function startJs(table, rules) {
  const keeper = createQueueKeeper({ classify: createClassifier(rules) });
  const stop = await listen(table, ({ id, type, value }) => {
    if (type === 'put') keeper.apply(id, value);
    else if (type === 'delete' || type === 'invalidate') keeper.apply(id, null);
  });
  /** @type {string | null} */
  let after = null;
  for (;;) {
    const rows = await table.walk({ after, limit: CHUNK });
    if (rows.length === 0) break;
    for (const row of rows) keeper.apply(row.cacheKey, row, { quiet: true });
    after = rows[rows.length - 1].cacheKey;
    await turn();
  }
  /** @type {Kept} */
  const kept = {
    size: () => keeper.size,
    bytes: () => 0,
    describe: (key) => keeper.describe(key),
    topScores: (n) => keeper.topK(n, PRIORITY).rows.map(({ score }) => score),
  };
  return { kept, stop };
}

/**
 * This keeper, by the feeder that every host uses.
 *
 * @param {ScheduleTable} table @param {Rules} rules @returns {Promise<Queue>}
 */
async function startNative(table, rules) {
  const { routes, defaultInterval } = rules;
  const options = { node: 'localhost', routes, defaultInterval, priority: PRIORITY };
  const keeper = QueueKeeper.open(`bench ${opened++}`, options);
  /** @type {string[]} */
  const said = [];
  const feeder = new Feeder({
    keeper,
    table,
    pulse: keeper,
    log: (level, message) => level !== 'info' && said.push(message),
  });
  const loaded = new Promise((resolve, reject) => {
    feeder.once('walked', resolve);
    feeder.once('failed', reject);
  });
  feeder.start();
  await loaded;
  /** @type {Kept} */
  const kept = {
    size: () => keeper.size,
    bytes: () => keeper.bytes,
    describe: (key) => keeper.describe(key),
    topScores: (n) => keeper.topK(n).rows.map(({ score }) => score),
  };
  return {
    kept,
    async stop() {
      await feeder.stop();
      keeper.close();
      // A gap, a missed write, a walk that failed: no measurement of a queue that is fed.
      if (said.length > 0) throw new Error(`the feeder complained: ${said.join('; ')}`);
    },
  };
}

const QUEUES = { count: startNothing, js: startJs, native: startNative };

module.exports = { QUEUES };
