const test = require('node:test');
const assert = require('node:assert/strict');
const { inspect } = require('node:util');
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

/** Arguments of a kind that nobody should send. @type {any[]} */
const ODD = [
  undefined,
  null,
  Number.NaN,
  Number.NEGATIVE_INFINITY,
  Number.POSITIVE_INFINITY,
  0,
  -1,
  1.5,
  2n,
  '',
  'x',
  '3',
  true,
  [],
  {},
  () => 1,
  new Date(1_700_000_000_000),
];

test('both keepers answer alike, and hold the same afterwards, whatever they are asked', () => {
  const now = 1_700_000_000_000;
  const due = now - 60_000;
  /** @param {typeof compat | typeof baseline} factory @returns {any} */
  const make = (factory) => {
    const keeper = factory.createQueueKeeper({
      classify: (/** @type {string} */ _, /** @type {any} */ row) =>
        row.said ?? { route: 'all', cadenceMs: 3_600_000 },
      now: () => now,
    });
    keeper.apply('a', { nextRenderTime: due });
    keeper.apply('b', { nextRenderTime: due - 60_000, fromSitemap: true });
    keeper.apply('c', { nextRenderTime: due, changedAt: 5, demandPeriod: 600_000 });
    keeper.apply('d', { nextRenderTime: now + 600_000, urgentAt: 5 });
    return keeper;
  };
  /** @type {[string, (keeper: any, factory: any) => unknown][]} */
  const questions = [];
  for (const odd of ODD) {
    /** @param {string} name @param {(keeper: any, factory: any) => unknown} question */
    const ask = (name, question) => questions.push([`${name} of ${inspect(odd)}`, question]);
    for (const options of [undefined, null, { quiet: true }]) {
      ask('apply', (keeper) => keeper.apply('a', odd, options));
      ask('apply, new', (keeper) => keeper.apply('new', odd, options));
      if (typeof odd !== 'string') ask('remove', (keeper) => keeper.apply(odd, null, options));
    }
    ask('options', (keeper) => keeper.apply('a', { nextRenderTime: 1 }, odd));
    for (const name of ['has', 'describe', 'heldValue', 'dueMinuteOf'])
      ask(name, (keeper) => keeper[name](odd));
    ask('topK', (keeper) => keeper.topK(odd));
    for (const name of ['changedHeadStart', 'urgentHeadStart', 'changedDemand'])
      ask(name, (keeper) => keeper.topK(5, { changedHeadStart: 1, [name]: odd }));
    ask('due', (keeper) => keeper.apply('a', { nextRenderTime: odd }));
    ask('carried', (keeper) =>
      keeper.apply('a', {
        nextRenderTime: due,
        said: { route: 'r', cadenceMs: 60_000, carried: odd },
      }),
    );
    const numbers = { changedHeadStart: 1, urgentHeadStart: 2, changedDemand: true };
    for (const name of ['changedHeadStart', 'urgentHeadStart', 'changedDemand', 'demandPeriodMs']) {
      for (const special of ['changed', 'urgent']) {
        const row = { dueAt: 5, fromSitemap: true, [special]: true, demandPeriodMs: 7 };
        const ranking = { nowMs: 1_000, intervalMs: 60, sitemapBoost: 3, ...numbers };
        ask(`scoreOf, ${name}`, (_, { scoreOf }) =>
          scoreOf({ ...row, [name]: odd }, { ...ranking, [name]: odd }),
        );
      }
    }
  }
  questions.push(
    ['no skip', (keeper) => keeper.topK(5, { skip: null })],
    ['a Date', (keeper) => keeper.topK(5, { nowMs: new Date(now) })],
    ['a time as text', (keeper) => keeper.dueSummary(`${now}`)],
    ['a boost as text', (keeper) => keeper.topK(5, { sitemapBoost: '3' })],
    [
      'what is never due is not asked about',
      (keeper) => {
        const classify = () => {
          throw new Error('asked');
        };
        return keeper.apply('a', {
          nextRenderTime: null,
          get said() {
            return classify();
          },
        });
      },
    ],
  );
  for (const [name, question] of questions) {
    const [want, got] = [baseline, compat].map((factory) => {
      const keeper = make(factory);
      let answer;
      try {
        answer = question(keeper, factory);
      } catch (error) {
        if (factory === baseline) return null;
        throw new Error(name, { cause: error });
      }
      const held = [...keeper.keys()].sort();
      return {
        answer,
        held: held.map((key) => [key, keeper.describe(key)]),
        state: keeper.state(),
      };
    });
    if (want !== null) assert.deepEqual(got, want, name);
  }
});

test('compat: what the JS keeper holds or counts wrongly is refused', () => {
  const keeper = compat.createQueueKeeper({
    classify: (_, row) => row.said,
    now: () => 1_700_000_000_000,
  });
  for (const odd of ODD) {
    // A key of the queue is a string.
    if (typeof odd !== 'string') {
      const row = { nextRenderTime: 1, said: { route: 'r', cadenceMs: 1 } };
      assert.equal(keeper.apply(odd, row), false);
      assert.equal(keeper.apply(odd, row, { quiet: true }), false);
    }
  }
  // Of these it makes 0, or an order and counts of nothing.
  for (const odd of /** @type {any[]} */ ([null, Number.NaN, -1, '', 'x', [], {}])) {
    assert.throws(() => keeper.topK(1, { nowMs: odd }), TypeError, inspect(odd));
    assert.throws(() => keeper.topK(1, { sitemapBoost: odd }), TypeError, inspect(odd));
    assert.throws(() => keeper.state(odd), TypeError, inspect(odd));
  }
  for (const said of [{ route: 5, cadenceMs: 1 }, { route: 'r' }, 7, undefined]) {
    for (const quiet of [true, false]) {
      assert.throws(() => keeper.apply('a', { nextRenderTime: 1, said }, { quiet }), {
        name: 'TypeError',
        message: /^classify must give/,
      });
    }
  }
  assert.equal(keeper.size, 0);
});

test('compat: without a classifier it says what it needs', () => {
  for (const options of [undefined, {}, { classify: 'all' }]) {
    assert.throws(() => compat.createQueueKeeper(/** @type {any} */ (options)), {
      name: 'TypeError',
      message: /^classify must be a function/,
    });
  }
});
