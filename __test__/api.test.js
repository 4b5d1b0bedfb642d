'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');
const vm = require('node:vm');
const { QueueKeeper } = require('..');
const { assertAddsUp } = require('./support/compare.js');
const { fnv1a } = require('./support/model.js');
const { DUE, HOUR, MINUTE, START } = require('./support/keepers.js');
const {
  assertFields,
  assertHasFields,
  gone,
  keysOf,
  manual,
  put,
} = require('./support/keepers.js');

const ROW_FIELDS = 'key dueAt fromSitemap changed urgent score';
const JOB_FIELDS = `${ROW_FIELDS} token expiresAt`;
const LATER = { nextRenderTime: START + HOUR };

/** @param {any} keeper */
const trustOf = (keeper) => keeper.state().trust.keeper;

describe('the shape of what each method returns', () => {
  test('topK gives rows of exactly six fields, best first, skippedLeased and complete', () => {
    const keeper = manual();
    keeper.apply(put('discovered'));
    keeper.apply(put('sitemap', { ...DUE, fromSitemap: true }));
    keeper.apply(put('changed', { ...DUE, changedAt: START, demandPeriod: HOUR }));
    keeper.apply(put('urgent', { ...DUE, urgentAt: START }));
    const top = keeper.topK(10);
    assertFields(top, 'rows skippedLeased complete');
    for (const row of top.rows) assertFields(row, ROW_FIELDS);
    assert.deepEqual(keysOf(top.rows), ['changed', 'urgent', 'sitemap', 'discovered']);
    const late = 10 * MINUTE;
    const [changed, urgent, sitemap, discovered] = top.rows;
    // SPEC 4: head starts are multiplied by the sitemap boost, 2.
    assert.deepEqual(changed, {
      key: 'changed',
      dueAt: START - late,
      fromSitemap: false,
      changed: true,
      urgent: false,
      score: late / HOUR + 2,
    });
    assert.equal(urgent.score, late / 86_400_000 + 1);
    assert.equal(sitemap.score, (late / 86_400_000) * 2);
    assert.equal(discovered.score, late / 86_400_000);
    assert.deepEqual([top.skippedLeased, top.complete], [0, true]);
  });

  test('topK is complete only where every due row was examined: not when n was filled, even exactly', () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b')]);
    assert.equal(keeper.topK(3).complete, true);
    assert.equal(keeper.topK(2).complete, false);
    assert.deepEqual(keeper.topK(0), { rows: [], skippedLeased: 0, complete: false });
  });

  test('topK gives more rows than its room at first has, and keys across many strings come out whole', () => {
    const keeper = manual();
    const keys = Array.from({ length: 5_000 }, (_, i) => `key-${i}${'x'.repeat(i % 7)}`);
    keeper.applyAll(keys.map((key) => put(key)));
    assert.deepEqual(keysOf(keeper.topK(5_000).rows), keys);
    assert.deepEqual(keysOf(keeper.topK(Number.MAX_SAFE_INTEGER).rows), keys);
    assert.deepEqual(keysOf(keeper.topK(1_001).rows), keys.slice(0, 1_001));
  });

  test('claim gives jobs of exactly eight fields, status, due, complete, skippedLeased, held, refused', () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b'), put('later', LATER)]);
    const claim = keeper.claim(1);
    assertFields(claim, 'jobs status due complete skippedLeased held refused');
    assertFields(claim.jobs[0], JOB_FIELDS);
    const { token, ...job } = claim.jobs[0];
    assert.ok(Number.isSafeInteger(token));
    assert.deepEqual(job, {
      key: 'a',
      dueAt: START - 10 * MINUTE,
      fromSitemap: false,
      changed: false,
      urgent: false,
      score: (10 * MINUTE) / 86_400_000,
      expiresAt: START + 120_000,
    });
    assert.deepEqual(
      { ...claim, jobs: undefined },
      {
        jobs: undefined,
        status: 'queued',
        due: 2,
        complete: false,
        skippedLeased: 0,
        held: [],
        refused: null,
      },
    );
    const rest = keeper.claim(5);
    assert.deepEqual(keysOf(rest.jobs), ['b']);
    assert.deepEqual([rest.complete, rest.skippedLeased, rest.due], [true, 1, 2]);
    assert.deepEqual(keeper.topK(5), { rows: [], skippedLeased: 2, complete: true });
  });

  test('describe gives exactly nine fields, or null for a key that is not kept', () => {
    const keeper = manual();
    keeper.apply(
      put('a', {
        nextRenderTime: START + 59_999,
        fromSitemap: 1,
        effectiveInterval: 7_000,
        changedAt: 5,
        urgentAt: 5,
        demandPeriod: 9_000,
      }),
    );
    assert.deepEqual(keeper.describe('a'), {
      dueAt: START,
      minute: START / MINUTE,
      route: 'unrouted',
      cadenceMs: 7_000,
      carried: true,
      fromSitemap: true,
      changed: true,
      urgent: false,
      demandPeriodMs: 9_000,
    });
    assert.equal(keeper.describe('b'), null);
  });

  test('dueSummary gives rows, due, firstDueMinute and earliestNotYetDueMinute', () => {
    const keeper = manual();
    const nothing = { rows: 0, due: 0, firstDueMinute: null, earliestNotYetDueMinute: null };
    assert.deepEqual(keeper.dueSummary(), nothing);
    keeper.applyAll([put('a'), put('b', LATER), put('c', { nextRenderTime: START })]);
    assert.deepEqual(keeper.dueSummary(), {
      rows: 3,
      due: 2,
      firstDueMinute: START / MINUTE - 10,
      earliestNotYetDueMinute: START / MINUTE + 60,
    });
  });

  test('size, version, classCount and bytes are numbers that follow what is kept', () => {
    const keeper = manual();
    const before = { version: keeper.version, bytes: keeper.bytes };
    assert.deepEqual([keeper.size, keeper.classCount], [0, 0]);
    keeper.applyAll(Array.from({ length: 10_000 }, (_, i) => put(`key ${i}`)));
    keeper.apply(put('other class', { ...DUE, fromSitemap: true }));
    assert.deepEqual([keeper.size, keeper.classCount], [10_001, 2]);
    assert.equal(keeper.version, before.version + 10_001);
    assert.ok(keeper.bytes > before.bytes + 100_000, `${keeper.bytes}`);
    const { version } = keeper;
    keeper.apply(put('other class', { ...DUE, fromSitemap: true }));
    assert.equal(keeper.version, version, 'the same value twice changes nothing at all');
  });
});

describe('apply: what is applied through a handle is visible', () => {
  test('to any later call on that handle, at once', () => {
    const keeper = manual();
    const calls = [
      () => keeper.size,
      () => keeper.topK(1_000).rows.length,
      () => keeper.dueSummary().rows,
      () => keeper.state().trust.keeper.rows,
      () => JSON.parse(keeper.stateJson()).trust.keeper.rows,
      () => Number(/^keeper_rows (\d+)$/m.exec(keeper.metrics())?.[1]),
      () => keeper.claim(0).due,
      () => keeper.version,
    ];
    for (const [i, call] of calls.entries()) {
      keeper.apply(put(`key ${i}`));
      assert.equal(call(), i + 1, `call ${i}`);
    }
    keeper.apply(put('described'));
    assert.notEqual(keeper.describe('described'), null);
    keeper.apply(gone('described'));
    assert.equal(keeper.explain('described').kept, false);
    keeper.apply(put('other'));
    assert.deepEqual(keeper.headCheck(1_000).includes('other'), true);
    keeper.apply(put('other', LATER));
    assert.equal(keeper.repair('other', LATER), false);
    keeper.apply(put('one more class', { ...DUE, fromSitemap: true }));
    assert.equal(keeper.classCount, 2);
  });

  test('to another handle on the queue by the next turn of the event loop', async () => {
    const [writer, reader] = [QueueKeeper.open('visible'), QueueKeeper.open('visible')];
    for (let i = 0; i < 300; i++) writer.apply(put(`key ${i}`));
    await new Promise(setImmediate);
    assert.equal(reader.size, 300);
    writer.apply(put('one more'));
    await new Promise(setImmediate);
    assert.equal(reader.size, 301);
  });

  test('and then onApplied tells what status it has left: never of a turn without events', async () => {
    const keeper = manual();
    /** @type {unknown[]} */
    const told = [];
    keeper.onApplied((/** @type {unknown} */ status) => told.push([status, keeper.size]));
    const turn = () => new Promise(setImmediate);
    keeper.apply(put('later', LATER));
    assert.deepEqual(told, []);
    await turn();
    for (let i = 0; i < 300; i++) keeper.apply(put(`due ${i}`));
    await turn();
    keeper.apply(put('long'.repeat(100_000)));
    await turn();
    keeper.pause();
    await turn();
    keeper.apply(put('one more'));
    assert.equal(keeper.size, 303);
    await turn();
    const all = [
      ['empty', 1],
      ['queued', 301],
      ['queued', 302],
      ['paused', 303],
    ];
    assert.deepEqual(told, all);
    keeper.onApplied(null);
    keeper.apply(put('to nobody'));
    await turn();
    assert.deepEqual(told, all);
  });

  test('soon where events come one by one, and together where they come fast', async () => {
    const [keeper, reader] = [QueueKeeper.open('soon'), QueueKeeper.open('soon')];
    let batches = 0;
    keeper.onApplied(() => {
      batches += 1;
    });
    keeper.apply(put('first'));
    await null;
    assert.equal(reader.size, 1, 'it has not waited for the turn to end');
    for (let i = 0; i < 1_000; i++) {
      keeper.apply(put(`key ${i}`));
      await null;
    }
    await new Promise(setImmediate);
    assert.equal(reader.size, 1_001);
    assert.ok(batches < 500, `${batches} batches`);
  });

  test('in the order in which it was applied, alone or in batches, across the edge of a batch', () => {
    const keeper = manual();
    for (let i = 0; i < 1_000; i++) {
      keeper.apply(put('one', { nextRenderTime: START + i * MINUTE }));
      if (i % 3 === 0) keeper.apply(gone('one'));
      if (i % 100 === 0) keeper.applyAll([put('all', { nextRenderTime: START + i * MINUTE })]);
    }
    assert.equal(keeper.describe('one'), null);
    assert.equal(keeper.describe('all')?.dueAt, START + 900 * MINUTE);
    keeper.validate();
  });
});

describe('applyAll', () => {
  test('counts applied, ignored and malformed, and applies the rest of a batch', () => {
    const keeper = manual({ node: 'a', nodes: ['b'] });
    const mine = keyOf('a');
    const theirs = keyOf('b');
    const counts = keeper.applyAll([
      put(mine),
      put(theirs),
      gone('no such key|desktop'),
      { type: 'message', id: mine },
      { type: 'patch', id: mine, value: { urgentAt: 1 } },
      { type: 'put', id: mine },
      put(/** @type {any} */ (5)),
      /** @type {any} */ (null),
      'put',
      put(keyOf('a', 1)),
    ]);
    assertFields(counts, 'applied ignored malformed');
    assert.equal(counts.malformed, 3);
    assert.equal(counts.applied + counts.ignored, 7);
    assert.equal(keeper.size, 2);
    assert.equal(trustOf(keeper).malformed, 3);
    assert.deepEqual(keeper.applyAll([]), { applied: 0, ignored: 0, malformed: 0 });
  });

  test('counts its own events only, whatever a classifier applies or reads in between', () => {
    for (const between of ['apply', 'read', 'both']) {
      /** @type {any} */
      const keeper = manual({
        classify: (/** @type {string} */ key) => {
          if (key.startsWith('outer')) {
            if (between !== 'read') keeper.apply(put(`inner of ${key}`));
            if (between !== 'apply') keeper.topK(1);
          }
          return { route: 'r', cadenceMs: HOUR };
        },
      });
      const counts = keeper.applyAll([put('outer 1'), put('outer 2'), { type: 'message' }]);
      assert.deepEqual(counts, { applied: 2, ignored: 1, malformed: 0 }, between);
      assert.equal(keeper.size, between === 'read' ? 2 : 4);
    }
  });
});

