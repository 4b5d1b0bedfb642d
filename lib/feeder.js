'use strict';

/**
 * Keeps a keeper fed from a schedule table: subscribes, loads, verifies, repairs, and says when the queue's
 * status changes. It knows the keeper and the port `ScheduleTable`, and nothing of what is behind either.
 *
 *     const feeder = new Feeder({ keeper, table });
 *     feeder.on('status', (status) => wakeTheFleet(status));
 *     feeder.start();
 *     ...
 *     await feeder.stop();
 *
 * One feeder at a time feeds a keeper. Starting one deposes the one before, wherever it runs; a deposed feeder
 * ends by itself, without a word to the keeper, and emits 'deposed'.
 *
 * The course of it, in `#run`: take the role, wait for peers, read the snapshot; then, for as long as it runs,
 * one subscription after another, each followed by a walk (`#feed`). Beside it run the head check, the snapshot
 * and the watch on the status, each a loop of its own that ends with the feeder.
 */

const { EventEmitter } = require('node:events');
const { existsSync } = require('node:fs');
const { sampleKeys } = require('./sample-keys.js');

/**
 * @typedef {import('./schedule-table.js').ScheduleTable} ScheduleTable
 * @typedef {import('./schedule-table.js').ScheduleRow} ScheduleRow
 *
 * @typedef {import('../index.js').Walk} Walk
 *
 * What the feeder uses of the keeper.
 * @typedef {Pick<import('../index.js').QueueKeeper, 'apply' | 'beginWalkAsync' | 'configureAsync' | 'headCheck'
 *   | 'learnKeys' | 'loadSnapshot' | 'nextChange' | 'onApplied' | 'readFailed' | 'repair' | 'saveSnapshot' | 'setPhase' | 'size'
 *   | 'state' | 'status' | 'takeFeeder' | 'version'>} Keeper
 *
 * Time, so that a simulator can be its master.
 * @typedef {object} Time
 * @property {() => number} now  ms since the epoch, by the clock that the keeper goes by
 * @property {() => number} mono  ms, by a clock that only goes forward
 * @property {(ms: number, then: () => void) => () => void} after  returns what cancels it
 * @property {() => Promise<void>} turn  lets the event loop go round once
 *
 * @typedef {object} FeederOptions
 * @property {Keeper} keeper
 * @property {ScheduleTable} table
 * @property {() => string[] | null} [peers]  the other nodes' names; null while there are some that are not yet
 *   known. Left out: a node on its own
 * @property {string} [snapshot]  the file of the snapshot; left out: none is kept
 * @property {number} [verifyEveryMs]  sooner, and then ever more slowly, after a walk that did not read the whole table, or could not read some rows
 * @property {number} [headCheckEveryMs]
 * @property {number} [headRows]
 * @property {number} [chunkRows]
 * @property {number} [snapshotEveryMs]
 * @property {number} [peersWaitMs]
 * @property {number} [callMs]  how long one call of the table may take before it counts as failed
 * @property {number} [readMs]  the same of a read by key
 * @property {{ beat: () => void, vacate: () => void }} [pulse]  beaten as long as this feeder does its work: see
 *   `arbiter.js`
 * @property {Time} [time]
 * @property {() => number} [random]
 * @property {(level: 'info' | 'warn' | 'error', message: string) => void} [log]
 */

const MINUTE = 60_000;
/** Another thread's doing (a pause, a claim) reaches the watch on the status no later than this. */
const WATCH_MS = 100;
const BACKOFF = { firstMs: 250, mostMs: 60_000 };
/** A row that cannot be read is asked for again this often, by itself, before it counts as unreadable. */
const ROW_RETRIES = 3;
/** Longer than this nothing here holds up the event loop, and a chunk that has taken as long is followed by a smaller one. */
const TURN_MS = 5;
const LEAST_CHUNK = 100;
/** From how many keys it is learnt how to keep them small; fewer than the least say too little. */
const SAMPLED_KEYS = 512;
const LEAST_SAMPLE = 128;
const SAMPLE_MS = 5_000;
/** Keys read side by side: one that hangs holds up these, and no others. */
const SIDE_BY_SIDE = 64;
/** So many of these in a row of which no key could be read, and the rest is left for later. */
const MOST_SILENT = 2;
/** An event is later than its write by up to 0.2 s; what has not come by now was missed. */
const LATE_MS = 1_000;
/** What a keeper says when it will never again say anything else. */
const HOPELESS = new Set(['E_POISONED', 'E_CLOSED']);

