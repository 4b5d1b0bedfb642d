/**
 * Loaded into the main thread of the host that is measured (`node -r`): compares what is kept with the table, saves a
 * snapshot, says what the head of the queue is and what CPU the process has had, and asks the thread that feeds
 * (`listening.js`), when asked by the harness that started it. Until then it does nothing.
 */

const { isMainThread } = require('node:worker_threads');

const KEEPER_NAME = 'render-queue';
const CHUNK = 1000;

/** @param {any} keeper @param {string} data */
async function compare(keeper, data) {
  const { expectedOf, pick } = require('../../__test__/support/compare.js');
  const { openEnvironment } = require('../../lib/standalone/environment.js');
  const { decodeKey, decodeRow } = require('../../lib/standalone/row-codec.js');
  const { isDeepStrictEqual } = require('node:util');
  const { root, rows } = openEnvironment(data);
  root.resetReadTxn();
  let read = 0;
  let expected = 0;
  let different = 0;
  const examples = [];
  for (const { key: id, value } of rows.getRange({})) {
    const key = String(decodeKey(id, value));
    const wanted = expectedOf(decodeRow(key, value));
    const found = keeper.describe(key);
    read += 1;
    if (wanted) expected += 1;
    if (!isDeepStrictEqual(found && pick(found), wanted)) {
      different += 1;
      if (examples.length < 3) examples.push(JSON.stringify({ key, wanted, found }));
    }
    if (read % CHUNK === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  // What is kept and not in the table.
  different += Math.max(0, keeper.size - expected);
  return { rows: read, kept: keeper.size, different, examples };
}

if (isMainThread && process.send) {
  /** @type {any} */
  let keeper = null;
  /** @type {((question: object) => Promise<any>) | null} */
  let askFeeder = null;
  process.on('message', async (/** @type {any} */ question) => {
    let answer;
    try {
      keeper ??= require('../..').QueueKeeper.open(KEEPER_NAME);
      if (question.compare) answer = await compare(keeper, question.compare);
      else if (question.topK) answer = keeper.topK(question.topK);
      else if (question.cpu) answer = process.cpuUsage();
      else if (question.feeder) {
        askFeeder ??= require('./listening.js').openChannel();
        answer = await askFeeder(question.feeder);
      } else answer = await keeper.saveSnapshot(question.save);
    } catch (error) {
      answer = { error: /** @type {Error} */ (error).message };
    }
    process.send?.(answer);
  });
}
