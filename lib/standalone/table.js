'use strict';

/**
 * The port `ScheduleTable` on embedded LMDB. Reads happen on the calling thread, straight from the map; writes
 * go to the one writing thread (`table-writer.js` says why) and resolve when they are on disk.
 *
 *     const writer = await startWriter(folder);          // once in the process, on the main thread
 *     const table = openTable(folder, writer.connect()); // in each thread; the port may be transferred to it
 */

const path = require('node:path');
const { MessageChannel, Worker } = require('node:worker_threads');
const { openEnvironment } = require('./environment.js');
const { decodeKey, decodeRow, encodeKey, rowOf, rowText, writtenOf } = require('./row-codec.js');

/**
 * @typedef {import('../schedule-table.js').ScheduleRow} ScheduleRow
 * @typedef {import('../schedule-table.js').ScheduleEvent} ScheduleEvent
 * @typedef {import('node:worker_threads').MessagePort} MessagePort
 * @typedef {{ port: MessagePort, commits: Int32Array }} Connection  to the writing thread
 *
 * One write: a row, or null to delete, or the text of a row as `rowText` made it. With `written`, see `table-writer.js`.
 * @typedef {{ key: string, row?: object | null, text?: string, ifVersion?: number, written?: number }} TableWrite
 * @typedef {{ version: number, existed: boolean }} WriteResult
 */

/** A write that did not reach the disk, or of which that is not known. */
class TableError extends Error {
  /**
   * @param {'E_TABLE_WRITE' | 'E_TABLE_CLOSED' | 'E_TABLE_READ'} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = 'TableError';
    this.code = code;
  }
}

/**
 * Starts the writing thread of a data folder.
 *
 * @param {string} folder
 * @param {{ windowEvents?: number, windowBytes?: number }} [limits]
 */
async function startWriter(folder, limits = {}) {
  const commits = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(path.join(__dirname, 'table-writer.js'), {
    workerData: { folder, commits, ...limits },
  });
  let stopped = false;
  const gone = new Promise((resolve) => worker.once('exit', resolve));
  await new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
  return {
    worker,
    /** Resolves when the thread has ended; `stopped` tells whether it was asked to. */
    gone,
    get stopped() {
      return stopped;
    },
    /** For one thread's `openTable`; to be sent to it with `port` in the transfer list. */
    connect() {
      const { port1, port2 } = new MessageChannel();
      worker.postMessage({ connect: port1 }, [port1]);
      return { port: port2, commits };
    },
    /** Writes what has arrived, then ends. */
    async stop() {
      stopped = true;
      worker.postMessage({ close: true });
      await gone;
    },
  };
}

class LmdbTable {
  /** @type {MessagePort | null} */
  #port = null;
  /** @type {ReturnType<typeof openEnvironment>} */
  #environment;
  #closed = false;
  /** Counts the writer's commits. @type {Int32Array} */
  #commits = new Int32Array(1);
  #seenCommits = -1;
  #nextId = 1;
  /** @type {Map<number, { resolve: (written: import('./table-writer.js').Written[]) => void, reject: (error: Error) => void }>} */
  #waiting = new Map();
  /** @type {Map<number, { listener: (event: ScheduleEvent) => void, onClose: (why: Error) => void, opened: () => void, failed: (why: Error) => void }>} */
  #subscriptions = new Map();

  /**
   * @param {string} folder
   * @param {Connection} connection
   */
  constructor(folder, connection) {
    this.#environment = openEnvironment(folder);
    this.attach(connection);
  }

