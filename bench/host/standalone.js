/**
 * The table of the standalone host, as it is: LMDB with its writing thread, and two worker threads, one that writes and one that listens.
 * This file is both the start of it and what runs in the two.
 */

const path = require('node:path');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { openTable, startWriter } = require('../../lib/standalone/table.js');
const { corpus } = require('../corpus.js');
const { joinThreads } = require('./channel.js');
const { listening } = require('./listener.js');
const { writing } = require('./writer.js');

/** @typedef {{ rows: number, classes: number, seed: number }} CorpusOptions */

/** @param {string} folder  for the data @param {CorpusOptions} options @returns {Promise<import('../host.js').Host>} */
async function startStandalone(folder, options) {
  const data = path.join(folder, 'standalone');
  const writer = await startWriter(data);
  const threads = await Promise.all(
    ['listener', 'writer'].map(async (role) => {
      const connection = writer.connect();
      const thread = new Worker(__filename, {
        workerData: { role, data, connection, corpus: options },
        transferList: [connection.port],
      });
      await new Promise((resolve, reject) => {
        thread.once('message', resolve);
        thread.once('error', reject);
      });
      return thread;
    }),
  );
  const ask = joinThreads('harness');
  return {
    ask,
    async stop() {
      ask.close();
      for (const thread of threads) await thread.terminate();
      await writer.stop();
    },
  };
}

function run() {
  const { role, data, connection, corpus: options } = workerData;
  const table = openTable(data, connection);
  const rows = corpus(options);
  /** @type {import('./writer.js').Target} */
  const target = {
    put: (key, row) => table.put(key, row),
    putAll: (entries) => table.write(entries),
  };
  joinThreads(role, (ask) =>
    role === 'listener' ? listening(table, rows) : writing(target, rows, ask),
  );
  parentPort?.postMessage('ready');
}

if (!isMainThread && workerData?.role) run();

module.exports = { startStandalone };
