/** The head of the queue, worked out anew from the rows of the table, by the contract's formula. */

const { expectedOf } = require('../../__test__/support/compare.js');
const { openEnvironment } = require('../../lib/standalone/environment.js');
const { decodeKey, decodeRow } = require('../../lib/standalone/row-codec.js');
const { MINUTE } = require('../corpus.js');

const SITEMAP_BOOST = 2;
const CHANGED_HEAD_START = 1;
const URGENT_HEAD_START = 0.5;
/** Two ways of working out one score may differ in the last digits. */
const SAME = 1e-9;

/** @typedef {{ key: string, minute: number, boost: number, divisor: number, headStart: number }} Waiting */
/** @typedef {Awaited<ReturnType<import('./host.js').Host['topK']>>['rows'][number]} Head */

/** @param {Waiting} row @param {number} now */
function scoreOf({ minute, divisor, boost, headStart }, now) {
  const late = Math.max(0, now - minute * MINUTE);
  return (late / divisor) * boost + headStart * Math.max(1, SITEMAP_BOOST);
}

/**
 * All rows of the table that are due by a time.
 *
 * @param {string} data @param {number} until @param {(key: string) => number} cadenceOf  of a row that carries none
 */
function waitingRows(data, until, cadenceOf) {
  const { root, rows } = openEnvironment(data);
  /** @type {Waiting[]} */
  const waiting = [];
  for (const { key: id, value } of rows.getRange({})) {
    const row = decodeRow(String(decodeKey(id, value)), value);
    const kept = expectedOf(row);
    if (!kept || kept.minute * MINUTE > until) continue;
    const key = row.cacheKey;
    const cadence = kept.carried ? Number(row.effectiveInterval) : cadenceOf(key);
    waiting.push({
      key,
      minute: kept.minute,
      boost: kept.fromSitemap ? SITEMAP_BOOST : 1,
      divisor: kept.demandPeriodMs ?? cadence,
      headStart: kept.changed ? CHANGED_HEAD_START : kept.urgent ? URGENT_HEAD_START : 0,
    });
  }
  return { waiting, close: () => root.close() };
}

/**
 * What of a head is not as the table says, of rows at rest. The moment for which the head was worked out is found from its
 * first late row; rows with the same score and due minute may come in any order.
 *
 * @param {Waiting[]} waiting @param {Head[]} head @param {{ n: number, from: number, to: number }} asked  for how many, between when
 */
function wrongHead(waiting, head, { n, from, to }) {
  const byKey = new Map(waiting.map((row) => [row.key, row]));
  const wrong = [];
  const first = head.find(({ key, score }) => {
    const row = byKey.get(key);
    return row && score > row.headStart * SITEMAP_BOOST;
  });
  const of = first && byKey.get(first.key);
  if (!first || !of) {
    const isEmpty = head.length === 0 && waiting.every(({ minute }) => minute * MINUTE > from);
    return { wrong: isEmpty ? [] : ['no row of the head is late in the table'], now: to, due: 0 };
  }
  const bare = first.score - of.headStart * SITEMAP_BOOST;
  const now = Math.round((bare / of.boost) * of.divisor + of.minute * MINUTE);
  if (now < from || now > to) wrong.push(`the scores are of ${now}, asked from ${from} to ${to}`);
  const order = waiting
    .filter(({ minute }) => minute <= Math.floor(now / MINUTE))
    .map((row) => ({ key: row.key, minute: row.minute, score: scoreOf(row, now) }))
    .sort((a, b) => (Math.abs(a.score - b.score) < SAME ? a.minute - b.minute : b.score - a.score));
  const expected = order.slice(0, head.length);
  /** @param {number} a @param {number} b */
  const same = (a, b) => Math.abs(a - b) < SAME;
  for (const [i, { key, score, dueAt }] of head.entries()) {
    const at = expected[i];
    const row = byKey.get(key);
    if (!row || !at) wrong.push(`${key} is not due in the table`);
    else if (!same(score, scoreOf(row, now))) wrong.push(`${key} has score ${score}`);
    else if (!same(score, at.score) || Math.floor(dueAt / MINUTE) !== at.minute) {
      wrong.push(`place ${i + 1} is ${key}, of score ${score}, not ${at.key}, of ${at.score}`);
    }
  }
  const length = Math.min(n, order.length);
  if (head.length !== length)
    wrong.push(`${head.length} rows, not ${length}, of ${order.length} that are due`);
  if (new Set(head.map(({ key }) => key)).size !== head.length) wrong.push('a row is in it twice');
  return { wrong, now, due: order.length };
}

module.exports = { waitingRows, wrongHead };