/** A key of whoever owns it, in a ring of a and b, by SPEC 3. @param {string} node @param {number} [from] */
function keyOf(node, from = 0) {
  let found = from;
  for (let i = 0; ; i++) {
    const url = `https://shop.example/${i}`;
    const [a, b] = [fnv1a(`${url}|a`), fnv1a(`${url}|b`)];
    if ((a >= b ? 'a' : 'b') === node && found-- === 0) return `${url}|desktop`;
  }
}

describe('odd keys and values', () => {
  const ODD = [
    '',
    '\0',
    'a\0b',
    '\ud800',
    '\udc00',
    '\ud83d',
    '\ude00',
    '\ud83d\ude00',
    '__proto__',
    'constructor',
    'hasOwnProperty',
    'caf\u00e9',
    'cafe\u0301',
    'https://shop.example/\u4e2d',
    'https://shop.example/-',
    'https://shop.example/\u4e2d|desktop',
    '\u0101',
    '\u0001',
    '\ufeffkey',
    'key',
    'KEY',
    'key ',
    'x'.repeat(1024 * 1024),
    `${'x'.repeat(1024 * 1024 - 1)}y`,
    `${'\u4e2d'.repeat(64 * 1024)}\ud800`,
  ];

  test('every key is kept exactly, is its own row, and comes out of each method as it went in', () => {
    const keeper = manual();
    keeper.applyAll(ODD.map((key) => put(key)));
    assert.equal(keeper.size, ODD.length, 'none merged');
    const sorted = [...ODD].sort();
    assert.deepEqual(keysOf(keeper.topK(100).rows).sort(), sorted);
    assert.deepEqual(keeper.headCheck(100).sort(), sorted);
    assert.deepEqual([...keeper.keys()].sort(), sorted);
    const { jobs } = keeper.claim(100);
    assert.deepEqual(keysOf(jobs).sort(), sorted);
    for (const { key, token } of jobs) {
      assert.equal(keeper.describe(key)?.route, 'unrouted');
      assert.equal(keeper.explain(key).key, key);
      assert.equal(keeper.explain(key).kept, true);
      assert.equal(keeper.release(key, token), 'released');
    }
    keeper.validate();
    keeper.applyAll(ODD.map((key) => gone(key)));
    assert.equal(keeper.size, 0);
  });

  test('held keys, suspects and keys to be read come out as they went in, too', () => {
    const keeper = manual({ leases: { missLimit: 0 } });
    keeper.applyAll(ODD.map((key) => put(key)));
    keeper.claim(100);
    keeper.setNow(START + 120_000);
    const sorted = [...ODD].sort();
    assert.deepEqual(keysOf(keeper.claim(100).held).sort(), sorted);
    assert.deepEqual(keeper.beginWalk('verify').end().suspects.sort(), sorted);
  });

  test('keys side by side whose ends would make one character are two keys', () => {
    const keeper = manual();
    const keys = ['a\ud83d', '\ude00b', '\ud83d', '\ude00', 'c'];
    keeper.applyAll(keys.map((key) => put(key)));
    assert.deepEqual(keysOf(keeper.topK(10).rows), keys);
    assert.deepEqual(keysOf(keeper.claim(10).jobs), keys);
  });

  test('alone, in a batch or in a walk, beside whatever else, a key is taken for what it is', () => {
    // Cut down to a byte, one is another.
    const units = [
      'a',
      '-',
      '\0',
      '\x01',
      '\x7f',
      '\x80',
      'é',
      'ÿ',
      '\u0101',
      '\u4e2d',
      '\ud83d',
      '\ude00',
    ];
    const every = new Set(['']);
    for (const key of every) if (key.length < 3) for (const unit of units) every.add(key + unit);
    const keys = [...every].sort();
    /** @type {Record<string, (keeper: QueueKeeper) => void>} */
    const ways = {
      alone: (keeper) => {
        for (const key of keys) keeper.applyAll([put(key)]);
      },
      buffered: (keeper) => {
        for (const key of keys) keeper.apply(put(key));
      },
      together: (keeper) => {
        keeper.applyAll(keys.map((key) => put(key)));
      },
      walked: (keeper) => {
        const walk = keeper.beginWalk('load');
        walk.rows(keys.map((cacheKey) => ({ cacheKey, ...DUE })));
        walk.end();
      },
    };
    for (const [way, take] of Object.entries(ways)) {
      const keeper = manual();
      take(keeper);
      assert.deepEqual([...keeper.keys()].sort(), keys, way);
    }
  });

  /** @param {unknown} nextRenderTime */
  const kept = (nextRenderTime) => {
    const keeper = manual();
    keeper.apply(put('a', { nextRenderTime }));
    return keeper.describe('a')?.dueAt ?? null;
  };

  test('a due time is a finite number >= 0, a BigInt, a Date or a numeric string', () => {
    const minute = 1_700_000_040_000;
    const foreign = vm.runInNewContext(`new Date(${minute})`);
    const good = [minute, minute + 59_999.5, BigInt(minute), new Date(minute), foreign];
    for (const due of [...good, `${minute}`, '1.70000004e12', '1700000040000.5']) {
      assert.equal(kept(due), minute, `${typeof due} ${due}`);
    }
    assert.equal(kept(0), 0);
    assert.equal(kept(-0), 0);
    assert.equal(kept('0'), 0);
    assert.equal(kept(Date.UTC(9999, 11, 31, 23, 59)), Date.UTC(9999, 11, 31, 23, 59));
  });

  test('a due time of any other kind is not coerced: the row is not kept, and a kept one is dropped', () => {
    const bad = [
      Number.NaN,
      Infinity,
      -Infinity,
      -1,
      -0.5,
      1e300,
      null,
      undefined,
      true,
      false,
      {},
    ];
    const more = [[], [5], '', ' ', '0x10', '12px', 'NaN', 'Infinity', '-5', '1,5', '1_000', '1n'];
    const last = [
      new Date(Number.NaN),
      -1n,
      10n ** 400n,
      Symbol('s'),
      () => 5,
      { valueOf: () => 5 },
    ];
    for (const due of [...bad, ...more, ...last]) {
      assert.equal(kept(due), null, `${typeof due} ${String(due)}`);
      const keeper = manual();
      keeper.applyAll([put('a'), put('a', { nextRenderTime: due })]);
      assert.equal(keeper.size, 0, `${typeof due} ${String(due)}`);
      assert.equal(
        trustOf(keeper).malformed,
        0,
        'it is a row that is not kept, not a malformed one',
      );
    }
  });

  test('a cadence is carried where it is finite and > 0 or a BigInt, and else comes from elsewhere', () => {
    /** @param {unknown} effectiveInterval */
    const cadence = (effectiveInterval) => {
      const keeper = manual({ defaultInterval: 77 });
      keeper.apply(put('a', { ...DUE, effectiveInterval }));
      const { cadenceMs, carried } = keeper.describe('a') ?? {};
      return [cadenceMs, carried];
    };
    assert.deepEqual(cadence(5_000), [5_000, true]);
    assert.deepEqual(cadence(0.5), [0.5, true]);
    assert.deepEqual(cadence(5_000n), [5_000, true]);
    for (const bad of [0, -1, Number.NaN, Infinity, null, undefined, '5000', {}, true, 0n, -5n]) {
      assert.deepEqual(cadence(bad), [77, false], String(bad));
    }
  });

  test('changed and urgent are finite and > 0, urgent only where not changed, demand only where changed', () => {
    /** @param {object} row */
    const marks = (row) => {
      const keeper = manual();
      keeper.apply(put('a', { ...DUE, ...row }));
      const { changed, urgent, demandPeriodMs } = keeper.describe('a') ?? {};
      return [changed, urgent, demandPeriodMs];
    };
    assert.deepEqual(marks({}), [false, false, null]);
    assert.deepEqual(marks({ changedAt: 1, urgentAt: 1 }), [true, false, null]);
    assert.deepEqual(marks({ urgentAt: 1, demandPeriod: 5 }), [false, true, null]);
    assert.deepEqual(marks({ changedAt: 1, demandPeriod: 5 }), [true, false, 5]);
    for (const bad of [0, -1, Number.NaN, Infinity, null, '5', true, {}]) {
      const row = { changedAt: bad, urgentAt: bad, demandPeriod: bad };
      assert.deepEqual(marks(row), [false, false, null], String(bad));
      assert.deepEqual(marks({ ...row, changedAt: 1 }), [true, false, null], String(bad));
    }
  });
});

