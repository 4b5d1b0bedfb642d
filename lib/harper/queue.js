'use strict';

/**
 * The queue in one of Harper's worker threads: a handle on the queue of the process for claims, results and the admin
 * routes, and, in whichever thread has the role, the feeder.
 *
 * Who feeds: worker 0, as long as there is one that lives. The others stand by (`arbiter.js`), and wait a little longer.
 * When Harper restarts its workers, the old worker 0 goes on feeding until the new one has taken over: no event falls
 * between them.
 */

const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { QueueKeeper } = require('../../index.js');
const { standBy } = require('../arbiter.js');
const { createClaims } = require('../claims.js');
const { Feeder } = require('../feeder.js');
const { serveConsole } = require('./console.js');
const { followOptions } = require('./follow.js');
const { HarperNodes } = require('./nodes.js');
const { readOptions } = require('./options.js');
const { HarperTable } = require('./table.js');

/**
 * What this uses of Harper, which has it in globals of each thread.
 * @typedef {object} Harper
 * @property {any} databases
 * @property {any} server
 * @property {any} threads
 * @property {(context: object, work: () => unknown) => any} transaction
 *
 * @typedef {import('./options.js').HarperOptions} HarperOptions
 * @typedef {(level: 'info' | 'warn' | 'error', message: string) => void} Log
 */

/** Worker 0 is waited for as long as a worker takes to start, and when it stands still has the first word. */
const PATIENCE = { silenceMs: 6_000, patienceMs: 5_000 };
const SETTING_MS = 2_000;
/** Less than the silence after which the next one takes over. */
const PEERS_MS = 3_000;
const LOOK_MS = 20;
/** What is decided when the queue is first opened in the process. */
const FIXED = ['delimiter', 'deviceTypes', 'flowMinutes', 'maxListed'];

/** Emits 'status' in the thread that feeds: whenever the queue's status changes. */
class HarperQueue extends EventEmitter {
  #harper;
  #log;
  #read;
  #name;
  #nodes;
  #table;
  #claims;
  /** @type {HarperOptions} */
  #options;
  #keeper;
  /** @type {{ feeder: InstanceType<typeof Feeder>, handle: InstanceType<typeof QueueKeeper> } | null} */
  #feeding = null;
  #starting = false;
  #leaving = false;
  #leave;
  /** Ends the following of the component's file. */
  #unfollow = () => {};

