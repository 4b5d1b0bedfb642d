const test = require('node:test');
const assert = require('node:assert/strict');
const baseline = require('../bench/baseline/js-keeper.js');
const compat = require('../lib/compat.js');
const { runModel, dropInSubject } = require('./support/random-ops.js');

const BASE = Number(process.env.SEED ?? 1);
const SEEDS = Number(process.env.SEEDS ?? (process.env.SEED ? 1 : 10_000));
const SECONDS = Number(process.env.SECONDS ?? (process.env.SEEDS ? 600 : 5));

// The plain-JS keeper that the benches compare with, and the drop-in: the same names, the same behaviour.
for (const [name, factory] of Object.entries({ baseline, compat })) {
  const { createQueueKeeper, scoreOf, LATENESS_EDGES } = factory;

  test(`${name}: random operations agree with the model`, (t) => {
    t.diagnostic(`seeds from SEED=${BASE}`);
    const until = Date.now() + SECONDS * 1000;
    let seeds = 0;
    while (seeds < SEEDS && Date.now() < until) {
      runModel({
        make: dropInSubject(createQueueKeeper),
        seed: BASE + seeds,
        steps: 150,
        dropIn: true,
      });
      seeds++;
    }
    t.diagnostic(`${seeds} seeds of 150 operations each`);
    assert.ok(seeds > 0);
  });

  test(`${name}: topK passes over what skip names and counts it, and is complete only when every due row was examined`, () => {
    const now = 1_700_000_000_000;
    const keeper = createQueueKeeper({
      classify: () => ({ route: 'all', cadenceMs: 60_000 }),
      now: () => now,
    });
    for (const key of ['a', 'b', 'c']) keeper.apply(key, { nextRenderTime: now - 60_000 });
    const skip = (/** @type {string} */ key) => key === 'b';
    const keys = (/** @type {{ rows: { entry: { cacheKey: string } }[] }} */ top) =>
      top.rows.map((row) => row.entry.cacheKey);
    assert.deepEqual(keys(keeper.topK(3, { nowMs: now, skip })), ['a', 'c']);
    assert.deepEqual(keeper.topK(3, { nowMs: now, skip }).skipped, 1);
    assert.equal(keeper.topK(3, { nowMs: now, skip }).complete, true);
    assert.equal(keeper.topK(2, { nowMs: now, skip }).complete, false);
  });

  test(`${name}: scoreOf and the edges are those of SPEC 4 and 9`, () => {
    assert.deepEqual([...LATENESS_EDGES], [0.25, 1, 2, 4]);
    const ranking = {
      nowMs: 600_000,
      intervalMs: 60_000,
      sitemapBoost: 2,
      changedHeadStart: 1,
      urgentHeadStart: 0.5,
    };
    const row = {
      dueAt: 480_000,
      fromSitemap: true,
      changed: false,
      urgent: false,
      demandPeriodMs: null,
    };
    assert.equal(scoreOf(row, ranking), 4);
    assert.equal(scoreOf({ ...row, urgent: true }, ranking), 5);
    assert.equal(
      scoreOf(
        { ...row, changed: true, demandPeriodMs: 30_000 },
        { ...ranking, changedDemand: true },
      ),
      10,
    );
    assert.equal(scoreOf({ ...row, dueAt: 660_000 }, ranking), 0);
  });
}

test('compat: without a classifier it says what it needs', () => {
  for (const options of [undefined, {}, { classify: 'all' }]) {
    assert.throws(() => compat.createQueueKeeper(/** @type {any} */ (options)), {
      name: 'TypeError',
      message: /^classify must be a function/,
    });
  }
});
