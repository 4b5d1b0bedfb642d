'use strict';

/**
 * What the port on a table of Harper promises, and what is true of such a table that the port has to know. The same
 * cases run on the table double, in `npm test`, and in a worker of a real Harper, in `npm run test:harper`: so the
 * double is what Harper is, as far as they look.
 *
 * @typedef {object} Bench
 * @property {InstanceType<typeof import('../../lib/harper/table.js').HarperTable>} port
 * @property {any} raw  the table itself
 * @property {(work: (context: any) => unknown, context?: object) => Promise<any>} commit  a transaction of its own
 * @property {(what: string, condition: () => any) => Promise<any>} until
 *
 * @typedef {{ name: string, table?: string, run: (bench: Bench) => Promise<void> }} Case
 */

const assert = require('node:assert/strict');

const ODD_KEYS = [
  'https://shop.example/a?b=c#d.json|mobile',
  'https://shop.example/\0/\0',
  '\0',
  '__proto__',
  'e\u0301 é',
  'https://shop.example/😀',
  '\uffff',
  `${'x'.repeat(300)}/1`,
  `${'x'.repeat(300)}/2`,
  `${'x'.repeat(253)}😀😀/1`,
  `${'x'.repeat(253)}😀😀/2`,
  `${'é'.repeat(900)}`,
];

/** @param {Bench} bench @param {string} key @param {object} row */
const put = ({ raw, commit }, key, row, context = {}) =>
  commit((given) => raw.put(key, row, given), context);

/** @param {Bench} bench @param {Partial<import('../../lib/schedule-table.js').WalkRange>} range */
async function walkAll({ port }, range) {
  const { limit = 3, reverse = false, after = null, before = null } = range;
  const rows = [];
  for (let cursor = null; rows.length < 1_000; ) {
    const bounds = reverse
      ? { after, before: cursor ?? before }
      : { after: cursor ?? after, before };
    const chunk = await port.walk({ ...bounds, limit, reverse, keysOnly: range.keysOnly });
    assert.ok(chunk.length <= limit);
    if (chunk.length === 0) return rows;
    rows.push(...chunk);
    cursor = chunk[chunk.length - 1].cacheKey;
  }
  return assert.fail('the walk goes on for ever');
}

/** @param {Bench} bench @param {any} query */
async function search({ raw }, query) {
  const rows = [];
  for await (const row of raw.search({ select: ['$id'], replicateFrom: false, ...query }))
    rows.push(row.$id);
  return rows;
}

/**
 * Events from now on. A new subscription may be told first of what was written just before it, `early`: what is written
 * here tells one from the other.
 *
 * @param {Bench} bench
 */
async function listen(bench) {
  /** @type {any[]} */
  const events = [];
  const subscription = await bench.port.subscribe(
    (event) => events.push(event),
    (why) => assert.fail(why),
  );
  listen.count += 1;
  const marker = `listening/${listen.count}`;
  await put(bench, marker, { nextRenderTime: 1 });
  await bench.until('the marker', () => events.at(-1)?.id === marker);
  const early = events.splice(0).slice(0, -1);
  return { events, early, subscription };
}
listen.count = 0;