describe('what an event is made of never throws', () => {
  const boom = () => {
    throw new Error('boom');
  };

  test('a getter that throws, a revoked proxy and what cannot be printed are counted malformed', () => {
    const keeper = manual();
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const unprintable = () => {
      throw Object.create(null);
    };
    const symbol = () => {
      throw Symbol('thrown');
    };
    const events = [
      Object.defineProperty({}, 'type', { get: boom }),
      Object.defineProperty({ type: 'put', value: DUE }, 'id', { get: boom }),
      Object.defineProperty({ type: 'put', id: 'a' }, 'value', { get: boom }),
      put('a', Object.defineProperty({}, 'nextRenderTime', { get: boom })),
      put('a', Object.defineProperty({ ...DUE }, 'demandPeriod', { get: boom })),
      Object.defineProperty(put('a'), 'version', { get: boom }),
      Object.defineProperty({ type: 'delete' }, 'id', { get: boom }),
      new Proxy({}, { get: boom }),
      proxy,
      put('a', /** @type {any} */ (proxy)),
      Object.defineProperty({}, 'type', { get: unprintable }),
      Object.defineProperty({}, 'type', { get: symbol }),
    ];
    for (const [i, event] of events.entries()) {
      assert.doesNotThrow(() => keeper.apply(event), `event ${i}`);
      assert.equal(trustOf(keeper).malformed, i + 1, `event ${i}`);
    }
    const counts = keeper.applyAll([...events, put('fine')]);
    assert.deepEqual(counts, { applied: 1, ignored: 0, malformed: events.length });
    assert.equal(keeper.size, 1);
    assert.equal(typeof trustOf(keeper).lastError, 'string');
  });

  test('what an event threw does not make the state document long', () => {
    const keeper = manual();
    const long = () => {
      throw new Error('x'.repeat(1_000_000));
    };
    keeper.apply(Object.defineProperty({}, 'type', { get: long }));
    assert.ok(trustOf(keeper).lastError.length < 10_000);
  });

  test('a proxy that answers is read as what it says', () => {
    const keeper = manual();
    keeper.apply(new Proxy(put('a', new Proxy({ ...DUE }, {})), {}));
    assert.equal(keeper.size, 1);
  });

  test('a key that is not a string is malformed; value.cacheKey is never the key', () => {
    const keeper = manual();
    for (const id of [undefined, null, 5, 5n, {}, ['a'], Symbol('a'), new String('a')]) {
      for (const type of ['put', 'delete', 'invalidate', 'patch']) {
        keeper.apply({ type, id, value: { ...DUE, cacheKey: 'a' } });
      }
    }
    assert.equal(trustOf(keeper).malformed, 8 * 4);
    assert.equal(keeper.size, 0);
    keeper.apply(put('by id', { ...DUE, cacheKey: 'by value' }));
    assert.deepEqual([...keeper.keys()], ['by id']);
  });

  test('a put whose value is no object is malformed; one without a value flags the key to be re-read', () => {
    const keeper = manual();
    for (const value of [5, 'row', true, 5n, Symbol('v'), () => DUE]) {
      keeper.apply({ type: 'put', id: 'a', value });
    }
    assert.equal(trustOf(keeper).malformed, 6);
    keeper.apply(put('kept'));
    for (const value of [null, undefined]) keeper.apply({ type: 'put', id: 'kept', value });
    keeper.apply({ type: 'patch', id: 'kept', value: { nextRenderTime: 5 } });
    keeper.apply({ type: 'patch', id: 'unknown' });
    assert.equal(keeper.describe('kept')?.dueAt, DUE.nextRenderTime, 'it changes nothing');
    assert.deepEqual(keeper.headCheck(64), ['kept', 'unknown'], 'flagged first, each once');
    assert.equal(keeper.repair('unknown', DUE), true);
    assert.equal(keeper.repair('kept', DUE), false);
    assert.equal(keeper.size, 2);
  });

  test('an event of any other type says nothing about the row and changes nothing', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const { version } = keeper;
    for (const type of [
      'message',
      'publish',
      'end_txn',
      'reload',
      'PUT',
      '',
      5,
      null,
      undefined,
      {},
    ]) {
      keeper.apply({ type, id: 'a', value: { nextRenderTime: 5 } });
    }
    keeper.apply([]);
    keeper.apply(new Map());
    assert.equal(keeper.version, version);
    assert.equal(trustOf(keeper).malformed, 0);
    assert.deepEqual(keysOf(keeper.topK(5).rows), ['a']);
  });

  test('a getter may call the keeper: what it applies comes first, and nothing is lost', () => {
    const keeper = manual();
    let depth = 0;
    /** @param {string} key */
    const nested = (key) =>
      put(key, {
        get nextRenderTime() {
          if (depth++ < 300) {
            keeper.apply(nested(`inner ${depth}`));
            if (depth % 7 === 0) assert.ok(keeper.size >= 0);
          }
          return DUE.nextRenderTime;
        },
      });
    keeper.apply(nested('outer'));
    assert.equal(keeper.size, 301);
    keeper.validate();
  });

  test('a Date is what it is, whatever a getTime of its own says or does', () => {
    const keeper = manual();
    class Odd extends Date {
      getTime() {
        keeper.apply(put('inner'));
        keeper.size;
        return 0;
      }
      /** @returns {any} */
      valueOf() {
        throw new Error('never asked');
      }
    }
    for (let i = 0; i < 5; i++) keeper.apply(put(`before ${i}`));
    keeper.apply(put('outer', { nextRenderTime: new Odd(START + 7 * MINUTE) }));
    assert.equal(keeper.describe('outer')?.dueAt, START + 7 * MINUTE);
    assert.equal(keeper.size, 6);
    assert.equal(trustOf(keeper).malformed, 0);
    keeper.validate();
  });

  test('applyAll counts what it has been through, whatever becomes of the array, or its length', () => {
    const keeper = manual();
    /** @type {any[]} */
    const events = [put('a', { nextRenderTime: START }), put('b'), put('c')];
    Object.defineProperty(events[0].value, 'fromSitemap', {
      get() {
        events.length = 0;
        return true;
      },
    });
    assert.deepEqual(keeper.applyAll(events), { applied: 1, ignored: 0, malformed: 0 });
    for (const length of [Number.NaN, -3, 2.5]) {
      const odd = new Proxy([put('d'), put('e'), put('f')], {
        get: (target, name) => (name === 'length' ? length : Reflect.get(target, name)),
      });
      const { applied, ignored, malformed } = keeper.applyAll(odd);
      assert.deepEqual([applied, ignored, malformed], [length > 0 ? 3 : 0, 0, 0], `${length}`);
    }
    keeper.validate();
  });

  test('long keys come out as short ones do, alone, among others, and when they are held', () => {
    const keeper = manual({ leases: { missLimit: 0, leaseMs: 1_000 } });
    const long = (/** @type {number} */ i) => `${i} ${'é'.repeat(i % 3 ? 3 : 700_000)}${i}`;
    const keys = ['', ...Array.from({ length: 150 }, (_, i) => (i % 9 ? `${i}` : long(i)))];
    keeper.applyAll(keys.map((key) => put(key)));
    assert.deepEqual(keysOf(keeper.topK(200).rows), keys);
    assert.deepEqual(keysOf(keeper.claim(200).jobs), keys);
    for (const key of keys) keeper.release(key);
    keeper.setNow(START + MINUTE);
    const { held, jobs } = keeper.claim(200);
    assert.deepEqual(
      [jobs.length, held.map((/** @type {{ key: string }} */ { key }) => key)],
      [0, keys.slice(0, held.length)],
    );
    assert.ok(held.length > 64);
  });

  test('versions: an older event never overwrites a newer one, in every order', () => {
    const events = [
      put('a', DUE, 1),
      put('a', { nextRenderTime: START }, 2),
      gone('a', 3),
      put('a', LATER, 4),
    ];
    for (const order of permutations(events)) {
      const keeper = manual();
      for (const event of order) keeper.apply(event);
      assert.equal(keeper.describe('a')?.dueAt, LATER.nextRenderTime);
    }
  });
});

/** @template T @param {T[]} list @returns {T[][]} */
function permutations(list) {
  if (list.length < 2) return [list];
  return list.flatMap((one, i) =>
    permutations(list.filter((_, at) => at !== i)).map((rest) => [one, ...rest]),
  );
}

describe('claims, leases and holds on a manual clock', () => {
  test('a lease stands until exactly its end, and its token then says expired', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ key, token, expiresAt }] = keeper.claim(1).jobs;
    keeper.setNow(expiresAt - 1);
    assert.deepEqual(keysOf(keeper.claim(1).jobs), []);
    assert.equal(keeper.state().now.inFlight, 1);
    keeper.setNow(expiresAt);
    assert.equal(keeper.state().now.inFlight, 0);
    assert.equal(keeper.release(key, token), 'expired');
    assert.deepEqual(keysOf(keeper.claim(1).jobs), ['a']);
    assert.equal(keeper.release(key, token), 'superseded', 'a late result ends no lease of others');
    assert.equal(keeper.state().now.inFlight, 1);
  });

  test('release without a token ends whatever lease is live; what was never leased is unknown', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    assert.equal(keeper.release('a'), 'unknown');
    assert.equal(keeper.release('no such key'), 'unknown');
    const [{ token }] = keeper.claim(1).jobs;
    assert.equal(keeper.release('a', token + 1), 'unknown');
    assert.equal(keeper.release('a'), 'released');
    assert.equal(keeper.release('a'), 'unknown');
    assert.equal(keeper.release('a', token), 'unknown');
  });

  test('a released key is not granted for the grace, and does not count as in flight', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    keeper.release('a', token);
    assert.equal(keeper.state().now.inFlight, 0);
    keeper.setNow(START + 4_999);
    assert.deepEqual(keeper.claim(1).jobs, []);
    keeper.setNow(START + 5_000);
    assert.deepEqual(keysOf(keeper.claim(1).jobs), ['a']);
    assert.equal(keeper.explain('a').misses, 1, 'granted again at the same due minute: a miss');
  });

  test('giveBack ends a lease without a miss or a grace, and is false once it is not live', () => {
    const keeper = manual();
    keeper.apply(put('key'));
    for (let times = 0; times < 10; times++) {
      const [{ token }] = keeper.claim(1).jobs;
      assert.equal(keeper.state().now.inFlight, 1);
      assert.equal(keeper.giveBack(token), true);
      assert.equal(keeper.state().now.inFlight, 0);
      assert.equal(keeper.giveBack(token), false);
      assert.equal(keeper.release('key', token), 'unknown');
    }
    assert.deepEqual([keeper.explain('key').misses, keeper.explain('key').hold], [0, null]);
    assert.match(keeper.metrics(), /^keeper_claims_stale_total 0$/m);
    // One that had missed before has missed as often as before.
    const misses = () => keeper.explain('key').misses;
    keeper.claim(1);
    keeper.setNow(START + 121_000);
    const before = misses();
    const [{ token }] = keeper.claim(1).jobs;
    keeper.giveBack(token);
    assert.deepEqual([before, misses()], [1, 1]);
    assert.equal(keeper.giveBack(5), false);
    assert.throws(() => keeper.giveBack(-1), TypeError);
    assert.match(keeper.metrics(), /^keeper_claims_granted_total 12$/m);
    assert.match(keeper.metrics(), /^keeper_claims_given_back_total 11$/m);
    keeper.validate();
  });

  test('extend lets a lease last, never shorter, and is null once it is not live', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token, expiresAt }] = keeper.claim(1).jobs;
    assert.equal(keeper.extend(token, 1_000), expiresAt, 'never early');
    keeper.setNow(START + 60_000);
    assert.equal(keeper.extend(token), START + 180_000);
    assert.equal(keeper.extend(token, 600_000), START + 660_000);
    keeper.setNow(START + 659_999);
    assert.equal(keeper.state().now.inFlight, 1);
    keeper.setNow(START + 660_000);
    assert.equal(keeper.extend(token), null);
    assert.equal(keeper.extend(5), null);
  });

  test('more misses than the limit and the key is held, twice as long each time, and the attempt after a hold is granted', () => {
    const keeper = manual({ leases: { leaseMs: 60_000, missLimit: 2 } });
    keeper.apply(put('a'));
    let now = START;
    const pass = (/** @type {number} */ ms) => {
      now += ms;
      keeper.setNow(now);
    };
    const miss = () => {
      assert.deepEqual(keysOf(keeper.claim(1).jobs), ['a']);
      pass(60_000);
    };
    for (let i = 0; i < 3; i++) miss();
    for (const [misses, hold] of [
      [3, 120_000],
      [4, 240_000],
      [5, 480_000],
    ]) {
      const { jobs, held } = keeper.claim(1);
      assert.deepEqual(jobs, []);
      assert.deepEqual(held, [{ key: 'a', misses, until: now + hold }]);
      assertFields(held[0], 'key misses until');
      assert.equal(keeper.state().now.heldKeys, 1);
      assert.deepEqual(keeper.explain('a').hold, { misses, until: now + hold });
      pass(hold);
      miss();
    }
    keeper.claim(1);
    pass(960_000);
    const [{ token }] = keeper.claim(1).jobs;
    keeper.apply(put('a', { nextRenderTime: now - MINUTE }));
    assert.equal(keeper.release('a', token), 'released');
    assert.equal(keeper.explain('a').misses, 0, 'the first result clears it');
  });

  test('a hold is no longer than the cadence', () => {
    const keeper = manual({ leases: { leaseMs: 60_000, missLimit: 0 }, defaultInterval: 30_000 });
    keeper.apply(put('a'));
    keeper.claim(1);
    keeper.setNow(START + 60_000);
    assert.equal(keeper.claim(1).held[0].until, START + 90_000);
  });

  test('a claim beyond maxLeases is refused with its cause, changeable at run time', () => {
    const keeper = manual({ leases: { maxLeases: 2 } });
    keeper.applyAll(['a', 'b', 'c'].map((key) => put(key)));
    const claim = keeper.claim(3);
    assert.deepEqual([keysOf(claim.jobs), claim.refused], [['a', 'b'], 'limit']);
    assert.equal(keeper.claim(1).refused, 'limit');
    keeper.configure({ leases: { maxLeases: 3 } });
    assert.deepEqual([keysOf(keeper.claim(1).jobs), keeper.claim(0).refused], [['c'], null]);
  });

  test('confirm keeps the lease of a row that is due, and tells true', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    assert.equal(keeper.confirm(token, DUE), true);
    assert.equal(keeper.confirm(token, { nextRenderTime: START, fromSitemap: true }), true);
    assert.deepEqual(keeper.describe('a')?.fromSitemap, true, 'repaired on the way');
    assert.equal(keeper.state().now.inFlight, 1);
    assert.equal(keeper.confirm(token + 1, DUE), false, 'no such lease');
  });

  test('confirm gives a stale row back without a miss and repairs what was kept', () => {
    const keeper = manual();
    keeper.applyAll([put('later'), put('deleted'), put('no time')]);
    const tokens = Object.fromEntries(
      keeper.claim(3).jobs.map((/** @type {any} */ { key, token }) => [key, token]),
    );
    assert.equal(keeper.confirm(tokens.later, LATER), false);
    assert.equal(keeper.confirm(tokens.deleted, null), false);
    assert.equal(keeper.confirm(tokens['no time'], { nextRenderTime: null }), false);
    assert.deepEqual([...keeper.keys()], ['later']);
    assert.equal(keeper.describe('later')?.dueAt, LATER.nextRenderTime);
    const { lease, misses } = keeper.explain('later');
    assert.deepEqual([lease, misses, keeper.state().now.inFlight], [null, 0, 0]);
    assert.equal(trustOf(keeper).repairedTotal, 3);
  });

  test('confirm never overwrites an event that came since the claim', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    keeper.apply(put('a', { nextRenderTime: START - 5 * MINUTE }));
    assert.equal(keeper.confirm(token, LATER), false);
    assert.equal(keeper.describe('a')?.dueAt, START - 5 * MINUTE);
  });

  test('what cannot be read at confirm or repair is malformed, not gone: what is kept stays', () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b')]);
    const [{ token }] = keeper.claim(1).jobs;
    const unreadable = Object.defineProperty({}, 'nextRenderTime', {
      get() {
        throw new Error('boom');
      },
    });
    assert.equal(keeper.confirm(token, unreadable), false);
    keeper.headCheck();
    assert.equal(keeper.repair('b', unreadable), false);
    assert.equal(keeper.size, 2);
    assert.equal(trustOf(keeper).malformed, 2);
  });

  test('a row deleted or re-written while leased: the lease stands, the newest row counts afterwards', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    keeper.apply(gone('a'));
    assert.deepEqual([keeper.state().now.inFlight, keeper.state().now.due], [1, 0]);
    assert.equal(keeper.state().now.unclaimed, 0, 'not below 0');
    keeper.apply(put('a', { nextRenderTime: START - MINUTE }));
    assert.deepEqual(keeper.claim(1).jobs, []);
    assert.equal(keeper.release('a', token), 'released');
    keeper.setNow(START + 5_000);
    assert.deepEqual(keysOf(keeper.claim(1).jobs), ['a']);
    assert.equal(keeper.explain('a').misses, 0, 'it had moved on');
  });

  test('leases run on a monotonic clock: a step back of the wall clock neither ends nor prolongs one', () => {
    const keeper = manual();
    keeper.apply(put('a', { nextRenderTime: 0 }));
    keeper.claim(1);
    keeper.setNow(START - 24 * HOUR);
    assert.equal(keeper.state().now.inFlight, 1);
    keeper.setNow(START - 24 * HOUR + 120_000);
    assert.equal(keeper.state().now.inFlight, 0);
  });

  test('tokens are safe integers, each its own, on whatever clock', () => {
    for (const now of [0, START, Date.UTC(2250, 0, 1), Date.UTC(9999, 0, 1)]) {
      const keeper = manual({ now });
      keeper.applyAll(['a', 'b', 'c'].map((key) => put(key, { nextRenderTime: 0 })));
      const tokens = keeper.claim(3).jobs.map((/** @type {any} */ { token }) => token);
      assert.equal(new Set(tokens).size, 3, `${now}: ${tokens}`);
      for (const token of tokens) {
        assert.ok(Number.isSafeInteger(token), `${now}: ${token}`);
        assert.equal(keeper.confirm(token, { nextRenderTime: 0 }), true);
      }
    }
  });

  test('pause grants nothing and goes on counting; resume grants again', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    keeper.pause();
    const claim = keeper.claim(1);
    assert.deepEqual(
      [claim.jobs, claim.refused, claim.status, claim.due],
      [[], 'paused', 'paused', 1],
    );
    assert.equal(keeper.status, 'paused');
    keeper.apply(put('b'));
    assert.equal(keeper.state().now.due, 2);
    assert.equal(keeper.state().now.paused, true);
    keeper.resume();
    assert.equal(keeper.status, 'queued');
    assert.equal(keeper.claim(5).jobs.length, 2);
  });

  test('a queue that expects a feeder answers for nothing before it has loaded; afterwards expecting one says nothing', () => {
    const keeper = manual();
    assert.equal(keeper.state().trust.live, true);
    keeper.expectFeeder();
    keeper.apply(put('a'));
    const { trust } = keeper.state();
    assert.deepEqual([trust.live, trust.phase, trust.keeper.epoch], [false, 'starting', 0]);
    assert.equal(keeper.status, 'unready');
    assert.equal(keeper.claim(1).refused, 'unready');
    keeper.takeFeeder();
    assert.equal(keeper.state().trust.phase, 'starting');
    keeper.setPhase('loading');
    keeper.beginWalk('load').end();
    keeper.setPhase('live');
    keeper.expectFeeder();
    assert.deepEqual([keeper.state().trust.live, keeper.claim(1).jobs.length], [true, 1]);
  });

  test('the status is queued while anything is due, in flight included, else empty or unready', () => {
    const keeper = manual();
    assert.equal(keeper.status, 'empty');
    keeper.apply(put('a'));
    keeper.claim(1);
    assert.equal(keeper.status, 'queued');
    keeper.apply(put('a', LATER));
    assert.equal(keeper.status, 'empty');
    keeper.setNow(LATER.nextRenderTime);
    assert.equal(keeper.status, 'queued', 'by the clock alone');
    keeper.setNow(START);
    keeper.takeFeeder();
    keeper.setPhase('loading');
    assert.equal(keeper.status, 'unready', 'the whole table is not kept yet');
    keeper.apply(put('b'));
    assert.equal(keeper.status, 'queued');
    assert.deepEqual(keysOf(keeper.claim(1).jobs), ['b'], 'served while loading');
    for (const phase of ['starting', 'stopped']) {
      keeper.setPhase(phase);
      assert.equal(keeper.status, 'unready');
      const claim = keeper.claim(1);
      assert.deepEqual([claim.jobs, claim.refused, claim.status], [[], 'unready', 'unready']);
    }
    for (const phase of ['waiting-for-peers', 'loading', 'failed', 'live']) {
      keeper.setPhase(phase);
      assert.equal(keeper.claim(0).refused, null);
    }
  });
});

