'use strict';

const assert = require('node:assert/strict');

/**
 * What is kept must be what the table has, row for row, and nothing else.
 *
 * @param {{ size: number, describe(key: string): any }} keeper
 * @param {import('../../lib/schedule-table.js').ScheduleTable} table
 * @param {{ except?: Set<string> }} [options]  keys that cannot be read
 */
async function assertKeeperEqualsTable(keeper, table, { except = new Set() } = {}) {
  let kept = 0;
  /** @type {string | null} */
  let after = null;
  for (;;) {
    const rows = await table.walk({ after, limit: 1_000 });
    if (rows.length === 0) break;
    for (const row of rows) {
      if (except.has(row.cacheKey)) continue;
      const expected = expectedOf(row);
      const found = keeper.describe(row.cacheKey);
      assert.deepEqual(found && pick(found), expected, row.cacheKey.slice(0, 200));
      if (expected) kept += 1;
    }
    after = rows[rows.length - 1].cacheKey;
  }
  assert.equal(keeper.size, kept, 'as many rows as the table has');
}

/** @param {any} row */
function expectedOf(row) {
  const due = row.nextRenderTime;
  if (typeof due !== 'number' || !(due >= 0)) return null;
  const positive = (/** @type {any} */ value) => typeof value === 'number' && value > 0;
  const changed = positive(row.changedAt);
  return {
    minute: Math.floor(due / 60_000),
    carried: positive(row.effectiveInterval),
    fromSitemap: Boolean(row.fromSitemap),
    changed,
    urgent: positive(row.urgentAt) && !changed,
    demandPeriodMs: changed && positive(row.demandPeriod) ? row.demandPeriod : null,
  };
}

/** @param {any} described */
function pick({ minute, carried, fromSitemap, changed, urgent, demandPeriodMs }) {
  return { minute, carried, fromSitemap, changed, urgent, demandPeriodMs };
}

/**
 * The counts of a live state document must add up.
 *
 * @param {any} state
 */
function assertAddsUp({ now, lateness }) {
  const sum = (/** @type {number[]} */ numbers) => numbers.reduce((a, b) => a + b, 0);
  assert.equal(now.dueSitemap + now.dueDiscovered, now.due, 'sitemap and discovered');
  assert.equal(sum(lateness.sitemap), now.dueSitemap, 'lateness of sitemap rows');
  assert.equal(sum(lateness.discovered), now.dueDiscovered, 'lateness of discovered rows');
  if (!lateness.listsTruncated) {
    const routes = lateness.byRoute;
    assert.equal(sum(routes.map((/** @type {any} */ route) => route.due)), now.due, 'routes');
    for (const route of routes) {
      assert.equal(sum([...route.sitemap, ...route.discovered]), route.due, route.route);
    }
    assert.equal(
      sum(lateness.classes.map((/** @type {any} */ one) => one.due)),
      now.due,
      'classes',
    );
  }
  assert.equal(now.unclaimed, Math.max(0, now.due - now.inFlight), 'unclaimed');
}

module.exports = { assertKeeperEqualsTable, assertAddsUp, expectedOf, pick };
