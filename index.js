'use strict';
// The public face: arguments are checked here and results get their shape; what the queue does is in the addon.
const path = require('node:path');
const { ADDON_CALLS, INTERFACE, addonFile } = require('./lib/addon-file.js');
const { describe } = require('./lib/describe.js');
const { Packer, STRIDE, isObject } = require('./lib/packer.js');
const { checkOptions, checkPatch } = require('./lib/options.js');
const { version } = require('./package.json');

const HEAD = 8;
const OUT = 5;
/** Events, or rows of a walk, held back at most before they cross together. */
const BATCH = 128;
/** UTF-16 code units of keys held back at most. */
const BATCH_UNITS = 32 * 1024;
/** The most jobs that one claim gives out. */
const MOST_JOBS = 100_000;
/** How much of a sample the queue takes, and of one of its keys. */
const SAMPLE_KEYS = 4_096;
const SAMPLE_KEY = 512;
/** Native memory is told to the garbage collector when about so many bytes of events and rows have come since. */
const REPORT_EVERY = 8 * 1024 * 1024;
/** What an event or row takes at most beside its key. */
const EVENT_BYTES = 64;

const STATUS = /** @type {const} */ (['queued', 'empty', 'unready', 'paused']);
const REFUSED = /** @type {const} */ ([null, 'limit', 'paused', 'unready']);
const RELEASED = /** @type {const} */ (['released', 'expired', 'superseded', 'unknown']);
const PHASES = ['starting', 'waiting-for-peers', 'loading', 'live', 'failed', 'stopped'];
/** What follows it runs once what runs now has returned, and costs less than an immediate does. */
const SOON = Promise.resolve();
const CODE_FIRST = /^(E_[A-Z_]+): /;

/** @param {string} code @param {string} message @param {unknown} [cause] */
function coded(code, message, cause) {
  return Object.assign(new Error(message, { cause }), { code });
}

const native = load();

/** @returns {any} */
function load() {
  const file = path.join(__dirname, addonFile());
  let addon;
  try {
    addon = require(file);
  } catch (err) {
    const hint = `install the package built for ${process.platform}-${process.arch}; in a clone, \`npm run build\``;
    throw coded('E_ADDON', `the addon ${file} cannot be loaded: ${hint}`, err);
  }
  if (addon.addonVersion?.() !== version) {
    throw coded(
      'E_ADDON',
      `the addon ${file} is of version ${addon.addonVersion?.()}, the package of ${version}: build it again with \`npm run build\``,
    );
  }
  const lacks = ADDON_CALLS.filter((name) => typeof addon[name] !== 'function');
  if (addon.addonInterface?.() !== INTERFACE || lacks.length > 0) {
    const why = lacks.length > 0 ? ` (it has no ${lacks.join(', ')})` : '';
    throw coded(
      'E_ADDON',
      `the addon ${file} is not that of the package${why}: build it again with \`npm run build\``,
    );
  }
  // A copy that this thread has loaded is known everywhere; one of another thread, only where the kernel tells.
  const loaded = Symbol.for('prerender-queue-keeper.addon');
  const other = /** @type {any} */ (globalThis)[loaded] ?? file;
  try {
    addon.checkCopies();
    if (other !== file)
      throw new Error(`another copy of the addon is loaded in this process, from ${other}`);
  } catch (err) {
    throw coded(
      'E_SECOND_COPY',
      `${/** @type {Error} */ (err).message} (this one is ${file}): install the package once`,
      err,
    );
  }
  /** @type {any} */ (globalThis)[loaded] = file;
  // A copy: V8 looks the many exports of an addon up in a dictionary, each time that one is called.
  return { ...addon };
}

/** @param {unknown} key @param {string} name @returns {asserts key is string} */
function checkString(key, name) {
  if (typeof key !== 'string')
    throw new TypeError(`${name} must be a string, not ${describe(key)}`);
}

/** @param {unknown} text @param {string} name @returns {asserts text is string} */
function checkWellFormed(text, name) {
  checkString(text, name);
  if (!(/** @type {any} */ (text).isWellFormed()))
    throw new TypeError(`${name} must be well-formed: it has half of a surrogate pair`);
}