/** @type {Case[]} */
const PORT = [
  {
    name: 'each write is an event of its key in the order of the commits: put with the whole row, delete and invalidate with none',
    async run(bench) {
      const { port, raw, commit, until } = bench;
      const { events, subscription } = await listen(bench);
      await put(bench, 'k', { nextRenderTime: 1, fromSitemap: true });
      await put(bench, 'k', { nextRenderTime: 1, fromSitemap: true });
      await commit((context) => raw.patch('k', { nextRenderTime: 2 }, context));
      await commit((context) => raw.publish('k', { nextRenderTime: 9 }, context));
      assert.equal((await port.get('k'))?.nextRenderTime, 2);
      await commit((context) => raw.patch('patched', { nextRenderTime: 3 }, context));
      await commit((context) => raw.delete('k', context));
      await commit((context) => raw.delete('never', context));
      await commit((context) => raw.invalidate('patched', context));
      await until('all events', () => events.length >= 8);
      subscription.end();
      assert.deepEqual(
        events.map(({ id, type, value }) => [id, type, value?.nextRenderTime, value?.cacheKey]),
        [
          ['k', 'put', 1, 'k'],
          ['k', 'put', 1, 'k'],
          ['k', 'put', 2, 'k'],
          ['k', 'message', 9, undefined],
          ['patched', 'put', 3, undefined],
          ['k', 'delete', undefined, undefined],
          ['never', 'delete', undefined, undefined],
          ['patched', 'invalidate', undefined, undefined],
        ],
      );
      assert.equal(events[2].value.fromSitemap, true);
      for (let i = 1; i < events.length; i++) {
        assert.ok(events[i].localTime > events[i - 1].localTime);
        // A message has the version of the row, which it does not change.
        if (events[i].type !== 'message') assert.ok(events[i].version > events[i - 1].version);
      }
    },
  },
  {
    name: 'a new subscription is told of nothing long past, and of nothing after its end, which may be said twice',
    async run(bench) {
      const { until } = bench;
      for (let i = 0; i < 150; i++) await put(bench, `old/${i}`, { nextRenderTime: i });
      const first = await listen(bench);
      const second = await listen(bench);
      assert.ok(!first.early.some(({ id }) => id === 'old/0'));
      first.events.length = 0;
      await put(bench, 'new', { nextRenderTime: 1 });
      await until('the event, twice', () => first.events.length > 0 && second.events.length > 0);
      first.subscription.end();
      first.subscription.end();
      await put(bench, 'newer', { nextRenderTime: 1 });
      await until('the next', () => second.events.length === 2);
      second.subscription.end();
      assert.deepEqual(
        first.events.map(({ id }) => id),
        ['new'],
      );
      assert.deepEqual(
        second.events.map(({ id }) => id),
        ['new', 'newer'],
      );
    },
  },
  {
    name: 'a listener that throws is called again',
    async run(bench) {
      /** @type {string[]} */
      const heard = [];
      const subscription = await bench.port.subscribe(
        ({ id }) => {
          heard.push(id);
          throw new Error('thrown on purpose by a test');
        },
        (why) => assert.fail(why),
      );
      await put(bench, 'a', { nextRenderTime: 1 });
      await put(bench, 'b', { nextRenderTime: 1 });
      await bench.until('both', () => heard.includes('a') && heard.includes('b'));
      subscription.end();
    },
  },
  {
    name: 'a walk visits every row once, whatever its key, in one order, from both ends and in chunks of any size',
    async run(bench) {
      const { raw, commit } = bench;
      for (const [i, key] of ODD_KEYS.entries()) await put(bench, key, { nextRenderTime: i });
      await commit((context) => raw.patch('patched', { nextRenderTime: 99 }, context));
      for (const key of ['deleted', 'invalidated']) await put(bench, key, { nextRenderTime: 1 });
      await commit((context) => raw.delete('deleted', context));
      await commit((context) => raw.invalidate('invalidated', context));
      const all = [...ODD_KEYS, 'patched'];
      /** @type {string[] | null} */
      let order = null;
      for (const reverse of [false, true]) {
        for (const limit of [1, 2, 5, 1_000]) {
          for (const keysOnly of [false, true]) {
            const rows = await walkAll(bench, { limit, reverse, keysOnly });
            const keys = rows.map(({ cacheKey }) => cacheKey);
            if (reverse) keys.reverse();
            order ??= keys;
            assert.deepEqual(keys, order, `limit ${limit}, reverse ${reverse}`);
            for (const row of keysOnly ? [] : rows) {
              const i = ODD_KEYS.indexOf(row.cacheKey);
              assert.equal(row.nextRenderTime, i < 0 ? 99 : i);
              assert.ok(Number(row.version) > 1e12);
            }
          }
        }
      }
      assert.deepEqual(new Set(order), new Set(all));
      assert.equal(order?.length, all.length);
    },
  },
  {
    name: 'cursors longer than Harper takes pass over no row, and none comes twice',
    async run(bench) {
      for (const length of [255, 256, 257, 1_000, 1_900]) {
        const begin = 'y'.repeat(length);
        const keys = Array.from({ length: 10 }, (_, i) => `${begin}${i}`);
        for (const key of keys) await put(bench, key, { nextRenderTime: 1 });
        for (const reverse of [false, true]) {
          const rows = await walkAll(bench, {
            after: begin,
            before: `${begin}~`,
            limit: 3,
            reverse,
          });
          const walked = rows.map(({ cacheKey }) => cacheKey);
          assert.deepEqual(walked, reverse ? [...keys].reverse() : keys, `${length} ${reverse}`);
        }
      }
    },
  },
  {
    name: 'between two cursors lies what lies between them, the rows that they name left out, and they need not exist',
    async run(bench) {
      for (const key of ['b', 'd', 'f', 'h']) await put(bench, key, { nextRenderTime: 1 });
      for (const [after, before, expected] of /** @type {const} */ ([
        ['b', 'h', 'd f'],
        ['a', 'g', 'b d f'],
        ['c', null, 'd f h'],
        [null, 'f', 'b d'],
        ['', 'd', 'b'],
        ['d', 'd', ''],
        ['z', null, ''],
      ])) {
        const keys = (await walkAll(bench, { after, before })).map(({ cacheKey }) => cacheKey);
        assert.equal(keys.join(' '), expected, `${after} ${before}`);
        const down = await walkAll(bench, { after, before, reverse: true });
        assert.deepEqual(down.map(({ cacheKey }) => cacheKey).reverse(), keys);
      }
    },
  },
  {
    name: 'a row whose key is the empty string is passed over, and asked for by nobody',
    table: 'PortTestEmpty',
    async run(bench) {
      const { port } = bench;
      await put(bench, '', { nextRenderTime: 1 });
      await put(bench, 'k', { nextRenderTime: 1 });
      for (const reverse of [false, true]) {
        const keys = (await walkAll(bench, { reverse })).map(({ cacheKey }) => cacheKey);
        assert.deepEqual(keys, ['k']);
      }
      await assert.rejects(port.get(''), /empty/);
      await assert.rejects(port.put('', { nextRenderTime: 1 }), /empty/);
      await assert.rejects(port.delete(''), /empty/);
      assert.equal((await port.get('k'))?.nextRenderTime, 1);
    },
  },
  {
    name: 'a row is read whole, with the version that its event had and the walk has; one that is not there is null',
    async run(bench) {
      const { port, raw, commit, until } = bench;
      const { events, subscription } = await listen(bench);
      const row = { nextRenderTime: 5, fromSitemap: false, changedAt: null, note: { a: ['b'] } };
      await put(bench, 'k', row);
      await until('the event', () => events.length === 1);
      const read = await port.get('k');
      const [walked] = await port.walk({ limit: 5 });
      assert.equal(walked.cacheKey, 'k');
      assert.deepEqual({ ...read, version: 0 }, { ...row, cacheKey: 'k', version: 0 });
      assert.equal(read?.version, events[0].version);
      assert.equal(walked.version, events[0].version);
      assert.equal(await port.get('none'), null);
      await commit((context) => raw.delete('k', context));
      assert.equal(await port.get('k'), null);
      await commit((context) => raw.patch('patched', { nextRenderTime: 7 }, context));
      assert.equal((await port.get('patched'))?.cacheKey, 'patched');
      await commit((context) => raw.invalidate('patched', context));
      assert.equal(await port.get('patched'), null);
      subscription.end();
    },
  },
  {
    name: 'what was put is there when the promise resolves, every field of it, and the event carries its key',
    async run(bench) {
      const { port, until } = bench;
      const { events, subscription } = await listen(bench);
      const row = { cacheKey: 'another', version: 5, nextRenderTime: 9, extra: { a: 1 } };
      await port.put('k', row);
      assert.deepEqual(
        { ...(await port.get('k')), version: 0 },
        { cacheKey: 'k', version: 0, nextRenderTime: 9, extra: { a: 1 } },
      );
      await port.delete('k');
      assert.equal(await port.get('k'), null);
      await until('both events', () => events.length === 2);
      subscription.end();
      assert.deepEqual(
        events.map(({ id, type, value }) => [id, type, value?.cacheKey]),
        [
          ['k', 'put', 'k'],
          ['k', 'delete', undefined],
        ],
      );
    },
  },
  {
    name: 'a write on condition is done where nothing was written since that version, and only there',
    async run(bench) {
      const { port, raw, commit } = bench;
      const versionOf = async () => Number((await port.get('k'))?.version);
      await put(bench, 'k', { nextRenderTime: 1 });
      const first = await versionOf();
      const written = await port.put('k', { nextRenderTime: 2 }, { ifVersion: first });
      assert.equal(written?.version, await versionOf());
      assert.ok(Number(written?.version) > first);
      await put(bench, 'k', { nextRenderTime: 3 });
      assert.equal(
        await port.put('k', { nextRenderTime: 4 }, { ifVersion: written?.version }),
        null,
      );
      assert.equal(await port.delete('k', { ifVersion: written?.version }), null);
      assert.equal((await port.get('k'))?.nextRenderTime, 3);
      const third = await versionOf();
      await commit((context) => raw.delete('k', context));
      assert.equal(await port.put('k', { nextRenderTime: 5 }, { ifVersion: third }), null);
      assert.equal(await port.get('k'), null);
      await put(bench, 'k', { nextRenderTime: 6 });
      assert.ok(await port.delete('k', { ifVersion: await versionOf() }));
      assert.equal(await port.get('k'), null);
    },
  },
  {
    name: 'of a result and a trigger at once, the trigger stands, whichever comes first',
    async run(bench) {
      const { port } = bench;
      for (let i = 0; i < 30; i++) {
        await put(bench, 'k', { nextRenderTime: 1, changedAt: null });
        const ifVersion = Number((await port.get('k'))?.version);
        const trigger = () => put(bench, 'k', { nextRenderTime: 5, changedAt: 1_000 + i });
        const result = () => port.put('k', { nextRenderTime: 900, changedAt: null }, { ifVersion });
        const both = i % 2 === 0 ? [trigger(), result()] : [result(), trigger()];
        const outcome = await Promise.all(both);
        const row = await port.get('k');
        assert.equal(row?.changedAt, 1_000 + i, JSON.stringify([i, row, ifVersion, outcome]));
      }
    },
  },
];