describe('walks, head checks and repairs', () => {
  test('a verify walk reports what it found under exactly these names, and repairs it', () => {
    const keeper = manual();
    keeper.applyAll([put('same'), put('different'), put('phantom')]);
    const walk = keeper.beginWalk('verify');
    walk.rows([
      { cacheKey: 'different', ...LATER },
      { cacheKey: 'missing', ...DUE },
    ]);
    walk.rows([
      { cacheKey: 'same', ...DUE },
      { cacheKey: 'not kept', nextRenderTime: null },
    ]);
    const { suspects, ...report } = walk.end();
    assertHasFields(
      report,
      'at scanned owned unowned missing mismatched phantoms gained lost unreadableRows partial repaired ms',
      'the report',
    );
    const { scanned, owned, unowned, missing, mismatched, phantoms, repaired, partial } = report;
    assert.deepEqual([scanned, owned, unowned], [4, 4, 0]);
    assert.deepEqual([missing, mismatched, phantoms, repaired], [1, 1, 0, 2]);
    assert.equal(partial, false);
    assert.deepEqual(suspects, ['phantom']);
    assert.equal(keeper.size, 4, 'nothing is dropped unread');
    assert.equal(keeper.repair('phantom', null), true);
    assert.deepEqual([...keeper.keys()].sort(), ['different', 'missing', 'same']);
    const state = keeper.state();
    assert.equal(state.trust.exact, false, 'a missed write');
    assert.deepEqual(
      [state.trust.keeper.verify.phantoms, state.trust.keeper.verify.repaired],
      [1, 3],
    );
    const clean = keeper.beginWalk('verify');
    clean.rows(
      ['different', 'missing', 'same'].map((cacheKey) => ({ cacheKey, ...walked(cacheKey) })),
    );
    assert.deepEqual(clean.end().suspects, []);
    assert.equal(keeper.state().trust.exact, true);
    keeper.validate();
  });

  /** @param {string} key */
  const walked = (key) => (key === 'different' ? LATER : DUE);

  test('a walk never overwrites an event that came since it began', () => {
    const keeper = manual();
    keeper.applyAll([put('re-written'), put('deleted')]);
    const walk = keeper.beginWalk('verify');
    keeper.applyAll([put('re-written', LATER), gone('deleted'), put('new')]);
    walk.rows(['re-written', 'deleted'].map((cacheKey) => ({ cacheKey, ...DUE })));
    const report = walk.end();
    assert.deepEqual([report.missing, report.mismatched, report.suspects], [0, 0, []]);
    assert.equal(keeper.describe('re-written')?.dueAt, LATER.nextRenderTime);
    assert.deepEqual([...keeper.keys()].sort(), ['new', 're-written']);
  });

  test('a load walk counts no missed writes and no flow; what it walked is the whole table then', () => {
    const keeper = manual();
    keeper.takeFeeder();
    keeper.setPhase('loading');
    const walk = keeper.beginWalk('load');
    for (let i = 0; i < 3; i++) {
      walk.rows(Array.from({ length: 1_500 }, (_, at) => ({ cacheKey: `${i}/${at}`, ...DUE })));
      assert.equal(keeper.claim(1).jobs.length, 1, 'served with the first chunk');
    }
    const report = walk.end({ partial: false, unreadable: 2 });
    assert.deepEqual([report.scanned, report.missing, report.repaired], [4_500, 0, 0]);
    assert.equal(report.unreadableRows, 2);
    keeper.setPhase('live');
    const { flow, trust } = keeper.state();
    assert.deepEqual(flow, []);
    assert.deepEqual([trust.keeper.loadRows, trust.exact, trust.live], [4_500, true, true]);
  });

  test('a load that stopped short has, until a walk has read the whole table', () => {
    const keeper = manual();
    const walked = (/** @type {'load' | 'verify'} */ kind, /** @type {boolean} */ partial) => {
      keeper.beginWalk(kind).end({ partial });
      return trustOf(keeper).partialLoad;
    };
    assert.deepEqual(
      [walked('load', true), walked('verify', true), walked('verify', false)],
      [true, true, false],
    );
  });

  test('a partial walk finds no suspects; rows that cannot be read do not stop it', () => {
    const keeper = manual();
    keeper.apply(put('unseen'));
    const walk = keeper.beginWalk('verify');
    walk.rows([
      null,
      5,
      { cacheKey: 5 },
      Object.defineProperty({}, 'cacheKey', {
        get() {
          throw new Error('boom');
        },
      }),
      { cacheKey: 'seen', ...DUE },
    ]);
    const report = walk.end({ partial: true });
    assert.deepEqual([report.partial, report.suspects], [true, []]);
    assert.equal(keeper.size, 2);
    assert.equal(trustOf(keeper).malformed, 4);
  });

  test('abandon gives a walk up, as often as asked, and marks of it do no harm', () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b')]);
    const walk = keeper.beginWalk('verify');
    walk.rows([{ cacheKey: 'a', ...DUE }]);
    walk.abandon();
    walk.abandon();
    assert.deepEqual(keeper.beginWalk('verify').end().suspects.sort(), ['a', 'b']);
    keeper.validate();
  });

  test('headCheck hands each key out once a minute, n at most, and repair puts it right', () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 100 }, (_, i) => put(`key ${i}`)));
    assert.equal(keeper.headCheck().length, 64);
    assert.deepEqual(keeper.headCheck(), []);
    assert.equal(keeper.headCheck(65).length, 1);
    assert.deepEqual(keeper.headCheck(0), []);
    assert.equal(keeper.repair('key 0', DUE), false);
    assert.equal(keeper.repair('key 1', LATER), true);
    assert.equal(keeper.repair('key 2', null), true);
    assert.equal(keeper.repair('key 3', undefined), true);
    assert.equal(keeper.size, 98);
    keeper.setNow(START + MINUTE);
    assert.equal(keeper.headCheck(1_000).length, 97);
  });

  test('repair is false where an event came in between, and the event stands', () => {
    const keeper = manual();
    keeper.applyAll([put('kept'), { type: 'patch', id: 'unknown' }]);
    assert.deepEqual(keeper.headCheck(), ['unknown', 'kept']);
    keeper.applyAll([put('kept', LATER), put('unknown', LATER)]);
    assert.equal(keeper.repair('kept', DUE), false);
    assert.equal(keeper.repair('unknown', null), false);
    assert.equal(keeper.describe('kept')?.dueAt, LATER.nextRenderTime);
    assert.equal(keeper.size, 2);
  });

  test('a write whose event comes after the walk was late, not missed: the state is exact again', () => {
    const keeper = manual();
    keeper.applyAll([put('moved'), put('deleted')]);
    const walk = keeper.beginWalk('verify');
    walk.rows([
      { cacheKey: 'new', ...DUE, version: 7 },
      { cacheKey: 'moved', ...LATER, version: 8 },
    ]);
    const { suspects } = walk.end();
    assert.deepEqual(suspects, ['deleted']);
    keeper.repair('deleted', null);
    assert.equal(trustOf(keeper).verify.repaired, 3);
    assert.equal(keeper.state().trust.exact, false);
    keeper.apply({ ...put('moved', LATER), version: 9 });
    assert.equal(trustOf(keeper).verify.repaired, 3, 'another write of the same row');
    keeper.applyAll([
      { ...put('new'), version: 7 },
      { ...put('moved', LATER), version: 8 },
      gone('deleted'),
    ]);
    const { verify, repairedTotal, lateTotal } = trustOf(keeper);
    assert.deepEqual(
      [verify.missing, verify.mismatched, verify.phantoms, verify.repaired, verify.late],
      [0, 0, 0, 0, 3],
    );
    assert.deepEqual([repairedTotal, lateTotal], [3, 3]);
    assert.equal(keeper.state().trust.exact, true);
  });

  test('what a claim or a head check has read before its event came was late, not missed', () => {
    const keeper = manual();
    const version = (/** @type {string} */ id) => ({ ...put(id), version: 1 });
    keeper.applyAll(['claimed', 'checked', 'deleted', 'missed'].map(version));
    const [job] = keeper.claim(1).jobs;
    assert.equal(keeper.confirm(job.token, { ...LATER, version: 7 }), false);
    assert.deepEqual(keeper.headCheck(), ['checked', 'deleted', 'missed']);
    assert.equal(keeper.repair('checked', { ...LATER, version: 8 }), true);
    assert.equal(keeper.repair('deleted', null), true);
    assert.equal(keeper.repair('missed', { ...LATER, version: 9 }), true);
    const totals = () => [trustOf(keeper).repairedTotal, trustOf(keeper).lateTotal];
    assert.deepEqual(totals(), [4, 0]);
    const told = [
      { ...put('claimed', LATER), version: 7 },
      { ...put('checked', LATER), version: 8 },
      gone('deleted'),
    ];
    keeper.applyAll(told);
    assert.deepEqual(totals(), [4, 3]);
    keeper.applyAll([...told, { ...put('missed', LATER), version: 9.5 }]);
    assert.deepEqual(totals(), [4, 3], 'again, and of another write');
    assert.equal(trustOf(keeper).topCheck.repaired, 3);
  });

  test('what an event had flagged was not missed', () => {
    const keeper = manual();
    keeper.applyAll([put('kept'), { type: 'patch', id: 'kept' }]);
    assert.deepEqual(keeper.headCheck(), ['kept']);
    assert.equal(keeper.repair('kept', LATER), true);
    keeper.applyAll([put('claimed'), put('walked')]);
    keeper.applyAll(['claimed', 'walked'].map((id) => ({ type: 'patch', id })));
    assert.equal(keeper.confirm(keeper.claim(1).jobs[0].token, null), false);
    const walk = keeper.beginWalk('verify');
    walk.rows([
      { cacheKey: 'kept', ...LATER },
      { cacheKey: 'walked', ...LATER },
    ]);
    walk.end();
    assert.deepEqual([...keeper.keys()].sort(), ['kept', 'walked']);
    assert.equal(keeper.describe('walked')?.dueAt, LATER.nextRenderTime);
    const { repairedTotal, topCheck, verify } = trustOf(keeper);
    assert.deepEqual([repairedTotal, topCheck.repaired, verify.repaired], [0, 1, 0]);
  });

  test('what an event had flagged was not missed either while it could not be read', () => {
    const keeper = manual();
    keeper.applyAll([put('page'), { type: 'patch', id: 'page' }]);
    keeper.headCheck();
    keeper.readFailed('page');
    const walk = keeper.beginWalk('verify');
    walk.rows([{ cacheKey: 'page', ...LATER }]);
    assert.equal(walk.end().repaired, 0);
    assert.deepEqual([trustOf(keeper).repairedTotal, keeper.state().trust.exact], [0, true]);
  });

  test('for however long a suspect could not be read, it is one', () => {
    const keeper = manual();
    keeper.beginWalk('load').end();
    keeper.applyAll([put('page', LATER)]);
    assert.deepEqual(keeper.beginWalk('verify').end().suspects, ['page']);
    keeper.readFailed('page');
    for (let minutes = 1; minutes <= 15; minutes++) {
      keeper.setNow(START + minutes * MINUTE);
      assert.deepEqual(keeper.headCheck(), ['page']);
      if (minutes < 15) keeper.readFailed('page');
    }
    assert.equal(keeper.repair('page', null), true);
    const { verify, repairedTotal, topCheck } = trustOf(keeper);
    assert.deepEqual([verify.phantoms, repairedTotal, topCheck.repaired], [1, 1, 0]);
  });

  test('a suspect that could not be read at first is as much a missed deletion as one that could', () => {
    const keeper = manual();
    keeper.beginWalk('load').end();
    keeper.applyAll([put('page', LATER)]);
    assert.deepEqual(keeper.beginWalk('verify').end().suspects, ['page']);
    keeper.readFailed('page');
    keeper.setNow(START + MINUTE);
    assert.deepEqual(keeper.headCheck(), ['page']);
    assert.equal(keeper.repair('page', null), true);
    const { verify, repairedTotal } = trustOf(keeper);
    assert.deepEqual([verify.phantoms, verify.repaired, repairedTotal], [1, 1, 1]);
    assert.equal(keeper.state().trust.exact, false);
  });

  test('what a walk had put right before it was given up is late once its event has come', () => {
    const keeper = manual();
    const walk = keeper.beginWalk('verify');
    walk.rows([{ cacheKey: 'page', ...DUE, version: 7 }]);
    walk.abandon();
    keeper.apply({ ...put('page'), version: 7 });
    assert.deepEqual([trustOf(keeper).repairedTotal, trustOf(keeper).lateTotal], [1, 1]);
  });

  test('rows that a load could not read are no missed writes when a later walk can: as many as there were', () => {
    const keeper = manual();
    keeper.beginWalk('load').end({ unreadable: 2 });
    const rows = ['first', 'second', 'third'].map((cacheKey) => ({ cacheKey, ...DUE }));
    for (const [read, repaired] of [
      [1, 0],
      [2, 0],
      [3, 1],
    ]) {
      const walk = keeper.beginWalk('verify');
      walk.rows(rows.slice(0, read));
      const report = walk.end({ unreadable: 3 - read });
      assert.deepEqual([report.missing, report.repaired], [repaired, repaired], `${read}`);
    }
    assert.equal(trustOf(keeper).repairedTotal, 1);
    // What an event had flagged is none of them.
    const flagged = manual();
    flagged.beginWalk('load').end({ unreadable: 1 });
    flagged.apply({ type: 'patch', id: 'first' });
    for (const read of [1, 2, 3]) {
      const walk = flagged.beginWalk('verify');
      walk.rows(rows.slice(0, read));
      assert.equal(walk.end({ unreadable: 3 - read }).missing, read === 3 ? 1 : 0, `${read}`);
    }
    // After a load that stopped short, any number.
    const other = manual();
    other.beginWalk('load').end({ partial: true });
    for (const partial of [true, false]) {
      const walk = other.beginWalk('verify');
      walk.rows(rows.slice(0, partial ? 2 : 3));
      assert.equal(walk.end({ partial }).repaired, 0);
    }
    const walk = other.beginWalk('verify');
    walk.rows([...rows, { cacheKey: 'missed', ...DUE }]);
    assert.equal(walk.end().repaired, 1);
  });

  test('a partial verification does not take back what a whole one has found', () => {
    const keeper = manual();
    const walk = (/** @type {object[]} */ rows, partial = false) => {
      const walk = keeper.beginWalk('verify');
      walk.rows(rows);
      walk.end({ partial });
      return keeper.state().trust.exact;
    };
    const verifiedAt = () =>
      /^keeper_verified_timestamp_seconds (.*)$/m.exec(keeper.metrics())?.[1];
    const missed = [{ cacheKey: 'missed', ...DUE }];
    assert.equal(walk(missed), false);
    const at = verifiedAt();
    keeper.setNow(START + MINUTE);
    assert.equal(walk([], true), false);
    assert.equal(walk(missed, true), false);
    assert.equal(verifiedAt(), at, 'when the whole table was read last');
    assert.equal(walk(missed), true);
    assert.notEqual(verifiedAt(), at);
    assert.equal(walk([], true), true);
  });

  test('a version that is no finite number is none: the event is applied', () => {
    for (const version of [-Infinity, Infinity, Number.NaN, -(2n ** 2000n)]) {
      const keeper = manual();
      keeper.applyAll([
        { ...put('key'), version: 1 },
        { ...put('key', LATER), version },
      ]);
      assert.equal(keeper.describe('key')?.dueAt, LATER.nextRenderTime, `${version}`);
    }
  });

  test('rows of other nodes, however many a walk reads, do not make deletions forgotten', () => {
    const keeper = manual({ node: 'a', nodes: ['a', 'b', 'c', 'd'] });
    /** @param {number} i */
    const isOwn = (i) => keeper.explain(`https://shop.example/${i}`).owner === 'a';
    const keys = Array.from({ length: 320_000 }, (_, i) => `https://shop.example/${i}`);
    const own = keys[keys.findIndex((_, i) => isOwn(i))];
    keeper.applyAll([
      { ...put(own), version: 1 },
      { ...gone(own), version: 3 },
    ]);
    const walk = keeper.beginWalk('verify');
    for (let from = 0; from < keys.length; from += 1_000) {
      const some = keys.slice(from, from + 1_000).filter((key) => key !== own);
      walk.rows(some.map((cacheKey) => ({ cacheKey, ...LATER, version: 2 })));
    }
    assert.ok(walk.end().unowned > 229_376);
    keeper.apply({ ...put(own), version: 2 });
    assert.equal(keeper.describe(own), null, 'the event is older than the deletion');
  });

  test('of two reads of a key under way, the older is never taken for the newer: the key is read again', () => {
    const keeper = manual();
    keeper.applyAll([put('claimed'), put('checked'), put('walked')]);
    const [job] = keeper.claim(1).jobs;
    assert.equal(job.key, 'claimed');
    assert.deepEqual(keeper.headCheck(), ['checked', 'walked']);
    const walk = keeper.beginWalk('verify');
    walk.rows(['claimed', 'checked'].map((cacheKey) => ({ cacheKey, ...LATER })));
    // Both were read before the walk came to them.
    assert.equal(keeper.confirm(job.token, DUE), true);
    assert.equal(keeper.repair('checked', DUE), false);
    for (const key of ['claimed', 'checked'])
      assert.equal(keeper.describe(key)?.dueAt, LATER.nextRenderTime, key);
    assert.equal(keeper.repair('walked', DUE), false);
    walk.end();
    assert.deepEqual(keeper.headCheck().sort(), ['checked', 'claimed']);
  });

  test('a row leased before a walk began does not keep the walk from putting it right', () => {
    const keeper = manual();
    keeper.apply(put('page'));
    const [{ token }] = keeper.claim(1).jobs;
    const walk = keeper.beginWalk('verify');
    assert.equal(keeper.confirm(token, DUE), true);
    walk.rows([{ cacheKey: 'page', ...LATER }]);
    assert.equal(walk.end().mismatched, 1);
    assert.equal(keeper.describe('page')?.dueAt, LATER.nextRenderTime);
  });

  test('a feeder that has not been heard of for two seconds, or has gone, makes the state inexact; one without a pulse does not', () => {
    const keeper = manual();
    keeper.takeFeeder();
    keeper.beginWalk('load').end();
    keeper.setPhase('live');
    const fed = () => [keeper.state().trust.exact, trustOf(keeper).feederSilentMs];
    keeper.setNow(START + 10_000);
    assert.deepEqual(fed(), [true, null]);
    keeper.beat();
    keeper.setNow(START + 12_000);
    assert.deepEqual(fed(), [true, 2_000]);
    keeper.setNow(START + 12_001);
    assert.deepEqual(fed(), [false, 2_001]);
    keeper.beat();
    assert.deepEqual(fed(), [true, 0]);
    keeper.vacate();
    assert.deepEqual(fed(), [false, null]);
    assert.equal(keeper.feederSilenceMs, Number.POSITIVE_INFINITY);
    assert.deepEqual([keeper.seizeFeeder(5_000), keeper.seizeFeeder(5_000)], [true, false]);
    const former = keeper.takeFeeder();
    keeper.setNow(START + 20_000);
    const next = keeper.takeFeeder();
    assert.equal(next, former + 1);
    keeper.beat();
    keeper.vacate(former);
    assert.equal(keeper.feederSilenceMs, 0, 'a former feeder’s leaving is no matter');
  });

  test('what must be read and has not been makes the state inexact, until it is read or a walk has read it', () => {
    const keeper = manual();
    keeper.applyAll([put('page', LATER), { type: 'patch', id: 'page' }]);
    const awaiting = () => [keeper.state().trust.exact, trustOf(keeper).awaitingRead];
    assert.deepEqual(keeper.headCheck(), ['page']);
    assert.deepEqual(awaiting(), [false, 1], 'it is being read');
    keeper.readFailed('page');
    assert.deepEqual(awaiting(), [false, 1], 'it could not be');
    keeper.setNow(START + 59_999);
    assert.deepEqual(keeper.headCheck(), []);
    keeper.setNow(START + 60_000);
    assert.deepEqual(keeper.headCheck(), ['page']);
    keeper.repair('page', LATER);
    assert.deepEqual(awaiting(), [true, 0]);

    keeper.apply({ type: 'patch', id: 'page' });
    keeper.headCheck();
    keeper.readFailed('page');
    const walk = keeper.beginWalk('verify');
    walk.rows([{ cacheKey: 'page', ...LATER }]);
    walk.end();
    assert.deepEqual(awaiting(), [true, 0], 'the walk has read it');

    const other = keeper.beginWalk('verify');
    assert.deepEqual(other.end().suspects, ['page']);
    assert.deepEqual(awaiting(), [false, 1], 'a suspect');
    keeper.readFailed('page');
    assert.deepEqual(awaiting(), [false, 1], 'a suspect that could not be read');
    keeper.repair('page', LATER);
    keeper.readFailed('never handed out');
    keeper.beginWalk('verify').rows([{ cacheKey: 'page', ...LATER }]);
  });

  test('a key that must be read for more than one reason is one', () => {
    const keeper = manual();
    const awaiting = () => trustOf(keeper).awaitingRead;
    keeper.applyAll([put('page', LATER), { type: 'patch', id: 'page' }]);
    keeper.headCheck();
    keeper.applyAll([{ type: 'patch', id: 'page' }]);
    assert.equal(awaiting(), 1, 'flagged again while it is being read');
    keeper.headCheck();
    keeper.repair('page', LATER);
    assert.equal(awaiting(), 0);

    assert.deepEqual(keeper.beginWalk('verify').end().suspects, ['page']);
    for (let i = 0; i < 2; i++) keeper.readFailed('page');
    keeper.applyAll([{ type: 'patch', id: 'page' }]);
    assert.equal(awaiting(), 1, 'a suspect that twice could not be read, and is flagged');
    const walk = keeper.beginWalk('verify');
    for (let i = 0; i < 2; i++) keeper.readFailed('page');
    walk.rows([{ cacheKey: 'page', ...LATER }]);
    walk.end();
    assert.equal(awaiting(), 1, 'the walk that was under way has seen it');
  });

  test('a key that could not be read twice is handed out again once', () => {
    const keeper = manual();
    keeper.applyAll([put('page', LATER)]);
    assert.deepEqual(keeper.beginWalk('verify').end().suspects, ['page']);
    keeper.readFailed('page');
    keeper.setNow(START + MINUTE / 2);
    keeper.readFailed('page');
    assert.deepEqual(keeper.headCheck(), []);
    keeper.setNow(START + MINUTE);
    assert.deepEqual(keeper.headCheck(), ['page']);
    keeper.repair('page', LATER);
    keeper.setNow(START + 2 * MINUTE);
    assert.deepEqual([keeper.headCheck(), trustOf(keeper).awaitingRead], [[], 0]);
  });

  test('off the calling thread a walk begins and ends the same, its suspects handed out bit by bit', async () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 10 }, (_, i) => put(`gone ${i}`)));
    keeper.beginWalk('verify').abandon();
    const walk = await keeper.beginWalkAsync('verify');
    walk.rows([{ cacheKey: 'new', ...DUE }]);
    const ending = walk.endAsync();
    assert.deepEqual(walk.nextSuspects(5), [], 'not before it has ended');
    const report = await ending;
    assert.deepEqual([report.missing, report.scanned], [1, 1]);
    const suspects = [3, 0, 100, 1].map((n) => walk.nextSuspects(n));
    assert.deepEqual(
      suspects.map((keys) => keys.length),
      [3, 0, 7, 0],
    );
    assert.deepEqual(
      suspects.flat().sort(),
      Array.from({ length: 10 }, (_, i) => `gone ${i}`),
    );
    await assert.rejects(walk.endAsync(), { code: 'E_WALK' });
    assert.throws(() => walk.endAsync(/** @type {any} */ ({ partial: 1 })), TypeError);
    assert.throws(() => keeper.beginWalkAsync(/** @type {any} */ ('')), TypeError);
    keeper.close();
    await assert.rejects(keeper.beginWalkAsync('verify'), { code: 'E_CLOSED' });
  });
});

