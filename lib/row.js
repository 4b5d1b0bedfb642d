'use strict';

/**
 * What the HTTP interface takes as a schedule row. The keeper itself never refuses an event for what is in it;
 * here, where someone writes, a wrong type is said at once, before it is durable.
 */

const { DECIMAL } = require('./packer.js');

/** Due minutes are 32 bits: what is due later, in the year 10136, would not be kept. */
const LATEST_DUE = 2 ** 32 * 60_000;

/** @param {unknown} value */
function isDueTime(value) {
  if (typeof value === 'string') return DECIMAL.test(value) && Number(value) < LATEST_DUE;
  return typeof value === 'number' && value >= 0 && value < LATEST_DUE;
}

const DEEPEST = 100;
const OPTIONAL_NUMBERS = new Set(['effectiveInterval', 'changedAt', 'urgentAt', 'demandPeriod']);

/** The values that `checkRow` lets through, of the fields that a result may set. */
const FIELD_CHECKS = {
  /** @param {unknown} value */
  nextRenderTime: (value) =>
    value === null || isDueTime(value)
      ? null
      : 'nextRenderTime must be the due time in ms since the epoch, a number from 0 up to the year 10136 (null: never due)',
  /** @param {unknown} value */
  fromSitemap: (value) =>
    value === null || typeof value === 'boolean' ? null : 'fromSitemap must be true or false',
};

/**
 * @param {string} name
 * @param {unknown} value
 */
function checkNumber(name, value) {
  if (value === null) return null;
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return null;
  return `${name} must be a number of ms, or null`;
}

/**
 * What is wrong with a row, in a sentence; null for a good one.
 *
 * @param {unknown} row
 * @returns {string | null}
 */
function checkRow(row) {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) {
    return 'a row must be a JSON object such as {"nextRenderTime": 1760000000000, "fromSitemap": true}';
  }
  const fields = /** @type {Record<string, unknown>} */ (row);
  if (!Object.hasOwn(fields, 'nextRenderTime')) {
    return 'nextRenderTime is missing: the due time in ms since the epoch (null: never due)';
  }
  const wrong = FIELD_CHECKS.nextRenderTime(fields.nextRenderTime);
  if (wrong) return wrong;
  if (fields.fromSitemap !== undefined) {
    const wrongFlag = FIELD_CHECKS.fromSitemap(fields.fromSitemap);
    if (wrongFlag) return wrongFlag;
  }
  for (const [name, value] of Object.entries(fields)) {
    if (OPTIONAL_NUMBERS.has(name)) {
      const wrongNumber = checkNumber(name, value);
      if (wrongNumber) return wrongNumber;
    } else {
      const wrongValue = checkValue(value, DEEPEST);
      if (wrongValue) return `${name} ${wrongValue}`;
    }
  }
  return null;
}

/**
 * What of a field of the caller's own would not come back as it was sent.
 *
 * @param {unknown} value
 * @param {number} levels  that it may have
 * @returns {string | null}
 */
function checkValue(value, levels) {
  if (typeof value === 'number') {
    return Number.isFinite(value) ? null : 'has a number that is too large: send it as a string';
  }
  if (typeof value !== 'object' || value === null) return null;
  if (levels === 0) return `is nested more than ${DEEPEST} levels deep: send it as a string`;
  for (const inner of Object.values(value)) {
    const wrong = checkValue(inner, levels - 1);
    if (wrong) return wrong;
  }
  return null;
}

module.exports = { checkRow, checkNumber, isDueTime, FIELD_CHECKS, LATEST_DUE };