/** @type {Case[]} */
const HARPER = [
  {
    name: 'a cursor of the empty string or null throws, and so does a sort without a condition',
    async run(bench) {
      await put(bench, 'k', { nextRenderTime: 1 });
      for (const value of ['', null]) {
        const conditions = [{ attribute: 'cacheKey', comparator: 'greater_than', value }];
        await assert.rejects(search(bench, { conditions }));
      }
      await assert.rejects(search(bench, { conditions: [], sort: { attribute: 'cacheKey' } }));
      assert.deepEqual(await search(bench, { conditions: [] }), ['k']);
    },
  },
  {
    name: 'a cursor of more than 256 characters passes over rows that begin like it; two of them throw',
    async run(bench) {
      const begin = 'z'.repeat(257);
      for (let i = 0; i < 5; i++) await put(bench, `${begin}${i}`, { nextRenderTime: 1 });
      const value = `${begin}0`;
      const conditions = [{ attribute: 'cacheKey', comparator: 'greater_than', value }];
      assert.deepEqual(await search(bench, { conditions }), []);
      const both = [{ attribute: 'cacheKey', comparator: 'gtlt', value: [value, `${begin}~`] }];
      await assert.rejects(search(bench, { conditions: both }), /comparator/);
    },
  },
  {
    name: 'a record has no fields of its own: toJSON has them, and getUpdatedTime the version',
    async run(bench) {
      const { raw } = bench;
      await put(bench, 'k', { nextRenderTime: 1 });
      const record = await raw.get({ id: 'k' }, { replicateFrom: false });
      assert.deepEqual(Object.keys(record), []);
      assert.equal(record.nextRenderTime, 1);
      assert.deepEqual({ ...record.toJSON() }, { nextRenderTime: 1, cacheKey: 'k' });
      assert.ok(record.getUpdatedTime() > 1e12);
      const select = ['$id', 'nextRenderTime'];
      await assert.rejects(async () => raw.get({ id: 'k', select }, { replicateFrom: false }));
    },
  },
  {
    name: 'a row made by a patch has no cacheKey, in the table neither',
    async run({ raw, commit }) {
      await commit((context) => raw.patch('k', { nextRenderTime: 1 }, context));
      const record = await raw.get({ id: 'k' }, { replicateFrom: false });
      assert.deepEqual({ ...record.toJSON() }, { nextRenderTime: 1 });
    },
  },
  {
    name: 'a subscription without omitCurrent is sent 101 rows, and no event after them',
    async run(bench) {
      const { raw, until } = bench;
      for (let i = 0; i < 150; i++) await put(bench, `old/${i}`, { nextRenderTime: i });
      /** @type {any[]} */
      const stalled = [];
      const subscription = await raw.subscribe({
        listener: (/** @type {any} */ event) => stalled.push(event),
      });
      const other = await listen(bench);
      await put(bench, 'new', { nextRenderTime: 1 });
      await until('the event elsewhere', () => other.events.length === 1);
      subscription.end();
      other.subscription.end();
      assert.equal(stalled.length, 101);
      assert.ok(!stalled.some(({ id }) => id === 'new'));
    },
  },
  {
    name: 'a transaction gives all its writes one version; of a hundred or more, a key written twice keeps the first',
    async run(bench) {
      const { raw, commit, port } = bench;
      await commit((context) => {
        for (let i = 0; i < 120; i++) raw.put(`k/${i}`, { nextRenderTime: i }, context);
        raw.put('k/0', { nextRenderTime: 777 }, context);
      });
      const rows = await port.walk({ limit: 1_000 });
      assert.equal(new Set(rows.map(({ version }) => version)).size, 1);
      assert.equal((await port.get('k/0'))?.nextRenderTime, 0);
    },
  },
  {
    name: 'a BigInt is refused for a Long column, where this version has numbers',
    async run(bench) {
      await assert.rejects(async () => put(bench, 'k', { nextRenderTime: 5n }), /integer/);
      assert.equal(await bench.port.get('k'), null);
    },
  },
  {
    name: 'a write of an earlier time than the row’s is dropped, without an event',
    async run(bench) {
      const { until } = bench;
      await put(bench, 'k', { nextRenderTime: 1 });
      const { events, subscription } = await listen(bench);
      await put(bench, 'k', { nextRenderTime: 2 }, { timestamp: 1_700_000_000_000 });
      await put(bench, 'k', { nextRenderTime: 3 });
      await until('the last', () => events.some(({ value }) => value?.nextRenderTime === 3));
      subscription.end();
      assert.deepEqual(
        events.map(({ value }) => value.nextRenderTime),
        [3],
      );
    },
  },
];

/**
 * Empties the table, then runs the case. The case before may have been another worker's, whose clock is ahead: what is
 * written here is dropped until this one has caught up with the row that it wrote last.
 *
 * @param {Case} one
 * @param {Bench} bench
 */
async function runCase(one, bench) {
  const { port, raw, commit, until } = bench;
  runCase.count += 1;
  const mine = Date.now() * 1_000 + runCase.count;
  await until('this worker’s clock', async () => {
    await put(bench, 'clock', { nextRenderTime: mine });
    return (await port.get('clock'))?.nextRenderTime === mine;
  });
  for (;;) {
    const rows = await port.walk({ limit: 1_000 });
    if (rows.length === 0) break;
    for (const { cacheKey } of rows) await commit((context) => raw.delete(cacheKey, context));
  }
  try {
    await one.run(bench);
  } finally {
    await put(bench, 'clock', { nextRenderTime: mine });
  }
}
runCase.count = 0;

module.exports = { PORT, HARPER, runCase };
