'use strict';

/**
 * How a row lies in LMDB: the key as bytes that LMDB takes, the row as its version and its JSON text.
 *
 * LMDB keys hold 1,978 bytes at most, and `lmdb`'s own string keys know neither NUL nor lone surrogates, so
 * keys are bytes of our own making. The first says how to read the rest:
 *
 *   1  the key as UTF-8
 *   2  the key as UTF-16, for one that UTF-8 cannot carry (lone surrogates)
 *   3  its first bytes and the SHA-256 of all of it, for one too long; the value then carries the key, too
 *
 * A value is the version (a double), the length of the key that it carries, that key as UTF-16, and the JSON. A row that
 * was handed over by another node has a bit set beside that length, and the version it had there before the key.
 *
 * The order is a stable total order, which is all that a walk needs.
 */

const { createHash } = require('node:crypto');

const UTF8 = 1;
const UTF16 = 2;
const HASHED = 3;
const LONGEST = 1_900;
/** What a hashed key keeps of the key itself, so that neighbours stay neighbours. */
const HASHED_PREFIX = 256;
const HEAD_BYTES = 12;
const HANDED_OVER = 2 ** 31;
const WRITTEN_BYTES = 8;

/** @type {(text: string) => boolean} Whether UTF-8 can carry it; newer than the library types. */
const isWellFormed = Function.prototype.call.bind(
  /** @type {any} */ (String.prototype).isWellFormed,
);

/** @param {string} key */
function isHashed(key) {
  if (key.length <= LONGEST / 3) return false;
  if (isWellFormed(key)) return key.length > LONGEST || Buffer.byteLength(key) > LONGEST;
  return key.length * 2 > LONGEST;
}

/** @param {string} key */
function encodeKey(key) {
  if (isHashed(key)) {
    const units = Buffer.from(key, 'utf16le');
    const digest = createHash('sha256').update(units).digest();
    return Buffer.concat([Buffer.of(HASHED), units.subarray(0, HASHED_PREFIX), digest]);
  }
  if (isWellFormed(key)) {
    const bytes = Buffer.allocUnsafe(1 + Buffer.byteLength(key));
    bytes[0] = UTF8;
    bytes.write(key, 1);
    return bytes;
  }
  return Buffer.concat([Buffer.of(UTF16), Buffer.from(key, 'utf16le')]);
}

/**
 * The key of a row, from its stored key, and from its value where the stored key is a hash; null where that
 * value is damaged.
 *
 * @param {Buffer} bytes
 * @param {Buffer} value
 * @returns {string | null}
 */
function decodeKey(bytes, value) {
  if (bytes[0] === UTF8) return bytes.toString('utf8', 1);
  if (bytes[0] === UTF16) return bytes.toString('utf16le', 1);
  if (value.length < HEAD_BYTES) return null;
  const { start, end } = carriedKey(value);
  const key = end > value.length ? null : value.toString('utf16le', start, end);
  return key !== null && encodeKey(key).equals(bytes) ? key : null;
}

/**
 * The JSON text of a row, without the fields that are kept beside it. Only what JSON can carry back
 * unchanged is taken: NaN would come back as null, a Date as a string.
 *
 * @param {object} row
 */
function rowText(row) {
  /** @type {Record<string, unknown>} */
  const fields = { ...row };
  delete fields.version;
  delete fields.cacheKey;
  for (const [name, value] of Object.entries(fields)) {
    const type = typeof value;
    if (type === 'string' || type === 'boolean' || value === null || value === undefined) continue;
    if (type === 'number' && Number.isFinite(value)) continue;
    if (type === 'object' && !(value instanceof Date)) continue;
    throw new TypeError(`${name} is not a value that this table can store: ${String(value)}`);
  }
  return JSON.stringify(fields);
}

/**
 * @param {string} key
 * @param {string} text
 * @param {number} version
 * @param {number} [written]  the version under which another node wrote it
 */
function encodeValue(key, text, version, written) {
  const carried = isHashed(key) ? key.length * 2 : 0;
  const start = HEAD_BYTES + (written === undefined ? 0 : WRITTEN_BYTES);
  const bytes = Buffer.allocUnsafe(start + carried + Buffer.byteLength(text));
  bytes.writeDoubleLE(version, 0);
  bytes.writeUInt32LE(written === undefined ? carried : carried + HANDED_OVER, 8);
  if (written !== undefined) bytes.writeDoubleLE(written, HEAD_BYTES);
  if (carried > 0) bytes.write(key, start, 'utf16le');
  bytes.write(text, start + carried);
  return bytes;
}

/** Where the key lies that a value carries, be it empty. @param {Buffer} value */
function carriedKey(value) {
  const length = value.readUInt32LE(8);
  const isHandedOver = length >= HANDED_OVER;
  const start = HEAD_BYTES + (isHandedOver ? WRITTEN_BYTES : 0);
  return { start, end: start + (isHandedOver ? length - HANDED_OVER : length) };
}

/** @param {Buffer} value */
function versionOf(value) {
  return value.length >= HEAD_BYTES ? value.readDoubleLE(0) : 0;
}

/**
 * When a row was written, on whichever node: comparable between nodes, as far as their clocks are.
 *
 * @param {Buffer} value
 */
function writtenOf(value) {
  if (value.length < HEAD_BYTES) return 0;
  const isHandedOver = value.readUInt32LE(8) >= HANDED_OVER;
  if (!isHandedOver) return value.readDoubleLE(0);
  return value.length < HEAD_BYTES + WRITTEN_BYTES ? 0 : value.readDoubleLE(HEAD_BYTES);
}

/**
 * @param {string} key
 * @param {string} text
 * @param {number} version
 * @returns {import('../schedule-table.js').ScheduleRow}
 */
function rowOf(key, text, version) {
  const fields = JSON.parse(text);
  if (typeof fields !== 'object' || fields === null) throw new Error('it is not an object');
  fields.cacheKey = key;
  fields.version = version;
  return fields;
}

/**
 * @param {string} key
 * @param {Buffer} value
 */
function decodeRow(key, value) {
  if (value.length < HEAD_BYTES) throw new Error('it is cut off');
  return rowOf(key, value.toString('utf8', carriedKey(value).end), value.readDoubleLE(0));
}

module.exports = {
  encodeKey,
  decodeKey,
  rowText,
  rowOf,
  encodeValue,
  decodeRow,
  versionOf,
  writtenOf,
};
