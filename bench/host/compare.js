/** What a queue keeps, row by row, against the table; and its best rows against those that the table makes the best. */

const { isDeepStrictEqual } = require('node:util');
const { expectedOf } = require('../../__test__/support/compare.js');
const { createClassifier, scoreOf } = require('../baseline/js-keeper.js');
const { PRIORITY } = require('../corpus.js');
const { turn } = require('./meter.js');

/** @typedef {import('../../lib/schedule-table.js').ScheduleTable} ScheduleTable */

const CHUNK = 1_000;
const BEST = 1_000;
const EXAMPLES = 3;
const MINUTE = 60_000;

/**
 * @param {Pick<ScheduleTable, 'walk'>} table @param {import('./queues.js').Kept} kept @param {import('./queues.js').Rules} rules
 */
async function compare(table, kept, rules) {
  const classify = createClassifier(rules);
  const due = [];
  const latest = Date.now() + MINUTE;
  /** @type {string[]} */
  const examples = [];
  let read = 0;
  let wantedRows = 0;
  let different = 0;
  /** @type {string | null} */
  let after = null;
  for (;;) {
    const rows = await table.walk({ after, limit: CHUNK });
    if (rows.length === 0) break;
    for (const row of rows) {
      read += 1;
      const wanted = wantedOf(row, classify);
      const found = fieldsOf(kept.describe(row.cacheKey));
      if (wanted) wantedRows += 1;
      if (wanted && wanted.minute * MINUTE <= latest) due.push(wanted);
      if (isDeepStrictEqual(found, wanted)) continue;
      different += 1;
      if (examples.length < EXAMPLES)
        examples.push(JSON.stringify({ key: row.cacheKey, wanted, found }));
    }
    after = rows[rows.length - 1].cacheKey;
    await turn();
  }
  // What is kept and not in the table.
  different += Math.max(0, kept.size() - wantedRows);
  const best = compareBest(due, kept);
  if (best.different > 0) examples.push(`of the best ${best.compared}, scores differ`);
  return { rows: read, kept: kept.size(), different, best, examples };
}

/**
 * Scores grow with time: the queue's must lie between those of the moment before and the moment after.
 *
 * @param {NonNullable<ReturnType<typeof wantedOf>>[]} due @param {import('./queues.js').Kept} kept
 */
function compareBest(due, kept) {
  const before = Date.now();
  const found = kept.topScores(BEST);
  const [low, high] = [before, Date.now()].map((nowMs) => bestScores(due, nowMs));
  let different = found.length < low.length || found.length > high.length ? 1 : 0;
  for (const [place, score] of found.entries()) {
    // Rows that have come due in between are in the one only.
    if (!(score >= (low[place] ?? 0) && score <= high[place])) different += 1;
  }
  return { compared: found.length, different };
}

/** @param {NonNullable<ReturnType<typeof wantedOf>>[]} due @param {number} nowMs */
function bestScores(due, nowMs) {
  const scores = due
    .filter(({ minute }) => minute <= Math.floor(nowMs / MINUTE))
    .map((row) =>
      scoreOf(
        { ...row, dueAt: row.minute * MINUTE },
        { nowMs, intervalMs: row.cadenceMs, ...PRIORITY },
      ),
    );
  return scores.sort((a, b) => b - a).slice(0, BEST);
}

/** @param {any} row @param {ReturnType<typeof createClassifier>} classify */
function wantedOf(row, classify) {
  const fields = expectedOf(row);
  if (!fields) return null;
  const { route, cadenceMs } = classify(row.cacheKey, row);
  return { ...fields, route, cadenceMs };
}

/** @param {any} described */
function fieldsOf(described) {
  if (!described) return null;
  const { minute, carried, fromSitemap, changed, urgent, demandPeriodMs, route, cadenceMs } =
    described;
  return { minute, carried, fromSitemap, changed, urgent, demandPeriodMs, route, cadenceMs };
}

module.exports = { compare };
