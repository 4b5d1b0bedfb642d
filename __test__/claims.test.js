'use strict';
// Claims as a host serves them: each job is held against the table.

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');
const { QueueKeeper } = require('..');
const { createClaims } = require('../lib/claims.js');

const START = Date.UTC(2026, 0, 5, 12);
const HOUR = 3_600_000;
const DUE = { nextRenderTime: START - HOUR };

/** A queue of due rows, and claims on a table that fails where it is told to. @param {number} rows */
function served(rows) {
  const keeper = new QueueKeeper({ now: START });
  const keys = Array.from({ length: rows }, (_, i) => `key ${i}`);
  keeper.applyAll(keys.map((id) => ({ type: 'put', id, value: DUE })));
  /** @type {(key: string) => boolean} */
  let fails = () => false;
  let reads = 0;
  const table = {
    /** @param {string} key */
    async get(key) {
      reads++;
      if (fails(key)) throw new Error('no disk');
      return { cacheKey: key, ...DUE };
    },
    put: async () => null,
    delete: async () => null,
  };
  const { claim } = createClaims({ keeper, table, defaultInterval: () => HOUR });
  return {
    keeper,
    keys,
    claim,
    /** @param {typeof fails} now */
    failing(now) {
      fails = now;
      reads = 0;
    },
    reads: () => reads,
    misses: () => keys.map((key) => keeper.explain(key).misses).reduce((sum, n) => sum + n, 0),
  };
}

/** As often as it takes for keys to be held, were these misses; each time after the grace. @param {ReturnType<typeof served>} host @param {number} limit */
async function claimAgain({ keeper, claim }, limit) {
  for (let times = 1; times <= 6; times++) {
    await claim(limit).catch(() => {});
    keeper.setNow(START + times * 6_000);
  }
}

describe('while the table cannot be read', () => {
  for (const limit of [1, 20, 1_000]) {
    test(`a claim of ${limit} is refused after some reads, and no page is held back for it`, async () => {
      const host = served(500);
      host.failing(() => true);
      await assert.rejects(host.claim(limit), {
        status: 503,
        message: 'the table cannot be read, claim again in a moment: no disk',
      });
      assert.ok(host.reads() < 30, `${host.reads()} reads`);
      assert.equal(host.keeper.state().now.inFlight, 0);
      await claimAgain(host, limit);
      assert.equal(host.misses(), 0);
      host.failing(() => false);
      assert.equal((await host.claim(limit)).jobs.length, Math.min(limit, 500));
      host.keeper.validate();
    });
  }
});

describe('rows that cannot be read', () => {
  test('are passed over, however many lie at the head, and held back when they stay so', async () => {
    const host = served(500);
    const bad = new Set(host.keys.slice(0, 100));
    host.failing((key) => bad.has(key));
    const { jobs, skippedUnreadable, skippedLeased } = await host.claim(5);
    assert.deepEqual(
      jobs.map(({ key }) => key),
      host.keys.slice(100, 105),
    );
    assert.deepEqual([skippedUnreadable, skippedLeased], [100, 100]);
    assert.equal(host.keeper.state().now.inFlight, 5);
    await claimAgain(host, 1);
    assert.equal(host.keeper.state().now.heldKeys, 100);
  });

  test('are held back where nothing else is due, too', async () => {
    const host = served(3);
    host.failing(() => true);
    const { jobs, skippedUnreadable } = await host.claim(2);
    assert.deepEqual([jobs, skippedUnreadable], [[], 3]);
    await claimAgain(host, 2);
    assert.equal(host.keeper.state().now.heldKeys, 3);
  });
});