describe('how keys are kept small', () => {
  test('is learnt from a sample: what comes then takes half, in whatever order; nothing else changes', async () => {
    const keys = Array.from({ length: 20_000 }, (_, n) => {
      const [a, b] = [n % 40, Math.floor(n / 40) % 50].map((word) => `${word * 7919 + 1e6}`);
      return `https://www.some-shop.com/department-${a.replaceAll('1', 'x')}/thing-${b.replaceAll('2', 'yz')}/${n * 104_729}`;
    }).sort();
    const sample = keys.filter((_, n) => n % 50 === 0);
    const bytes = await Promise.all(
      [[], sample].map(async (learnt) => {
        const keeper = manual();
        if (learnt.length > 0) assert.equal(await keeper.learnKeys(learnt), true);
        const walk = keeper.beginWalk('load');
        walk.rows(keys.map((cacheKey) => ({ cacheKey, ...LATER })));
        walk.end();
        assert.deepEqual(keeper.keys().sort(), keys);
        keeper.validate();
        return keeper.bytes;
      }),
    );
    assert.ok(bytes[1] < bytes[0] * 0.7, `${bytes[1]} of ${bytes[0]} bytes`);
  });

  test('is learnt once, from enough keys, and from strings only', async () => {
    const keeper = manual();
    const odd = ['', '\u0000', '\ud800', 'naïve 中文 🦀', 'x'.repeat(100_000)];
    const many = Array.from({ length: 5_000 }, (_, n) => odd[n % 5] + n);
    const learnt = [];
    for (const keys of [[], odd, many.slice(0, 63), many, many]) {
      learnt.push(await keeper.learnKeys(keys));
    }
    assert.deepEqual(learnt, [false, false, false, true, false]);
    keeper.applyAll(many.map((key) => put(key)));
    assert.deepEqual(keeper.keys().sort(), [...many].sort());
    keeper.validate();
    for (const wrong of [undefined, 'keys', [1], [null], new Array(3), { length: 1 }]) {
      assert.throws(() => keeper.learnKeys(/** @type {any} */ (wrong)), TypeError);
    }
    keeper.close();
    await assert.rejects(keeper.learnKeys([]), { code: 'E_CLOSED' });
  });

  test('is learnt anew where the sample was of other keys than those that come', async () => {
    const keeper = manual();
    const other = Array.from({ length: 200 }, (_, n) => `Zz${n.toString(2)}`);
    assert.equal(await keeper.learnKeys(other), true);
    const keys = Array.from({ length: 200_000 }, (_, n) => {
      return `https://www.some-shop.com/product/department-${n % 50}/some-thing-${(n * 7_919) % 200_000}|mobile`;
    });
    for (let at = 0; at < keys.length; at += 1_000) {
      keeper.applyAll(keys.slice(at, at + 1_000).map((key) => put(key)));
    }
    const before = keeper.bytes;
    keeper.applyAll(keys.slice(0, 10_000).map((key) => put(`${key.slice(0, -7)}|desktop`)));
    const each = (keeper.bytes - before) / 10_000;
    assert.ok(each < 100, `${each} bytes a row`);
  });
});

