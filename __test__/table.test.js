const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const { after, describe, test } = require('node:test');
const { Worker } = require('node:worker_threads');
const { openEnvironment } = require('../lib/standalone/environment.js');
const { encodeKey } = require('../lib/standalone/row-codec.js');
const { openTable, startWriter } = require('../lib/standalone/table.js');
const { until } = require('./support/until.js');

/** @type {string[]} */
const folders = [];
after(() => {
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true });
});

function newFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-table-'));
  folders.push(folder);
  return folder;
}

/**
 * @param {(context: { folder: string, table: ReturnType<typeof openTable>, writer: Awaited<ReturnType<typeof startWriter>> }) => Promise<void>} body
 * @param {{ folder?: string, windowEvents?: number }} [options]
 */
async function withTable(body, { folder = newFolder(), ...limits } = {}) {
  const writer = await startWriter(folder, limits);
  const table = openTable(folder, writer.connect());
  try {
    await body({ folder, table, writer });
  } finally {
    await table.close();
    await writer.stop();
  }
}

const ODD_KEYS = {
  'an ordinary URL': 'https://shop.example/a?b=c|mobile',
  'the empty string': '',
  'with NUL': 'https://shop.example/\0/\0',
  'with lone surrogates': '\ud800 and \udfff',
  'surrogates the wrong way round': '\udc00\ud800',
  'with a pair': 'https://shop.example/😀',
  __proto__: '__proto__',
  'not normalised': 'e\u0301 é',
  'of 1,900 bytes': 'x'.repeat(1_900),
  'of 1,901 bytes': 'x'.repeat(1_901),
  'of 1,901 bytes, another': `${'x'.repeat(1_900)}y`,
  'of 634 three-byte characters': '日'.repeat(634),
  'long with lone surrogates': '\ud800'.repeat(1_000),
  'long, and different only in a lone surrogate': `${'\ud800'.repeat(999)}\ud801`,
  'of 1 MiB': `https://shop.example/${'é'.repeat(2 ** 20)}`,
};

describe('keys', () => {
  test('any string is kept exactly, read, walked over from both ends, heard of and deleted', async () => {
    await withTable(async ({ table }) => {
      /** @type {string[]} */
      const heard = [];
      const subscription = await table.subscribe(
        (event) => heard.push(`${event.type} ${event.id}`),
        (why) => assert.fail(why),
      );
      const keys = Object.values(ODD_KEYS);
      for (const [index, key] of keys.entries()) await table.put(key, { nextRenderTime: index });
      for (const [index, key] of keys.entries()) {
        assert.equal((await table.get(key))?.nextRenderTime, index, Object.keys(ODD_KEYS)[index]);
        assert.equal((await table.get(key))?.cacheKey, key);
      }
      for (const reverse of [false, true]) {
        for (const limit of [1, 3, 1_000]) {
          const walked = await walkAll(table, { limit, reverse });
          assert.deepEqual(new Set(walked), new Set(keys));
          assert.equal(walked.length, keys.length);
        }
      }
      for (const key of keys) assert.equal((await table.delete(key))?.existed, true);
      assert.equal(table.count(), 0);
      await until('all events', () => heard.length === 2 * keys.length);
      subscription.end();
      assert.deepEqual(heard, [
        ...keys.map((key) => `put ${key}`),
        ...keys.map((key) => `delete ${key}`),
      ]);
    });
  });
});

/**
 * @param {ReturnType<typeof openTable>} table
 * @param {{ limit: number, reverse: boolean }} options
 */
async function walkAll(table, { limit, reverse }) {
  const keys = [];
  /** @type {string | null} */
  let cursor = null;
  for (;;) {
    const rows = await table.walk(
      reverse ? { before: cursor, limit, reverse } : { after: cursor, limit },
    );
    keys.push(...rows.map((row) => row.cacheKey));
    if (rows.length < limit) return keys;
    cursor = rows[rows.length - 1].cacheKey;
  }
}