  /**
   * Goes over to another writer, when the one before has died: what waited for that one is refused, and its
   * subscriptions are closed.
   *
   * @param {Connection} connection
   */
  attach({ port, commits }) {
    this.#detach('the writing thread was replaced');
    this.#port = port;
    this.#commits = commits;
    this.#seenCommits = -1;
    port.on('message', (message) => {
      if (this.#port === port) this.#receive(message);
    });
    port.on('close', () => {
      if (this.#port === port) this.#detach('the writing thread has ended');
    });
    this.#hold();
  }

  /** @param {string} why */
  #detach(why) {
    const port = this.#port;
    if (!port) return;
    this.#port = null;
    port.close();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) {
      reject(new TableError('E_TABLE_WRITE', `${why}: whether the row was written is not known`));
    }
    const subscriptions = [...this.#subscriptions.values()];
    this.#subscriptions.clear();
    for (const { failed, onClose } of subscriptions) {
      const error = new TableError('E_TABLE_CLOSED', why);
      failed(error);
      onClose(error);
    }
  }

  /** The port keeps the thread's loop alive only while something is expected from it. */
  #hold() {
    if (this.#waiting.size > 0 || this.#subscriptions.size > 0) this.#port?.ref();
    else this.#port?.unref();
  }

  /** @param {any} message */
  #receive(message) {
    if (message.subscription !== undefined) {
      this.#receiveEvents(message);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    this.#hold();
    if (message.error !== undefined) {
      waiting?.reject(
        new TableError(
          'E_TABLE_WRITE',
          `nothing was written (${message.error}): see that the disk has room`,
        ),
      );
    } else {
      waiting?.resolve(message.written);
    }
  }

  /** @param {any} message */
  #receiveEvents(message) {
    const id = message.subscription;
    const subscription = this.#subscriptions.get(id);
    if (message.open) {
      subscription?.opened();
    } else if (message.closed !== undefined) {
      this.#subscriptions.delete(id);
      this.#hold();
      subscription?.onClose(new TableError('E_TABLE_CLOSED', message.closed));
    } else {
      for (const [key, text, version, localTime] of message.events) {
        // Ended by its own listener, perhaps.
        if (!this.#subscriptions.has(id)) return;
        subscription?.listener(
          text === null
            ? { id: key, type: 'delete', value: null, version, localTime }
            : { id: key, type: 'put', value: rowOf(key, text, version), version, localTime },
        );
      }
      this.#port?.postMessage({
        subscription: id,
        events: message.events.length,
        bytes: message.bytes,
      });
    }
  }

