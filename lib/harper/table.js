'use strict';

/**
 * The port `ScheduleTable` on a table of Harper, and the writes on condition that results need.
 *
 * What Harper does that one would not think of; the first five are seen again by `npm run test:harper`:
 *
 * - A listener needs `omitCurrent`: without it, it is sent 101 rows and never another event.
 * - A row made by a patch has no `cacheKey`: the key is `$id`, and the `id` of its events.
 * - `$id` and `$updatedtime` are for `search`; in the `select` of a `get` they throw.
 * - A cursor of more than 256 characters is cut to 256 and passes over all rows that begin so.
 * - A row whose key is the empty string is written like any other, but no read of it ever answers, nor does any
 *   read after it in that thread.
 * - A row that cannot be decoded is logged by Harper and read as none.
 * - Each worker has its own clock, up to a millisecond from the others', and a write is dropped where its row bears a later time.
 * - Without `replicateFrom: false` a read of another node's row asks that node, and may never answer.
 */

/**
 * @typedef {import('../schedule-table.js').ScheduleRow} ScheduleRow
 * @typedef {import('../schedule-table.js').ScheduleEvent} ScheduleEvent
 */

const NUMBERS = ['nextRenderTime', 'effectiveInterval', 'changedAt', 'urgentAt', 'demandPeriod'];
const SELECT = ['$id', 'fromSitemap', ...NUMBERS, '$updatedtime'];
/** Longer ones Harper cuts. */
const LONGEST_CURSOR = 256;
/** Below every key but the empty one. */
const LOWEST = '\0';
/** Above whatever begins alike. */
const HIGHEST = '\u{10ffff}';

class HarperTable {
  #table;
  #transaction;

  /**
   * @param {object} harper
   * @param {() => any} harper.table  the class of the table, asked for anew at each call: while Harper starts, there is none
   * @param {(context: object, work: () => unknown) => any} harper.transaction
   */
  constructor({ table, transaction }) {
    this.#table = table;
    this.#transaction = transaction;
  }

  /**
   * @param {(event: ScheduleEvent) => void} listener
   * @param {(why: Error) => void} onClose
   * @returns {Promise<import('../schedule-table.js').Subscription>}
   */
  async subscribe(listener, onClose) {
    const subscription = await this.#table().subscribe({ omitCurrent: true, listener });
    subscription.on('close', () => onClose(new Error('Harper has closed the subscription')));
    return { end: () => subscription.end() };
  }

  /**
   * @param {import('../schedule-table.js').WalkRange} range
   * @returns {Promise<ScheduleRow[]>}
   */
  async walk({ after = null, before = null, limit, reverse = false, keysOnly = false }) {
    const table = this.#table();
    const isExact = isShort(after) && isShort(before);
    const found = table.search({
      conditions: [{ attribute: table.primaryKey, ...conditionOf(after, before) }],
      select: keysOnly ? ['$id'] : SELECT,
      reverse,
      replicateFrom: false,
    });
    /** @type {ScheduleRow[]} */
    const rows = [];
    for await (const { $id, $updatedtime, ...row } of found) {
      if (typeof $id !== 'string' || (!isExact && !isBetween($id, after, before))) continue;
      rows.push(
        keysOnly
          ? { cacheKey: $id }
          : withNumbers({ ...row, cacheKey: $id, version: $updatedtime }),
      );
      if (rows.length === limit) break;
    }
    return rows;
  }

  /**
   * @param {string} key
   * @returns {Promise<ScheduleRow | null>}
   */
  async get(key) {
    mustBeReadable(key);
    const record = await this.#table().get({ id: key }, { replicateFrom: false });
    if (record === undefined || record === null) return null;
    const row = typeof record.toJSON === 'function' ? record.toJSON() : { ...record };
    return withNumbers({ ...row, cacheKey: key, version: record.getUpdatedTime?.() });
  }

  /**
   * With `ifVersion`, to null where the row has been written since it had that version.
   *
   * @param {string} key
   * @param {object} row
   * @param {{ ifVersion?: number }} [condition]
   */
  async put(key, row, { ifVersion } = {}) {
    mustBeReadable(key);
    const table = this.#table();
    const { version: _version, cacheKey: _cacheKey, ...fields } = /** @type {any} */ (row);
    const record = { ...fields, [table.primaryKey]: key };
    const version = await this.#commit(ifVersion, (context) => table.put(key, record, context));
    if (version === undefined) return {};
    return (await this.get(key))?.version === version ? { version } : null;
  }

  /**
   * @param {string} key
   * @param {{ ifVersion?: number }} [condition]
   */
  async delete(key, { ifVersion } = {}) {
    mustBeReadable(key);
    const table = this.#table();
    const version = await this.#commit(ifVersion, (context) => table.delete(key, context));
    if (version === undefined) return {};
    return (await this.get(key)) === null ? { version } : null;
  }

  /**
   * A transaction of its own, whatever the caller's: it is committed when this resolves.
   *
   * Of two writes of a row Harper keeps the one of the later time, whichever is committed first. One that bears the
   * next time after the row's own is kept, therefore, only where nothing has been written since: by anybody, on any node.
   *
   * @param {number | undefined} ifVersion
   * @param {(context: object) => unknown} write
   */
  async #commit(ifVersion, write) {
    const timestamp = ifVersion === undefined ? undefined : nextAfter(ifVersion);
    const context = timestamp === undefined ? {} : { timestamp };
    await this.#transaction(context, () => write(context));
    return timestamp;
  }
}

/** @param {string} key */
function mustBeReadable(key) {
  if (key === '') throw new Error('Harper cannot read a row whose key is the empty string');
}

/** @param {string | null} cursor */
function isShort(cursor) {
  return cursor === null || cursor.length <= LONGEST_CURSOR;
}

/** The beginning of a cursor that Harper cuts, without half a surrogate pair. @param {string} cursor */
function beginningOf(cursor) {
  const cut = cursor.slice(0, LONGEST_CURSOR - HIGHEST.length);
  return /[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut;
}

/**
 * All rows between the cursors, and where one of them is long, some that are not.
 *
 * @param {string | null} after
 * @param {string | null} before
 */
function conditionOf(after, before) {
  const [above, low] =
    after === null || after === ''
      ? ['ge', LOWEST]
      : isShort(after)
        ? ['gt', after]
        : ['ge', beginningOf(after)];
  if (before === null) return { comparator: above, value: low };
  const [below, high] = isShort(before) ? ['lt', before] : ['le', beginningOf(before) + HIGHEST];
  return { comparator: above + below, value: [low, high] };
}

/** By the order of Harper's keys. @param {string} key @param {string | null} after @param {string | null} before */
function isBetween(key, after, before) {
  const bytes = Buffer.from(key);
  return (
    (after === null || Buffer.compare(bytes, Buffer.from(after)) > 0) &&
    (before === null || Buffer.compare(bytes, Buffer.from(before)) < 0)
  );
}

/** `Long` columns come as numbers, and from some versions as BigInt. @param {any} row @returns {ScheduleRow} */
function withNumbers(row) {
  for (const name of NUMBERS) if (typeof row[name] === 'bigint') row[name] = Number(row[name]);
  return row;
}

const FLOAT = new Float64Array(1);
const BITS = new BigInt64Array(FLOAT.buffer);

/** The next number above. @param {number} number  above 0 */
function nextAfter(number) {
  FLOAT[0] = number;
  BITS[0] += 1n;
  return FLOAT[0];
}

module.exports = { HarperTable };
