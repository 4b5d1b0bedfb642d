'use strict';
// Events and rows on their way into the addon: keys in one string, and STRIDE numbers each. What JavaScript types a field may
// have is decided here; what a number means is decided in the queue. NaN is "not given, or not acceptable": it is refused
// wherever a number is judged.

const { types } = require('node:util');

const STRIDE = 8;
const PUT = 0;
const GONE = 1;
const CHANGED = 2;
const OTHER = 3;
const FROM_SITEMAP = 4;
const HOST_JUDGED = 8;
const CARRIED = 16;
const REFUSED = 32;
const ROUTE_SHIFT = 6;

const timeOf = Date.prototype.getTime;
/** What a string may look like to be a due time: a decimal number. */
const DECIMAL = /^\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** @param {unknown} value @returns {value is Record<string, any>} */
function isObject(value) {
  return typeof value === 'object' && value !== null;
}

/** A number field: a number or BigInt. @param {unknown} value */
function numberOf(value) {
  if (typeof value === 'number') return value;
  return typeof value === 'bigint' ? Number(value) : Number.NaN;
}

/** `nextRenderTime`: a Date and a numeric string, too. @param {unknown} value */
function dueOf(value) {
  if (typeof value === 'string') return DECIMAL.test(value) ? Number(value) : Number.NaN;
  // A Date of another realm is one, too. What it is, not what a method of its own says: that may be anything, and run anything.
  return types.isDate(value) ? timeOf.call(value) : numberOf(value);
}

/** What was thrown, in words: anything may be. @param {unknown} thrown */
function told(thrown) {
  try {
    return `${thrown}`;
  } catch {
    return 'something that cannot be printed';
  }
}

/**
 * What a host's classifier says of a row.
 * @typedef {{route: string, cadenceMs: number, carried?: boolean} | null} Classified
 * @typedef {(key: string, row: any) => Classified} Classify
 */

class Packer {
  /** @param {number} capacity @param {Classify} [classify] */
  constructor(capacity, classify) {
    this.numbers = new Float64Array(capacity * STRIDE);
    this.buffer = this.numbers.buffer;
    this.capacity = capacity;
    this.classify = classify;
    this.keys = '';
    this.count = 0;
    this.flat = 0;
    /** @type {string[] | undefined} */
    this.routes = undefined;
    /** What was wrong with the event that `event` refused. */
    this.fault = '';
  }

  get full() {
    return this.count >= this.capacity;
  }

  clear() {
    this.keys = '';
    this.count = 0;
    this.routes = undefined;
  }

  /**
   * Packs an event; false where it cannot be read.
   * @param {any} event
   */
  event(event) {
    try {
      const type = event.type;
      if (type === 'put') {
        const value = event.value;
        if (isObject(value)) return this.#put(event.id, value, event.version);
        if (value !== undefined && value !== null)
          return this.#refuse('the value of a put is not an object');
        return this.#say(event.id, CHANGED, event.version);
      }
      if (type === 'delete' || type === 'invalidate')
        return this.#say(event.id, GONE, event.version);
      if (type === 'patch') return this.#say(event.id, CHANGED, event.version);
      return this.#say('', OTHER, undefined);
    } catch (err) {
      return this.#refuse(`reading an event failed: ${told(err)}`);
    }
  }

  /**
   * Packs the event at a place of an array, whatever is there.
   * @param {any[]} events @param {number} i
   */
  eventAt(events, i) {
    try {
      const event = events[i];
      return isObject(event) ? this.event(event) : this.#refuse('an event is not an object');
    } catch (err) {
      return this.#refuse(`reading an event failed: ${told(err)}`);
    }
  }

  /**
   * Packs a row for a key; false where the row cannot be read.
   * @param {string} key @param {any} row
   */
  row(key, row) {
    try {
      return this.#put(key, row, row.version);
    } catch (err) {
      return this.#refuse(`reading a row failed: ${told(err)}`);
    }
  }

  /**
   * Packs the row of a walk at a place of an array; one that cannot be read is packed as such.
   * @param {any[]} rows @param {number} i
   */
  walkedAt(rows, i) {
    try {
      const row = rows[i];
      if (isObject(row) && this.#put(row.cacheKey, row, row.version)) return;
    } catch {
      // Counted below.
    }
    this.#say('', GONE, undefined);
  }

  /** @param {string} what */
  #refuse(what) {
    this.fault = what;
    return false;
  }

  /** @param {unknown} key @param {any} row @param {unknown} version */
  #put(key, row, version) {
    if (typeof key !== 'string') return this.#refuse('a key is not a string');
    const due = row.nextRenderTime;
    const interval = row.effectiveInterval;
    const changedAt = row.changedAt;
    const urgentAt = row.urgentAt;
    const demand = row.demandPeriod;
    let what = row.fromSitemap ? PUT | FROM_SITEMAP : PUT;
    let cadence = typeof interval === 'number' ? interval : numberOf(interval);
    if (this.classify !== undefined) {
      const said = this.classify(key, row);
      if (said === null || said === undefined) what |= HOST_JUDGED | REFUSED;
      else {
        const { route, cadenceMs, carried } = said;
        if (typeof route !== 'string' || !(/** @type {any} */ (route).isWellFormed())) {
          throw new TypeError('the classifier gave no route name');
        }
        if (typeof cadenceMs !== 'number') throw new TypeError('the classifier gave no cadence');
        cadence = cadenceMs;
        what |= HOST_JUDGED | (carried ? CARRIED : 0) | (this.#place(route) << ROUTE_SHIFT);
      }
    }
    // Nothing of the host's runs from here on: a getter or classifier may have packed events of its own, which come first.
    if (this.full) return this.#refuse('too many events at once');
    const at = this.count * STRIDE;
    const numbers = this.numbers;
    numbers[at] = typeof due === 'number' ? due : dueOf(due);
    numbers[at + 1] = cadence;
    numbers[at + 2] = typeof changedAt === 'number' ? changedAt : numberOf(changedAt);
    numbers[at + 3] = typeof urgentAt === 'number' ? urgentAt : numberOf(urgentAt);
    numbers[at + 4] = typeof demand === 'number' ? demand : numberOf(demand);
    numbers[at + 5] = typeof version === 'number' ? version : numberOf(version);
    numbers[at + 6] = what;
    numbers[at + 7] = key.length;
    // Asking for a character makes V8 lay out a string that was put together from pieces; else every crossing would.
    this.flat ^= key.charCodeAt(0);
    this.keys += key;
    this.count++;
    return true;
  }

  /** The place of a route among those of this batch. @param {string} route */
  #place(route) {
    this.routes ??= [];
    const place = this.routes.indexOf(route);
    return place < 0 ? this.routes.push(route) - 1 : place;
  }

  /** @param {unknown} key @param {number} kind @param {unknown} version */
  #say(key, kind, version) {
    if (typeof key !== 'string') return this.#refuse('a key is not a string');
    if (this.full) return this.#refuse('too many events at once');
    const at = this.count * STRIDE;
    this.numbers[at + 5] = numberOf(version);
    this.numbers[at + 6] = kind;
    this.numbers[at + 7] = key.length;
    this.keys += key;
    this.count++;
    return true;
  }
}

module.exports = { DECIMAL, OTHER, Packer, STRIDE, dueOf, isObject };