describe('configure', () => {
  test('off the calling thread it does the same, and the new options hold from the call on', async () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 1_000 }, (_, i) => put(`https://shop.example/${i}`)));
    const done = keeper.configureAsync({ defaultInterval: HOUR });
    keeper.apply(put('https://shop.example/new'));
    assert.equal(keeper.describe('https://shop.example/new')?.cadenceMs, HOUR);
    assert.deepEqual(await done, { moved: 1_000, dropped: 0 });
    assert.equal(keeper.classCount, 1);
    assert.throws(
      () => keeper.configureAsync(/** @type {any} */ ({ defaultInterval: 0 })),
      TypeError,
    );
    keeper.validate();
  });

  test('a row that a change has not come to yet is no missed write for the walk that comes first', async () => {
    const keeper = manual({ node: 'a', routes: [{ match: 'prefix', path: '/p/' }] });
    const rows = Array.from({ length: 5_000 }, (_, i) => ({
      cacheKey: `https://shop.example/p/${i}`,
      ...DUE,
    }));
    keeper.beginWalk('verify').rows(rows);
    for (const patch of [
      { defaultInterval: HOUR },
      { routes: [{ match: 'prefix', path: '/', renderInterval: 5 * HOUR }] },
      { nodes: ['b'] },
    ]) {
      const walk = keeper.beginWalk('verify');
      const done = keeper.configureAsync(patch);
      walk.rows(rows);
      const { moved, dropped } = await done;
      const report = walk.end();
      assert.deepEqual([report.missing, report.mismatched, report.repaired], [0, 0, 0]);
      assert.equal(moved > 0 || dropped > 0, true);
      assert.equal(report.lost, dropped);
    }
    assert.equal(trustOf(keeper).repairedTotal, 5_000, 'of the walk that brought them');
    keeper.validate();
  });

  test('once a node has left, nothing due means unready until a walk has fetched its rows', () => {
    const keeper = manual({ node: 'a', nodes: ['b'] });
    keeper.takeFeeder();
    keeper.beginWalk('load').end();
    keeper.setPhase('live');
    assert.equal(keeper.status, 'empty');
    const walk = keeper.beginWalk('verify');
    keeper.configure({ nodes: ['b', 'c'] });
    assert.equal(keeper.status, 'empty', 'a node more takes rows away');
    keeper.configure({ nodes: ['c'] });
    assert.equal(keeper.status, 'unready');
    assert.equal(keeper.state().trust.exact, false);
    walk.end();
    assert.equal(keeper.status, 'unready', 'what it had walked past already is not known');
    keeper.beginWalk('verify').end();
    assert.equal(keeper.status, 'empty');
    assert.equal(keeper.state().trust.exact, true);
  });

  test('reclassifies the kept rows in memory and tells how many moved', () => {
    const keeper = manual();
    keeper.applyAll([
      put('https://shop.example/p/1|desktop'),
      put('https://shop.example/p/2', { ...DUE, effectiveInterval: 5 }),
      put('https://shop.example/x'),
      put('not a url'),
    ]);
    const routes = [{ match: 'prefix', path: '/p/', renderInterval: HOUR }];
    const done = keeper.configure({ routes });
    assertFields(done, 'moved dropped');
    assert.deepEqual(done, { moved: 2, dropped: 0 });
    const described = keeper.describe('https://shop.example/p/1|desktop');
    assert.deepEqual([described?.route, described?.cadenceMs], ['route:prefix:/p/', HOUR]);
    assert.equal(keeper.describe('https://shop.example/p/2')?.cadenceMs, 5, 'carried');
    assert.deepEqual(keeper.configure({ defaultInterval: 2 * HOUR }), { moved: 2, dropped: 0 });
    assert.deepEqual(keeper.configure({ defaultInterval: 2 * HOUR }), { moved: 0, dropped: 0 });
    assert.deepEqual(keeper.configure({}), { moved: 0, dropped: 0 });
    const excluded = keeper.configure({ excludePathPatterns: ['/p/'] });
    assert.deepEqual(excluded, { moved: 2, dropped: 0 });
    assert.equal(keeper.describe('https://shop.example/p/2')?.route, 'unrouted');
    keeper.validate();
  });

  test('a change of nodes drops what is no longer owned; an empty list never replaces peers', () => {
    const keeper = manual({ node: 'a' });
    const keys = Array.from({ length: 50 }, (_, i) => `https://shop.example/${i}`);
    keeper.applyAll(keys.map((key) => put(key)));
    const mine = keys.filter((key) => fnv1a(`${key}|a`) >= fnv1a(`${key}|b`));
    assert.deepEqual(keeper.configure({ nodes: ['b'] }), {
      moved: 0,
      dropped: keys.length - mine.length,
    });
    assert.deepEqual([...keeper.keys()].sort(), [...mine].sort());
    keeper.configure({ nodes: [] });
    assert.deepEqual(trustOf(keeper).ring, ['a', 'b']);
    const walk = keeper.beginWalk('verify');
    walk.rows(keys.map((cacheKey) => ({ cacheKey, ...DUE })));
    const report = walk.end();
    assert.deepEqual([report.owned, report.unowned], [mine.length, keys.length - mine.length]);
    assert.equal(report.lost, keys.length - mine.length);
  });

  test('rows gained through a change of nodes are counted apart, and leave the state exact', () => {
    const score = (/** @type {string} */ key, /** @type {string} */ node) =>
      fnv1a(`${key}|${node}`);
    const keys = Array.from({ length: 100 }, (_, i) => `https://shop.example/${i}`);
    const gained = keys.filter(
      (key) =>
        score(key, 'alpha') < score(key, 'beta') && score(key, 'alpha') >= score(key, 'gamma'),
    );
    assert.ok(gained.length > 0);
    const keeper = manual({ node: 'alpha', nodes: ['beta'] });
    keeper.applyAll(keys.map((key) => put(key)));
    keeper.configure({ nodes: ['gamma'] });
    const walk = keeper.beginWalk('verify');
    walk.rows(keys.map((cacheKey) => ({ cacheKey, ...DUE })));
    const report = walk.end();
    assert.deepEqual([report.gained, report.missing], [gained.length, 0]);
    for (const key of gained) assert.equal(keeper.explain(key).kept, true);
    assert.equal(report.repaired, 0);
    assert.equal(keeper.state().trust.exact, true);
  });

  test('a row that came through a change of nodes and could not be read at first is no missed write', () => {
    const keys = Array.from({ length: 100 }, (_, i) => `https://shop.example/${i}`);
    const keeper = manual({ node: 'alpha', nodes: ['beta'] });
    keeper.applyAll(keys.map((key) => put(key)));
    const unread = keys.find((key) => keeper.describe(key) === null);
    keeper.configure({ nodes: ['alpha'] });
    for (const unreadable of [1, 0]) {
      const walk = keeper.beginWalk('verify');
      const read = keys.filter((key) => unreadable === 0 || key !== unread);
      walk.rows(read.map((cacheKey) => ({ cacheKey, ...DUE })));
      const report = walk.end({ unreadable });
      assert.deepEqual([report.missing, report.gained > 0], [0, unreadable === 1]);
    }
    assert.equal(keeper.size, 100);
    assert.deepEqual([trustOf(keeper).repairedTotal, keeper.state().trust.exact], [0, true]);
  });

  test('priorities change at run time without touching a row', () => {
    const keeper = manual();
    keeper.applyAll([
      put('plain', { nextRenderTime: START - HOUR }),
      put('listed', { ...DUE, fromSitemap: true }),
    ]);
    assert.deepEqual(keysOf(keeper.topK(2).rows), ['plain', 'listed']);
    const { version } = keeper;
    assert.deepEqual(keeper.configure({ priority: { sitemapBoost: 10 } }), {
      moved: 0,
      dropped: 0,
    });
    assert.deepEqual(keysOf(keeper.topK(2).rows), ['listed', 'plain']);
    assert.equal(keeper.version, version);
  });

  test('an invalid rule is left out and reported, whatever it is made of', () => {
    const good = { match: 'exact', path: '/' };
    const invalid = [
      null,
      5,
      'rule',
      5n,
      [],
      {},
      { match: 'prefix' },
      { match: 'starts', path: '/a' },
      { match: 'prefix', path: 'a' },
      { match: 'exact', path: '/a', mode: 'other' },
      { match: 'prefix', path: '/\ud800' },
      { match: 'prefix', path: 5 },
    ];
    const keeper = manual({ routes: [...invalid, good] });
    assert.equal(trustOf(keeper).invalidRules.length, invalid.length);
    keeper.apply(put('https://shop.example/'));
    assert.equal(keeper.describe('https://shop.example/')?.route, 'route:exact:/');
    const interval = manual({ routes: [{ ...good, renderInterval: -5 }] });
    interval.apply(put('https://shop.example/'));
    assert.equal(interval.describe('https://shop.example/')?.cadenceMs, 86_400_000);
    assert.equal(trustOf(interval).invalidRules.length, 1);
  });
});

