'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, afterEach, before, beforeEach, describe, test } = require('node:test');
const { QueueKeeper } = require('..');
const { standBy } = require('../lib/arbiter.js');
const { Feeder } = require('../lib/feeder.js');
const { openTable, startWriter } = require('../lib/standalone/table.js');
const { assertKeeperEqualsTable } = require('./support/compare.js');
const { longestTurn } = require('./support/held-up.js');
const { until } = require('./support/until.js');

const MINUTE = 60_000;
const ROWS = 2_500;

/** @type {string} */
let folder;
/** @type {Awaited<ReturnType<typeof startWriter>>} */
let writer;
/** @type {ReturnType<typeof openTable>} */
let table;
/** Of the queue, as each thread has its own; the feeders have others. @type {any} */
let keeper;
/** @type {string} */
let name;
/** @type {InstanceType<typeof Feeder>[]} */
let feeders = [];

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-feeder-'));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

let number = 0;
beforeEach(async () => {
  const data = path.join(folder, String(number++));
  writer = await startWriter(data);
  table = openTable(data, writer.connect());
  await table.write(
    Array.from({ length: ROWS }, (_, i) => ({ key: key(i), row: { nextRenderTime: i * MINUTE } })),
  );
  name = `feeder-test-${number}`;
  keeper = QueueKeeper.open(name);
  feeders = [];
});
afterEach(async () => {
  await Promise.all(feeders.map((feeder) => feeder.stop()));
  keeper.close();
  await table.close();
  await writer.stop();
});

/** @param {number} i */
function key(i) {
  return `https://shop.example/${String(i).padStart(6, '0')}`;
}

/** @param {Partial<import('../lib/feeder.js').FeederOptions>} [options] */
function feed(options = {}) {
  const handle = /** @type {any} */ (QueueKeeper.open(name));
  const feeder = new Feeder({ keeper: handle, table, random: () => 0, ...options });
  feeders.push(feeder);
  return feeder.start();
}

/** @param {() => boolean} [also] */
function live(also = () => true) {
  return until('the keeper to be live', () => keeper.state().trust.live && also());
}

/** Once no event is under way any more. */
async function settled() {
  const probe = `probe:${Math.random()}`;
  await table.put(probe, { nextRenderTime: 1 });
  await until('the probe', () => keeper.describe(probe) !== null);
}

/**
 * The table with something wrong.
 *
 * @param {Partial<import('../lib/schedule-table.js').ScheduleTable>} faults
 * @returns {import('../lib/schedule-table.js').ScheduleTable}
 */
function faulty(faults) {
  return {
    subscribe: (listener, onClose) => table.subscribe(listener, onClose),
    walk: (range) => table.walk(range),
    get: (key) => table.get(key),
    put: (key, row) => table.put(key, row),
    delete: (key) => table.delete(key),
    ...faults,
  };
}

function gate() {
  /** @type {() => void} */
  let open = () => {};
  const opened = new Promise((resolve) => {
    open = () => resolve(undefined);
  });
  return { opened, open };
}

/**
 * Time in which nothing is waited for but what goes round by itself, or must not hang; with what was waited for, and
 * of that, what came first after each walk: where `pausesEnd` is false, that is waited for without end.
 */
function hasty({ pausesEnd = true } = {}) {
  const inEarnest = new Set([100, 5_000, 30_000]);
  /** @type {number[]} */
  const waits = [];
  /** @type {number[]} */
  const pauses = [];
  let hasWalked = false;
  /** @satisfies {Partial<import('../lib/feeder.js').FeederOptions>} */
  const options = {
    headCheckEveryMs: 30_000,
    time: {
      now: Date.now,
      mono: () => performance.now(),
      /** @param {number} ms @param {() => void} then */
      after(ms, then) {
        const isPause = hasWalked && !inEarnest.has(ms);
        if (isPause) hasWalked = false;
        if (!inEarnest.has(ms)) (isPause ? pauses : waits).push(ms);
        if (isPause && !pausesEnd) return () => {};
        const timer = setTimeout(then, inEarnest.has(ms) ? ms : 0);
        return () => clearTimeout(timer);
      },
      turn: () => new Promise((resolve) => setImmediate(resolve)),
    },
  };
  return {
    options,
    waits,
    pauses,
    walked: () => {
      hasWalked = true;
    },
  };
}