describe('rows', () => {
  test('every field comes back, a field named __proto__ included; the version is the store’s own', async () => {
    await withTable(async ({ table }) => {
      const row = JSON.parse(
        '{"nextRenderTime":1.5,"fromSitemap":false,"x":{"y":["z"]},"__proto__":1,"version":99}',
      );
      await table.put('k', row);
      const read = await table.get('k');
      assert.deepEqual(Object.entries(read ?? {}).sort(), [
        ['__proto__', 1],
        ['cacheKey', 'k'],
        ['fromSitemap', false],
        ['nextRenderTime', 1.5],
        ['version', read?.version],
        ['x', { y: ['z'] }],
      ]);
    });
  });

  test('a value that JSON would change is refused, and nothing is written', async () => {
    await withTable(async ({ table }) => {
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY, new Date(), 1n, () => {}]) {
        await assert.rejects(table.put('k', { nextRenderTime: value }), TypeError);
      }
      assert.equal(await table.get('k'), null);
    });
  });

  test('a write on condition is done at the version named, and only there', async () => {
    await withTable(async ({ table }) => {
      const first = Number((await table.put('k', { a: 1 }, { ifVersion: 0 }))?.version);
      assert.equal(await table.put('k', { a: 2 }, { ifVersion: 0 }), null);
      const second = await table.put('k', { a: 3 }, { ifVersion: first });
      assert.ok(second && second.version > first);
      assert.equal(await table.delete('k', { ifVersion: first }), null);
      assert.equal((await table.get('k'))?.a, 3);
    });
  });

  test('a row of another node is taken where nothing newer is there, and keeps the time it was written at', async () => {
    await withTable(async ({ table }) => {
      for (const key of ['k', '\ud800', 'é'.repeat(3_000)]) {
        const old = { key, row: { a: 1 }, written: 5 };
        const newer = { key, row: { a: 2 }, written: 6 };
        assert.ok((await table.write([old]))[0]);
        assert.deepEqual([table.writtenAt(key), (await table.get(key))?.a], [5, 1]);
        const [version] = await table.write([newer]);
        assert.ok(version && version.version > 6);
        assert.deepEqual(await table.write([old, newer]), [null, null]);
        const { version: of, ...row } = (await table.get(key)) ?? {};
        assert.deepEqual([of, row], [version.version, { a: 2, cacheKey: key }]);
        assert.equal(table.writtenAt(key), 6);
        await table.put(key, { a: 3 });
        assert.ok(table.writtenAt(key) >= (Date.now() - 60_000) * 1_024, 'written here: now');
        assert.deepEqual(await table.write([newer]), [null]);
        assert.equal((await table.get(key))?.a, 3);
      }
      const listed = await table.walk({ limit: 10 });
      assert.deepEqual(
        listed.map(({ a }) => a),
        [3, 3, 3],
      );
    });
  });

  test('versions grow over deletions and restarts', async () => {
    const folder = newFolder();
    /** @type {number[]} */
    const versions = [];
    for (let round = 0; round < 3; round++) {
      await withTable(
        async ({ table }) => {
          versions.push((await table.put('k', {}))?.version ?? 0);
          versions.push((await table.delete('k'))?.version ?? 0);
        },
        { folder },
      );
    }
    assert.equal(new Set(versions).size, 6);
    assert.deepEqual(
      versions,
      [...versions].sort((a, b) => a - b),
    );
  });

  test('what was acknowledged is read at once, in this thread’s same turn too', async () => {
    await withTable(async ({ table, folder, writer }) => {
      const other = openTable(folder, writer.connect());
      for (let i = 0; i < 200; i++) {
        other.getSync('k');
        await table.put('k', { i });
        assert.equal(other.getSync('k')?.i, i);
        assert.equal(table.getSync('k')?.i, i);
      }
      await other.close();
    });
  });

  test('an unreadable row keeps its place in a walk, and get rejects for it', async () => {
    const folder = newFolder();
    const long = `https://shop.example/${'x'.repeat(3_000)}`;
    await withTable(
      async ({ table }) => {
        await table.write(
          ['a', 'b', 'c', long].map((key) => ({ key, row: { nextRenderTime: 1 } })),
        );
      },
      { folder },
    );
    const { root, rows } = openEnvironment(folder);
    for (const key of ['b', long]) {
      const bytes = Buffer.from(/** @type {Buffer} */ (rows.get(encodeKey(key))));
      bytes[bytes.length - 1] = 0x20;
      await rows.put(encodeKey(key), bytes);
    }
    await root.close();
    await withTable(
      async ({ table }) => {
        const walked = await table.walk({ limit: 10 });
        assert.deepEqual(
          walked.map((row) => [row.cacheKey, row.unreadable === undefined]),
          [
            ['a', true],
            ['b', false],
            ['c', true],
            [long, false],
          ],
        );
        await assert.rejects(table.get('b'), { code: 'E_TABLE_READ' });
        await table.put('b', { nextRenderTime: 2 });
        assert.equal((await table.get('b'))?.nextRenderTime, 2);
      },
      { folder },
    );
  });
});

