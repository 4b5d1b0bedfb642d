'use strict';

/**
 * Harper in memory, as far as the queue keeper uses it: tables, transactions, subscriptions, and worker threads that
 * are all in this one. It does what Harper was seen to do, its traps included; `port-cases.js` says what, and runs on
 * both.
 */

const { EventEmitter } = require('node:events');

const LONGEST_CURSOR = 256;
/** Rows that a subscription is sent before it stalls. */
const MOST_CURRENT = 101;
/** From so many writes on, a transaction looks at what it has written itself no more. */
const LARGE = 100;

/** @type {Record<string, [low: string | null, high: string | null]>} */
const COMPARATORS = {
  greater_than: ['gt', null],
  gt: ['gt', null],
  greater_than_equal: ['ge', null],
  ge: ['ge', null],
  less_than: [null, 'lt'],
  lt: [null, 'lt'],
  less_than_equal: [null, 'le'],
  le: [null, 'le'],
  gtlt: ['gt', 'lt'],
  gtle: ['gt', 'le'],
  gelt: ['ge', 'lt'],
  gele: ['ge', 'le'],
};

/** @param {string} a @param {string} b */
const compare = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
const never = () => new Promise(() => {});
const turn = () => new Promise((resolve) => setImmediate(resolve));

let lastTime = 0;
function nextTime() {
  lastTime = Math.max(Date.now(), lastTime + 0.001);
  return lastTime;
}

/**
 * @typedef {{ key: string, type: 'put' | 'patch' | 'delete' | 'invalidate', value?: any }} Write
 * @typedef {{ value: any, version: number } | { value: null, version: number }} Entry
 */

/** A transaction of its own, or the context's. @param {any} context @param {(transaction: any) => any} work */
async function transaction(context, work) {
  if (context.transaction) return work(context.transaction);
  const mine = { writes: /** @type {any[]} */ ([]) };
  context.transaction = mine;
  const result = await work(mine);
  const version = context.timestamp ?? nextTime();
  context.transaction = null;
  // Committed on another thread.
  await turn();
  let writes = mine.writes;
  if (writes.length >= LARGE) {
    const seen = new Set();
    writes = writes.filter(({ key }) => !seen.has(key) && seen.add(key));
  }
  for (const { table, ...write } of writes) table.apply(write, version);
  return result;
}

class TableDouble {
  primaryKey = 'cacheKey';
  /** The row of each key, null where it was deleted. @type {Map<string, Entry>} */
  #entries = new Map();
  /** @type {Map<string, (Write & { version: number })[]>} */
  #audit = new Map();
  /** @type {Set<any>} */
  #subscriptions = new Set();
  #hangs = false;

  /** @param {string} [primaryKey] */
  constructor(primaryKey = 'cacheKey') {
    this.primaryKey = primaryKey;
  }

  // Writing

  /** @param {string} key @param {any} row @param {any} [context] */
  put(key, row, context = {}) {
    return this.#add(context, { key, type: 'put', value: { ...row, [this.primaryKey]: key } });
  }

  /** @param {string} key @param {any} fields @param {any} [context] */
  patch(key, fields, context = {}) {
    return this.#add(context, { key, type: 'patch', value: { ...fields } });
  }

  /** @param {string} key @param {any} [context] */
  delete(key, context = {}) {
    return this.#add(context, { key, type: 'delete' });
  }

  /** @param {string} key @param {any} [context] */
  invalidate(key, context = {}) {
    return this.#add(context, { key, type: 'invalidate' });
  }