describe('loading', () => {
  test('serves claims from the first chunk on, is live at the end, and then keeps the table exactly', async () => {
    const second = gate();
    let chunks = 0;
    feed({
      table: faulty({
        walk: async (range) => {
          if (!range.keysOnly) chunks += 1;
          if (chunks === 2) await second.opened;
          return table.walk(range);
        },
      }),
    });
    assert.equal(keeper.status, 'unready');
    await until('the second chunk', () => chunks === 2);
    assert.equal(keeper.state().trust.phase, 'loading');
    assert.equal(keeper.claim(1).jobs[0].key, key(0));
    second.open();
    await live();
    await assertKeeperEqualsTable(keeper, table);
    assert.equal(keeper.state().trust.exact, true);
  });

  test('a write made while the walk is past its row, or short of it, is kept as written', async () => {
    const second = gate();
    let chunks = 0;
    feed({
      table: faulty({
        walk: async (range) => {
          const rows = await table.walk(range);
          if (!range.keysOnly) chunks += 1;
          // Read already, not yet handed over: what is written now is newer than these rows.
          if (chunks === 2) await second.opened;
          return rows;
        },
      }),
    });
    await until('the second chunk', () => chunks === 2);
    for (const i of [5, 1_500, 2_400]) await table.put(key(i), { nextRenderTime: 9 * MINUTE });
    for (const i of [6, 1_501, 2_401]) await table.delete(key(i));
    await settled();
    second.open();
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('a load learns from all over the table how keys are kept small, and goes on where it cannot', async () => {
    // In the order of the keys, each shop begins where the one before ends.
    const keys = Array.from({ length: 12_000 }, (_, i) => {
      const [shop, thing] = [Math.floor(i / 400), (i * 7_919) % 50].map((n) => (n + 99) ** 3);
      return `https://shop-${shop.toString(36)}.example/thing-${thing.toString(27)}/${i}`;
    });
    await table.write(keys.map((key) => ({ key, row: { nextRenderTime: MINUTE } })));
    const bytes = [];
    for (const listsKeys of [true, false]) {
      const own = QueueKeeper.open(`${name}-${listsKeys}`);
      /** @type {string[]} */
      const said = [];
      const feeder = new Feeder({
        keeper: own,
        table: faulty({
          walk: (range) =>
            range.keysOnly && !listsKeys ? Promise.reject(new Error('no')) : table.walk(range),
        }),
        log: (_, message) => said.push(message),
      });
      feeders.push(feeder);
      feeder.start();
      await until('the load', () => own.state().trust.live);
      await assertKeeperEqualsTable(own, table);
      assert.equal(
        said.some((message) => /no sample of the keys/.test(message)),
        !listsKeys,
      );
      bytes.push(own.bytes);
      await feeder.stop();
      own.close();
    }
    assert.ok(bytes[0] < bytes[1] * 0.8, `${bytes[0]} of ${bytes[1]} bytes`);
  });

  test('that sample is read a few places a turn, of very long keys, too, and by a load that is tried again only once', async () => {
    // Their order in the table is not that of strings.
    const long = Array.from(
      { length: 400 },
      (_, i) => `https://x.example/${'y'.repeat(2_500)}${i}`,
    );
    const short = Array.from({ length: 20_000 }, (_, i) => key(10_000 + i));
    await table.write([...long, ...short].map((key) => ({ key, row: { nextRenderTime: MINUTE } })));
    const own = QueueKeeper.open(`${name}-long`);
    let inTurn = 0;
    let most = 0;
    let sampled = 0;
    let failing = 3;
    let learnt = 0;
    /** @type {any} */
    const handle = new Proxy(own, {
      get(target, property) {
        const value = /** @type {any} */ (target)[property];
        if (property === 'learnKeys') learnt += 1;
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const feeder = new Feeder({
      keeper: handle,
      random: () => 0,
      table: faulty({
        walk: async (range) => {
          if (!range.keysOnly) {
            if (range.after && failing-- > 0) throw new Error('no disk');
            return table.walk(range);
          }
          sampled += 1;
          if (inTurn++ === 0) setImmediate(() => (inTurn = 0));
          most = Math.max(most, inTurn);
          return table.walk(range);
        },
      }),
    });
    feeders.push(feeder);
    feeder.start();
    await until('the load', () => own.state().trust.live);
    await assertKeeperEqualsTable(own, table);
    assert.ok(sampled > 100 && sampled < 1_100, `${sampled} places`);
    assert.ok(most <= 16, `${most} in one turn`);
    assert.equal(learnt, 1);
    await feeder.stop();
    own.close();
  });

  test('a store that fails for a moment in the middle of it is asked again, and all of it is kept', async () => {
    let calls = 0;
    /** @type {boolean | null} */
    let failing = null;
    const feeder = feed({
      table: faulty({
        walk: async (range) => {
          if (!range.keysOnly) calls += 1;
          if (calls > 1 && !range.keysOnly && failing === null) {
            failing = true;
            setTimeout(() => {
              failing = false;
            }, 50);
          }
          if (failing) throw new Error('no disk');
          return table.walk(range);
        },
        get: (key) => (failing ? Promise.reject(new Error('no disk')) : table.get(key)),
      }),
    });
    await live();
    assert.equal(keeper.state().trust.keeper.partialLoad, false);
    await assertKeeperEqualsTable(keeper, table);
    [calls, failing] = [0, null];
    const { partial, unreadableRows } = await feeder.verify();
    assert.deepEqual([partial, unreadableRows, failing], [false, 0, false]);
  });

  test('one that goes on failing makes it partial; it is walked again soon, not at the next hour', async () => {
    let failing = true;
    let opened = 0;
    let calls = 0;
    /** @type {any[]} */
    const walks = [];
    const clock = hasty();
    const feeder = feed({
      ...clock.options,
      table: faulty({
        subscribe: (listener, onClose) => {
          opened += 1;
          return table.subscribe(listener, onClose);
        },
        walk: (range) => {
          calls += 1;
          const most = 1 + walks.length;
          if (failing && calls > most) return Promise.reject(new Error('no disk'));
          return table.walk(range);
        },
        get: (key) => (failing ? Promise.reject(new Error('no disk')) : table.get(key)),
      }),
    });
    feeder.on('walked', ({ kind, report }) => {
      walks.push([kind, report.partial, keeper.state().trust.keeper.partialLoad]);
      if (walks.length === 1) assert.equal(keeper.claim(1).jobs.length, 1);
      clock.walked();
      // The next two come a chunk further each, the one after them to the end.
      calls = 0;
      failing = walks.length < 3;
    });
    await until('the last walk', () => walks.length >= 5);
    await live(() => keeper.state().trust.exact);
    await assertKeeperEqualsTable(keeper, table);
    assert.deepEqual(walks.slice(0, 4), [
      ['load', true, true],
      ['verify', true, true],
      ['verify', true, true],
      ['verify', false, false],
    ]);
    assert.deepEqual(clock.pauses.slice(0, 3), [125, 250, 500]);
    assert.equal(opened, 1, 'what was not read was not missed');
  });

  test('a table that cannot be read at all is a failed phase with its reason, until it can be', async () => {
    let failing = true;
    feed({
      table: faulty({
        walk: (range) => (failing ? Promise.reject(new Error('no disk')) : table.walk(range)),
      }),
    });
    await until('the failure', () => keeper.state().trust.phase === 'failed');
    assert.match(JSON.stringify(keeper.state().trust.keeper.lastError), /no disk/);
    failing = false;
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('a walk that hangs counts as failed', async () => {
    let hangs = 3;
    feed({
      callMs: 250,
      table: faulty({
        walk: (range) => (hangs-- > 0 ? new Promise(() => {}) : table.walk(range)),
      }),
    });
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('a subscription that cannot be opened is tried again', async () => {
    let failures = 3;
    feed({
      table: faulty({
        subscribe: (listener, onClose) =>
          failures-- > 0 ? Promise.reject(new Error('no')) : table.subscribe(listener, onClose),
      }),
    });
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });
});

describe('the event loop', () => {
  test('is not held up for more than 10 ms by a load, or by a verification, of 60,000 rows', async (t) => {
    const many = 60_000;
    for (let from = ROWS; from < many; from += 500) {
      const rows = Array.from({ length: Math.min(500, many - from) }, (_, i) => ({
        key: `${key(from + i)}/${'path/'.repeat(12)}|desktop`,
        row: { nextRenderTime: i * MINUTE, fromSitemap: true, changedAt: i % 5 ? null : i },
      }));
      await table.write(rows);
    }
    // What the code itself holds up is there in every round; what the machine does to this process is not.
    let [loading, verifying] = [Infinity, Infinity];
    for (let round = 0; round < 15 && Math.max(loading, verifying) > 10; round++) {
      const own = QueueKeeper.open(`${name}-${round}`);
      const feeder = new Feeder({ keeper: own, table });
      feeders.push(feeder);
      const load = await longestTurn(async () => {
        const walked = new Promise((resolve) => feeder.once('walked', resolve));
        feeder.start();
        await walked;
      });
      assert.equal(own.size, many);
      const verification = await longestTurn(() => feeder.verify());
      await feeder.stop();
      own.close();
      t.diagnostic(`load: ${load.told}; verification: ${verification.told}`);
      loading = Math.min(loading, load.ms);
      verifying = Math.min(verifying, verification.ms);
    }
    assert.ok(loading <= 10, `${loading} ms by a load`);
    assert.ok(verifying <= 10, `${verifying} ms by a verification`);
    const slow = await longestTurn(async () => {
      const before = process.cpuUsage();
      const ran = () => process.cpuUsage(before).user + process.cpuUsage(before).system;
      while (ran() < 30_000);
    });
    assert.ok(slow.ms > 10, `a turn of 30 ms of CPU time is told as ${slow.told}`);
  });

  test('is not held up by a table whose rows are slow: chunks get smaller, and grow again', async () => {
    let mono = 0;
    let slow = true;
    /** @type {number[]} */
    const limits = [];
    feed({
      chunkRows: 800,
      time: {
        now: Date.now,
        mono: () => mono,
        after: (ms, then) => {
          const timer = setTimeout(then, ms);
          return () => clearTimeout(timer);
        },
        turn: () => new Promise((resolve) => setImmediate(resolve)),
      },
      table: faulty({
        walk: (range) => {
          // A sample of the keys is read meanwhile.
          if (range.keysOnly) return table.walk(range);
          limits.push(range.limit);
          if (limits.length > 6) slow = false;
          mono += slow ? 20 : 1;
          return table.walk(range);
        },
      }),
    });
    await live();
    assert.deepEqual(limits.slice(0, 5), [800, 400, 200, 100, 100]);
    assert.deepEqual(limits.slice(7, 10), [200, 400, 800]);
    await assertKeeperEqualsTable(keeper, table);
  });

  test('a call of the table that fails when the feeder has ended is nobody’s unhandled rejection', async () => {
    /** @type {((error: Error) => void)[]} */
    const failing = [];
    const feeder = feed({
      table: faulty({
        walk: () =>
          new Promise((_, reject) => {
            failing.push(reject);
          }),
      }),
    });
    await until('the walk', () => failing.length > 0);
    /** @type {unknown[]} */
    const unhandled = [];
    const listener = (/** @type {unknown} */ error) => unhandled.push(error);
    process.on('unhandledRejection', listener);
    await feeder.stop();
    for (const fail of failing) fail(new Error('too late'));
    for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', listener);
    assert.deepEqual(unhandled, []);
  });
});

describe('unreadable rows', () => {
  /**
   * A store whose cursor dies on some rows, as Harper's does.
   *
   * @param {number[]} bad
   * @param {{ listsKeys?: boolean }} [options]
   */
  function dyingOn(bad, { listsKeys = true } = {}) {
    const keys = new Set(bad.map(key));
    return faulty({
      walk: async (range) => {
        const rows = await table.walk(range);
        if (range.keysOnly && listsKeys) return rows;
        if (rows.some((row) => keys.has(row.cacheKey))) throw new Error('cannot decode');
        return rows;
      },
      get: async (name) => {
        if (keys.has(name)) throw new Error('cannot decode');
        return table.get(name);
      },
    });
  }
  /** @type {[string, number[], number][]} */
  const cases = [
    ['one in the middle', [1_234], 1],
    ['the first', [0], 1],
    ['the last', [ROWS - 1], 1],
    ['several, with good ones between them', [100, 101, 1_200, 2_300], 4],
  ];
  for (const [name, bad, count] of cases) {
    test(`${name}: stepped over from both ends, all others are kept`, async () => {
      feed({ table: dyingOn(bad), ...hasty().options });
      await live();
      const { unreadableRows, partialLoad } = keeper.state().trust.keeper;
      assert.deepEqual([unreadableRows, partialLoad], [count, false]);
      await assertKeeperEqualsTable(keeper, table, { except: new Set(bad.map(key)) });
    });
  }

  test('where keys cannot be listed either, both ends are kept and the load is partial', async () => {
    feed({ table: dyingOn([1_000, 2_000], { listsKeys: false }) });
    await live();
    assert.equal(keeper.state().trust.keeper.partialLoad, true);
    assert.equal(keeper.state().trust.exact, false);
    assert.equal(keeper.size, 1_000 + (ROWS - 2_001));
  });

  /** @param {Parameters<typeof dyingOn>[1]} [options] @param {number} [verifyEveryMs] */
  async function damagedForGood(options, verifyEveryMs = 20_000) {
    const clock = hasty();
    let walks = 0;
    const feeder = feed({
      table: dyingOn([1_000, 2_000], options),
      ...clock.options,
      verifyEveryMs,
    });
    feeder.on('walked', () => {
      walks += 1;
      clock.walked();
    });
    await until('ten walks', () => walks >= 10);
    await feeder.stop();
    return { pauses: clock.pauses.slice(0, 9), waits: clock.waits };
  }

  test('they are asked for again, ever more slowly, and again by walks after one minute, two, four, and so on', async () => {
    const { pauses, waits } = await damagedForGood({}, 10 * MINUTE);
    const minutes = [1, 2, 4, 8, 10, 10, 10, 10, 10];
    assert.deepEqual(
      pauses,
      minutes.map((n) => n * MINUTE),
    );
    // From below, from above, and singly.
    assert.deepEqual(waits.slice(0, 9), [125, 250, 500, 125, 250, 500, 125, 250, 500]);
    assert.equal(keeper.state().trust.keeper.verify.unreadableRows, 2);
  });

  test('each is asked for again as often, however often those before it had to be', async () => {
    const clock = hasty();
    const failed = new Set();
    feed({
      ...clock.options,
      chunkRows: 1,
      table: faulty({
        walk: async (range) => {
          const { after, keysOnly } = range;
          if (!keysOnly && failed.size < 5 && !failed.has(after)) {
            failed.add(after);
            throw new Error('no disk');
          }
          return table.walk(range);
        },
      }),
    });
    await live();
    assert.deepEqual(clock.waits.slice(0, 5), [125, 125, 125, 125, 125]);
    await assertKeeperEqualsTable(keeper, table);
  });

  test('where they keep what lies between them from being read, it is walked ever more seldom, until the pause is the hour but for the jitter', async () => {
    const { pauses } = await damagedForGood({ listsKeys: false });
    assert.deepEqual(pauses, [125, 250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    const { unreadableRows, partialLoad, verify } = keeper.state().trust.keeper;
    assert.deepEqual([unreadableRows, partialLoad, verify.partial], [1, true, true]);
  });

  test('a verification that is asked for does not wait for that', async () => {
    const clock = hasty({ pausesEnd: false });
    let walks = 0;
    const feeder = feed({ table: dyingOn([1_000, 2_000], { listsKeys: false }), ...clock.options });
    feeder.on('walked', () => {
      walks += 1;
      clock.walked();
    });
    await until('the pause', () => clock.pauses.length === 1);
    feeder.verify().catch(() => {});
    await until('the walk', () => walks === 2);
  });

  test('rows that could not be read because the store failed are read soon, though their keys could be listed', async () => {
    let failing = true;
    let calls = 0;
    const clock = hasty();
    const feeder = feed({
      ...clock.options,
      table: faulty({
        walk: (range) => {
          if (range.keysOnly) return table.walk(range);
          calls += 1;
          if (failing && calls > 1) return Promise.reject(new Error('no disk'));
          return table.walk(range);
        },
        get: (key) => (failing ? Promise.reject(new Error('no disk')) : table.get(key)),
      }),
    });
    feeder.on('walked', () => {
      failing = false;
      clock.walked();
    });
    await live(() => keeper.state().trust.exact);
    await assertKeeperEqualsTable(keeper, table);
    assert.equal(clock.pauses[0], 125);
  });

  test('one that was kept before stays kept through a verification', async () => {
    const bad = new Set();
    const feeder = feed({
      table: faulty({
        walk: async (range) =>
          (await table.walk(range)).map((row) =>
            bad.has(row.cacheKey) ? { cacheKey: row.cacheKey, unreadable: 'damaged' } : row,
          ),
        get: async (name) => {
          if (bad.has(name)) throw new Error('damaged');
          return table.get(name);
        },
      }),
    });
    await live();
    bad.add(key(7));
    await feeder.verify();
    assert.equal(keeper.describe(key(7))?.minute, 7);
    assert.equal(keeper.state().trust.keeper.unreadableRows, 1);
  });
});

describe('verification', () => {
  test('finds what was missed, repairs it, and counts it; the next one finds nothing', async () => {
    let deaf = false;
    const feeder = feed({
      headCheckEveryMs: 1_000_000,
      table: faulty({
        subscribe: (listener, onClose) =>
          table.subscribe((event) => deaf || listener(event), onClose),
      }),
    });
    await live();
    deaf = true;
    for (let i = 0; i < 10; i++) await table.put(`new:${i}`, { nextRenderTime: 1 });
    for (let i = 0; i < 20; i++) await table.put(key(i), { nextRenderTime: 1e12 });
    for (let i = 100; i < 130; i++) await table.delete(key(i));
    await new Promise((resolve) => setImmediate(resolve));
    await feeder.verify();
    const { verify, exact } = keeper.state().trust.keeper;
    assert.deepEqual(
      [verify.missing, verify.mismatched, verify.phantoms, verify.repaired],
      [10, 20, 30, 60],
    );
    assert.equal(exact, false);
    await assertKeeperEqualsTable(keeper, table);
    await feeder.verify();
    assert.equal(keeper.state().trust.keeper.verify.repaired, 0);
    assert.equal(keeper.state().trust.exact, true);
  });

  test('says in the log what was missed, and apart from it what was gained and lost', async () => {
    let deaf = false;
    let peers = ['other.example'];
    /** @type {string[]} */
    const log = [];
    const feeder = feed({
      headCheckEveryMs: 20,
      peers: () => peers,
      log: (_, message) => log.push(message),
      table: faulty({
        subscribe: (listener, onClose) =>
          table.subscribe((event) => deaf || listener(event), onClose),
      }),
    });
    await live();
    assert.match(log[0], /^loaded \d+ rows in \d+ ms$/);
    deaf = true;
    // Too late in the queue for a head check.
    const [far] = keeper.topK(2_000).rows.slice(-1);
    await table.delete(far.key);
    await feeder.verify();
    assert.match(log[1], /: 1 missed writes put right \(0 missing, 0 different, 1 deleted\)$/);
    peers = ['third.example'];
    await until('the verification', () => log.some((line) => /gained/.test(line)));
    const last = log.find((line) => /gained/.test(line));
    assert.match(String(last), /: 0 missed writes put right; \d+ rows gained and \d+ lost/);
  });

  test('a subscription that is silent although rows were written is opened again', async () => {
    let deaf = false;
    let opened = 0;
    const feeder = feed({
      table: faulty({
        subscribe: (listener, onClose) => {
          opened += 1;
          deaf = false;
          return table.subscribe((event) => deaf || listener(event), onClose);
        },
      }),
    });
    await live();
    await feeder.verify();
    assert.equal(opened, 1);
    deaf = true;
    await table.put('missed', { nextRenderTime: 1 });
    await feeder.verify();
    await until('the new subscription', () => opened === 2);
    await table.put('heard', { nextRenderTime: 1 });
    await until('the event', () => keeper.describe('heard') !== null);
  });

  test('is not held up by reads that hang; a row that must be read and cannot be makes the state inexact', async () => {
    let hanging = false;
    const feeder = feed({
      readMs: 250,
      headCheckEveryMs: 10,
      table: faulty({ get: (name) => (hanging ? new Promise(() => {}) : table.get(name)) }),
    });
    await live(() => keeper.state().trust.exact);
    hanging = true;
    keeper.applyAll([{ type: 'patch', id: key(3) }]);
    await until(
      'the failed read',
      () => keeper.headCheck(0).length === 0 && keeper.state().trust.keeper.awaitingRead === 1,
    );
    for (let i = 100; i < 400; i++) await table.delete(key(i));
    await settled();
    for (let i = 100; i < 400; i++)
      keeper.apply({ type: 'put', id: key(i), value: { nextRenderTime: 1 } });
    assert.equal(keeper.dueSummary().rows, ROWS + 1, 'all of it applied before the walk begins');
    const report = await feeder.verify();
    assert.deepEqual([report.phantoms, report.unreadableRows], [0, 300]);
    assert.equal(keeper.state().trust.exact, false);
    hanging = false;
    await feeder.verify();
    assert.equal(keeper.state().trust.keeper.verify.phantoms, 300);
    await assertKeeperEqualsTable(keeper, table);
  });

  test('a write whose event is merely late is not told as missed, and no reason to subscribe again', async () => {
    /** @type {(() => void)[]} */
    const late = [];
    let isLate = false;
    let subscriptions = 0;
    /** @type {string[]} */
    const log = [];
    const feeder = feed({
      headCheckEveryMs: 1_000_000,
      log: (_, message) => log.push(message),
      table: faulty({
        subscribe: (listener, onClose) => {
          subscriptions += 1;
          return table.subscribe((event) => {
            if (isLate) late.push(() => listener(event));
            else listener(event);
          }, onClose);
        },
      }),
    });
    await live(() => keeper.state().trust.exact);
    isLate = true;
    await table.put(key(5), { nextRenderTime: 1e12 });
    await until('the event', () => late.length > 0);
    const verified = feeder.verify();
    await until('the walk', () => keeper.state().trust.keeper.verify?.repaired === 1);
    late[0]();
    const report = await verified;
    assert.deepEqual([report.repaired, report.late], [0, 1]);
    assert.equal(keeper.state().trust.exact, true);
    assert.equal(subscriptions, 1);
    assert.ok(log.at(-1)?.includes('0 missed writes put right'), log.at(-1));
  });

  test('one under way when the feeder ends is refused, like one that waits for its turn', async () => {
    const second = gate();
    let isVerifying = false;
    let walks = 0;
    const feeder = feed({
      table: faulty({
        walk: async (range) => {
          if (isVerifying) {
            walks += 1;
            await second.opened;
          }
          return table.walk(range);
        },
      }),
    });
    await live();
    isVerifying = true;
    const underWay = assert.rejects(feeder.verify(), /ended/);
    await until('the walk', () => walks > 0);
    const waiting = assert.rejects(feeder.verify(), /ended/);
    const stopped = feeder.stop();
    await waiting;
    await Promise.race([
      underWay,
      stopped.then(() => assert.fail('it was left without an answer')),
    ]);
    second.open();
  });

  test('comes by itself, every verifyEveryMs', async () => {
    let walks = 0;
    const feeder = feed({ verifyEveryMs: 20 });
    feeder.on('walked', () => {
      walks += 1;
    });
    await until('three walks', () => walks >= 3);
  });

  test('the head check repairs a stale row at the head of the queue, without a walk', async () => {
    let deaf = false;
    feed({
      headCheckEveryMs: 10,
      table: faulty({
        subscribe: (listener, onClose) =>
          table.subscribe((event) => deaf || listener(event), onClose),
      }),
    });
    await live();
    deaf = true;
    // Beyond the 64 that the checks since have looked at.
    const head = keeper.topK(1_500).rows[1_400].key;
    await table.put(head, { nextRenderTime: 1e13 });
    const before = keeper.state().trust.keeper.topCheck.checked;
    for (const { key: name } of keeper.topK(1_400).rows) keeper.apply({ type: 'delete', id: name });
    await until('the repair', () => keeper.describe(head)?.dueAt > 1e12);
    assert.ok(keeper.state().trust.keeper.topCheck.checked > before);
  });
});

describe('a closed subscription', () => {
  test('is opened again and followed by a walk, which finds what was written in between', async () => {
    /** @type {((why: Error) => void)[]} */
    const closers = [];
    let deaf = false;
    let opened = 0;
    const feeder = feed({
      table: faulty({
        subscribe: async (listener, onClose) => {
          opened += 1;
          deaf = false;
          closers.push(onClose);
          return table.subscribe((event) => deaf || listener(event), onClose);
        },
      }),
    });
    await live();
    await until('the first walk’s end', () => opened === 1);
    const phases = new Set();
    const watch = setInterval(() => phases.add(keeper.state().trust.phase), 1);
    const walked = new Promise((resolve) => feeder.once('walked', resolve));
    deaf = true;
    await table.put('missed', { nextRenderTime: 1 });
    closers[0](new Error('the store let go'));
    await walked;
    clearInterval(watch);
    assert.equal(opened, 2);
    assert.deepEqual([...phases], ['live']);
    assert.equal(keeper.describe('missed')?.minute, 0);
    await settled();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('makes the state inexact until its walk has ended, however long it takes to open it again', async () => {
    /** @type {((why: Error) => void)[]} */
    const closers = [];
    const open = gate();
    feed({
      table: faulty({
        subscribe: async (listener, onClose) => {
          closers.push(onClose);
          if (closers.length > 1) await open.opened;
          return table.subscribe(listener, onClose);
        },
      }),
    });
    await live(() => keeper.state().trust.exact);
    closers[0](new Error('the store let go'));
    await until('the second try', () => closers.length === 2);
    assert.equal(keeper.state().trust.live, true);
    assert.equal(keeper.state().trust.exact, false);
    open.open();
    await until('the walk', () => keeper.state().trust.exact);
  });

  test('is followed by one more walk where the first put something right: then the state is exact', async () => {
    /** @type {((why: Error) => void)[]} */
    const closers = [];
    const open = gate();
    const feeder = feed({
      headCheckEveryMs: 1_000_000,
      table: faulty({
        subscribe: async (listener, onClose) => {
          closers.push(onClose);
          if (closers.length > 1) await open.opened;
          return table.subscribe(listener, onClose);
        },
      }),
    });
    await live(() => keeper.state().trust.exact);
    /** @type {number[]} */
    const repaired = [];
    feeder.on('walked', ({ report }) => repaired.push(report.repaired));
    closers[0](new Error('the store let go'));
    await until('the second try', () => closers.length === 2);
    for (let i = 0; i < 5; i++) await table.put(`new:${i}`, { nextRenderTime: 1 });
    open.open();
    await until('the state to be exact', () => keeper.state().trust.exact);
    // The walk is told of after it has ended.
    await until('the second walk', () => repaired.length > 1);
    assert.deepEqual(repaired, [5, 0]);
  });

  test('one that never lasts is opened again ever more slowly', async () => {
    /** @type {number[]} */
    const opened = [];
    let mono = 0;
    /** @type {Set<{ at: number, then: () => void }>} */
    const timers = new Set();
    feed({
      headCheckEveryMs: 1e9,
      time: {
        now: Date.now,
        mono: () => mono,
        after(ms, then) {
          const timer = { at: mono + ms, then };
          timers.add(timer);
          return () => timers.delete(timer);
        },
        turn: () => new Promise((resolve) => setImmediate(resolve)),
      },
      table: faulty({
        subscribe: async (listener, onClose) => {
          opened.push(mono);
          const subscription = await table.subscribe(listener, onClose);
          setImmediate(() => onClose(new Error('the store let go')));
          return subscription;
        },
      }),
    });
    await until('ten of them', () => {
      const [next] = [...timers].filter(({ at }) => at < mono + 1e6).sort((a, b) => a.at - b.at);
      if (next) {
        timers.delete(next);
        mono = Math.max(mono, next.at);
        next.then();
      }
      return opened.length >= 10;
    });
    const pauses = opened.slice(1).map((at, i) => at - opened[i]);
    assert.ok(pauses[8] > 20 * pauses[0], String(pauses));
  });

  test('the real table’s, when its writing thread dies', async () => {
    feed();
    await live();
    await writer.worker.terminate();
    writer = await startWriter(path.join(folder, String(number - 1)));
    table.attach(writer.connect());
    await table.put('afterwards', { nextRenderTime: 1 });
    await until('the row', () => keeper.describe('afterwards') !== null);
  });
});

describe('taking over', () => {
  test('the new feeder deposes the old, which ends without a word; claims go on, nothing is loaded anew', async () => {
    const first = feed();
    await live();
    const deposed = new Promise((resolve) => first.once('deposed', resolve));
    const { epoch } = keeper.state().trust.keeper;
    const second = feed();
    assert.ok(keeper.claim(5).jobs.length === 5);
    const walked = new Promise((resolve) => second.once('walked', resolve));
    await deposed;
    assert.equal((await walked).kind, 'verify');
    assert.equal(keeper.state().trust.keeper.epoch, epoch + 1);
    assert.equal(keeper.state().trust.phase, 'live');
    await table.put('after', { nextRenderTime: 1 });
    await until('the row', () => keeper.describe('after') !== null);
    await assertKeeperEqualsTable(keeper, table);
  });

  /** Threads that stand by on a clock moved by hand, by the patience that each has. */
  function standing(/** @type {number[]} */ patience) {
    const name = `standing by ${process.pid} ${standing.count++}`;
    const feeding = QueueKeeper.open(name, { now: 0 });
    let mono = 0;
    /** @type {Map<() => void, number>} */
    const timers = new Map();
    const time = {
      mono: () => mono,
      after: (/** @type {number} */ ms, /** @type {() => void} */ then) => {
        timers.set(then, mono + ms);
        return () => timers.delete(then);
      },
    };
    /** @type {number[]} */
    const taken = [];
    const leave = patience.map((patienceMs, i) =>
      standBy({ keeper: feeding, time, patienceMs, takeOver: () => taken.push(i) }),
    );
    return {
      feeding,
      taken,
      leave() {
        for (const go of leave) go();
      },
      pass(/** @type {number} */ ms) {
        mono += ms;
        feeding.setNow(mono);
        for (const [then, at] of [...timers]) {
          if (at <= mono && timers.delete(then)) then();
        }
      },
    };
  }
  standing.count = 0;

  test('whoever notices first that the feeder is silent takes over, and nobody else', () => {
    const { feeding, taken, pass, leave } = standing([0, 0, 0]);
    assert.deepEqual(taken.splice(0), [0], 'nobody feeds: the first that looks does');
    feeding.takeFeeder();
    for (let i = 0; i < 20; i++) {
      feeding.beat();
      pass(500);
    }
    assert.deepEqual(taken, []);
    for (let i = 0; i < 9; i++) pass(500);
    assert.deepEqual(taken, [], 'five seconds are not more than five seconds');
    pass(500);
    assert.deepEqual(taken, [0]);
    // The whole process was asleep: nobody is to blame.
    pass(3_600_000);
    assert.deepEqual(taken, [0]);
    feeding.vacate();
    pass(500);
    assert.equal(taken.length, 2, 'a place that was given up is taken at once');
    leave();
    feeding.vacate();
    for (let i = 0; i < 40; i++) pass(500);
    assert.equal(taken.length, 2);
  });

  test('a place that nobody has is left to the impatient for as long as the patient wait', () => {
    const { feeding, taken, pass, leave } = standing([5_000, 0]);
    assert.deepEqual(taken.splice(0), [1]);
    feeding.takeFeeder();
    feeding.beat();
    pass(500);
    leave();
    feeding.vacate();
    const patient = standing([5_000]);
    for (let i = 0; i < 9; i++) patient.pass(500);
    assert.deepEqual(patient.taken, []);
    patient.pass(500);
    assert.deepEqual(patient.taken, [0]);
    patient.leave();
  });

  test('a thread that can no longer ask stands by no longer, and says so', () => {
    /** @type {any[]} */
    const errors = [];
    const closed = new QueueKeeper();
    closed.close();
    standBy({
      keeper: closed,
      takeOver: () => assert.fail('it cannot know that'),
      onError: (error) => errors.push(/** @type {any} */ (error).code),
    });
    assert.deepEqual(errors, ['E_CLOSED']);
  });

  test('one that does not see its peers yet subscribes at once all the same: the queue knows its nodes', async () => {
    feed({ peers: () => ['other'] });
    await live(() => keeper.state().trust.exact);
    const ring = keeper.state().trust.keeper.ring;
    let subscriptions = 0;
    feed({
      peers: () => null,
      table: faulty({
        subscribe: (listener, onClose) => {
          subscriptions += 1;
          return table.subscribe(listener, onClose);
        },
      }),
    });
    await until('the subscription', () => subscriptions === 1);
    await live(() => keeper.state().trust.exact);
    assert.deepEqual(keeper.state().trust.keeper.ring, ring);
  });

  test('a deposed feeder changes no nodes any more, and says so to whoever asks it', async () => {
    const first = feed();
    await live();
    feed();
    const ring = keeper.state().trust.keeper.ring;
    await assert.rejects(first.configure({ nodes: ['other'] }));
    await first.stop();
    await assert.rejects(first.configure({ nodes: ['other'] }), /ended/);
    assert.deepEqual(keeper.state().trust.keeper.ring, ring);
  });

  test('a feeder beats as long as it runs, and gives its place up when it stops', async () => {
    assert.equal(keeper.feederSilenceMs, Number.POSITIVE_INFINITY);
    const handle = QueueKeeper.open(name);
    const feeder = feed({ keeper: handle, pulse: handle });
    await until('a pause', () => keeper.feederSilenceMs > 50);
    await until('the next beat', () => keeper.feederSilenceMs < 50);
    await feeder.stop();
    assert.equal(keeper.feederSilenceMs, Number.POSITIVE_INFINITY);
  });

  test('one that was stopped in the middle of its load is followed by one that loads', async () => {
    const second = gate();
    const first = feed({
      table: faulty({
        walk: async (range) => {
          if (range.after !== null) await second.opened;
          return table.walk(range);
        },
      }),
    });
    await until('the first chunk', () => keeper.size === 1_000);
    await first.stop();
    feed();
    await live();
    await assertKeeperEqualsTable(keeper, table);
    second.open();
  });
});

describe('status', () => {
  test('a row that becomes due by a write is announced at once, and so are pause and resume', async () => {
    await Promise.all(Array.from({ length: ROWS }, (_, i) => table.delete(key(i))));
    /** @type {string[]} */
    const said = [];
    feed().on('status', (status) => said.push(status));
    await until('empty', () => said.at(-1) === 'empty');
    await table.put('k', { nextRenderTime: 1 });
    await until('queued', () => said.at(-1) === 'queued');
    keeper.pause();
    await until('paused', () => said.at(-1) === 'paused');
    keeper.resume();
    await until('queued again', () => said.at(-1) === 'queued');
    assert.deepEqual(said.slice(-4), ['empty', 'queued', 'paused', 'queued']);
  });

  test('the stop is announced, and a listener that throws is the host’s own affair', async () => {
    /** @type {string[]} */
    const statuses = [];
    /** @type {string[]} */
    const log = [];
    const feeder = feed({ log: (_, message) => log.push(message) });
    feeder.on('status', (status) => {
      statuses.push(status);
      throw new Error('a bug of the host');
    });
    await live(() => statuses.includes('queued'));
    await feeder.stop({ phase: 'stopped' });
    assert.deepEqual(statuses.slice(-2), ['queued', 'unready']);
    assert.ok(log.some((line) => /a listener to the status failed: a bug of the host/.test(line)));
  });

  test('a row that becomes due by the clock is announced at its minute, not before', async () => {
    let now = 1_000 * MINUTE - 40;
    keeper.close();
    keeper = new QueueKeeper({ now });
    await Promise.all(Array.from({ length: ROWS }, (_, i) => table.delete(key(i))));
    await table.put('k', { nextRenderTime: 1_000 * MINUTE });
    /** @type {string[]} */
    const said = [];
    feed({
      keeper,
      time: {
        now: () => now,
        mono: () => performance.now(),
        after: (ms, then) => {
          const timer = setTimeout(then, ms);
          return () => clearTimeout(timer);
        },
        turn: () => new Promise((resolve) => setImmediate(resolve)),
      },
    }).on('status', (status) => said.push(status));
    await until('empty', () => said.at(-1) === 'empty');
    now = 1_000 * MINUTE;
    keeper.setNow(now);
    await until('queued', () => said.at(-1) === 'queued');
  });

  /** A feeder the events of which are given by hand. @param {Partial<import('../lib/feeder.js').FeederOptions>} [options] */
  async function fedByHand(options = {}) {
    /** @type {(event: any) => void} */
    let give = () => {};
    const feeder = feed({
      table: faulty({
        subscribe: async (listener) => {
          give = listener;
          return { end: () => {} };
        },
      }),
      ...options,
    });
    return { feeder, give: (/** @type {any} */ event) => give(event) };
  }

  test('events that leave it as it was are not asked about', async () => {
    const own = /** @type {any} */ (QueueKeeper.open(name));
    let looks = 0;
    const handle = new Proxy(own, {
      get(target, property) {
        const value = /** @type {any} */ (target)[property];
        if (property === 'status') looks += 1;
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const { give } = await fedByHand({ keeper: handle });
    await live(() => keeper.status === 'queued');
    looks = 0;
    for (let i = 0; i < 2_000; i++) {
      give({ type: 'put', id: key(i % ROWS), value: { nextRenderTime: i } });
      await new Promise(setImmediate);
    }
    assert.ok(looks < 1_000, `${looks} looks`);
    assert.equal(keeper.describe(key(0)).minute, 0);
    own.close();
  });

  test('an event just before the minute in which its row comes due has that minute waited for', async () => {
    let now = 1_000 * MINUTE - 40;
    keeper.close();
    keeper = new QueueKeeper({ now });
    await Promise.all(Array.from({ length: ROWS }, (_, i) => table.delete(key(i))));
    /** @type {{ ms: number, then: () => void }[]} */
    const timers = [];
    const { feeder, give } = await fedByHand({
      keeper,
      time: {
        now: () => now,
        mono: () => performance.now(),
        after: (ms, then) => {
          timers.push({ ms, then });
          return () => {};
        },
        turn: () => new Promise((resolve) => setImmediate(resolve)),
      },
    });
    /** @type {string[]} */
    const said = [];
    feeder.on('status', (status) => said.push(status));
    await until('empty', () => said.at(-1) === 'empty');
    // From here on no loop of the feeder's goes round any more: it is the event that has it look.
    timers.length = 0;
    give({ type: 'put', id: 'k', value: { nextRenderTime: 1_000 * MINUTE } });
    await until('the timer', () => timers.length === 1);
    assert.equal(timers[0].ms, 40);
    now = 1_000 * MINUTE;
    keeper.setNow(now);
    timers[0].then();
    await until('queued', () => said.at(-1) === 'queued');
  });
});

describe('peers', () => {
  test('are waited for before the load, and taken over when they are seen', async () => {
    /** @type {string[] | null} */
    let peers = null;
    let walks = 0;
    feed({
      peers: () => peers,
      table: faulty({
        walk: (range) => {
          walks += 1;
          return table.walk(range);
        },
      }),
    });
    await until('the phase', () => keeper.state().trust.phase === 'waiting-for-peers');
    assert.equal(walks, 0);
    peers = ['other'];
    await live();
    assert.ok(keeper.size > 0.3 * ROWS && keeper.size < 0.7 * ROWS, `${keeper.size} of ${ROWS}`);
  });

  test('are waited for no longer than their grace', async () => {
    feed({ peers: () => null, peersWaitMs: 300 });
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('that change are followed, and the rows gained are not counted as missed', async () => {
    let peers = ['other'];
    feed({ peers: () => peers, headCheckEveryMs: 20 });
    await live();
    peers = ['third'];
    await until('the verification', () => keeper.state().trust.keeper.verify !== null);
    const { verify } = keeper.state().trust.keeper;
    assert.ok(verify.gained > 0);
    assert.equal(verify.missing, 0);
    await live(() => keeper.state().trust.exact);
  });
});

describe('the snapshot', () => {
  test('saved on a stop, it is there before the first chunk of the next process', async () => {
    const snapshot = path.join(folder, 'queue.snapshot');
    const first = feed({ snapshot });
    await live();
    await first.stop({ phase: 'stopped' });
    keeper.close();
    name += '-restarted';
    keeper = QueueKeeper.open(name);
    const walk = gate();
    feed({
      snapshot,
      table: faulty({
        walk: async (range) => {
          await walk.opened;
          return table.walk(range);
        },
      }),
    });
    await until('the rows', () => keeper.size === ROWS);
    assert.equal(keeper.claim(1).jobs.length, 1);
    assert.equal(keeper.state().trust.phase, 'loading');
    assert.equal(keeper.state().trust.keeper.unverifiedRows, ROWS);
    walk.open();
    await live();
    await assertKeeperEqualsTable(keeper, table);
  });

  test('one that could not be saved is tried again, though nothing has changed since', async () => {
    const snapshot = path.join(folder, 'not-there-yet', 'queue.snapshot');
    /** @type {string[]} */
    const log = [];
    feed({ snapshot, snapshotEveryMs: 10, log: (_, message) => log.push(message) });
    await until('a warning', () => log.some((line) => /was not saved/.test(line)));
    fs.mkdirSync(path.dirname(snapshot));
    await until('the file', () => fs.existsSync(snapshot));
  });

  test('one that is damaged is told of and does not matter', async () => {
    const snapshot = path.join(folder, 'damaged.snapshot');
    fs.writeFileSync(snapshot, 'not a snapshot');
    /** @type {string[]} */
    const log = [];
    feed({ snapshot, log: (_, message) => log.push(message) });
    await live();
    await assertKeeperEqualsTable(keeper, table);
    assert.ok(log.some((line) => /no snapshot was read/.test(line)));
  });
});

describe('the end', () => {
  test('after stop nothing is fed and nothing keeps the process', async () => {
    const feeder = feed();
    await live();
    await feeder.stop();
    await feeder.stop();
    const { version } = keeper;
    let heard = 0;
    const subscription = await table.subscribe(
      () => {
        heard += 1;
      },
      () => {},
    );
    await table.put('late', { nextRenderTime: 1 });
    await until('the event, elsewhere', () => heard === 1);
    subscription.end();
    assert.equal(keeper.version, version);
    await assert.rejects(feeder.verify(), /does not run/);
  });
});