describe('explain', () => {
  const FIELDS =
    'key kept reason owner route cadenceMs routeCadenceMs carried fromSitemap changed urgent demandPeriodMs dueAt due score rank waitMs lease misses hold';

  test('has exactly the named fields for a kept, leased, held, unowned and unknown key', () => {
    const keeper = manual({ node: 'a', nodes: ['b'], leases: { leaseMs: 60_000, missLimit: 0 } });
    const [first, second] = [keyOf('a'), keyOf('a', 1)];
    keeper.applyAll([put(first), put(second)]);
    for (const key of [first, second, keyOf('b'), keyOf('a', 2)]) {
      assertFields(keeper.explain(key), FIELDS);
    }
    const waiting = keeper.explain(second);
    assert.deepEqual(waiting, {
      key: second,
      kept: true,
      reason: null,
      owner: 'a',
      route: 'unrouted',
      cadenceMs: 86_400_000,
      routeCadenceMs: 86_400_000,
      carried: false,
      fromSitemap: false,
      changed: false,
      urgent: false,
      demandPeriodMs: null,
      dueAt: DUE.nextRenderTime,
      due: true,
      score: (10 * MINUTE) / 86_400_000,
      rank: 2,
      waitMs: null,
      lease: null,
      misses: 0,
      hold: null,
    });
    keeper.claim(1);
    const leased = keeper.explain(first);
    assert.deepEqual(leased.lease, {
      grantedAt: START,
      expiresAt: START + 60_000,
      version: null,
    });
    keeper.setNow(START + 60_000);
    keeper.claim(1);
    const held = keeper.explain(first);
    assertFields(held, FIELDS);
    assert.deepEqual(held.hold, { misses: 1, until: START + 60_000 + 120_000 });
    assert.deepEqual([held.misses, held.lease, held.due], [1, null, true]);
    const unowned = keeper.explain(keyOf('b'));
    assert.deepEqual([unowned.kept, unowned.reason, unowned.owner], [false, 'not-owned', 'b']);
    const unknown = keeper.explain(keyOf('a', 2));
    assert.deepEqual(
      [unknown.kept, unknown.reason, unknown.dueAt, unknown.rank],
      [false, 'unknown', null, null],
    );
  });

  test('a row not due yet has no rank; the wait is told from the recent claim rate', () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 40 }, (_, i) => put(`key ${i}`)));
    keeper.apply(put('later', LATER));
    const later = keeper.explain('later');
    assert.deepEqual([later.due, later.rank, later.score, later.waitMs], [false, null, null, null]);
    keeper.claim(20);
    keeper.setNow(START + MINUTE);
    const { rank, waitMs } = keeper.explain('key 29');
    assert.equal(rank, 30);
    assert.ok(waitMs > 0);
  });

  test('what a row carries is told beside what its route asks for', () => {
    const keeper = manual({
      routes: [{ match: 'prefix', path: '/p/', renderInterval: 5 * MINUTE }],
    });
    keeper.apply(put('https://shop.example/p/1', { ...DUE, effectiveInterval: 2 * MINUTE }));
    const { cadenceMs, routeCadenceMs, carried } = keeper.explain('https://shop.example/p/1');
    assert.deepEqual([cadenceMs, routeCadenceMs, carried], [2 * MINUTE, 5 * MINUTE, true]);
    assert.equal(keeper.explain('https://shop.example/p/2').routeCadenceMs, 5 * MINUTE);
    const judged = manual({ classify: () => ({ route: 'all', cadenceMs: MINUTE }) });
    judged.apply(put('page'));
    assert.equal(judged.explain('page').routeCadenceMs, null);
  });

  test('explain goes by the jobs that were given out and not given back', () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 40 }, (_, i) => put(`key ${i}`)));
    const { jobs } = keeper.claim(20);
    keeper.setNow(START + MINUTE);
    const wait = () => keeper.explain('key 29').waitMs;
    const before = wait();
    for (const { token } of jobs.slice(0, 10)) keeper.giveBack(token);
    assert.equal(wait(), 2 * before);
    for (const { token, key } of jobs.slice(10)) {
      assert.equal(keeper.confirm(token, key === jobs[10].key ? null : LATER), false);
    }
    assert.deepEqual([keeper.explain('key 29').rank, wait()], [20, null], 'stale ones were none');
  });

  test('a backlog that grows by new rows that are due has no end in sight; rows removed before they were due bring it no nearer', () => {
    const keeper = manual({ defaultInterval: MINUTE });
    const backlog = Array.from({ length: 100 }, (_, i) => put(`key ${i}`));
    keeper.applyAll(backlog);
    for (let minute = 1; minute <= 5; minute++) {
      const late = Array.from({ length: 500 }, (_, i) => put(`later ${i}`, LATER));
      keeper.applyAll([...late, ...late.map(({ id }) => gone(id))]);
      keeper.applyAll(Array.from({ length: 50 }, (_, i) => put(`new ${minute} ${i}`)));
      keeper.applyAll(keeper.claim(40).jobs.map((/** @type {any} */ { key }) => put(key, LATER)));
      keeper.setNow(START + minute * MINUTE);
    }
    assert.equal(keeper.dueSummary().due, 150);
    assert.equal(keeper.state().now.drainEtaMs, null);
    const rate = (/** @type {string} */ name) =>
      Number(new RegExp(`^keeper_${name} (.*)$`, 'm').exec(keeper.metrics())?.[1]);
    assert.deepEqual([rate('came_due_rate'), rate('finished_rate')], [(100 + 5 * 50) / 5, 40]);
  });

  test('rates are over ten minutes however few of them the flow tells of', () => {
    for (const flowMinutes of [1, 5, 60]) {
      const keeper = manual({ flowMinutes });
      keeper.applyAll(Array.from({ length: 40 }, (_, i) => put(`key ${i}`)));
      for (let minute = 1; minute <= 10; minute++) {
        assert.equal(keeper.claim(2).jobs.length, 2);
        keeper.apply(put(`another ${minute}`));
        keeper.setNow(START + minute * MINUTE);
      }
      const { rank, waitMs } = keeper.explain('another 10');
      assert.equal(waitMs, (Number(rank) / 2) * MINUTE, `${flowMinutes}`);
      assert.equal(keeper.state().flow.length, Math.min(10, flowMinutes - 1));
    }
  });
});

