/** A thread of table.test.js: opens the table and writes its share of keys, or reads for ever. */

const { parentPort, workerData } = require('node:worker_threads');
const { openTable } = require('../../lib/standalone/table.js');

const { folder, connection, name, keys, rounds } = workerData;
const table = openTable(folder, connection);

async function write() {
  for (let round = 1; round <= rounds; round++) {
    // Some one by one, some many at a time: both ways into a commit.
    if (round % 2 === 0) {
      await Promise.all(
        keys.map((/** @type {string} */ key) =>
          table.put(key, { nextRenderTime: round, by: name }),
        ),
      );
    } else {
      await table.write(
        keys.map((/** @type {string} */ key) => ({
          key,
          row: { nextRenderTime: round, by: name },
        })),
      );
    }
  }
  parentPort?.postMessage('done');
  await table.close();
  parentPort?.close();
}

function readForEver() {
  table.walk({ limit: 500 }).then(() => setImmediate(readForEver));
  table.put(`${name}:${Math.floor(Math.random() * 100)}`, { nextRenderTime: 1 }).catch(() => {});
}

if (rounds > 0) {
  write();
} else {
  readForEver();
  parentPort?.postMessage('reading');
}
