/** The standalone host as a child process: its rows written, started, asked, killed. */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { openEnvironment } = require('../../lib/standalone/environment.js');
const { decodeRow, encodeKey } = require('../../lib/standalone/row-codec.js');
const { openTable, startWriter } = require('../../lib/standalone/table.js');

const MAIN = path.join(__dirname, '../../lib/standalone/main.js');
const INSIDE = path.join(__dirname, 'inside.js');
const LISTENING = path.join(__dirname, 'listening.js');
const TURNS = path.join(__dirname, 'turns.js');
const FAULTS = path.join(__dirname, '../../__test__/support/worker-faults.js');
const PATIENCE_MS = 180_000;

/** @typedef {ReturnType<typeof import('../corpus.js').corpus>} Corpus */
/** @typedef {Awaited<ReturnType<typeof startHost>>} Host */
/** @typedef {{ rows: number, kept: number, different: number, examples: string[] }} Comparison */

/** Goes with this process, however that ends. @param {string} name @param {string} [within] */
function temporaryFolder(name, within = os.tmpdir()) {
  const folder = fs.mkdtempSync(path.join(within, `queue-keeper-${name}-`));
  process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.once(signal, () => process.exit(1));
  }
  return folder;
}

/**
 * Writes the corpus into a new data folder, and the configuration that goes with it.
 *
 * @param {string} data @param {Corpus} rows @param {number} epoch  as in `rows.value`
 * @param {{ isOwn?: (key: string) => boolean, byKey?: boolean }} [options]  `isOwn`: of which keys there are to be rows, if not
 *   of all; `byKey`: in the order of the keys, which leaves the file without gaps
 */
async function writeCorpus(data, rows, epoch, { isOwn = () => true, byKey = false } = {}) {
  fs.mkdirSync(data, { recursive: true });
  const config = { routes: rows.routes, defaultInterval: rows.defaultInterval };
  fs.writeFileSync(path.join(data, 'config.json'), JSON.stringify(config));
  const writer = await startWriter(data);
  const table = openTable(data, writer.connect());
  const order = Uint32Array.from({ length: rows.rows }, (_, i) => i);
  if (byKey) {
    const keys = Array.from(order, (i) => rows.key(i));
    order.sort((a, b) => (keys[a] < keys[b] ? -1 : 1));
  }
  let written = 0;
  for (let from = 0; from < rows.rows; from += 5000) {
    const writes = [];
    for (const i of order.subarray(from, from + 5000)) {
      const key = rows.key(i);
      if (isOwn(key)) writes.push({ key, row: { cacheKey: key, ...rows.value(i, epoch) } });
    }
    await table.write(writes);
    written += writes.length;
  }
  const count = table.count();
  await table.close();
  await writer.stop();
  if (count !== written) throw new Error(`the table has ${count} of ${written} rows`);
}

/** Reads single rows of a data folder beside the process that serves it. @param {string} data */
function openReader(data) {
  const { root, rows } = openEnvironment(data);
  return {
    /** @param {string} key */
    get(key) {
      const value = rows.get(encodeKey(key));
      return value === undefined ? null : decodeRow(key, value);
    },
    fresh: () => root.resetReadTxn(),
    close: () => root.close(),
  };
}

/**
 * Resolves when the host says that it listens; `listeningMs` is how long that took.
 *
 * @param {{ data: string, port?: number, workers: number, faults?: string, listening?: boolean, turns?: string, more?: string[] }} options
 *   `faults`: a folder for `__test__/support/worker-faults.js`; `listening`: with what `watch` and `resend` need; `turns`: a folder
 *   for `turns.js`; `more`: arguments
 */
async function startHost({ data, port = 0, workers, faults, listening = false, turns, more = [] }) {
  const preload = ['-r', INSIDE];
  if (faults) preload.push('-r', FAULTS);
  if (listening) preload.push('-r', LISTENING);
  if (turns) preload.push('-r', TURNS);
  const args = ['--port', String(port), '--data', data, '--workers', String(workers), ...more];
  const startedAt = performance.now();
  const child = spawn(process.execPath, [...preload, MAIN, ...args, '--sample', '0'], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...process.env, ...(faults && { FAULTS: faults }), ...(turns && { TURNS: turns }) },
  });
  const endWithUs = () => child.kill('SIGKILL');
  process.prependOnceListener('exit', endWithUs);
  let output = '';
  /** @type {Set<() => void>} */
  const readers = new Set();
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      output += chunk;
      for (const reader of [...readers]) reader();
    });
  }
  const ended = new Promise((resolve) => {
    child.once('exit', () => {
      process.off('exit', endWithUs);
      resolve(undefined);
    });
  });

  /**
   * Waits for the host to print something, and says when it did.
   *
   * @param {RegExp} pattern @param {number} [from]  where in what it printed to begin
   * @returns {Promise<{ match: RegExpExecArray, at: number }>}
   */
  function said(pattern, from = 0) {
    return new Promise((resolve, reject) => {
      const done = () => {
        clearTimeout(timer);
        readers.delete(look);
      };
      const look = () => {
        const match = pattern.exec(output.slice(from));
        if (!match) return;
        done();
        resolve({ match, at: performance.now() });
      };
      const fail = (/** @type {string} */ why) => {
        done();
        reject(new Error(`${why} while waiting for ${pattern}:\n${output}`));
      };
      const timer = setTimeout(fail, PATIENCE_MS, 'too long');
      readers.add(look);
      void ended.then(() => fail('the host has ended'));
      look();
    });
  }

  /** Asks `inside.js`. @param {object} question @returns {Promise<any>} */
  function ask(question) {
    return new Promise((resolve, reject) => {
      child.once('message', (/** @type {any} */ answer) =>
        answer.error ? reject(new Error(answer.error)) : resolve(answer),
      );
      void ended.then(() => reject(new Error(`the host has ended:\n${output}`)));
      child.send(question);
    });
  }

  const { match, at } = await said(/listens on (http:\S+),/);
  const url = String(match[1]);
  return {
    url,
    port: Number(new URL(url).port),
    pid: child.pid,
    startedAt,
    listeningMs: at - startedAt,
    said,
    output: () => output,
    /** A snapshot, as the feeder saves one each minute. @param {string} file */
    saveSnapshot: (file) => ask({ save: file }),
    /** The best of the queue, as `keeper.topK` says them. @param {number} n @returns {Promise<ReturnType<import('../..').QueueKeeper['topK']>>} */
    topK: (n) => ask({ topK: n }),
    /**
     * Every row of the table against what is kept of it, once what was written has arrived.
     * @returns {Promise<Comparison>}
     */
    async compare() {
      for (let tries = 1; ; tries++) {
        const compared = await ask({ compare: data });
        if (compared.different === 0 || tries === 20) return compared;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },
    /** CPU time of the process so far, ms. @returns {Promise<number>} */
    async cpuMs() {
      const { user, system } = await ask({ cpu: true });
      return (user + system) / 1000;
    },
    /** From now on, what the listener of the feeder is told is noted; `seen` gives it, and ends that. */
    watch: () => ask({ feeder: { watch: true } }),
    /** @returns {Promise<import('./listening.js').Seen>} */
    seen: () => ask({ feeder: { seen: true } }),
    /** The whole table is told to the live listener once more. @returns {Promise<import('./listening.js').Resent>} */
    resend: () => ask({ feeder: { resend: true } }),
    /** Stops the whole process in its tracks, until it is sent on. */
    freeze: () => child.kill('SIGSTOP'),
    thaw: () => child.kill('SIGCONT'),
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

module.exports = { temporaryFolder, writeCorpus, openReader, startHost };