/** @param {unknown} n @param {string} name @returns {asserts n is number} */
function checkCount(n, name) {
  if (typeof n !== 'number' || !Number.isInteger(n) || n < 0) {
    throw new TypeError(`${name} must be a whole number of 0 or more, not ${describe(n)}`);
  }
}

/** @param {unknown} kind */
function checkWalkKind(kind) {
  if (kind !== 'load' && kind !== 'verify') throw new TypeError("kind must be 'load' or 'verify'");
}

/** @param {unknown} token @returns {asserts token is number} */
function checkToken(token) {
  if (typeof token !== 'number' || !Number.isSafeInteger(token) || token < 0) {
    throw new TypeError(`token must be a token of claim(), a whole number, not ${describe(token)}`);
  }
}

/** @param {() => Promise<any>} work */
async function withCode(work) {
  try {
    return await work();
  } catch (err) {
    const message = /** @type {Error} */ (err).message;
    const code = CODE_FIRST.exec(message);
    throw code ? coded(code[1], message.slice(code[0].length)) : err;
  }
}

/** Walks over the keys that came out in strings of several. */
class Keys {
  /** @param {string[]} strings */
  constructor(strings) {
    this.strings = strings;
    this.string = -1;
    this.start = 0;
  }

  /** @param {number} end  where the key ends in its string; of the first in a string, -1 less that */
  next(end) {
    if (end < 0) {
      this.string++;
      this.start = 0;
      end = -1 - end;
    }
    const key = this.strings[this.string].slice(this.start, end);
    this.start = end;
    return key;
  }
}

class QueueKeeper {
  /** Ends the handle when nobody holds it any more. */
  #owner;
  #handle;
  /** Held keys that a claim lists at most. @type {number} */
  #maxListed;
  #packer;
  #classify;
  #out = new Float64Array(HEAD + OUT * 256);
  /** What `confirm` and `repair` pack into; null while they do. @type {Packer | null} */
  #one;
  /** What `applyAll` packs into; null while it does. @type {Packer | null} */
  #all;
  #closed = false;
  #flushing = false;
  /** Batches follow one another fast: those of a turn are better gathered to its end. */
  #hurried = false;
  #unreported = 0;
  /** The place of the status that the last events have left; -1 where they were refused. */
  #left = -1;
  /** @type {((status: string | undefined) => void) | null} */
  #applied = null;
  /** @type {unknown} */
  #failure = null;
  #flushSoon = () => {
    this.#flushing = false;
    if (this.#closed) return;
    try {
      this.#flush();
    } catch (err) {
      // Nobody has called: whoever calls next is told.
      this.#failure = err;
    }
    this.#applied?.(STATUS[this.#left]);
  };

