'use strict';

/**
 * Harper in memory, as far as the queue keeper uses it: tables, transactions, subscriptions, and worker threads that
 * are all in this one. It does what Harper was seen to do, its traps included; `port-cases.js` says what, and runs on
 * both.
 */

const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { isDeepStrictEqual } = require('node:util');
const { until } = require('./until.js');

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

const LONGS = ['nextRenderTime', 'effectiveInterval', 'changedAt', 'urgentAt', 'demandPeriod'];
/** What was written so shortly before a subscription that it hears of it. */
const OVERLAP = 3;

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
 * @typedef {{ key: string, type: 'put' | 'patch' | 'delete' | 'invalidate' | 'message', value?: any }} Write
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
  /** @type {any[]} */
  #recent = [];
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

  /** @param {string} key @param {any} message @param {any} [context] */
  publish(key, message, context = {}) {
    return this.#add(context, { key, type: 'message', value: message });
  }

  /** @param {any} context @param {Write} write */
  #add(context, write) {
    const wrong = LONGS.find((name) => typeof write.value?.[name] === 'bigint');
    if (wrong) throw new Error(`Value in property ${wrong} must be an integer`);
    return transaction(context, ({ writes }) => {
      writes.push({ table: this, ...write });
    });
  }

  /** @param {Write} write @param {number} version */
  apply({ key, type, value }, version) {
    if (type === 'message') {
      const known = this.#entries.get(key)?.version ?? version;
      this.#tell({ id: key, type, value, version: known, localTime: nextTime() });
      return;
    }
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
    this.#recent = [...this.#recent.slice(1 - OVERLAP), event];
    for (const subscription of this.#subscriptions) this.#deliver(subscription, event);
  }

  /** @param {any} subscription @param {any} event */
  #deliver(subscription, event) {
    setImmediate(() => {
      if (!this.#subscriptions.has(subscription) || subscription.stalled) return;
      try {
        subscription.listener({ ...event });
      } catch {
        // Harper logs it.
      }
    });
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
    } else {
      for (const event of this.#recent) this.#deliver(subscription, event);
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

/** A resource of Harper's, as far as routes need it. */
class ResourceDouble {
  #context;

  /** @param {any} context */
  constructor(context) {
    this.#context = context;
  }

  getContext() {
    return this.#context;
  }
}

const USERS = {
  admin: { role: { permission: { super_user: true } } },
  renderer: { role: { permission: { super_user: false } } },
};
const WORKERS = 2;

/** A component's section of its file, as Harper sees it each time it reads the file. */
class OptionsDouble extends EventEmitter {
  /** @type {any} */
  #section;

  /** @param {any} section */
  constructor(section) {
    super();
    this.#section = structuredClone(section);
  }

  getAll() {
    return structuredClone(this.#section);
  }

  /** @param {any} section  undefined where the file has none, as while it is being written; null where it is empty */
  see(section) {
    const before = this.#section;
    if (section === undefined) {
      this.#section = undefined;
      if (before) this.emit('remove');
    } else if (!before) {
      this.#section = structuredClone(section);
      this.emit('ready', this.#section);
    } else if (section === null) {
      before.undefined = null;
      this.emit('change', [], null, before);
    } else {
      for (const name of new Set([...Object.keys(before), ...Object.keys(section)])) {
        if (isDeepStrictEqual(before[name], section[name])) continue;
        before[name] = structuredClone(section[name]);
        this.emit('change', [name], before[name], before);
      }
    }
  }
}

let doubles = 0;

/** @param {any} section */
const isEmpty = (section) => Object.keys(section ?? {}).length === 0;

/** Harper with one component, its workers all in this thread. */
class HarperDouble {
  #number = doubles++;
  #schedule = new TableDouble();
  #settings = new TableDouble('id');
  /** @type {any} */
  #options;
  /** @type {any[]} */
  #nodes = [];
  /** @type {any[]} */
  #workers = [];
  #lines = /** @type {string[]} */ ([]);
  #starts = 0;
  #next = 0;
  #create;
  #folder;

  /** Threads cannot be told apart. */
  stallFeeder = null;

  /**
   * @param {object} parts
   * @param {any} parts.options  of the component
   * @param {string} parts.folder
   * @param {(scope: any, harper: any) => { queue: any, resources: Record<string, any> }} parts.create  what the
   *   component does when it is loaded
   */
  constructor({ options, folder, create }) {
    this.#options = options;
    this.#folder = folder;
    this.#create = create;
    fs.writeFileSync(this.#file, '');
  }

  start() {
    this.#starts += 1;
    for (let index = 0; index < WORKERS; index++) this.#startWorker(index);
  }

  /** @param {number} index */
  #startWorker(index) {
    const double = this;
    /** @type {Map<string, () => void>} */
    const listeners = new Map();
    const layers = /** @type {any[]} */ ([]);
    // A new process knows nothing of the queue of the one before: it has another name here.
    const database = `double ${process.pid} ${this.#number}.${this.#starts}`;
    const harper = {
      databases: {
        [database]: { RenderSchedule: this.#schedule, RenderQueueSetting: this.#settings },
        system: { hdb_nodes: new TableDouble('name') },
      },
      transaction,
      threads: {
        onMessageByType: (/** @type {string} */ type, /** @type {() => void} */ then) =>
          listeners.set(type, then),
      },
      server: {
        hostname: 'localhost',
        workerIndex: index,
        config: { rootPath: this.#folder, http: { port: 9926 } },
        get nodes() {
          return double.#nodes;
        },
        http: (/** @type {any} */ layer) => layers.push(layer),
      },
    };
    const say = (/** @type {string} */ line) => this.#lines.push(line);
    const options = new OptionsDouble({ ...this.#options, database });
    const scope = Object.assign(new EventEmitter(), {
      directory: this.#folder,
      options,
      logger: { info: say, warn: say, error: say },
    });
    const { queue, resources } = this.#create(scope, harper);
    this.#workers[index] = {
      index,
      queue,
      resources,
      layers,
      see: (/** @type {any} */ section) =>
        options.see(isEmpty(section) ? section : { ...section, database }),
      shutDown: listeners.get('shutdown'),
    };
  }

  /** @param {string} method @param {string} path @param {{ user?: 'admin' | 'renderer' | null, body?: unknown, type?: string, headers?: object }} [options] */
  async request(method, path, { user = 'admin', body, type = 'application/json', headers } = {}) {
    const worker = this.#workers[this.#next++ % this.#workers.length];
    const [name, ...rest] = path.slice(1).split('/');
    const resource = worker.resources[name];
    const context = { user: user && USERS[user], headers: { 'content-type': type, ...headers } };
    const ask = async () => {
      if (!resource) return { status: 404, headers: {}, body: '' };
      const one = new resource(context);
      const target = { id: rest.join('/') };
      if (method === 'GET') return one.get(target);
      return one.post(target, Promise.resolve(body));
    };
    const answer = await [...worker.layers].reduceRight(
      (next, layer) => async () => layer({ method, pathname: path }, next),
      ask,
    )();
    const text = answer.data === undefined ? String(answer.body) : JSON.stringify(answer.data);
    const isJson = answer.data !== undefined || /json/.test(answer.headers['content-type']);
    return {
      status: answer.status,
      headers: answer.headers,
      body: isJson ? JSON.parse(text) : text,
    };
  }

  /** @param {Record<string, object | null>} rows */
  async write(rows) {
    for (const [key, row] of Object.entries(rows)) {
      const context = {};
      await transaction(context, () =>
        row ? this.#schedule.put(key, row, context) : this.#schedule.delete(key, context),
      );
    }
  }

  /** @param {string} key */
  async read(key) {
    return (await this.#schedule.get({ id: key }))?.toJSON() ?? null;
  }

  /** @param {Record<string, any>} changes @param {'renamed' | 'in place' | 'in two parts' | 'slowly'} [how] */
  async setOptions(changes, how = 'renamed') {
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) delete this.#options[name];
      else this.#options[name] = value;
    }
    if (how !== 'renamed') {
      const before = this.#lines.length;
      this.see(undefined);
      if (how === 'slowly') await until('it to be said', () => this.#lines.length > before);
      else await turn();
    }
    if (how === 'in two parts') {
      // Not looked at before somebody touches the file.
      const watcher = fs.watch(this.#file, () => {
        watcher.close();
        this.see(this.#options);
      });
      return;
    }
    this.see(this.#options);
  }

  get #file() {
    return path.join(this.#folder, 'config.yaml');
  }

  /** What all workers see of the options in the file. @param {any} section */
  see(section) {
    for (const worker of this.#workers) worker.see(section);
  }

  log() {
    return this.#lines.join('\n');
  }

  /** @param {string[]} names */
  async setNodes(names) {
    // Harper has had entries without a name.
    this.#nodes = names.length > 0 ? [...names.map((name) => ({ name })), {}] : [];
  }

  async restartWorkers() {
    for (const old of [...this.#workers]) {
      old.shutDown();
      this.#startWorker(old.index);
      // Both are there for a while, as in Harper.
      await new Promise((resolve) => setTimeout(resolve, 300));
      await old.queue.stop();
    }
  }

  async endFeeder() {
    const feeding = this.#workers.find(({ queue }) => queue.isFeeding);
    await feeding.queue.stop();
    this.#startWorker(feeding.index);
  }

  /** @param {Record<string, any>} [options] */
  async restart(options = {}) {
    await this.stop();
    Object.assign(this.#options, options);
    this.#nodes = [];
    this.start();
  }

  async stop() {
    await Promise.all(this.#workers.map(({ queue }) => queue.stop()));
  }
}

module.exports = { HarperDouble, ResourceDouble, TableDouble, transaction };
