'use strict';

const { random } = require('./random-ops.js');

/**
 * A `ScheduleTable` in memory that does everything wrong that a table can do, as a seed says. It knows, key by key,
 * what the feeder cannot know: whether an event is still under way to it, or was lost (`excuses`).
 *
 * All its answers and events go through the `Time` of whoever asks, so that they come when the simulator says so,
 * and never to a thread that is dead.
 *
 * @typedef {import('../../lib/schedule-table.js').ScheduleTable} ScheduleTable
 * @typedef {import('../../lib/schedule-table.js').ScheduleEvent} ScheduleEvent
 * @typedef {Pick<import('../../lib/feeder.js').Time, 'after'>} Clock
 * @typedef {{ row: any, version: number | undefined }} Stored
 *
 * @typedef {object} Subscriber
 * @property {ScheduleTable} port
 * @property {Clock} clock
 * @property {(event: ScheduleEvent) => void} listener
 * @property {(why: Error) => void} onClose
 * @property {boolean} open  events are sent to it
 * @property {boolean} ended  by itself
 * @property {Map<string, number>} pending  events under way, by key
 * @property {number} clearAt  what is sent in order arrives no earlier than what was sent before
 */

/** Shares of events and calls that go wrong. */
const NO_FAULTS = Object.freeze({
  drop: 0,
  duplicate: 0,
  late: 0,
  replay: 0,
  lie: 0,
  vague: 0,
  walkFails: 0,
  walkHangs: 0,
  walkIsShort: 0,
  walkEndsEarly: 0,
  getFails: 0,
  getHangs: 0,
  subscribeFails: 0,
  subscribeHangs: 0,
  staleReads: 0,
  slow: 0,
});

/** No event is later than this: older ones may be forgotten about (SPEC.md section 5: ten minutes). */
const LATEST_MS = 60_000;
const HISTORY = 40;

class FaultyTable {
  /** @type {Map<string, Stored>} */
  rows = new Map();
  /** @type {Record<keyof typeof NO_FAULTS, number>} */
  faults = { ...NO_FAULTS };
  /** Rows that cannot be read: their key can ('marked'), or the cursor dies on them ('deadly'). @type {Map<string, 'marked' | 'deadly'>} */
  unreadable = new Map();
  /** Whether keys can be listed without their values. */
  listsKeys = true;
  /** Keys of which the feeder may know something old, and since when: see `mark`. @type {Map<string, number>} */
  excuses = new Map();
  /** Of the excuses, those that are not a change of nodes. @type {Map<string, number>} */
  missed = new Map();
  /** Keys missed, or written, since `watch` was called. @type {Set<string>} */
  unsettled = new Set();
  /** Grows with every excuse. */
  marks = 0;
  /** The port of the feeder whose word counts now. @type {ScheduleTable | null} */
  feedingPort = null;

  #random;
  /** @type {() => number} */
  #mono;
  #versions;
  /** The last version given out, kept in ms as Harper's are. */
  #version = 1_700_000_000_000;
  /** The highest version that has arrived of each key. @type {Map<string, number>} */
  #heardVersions = new Map();
  /** @type {Set<Subscriber>} */
  #subscribers = new Set();
  /** @type {string[] | null} */
  #sorted = null;
  /** Of what was sent, the last. @type {{ event: ScheduleEvent, at: number }[]} */
  #history = [];

  /**
   * @param {object} options
   * @param {number} options.seed
   * @param {() => number} options.mono
   * @param {boolean} options.versions  events and rows carry one
   */
  constructor({ seed, mono, versions }) {
    this.#random = random(seed);
    this.#mono = mono;
    this.#versions = versions;
  }

  get versioned() {
    return this.#versions;
  }

  // What the feeder cannot know

  /** Of this key the feeder knows something old, or nothing, until a walk that begins from now on. @param {string} key */
  mark(key) {
    this.marks += 1;
    this.excuses.set(key, this.marks);
    this.missed.set(key, this.marks);
    this.unsettled.add(key);
  }

  /** Of this key the feeder knows nothing, since another node owned it. @param {string} key */
  gain(key) {
    this.marks += 1;
    this.excuses.set(key, this.marks);
  }

  markAll() {
    for (const key of this.rows.keys()) this.mark(key);
  }

  /** A walk has seen the whole table that began when `marks` was what is given here. @param {number} marks @param {Set<string>} unread */
  walked(marks, unread) {
    for (const [key, mark] of this.missed) {
      if (mark <= marks && !this.unreadable.has(key) && !unread.has(key)) this.missed.delete(key);
    }
    for (const [key, mark] of this.excuses) {
      if (mark <= marks && !this.unreadable.has(key) && !unread.has(key)) this.excuses.delete(key);
    }
  }