  /** @param {any} context @param {Write} write */
  #add(context, write) {
    return transaction(context, ({ writes }) => {
      writes.push({ table: this, ...write });
    });
  }

  /** @param {Write} write @param {number} version */
  apply({ key, type, value }, version) {
    const audit = this.#audit.get(key) ?? [];
    this.#audit.set(key, audit);
    const newer = audit.filter((one) => one.version > version);
    // The later time wins; a later patch goes on top.
    if (newer.some((one) => one.type !== 'patch')) return;
    const before = this.#entries.get(key)?.value;
    let stored = type === 'patch' ? { ...before, ...value } : (value ?? null);
    for (const patch of newer) stored = { ...stored, ...patch.value };
    audit.push({ key, type, value, version });
    this.#entries.set(key, { value: stored && Object.freeze(stored), version });
    this.#tell({
      id: key,
      type: type === 'patch' ? 'put' : type,
      value: stored ?? undefined,
      version,
      localTime: nextTime(),
    });
  }

  /** @param {any} event */
  #tell(event) {
    for (const subscription of this.#subscriptions) {
      setImmediate(() => {
        if (!this.#subscriptions.has(subscription) || subscription.stalled) return;
        try {
          subscription.listener({ ...event });
        } catch {
          // Harper logs it.
        }
      });
    }
  }

  // Listening

  /** @param {{ omitCurrent?: boolean, listener: (event: any) => void }} request */
  async subscribe({ omitCurrent, listener }) {
    const subscription = Object.assign(new EventEmitter(), {
      listener,
      stalled: false,
      end: () => this.#subscriptions.delete(subscription),
    });
    this.#subscriptions.add(subscription);
    if (!omitCurrent) {
      const current = this.#sorted().slice(0, MOST_CURRENT);
      for (const [id, { value, version }] of current) listener({ id, type: 'put', value, version });
      subscription.stalled = current.length === MOST_CURRENT;
    }
    await turn();
    return subscription;
  }

  /** Harper lets go of all subscriptions. */
  closeSubscriptions() {
    for (const subscription of [...this.#subscriptions]) {
      subscription.end();
      subscription.emit('close');
    }
  }

  // Reading

  #sorted() {
    return [...this.#entries]
      .filter(([, { value }]) => value !== null)
      .sort(([a], [b]) => compare(a, b));
  }

  /** @param {any} query */
  search({ conditions = [], limit = Number.POSITIVE_INFINITY, select, reverse = false, sort }) {
    if (sort && conditions.length === 0) return rejecting('cacheKey is not indexed');
    /** @type {(key: string) => boolean} */
    let within = () => true;
    for (const { comparator, value } of conditions) {
      const [low, high] = COMPARATORS[comparator] ?? [];
      const [from, to] = low && high ? value : low ? [value, null] : [null, value];
      if (value === null || from === '' || to === '') {
        return rejecting('"cacheKey" is not indexed for nulls');
      }
      const cut = (/** @type {string | null} */ bound) =>
        bound !== null && bound.length > LONGEST_CURSOR
          ? `${bound.slice(0, LONGEST_CURSOR)}\uffff`
          : bound;
      const isCut = cut(from) !== from || cut(to) !== to;
      if (isCut && low && high) return rejecting(`Unknown query comparator "${comparator}"`);
      const lowest = cut(from);
      const highest = cut(to);
      within = (key) =>
        (lowest === null || compare(key, lowest) > (low === 'ge' || isCut ? -1 : 0)) &&
        (highest === null || compare(key, highest) < (high === 'le' || isCut ? 1 : 0)) &&
        (!isCut || from === null || compare(key, from) > (low === 'ge' ? -1 : 0)) &&
        (!isCut || to === null || compare(key, to) < (high === 'le' ? 1 : 0));
    }
    const entries = this.#sorted().filter(([key]) => within(key));
    if (reverse) entries.reverse();
    return this.#stream(entries.slice(0, limit), select);
  }

  /** @param {[string, Entry][]} entries @param {string[]} select */
  async *#stream(entries, select) {
    for (const [key, { value, version }] of entries) {
      if (key === '') this.#hangs = true;
      if (this.#hangs) await never();
      const special = { $id: key, $updatedtime: version };
      yield Object.fromEntries(
        select.map((name) => [
          name,
          name in special ? /** @type {any} */ (special)[name] : value[name],
        ]),
      );
    }
  }

  /** @param {{ id: string, select?: string[] }} target @param {any} [_context] */
  async get({ id, select }, _context) {
    if (select?.some((name) => name.startsWith('$'))) {
      throw new TypeError("Cannot read properties of undefined (reading 'key')");
    }
    if (id === '') this.#hangs = true;
    if (this.#hangs) await never();
    const entry = this.#entries.get(id);
    return entry?.value ? recordOf(/** @type {any} */ (entry)) : undefined;
  }

  /** How many rows there are. */
  get size() {
    return this.#sorted().length;
  }
}

/** As Harper's: the fields are its prototype's. @param {{ value: any, version: number }} entry */
function recordOf({ value, version }) {
  const prototype = Object.defineProperties(
    { toJSON: () => ({ ...value }), getUpdatedTime: () => version },
    Object.fromEntries(Object.keys(value).map((name) => [name, { get: () => value[name] }])),
  );
  return Object.create(prototype);
}

/** @param {string} why */
function rejecting(why) {
  return {
    // biome-ignore lint/correctness/useYield: it throws before it would
    async *[Symbol.asyncIterator]() {
      throw new Error(why);
    },
  };
}

module.exports = { TableDouble, transaction };
