'use strict';
// What a caller may pass as options: checked here, at the call; the addon gets JSON.

const { describe } = require('./describe.js');

/** @param {string} name @param {string} what @param {unknown} value @returns {never} */
function wrong(name, what, value) {
  const seen =
    typeof value === 'string'
      ? JSON.stringify(value).slice(0, 60)
      : Array.isArray(value)
        ? 'an array'
        : typeof value === 'boolean'
          ? `${value}`
          : describe(value);
  throw new TypeError(`${name} must be ${what}, not ${seen}`);
}

/** @typedef {(value: any, name: string) => unknown} Check */

/** @param {(value: any) => boolean} test @param {string} what @returns {Check} */
const check = (test, what) => (value, name) => (test(value) ? value : wrong(name, what, value));

/** @param {any} value */
const isText = (value) =>
  typeof value === 'string' && value !== '' && /** @type {any} */ (value).isWellFormed();
/** @param {number} low @param {number} high */
const whole = (low, high) =>
  check(
    (value) => Number.isInteger(value) && value >= low && value <= high,
    `a whole number from ${low} to ${high}`,
  );
const positive = check((value) => Number.isFinite(value) && value > 0, 'a finite number above 0');
const notNegative = check(
  (value) => Number.isFinite(value) && value >= 0,
  'a finite number of 0 or more',
);
const text = check(isText, 'a well-formed string, not empty');
const list = check(Array.isArray, 'an array');
const flag = check((value) => typeof value === 'boolean', 'a boolean');
/** Any number will do: one that is not finite and above 0 adds nothing. @type {Check} */
const headStart = (value, name) =>
  typeof value === 'number' ? (Number.isFinite(value) ? value : 0) : wrong(name, 'a number', value);
/** @type {Check} */
const names = (value, name) => {
  if (!Array.isArray(value)) wrong(name, 'an array of strings', value);
  for (const each of value) {
    if (typeof each !== 'string' || !(/** @type {any} */ (each).isWellFormed()))
      wrong(name, 'an array of well-formed strings', each);
  }
  return value;
};
/** @param {Record<string, Check>} fields @returns {Check} */
const group = (fields) => (value, name) => fieldsOf(value, name, fields);

const priority = group({
  sitemapBoost: notNegative,
  changedHeadStart: headStart,
  urgentHeadStart: headStart,
  changedDemand: flag,
});
const leases = group({
  leaseMs: positive,
  maxLeases: whole(0, 2 ** 32 - 1),
  releaseGraceMs: notNegative,
  missLimit: whole(0, 2 ** 32 - 1),
});
/** What `configure` may change. @type {Record<string, Check>} */
const CHANGEABLE = {
  node: text,
  nodes: names,
  routes: (value, name) => rules(value, name),
  excludePathPatterns: (value, name) => patterns(value, name),
  defaultInterval: positive,
  priority,
  leases,
};
/** @type {Record<string, Check>} */
const OPTIONS = {
  ...CHANGEABLE,
  delimiter: text,
  deviceTypes: names,
  flowMinutes: whole(1, 10_080),
  maxListed: whole(0, 100_000),
  classify: check((value) => typeof value === 'function', 'a function'),
  now: notNegative,
};
const NOT_WITH_CLASSIFY = ['nodes', 'routes', 'excludePathPatterns', 'defaultInterval'];

/**
 * @param {any} value
 * @param {string} name
 * @param {Record<string, Check>} fields
 */
function fieldsOf(value, name, fields) {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    wrong(name, 'an object', value);
  /** @type {Record<string, any>} */
  const checked = {};
  for (const field of Object.keys(value)) {
    if (!Object.hasOwn(fields, field)) {
      throw new TypeError(`${name} has no ${field}: it takes ${Object.keys(fields).join(', ')}`);
    }
    const given = value[field];
    if (given !== undefined) checked[field] = fields[field](given, `${name}.${field}`);
  }
  return checked;
}

/** What JSON can say of a value; null for all else, which no rule takes. @param {unknown} value */
const plain = (value) => {
  if (typeof value === 'string') return /** @type {any} */ (value).isWellFormed() ? value : null;
  return typeof value === 'number' || typeof value === 'boolean' ? value : null;
};

const RULE_FIELDS = ['match', 'path', 'mode', 'renderInterval'];

/** Rules come from outside and are judged one by one: of each only what a rule has. @type {Check} */
const rules = (value, name) =>
  /** @type {any[]} */ (list(value, name)).map((rule) => {
    if (typeof rule !== 'object' || rule === null) return plain(rule);
    const given = RULE_FIELDS.filter((field) => rule[field] !== undefined);
    return Object.fromEntries(given.map((field) => [field, plain(rule[field])]));
  });
/** @type {Check} */
const patterns = (value, name) => /** @type {any[]} */ (list(value, name)).map(plain);

/** @param {unknown} options */
function checkOptions(options = {}) {
  const { classify, now, ...config } = fieldsOf(options, 'options', OPTIONS);
  if (classify) refuseRules(config, 'options');
  return { json: JSON.stringify({ ...config, classify: classify !== undefined }), classify, now };
}

/** @param {unknown} patch @param {boolean} classified */
function checkPatch(patch, classified) {
  const checked = fieldsOf(patch, 'patch', CHANGEABLE);
  if (classified) refuseRules(checked, 'patch');
  return JSON.stringify(checked);
}

/** @param {Record<string, unknown>} given @param {string} name */
function refuseRules(given, name) {
  const field = NOT_WITH_CLASSIFY.find((field) => Object.hasOwn(given, field));
  if (field)
    throw new TypeError(
      `${name}.${field} has no meaning where classify decides: leave one of them out`,
    );
}

module.exports = { checkOptions, checkPatch };
