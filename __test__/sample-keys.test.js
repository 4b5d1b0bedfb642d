'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');
const { between, sampleKeys } = require('../lib/sample-keys.js');
const { random } = require('./support/random-ops.js');

/** A table of these keys that can be read in order alone. @param {string[]} keys */
function tableOf(keys) {
  const sorted = [...keys].sort();
  let walks = 0;
  return {
    get walks() {
      return walks;
    },
    /** @param {import('../lib/schedule-table.js').WalkRange} range */
    async walk({ after = null, before = null, limit, reverse = false, keysOnly }) {
      assert.equal(keysOnly, true);
      walks += 1;
      const within = sorted.filter(
        (key) => (after === null || key > after) && (before === null || key < before),
      );
      return (reverse ? within.reverse() : within)
        .slice(0, limit)
        .map((cacheKey) => ({ cacheKey }));
    },
  };
}

describe('a sample of the keys', () => {
  test('is from all over a table, and costs no more than a look or two for each key', async () => {
    const shops = ['a', 'b', 'c', 'd', 'e'].flatMap((shop) =>
      Array.from(
        { length: 1_000 },
        (_, n) => `https://www.shop-${shop}.com/p/${(n * 7919) % 1_000}`,
      ),
    );
    const table = tableOf(shops);
    const sample = await sampleKeys((range) => table.walk(range), 60);
    assert.equal(sample.length, 60);
    assert.equal(new Set(sample).size, 60);
    for (const key of sample) assert.ok(shops.includes(key), key);
    for (const shop of ['a', 'b', 'c', 'd', 'e']) {
      const from = sample.filter((key) => key.startsWith(`https://www.shop-${shop}.`));
      assert.ok(from.length >= 5, `${from.length} of shop ${shop}`);
    }
    assert.ok(table.walks <= 2 * 60, `${table.walks} walks`);
  });

  test('is small where the table is, and ends', async () => {
    for (const keys of [
      [],
      ['only'],
      ['a', 'b'],
      ['same', 'same-but-longer'],
      ['', '\u0000', 'x'],
    ]) {
      const table = tableOf(keys);
      const sample = await sampleKeys((range) => table.walk(range), 60);
      assert.ok(sample.every((key) => keys.includes(key)));
      assert.equal(sample.length, new Set(sample).size);
    }
  });

  test('ends whatever the order of the keys is, and whatever a store says', async () => {
    const keys = Array.from(
      { length: 400 },
      (_, n) => `${n % 3 ? 'a' : 'Zz'}-${'x'.repeat(n % 7)}${n * 7_919}`,
    );
    /** @type {Record<string, (a: string, b: string) => number>} */
    const orders = {
      'without case': (a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1),
      'by length first': (a, b) => a.length - b.length || (a < b ? -1 : 1),
      backwards: (a, b) => (a > b ? -1 : a < b ? 1 : 0),
      'from the end': (a, b) => ([...a].reverse().join() < [...b].reverse().join() ? -1 : 1),
    };
    for (const [name, order] of Object.entries(orders)) {
      const sorted = [...keys].sort(order);
      let walks = 0;
      const sample = await sampleKeys(async ({ after, before, limit, reverse }) => {
        walks += 1;
        const within = sorted.filter(
          (key) => (!after || order(after, key) < 0) && (!before || order(key, before) < 0),
        );
        return (reverse ? within.reverse() : within)
          .slice(0, limit)
          .map((cacheKey) => ({ cacheKey }));
      }, 60);
      assert.equal(new Set(sample).size, sample.length, name);
      assert.ok(walks <= 2 * 60 + 20, `${name}: ${walks} walks`);
    }
    let walks = 0;
    await sampleKeys(async ({ limit }) => {
      walks += 1;
      return keys.slice(0, limit).map((cacheKey) => ({ cacheKey }));
    }, 60);
    assert.ok(walks <= 2 * 60, `a store that always says the same: ${walks} walks`);
  });

  test('fails where the table cannot be read', async () => {
    await assert.rejects(
      sampleKeys(async () => {
        throw new Error('no such table');
      }, 60),
      /no such table/,
    );
  });
});

test('what lies between two keys does so, and is no half of a character', () => {
  const { int } = random(7);
  const letters = [
    '',
    'a',
    'b',
    'z',
    '~',
    '\u0000',
    'é',
    '中',
    '\u{1f980}',
    '\u{10ffff}',
    '-',
    '/',
  ];
  let found = 0;
  for (let n = 0; n < 20_000; n++) {
    const text = () =>
      Array.from({ length: 1 + int(4) }, () => letters[int(letters.length)]).join('');
    const [low, high] = [text(), text()].sort();
    const middle = between(low, high);
    if (middle === null) continue;
    found += 1;
    assert.ok(low < middle && middle < high, JSON.stringify([low, middle, high]));
    assert.ok(!/\p{Surrogate}/u.test(middle), JSON.stringify(middle));
  }
  assert.ok(found > 10_000, `${found} found`);
});
