'use strict';

/**
 * What a state document must look like to be added to others. Documents of other nodes come from outside: a field
 * that is not what it should be is named, and nothing of that document is counted.
 *
 * A shape is a kind, a list of one shape, or an object of shapes; fields that a shape does not name are not looked at.
 */

/** @typedef {{ what: string, test: (value: any) => boolean }} Kind */
/** @typedef {Kind | Shape[] | { [field: string]: Shape }} Shape */

/** @param {string} what @param {(value: any) => boolean} test @returns {Kind} */
const kind = (what, test) => ({ what, test });
/** Far above what a node can hold, and low enough that the sum over all nodes is still a whole number. */
const MOST = 2 ** 44;
const count = kind('a whole number', (v) => Number.isInteger(v) && v >= 0 && v <= MOST);
/** As far as a date goes, so that a time among them can be shown. */
const FURTHEST = 8.64e15;
const number = kind('a number', (v) => Number.isFinite(v) && Math.abs(v) <= FURTHEST);
const age = kind('a number of 0 or more', (v) => number.test(v) && v >= 0);
const flag = kind('true or false', (v) => typeof v === 'boolean');
const text = kind('a string', (v) => typeof v === 'string');
/** @param {Kind} of */
const orNull = ({ what, test }) => kind(`${what} or null`, (v) => v === null || test(v));
/** What nodes of an older version do not say. @param {Kind} of */
const orNone = ({ what, test }) =>
  kind(`${what}, null or left out`, (v) => v === undefined || v === null || test(v));
/** @param {Kind} of @param {number} length */
const listOf = ({ what, test }, length) =>
  kind(
    `${length} times ${what}`,
    (v) => Array.isArray(v) && v.length === length && v.every((each) => test(each)),
  );
/** @param {any} wanted */
const exactly = (wanted) =>
  kind(JSON.stringify(wanted), (v) => JSON.stringify(v) === JSON.stringify(wanted));

const EDGES = [0.25, 1, 2, 4];
const status = kind(
  'queued, empty, unready or paused',
  (v) => v === 'queued' || v === 'empty' || v === 'unready' || v === 'paused',
);
const bins = listOf(count, EDGES.length + 1);
const time = orNull(number);

const TRUST = {
  live: flag,
  phase: text,
  exact: flag,
  stateAt: number,
  stateAgeMs: age,
  maxAgeMs: age,
  keeper: { ring: [text] },
};

const handOver = kind(
  '{ rows }, a whole number or null',
  (v) => v === undefined || v === null || v.rows === null || count.test(v.rows),
);

/** Of every state document. */
const ANY = {
  schema: exactly(1),
  generatedAt: number,
  node: text,
  now: { paused: flag, status },
  trust: TRUST,
  handOver,
};

/** Of one that is live. */
const LIVE = {
  now: {
    due: count,
    dueSitemap: count,
    dueDiscovered: count,
    dueChanged: count,
    oldestChangedAt: time,
    dueUrgent: count,
    oldestUrgentAt: time,
    changedByDemand: [{ periodMs: time, due: count, oldestDueAt: number }],
    inFlight: count,
    heldKeys: count,
    heldDue: orNone(count),
    unclaimed: count,
    leasesLeft: orNone(count),
    drainEtaMs: time,
  },
  coming: { next15m: count, next60m: count, next24h: count, byHour: listOf(count, 24) },
  lateness: {
    edges: exactly(EDGES),
    sitemap: bins,
    discovered: bins,
    oldestDueAt: time,
    nextDueAt: time,
    byRoute: [{ route: text, due: count, sitemap: bins, discovered: bins }],
    classes: [
      {
        route: text,
        cadenceMs: time,
        carried: flag,
        fromSitemap: flag,
        changed: flag,
        urgent: flag,
        demandPeriodMs: time,
        rows: count,
        due: count,
        oldestDueAt: number,
        oldestLatenessCadences: time,
      },
    ],
    listsTruncated: flag,
  },
  flow: [
    {
      minute: count,
      cameDue: count,
      added: count,
      triggered: count,
      rescheduled: count,
      removed: count,
    },
  ],
};