  /**
   * @param {(event: ScheduleEvent) => void} listener
   * @param {(why: Error) => void} onClose
   * @returns {Promise<import('../schedule-table.js').Subscription>}
   */
  async subscribe(listener, onClose) {
    const port = this.#openPort();
    const id = this.#nextId++;
    await new Promise((resolve, reject) => {
      let open = false;
      this.#subscriptions.set(id, {
        listener,
        onClose: (why) => open && onClose(why),
        opened: () => {
          open = true;
          resolve(undefined);
        },
        failed: reject,
      });
      this.#hold();
      port.postMessage({ subscribe: id });
    });
    return {
      end: () => {
        if (!this.#subscriptions.delete(id)) return;
        this.#hold();
        this.#port?.postMessage({ subscription: id, end: true });
      },
    };
  }

  /**
   * @param {import('../schedule-table.js').WalkRange} range
   * @returns {Promise<ScheduleRow[]>}
   */
  async walk({ after = null, before = null, limit, reverse = false, keysOnly = false }) {
    const low = after === null ? undefined : encodeKey(after);
    const high = before === null ? undefined : encodeKey(before);
    /** @type {ScheduleRow[]} */
    const found = [];
    const entries = this.#fresh().rows.getRange({
      start: reverse ? high : low,
      end: reverse ? low : high,
      reverse,
      // `lmdb` takes the start in and leaves the end out: the one of the two that is a cursor is skipped below.
    });
    for (const { key: id, value } of entries) {
      if (found.length === limit) break;
      if (low?.equals(id) || high?.equals(id)) continue;
      const key = decodeKey(id, value);
      // Without its key a row can neither be named nor be a cursor.
      if (key === null) continue;
      try {
        found.push(keysOnly ? { cacheKey: key } : decodeRow(key, value));
      } catch (error) {
        found.push({ cacheKey: key, unreadable: /** @type {Error} */ (error).message });
      }
    }
    return found;
  }

  /**
   * @param {string} key
   * @returns {Promise<ScheduleRow | null>}
   */
  async get(key) {
    return this.getSync(key);
  }

  /**
   * @param {string} key
   * @returns {ScheduleRow | null}
   */
  getSync(key) {
    const value = this.#fresh().rows.get(encodeKey(key));
    if (value === undefined) return null;
    try {
      return decodeRow(key, value);
    } catch (error) {
      const why = /** @type {Error} */ (error).message;
      throw new TableError('E_TABLE_READ', `the row cannot be read (${why}): write it again`);
    }
  }

  /** When a row was written, on whichever node; 0 where there is none. @param {string} key */
  writtenAt(key) {
    const value = this.#fresh().rows.get(encodeKey(key));
    return value === undefined ? 0 : writtenOf(value);
  }

  /**
   * Resolves when the row is on disk; with `ifVersion`, to null where the row's version is another.
   *
   * @param {string} key
   * @param {object} row
   * @param {{ ifVersion?: number }} [options]
   */
  async put(key, row, options = {}) {
    const [written] = await this.write([{ key, row, ...options }]);
    return written;
  }

  /**
   * @param {string} key
   * @param {{ ifVersion?: number }} [options]
   */
  async delete(key, options = {}) {
    const [written] = await this.write([{ key, row: null, ...options }]);
    return written;
  }

  /**
   * All of them in one commit, or none.
   *
   * @param {TableWrite[]} writes
   * @returns {Promise<(WriteResult | null)[]>}
   */
  async write(writes) {
    const written = await this.#request(
      writes.map(({ key, row = null, text = row && rowText(row), ifVersion, written }) => {
        if (written !== undefined) return [key, text, ifVersion, written];
        return ifVersion === undefined ? [key, text] : [key, text, ifVersion];
      }),
    );
    return written.map((one) => one && { version: one[0], existed: one[1] });
  }

  /**
   * @param {import('./table-writer.js').Write[]} writes
   * @param {[string, unknown]} [meta]
   * @returns {Promise<import('./table-writer.js').Written[]>}
   */
  #request(writes, meta) {
    return new Promise((resolve, reject) => {
      const port = this.#openPort();
      const id = this.#nextId++;
      this.#waiting.set(id, { resolve, reject });
      this.#hold();
      port.postMessage(meta ? { id, writes, meta } : { id, writes });
    });
  }

  /** A named value kept beside the rows, such as whether claims are paused. @param {string} name */
  setting(name) {
    return this.#fresh().meta.get(`setting:${name}`);
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  async saveSetting(name, value) {
    await this.#request([], [`setting:${name}`, value]);
  }

  /** How many rows there are. */
  count() {
    return Number(/** @type {any} */ (this.#fresh().rows.getStats()).entryCount);
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#detach('the table was closed');
    await this.#environment.root.close();
  }

  /** The environment as of the latest commit: `lmdb` itself keeps one read transaction for a whole turn. */
  #fresh() {
    const environment = this.#open();
    const commits = Atomics.load(this.#commits, 0);
    if (commits !== this.#seenCommits) {
      this.#seenCommits = commits;
      environment.root.resetReadTxn();
    }
    return environment;
  }

  #open() {
    if (this.#closed) throw new TableError('E_TABLE_CLOSED', 'the table was closed');
    return this.#environment;
  }

  #openPort() {
    this.#open();
    if (!this.#port) {
      throw new TableError('E_TABLE_WRITE', 'nothing was written: the writing thread is starting');
    }
    return this.#port;
  }
}

/**
 * @param {string} folder
 * @param {Connection} connection  from `startWriter(...).connect()`
 */
function openTable(folder, connection) {
  return new LmdbTable(folder, connection);
}

module.exports = { startWriter, openTable, LmdbTable, TableError };
