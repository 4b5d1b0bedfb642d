'use strict';

/**
 * One life of a queue, as a seed draws it: a process with some threads, one of which feeds, renderers that claim, and
 * a table that does everything wrong. All clocks are moved by hand, and everything that waits, waits here: the same
 * seed is the same life, step for step.
 *
 * While faults last, what must never happen is checked after every step. Then they end, one verification runs, and
 * the keeper must be what the table is.
 */

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { QueueKeeper } = require('../..');
const { standBy } = require('../../lib/arbiter.js');
const { Feeder } = require('../../lib/feeder.js');
const { assertAddsUp } = require('./compare.js');
const { FaultyTable, NO_FAULTS } = require('./faulty-table.js');
const { ModelKeeper } = require('./model.js');
const { random } = require('./random-ops.js');

const SECOND = 1_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const START = 1_700_000_040_000;
const GRACE_MS = 5_000;
const NODE = 'alpha.example';
const OTHERS = ['beta', 'gamma-7.example', '10.0.0.4'];
/** What waits for no more than a turn of the event loop; more than these in a row is a loop without an end. */
const MOST_STEPS = 200_000;
const LAST_OPERATIONS = 40;

/** Where files are not synced to a disk, since there are some for every seed. */
const SCRATCH = fs.existsSync('/dev/shm') ? '/dev/shm' : os.tmpdir();

/**
 * What is done wrong on purpose, to see that it is caught: see the canary test.
 *
 * @typedef {object} Variant
 * @property {(port: any) => any} [port]  the feeder's table
 * @property {(keeper: any) => any} [keeper]  the feeder's keeper
 * @property {boolean} [confirmsUnread]  renderers take what is claimed as confirmed
 */

/** What must never happen, did. */
class Broken extends Error {}

/** A thread of the process: what waits in it waits while it stands still, and for ever once it is dead. */
class Thread {
  /** @param {Simulation} sim @param {any} process @param {number} index */
  constructor(sim, process, index) {
    this.sim = sim;
    this.process = process;
    this.index = index;
    this.dead = false;
    this.stalled = false;
    /** @type {(() => void)[]} */
    this.backlog = [];
    /** @type {any} */
    this.feeder = null;
    /** @type {any} */
    this.feeding = null;
    this.handle = QueueKeeper.open(process.name);
    /** @type {import('../../lib/feeder.js').Time} */
    this.time = {
      now: () => sim.wall,
      mono: () => sim.mono,
      /** @param {number} ms @param {() => void} then */
      after: (ms, then) => sim.after(ms, then, this),
      turn: () => new Promise((resolve) => sim.after(0, resolve, this)),
    };
    this.port = sim.table.port(this.time, { fresh: true });
  }

  /** @param {() => void} then */
  run(then) {
    if (this.dead) return;
    if (this.stalled) this.backlog.push(then);
    else then();
  }
}

class Simulation {
  wall = START;
  mono = 0;
  /** @type {{ at: number, order: number, then: () => void, thread: Thread | null }[]} */
  #waiting = [];
  #order = 0;
  /** File work under way. @type {Set<Promise<unknown>>} */
  #files = new Set();
  /** @type {string[]} */
  #operations = [];
  /** @type {unknown} */
  #failure = null;
  #steps = 0;

  /** @param {number} seed @param {{ variant?: Variant, steps?: number }} [options] */
  constructor(seed, { variant = {}, steps = 160 } = {}) {
    this.seed = seed;
    this.variant = variant;
    this.steps = steps;
    this.random = random(seed * 2 + 1);
    this.folder = '';
    const { chance, int, pick } = this.random;
    this.table = new FaultyTable({
      seed: seed * 2,
      mono: () => this.mono,
      versions: chance(0.7),
    });
    this.table.listsKeys = chance(0.7);
    this.keyCount = pick([5, 20, 60, 60, 150]);
    this.threadCount = 2 + int(2);
    this.leases = { leaseMs: pick([20, 60, 120]) * SECOND, maxLeases: pick([3, 20, 8_192]) };
    this.chunkRows = pick([1, 3, 7, 20, 1_000]);
    this.withSnapshot = chance(0.6);
    this.withPeers = chance(0.5);
    /** @type {string[] | null} */
    this.peers = this.withPeers && chance(0.7) ? [pick(OTHERS)] : null;
    /** @type {Record<string, any>} */
    this.config = {
      node: NODE,
      nodes: [],
      routes: [
        { match: 'prefix', path: '/p/1', renderInterval: 6 * HOUR },
        { match: 'contains', path: '9', mode: 'passthrough' },
        { match: 'prefix', path: '/p/', renderInterval: HOUR },
      ],
      defaultInterval: 24 * HOUR,
    };
    this.paused = false;
    this.processes = 0;
    /** @type {any} */
    this.process = null;
    /** @type {Map<string, { token: number, until: number }>} */
    this.leased = new Map();
    /** When a key's grace ends. @type {Map<string, number>} */
    this.graces = new Map();
    /** @type {Set<number>} */
    this.tokens = new Set();
    /** Until a whole walk that begins later has ended, the queue cannot be exact; from which mark on. */
    this.resyncFrom = 0;
    this.mustResync = true;
    /** Whether a walk over the whole table has ended in this process. */
    this.isWhole = false;
    /** Who owned what before the nodes changed, since the last walk. @type {{ oracle: InstanceType<typeof ModelKeeper>, mark: number }[]} */
    this.formerOracles = [];
    this.given = 0;
    this.verifications = 0;
    this.oracle = this.#newOracle();
  }