const walk = kind(
  'the report of a walk',
  (v) =>
    typeof v === 'object' &&
    v !== null &&
    !Array.isArray(v) &&
    Object.values(v).every((each) => each === null || flag.test(each) || number.test(each)),
);
const report = kind(
  walk.what,
  (v) => walk.test(v) && number.test(v.at) && count.test(v.scanned) && count.test(v.repaired),
);
const ruleList = kind(
  'a list of { index, what }',
  (v) => Array.isArray(v) && v.every((each) => count.test(each?.index) && text.test(each.what)),
);

/** What is said about a node's keeper beside the totals; nothing of it is added up, and null stands for what is not known. @type {Record<string, Kind>} */
const KEEPER = {
  phase: text,
  rows: count,
  carriedRows: count,
  classes: count,
  resyncing: flag,
  exact: flag,
  loadStartedAt: number,
  loadedAt: number,
  loadMs: number,
  loadRows: count,
  unreadableRows: count,
  partialLoad: flag,
  eventsApplied: count,
  eventsIgnored: count,
  eventsOutdated: count,
  eventsFlagged: count,
  malformed: count,
  lastEventAt: number,
  verify: report,
  verifiedAt: number,
  lastResync: report,
  topCheck: walk,
  repairedTotal: count,
  lateTotal: count,
  gainedTotal: count,
  lostTotal: count,
  lastError: text,
  snapshotMs: number,
  epoch: count,
  epochAt: number,
  feederSilentMs: number,
  unverifiedRows: count,
  awaitingRead: count,
  invalidRules: ruleList,
  flowMinutes: count,
  bytes: count,
};

/**
 * The first thing that is wrong with a value; null where it has the shape.
 *
 * @param {any} value
 * @param {Shape} shape
 * @param {string} [at]
 * @returns {string | null}
 */
function flawOf(value, shape, at = '') {
  if (Array.isArray(shape)) {
    if (!Array.isArray(value)) return `${at} is not a list`;
    for (const [i, each] of value.entries()) {
      const flaw = flawOf(each, shape[0], `${at}[${i}]`);
      if (flaw) return flaw;
    }
    return null;
  }
  if (typeof shape.test === 'function') {
    const { what, test } = /** @type {Kind} */ (shape);
    return test(value) ? null : `${at} is not ${what}`;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return `${at || 'it'} is not an object`;
  }
  for (const [field, of] of Object.entries(shape)) {
    const flaw = flawOf(
      Object.hasOwn(value, field) ? value[field] : undefined,
      of,
      at ? `${at}.${field}` : field,
    );
    if (flaw) return flaw;
  }
  return null;
}

/** @param {any} document */
function flawOfState(document) {
  const flaw = flawOf(document, ANY);
  if (flaw || !document.trust.live) return flaw;
  return flawOf(document, LIVE) ?? flawOfSums(document);
}

/** @param {any} document  of the shape LIVE */
function flawOfSums({ now, lateness }) {
  const sum = (/** @type {number[]} */ numbers) => numbers.reduce((a, b) => a + b, 0);
  if (now.dueSitemap + now.dueDiscovered !== now.due) return 'now.due is not the sum of its parts';
  if (sum(lateness.sitemap) !== now.dueSitemap) return 'lateness.sitemap does not add up';
  if (sum(lateness.discovered) !== now.dueDiscovered) return 'lateness.discovered does not add up';
  if (lateness.listsTruncated) return null;
  for (const list of /** @type {const} */ (['byRoute', 'classes'])) {
    const due = sum(lateness[list].map((/** @type {any} */ one) => one.due));
    if (due !== now.due) return `lateness.${list} does not add up`;
  }
  return null;
}

/** @param {any} keeper */
function knownOfKeeper(keeper) {
  /** @type {Record<string, any>} */
  const known = {};
  for (const [field, { test }] of Object.entries(KEEPER)) {
    const value = Object.hasOwn(keeper, field) ? keeper[field] : null;
    known[field] = value !== null && test(value) ? value : null;
  }
  return known;
}

module.exports = { flawOfState, knownOfKeeper, EDGES };