describe('a custom classifier', () => {
  test('is called with key and row on the calling thread, and says route, cadence and whether kept', () => {
    /** @type {any[]} */
    const calls = [];
    const keeper = manual({
      classify: (/** @type {string} */ key, /** @type {any} */ row) => {
        calls.push([key, row]);
        return key === 'no' ? null : { route: `of ${key}`, cadenceMs: HOUR, carried: key === 'b' };
      },
    });
    const row = { ...DUE, effectiveInterval: 5, fromSitemap: true };
    keeper.applyAll([put('a', row), put('b', row), put('no', row), gone('a2')]);
    assert.deepEqual(
      calls.map(([key, value]) => [key, value === row]),
      [
        ['a', true],
        ['b', true],
        ['no', true],
      ],
    );
    const { route, cadenceMs, carried, fromSitemap } = keeper.describe('a') ?? {};
    assert.deepEqual([route, cadenceMs, carried, fromSitemap], ['of a', HOUR, false, true]);
    assert.equal(keeper.describe('b')?.carried, true);
    assert.equal(keeper.describe('no'), null);
    assert.deepEqual(
      keeper.state().lateness.byRoute.map((/** @type {any} */ each) => each.route),
      ['of a', 'of b'],
    );
  });

  test('null drops a row that was kept; walk, confirm and repair ask it, too', () => {
    let keep = true;
    const keeper = manual({ classify: () => (keep ? { route: 'r', cadenceMs: HOUR } : null) });
    keeper.applyAll(['a', 'b', 'c', 'd'].map((key) => put(key)));
    const tokens = keeper.claim(4).jobs.map((/** @type {any} */ { token }) => token);
    assert.equal(keeper.confirm(tokens[0], DUE), true);
    keeper.headCheck();
    keep = false;
    assert.equal(keeper.confirm(tokens[0], DUE), false);
    assert.equal(keeper.size, 3);
    keeper.apply(put('b'));
    assert.equal(keeper.size, 2);
    keeper.beginWalk('verify').abandon();
    const walk = keeper.beginWalk('verify');
    walk.rows([{ cacheKey: 'c', ...DUE }]);
    const report = walk.end();
    assert.deepEqual([report.unowned, report.suspects], [1, ['d']]);
    assert.equal(keeper.repair('d', DUE), true);
    assert.equal(keeper.size, 0);
    keeper.validate();
  });

  test('one that throws, or answers nonsense, is counted malformed, and what is kept stays', () => {
    /** @type {any} */
    let answer = { route: 'r', cadenceMs: HOUR };
    const keeper = manual({
      classify: () => {
        if (answer instanceof Error) throw answer;
        return answer;
      },
    });
    keeper.apply(put('a'));
    const wrong = [
      new Error('boom'),
      { route: 5, cadenceMs: 5 },
      { route: '\ud800' },
      { cadenceMs: 5 },
      5,
      'r',
    ];
    for (const [i, each] of wrong.entries()) {
      answer = each;
      assert.doesNotThrow(() => keeper.apply(put('a', LATER)));
      assert.equal(trustOf(keeper).malformed, i + 1);
    }
    assert.equal(keeper.describe('a')?.dueAt, DUE.nextRenderTime);
    answer = { route: 'r', cadenceMs: Number.NaN };
    keeper.apply(put('b'));
    assert.equal(keeper.describe('b')?.cadenceMs, null);
    assert.equal(keeper.state().lateness.classes.length, 2);
  });

  test('one that throws at confirm or repair loses no row', () => {
    let fails = false;
    const keeper = manual({
      classify: () => {
        if (fails) throw new Error('boom');
        return { route: 'r', cadenceMs: HOUR };
      },
    });
    keeper.applyAll([put('a'), put('b')]);
    const [{ token }] = keeper.claim(1).jobs;
    keeper.headCheck();
    fails = true;
    assert.equal(keeper.confirm(token, DUE), false);
    assert.equal(keeper.repair('b', DUE), false);
    assert.equal(keeper.size, 2);
  });

  test('one that confirms and repairs while it is asked for another row mixes nothing up', () => {
    let depth = 0;
    let token = 0;
    /** @type {any} */
    const keeper = manual({
      classify: (/** @type {string} */ key) => {
        if (depth === 1) {
          depth++;
          assert.equal(keeper.repair('inner', LATER), true);
          assert.equal(keeper.confirm(token, DUE), true);
        }
        return { route: `route of ${key}`, cadenceMs: HOUR };
      },
    });
    keeper.applyAll(['leased', 'inner', 'outer'].map((key) => put(key)));
    token = keeper.claim(1).jobs[0].token;
    depth = 1;
    assert.equal(keeper.repair('outer', LATER), true);
    assert.equal(trustOf(keeper).malformed, 0);
    for (const key of ['inner', 'outer']) {
      const { dueAt, route } = keeper.describe(key) ?? {};
      assert.deepEqual([dueAt, route], [LATER.nextRenderTime, `route of ${key}`]);
    }
  });

  test('one that calls the keeper at any moment, its own answer included, is served without deadlock or loss', () => {
    let depth = 0;
    /** @type {any} */
    const keeper = manual({
      classify: (/** @type {string} */ key) => {
        if (depth < 50 && key !== 'leaf') {
          depth++;
          keeper.apply(put(`nested ${depth}`));
          keeper.state();
          keeper.claim(1);
        }
        return {
          get route() {
            keeper.apply(put('leaf'));
            return `route of ${key}`;
          },
          get cadenceMs() {
            assert.ok(keeper.size >= 0);
            return HOUR;
          },
        };
      },
    });
    keeper.apply(put('outer'));
    assert.equal(keeper.describe('outer')?.route, 'route of outer');
    for (let i = 1; i <= 50; i++) {
      assert.equal(keeper.describe(`nested ${i}`)?.route, `route of nested ${i}`);
    }
    keeper.validate();
  });
});

describe('the state document', () => {
  const NOW =
    'due dueSitemap dueDiscovered dueChanged oldestChangedAt dueUrgent oldestUrgentAt changedByDemand inFlight heldKeys heldDue unclaimed leasesLeft paused status';
  const TRUST = 'source live phase exact stateAt stateAgeMs maxAgeMs keeper';
  const KEEPER =
    'phase rows carriedRows classes resyncing exact loadStartedAt loadedAt loadMs loadRows unreadableRows partialLoad eventsApplied malformed lastEventAt verify verifiedAt flowMinutes lastResync topCheck repairedTotal gainedTotal lostTotal lastError epoch unverifiedRows ring bytes';
  const CLASS =
    'route cadenceMs carried fromSitemap changed urgent demandPeriodMs rows due oldestDueAt oldestLatenessCadences';

  /** A keeper with something in every field. */
  function busy() {
    const keeper = manual({
      routes: [
        { match: 'prefix', path: '/p/', renderInterval: HOUR },
        { match: 'contains', path: '/c/', renderInterval: 24 * HOUR },
      ],
    });
    const paths = ['p', 'c', 'x'];
    for (let i = 0; i < 600; i++) {
      keeper.apply(
        put(`https://shop.example/${paths[i % 3]}/${i}|${i % 2 ? 'desktop' : 'mobile'}`, {
          nextRenderTime: START + (i - 400) * 7 * MINUTE,
          fromSitemap: i % 4 === 0,
          changedAt: i % 5 === 0 ? START : null,
          demandPeriod: i % 10 === 0 ? HOUR : null,
          urgentAt: i % 7 === 0 ? START : null,
          effectiveInterval: i % 11 === 0 ? 12 * HOUR : undefined,
        }),
      );
    }
    keeper.claim(20);
    return keeper;
  }

  test('has the fields of section 9, by name and type', () => {
    const keeper = busy();
    keeper.beginWalk('verify').end({ partial: true });
    const state = keeper.state();
    assert.equal(state.schema, 1);
    assert.equal(state.node, 'localhost');
    assert.equal(state.generatedAt, START);
    assertHasFields(
      state,
      'schema node generatedAt now coming lateness flow trust',
      'the document',
    );
    assertHasFields(state.now, NOW, 'now');
    assertHasFields(state.coming, 'next15m next60m next24h byHour', 'coming');
    assertHasFields(
      state.lateness,
      'edges sitemap discovered oldestDueAt nextDueAt byRoute classes listsTruncated',
      'lateness',
    );
    assertHasFields(state.trust, TRUST, 'trust');
    assertHasFields(state.trust.keeper, KEEPER, 'trust.keeper');
    assert.equal(state.coming.byHour.length, 24);
    assert.deepEqual(state.lateness.edges, [0.25, 1, 2, 4]);
    assert.deepEqual([state.lateness.sitemap.length, state.lateness.discovered.length], [5, 5]);
    for (const each of state.lateness.byRoute)
      assertHasFields(each, 'route due sitemap discovered', 'byRoute');
    for (const each of state.lateness.classes) assertHasFields(each, CLASS, 'classes');
    for (const each of state.now.changedByDemand)
      assertHasFields(each, 'periodMs due oldestDueAt', 'changedByDemand');
    for (const each of state.flow) {
      assertHasFields(each, 'minute cameDue added triggered rescheduled removed', 'flow');
    }
    assert.equal(state.trust.source, 'keeper');
    const { live, phase, exact, stateAt, stateAgeMs } = state.trust;
    assert.deepEqual([live, phase, exact, stateAt, stateAgeMs], [true, 'live', true, START, 0]);
    for (const value of Object.values(state.now).filter((each) => typeof each === 'number')) {
      assert.ok(Number.isFinite(value) && value >= 0);
    }
    assert.equal(typeof state.trust.keeper.bytes, 'number');
    assert.equal(typeof state.lateness.listsTruncated, 'boolean');
  });

  test('stateJson is the same as JSON text', () => {
    const keeper = busy();
    assert.equal(typeof keeper.stateJson(), 'string');
    assert.deepEqual(JSON.parse(keeper.stateJson()), keeper.state());
  });

  test('its sums add up, and agree with dueSummary, topK and size', () => {
    const keeper = busy();
    for (let step = 0; step < 12; step++) {
      keeper.setNow(START + step * 41 * MINUTE);
      const state = keeper.state();
      assertAddsUp(state);
      const summary = keeper.dueSummary();
      assert.equal(state.now.due, summary.due);
      assert.equal(state.trust.keeper.rows, keeper.size);
      assert.equal(state.trust.keeper.classes, keeper.classCount);
      const top = keeper.topK(10_000);
      assert.equal(top.rows.length + top.skippedLeased, state.now.due);
      assert.equal(state.lateness.oldestDueAt, (summary.firstDueMinute ?? 0) * MINUTE);
      const all = [...top.rows];
      assert.ok(state.now.dueChanged >= all.filter((row) => row.changed).length);
      const changed = state.now.changedByDemand;
      assert.equal(
        changed.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.due, 0),
        state.now.dueChanged,
      );
      const hours = state.coming.byHour.reduce(
        (/** @type {number} */ a, /** @type {number} */ b) => a + b,
        0,
      );
      assert.equal(state.coming.next24h, hours);
    }
  });

  test('lists are cut to maxListed, which listsTruncated says; the counts stay whole', () => {
    const keeper = manual({ maxListed: 3 });
    for (let i = 1; i <= 10; i++)
      keeper.apply(put(`key ${i}`, { ...DUE, effectiveInterval: i * HOUR }));
    const { lateness, now } = keeper.state();
    assert.equal(lateness.classes.length, 3);
    assert.deepEqual([lateness.listsTruncated, now.due], [true, 10]);
    assert.deepEqual(
      lateness.classes.map((/** @type {any} */ each) => each.cadenceMs),
      [HOUR, 2 * HOUR, 3 * HOUR],
      'latest first',
    );
  });

  test('flow counts what happened in each minute, and only minutes with something in them', () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b', LATER), put('c')]);
    keeper.apply(put('b', DUE));
    keeper.apply(put('a', LATER));
    keeper.apply(gone('c'));
    keeper.setNow(LATER.nextRenderTime);
    const minute = START / MINUTE;
    assert.deepEqual(keeper.state().flow.at(-1), {
      minute: minute + 60,
      cameDue: 1,
      added: 0,
      triggered: 0,
      rescheduled: 0,
      removed: 0,
    });
    keeper.setNow(START);
    keeper.setNow(START + 30 * MINUTE);
    assert.deepEqual(keeper.state().flow, [], 'the hour has passed them by');
  });

  test('the drain estimate is a number or null, and 0 where nothing is later than its cadence', () => {
    const keeper = manual();
    assert.equal(keeper.state().now.drainEtaMs, 0);
    keeper.apply(put('late', { nextRenderTime: START - 48 * HOUR }));
    assert.equal(keeper.state().now.drainEtaMs, null, 'it never drains');
  });
});

describe('QueueKeeper.open', () => {
  test('gives the same queue for the same name, and another for another', async () => {
    const [a, same, other] = ['one', 'one', 'two'].map((name) => QueueKeeper.open(`open ${name}`));
    a.apply(put('key'));
    await new Promise(setImmediate);
    assert.deepEqual([same.size, other.size], [1, 0]);
    a.close();
    assert.equal(same.size, 1, 'closing one handle leaves the others and the queue');
    assert.equal(QueueKeeper.open('open one').size, 1);
  });

  test('takes any well-formed name, the empty one included', () => {
    for (const name of ['', '__proto__', '\0', '\u4e2d'])
      assert.equal(QueueKeeper.open(name).size, 0);
  });

  test('a keeper of its own shares nothing', () => {
    const [a, b] = [manual(), manual()];
    a.apply(put('key'));
    assert.deepEqual([a.size, b.size], [1, 0]);
  });
});