  /** @param {object} [options] @param {Named} [named] */
  constructor(options, named) {
    const { json, classify, now } = checkOptions(options);
    this.#classify = classify;
    this.#packer = new Packer(BATCH, classify);
    this.#one = new Packer(1, classify);
    this.#all = new Packer(BATCH, classify);
    this.#owner =
      named instanceof Named
        ? native.open(named.name, options === undefined ? undefined : json, now)
        : native.create(json, now);
    this.#handle = this.#owner.handle;
    this.#maxListed = native.maxListed(this.#handle);
    if (native.classified(this.#handle) !== (classify !== undefined)) {
      native.close(this.#handle);
      throw coded(
        'E_OPTIONS',
        'the rows of this queue are classified by its hosts: open it with the option classify',
      );
    }
    this.#report();
  }

  /** @param {string} name @param {object} [options] */
  static open(name, options) {
    checkWellFormed(name, 'name');
    return new QueueKeeper(options, new Named(name));
  }

  #report() {
    this.#unreported = 0;
    native.reportMemory(this.#handle);
  }

  #flush(packer = this.#packer) {
    if (packer.count === 0) return 0;
    const { keys, buffer, count, routes } = packer;
    packer.clear();
    this.#left = -1;
    const handle = this.#handle;
    const told =
      routes === undefined
        ? native.applyBatch(handle, keys, buffer, count)
        : native.applyBatch(handle, keys, buffer, count, routes);
    this.#left = told & 3;
    this.#hurried = (told & 4) !== 0;
    this.#crossed(keys, count);
    return told >> 3;
  }

  /** @param {string} keys @param {number} count  of events or rows */
  #crossed(keys, count) {
    this.#unreported += keys.length + count * EVENT_BYTES;
    if (this.#unreported >= REPORT_EVERY) this.#report();
  }

  /** @param {number} number */
  #walk(number) {
    const crossed = (/** @type {string} */ keys, /** @type {number} */ count) =>
      this.#crossed(keys, count);
    return new Walk(number, () => this.#flushed, crossed, this.#classify);
  }

  /** The handle, once the queue has all that was applied through this handle. */
  get #flushed() {
    if (this.#failure !== null) {
      const failure = this.#failure;
      this.#failure = null;
      throw failure;
    }
    if (this.#packer.count > 0) this.#flush();
    if (this.#closed)
      throw coded('E_CLOSED', 'this keeper has been closed: open it again to use it');
    return this.#handle;
  }

  /** @param {any} event */
  apply(event) {
    if (!isObject(event)) throw new TypeError(`event must be an object, not ${describe(event)}`);
    if (this.#failure !== null || this.#closed) this.#flushed;
    const packer = this.#packer;
    if (!packer.event(event)) {
      native.malformed(this.#handle, packer.fault);
      return;
    }
    if (packer.full || packer.keys.length >= BATCH_UNITS) this.#flush();
    if (!this.#flushing) {
      this.#flushing = true;
      if (this.#hurried) setImmediate(this.#flushSoon);
      else void SOON.then(this.#flushSoon);
    }
  }

  /** @param {((status: string | undefined) => void) | null} listener */
  onApplied(listener) {
    if (listener !== null && typeof listener !== 'function')
      throw new TypeError(`listener must be a function or null, not ${describe(listener)}`);
    this.#applied = listener;
  }

  /** @param {any[]} events */
  applyAll(events) {
    if (!Array.isArray(events))
      throw new TypeError(`events must be an array, not ${describe(events)}`);
    this.#flushed;
    // A getter or classifier may call this again: then it packs for itself.
    const packer = this.#all ?? new Packer(BATCH, this.#classify);
    this.#all = null;
    let applied = 0;
    let malformed = 0;
    // Counted, not asked at the end: a getter may have changed the array.
    let i = 0;
    try {
      for (; i < events.length; i++) {
        if (packer.eventAt(events, i)) {
          if (packer.full || packer.keys.length >= BATCH_UNITS) applied += this.#flush(packer);
        } else {
          malformed++;
          native.malformed(this.#handle, packer.fault);
        }
      }
      applied += this.#flush(packer);
    } finally {
      packer.clear();
      this.#all = packer;
    }
    return { applied, ignored: i - applied - malformed, malformed };
  }

  /** @param {number} rows */
  #room(rows) {
    const needed = HEAD + OUT * rows;
    if (this.#out.length < needed) this.#out = new Float64Array(needed);
    return this.#out;
  }

  /** @param {number} n */
  topK(n) {
    checkCount(n, 'n');
    const handle = this.#flushed;
    let out = this.#out;
    let strings = native.top(handle, n, out.buffer);
    while (out[3] === 1) {
      out = this.#room(Math.min(n, Math.max(out[0] * 4, native.size(handle))));
      strings = native.top(handle, n, out.buffer);
    }
    const [count, skippedLeased, complete] = out;
    const keys = new Keys(strings);
    const rows = new Array(count);
    for (let i = 0, at = HEAD; i < count; i++, at += OUT) {
      const flags = out[at + 4];
      rows[i] = {
        key: keys.next(out[at]),
        dueAt: out[at + 2],
        fromSitemap: (flags & 1) !== 0,
        changed: (flags & 2) !== 0,
        urgent: (flags & 4) !== 0,
        score: out[at + 3],
      };
    }
    return { rows, skippedLeased, complete: complete === 1 };
  }

  /** @param {number} n */
  claim(n) {
    checkCount(n, 'n');
    const handle = this.#flushed;
    const most = Math.min(n, MOST_JOBS);
    const out = this.#room(most + this.#maxListed);
    const keys = new Keys(native.claim(handle, most, out.buffer));
    const count = out[0];
    const expiresAt = out[7];
    const jobs = new Array(count);
    let at = HEAD;
    for (let i = 0; i < count; i++, at += OUT) {
      const flags = out[at + 4];
      jobs[i] = {
        key: keys.next(out[at]),
        token: out[at + 1],
        dueAt: out[at + 2],
        fromSitemap: (flags & 1) !== 0,
        changed: (flags & 2) !== 0,
        urgent: (flags & 4) !== 0,
        score: out[at + 3],
        expiresAt,
      };
    }
    const held = new Array(out[1]);
    for (let i = 0; i < held.length; i++, at += OUT) {
      held[i] = { key: keys.next(out[at]), misses: out[at + 1], until: out[at + 2] };
    }
    return {
      jobs,
      status: STATUS[out[6]],
      due: out[2],
      complete: out[3] === 1,
      skippedLeased: out[4],
      held,
      refused: REFUSED[out[5]],
    };
  }

  /**
   * A row as it crosses; null where it cannot be read, which is counted.
   * @param {string} key @param {unknown} row @returns {{numbers?: Float64Array, route?: string} | null}
   */
  #packed(key, row) {
    if (row === null || row === undefined) return {};
    if (!isObject(row)) throw new TypeError(`row must be an object or null, not ${describe(row)}`);
    // A getter or classifier may come here again: then it packs for itself.
    const one = this.#one ?? new Packer(1, this.#classify);
    this.#one = null;
    one.clear();
    const read = one.row(key, row);
    this.#one = one;
    if (read) return { numbers: one.numbers.subarray(0, STRIDE), route: one.routes?.[0] };
    native.malformed(this.#handle, one.fault);
    return null;
  }

  /** @param {number} token @param {unknown} row */
  confirm(token, row) {
    checkToken(token);
    const handle = this.#flushed;
    // A classifier is asked about a key: the lease knows it.
    const key = this.#classify ? native.leasedKey(handle, token) : '';
    if (key === null) return false;
    // The lease of a row that cannot be read runs out: given back, it would be granted again at once.
    const packed = this.#packed(key, row);
    return packed !== null && native.confirm(handle, token, packed.numbers, packed.route);
  }

  /** @param {string} key @param {number} [token] */
  release(key, token) {
    checkString(key, 'key');
    if (token !== undefined) checkToken(token);
    return RELEASED[native.release(this.#flushed, key, token)];
  }

  /** @param {number} token */
  giveBack(token) {
    checkToken(token);
    return native.giveBack(this.#flushed, token);
  }

  /** @param {number} token @param {number} [ms] */
  extend(token, ms) {
    checkToken(token);
    if (ms !== undefined && !(typeof ms === 'number' && Number.isFinite(ms) && ms >= 0)) {
      throw new TypeError(`ms must be a number of 0 or more, not ${describe(ms)}`);
    }
    return native.extend(this.#flushed, token, ms);
  }

  pause() {
    native.setPaused(this.#flushed, true);
  }

  resume() {
    native.setPaused(this.#flushed, false);
  }

  get status() {
    return native.status(this.#flushed);
  }

  get nextChange() {
    return native.nextChange(this.#flushed);
  }

  /** @param {string} key */
  dueMinuteOf(key) {
    checkString(key, 'key');
    return native.dueMinuteOf(this.#flushed, key);
  }

  dueSummary() {
    return JSON.parse(native.dueSummary(this.#flushed));
  }

  state() {
    return JSON.parse(native.stateJson(this.#flushed));
  }

  stateJson() {
    return native.stateJson(this.#flushed);
  }

  /** @param {string} key */
  describe(key) {
    checkString(key, 'key');
    const described = native.describe(this.#flushed, key);
    return described === null ? null : JSON.parse(described);
  }

  /** @param {string} key */
  explain(key) {
    checkString(key, 'key');
    return { key, ...JSON.parse(native.explain(this.#flushed, key)) };
  }

  /** @param {object} patch */
  configure(patch) {
    const json = checkPatch(patch, this.#classify !== undefined);
    const [moved, dropped] = native.configure(this.#flushed, json);
    return { moved, dropped };
  }

  /** @param {object} patch */
  configureAsync(patch) {
    const json = checkPatch(patch, this.#classify !== undefined);
    return withCode(async () => {
      const [moved, dropped] = await native.configureAsync(this.#flushed, json);
      return { moved, dropped };
    });
  }

  /** @param {string[]} keys */
  learnKeys(keys) {
    if (!Array.isArray(keys)) throw new TypeError(`keys must be an array, not ${describe(keys)}`);
    const sample = [];
    for (const key of keys) {
      checkString(key, 'each of keys');
      // No more of it is looked at.
      if (sample.length < SAMPLE_KEYS) sample.push(key.slice(0, SAMPLE_KEY));
    }
    return withCode(() => native.learnKeys(this.#flushed, sample));
  }

  /** @param {'load' | 'verify'} kind */
  beginWalk(kind) {
    checkWalkKind(kind);
    const number = native.beginWalk(this.#flushed, kind === 'load');
    return this.#walk(number);
  }

  /** @param {'load' | 'verify'} kind */
  beginWalkAsync(kind) {
    checkWalkKind(kind);
    return withCode(async () => {
      const number = await native.beginWalkAsync(this.#flushed, kind === 'load');
      return this.#walk(number);
    });
  }

  /** @param {number} [n] */
  headCheck(n = 64) {
    checkCount(n, 'n');
    return native.headCheck(this.#flushed, n);
  }

  /** @param {string} key @param {unknown} row */
  repair(key, row) {
    checkString(key, 'key');
    const handle = this.#flushed;
    const packed = this.#packed(key, row);
    return packed !== null && native.repair(handle, key, packed.numbers, packed.route);
  }

  /** @param {string} key */
  readFailed(key) {
    checkString(key, 'key');
    native.readFailed(this.#flushed, key);
  }

  /** @param {string} phase @param {{resyncing?: boolean, error?: string}} [detail] */
  setPhase(phase, detail = {}) {
    if (!PHASES.includes(phase)) throw new TypeError(`phase must be one of ${PHASES.join(', ')}`);
    if (!isObject(detail)) throw new TypeError(`detail must be an object, not ${describe(detail)}`);
    const { resyncing, error } = detail;
    if (resyncing !== undefined && typeof resyncing !== 'boolean')
      throw new TypeError('resyncing must be a boolean');
    if (error !== undefined && typeof error !== 'string')
      throw new TypeError('error must be a string');
    native.setPhase(this.#flushed, phase, resyncing, error);
  }

  takeFeeder() {
    return native.takeFeeder(this.#flushed);
  }

  expectFeeder() {
    native.expectFeeder(this.#flushed);
  }

  beat() {
    native.beat(this.#flushed);
  }

  /** @param {number} [epoch] */
  vacate(epoch) {
    if (epoch !== undefined) checkCount(epoch, 'epoch');
    native.vacate(this.#flushed, epoch);
  }

  get feederSilenceMs() {
    return native.feederSilence(this.#flushed);
  }

  /** @param {number} silenceMs */
  seizeFeeder(silenceMs) {
    if (!(typeof silenceMs === 'number' && Number.isFinite(silenceMs) && silenceMs >= 0)) {
      throw new TypeError(`silenceMs must be a number of 0 or more, not ${describe(silenceMs)}`);
    }
    return native.seizeFeeder(this.#flushed, silenceMs);
  }

  metrics() {
    return native.metrics(this.#flushed);
  }

  /** @param {string} file */
  saveSnapshot(file) {
    checkWellFormed(file, 'path');
    return withCode(() => native.saveSnapshot(this.#flushed, file));
  }

  /** @param {string} file */
  loadSnapshot(file) {
    checkWellFormed(file, 'path');
    return withCode(async () => {
      const loaded = await native.loadSnapshot(this.#flushed, file);
      this.#report();
      return loaded;
    });
  }

  /** @param {number} ms */
  setNow(ms) {
    if (!(typeof ms === 'number' && Number.isFinite(ms) && ms >= 0)) {
      throw new TypeError(`ms must be a number of 0 or more, not ${describe(ms)}`);
    }
    native.setNow(this.#flushed, ms);
  }

  get size() {
    return native.size(this.#flushed);
  }

  get version() {
    return native.version(this.#flushed);
  }

  get classCount() {
    return native.classCount(this.#flushed);
  }

  get bytes() {
    return native.bytes(this.#flushed);
  }

  keys() {
    return native.keys(this.#flushed);
  }

  validate() {
    native.validate(this.#flushed);
  }

  close() {
    if (this.#closed) return;
    try {
      this.#flush();
    } catch {
      // What could not be applied is found by the next verification.
    }
    this.#closed = true;
    native.close(this.#handle);
  }
}

/** What `open` tells the constructor, and nobody else can. */
class Named {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }
}

/** @param {{partial?: boolean, unreadable?: number}} end */
function checkEnd(end) {
  if (!isObject(end)) throw new TypeError(`end must be an object, not ${describe(end)}`);
  const { partial = false, unreadable = 0 } = end;
  if (typeof partial !== 'boolean') throw new TypeError('partial must be a boolean');
  checkCount(unreadable, 'unreadable');
  return { partial, unreadable };
}

class Walk {
  #number;
  #handle;
  #crossed;
  #packer;
  /** What `endAsync` came to: it hands out the suspects. @type {any} */
  #ended = null;

  /**
   * @param {number} number
   * @param {() => number} handle  the keeper's, once it has all that was applied
   * @param {(keys: string, count: number) => void} crossed  is told of the rows that have
   * @param {any} classify
   */
  constructor(number, handle, crossed, classify) {
    this.#number = number;
    this.#handle = handle;
    this.#crossed = crossed;
    this.#packer = new Packer(BATCH, classify);
  }

  /** @param {any[]} rows */
  rows(rows) {
    if (!Array.isArray(rows)) throw new TypeError(`rows must be an array, not ${describe(rows)}`);
    const packer = this.#packer;
    for (let i = 0; i < rows.length; i++) {
      packer.walkedAt(rows, i);
      if (packer.full || packer.keys.length >= BATCH_UNITS) this.#send();
    }
    this.#send();
  }

  #send() {
    const { keys, buffer, count, routes } = this.#packer;
    if (count === 0) return;
    this.#packer.clear();
    native.walkRows(this.#handle(), this.#number, keys, buffer, count, routes);
    this.#crossed(keys, count);
  }

  /** @param {{partial?: boolean, unreadable?: number}} [end] */
  end(end = {}) {
    const { partial, unreadable } = checkEnd(end);
    const [report, ...suspects] = native.endWalk(this.#handle(), this.#number, partial, unreadable);
    return { ...JSON.parse(report), suspects };
  }

  /** @param {{partial?: boolean, unreadable?: number}} [end] */
  endAsync(end = {}) {
    const { partial, unreadable } = checkEnd(end);
    return withCode(async () => {
      const handle = this.#handle();
      this.#ended = await native.endWalkAsync(handle, this.#number, partial, unreadable);
      return JSON.parse(this.#ended.report);
    });
  }

  /** @param {number} n @returns {string[]} */
  nextSuspects(n) {
    checkCount(n, 'n');
    return this.#ended === null ? [] : this.#ended.nextSuspects(n);
  }

  abandon() {
    native.abandonWalk(this.#handle(), this.#number);
  }
}

module.exports = { QueueKeeper };