  /**
   * @param {object} parts
   * @param {Harper} parts.harper
   * @param {() => any} parts.given  the options, as they are now
   * @param {Log} parts.log
   */
  constructor({ harper, given, log }) {
    super();
    this.#harper = harper;
    this.#log = log;
    this.#nodes = new HarperNodes({ harper, log });
    const { server } = harper;
    const from = (/** @type {any} */ options) =>
      readOptions(options, { node: this.#nodes.own, config: server.config });
    this.#read = () => from(given());
    /** @type {unknown} */
    let wrong = null;
    try {
      this.#options = this.#read();
    } catch (error) {
      wrong = error;
      const { database, table, settings } = given() ?? {};
      this.#options = from({ database, table, settings });
    }
    const { database, table } = this.#options;
    this.#name = `harper ${database}.${table}`;
    if (wrong) this.#join(wrong);
    this.#keeper = this.#open();
    // Another worker may answer requests before the one that will feed has started.
    this.#keeper.expectFeeder();
    this.#table = new HarperTable({
      table: () => this.#tableOf(table),
      transaction: harper.transaction,
    });
    this.#claims = createClaims({
      keeper: this.#keeper,
      table: this.#table,
      defaultInterval: () => this.#options.defaultInterval,
    });
    harper.threads?.onMessageByType?.('shutdown', () => this.#handOver());
    this.#leave = standBy({
      keeper: this.#keeper,
      takeOver: (silenceMs) => void this.#feed(silenceMs),
      onError: (error) => log('error', `this worker can no longer feed: ${error}`),
      ...((server.workerIndex ?? 0) === 0 ? {} : PATIENCE),
    });
  }

  /**
   * @param {any} source  a component's scope, whose options are followed as they change; or the options
   * @param {Harper & { logger?: any }} harper
   */
  static start(source, harper) {
    const isScope = typeof source.options?.getAll === 'function';
    const logger = (isScope && source.logger) || harper.logger;
    const queue = new HarperQueue({
      harper,
      given: () => (isScope ? source.options.getAll() : source),
      // A level that is not logged has no function.
      log: (level, message) => logger?.[level]?.(`render queue: ${message}`),
    });
    if (isScope) {
      queue.#unfollow = followOptions(source, { take: () => queue.reload(), log: queue.#log });
    }
    const mount = queue.#options.console;
    if (mount) harper.server.http?.(serveConsole(mount), { runFirst: true });
    return queue;
  }

  /** For claims and all else, but not for feeding. */
  get keeper() {
    return this.#keeper;
  }

  /** Whether it is this thread that feeds. */
  get isFeeding() {
    return this.#feeding !== null;
  }

  /** This node's name. */
  get node() {
    return this.#nodes.own;
  }

  /** All nodes, and where each answers. */
  get addresses() {
    return this.#nodes.addresses(this.#options.peerUrl);
  }

  /** The best jobs, each held against its row. @param {number} [limit]  1 to 10,000 */
  claimJobs(limit) {
    return this.#claims.claim(limit);
  }

  /** Ends a job and writes what came of it. @param {import('../claims.js').Result} result */
  finishJob(result) {
    return this.#claims.finish(result);
  }

  /**
   * @param {boolean} paused
   * @returns {Promise<{ paused: boolean, status: string, kept: boolean }>}  `kept`: it holds over a restart of Harper
   */
  async setPaused(paused) {
    const table = this.#settings;
    if (table) {
      const context = {};
      const record = { id: this.#pausedId, value: paused };
      await this.#harper.transaction(context, () => table.put(record.id, record, context));
    }
    if (paused) this.#keeper.pause();
    else this.#keeper.resume();
    return { paused, status: this.#keeper.status, kept: table !== undefined };
  }

  /** The options have changed: what is wrong with the new ones is said, and the old ones stay. */
  reload() {
    let options;
    try {
      options = this.#read();
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      this.#log('error', `the options are wrong, and those before stay: ${message}`);
      return;
    }
    const before = this.#options;
    this.#options = options;
    const fixed = ['database', 'table'].some(
      (name) => /** @type {any} */ (options)[name] !== /** @type {any} */ (before)[name],
    );
    if (fixed || !isSame(fixedOf(options), fixedOf(before))) {
      this.#log(
        'warn',
        `database, table, ${FIXED.join(', ')} change only when Harper is started again`,
      );
    }
    if (!this.#feeding) return;
    this.#configure(options.changeable);
    if (options.verifyEveryMs !== before.verifyEveryMs || options.snapshot !== before.snapshot) {
      void this.#refeed();
    }
  }

  /** Nothing of it goes on in this thread; the queue stays, for the others. */
  async stop() {
    this.#leaving = true;
    this.#unfollow();
    this.#leave();
    await this.#feeding?.feeder.stop();
    this.#endFeeding();
    this.#keeper.close();
  }

  // The queue

  #open() {
    const { keeper } = this.#options;
    try {
      return QueueKeeper.open(this.#name, keeper);
    } catch (error) {
      // Of an option that has been changed since, or is another in this worker's file: whoever feeds sees to it.
      const isOther = /** @type {any} */ (error).code === 'E_OPTIONS' && !keeper?.classify;
      if (isOther) return QueueKeeper.open(this.#name);
      throw error;
    }
  }

  /**
   * A worker that starts after its file went wrong: where others hold the queue, with the options before, it is one of
   * them. Where there is none yet, nobody knows what it should be.
   *
   * @param {unknown} wrong
   */
  #join(wrong) {
    const joined = QueueKeeper.open(this.#name);
    const { epoch } = joined.state().trust.keeper;
    joined.close();
    if (epoch === 0) throw wrong;
    this.#log('error', `the options are wrong, and those of the other workers hold: ${wrong}`);
    this.#options = { ...this.#options, keeper: undefined, changeable: {} };
  }

  /** @param {string} name @returns {any} */
  #tableOf(name) {
    const { database } = this.#options;
    const table = this.#harper.databases[database]?.[name];
    if (!table)
      throw new Error(`there is no table ${database}.${name}: see the component's schema`);
    return table;
  }

  // Feeding

  /** @param {number} silenceMs  of the feeder before; infinite where there is none */
  async #feed(silenceMs) {
    if (this.#feeding || this.#starting || this.#leaving) return;
    this.#starting = true;
    try {
      if (Number.isFinite(silenceMs)) {
        this.#log(
          'warn',
          `the feeder was silent for ${Math.round(silenceMs)} ms: this worker feeds`,
        );
      }
      // No claim has been granted in this process yet, and none is before there is a feeder.
      if (this.#keeper.state().trust.keeper.epoch === 0) await this.#restorePause();
      // The one before feeds until then: it must not be deposed by one that has to wait itself.
      else await this.#seePeers();
      if (!this.#leaving) this.#startFeeder();
    } catch (error) {
      this.#log('error', `this worker cannot feed: ${/** @type {Error} */ (error).message}`);
    } finally {
      this.#starting = false;
    }
  }

  async #seePeers() {
    for (const until = performance.now() + PEERS_MS; performance.now() < until; ) {
      if (this.#leaving || this.#nodes.peers() !== null) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  #startFeeder() {
    const { verifyEveryMs, changeable } = this.#options;
    // A handle of its own: what the next feeder has refused of this one is no affair of the requests.
    const handle = this.#open();
    const feeder = new Feeder({
      keeper: handle,
      table: this.#table,
      peers: () => this.#nodes.peers(),
      snapshot: this.#snapshotFile(),
      verifyEveryMs,
      pulse: {
        beat: () => {
          if (!this.#leaving) handle.beat();
        },
        vacate: () => handle.vacate(),
      },
      log: this.#log,
    });
    this.#feeding = { feeder, handle };
    const gone = () => {
      if (this.#feeding?.feeder === feeder) this.#endFeeding();
    };
    feeder.on('deposed', gone);
    feeder.on('failed', gone);
    feeder.on('status', (status) => this.emit('status', status));
    feeder.start();
    this.#configure(changeable);
    this.#log('info', 'this worker feeds the render queue');
  }

  /** Its folder is made; undefined where there is to be none, or cannot be one. */
  #snapshotFile() {
    const { snapshot } = this.#options;
    if (snapshot === undefined) return undefined;
    try {
      fs.mkdirSync(path.dirname(snapshot), { recursive: true });
      return snapshot;
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      this.#log(
        'error',
        `there is no snapshot to start from next time (${message}): name another file with the option snapshot, or make its folder and start Harper again`,
      );
      return undefined;
    }
  }

  #endFeeding() {
    this.#feeding?.handle.close();
    this.#feeding = null;
  }

  /** For options that the feeder takes at its start only. */
  async #refeed() {
    const { feeder } = this.#feeding ?? {};
    await feeder?.stop();
    if (this.#feeding?.feeder !== feeder) return;
    this.#endFeeding();
    await this.#feed(Number.POSITIVE_INFINITY);
  }

  /** The thread will end: it feeds until another does. */
  #handOver() {
    this.#leaving = true;
    this.#unfollow();
    this.#leave();
    this.#feeding?.handle.vacate();
  }

  /** Changes nothing where it is so already. @param {Record<string, any>} changeable */
  #configure(changeable) {
    const { feeder, handle } = this.#feeding ?? {};
    feeder
      ?.configure(changeable)
      .then(() => {
        for (const { what } of handle?.state().trust.keeper.invalidRules ?? []) {
          this.#log('warn', `a rule of the options is left out: ${what}`);
        }
      })
      .catch((error) => {
        if (error.code !== 'E_DEPOSED' && error.code !== 'E_CLOSED') {
          this.#log('error', `the options do not hold: ${error.message}`);
        }
      });
  }

  // Paused, over restarts. The table is replicated, and each node has its own.

  get #pausedId() {
    return `paused ${this.#nodes.own}`;
  }

  /** @returns {any} */
  get #settings() {
    const { database, settings } = this.#options;
    return this.#harper.databases[database]?.[settings];
  }

  async #restorePause() {
    const table = this.#settings;
    if (!table) return;
    const reading = table.get({ id: this.#pausedId }, { replicateFrom: false });
    try {
      const record = await within(SETTING_MS, reading);
      if (record?.value !== true) return;
      this.#keeper.pause();
      this.#log('warn', 'claims are paused, as they were when Harper last ran');
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      this.#log('error', `whether claims were paused cannot be read: ${message}`);
    }
  }
}

/** @param {HarperOptions} options */
function fixedOf({ keeper }) {
  return FIXED.map((name) => keeper?.[name]);
}

/** @param {unknown} a @param {unknown} b */
function isSame(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** @template T @param {number} ms @param {Promise<T> | T} promise @returns {Promise<T>} */
async function within(ms, promise) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Harper did not answer for ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, /** @type {Promise<never>} */ (late)]);
  } finally {
    clearTimeout(timer);
  }
}

module.exports = { HarperQueue };
