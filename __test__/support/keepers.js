'use strict';

const assert = require('node:assert/strict');
const { QueueKeeper } = require('../..');

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
/** Where manual clocks begin: a whole minute. */
const START = 1_700_000_040_000;

/** What a walk, a read or an event gives for a row that is due at START. */
const DUE = Object.freeze({ nextRenderTime: START - 10 * MINUTE });

/**
 * A keeper of its own on a manual clock; of type any, as tests also do what the types forbid.
 *
 * @param {object} [options]
 * @returns {any}
 */
function manual(options = {}) {
  return new QueueKeeper({ now: START, ...options });
}

/** @param {string} id @param {object | null} [value] @param {number} [version] */
function put(id, value = DUE, version) {
  return { type: 'put', id, value, version };
}

/** @param {string} id @param {number} [version] */
function gone(id, version) {
  return { type: 'delete', id, version };
}

/** @param {{ key: string }[]} rows */
const keysOf = (rows) => rows.map((row) => row.key);

/** Exactly these fields, and no other. @param {object} object @param {string} fields separated by blanks */
function assertFields(object, fields) {
  assert.deepEqual(Object.keys(object).sort(), fields.split(' ').sort());
}

/** At least these fields. @param {object} object @param {string} fields @param {string} where */
function assertHasFields(object, fields, where) {
  const missing = fields.split(' ').filter((field) => !Object.hasOwn(object, field));
  assert.deepEqual(missing, [], `missing in ${where}`);
}

/** What a refused call has on `err.code`. @param {string} code */
function withCode(code) {
  return (/** @type {any} */ err) => {
    assert.ok(err instanceof Error, String(err));
    assert.equal(/** @type {any} */ (err).code, code, err.message);
    assert.ok(err.message.length > 10, 'an operator reads what to do');
    assert.ok(!err.message.startsWith('E_'), err.message);
    return true;
  };
}

module.exports = {
  MINUTE,
  HOUR,
  START,
  DUE,
  manual,
  put,
  gone,
  keysOf,
  assertFields,
  assertHasFields,
  withCode,
};
