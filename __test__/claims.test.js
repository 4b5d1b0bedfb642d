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

/**
 * As often as it takes for keys to be held, were these misses; each time after the grace. What is given out is given back.
 *
 * @param {ReturnType<typeof served>} host
 * @param {number} limit
 * @returns how many jobs each claim gave; undefined where it was refused
 */
async function claimAgain({ keeper, claim }, limit) {
  const given = [];
  for (let times = 1; times <= 6; times++) {
    const claimed = await claim(limit).catch(() => null);
    for (const { token } of claimed?.jobs ?? []) keeper.giveBack(token);
    given.push(claimed?.jobs.length);
    keeper.setNow(START + times * 6_000);
  }
  return given;
}

describe('while the table cannot be read', () => {
  for (const limit of [1, 20, 1_000]) {
    for (const due of [5, 500]) {
      test(`a claim of ${limit} of ${due} is refused at once, and no page is held back for it`, async () => {
        const host = served(due);
        host.failing(() => true);
        await assert.rejects(host.claim(limit), {
          status: 503,
          message: 'the table cannot be read, claim again in a moment: no disk',
          headers: { 'retry-after': '2' },
        });
        assert.equal(host.reads(), 2);
        assert.equal(host.keeper.state().now.inFlight, 0);
        assert.deepEqual(await claimAgain(host, limit), Array(6).fill(undefined));
        assert.equal(host.misses(), 0);
        host.failing(() => false);
        assert.equal((await host.claim(limit)).jobs.length, Math.min(limit, due));
        host.keeper.validate();
      });
    }

    // Three rows at the head are damaged, which takes two reads each. The table fails in the first grant, and in the second.
    for (const good of new Set([limit >> 1, Math.max(0, limit - 3)])) {
      test(`from the middle of a claim of ${limit} on, the ${good} jobs before are handed out, and the rest is given back`, async () => {
        const host = served(2_000);
        const { keeper, keys } = host;
        const bad = new Set(keys.slice(0, 3));
        host.failing((key) => bad.has(key) || host.reads() > 6 + good);
        const claiming = host.claim(limit);
        if (good === 0) {
          await assert.rejects(claiming, { status: 503 });
        } else {
          const { jobs, complete, skippedUnreadable, skippedStale, skippedLeased } = await claiming;
          assert.deepEqual(
            jobs.map(({ key }) => key),
            keys.slice(3, 3 + good),
          );
          assert.deepEqual([complete, skippedUnreadable, skippedStale], [false, 3, 0]);
          // The damaged ones, where it had claimed again; its own never.
          assert.equal(skippedLeased, good > limit >> 1 ? 3 : 0);
        }
        assert.equal(keeper.state().now.inFlight, good);
        keeper.validate();
        // After the grace: the damaged ones are granted again.
        keeper.setNow(START + 6_000);
        host.failing((key) => bad.has(key));
        const { jobs } = await host.claim(limit);
        assert.deepEqual(
          jobs.map(({ key }) => key),
          keys.slice(3 + good, 3 + good + limit),
        );
        assert.equal(host.misses(), 3);
        keeper.validate();
      });
    }
  }

  test('a claim that was cut short is not complete, though all that is due had been granted to it', async () => {
    const host = served(5);
    host.failing(() => host.reads() > 2);
    const { jobs, complete, skippedUnreadable, skippedLeased } = await host.claim(20);
    assert.deepEqual(
      jobs.map(({ key }) => key),
      host.keys.slice(0, 2),
    );
    assert.deepEqual([complete, skippedUnreadable, skippedLeased], [false, undefined, 0]);
    assert.equal(host.keeper.state().now.inFlight, 2);
    host.failing(() => false);
    host.keeper.setNow(START + 6_000);
    assert.equal((await host.claim(20)).jobs.length, 3);
    assert.equal(host.misses(), 0);
  });
});

describe('rows that cannot be read', () => {
  for (const limit of [1, 20, 1_000]) {
    test(`are passed over by a claim of ${limit}, however many lie at the head, and held back when they stay so`, async () => {
      const host = served(2_000);
      const bad = new Set(host.keys.slice(0, 400));
      host.failing((key) => bad.has(key));
      const { jobs, skippedUnreadable, skippedLeased } = await host.claim(limit);
      assert.deepEqual(
        jobs.map(({ key }) => key),
        host.keys.slice(400, 400 + limit),
      );
      assert.deepEqual([skippedUnreadable, skippedLeased], [400, 400]);
      assert.equal(host.keeper.state().now.inFlight, limit);
      for (const { token } of jobs) host.keeper.giveBack(token);
      assert.deepEqual(await claimAgain(host, limit), Array(6).fill(limit));
      assert.equal(host.keeper.state().now.heldKeys, 400);
      host.keeper.validate();
    });
  }

  for (const limit of [1, 20, 1_000]) {
    test(`are held back where nothing else is due for a claim of ${limit}, too`, async () => {
      const host = served(3);
      const bad = new Set(host.keys);
      host.failing((key) => bad.has(key));
      const { jobs, skippedUnreadable } = await host.claim(limit);
      assert.deepEqual([jobs, skippedUnreadable], [[], 3]);
      assert.deepEqual(await claimAgain(host, limit), Array(6).fill(0));
      assert.equal(host.keeper.state().now.heldKeys, 3);
      host.keeper.validate();
    });
  }

  test('let others have their turns, however many there are', async () => {
    const host = served(10_000);
    const bad = new Set(host.keys);
    host.failing((key) => bad.has(key));
    let done = false;
    const claiming = host.claim(10_000).finally(() => {
      done = true;
    });
    let turns = 0;
    for (; !done; turns++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal((await claiming).skippedUnreadable, 10_000);
    assert.ok(turns > 2, `${turns}`);
    assert.equal(host.keeper.state().now.inFlight, 0);
  });
});