describe('several threads', () => {
  test('four workers’ writes all reach the subscriber, each key’s in order, the last the row that is stored', async () => {
    await withTable(async ({ table, folder, writer }) => {
      const rounds = 60;
      const keys = Array.from({ length: 25 }, (_, i) => `https://shop.example/shared/${i}`);
      /** @type {Map<string, { version: number, value: any }[]>} */
      const heard = new Map(keys.map((key) => [key, []]));
      let count = 0;
      let lastTime = 0;
      const subscription = await table.subscribe(
        ({ id, version = 0, value, localTime = 0 }) => {
          heard.get(id)?.push({ version, value });
          count += 1;
          assert.ok(localTime > lastTime);
          lastTime = localTime;
        },
        (why) => assert.fail(why),
      );
      await Promise.all(
        ['a', 'b', 'c', 'd'].map((name) => runThread({ folder, writer, name, keys, rounds })),
      );
      await until('all events', () => count === 4 * rounds * keys.length);
      subscription.end();
      for (const [key, events] of heard) {
        assert.equal(events.length, 4 * rounds);
        for (let i = 1; i < events.length; i++)
          assert.ok(events[i].version > events[i - 1].version);
        for (const name of ['a', 'b', 'c', 'd']) {
          const own = events.filter((event) => event.value.by === name);
          assert.deepEqual(
            own.map((event) => event.value.nextRenderTime),
            Array.from({ length: rounds }, (_, i) => i + 1),
          );
        }
        assert.deepEqual(await table.get(key), events[events.length - 1].value);
      }
    });
  });

  test('workers terminated at any moment take nothing with them', async () => {
    await withTable(async ({ table, folder, writer }) => {
      for (let i = 0; i < 500; i++) await table.put(`row:${i % 250}`, { nextRenderTime: i });
      for (let round = 0; round < 8; round++) {
        const workers = [0, 1, 2].map((i) =>
          newThread({ folder, writer, name: `w${i}`, keys: [], rounds: 0 }),
        );
        await Promise.all(
          workers.map((worker) => new Promise((resolve) => worker.once('message', resolve))),
        );
        for (let i = 0; i < 5 + round; i++) await table.put('mine', { nextRenderTime: i });
        await Promise.all(workers.map((worker) => worker.terminate()));
        assert.equal((await table.get('mine'))?.nextRenderTime, 4 + round);
      }
      const walked = await walkAll(table, { limit: 100, reverse: false });
      assert.equal(walked.filter((key) => key.startsWith('row:')).length, 250);
    });
  });

  test('a subscriber that falls behind is closed and told, and may subscribe again', async () => {
    await withTable(
      async ({ table, folder, writer }) => {
        /** @type {Error[]} */
        const closed = [];
        let heard = 0;
        await table.subscribe(
          () => {
            heard += 1;
          },
          (why) => closed.push(why),
        );
        // All of it is committed before this thread, which subscribes, reads its first message.
        const thread = newThread({ folder, writer, name: 'a', keys: ['k'], rounds: 3_000 });
        const done = new Promise((resolve) => thread.once('exit', resolve));
        const wait = new Int32Array(new SharedArrayBuffer(4));
        while (table.getSync('k')?.nextRenderTime !== 3_000) Atomics.wait(wait, 0, 0, 20);
        await until('the close', () => closed.length === 1);
        await done;
        assert.match(closed[0].message, /fell \d+ events behind/);
        assert.ok(heard < 3_000);
        const before = heard;
        await table.subscribe(
          () => {
            heard += 1;
          },
          () => {},
        );
        await table.put('again', {});
        await until('the new event', () => heard === before + 1);
      },
      { windowEvents: 1_000 },
    );
  });

  test('when the writing thread dies, what waited is refused, and another writer takes over', async () => {
    const folder = newFolder();
    const first = await startWriter(folder);
    const table = openTable(folder, first.connect());
    /** @type {Error[]} */
    const closed = [];
    await table.subscribe(
      () => {},
      (why) => closed.push(why),
    );
    const before = await table.put('k', { nextRenderTime: 1 });
    await first.worker.terminate();
    await until('the close', () => closed.length === 1);
    await assert.rejects(table.put('k', { nextRenderTime: 2 }), { code: 'E_TABLE_WRITE' });
    const second = await startWriter(folder);
    table.attach(second.connect());
    const after = await table.put('k', { nextRenderTime: 3 });
    assert.ok(before && after && after.version > before.version);
    assert.equal((await table.get('k'))?.nextRenderTime, 3);
    await table.close();
    await second.stop();
  });
});