const DEFAULTS = {
  verifyEveryMs: 60 * MINUTE,
  headCheckEveryMs: 1_000,
  headRows: 64,
  chunkRows: 1_000,
  snapshotEveryMs: MINUTE,
  peersWaitMs: 2 * MINUTE,
  callMs: 30_000,
  readMs: 5_000,
  random: Math.random,
  /** @type {NonNullable<FeederOptions['log']>} */
  log: () => {},
};

/** @type {Time} */
const realTime = {
  now: Date.now,
  mono: () => performance.now(),
  after(ms, then) {
    const timer = setTimeout(then, ms);
    return () => clearTimeout(timer);
  },
  turn: () => new Promise((resolve) => setImmediate(resolve)),
};

/** Ends the feeder's loops; not a failure. */
class Ended extends Error {}

/** @param {unknown} error */
function isDeposed(error) {
  return /** @type {any} */ (error)?.code === 'E_DEPOSED';
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

class Feeder extends EventEmitter {
  /** @type {Keeper} */
  #keeper;
  /** @type {ScheduleTable} */
  #table;
  /** @type {FeederOptions & typeof DEFAULTS} */
  #options;
  /** @type {Time} */
  #time;
  /** @type {'new' | 'running' | 'ended'} */
  #life = 'new';
  /** Rejects everything that is being waited for. A set, not a promise: that would gather reactions for ever. */
  #waits = new Set(/** @type {Array<() => void>} */ ([]));
  /** @type {Promise<unknown>} */
  #finished = Promise.resolve();
  /** Whether the keeper was loaded, by this feeder or one before it: then it is never loaded again. */
  #isLoaded = false;
  /** Keys were read from all over the table, or there were too few for it: by a load that is tried again, that is not. */
  #hasSampled = false;
  /** Grows whenever something may be missed, or gained, that only a walk that begins later finds. */
  #gaps = 0;
  /** A gap has not been closed by a walk yet. */
  #isResyncing = false;
  /** Events that have come. */
  #heard = 0;
  /** Keys handed out to be read are all read before others are handed out. @type {Promise<unknown>} */
  #reading = Promise.resolve();
  /** Whoever waits for a verification. @type {ReturnType<typeof deferred>[]} */
  #requests = [];
  /** Cuts the pause until the next walk short. */
  #wake = deferred();
  /** @type {string | null} */
  #status = null;
  #statusCheckDue = false;
  #cancelDueTimer = () => {};
  #peerNames = '';

  /** @param {FeederOptions} options */
  constructor(options) {
    super();
    this.#keeper = options.keeper;
    this.#table = options.table;
    this.#time = options.time ?? realTime;
    // An option that is named and undefined is left at its default.
    const given = Object.fromEntries(
      Object.entries(options).filter(([, value]) => value !== undefined),
    );
    this.#options = /** @type {any} */ ({ ...DEFAULTS, ...given });
  }

  /** Takes the role and begins. What fails from here on is tried again; it is logged, and the state tells. */
  start() {
    if (this.#life !== 'new') throw new Error('a feeder starts once: make a new one');
    this.#life = 'running';
    this.#keeper.takeFeeder();
    this.#keeper.onApplied((status) => this.#applied(status));
    this.#isLoaded = this.#keeper.state().trust.live;
    // What was written while nobody listened is found by the walk that follows, not before.
    this.#noteGap();
    this.#options.pulse?.beat();
    this.#finished = Promise.all([
      this.#run(),
      this.#every(this.#options.headCheckEveryMs, () => this.#checkHead()),
      this.#every(WATCH_MS, async () => {
        this.#options.pulse?.beat();
        this.#checkStatus();
      }),
      this.#options.snapshot ? this.#saveSnapshots(this.#options.snapshot) : undefined,
    ]);
    return this;
  }

  /**
   * A verification, as soon as the walk under way is done. Resolves to its report once what it found was
   * repaired; rejects if the feeder ends first.
   *
   * @returns {Promise<any>}
   */
  verify() {
    if (this.#life !== 'running') return Promise.reject(new Ended('the feeder does not run'));
    const request = deferred();
    this.#requests.push(request);
    this.#wake.resolve();
    return request.promise;
  }

  /**
   * Changes the keeper's configuration. After a change of nodes, a verification fetches the rows gained. Rejects where the patch is
   * wrong, and where this feeder has ended: then nothing has changed.
   *
   * @param {any} patch  as `keeper.configureAsync` takes it
   */
  async configure(patch) {
    this.#mustRun();
    const ofNodes = patch.nodes !== undefined || patch.node !== undefined;
    try {
      // One that has been deposed and has not heard of it is told here, before anything is changed.
      if (ofNodes) this.#noteGap();
      return await this.#keeper.configureAsync(patch);
    } finally {
      if (ofNodes) this.verify().catch(() => {});
      this.checkStatus();
    }
  }

  /** Looks at the status now: for a host that has just paused or resumed the keeper. */
  checkStatus() {
    if (this.#life === 'running') this.#checkStatus();
  }

  /**
   * Ends the subscription and all loops; saves a last snapshot where one is kept. May be called twice.
   *
   * @param {{ phase?: 'stopped' }} [options]  `stopped`: nobody will take over, claims are over
   */
  async stop({ phase } = {}) {
    const wasRunning = this.#life === 'running';
    this.#end();
    // Where the host stops as a whole, nobody is to take over.
    if (wasRunning && !phase) this.#options.pulse?.vacate();
    await this.#finished;
    if (!wasRunning) return;
    try {
      if (phase) {
        this.#keeper.setPhase(phase);
        this.#announce(this.#keeper.status);
      }
      if (this.#options.snapshot) await this.#saveSnapshot(this.#options.snapshot);
    } catch (error) {
      if (!isDeposed(error)) this.#log('warn', messageOf(error));
    }
  }

  // The course

  async #run() {
    try {
      await this.#waitForPeers();
      await this.#loadSnapshot();
      for (let failures = 0; ; ) {
        const opened = this.#time.mono();
        try {
          await this.#feed();
        } catch (error) {
          this.#mustGoOn(error);
          this.#log('warn', `the subscription ended (${messageOf(error)}): it is opened again`);
          this.#noteGap();
          if (!this.#isLoaded) this.#fail(error);
        }
        // One that did not last has failed, though it was opened, and even walked.
        failures = this.#time.mono() - opened < BACKOFF.mostMs ? failures + 1 : 1;
        await this.#sleep(this.#backoff(failures));
      }
    } catch (error) {
      if (!(error instanceof Ended)) this.#conclude(error);
    }
  }

  /** One subscription, from its opening to its end; always throws, what ended it. */
  async #feed() {
    const closed = deferred();
    // Rejected while nobody happens to wait for it, it is still seen at the next look.
    closed.promise.catch(() => {});
    let open = true;
    const opening = this.#table.subscribe(
      (event) => open && this.#receive(event),
      (why) => closed.reject(why),
    );
    let subscription;
    try {
      subscription = await this.#call(opening);
    } catch (error) {
      open = false;
      // It may yet open, too late for anyone to want it.
      opening.then((late) => late.end()).catch(() => {});
      throw error;
    }
    try {
      // How many events had come when the last walk of this subscription ended that read the whole table.
      let heard = -1;
      /** Whether the walk is the one more that follows that of a gap. */
      let again = false;
      // Walks on end that read the whole table, but for some rows.
      let unread = 0;
      // Walks on end that failed, or did not read the whole table.
      for (let failures = 0; ; ) {
        const asked = this.#requests.length;
        this.#wake = deferred();
        /** @type {boolean} */
        const afterGap = this.#isResyncing && !again;
        again = false;
        try {
          const report = await Promise.race([this.#walk(), closed.promise]);
          for (const request of this.#requests.splice(0, asked)) request.resolve(report);
          failures = report.partial ? failures + 1 : 0;
          unread = !report.partial && report.unreadableRows > 0 ? unread + 1 : 0;
          // What was written during a gap has been put right, and counts as missed until a walk finds nothing more: one more.
          again = afterGap && !report.partial && report.repaired > 0;
          if (report.repaired > 0 && heard === this.#heard) {
            closed.reject(new Error('rows were written, and no event came'));
          }
          if (!report.partial) heard = this.#heard;
        } catch (error) {
          this.#mustGoOn(error);
          // Throws again where it is the subscription that has ended.
          await Promise.race([closed.promise, this.#time.turn()]);
          failures += 1;
          this.#log('warn', `the walk failed (${messageOf(error)}): it is tried again`);
          if (!this.#isLoaded) this.#fail(error);
          await this.#sleep(this.#backoff(failures), [closed.promise]);
          continue;
        }
        if (this.#requests.length === 0 && !again) {
          const { verifyEveryMs } = this.#options;
          let pause = verifyEveryMs;
          // It grows up to that: a row that is damaged for good may keep part of the table from ever being read.
          if (failures > 0) pause = this.#backoff(failures, verifyEveryMs);
          // A row that could not be read may have been written since, or the store have failed for a moment.
          else if (unread > 0) pause = Math.min(MINUTE * 2 ** (unread - 1), verifyEveryMs);
          await this.#sleep(pause, [closed.promise, this.#wake.promise]);
        }
      }
    } finally {
      open = false;
      subscription.end();
      this.#giveUpWalk();
    }
  }

  async #waitForPeers() {
    const { peers, peersWaitMs } = this.#options;
    if (!peers) return;
    // A loaded queue knows its nodes: whoever takes over has no reason to wait, and events go by meanwhile.
    if (this.#isLoaded) {
      await this.#followPeers();
      return;
    }
    const until = this.#time.now() + peersWaitMs;
    while (peers() === null && this.#time.now() < until) {
      if (!this.#isLoaded) this.#keeper.setPhase('waiting-for-peers');
      await this.#sleep(250);
    }
    await this.#followPeers();
  }

  /** @returns {Promise<boolean>} whether the nodes have changed */
  async #followPeers() {
    const names = this.#options.peers?.() ?? [];
    const text = JSON.stringify([...names].sort());
    // A list that is empty for a moment is a list not yet read.
    if (names.length === 0 || text === this.#peerNames) return false;
    this.#peerNames = text;
    // Before anything is changed: one that has been deposed is told so here.
    if (!this.#isLoaded) this.#keeper.setPhase('loading');
    this.#noteGap();
    await this.#keeper.configureAsync({ nodes: names });
    return true;
  }

  /** From here on what is kept may not be all: a walk that begins now, or later, puts it right. */
  #noteGap() {
    this.#gaps += 1;
    if (!this.#isLoaded) return;
    this.#isResyncing = true;
    this.#keeper.setPhase('live', { resyncing: true });
  }

  // Events

  /** @param {any} event */
  #receive(event) {
    if (this.#life !== 'running') return;
    this.#heard += 1;
    try {
      this.#keeper.apply(event);
    } catch (error) {
      this.#conclude(error);
    }
  }

  // Walks

  /** The walk under way; one given up stops at its next step. @type {{ open: Walk | null } | null} */
  #current = null;

  /** The whole table against what is kept; the first time, into it. */
  async #walk() {
    const kind = this.#isLoaded ? 'verify' : 'load';
    if (kind === 'load') this.#keeper.setPhase('loading');
    const gaps = this.#gaps;
    /** @type {{ open: Walk | null }} */
    const current = { open: null };
    this.#current = current;
    const mustBeCurrent = () => {
      if (this.#current !== current) throw new Ended('the walk was given up');
    };
    try {
      // No key is being read meanwhile: its repair would keep the walk from putting right what was written since.
      const walk = await this.#alone(async () => {
        mustBeCurrent();
        const begun = await this.#keeper.beginWalkAsync(kind);
        if (this.#current === current) current.open = begun;
        else this.#abandon(begun);
        return begun;
      });
      mustBeCurrent();
      const outcome = await this.#readAll(async (rows) => {
        mustBeCurrent();
        walk.rows(rows);
        this.#checkStatusSoon();
        // The first rows are served meanwhile; where they are so few, there are not many.
        const mustLearn = kind === 'load' && !this.#hasSampled && rows.length >= LEAST_SAMPLE;
        this.#hasSampled = true;
        if (mustLearn) await this.#learnKeys(mustBeCurrent);
      });
      mustBeCurrent();
      let report = await this.#alone(async () => {
        mustBeCurrent();
        current.open = null;
        const ended = await walk.endAsync(outcome);
        for (;;) {
          const suspects = walk.nextSuspects(this.#options.chunkRows);
          if (suspects.length === 0) return ended;
          const { gone, different, failed } = await this.#readAndRepairAll(suspects, mustBeCurrent);
          ended.phantoms += gone;
          ended.mismatched += different;
          ended.unreadableRows += failed;
          if (kind === 'verify') ended.repaired += gone + different;
        }
      });
      mustBeCurrent();
      if (kind === 'verify' && report.repaired > 0) {
        await this.#sleep(LATE_MS);
        mustBeCurrent();
        const { verify } = this.#keeper.state().trust.keeper;
        if (verify) report = { ...verify, unreadableRows: report.unreadableRows };
      }
      this.#isLoaded = true;
      // What came to be unknown since it began, and what it did not read, is for the next.
      const settled = gaps === this.#gaps && !report.partial;
      this.#isResyncing = !settled && (this.#isResyncing || kind === 'load');
      this.#keeper.setPhase('live', { resyncing: this.#isResyncing });
      this.#checkStatus();
      this.#tell(kind, report);
      this.emit('walked', { kind, report });
      return report;
    } finally {
      if (this.#current === current) this.#giveUpWalk();
    }
  }

  /**
   * How keys are kept small is learnt from all over the table: the walk begins with keys that have much in common. A keeper that
   * has learnt before, or was read from a snapshot, stays as it is.
   *
   * @param {() => void} mustBeCurrent
   */
  async #learnKeys(mustBeCurrent) {
    if (this.#keeper.size > this.#options.chunkRows) return;
    const end = this.#time.mono() + SAMPLE_MS;
    const step = async () => {
      await this.#time.turn();
      this.#mustRun();
      mustBeCurrent();
      if (this.#time.mono() > end) throw new Error(`it takes more than ${SAMPLE_MS / 1_000} s`);
    };
    try {
      const keys = await sampleKeys(async (range) => {
        await step();
        return this.#call(this.#table.walk(range), this.#options.readMs);
      }, SAMPLED_KEYS);
      await step();
      if (keys.length >= LEAST_SAMPLE) await this.#call(this.#keeper.learnKeys(keys));
    } catch (error) {
      this.#mustGoOn(error);
      this.#log('info', `no sample of the keys: they take more memory (${messageOf(error)})`);
    }
  }

  /**
   * Missed, gained and lost, each by itself: only the first is a fault.
   *
   * @param {'load' | 'verify'} kind
   * @param {import('../index.js').WalkReport} report
   */
  #tell(kind, report) {
    const { owned, missing, mismatched, phantoms, repaired, gained, lost } = report;
    let text = `${kind === 'load' ? 'loaded' : 'verified'} ${owned} rows in ${Math.round(report.ms)} ms`;
    if (kind === 'verify') {
      text += `: ${repaired} missed writes put right`;
      if (repaired > 0)
        text += ` (${missing} missing, ${mismatched} different, ${phantoms} deleted)`;
    }
    if (gained + lost > 0) text += `; ${gained} rows gained and ${lost} lost by a change of nodes`;
    if (report.unreadableRows > 0) text += `; ${report.unreadableRows} could not be read`;
    if (report.partial) text += '; part of the table was not read';
    this.#log(repaired > 0 || report.partial ? 'warn' : 'info', text);
  }

  #giveUpWalk() {
    const walk = this.#current?.open;
    this.#current = null;
    if (walk) this.#abandon(walk);
  }

  /** @param {Walk} walk */
  #abandon(walk) {
    try {
      walk.abandon();
    } catch (error) {
      // Of a feeder that has ended, the handle may be closed already.
      if (!isDeposed(error) && this.#life === 'running') throw error;
    }
  }

  /**
   * Hands over all rows of the table. An unreadable one is stepped over: where the store's cursor dies on it,
   * from below and from above, and by reading what is left between the two one by one.
   *
   * @param {(rows: ScheduleRow[]) => Promise<void>} take
   */
  async #readAll(take) {
    /** A row that was read just now. @type {string | null} */
    let known = null;
    /** @param {ScheduleRow[]} rows */
    const takeChunk = (rows) => {
      known = rows[rows.length - 1].cacheKey;
      return take(rows);
    };
    const upward = await this.#readChunks(takeChunk, { after: null, before: null, reverse: false });
    let { unreadable } = upward;
    if (!upward.error) return { partial: false, unreadable };

    const downward = await this.#readChunks(takeChunk, {
      after: upward.cursor,
      before: null,
      reverse: true,
    });
    unreadable += downward.unreadable;
    if (!downward.error) return { partial: false, unreadable };
    // Not one row from either end: that is no unreadable row, that is no table.
    if (upward.rows + downward.rows === 0) throw upward.error;

    try {
      unreadable += await this.#readSingly(take, upward.cursor, downward.cursor, known);
      return { partial: false, unreadable };
    } catch (error) {
      this.#mustGoOn(error);
      this.#log(
        'error',
        `the table cannot be read to its end (${messageOf(downward.error)}): it is walked again`,
      );
      return { partial: true, unreadable: unreadable + 1 };
    }
  }

  /**
   * @param {(rows: ScheduleRow[]) => Promise<void>} take
   * @param {{ after: string | null, before: string | null, reverse: boolean }} range
   */
  async #readChunks(take, { after, before, reverse }) {
    const { chunkRows } = this.#options;
    let limit = chunkRows;
    let rows = 0;
    let unreadable = 0;
    /** How often a row by itself was asked for again. */
    let again = 0;
    /** @type {string | null} */
    let cursor = null;
    for (;;) {
      /** @type {import('./schedule-table.js').WalkRange} */
      const range = reverse
        ? { after, before: cursor ?? before, limit, reverse }
        : { after: cursor ?? after, before, limit, reverse };
      let chunk;
      const asked = this.#time.mono();
      try {
        chunk = await this.#call(this.#table.walk(range));
      } catch (error) {
        this.#mustGoOn(error);
        if (limit > 1) {
          limit = Math.ceil(limit / 4);
          continue;
        }
        if (again === ROW_RETRIES) return { error, cursor, rows, unreadable };
        again += 1;
        await this.#sleep(this.#backoff(again));
        continue;
      }
      // Not at a short chunk: a store may end one early. Only an empty one is the end.
      if (chunk.length === 0) return { error: null, cursor, rows, unreadable };
      again = 0;
      // How much of the time the event loop stood still for it nobody tells: all of it, it may be.
      const read = this.#time.mono() - asked;
      const readable = chunk.filter((row) => row.unreadable === undefined);
      unreadable += chunk.length - readable.length;
      rows += chunk.length;
      cursor = chunk[chunk.length - 1].cacheKey;
      // A turn for reading, a turn for taking: neither holds the event loop up for long.
      await this.#time.turn();
      this.#mustRun();
      const began = this.#time.mono();
      if (readable.length > 0) await take(readable);
      const took = Math.max(read, this.#time.mono() - began);
      if (took > TURN_MS) limit = Math.max(Math.min(limit, LEAST_CHUNK), Math.floor(limit / 2));
      else if (took < TURN_MS / 2) limit = Math.min(chunkRows, limit * 2);
      await this.#time.turn();
      this.#mustRun();
    }
  }

  /**
   * @param {(rows: ScheduleRow[]) => Promise<void>} take
   * @param {string | null} after
   * @param {string | null} before
   * @param {string | null} known  where this one cannot be read any more either, it is the store that has failed
   * @returns {Promise<number>} how many could not be read
   */
  async #readSingly(take, after, before, known) {
    let unreadable = 0;
    for (let cursor = after; ; ) {
      const limit = LEAST_CHUNK;
      const keys = await this.#call(
        this.#table.walk({ after: cursor, before, limit, keysOnly: true }),
      );
      if (keys.length === 0) return unreadable;
      const all = keys.map(({ cacheKey }) => cacheKey);
      let left = await this.#readEach(all, take);
      for (let again = 1; left.length > 0 && again <= ROW_RETRIES; again++) {
        await this.#sleep(this.#backoff(again));
        left = await this.#readEach(left, take);
      }
      if (left.length > 0 && known !== null) {
        await this.#call(this.#table.get(known), this.#options.readMs);
      }
      unreadable += left.length;
      cursor = keys[keys.length - 1].cacheKey;
      await this.#time.turn();
    }
  }

  /**
   * @param {string[]} keys
   * @param {(rows: ScheduleRow[]) => Promise<void>} take
   * @returns {Promise<string[]>} those that could not be read
   */
  async #readEach(keys, take) {
    /** @type {string[]} */
    const failed = [];
    for (let at = 0; at < keys.length; at += SIDE_BY_SIDE) {
      const some = keys.slice(at, at + SIDE_BY_SIDE);
      const rows = await Promise.all(
        some.map(async (key) => {
          try {
            return await this.#call(this.#table.get(key), this.#options.readMs);
          } catch (error) {
            this.#mustGoOn(error);
            failed.push(key);
            return null;
          }
        }),
      );
      await take(rows.filter((row) => row !== null));
      await this.#time.turn();
    }
    return failed;
  }

  async #checkHead() {
    if (this.#options.peers && (await this.#followPeers())) this.verify().catch(() => {});
    await this.#alone(() =>
      this.#readAndRepairAll(this.#keeper.headCheck(this.#options.headRows), () => {}),
    );
  }

  /**
   * One `job` after the other. The keeper notices an event that comes between a key's being handed out and its
   * being read, once: a key that was handed out twice, or read twice, could be repaired with the older read.
   *
   * @template T
   * @param {() => Promise<T>} job
   * @returns {Promise<T>}
   */
  #alone(job) {
    const done = this.#reading.then(job);
    this.#reading = done.catch(() => {});
    return done;
  }

  /**
   * @param {string[]} keys
   * @param {() => void} mustGoOn
   */
  async #readAndRepairAll(keys, mustGoOn) {
    const count = { gone: 0, different: 0, same: 0, failed: 0 };
    let since = this.#time.mono();
    for (let at = 0, silent = 0; at < keys.length; at += SIDE_BY_SIDE) {
      const some = keys.slice(at, at + SIDE_BY_SIDE);
      if (silent < MOST_SILENT) {
        const outcomes = await Promise.all(some.map((key) => this.#readAndRepair(key)));
        for (const outcome of outcomes) count[outcome] += 1;
        silent = outcomes.every((outcome) => outcome === 'failed') ? silent + 1 : 0;
      } else {
        for (const key of some) this.#keeper.readFailed(key);
        count.failed += some.length;
      }
      mustGoOn();
      since = await this.#breathe(since);
    }
    return count;
  }

  /** Lets the event loop go round where it has not for too long. @param {number} since */
  async #breathe(since) {
    if (this.#time.mono() - since < TURN_MS) return since;
    await this.#time.turn();
    return this.#time.mono();
  }

  /** @param {string} key @returns {Promise<'gone' | 'different' | 'same' | 'failed'>} against what was kept */
  async #readAndRepair(key) {
    let row;
    try {
      row = await this.#call(this.#table.get(key), this.#options.readMs);
    } catch (error) {
      // Neither there nor gone: what is kept stays.
      this.#mustGoOn(error);
      this.#keeper.readFailed(key);
      return 'failed';
    }
    this.#mustRun();
    if (!this.#keeper.repair(key, row)) return 'same';
    this.#checkStatusSoon();
    return row ? 'different' : 'gone';
  }

  // Snapshots

  async #loadSnapshot() {
    const { snapshot } = this.#options;
    if (!snapshot || this.#isLoaded || !existsSync(snapshot)) return;
    // Claims are served from the moment at which its rows are there.
    this.#keeper.setPhase('loading');
    try {
      await this.#keeper.loadSnapshot(snapshot);
    } catch (error) {
      this.#mustGoOn(error);
      this.#log(
        'info',
        `no snapshot was read (${messageOf(error)}): the queue loads from the table`,
      );
    }
  }

  /** @param {string} file */
  async #saveSnapshots(file) {
    let saved = -1;
    await this.#every(this.#options.snapshotEveryMs, async () => {
      const { version } = this.#keeper;
      if (version !== saved && (await this.#saveSnapshot(file))) saved = version;
    });
  }

  /** @param {string} file @returns {Promise<boolean>} whether it was saved */
  async #saveSnapshot(file) {
    if (!this.#isLoaded) return false;
    try {
      await this.#keeper.saveSnapshot(file);
      return true;
    } catch (error) {
      if (isDeposed(error)) throw error;
      this.#log('warn', `the snapshot was not saved: ${messageOf(error)}`);
      return false;
    }
  }

  // Status

  /**
   * Events of a turn are in the queue. Most leave the status as it was: then nothing more is asked, as asking costs more than an event.
   *
   * @param {string | undefined} status  what they have left; undefined where they were refused
   */
  #applied(status) {
    if (this.#life !== 'running') return;
    if (status === undefined) {
      // At once: why is told to whoever calls next.
      this.#look();
      return;
    }
    if (status === this.#status) {
      if (status === 'queued' || status === 'paused') return;
      // What has just come may be due before the watch looks.
      if (this.#time.now() % MINUTE < MINUTE - WATCH_MS) return;
    }
    this.#checkStatusSoon();
  }

  /** Once for all that asks for it in a turn. */
  #checkStatusSoon() {
    if (this.#statusCheckDue) return;
    this.#statusCheckDue = true;
    void this.#time.turn().then(() => {
      this.#statusCheckDue = false;
      this.#look();
    });
  }

  #look() {
    if (this.#life !== 'running') return;
    try {
      this.#checkStatus();
    } catch (error) {
      this.#conclude(error);
    }
  }

  #checkStatus() {
    const { status } = this.#keeper;
    this.#cancelDueTimer();
    this.#cancelDueTimer = () => {};
    if (status !== 'queued' && status !== 'paused') this.#awaitDueMinute();
    this.#announce(status);
  }

  /** @param {string} status */
  #announce(status) {
    if (status === this.#status) return;
    this.#status = status;
    try {
      this.emit('status', status);
    } catch (error) {
      // The host's own fault: the queue is fed all the same.
      this.#log('error', `a listener to the status failed: ${messageOf(error)}`);
    }
  }

  /** Nothing is due: the next change may be the clock's alone. */
  #awaitDueMinute() {
    const { nextChange } = this.#keeper;
    if (nextChange === null) return;
    const ms = Math.max(1, nextChange - this.#time.now());
    if (ms > WATCH_MS) return;
    this.#cancelDueTimer = this.#time.after(ms, () => this.#checkStatusSoon());
  }

  // The end

  /** By `stop` or by being deposed: no call to the keeper from here on, but for those of `stop`. */
  #end() {
    if (this.#life === 'ended') return;
    this.#life = 'ended';
    this.#cancelDueTimer();
    for (const end of [...this.#waits]) end();
    const requests = this.#requests;
    this.#requests = [];
    for (const request of requests) request.reject(new Ended('the feeder has ended'));
  }

  /** What to do about an error that the keeper itself threw. @param {unknown} error */
  #conclude(error) {
    if (this.#life === 'ended') return;
    this.#end();
    if (isDeposed(error)) {
      this.emit('deposed');
      return;
    }
    this.#log('error', `the feeder has ended: ${messageOf(error)}`);
    this.emit('failed', error);
  }

  #mustRun() {
    if (this.#life !== 'running') throw new Ended('the feeder has ended');
  }

  /** Passes on what no retry can mend. @param {unknown} error */
  #mustGoOn(error) {
    if (error instanceof Ended || isDeposed(error)) throw error;
    if (HOPELESS.has(/** @type {any} */ (error)?.code)) throw error;
    this.#mustRun();
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#keeper.setPhase('failed', { error: messageOf(error) });
    this.#checkStatus();
  }

  // Time

  /** Full jitter over the upper half, so that nodes that failed together do not come back together. */
  #backoff(/** @type {number} */ failures, mostMs = BACKOFF.mostMs) {
    const ms = Math.min(mostMs, BACKOFF.firstMs * 2 ** Math.min(failures - 1, 20));
    return ms / 2 + (ms / 2) * this.#options.random();
  }

  /**
   * The first of `promises` to settle; `onTime` says what becomes of it when `ms` have passed first. Throws
   * `Ended` when the feeder ends.
   *
   * @template T
   * @param {number} ms
   * @param {Promise<T>[]} promises
   * @param {(resolve: (value: T) => void, reject: (error: Error) => void) => void} onTime
   * @returns {Promise<T>}
   */
  #await(ms, promises, onTime) {
    this.#mustRun();
    return new Promise((resolve, reject) => {
      const end = () => settle(() => reject(new Ended('the feeder has ended')));
      const cancel = this.#time.after(ms, () => settle(() => onTime(resolve, reject)));
      /** @param {() => void} then */
      const settle = (then) => {
        cancel();
        this.#waits.delete(end);
        then();
      };
      this.#waits.add(end);
      for (const promise of promises) {
        promise.then(
          (value) => settle(() => resolve(value)),
          (error) => settle(() => reject(error)),
        );
      }
    });
  }

  /**
   * @param {number} ms
   * @param {Promise<any>[]} orUntil  cut it short; a rejection is passed on
   */
  #sleep(ms, orUntil = []) {
    return this.#await(ms, orUntil, (resolve) => resolve(undefined));
  }

  /**
   * A loop of its own: `job` again and again, `ms` after it was done.
   *
   * @param {number} ms
   * @param {() => Promise<void>} job
   */
  async #every(ms, job) {
    for (;;) {
      try {
        await this.#sleep(ms);
        await job();
      } catch (error) {
        if (error instanceof Ended) return;
        this.#conclude(error);
        return;
      }
    }
  }

  /**
   * A call of the table, which may hang: then it counts as failed.
   *
   * @template T
   * @param {Promise<T>} promise
   * @param {number} [ms]
   * @returns {Promise<T>}
   */
  #call(promise, ms = this.#options.callMs) {
    // Its failure may come when nobody waits for it any more.
    promise.catch(() => {});
    return this.#await(ms, [promise], (_, reject) =>
      reject(new Error(`the table did not answer for ${ms} ms`)),
    );
  }

  /**
   * @param {'info' | 'warn' | 'error'} level
   * @param {string} message
   */
  #log(level, message) {
    this.#options.log(level, message);
  }
}

function deferred() {
  /** @type {(value?: any) => void} */
  let resolve = () => {};
  /** @type {(error: unknown) => void} */
  let reject = () => {};
  /** @type {Promise<any>} */
  const promise = new Promise((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

module.exports = { Feeder };