  // The clocks, and what waits

  /** @param {number} ms @param {() => void} then @param {Thread | null} thread */
  after(ms, then, thread = null) {
    const one = { at: this.mono + ms, order: this.#order++, then, thread };
    this.#waiting.push(one);
    return () => {
      const at = this.#waiting.indexOf(one);
      if (at >= 0) this.#waiting.splice(at, 1);
    };
  }

  /** @param {number} until @returns {any} */
  #next(until) {
    let best = -1;
    const waiting = this.#waiting;
    for (let i = 0; i < waiting.length; i++) {
      const { at, order } = waiting[i];
      if (at > until) continue;
      const first = waiting[best];
      if (best < 0 || at < first.at || (at === first.at && order < first.order)) best = i;
    }
    return best < 0 ? null : waiting.splice(best, 1)[0];
  }

  /** @param {number} mono */
  #moveTo(mono) {
    if (mono <= this.mono) return;
    this.wall += mono - this.mono;
    this.mono = mono;
    this.process?.main.setNow(this.wall);
  }

  /** Lets `ms` pass, and everything happen that happens in them; with `jump`, late. @param {number} ms */
  async pass(ms, { jump = false } = {}) {
    const until = this.mono + ms;
    if (jump) this.#moveTo(until);
    for (let steps = 0; ; steps++) {
      if (steps > MOST_STEPS) throw new Broken('the event loop goes round for ever');
      await this.#settle();
      const next = this.#next(until);
      if (!next) break;
      this.#moveTo(next.at);
      if (next.thread) next.thread.run(next.then);
      else next.then();
    }
    this.#moveTo(until);
    await this.#settle();
  }

  /** Until nothing goes on any more without the clock. */
  async #settle() {
    this.#steps += 1;
    await new Promise(setImmediate);
    while (this.#files.size > 0) {
      await Promise.allSettled([...this.#files]);
      await new Promise(setImmediate);
    }
    if (this.#failure) throw this.#failure;
  }

  /** File work: real, and done before anything else happens. @param {Thread} thread @param {() => Promise<any>} work */
  #file(thread, work) {
    const done = work();
    this.#files.add(done);
    return new Promise((resolve, reject) => {
      const settled = () => this.#files.delete(done);
      done.then(
        (value) => {
          settled();
          this.after(1, () => resolve(value), thread);
        },
        (error) => {
          settled();
          this.after(1, () => reject(error), thread);
        },
      );
    });
  }

  /** Ends the simulation from within a callback. @param {() => void} check */
  guard(check) {
    try {
      check();
    } catch (error) {
      this.#failure ??= error;
    }
  }

  /** @param {boolean} holds @param {string} what */
  must(holds, what) {
    if (!holds) {
      this.#failure ??= new Broken(what);
      throw this.#failure;
    }
  }

  // The process and its threads

  #newOracle() {
    return new ModelKeeper({ ...this.config, now: 0 });
  }

  get snapshot() {
    return path.join(this.folder, 'queue.snapshot');
  }

  startProcess() {
    const name = `simulation-${process.pid}-${this.seed}-${this.processes++}-${Simulation.count++}`;
    this.config.nodes = [];
    this.oracle = this.#newOracle();
    const main = QueueKeeper.open(name, {
      ...this.config,
      leases: this.leases,
      now: this.wall,
    });
    if (this.paused) main.pause();
    this.process = { name, main, threads: [] };
    this.leased.clear();
    this.graces.clear();
    this.formerOracles = [];
    this.mustResync = true;
    this.isWhole = false;
    this.resyncFrom = this.table.marks;
    this.table.feeds(null);
    this.table.forget();
    this.table.markAll();
    this.table.marks += 1;
    for (let i = 0; i < this.threadCount; i++) this.#startThread(i);
  }

  /** @param {number} index */
  #startThread(index) {
    const thread = new Thread(this, this.process, index);
    this.process.threads[index] = thread;
    standBy({
      keeper: thread.handle,
      time: thread.time,
      takeOver: () => this.feed(thread),
    });
    return thread;
  }

  /** @param {Thread} thread */
  feed(thread) {
    if (thread.feeder) return;
    this.log(`thread ${thread.index} feeds`);
    const handle = QueueKeeper.open(thread.process.name);
    const keeper = this.#feederKeeper(thread, handle);
    const port = this.table.port(thread.time);
    const feeder = new Feeder({
      keeper: this.variant.keeper ? this.variant.keeper(keeper) : keeper,
      table: this.variant.port ? this.variant.port(this.#watched(port)) : this.#watched(port),
      pulse: handle,
      peers: this.withPeers ? () => this.peers : undefined,
      snapshot: this.withSnapshot ? this.snapshot : undefined,
      chunkRows: this.chunkRows,
      time: thread.time,
      random: this.random.next,
      log: (_, message) => this.log(message),
    });
    thread.feeder = feeder;
    this.process.feeder = feeder;
    this.process.feedingHandle = handle;
    this.process.feedingThread = thread;
    const gone = () => {
      this.log(`thread ${thread.index} feeds no longer`);
      if (thread.feeder === feeder) thread.feeder = null;
      handle.close();
    };
    feeder.on('deposed', gone);
    feeder.on('failed', (error) => {
      this.guard(() => this.must(false, `the feeder failed: ${error.stack}`));
    });
    feeder.on('status', (status) => {
      if (this.process.feeder === feeder) this.process.announced = status;
    });
    feeder.on('walked', () => keeper.walked());
    this.table.feeds(port);
    this.#needsResync();
    feeder.start();
  }

  #needsResync() {
    this.mustResync = true;
    this.resyncFrom = this.table.marks += 1;
  }

  /** What a told feeder knows, the simulation knows. @param {any} port */
  #watched(port) {
    return {
      ...port,
      subscribe: (/** @type {any} */ listener, /** @type {any} */ onClose) =>
        port.subscribe(listener, (/** @type {Error} */ why) => {
          if (this.table.feedingPort === port) this.#needsResync();
          onClose(why);
        }),
    };
  }

  /** The feeder's own handle, watched. @param {Thread} thread @param {any} handle */
  #feederKeeper(thread, handle) {
    const sim = this;
    let marks = 0;
    /** @type {Set<string>} */
    let unread = new Set();
    let isWhole = false;
    const keeper = {
      get status() {
        return handle.status;
      },
      get nextChange() {
        return handle.nextChange;
      },
      get version() {
        return handle.version;
      },
      apply: (/** @type {any} */ event) => handle.apply(event),
      applyAll: (/** @type {any} */ events) => handle.applyAll(events),
      onApplied: (/** @type {any} */ listener) => handle.onApplied(listener),
      configureAsync: (/** @type {any} */ patch) =>
        sim.#file(thread, () => {
          const going = handle.configureAsync(patch);
          sim.configured(patch);
          return going;
        }),
      headCheck: (/** @type {number} */ n) => handle.headCheck(n),
      repair(/** @type {string} */ key, /** @type {any} */ row) {
        unread.delete(key);
        return handle.repair(key, row);
      },
      readFailed: (/** @type {string} */ key) => handle.readFailed(key),
      setPhase: (/** @type {any[]} */ ...args) => handle.setPhase(...args),
      state: () => handle.state(),
      takeFeeder: () => handle.takeFeeder(),
      loadSnapshot: (/** @type {string} */ file) =>
        sim.#file(thread, async () => {
          const loaded = await handle.loadSnapshot(file);
          for (const key of handle.keys()) sim.table.mark(key);
          return loaded;
        }),
      saveSnapshot: (/** @type {string} */ file) =>
        sim.#file(thread, () => handle.saveSnapshot(file)),
      beginWalkAsync: (/** @type {'load' | 'verify'} */ kind) =>
        sim.#file(thread, async () => {
          const walk = await handle.beginWalkAsync(kind);
          marks = sim.table.marks;
          sim.table.watch();
          isWhole = false;
          /** @type {string[]} */
          let suspects = [];
          return {
            rows: (/** @type {any[]} */ rows) => walk.rows(rows),
            endAsync: (/** @type {any} */ how) =>
              sim.#file(thread, async () => {
                const report = await walk.endAsync(how);
                isWhole = !report.partial;
                if (isWhole) sim.isWhole = true;
                suspects = walk.nextSuspects(Number.MAX_SAFE_INTEGER);
                unread = new Set(suspects);
                sim.guard(() => sim.#checkReport(kind, report));
                return report;
              }),
            nextSuspects: (/** @type {number} */ n) => suspects.splice(0, n),
            abandon: () => walk.abandon(),
          };
        }),
      walked() {
        if (!isWhole || sim.process.feedingHandle !== handle) return;
        sim.table.walked(marks, unread);
        sim.formerOracles = sim.formerOracles.filter(({ mark }) => mark > marks);
        if (marks >= sim.resyncFrom) sim.mustResync = false;
        sim.verifications += 1;
      },
    };
    return keeper;
  }

  /** @param {string} kind @param {any} report */
  #checkReport(kind, report) {
    if (kind === 'load') return;
    this.must(
      report.missing + report.mismatched <= this.table.unsettled.size,
      `missed writes that were not missed: ${JSON.stringify(report)}`,
    );
    let gainable = 0;
    for (const key of this.table.rows.keys()) {
      if (this.formerOracles.some(({ oracle }) => !oracle.owns(key))) gainable += 1;
    }
    this.must(
      report.gained <= gainable,
      `gained ${report.gained} rows, of ${gainable} that other nodes owned`,
    );
  }

  /** @param {any} patch */
  configured(patch) {
    const before = this.oracle;
    for (const [name, value] of Object.entries(patch)) {
      if (name === 'nodes' && value.length === 0 && this.config.nodes.length > 0) continue;
      if (name !== 'leases' && name !== 'priority') this.config[name] = value;
    }
    this.oracle = this.#newOracle();
    if (patch.nodes) {
      let gained = 0;
      this.table.marks += 1;
      this.formerOracles.push({ oracle: before, mark: this.table.marks });
      for (const key of this.table.rows.keys()) {
        if (before.owns(key) || !this.oracle.owns(key)) continue;
        this.table.gain(key);
        gained += 1;
      }
      if (gained > 0) this.#needsResync();
      this.log(`nodes ${JSON.stringify(this.config.nodes)}: ${gained} rows to be gained`);
    }
  }

  killProcess() {
    for (const thread of this.process.threads) thread.dead = true;
    this.process.main.validate();
    this.process = null;
    this.table.feeds(null);
  }

  /** @param {Thread} thread */
  killThread(thread) {
    thread.dead = true;
    if (this.process.feedingThread === thread) this.table.feeds(null);
  }

  // Renderers

  /** Not awaited: what it waits for comes with the clock. @param {number} n */
  #claims(n) {
    this.#claim(n).catch((error) => {
      this.#failure ??= error;
    });
  }

  /** @param {number} n */
  async #claim(n) {
    const threads = this.process.threads.filter((/** @type {Thread} */ t) => !t.dead && !t.stalled);
    if (threads.length === 0) return;
    const thread = this.random.pick(threads);
    const { jobs } = this.#checkedClaim(thread.handle, n);
    await Promise.all(jobs.map((/** @type {any} */ job) => this.#serve(thread, job)));
  }

  /** @param {any} handle @param {number} n */
  #checkedClaim(handle, n) {
    const claim = handle.claim(n);
    const { jobs, due, complete, skippedLeased, held, refused } = claim;
    let score = Number.POSITIVE_INFINITY;
    for (const job of jobs) {
      const lease = this.leased.get(job.key);
      this.must(!lease || lease.until <= this.mono, `${job.key} is leased twice at once`);
      const grace = this.graces.get(job.key) ?? 0;
      this.must(grace <= this.mono, `${job.key} is granted in its grace`);
      this.must(!this.tokens.has(job.token), 'a token comes again');
      this.tokens.add(job.token);
      this.must(job.expiresAt - this.wall === this.leases.leaseMs, 'how long a lease lasts');
      this.must(job.score <= score, 'the best first');
      score = job.score;
      this.must(job.dueAt <= this.wall, `${job.key} is not due`);
      this.leased.set(job.key, { token: job.token, until: this.mono + this.leases.leaseMs });
    }
    if (complete) {
      const told = jobs.length + skippedLeased + held.length;
      this.must(due === told, `${due} due rows, ${told} accounted for`);
    }
    const inFlight = this.inFlight();
    if (refused === 'limit') {
      this.must(inFlight >= this.leases.maxLeases, `refused at ${inFlight} leases`);
    } else if (refused === null) {
      this.must(complete || jobs.length === n, 'neither full nor complete nor refused');
    }
    this.must((refused === 'paused') === this.paused, `refused: ${refused}`);
    return claim;
  }

  inFlight() {
    let count = 0;
    for (const { until } of this.leased.values()) count += until > this.mono ? 1 : 0;
    return count;
  }

  /** @param {Thread} thread @param {any} job */
  async #serve(thread, job) {
    const { key, token } = job;
    let row = null;
    if (!this.variant.confirmsUnread) {
      try {
        row = await thread.port.get(key);
      } catch {
        // Its lease runs out.
        return;
      }
      const live = this.leased.get(key);
      const isLive = live !== undefined && live.token === token && live.until > this.mono;
      const confirmed = thread.handle.confirm(token, row);
      if (confirmed) this.must(isLive, `${key} is confirmed though its lease is over`);
      if (!confirmed) {
        if (isLive) this.leased.delete(key);
        return;
      }
    }
    const durable = this.table.rows.get(key);
    const reading = durable && this.oracle.read(key, durable.row);
    this.must(
      Boolean(reading) && /** @type {any} */ (reading).minute * MINUTE <= this.wall,
      `${key} is given out though its durable row is not due: ${JSON.stringify(durable)}`,
    );
    this.given += 1;
    this.#render(key, token);
  }

  /** @param {string} key @param {number} token */
  #render(key, token) {
    const { chance, between, int } = this.random;
    const { leaseMs } = this.leases;
    if (chance(0.1)) return;
    const slow = chance(0.12);
    const ms = slow ? leaseMs + int(2 * leaseMs) : between(50, 15_000);
    const writes = !chance(0.1);
    if (chance(0.05)) {
      this.after(ms / 2, () => this.guard(() => this.#extend(key, token)), null);
    }
    this.after(ms, () => this.guard(() => this.#result(key, token, writes)), null);
  }

  /** @param {string} key @param {number} token */
  #extend(key, token) {
    if (!this.process) return;
    const lease = this.leased.get(key);
    const isLive = lease?.token === token && lease.until > this.mono;
    const until = this.process.main.extend(token);
    this.must((until !== null) === isLive, `extended: ${until}, live: ${isLive}`);
    if (until !== null && lease) {
      lease.until = Math.max(lease.until, this.mono + this.leases.leaseMs);
    }
  }

  /** A result comes in, to whatever process there is now. @param {string} key @param {number} token @param {boolean} writes */
  #result(key, token, writes) {
    if (!this.process) return;
    const lease = this.leased.get(key);
    const isLive = lease?.token === token && lease.until > this.mono;
    const stored = this.table.rows.get(key);
    const write = () => {
      if (writes && stored) {
        const { cadenceMs } = this.oracle.read(key, stored.row)?.cls ?? { cadenceMs: HOUR };
        const next = this.wall + /** @type {number} */ (cadenceMs);
        const { changedAt, urgentAt, ...rest } = stored.row;
        this.table.put(key, { ...rest, nextRenderTime: next });
      }
    };
    const isFirst = this.random.chance(0.5);
    if (isFirst) write();
    const released = this.process.main.release(key, token);
    this.must((released === 'released') === isLive, `released: ${released}, live: ${isLive}`);
    if (isLive) {
      this.leased.delete(key);
      this.graces.set(key, this.mono + GRACE_MS);
    }
    if (!isFirst) write();
  }

  // What must hold

  checkState() {
    if (!this.process) return;
    this.flush();
    const state = this.process.main.state();
    const { now, trust } = state;
    assertAddsUp(state);
    const inFlight = this.inFlight();
    this.must(now.inFlight === inFlight, `${now.inFlight} in flight, by the claims ${inFlight}`);
    this.must(now.paused === this.paused, 'paused');
    if (trust.exact) {
      this.must(trust.live && !trust.keeper.resyncing, 'exact, but not live');
      this.must(trust.keeper.unverifiedRows === 0, 'exact, with unverified rows');
      this.must(!trust.keeper.verify?.repaired, 'exact, with missed writes');
      this.must(!this.mustResync, 'exact, without a walk since the last gap');
      this.must(trust.keeper.awaitingRead === 0, 'exact, with keys that are to be read');
    }
    if (now.status === 'empty') {
      this.must(now.due === 0 && this.isWhole, 'empty, but not the whole table');
    }
  }

  /** What the feeder's thread has at the latest by its next turn. */
  flush() {
    const { feedingHandle, feedingThread } = this.process;
    if (feedingThread?.feeder && !feedingThread.dead && !feedingThread.stalled) {
      try {
        void feedingHandle.size;
      } catch (error) {
        if (/** @type {any} */ (error).code !== 'E_CLOSED') throw error;
      }
    }
  }

  /** Keys that are kept otherwise than the table has them, without an excuse. */
  differences({ strict = false } = {}) {
    const { main } = this.process;
    const found = [];
    for (const key of new Set([...this.table.rows.keys(), ...main.keys()])) {
      if (!strict && this.table.isExcused(key)) continue;
      const stored = this.table.rows.get(key);
      const expected = stored ? this.oracle.read(key, stored.row) : null;
      const kept = main.describe(key);
      const asTold = kept && {
        minute: kept.minute,
        route: kept.route,
        cadenceMs: kept.cadenceMs,
        carried: kept.carried,
        fromSitemap: kept.fromSitemap,
        changed: kept.changed,
        urgent: kept.urgent,
        demandPeriodMs: kept.demandPeriodMs,
      };
      const asMeant = expected && { minute: expected.minute, ...expected.cls };
      try {
        assert.deepEqual(asTold, asMeant);
      } catch {
        found.push(
          `${key}: kept ${JSON.stringify(asTold)}, the table has ${JSON.stringify(asMeant)}`,
        );
      }
    }
    return found;
  }

  checkRows() {
    if (!this.process) return;
    this.flush();
    const differences = this.differences();
    this.must(differences.length === 0, `without an excuse: ${differences.join('; ')}`);
  }

  // What happens

  /** @param {string} what */
  log(what) {
    this.#operations.push(`${String(Math.round(this.mono)).padStart(9)} ms  ${what.slice(0, 400)}`);
    if (this.#operations.length > LAST_OPERATIONS) this.#operations.shift();
  }

  #key() {
    const i = this.random.int(this.keyCount);
    const url = `https://shop.example/${i % 7 === 0 ? 'other' : 'p'}/${i}`;
    return i % 5 === 0 ? `${url}|mobile` : url;
  }

  #row() {
    const { chance, int, pick } = this.random;
    const due = this.wall + pick([-1, -1, 1]) * int(pick([2, 30, 600])) * MINUTE;
    return {
      nextRenderTime: pick([due, due, due, due, due, due, due + 0.5, Number.NaN, -1, null, '12']),
      fromSitemap: chance(0.5),
      effectiveInterval: chance(0.3) ? pick([1, 7, 30]) * HOUR : null,
      changedAt: chance(0.2) ? this.wall : null,
      urgentAt: chance(0.1) ? this.wall : null,
      demandPeriod: chance(0.1) ? pick([HOUR, 5 * HOUR]) : null,
    };
  }

  #write() {
    const { weighted } = this.random;
    const { table } = this;
    const key = this.#key();
    weighted([
      [50, () => table.put(key, this.#row())],
      [8, () => table.delete(key)],
      [2, () => table.invalidate(key)],
      [8, () => table.patch(key, { nextRenderTime: this.#row().nextRenderTime ?? 5 })],
      [8, () => table.race(key, this.#row(), this.#row())],
      [3, () => table.message()],
      [1, () => table.nonsense()],
    ]);
  }

  #faults() {
    const { chance, next } = this.random;
    for (const fault of /** @type {(keyof typeof NO_FAULTS)[]} */ (Object.keys(NO_FAULTS))) {
      this.table.faults[fault] = chance(0.25) ? next() ** 2 * 0.5 : 0;
    }
    const told = Object.entries(this.table.faults).filter(([, share]) => share > 0);
    this.log(`faults ${told.map(([name, share]) => `${name} ${share.toFixed(2)}`).join(', ')}`);
  }

  /** One thing that happens. */
  async #happens() {
    const { chance, int, pick, weighted, sample } = this.random;
    const { table } = this;
    /** @type {[number, () => any][]} */
    const always = [
      [30, () => this.#burst(1 + int(6))],
      [4, () => this.#burst(30)],
      [4, () => this.#faults()],
      [2, () => this.#breakRow()],
      [1, () => this.#heal()],
    ];
    if (!this.process) {
      return weighted([
        ...always,
        [
          40,
          () => {
            this.#disturbSnapshot();
            this.log('a new process');
            this.startProcess();
          },
        ],
      ]);
    }
    const { threads, main } = this.process;
    const living = threads.filter((/** @type {Thread} */ thread) => !thread.dead);
    return weighted([
      ...always,
      [25, () => this.#claims(1 + int(8))],
      [
        2,
        () => {
          this.log('the whole table again');
          table.resend();
        },
      ],
      [
        2,
        () => {
          const told = chance(0.7);
          this.log(`the subscription closes, ${told ? 'told' : 'untold'}`);
          table.close(told);
        },
      ],
      [
        2,
        () => {
          this.paused = !this.paused;
          this.log(`paused: ${this.paused}`);
          if (this.paused) main.pause();
          else main.resume();
        },
      ],
      [2, () => this.#verify()],
      [2, () => this.#configure()],
      [
        this.withPeers ? 2 : 0,
        () => {
          this.peers = pick([null, [], sample(OTHERS, 1 + int(3)), sample(OTHERS, 1 + int(3))]);
          this.log(`peers ${JSON.stringify(this.peers)}`);
        },
      ],
      [
        2,
        () => {
          const thread = pick(living);
          if (thread) {
            thread.stalled = true;
            this.log(`thread ${thread.index} stands still`);
          }
        },
      ],
      [4, () => this.#wakeAll()],
      [
        1,
        () => {
          const thread = pick(living);
          if (thread) {
            this.log(`thread ${thread.index} dies`);
            this.killThread(thread);
          }
        },
      ],
      [
        3,
        () => {
          for (const thread of threads)
            if (thread.dead && chance(0.7)) {
              this.log(`thread ${thread.index} is replaced`);
              this.#startThread(thread.index);
            }
        },
      ],
      [
        1,
        () => {
          const thread = pick(living.filter((/** @type {Thread} */ t) => !t.stalled));
          if (thread) this.feed(thread);
        },
      ],
      [
        1,
        () => {
          this.log('the process is killed');
          this.killProcess();
        },
      ],
      [1, () => this.#stopProcess()],
      [
        1,
        () => {
          const ms = int(3) * HOUR * (chance(0.5) ? 1 : -1);
          this.wall += ms;
          this.log(`the wall clock steps ${ms} ms`);
          if (ms > 0) this.mono += ms;
          main.setNow(this.wall);
        },
      ],
    ]);
  }

  /** @param {number} n */
  #burst(n) {
    for (let i = 0; i < n; i++) this.#write();
  }

  #breakRow() {
    const { pick } = this.random;
    const keys = this.table.keys();
    if (keys.length === 0) return;
    const key = pick(keys);
    const how = pick(/** @type {const} */ (['marked', 'deadly']));
    this.table.unreadable.set(key, how);
    this.log(`${key} cannot be read: ${how}`);
  }

  #heal() {
    for (const key of [...this.table.unreadable.keys()]) this.table.heal(key);
  }

  #wakeAll() {
    for (const thread of this.process.threads) {
      if (!thread.stalled) continue;
      thread.stalled = false;
      const backlog = thread.backlog.splice(0);
      for (const then of backlog) this.after(0, then, thread);
    }
  }

  #verify() {
    const { feeder } = this.process;
    feeder?.verify().catch(() => {});
  }

  #configure() {
    const { int, pick } = this.random;
    const patch = pick([
      { defaultInterval: (1 + int(30)) * HOUR },
      { routes: this.random.sample(/** @type {any[]} */ (this.config.routes), 3) },
      { excludePathPatterns: [`/${int(10)}`] },
      { leases: { leaseMs: (10 + int(100)) * SECOND, maxLeases: 1 + int(40) } },
      { priority: { sitemapBoost: 1 + int(3), changedHeadStart: int(3) } },
    ]);
    this.log(`configure ${JSON.stringify(patch)}`);
    this.process.main.configure(patch);
    if (patch.leases) this.leases = patch.leases;
    this.configured(patch);
  }

  async #stopProcess() {
    const { feeder, feedingThread } = this.process;
    if (!feeder || !feedingThread || feedingThread.dead || feedingThread.stalled) return;
    this.log('the process is stopped');
    let stopped = false;
    feeder.stop({ phase: 'stopped' }).then(() => {
      stopped = true;
    });
    for (let i = 0; i < 50 && !stopped; i++) await this.pass(100);
    this.must(stopped, 'the feeder stops');
    this.killProcess();
  }

  #disturbSnapshot() {
    const { chance, int } = this.random;
    if (!this.withSnapshot || !fs.existsSync(this.snapshot)) return;
    const older = `${this.snapshot}.older`;
    if (chance(0.2) && fs.existsSync(older)) fs.copyFileSync(older, this.snapshot);
    else if (chance(0.5)) fs.copyFileSync(this.snapshot, older);
    if (chance(0.2)) {
      const bytes = fs.readFileSync(this.snapshot);
      if (chance(0.5)) bytes[int(bytes.length)] ^= 1 << int(8);
      fs.writeFileSync(this.snapshot, chance(0.5) ? bytes : bytes.subarray(0, int(bytes.length)));
      this.log('the snapshot is damaged');
    }
  }

  #pause() {
    const { chance, int, next } = this.random;
    if (chance(0.6)) return this.pass(int(50));
    if (chance(0.6)) return this.pass(next() ** 2 * 3_000);
    if (chance(0.7)) return this.pass(next() * 20_000);
    return this.pass(next() ** 2 * 70 * MINUTE, { jump: true });
  }

  // From the beginning to the end

  async run() {
    this.folder = fs.mkdtempSync(path.join(SCRATCH, 'queue-simulation-'));
    try {
      await this.#live();
      return {
        given: this.given,
        verifications: this.verifications,
        steps: this.#steps,
        processes: this.processes,
      };
    } catch (error) {
      const what = error instanceof Broken ? error.message : /** @type {Error} */ (error).stack;
      throw new Broken(
        `${what}\nlast operations:\n${this.#operations.join('\n')}\n` +
          `replay: SEED=${this.seed} node --test __test__/simulation.test.js`,
      );
    } finally {
      this.process = null;
      fs.rmSync(this.folder, { recursive: true, force: true });
    }
  }

  async #live() {
    this.#burst(this.keyCount);
    this.startProcess();
    if (this.random.chance(0.7)) this.#faults();
    for (let step = 0; step < this.steps; step++) {
      await this.#happens();
      await this.#pause();
      this.checkState();
      if (step % 4 === 0) this.checkRows();
      if (step % 16 === 0) this.process?.main.validate();
    }
    await this.#calm();
  }

  async #calm() {
    const { chance } = this.random;
    this.log('the faults end');
    this.table.faults = { ...NO_FAULTS };
    if (chance(0.7)) this.#heal();
    for (const [key, how] of this.table.unreadable) {
      // Where keys cannot be listed, what lies between two of these cannot be read either.
      if (how === 'deadly' && !this.table.listsKeys) this.table.heal(key);
    }
    if (!this.process) this.startProcess();
    if (this.paused) {
      this.paused = false;
      this.process.main.resume();
    }
    // One that is deaf without a word would have to wait for the verification after next.
    if (this.table.isDeaf) this.table.close(true);
    this.#wakeAll();
    for (const thread of this.process.threads) if (thread.dead) this.#startThread(thread.index);
    if (this.peers === null || this.peers.length === 0) this.peers = OTHERS.slice(0, 1);
    // What is late arrives, or never will.
    await this.pass(61 * SECOND);
    this.checkState();

    await this.#verified();
    await this.pass(300);
    this.#mustEqual('after one verification');
    this.checkState();
    await this.#gap();
    await this.#verified();
    await this.pass(300);
    const { trust, now } = this.process.main.state();
    const { verify } = trust.keeper;
    // Where a row cannot be read, or waits to be, the state may say that it does not know.
    const isKnown = this.table.unreadable.size === 0 && trust.keeper.awaitingRead === 0;
    const isExact = verify.repaired === 0;
    this.must(
      trust.exact === isExact || (!trust.exact && !isKnown),
      `exact: ${trust.exact}, ${JSON.stringify(verify)}`,
    );
    this.must(
      trust.keeper.unverifiedRows <= this.table.unreadable.size,
      `${trust.keeper.unverifiedRows} rows of the snapshot were never verified`,
    );
    this.must(verify.gained === 0, `gained again: ${verify.gained}`);
    this.must(
      this.process.announced === now.status,
      `announced ${this.process.announced}, is ${now.status}`,
    );

    this.table.faults.vague = 0.3;
    for (let i = 0; i < 12; i++) {
      this.#burst(4);
      this.#claims(5);
      await this.pass(this.random.int(2_000));
      this.checkState();
    }
    await this.pass(5_000);
    this.#mustEqual('by events alone');
    this.process.main.validate();
  }

  /** The feeder has to begin anew while the table is written to: the walk that follows must find everything. */
  async #gap() {
    const { chance, int } = this.random;
    const { feedingThread } = this.process;
    // No fault of the table: what is read is told later, and may be old by then.
    Object.assign(this.table.faults, { staleReads: 0.7, slow: 0.5 });
    if (chance(0.4)) {
      this.log(`thread ${feedingThread.index} dies`);
      this.killThread(feedingThread);
      this.#needsResync();
      this.#startThread(feedingThread.index);
    } else {
      this.log('the subscription closes, told');
      this.#needsResync();
      this.table.close(true);
    }
    for (let i = 0; this.mustResync; i++) {
      this.must(i < 4_000, 'the feeder begins anew');
      if (i < 400) this.#burst(int(3));
      await this.pass(int(i < 400 ? 30 : 1_000));
    }
    Object.assign(this.table.faults, { staleReads: 0, slow: 0 });
    await this.pass(5_000);
    // What could not be read is read again a minute later; until then the state says so.
    if (this.process.main.state().trust.keeper.awaitingRead > 0) await this.pass(70_000);
    this.#mustEqual('after a gap');
  }

  /** @param {string} when */
  #mustEqual(when) {
    this.flush();
    const differences = this.differences({ strict: true }).filter((line) => {
      const key = line.slice(0, line.indexOf(': kept'));
      return !this.table.unreadable.has(key) && !this.table.isUnderWay(key);
    });
    this.must(differences.length === 0, `${when}: ${differences.join('; ')}`);
  }

  async #verified() {
    for (let tries = 0; ; tries++) {
      this.must(tries < 40, 'a verification comes to an end');
      const feeder = this.process.feedingThread?.feeder;
      if (!feeder) {
        await this.pass(2_000);
        continue;
      }
      let outcome = '';
      feeder.verify().then(
        () => {
          outcome = 'done';
        },
        () => {
          outcome = 'failed';
        },
      );
      for (let i = 0; i < 200 && outcome === ''; i++) await this.pass(2_000);
      if (outcome === 'done') return;
      if (outcome === '') this.must(false, 'a verification answers');
    }
  }
}
Simulation.count = 0;

/** So many lives, one after the other; what broke, and what was seen in all. @param {number} from @param {number} count */
async function simulate(from, count) {
  /** @type {string[]} */
  const broken = [];
  const sum = { seeds: 0, given: 0, verifications: 0, steps: 0, processes: 0 };
  for (let seed = from; seed < from + count; seed++) {
    try {
      const seen = await new Simulation(seed).run();
      for (const [name, number] of Object.entries(seen)) {
        sum[/** @type {keyof typeof seen} */ (name)] += number;
      }
    } catch (error) {
      broken.push(`seed ${seed}: ${/** @type {Error} */ (error).message}`);
    }
    sum.seeds += 1;
  }
  return { broken, sum };
}

// A process of its own for some seeds: queues that have a name live as long as it does.
if (require.main === module) {
  simulate(Number(process.argv[2]), Number(process.argv[3])).then((outcome) => {
    process.stdout.write(JSON.stringify(outcome));
  });
}

module.exports = { Simulation, Broken, simulate };