  /** Whether what is kept of the key may differ from what is here. @param {string} key */
  isExcused(key) {
    return this.excuses.has(key) || this.isUnderWay(key);
  }

  /** The row can be read again, which nobody says. @param {string} key */
  heal(key) {
    if (this.unreadable.delete(key)) this.mark(key);
  }

  /** Whether an event of the key is under way to the feeder. @param {string} key */
  isUnderWay(key) {
    return (this.#current()?.pending.get(key) ?? 0) > 0;
  }

  /** From now on `unsettled` gathers keys: what a walk finds of them may be newer than what was told. */
  watch() {
    this.unsettled = new Set(this.missed.keys());
    for (const key of this.#current()?.pending.keys() ?? []) this.unsettled.add(key);
  }

  #current() {
    for (const subscriber of this.#subscribers) {
      if (subscriber.port === this.feedingPort && subscriber.open) return subscriber;
    }
    return undefined;
  }

  /** A new process knows nothing of what an older one has heard. */
  forget() {
    this.#heardVersions.clear();
  }

  /** Somebody else feeds from now on. @param {ScheduleTable | null} port */
  feeds(port) {
    for (const subscriber of this.#subscribers) this.#lose(subscriber);
    this.feedingPort = port;
  }

  /** What was under way to a subscriber will not arrive, or will not count. @param {Subscriber} subscriber */
  #lose(subscriber) {
    if (subscriber.port === this.feedingPort) {
      for (const key of subscriber.pending.keys()) this.mark(key);
    }
    subscriber.pending.clear();
  }

  // Writing

  /** @param {string} key @param {any} row */
  put(key, row) {
    this.#commit(key, Object.freeze({ ...row }), 'put');
  }

  /** @param {string} key */
  delete(key) {
    this.#commit(key, null, 'delete');
  }

  /** @param {string} key */
  invalidate(key) {
    this.#commit(key, null, 'invalidate');
  }

  /** A change of some fields; some stores tell of it without saying to what. @param {string} key @param {any} fields */
  patch(key, fields) {
    const row = Object.freeze({ ...this.rows.get(key)?.row, ...fields });
    if (!this.#random.chance(this.faults.vague)) {
      this.#commit(key, row, 'put');
      return;
    }
    const version = this.#nextVersion();
    this.#store(key, row, version);
    this.mark(key);
    const [type, value] = this.#random.pick([
      ['put', undefined],
      ['put', null],
      ['patch', undefined],
      ['patch', Object.freeze({ ...fields })],
    ]);
    this.#tell(this.#event(key, type, value, version));
  }

  /**
   * Two writers at once: the later version is what is stored, whichever was first; either event may arrive first.
   *
   * @param {string} key @param {any} winner @param {any} loser
   */
  race(key, winner, loser) {
    const older = this.#nextVersion();
    const stored = Object.freeze({ ...winner });
    const version = this.#nextVersion();
    this.#store(key, stored, version);
    const events = [
      this.#event(key, 'put', Object.freeze({ ...loser }), older),
      this.#event(key, 'put', stored, version),
    ];
    // Without versions, only their order says which one counts.
    if (this.#versions && this.#random.chance(0.5)) events.reverse();
    for (const event of events) this.#tell(event);
  }

  /** Says nothing about a row. */
  message() {
    const { pick } = this.#random;
    const keys = [...this.rows.keys()];
    const id = keys.length > 0 ? pick(keys) : 'none';
    const old = { nextRenderTime: 1 };
    this.#send(
      pick([
        { id, type: 'message', value: old },
        { id: /** @type {any} */ (null), type: 'end_txn' },
        { id, type: 'publish', value: old },
        { id, type: 'reload' },
      ]),
    );
  }

  /** What cannot be read: it is counted, and changes nothing. */
  nonsense() {
    const ids = /** @type {any[]} */ ([undefined, 7, {}, null]);
    this.#send({ id: this.#random.pick(ids), type: 'put', value: { nextRenderTime: 1 } });
  }

  /** The whole table again, as after a base copy. */
  resend() {
    for (const [key, { row, version }] of this.rows) {
      this.#send(this.#event(key, 'put', row, version));
    }
  }

  #nextVersion() {
    this.#version += 1 + this.#random.int(3) / 4;
    return this.#version;
  }

  /** @param {string} key @param {any} row @param {number} version */
  #store(key, row, version) {
    if (row === null ? this.rows.delete(key) : !this.rows.has(key)) this.#sorted = null;
    if (row !== null) this.rows.set(key, { row, version: this.#versions ? version : undefined });
    // Whatever was written there can be read again.
    this.unreadable.delete(key);
  }

  /** @param {string} key @param {string} type @param {any} value @param {number} [version] @returns {ScheduleEvent} */
  #event(key, type, value, version) {
    return { id: key, type, value, version: this.#versions ? version : undefined };
  }

  /** @param {string} key @param {any} row @param {string} type */
  #commit(key, row, type) {
    const version = this.#nextVersion();
    this.#store(key, row, version);
    this.#tell(this.#event(key, type, row ?? undefined, version));
    if (this.#random.chance(this.faults.lie) && row !== null) {
      // Seen of Harper: neither the last event nor the highest version is what is stored.
      this.mark(key);
      const other = { ...row, nextRenderTime: row.nextRenderTime - 3_600_000 };
      this.#tell(this.#event(key, 'put', other, this.#nextVersion()));
    }
  }

  /** Sends what was written, and with it what the faults say. @param {ScheduleEvent} event */
  #tell(event) {
    this.unsettled.add(event.id);
    const { chance, pick } = this.#random;
    this.#history.push({ event, at: this.#mono() });
    if (this.#history.length > HISTORY) this.#history.shift();
    this.#send(event);
    if (chance(this.faults.replay)) {
      const old = pick(this.#history);
      if (this.#mono() - old.at < LATEST_MS) this.#send(old.event);
    }
  }

  /** @param {ScheduleEvent} event */
  #send(event) {
    if (!this.#current() && typeof event.id === 'string') this.mark(event.id);
    for (const subscriber of this.#subscribers) {
      if (!subscriber.open) continue;
      if (this.#random.chance(this.faults.drop)) {
        if (subscriber.port === this.feedingPort && typeof event.id === 'string') {
          this.mark(event.id);
        }
        continue;
      }
      this.#deliver(subscriber, event);
      if (this.#random.chance(this.faults.duplicate)) this.#deliver(subscriber, event);
    }
  }

  /** @param {Subscriber} subscriber @param {ScheduleEvent} event */
  #deliver(subscriber, event) {
    const { chance, int, next } = this.#random;
    const sentAt = this.#mono();
    let at = sentAt + int(5) + (chance(0.1) ? int(200) : 0);
    if (chance(this.faults.late)) at += next() ** 3 * LATEST_MS;
    else {
      at = Math.max(at, subscriber.clearAt);
      subscriber.clearAt = at;
    }
    const { pending } = subscriber;
    const { id } = event;
    pending.set(id, (pending.get(id) ?? 0) + 1);
    subscriber.clock.after(at - sentAt, () => {
      const left = pending.get(id);
      if (left === 1) pending.delete(id);
      else if (left !== undefined) pending.set(id, left - 1);
      if (subscriber.ended) return;
      subscriber.listener(event);
      if (subscriber.port === this.feedingPort) this.#judgeOrder(event, sentAt);
    });
  }

  /** What is not the row's last event any more may have put an older row in the place of a newer one. @param {ScheduleEvent} event @param {number} sentAt */
  #judgeOrder(event, sentAt) {
    if (typeof event.id !== 'string') return;
    const forgotten = this.#mono() - sentAt > 9 * LATEST_MS;
    // An older one is refused only where it is known that there is a newer one: where that was lost, it is not.
    const version = /** @type {number} */ (event.version);
    const isNewest = !(version < (this.#heardVersions.get(event.id) ?? 0));
    if (this.#versions && isNewest) this.#heardVersions.set(event.id, version);
    if (this.#versions && !forgotten && !isNewest) return;
    const stored = this.rows.get(event.id);
    const isLast = event.type === 'put' ? stored?.row === event.value : stored === undefined;
    if (!isLast && (event.type === 'put' || event.type === 'delete' || event.type === 'invalidate'))
      this.mark(event.id);
  }

  // Subscriptions

  /** The subscriptions end; `told` or not. @param {boolean} told */
  close(told) {
    for (const subscriber of this.#subscribers) {
      if (!subscriber.open && !told) continue;
      this.#lose(subscriber);
      subscriber.open = false;
      if (told) {
        subscriber.clock.after(this.#random.int(50), () => {
          if (!subscriber.ended) subscriber.onClose(new Error('the store let go'));
        });
      }
    }
  }

  /** Whether the feeder's subscription has ended without a word. */
  get isDeaf() {
    const port = this.feedingPort;
    const its = [...this.#subscribers].filter((one) => one.port === port && !one.ended);
    return its.length > 0 && its.every((one) => !one.open);
  }

  // Reading

  /** Keys in their order, by UTF-16 code units. */
  keys() {
    this.#sorted ??= [...this.rows.keys()].sort();
    return this.#sorted;
  }

  /**
   * The table as one thread sees it.
   *
   * @param {Clock} clock
   * @param {{ fresh?: boolean }} [options]  `fresh`: a read tells what there is when it answers, not before
   * @returns {ScheduleTable}
   */
  port(clock, { fresh = false } = {}) {
    /**
     * @template T @param {number} fails @param {number} hangs @param {() => T} read
     * @param {{ stale?: boolean }} [how] @returns {Promise<T>}
     */
    const call = (fails, hangs, read, { stale = !fresh } = {}) => {
      const { chance, int } = this.#random;
      const delay = chance(this.faults.slow) ? int(20_000) : int(3);
      if (chance(hangs)) return new Promise(() => {});
      const failure = chance(fails) ? new Error('the store failed') : null;
      /** @type {() => T} */
      let answer = read;
      if (stale && chance(this.faults.staleReads)) {
        // Read now, and told later: in between it may become old.
        const known = attempt(read);
        answer = () => known();
      }
      return new Promise((resolve, reject) => {
        clock.after(delay, () => {
          if (failure) return reject(failure);
          try {
            resolve(answer());
          } catch (error) {
            reject(error);
          }
        });
      });
    };
    /** @type {ScheduleTable} */
    const port = {
      subscribe: (listener, onClose) => {
        const open = () => {
          /** @type {Subscriber} */
          const subscriber = {
            port,
            clock,
            listener,
            onClose,
            open: true,
            ended: false,
            pending: new Map(),
            clearAt: 0,
          };
          this.#subscribers.add(subscriber);
          return {
            end: () => {
              this.#lose(subscriber);
              subscriber.open = false;
              subscriber.ended = true;
              this.#subscribers.delete(subscriber);
            },
          };
        };
        const { subscribeFails, subscribeHangs } = this.faults;
        return call(subscribeFails, subscribeHangs, open, { stale: false });
      },
      walk: (range) => {
        const { walkFails, walkHangs } = this.faults;
        return call(walkFails, walkHangs, () => this.#chunk(range));
      },
      get: (key) => {
        const { getFails, getHangs } = this.faults;
        // A walk that reads row by row may have to go without this one.
        if (getFails > 0 || getHangs > 0) this.mark(key);
        return call(getFails, getHangs, () => {
          if (this.unreadable.has(key)) throw new Error('the row cannot be decoded');
          const stored = this.rows.get(key);
          return stored ? this.#read(key, stored) : null;
        });
      },
      put: async (key, row) => this.put(key, row),
      delete: async (key) => this.delete(key),
    };
    return port;
  }

  /** @param {string} key @param {Stored} stored */
  #read(key, { row, version }) {
    return { ...row, cacheKey: key, version };
  }

  /** @param {import('../../lib/schedule-table.js').WalkRange} range */
  #chunk({ after = null, before = null, limit, reverse = false, keysOnly = false }) {
    const { chance, int } = this.#random;
    if (keysOnly && !this.listsKeys) throw new Error('keys cannot be listed');
    if (chance(this.faults.walkEndsEarly)) {
      // It lies: what it did not tell of is not known to be missing.
      this.markAll();
      return [];
    }
    const most = chance(this.faults.walkIsShort) ? 1 + int(limit) : limit;
    const all = this.keys();
    const keys = reverse ? [...all].reverse() : all;
    const chunk = [];
    for (const key of keys) {
      if ((after !== null && key <= after) || (before !== null && key >= before)) continue;
      if (chunk.length >= most) break;
      const broken = this.unreadable.get(key);
      if (keysOnly) chunk.push({ cacheKey: key });
      else if (broken === 'deadly') throw new Error('the cursor died');
      else if (broken) chunk.push({ cacheKey: key, unreadable: 'it cannot be decoded' });
      else chunk.push(this.#read(key, /** @type {Stored} */ (this.rows.get(key))));
    }
    return chunk;
  }
}

/** @template T @param {() => T} read @returns {() => T} */
function attempt(read) {
  try {
    const value = read();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

module.exports = { FaultyTable, NO_FAULTS };