/**
 * @param {{ folder: string, writer: Awaited<ReturnType<typeof startWriter>>, name: string, keys: string[], rounds: number }} options
 */
function newThread({ folder, writer, name, keys, rounds }) {
  const connection = writer.connect();
  return new Worker(path.join(__dirname, 'support/table-thread.js'), {
    workerData: { folder, connection, name, keys, rounds },
    transferList: [connection.port],
  });
}

/** @param {Parameters<typeof newThread>[0]} options */
function runThread(options) {
  return new Promise((resolve, reject) => {
    newThread(options).once('error', reject).once('exit', resolve);
  });
}

describe('durability', () => {
  test('kill -9 in the middle of writes loses none that was acknowledged, five times over', async () => {
    const folder = newFolder();
    let lastVersion = 0;
    for (let round = 0; round < 5; round++) {
      /** @type {Map<string, [number, number]>} */
      const acknowledged = new Map();
      const child = spawn(
        process.execPath,
        [path.join(__dirname, 'support/table-process.js'), folder, String(round)],
        { stdio: ['ignore', 'pipe', 'inherit'] },
      );
      let count = 0;
      for await (const line of readline.createInterface({ input: child.stdout })) {
        // The last line may be cut.
        if (!line.endsWith(']')) continue;
        const [key, number, version] = JSON.parse(line);
        acknowledged.set(key, [number, version]);
        count += 1;
        if (count === 300 + 150 * round) child.kill('SIGKILL');
      }
      await withTable(
        async ({ table }) => {
          for (const [key, [number, version]] of acknowledged) {
            const row = await table.get(key);
            assert.ok(row, key);
            // A later write of that lane may have been committed unheard.
            assert.equal(row.round, round);
            assert.ok(Number(row.nextRenderTime) >= number);
            assert.ok(Number(row.version) >= version);
            lastVersion = Math.max(lastVersion, Number(row.version));
          }
          const next = (await table.put('after', {}))?.version ?? 0;
          assert.ok(next > lastVersion);
          lastVersion = next;
        },
        { folder },
      );
    }
  });
});
