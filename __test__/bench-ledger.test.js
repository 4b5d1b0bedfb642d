'use strict';

const assert = require('node:assert/strict');
const { describe, it } = require('node:test');
const { createLedger, lostRows, GONE } = require('../bench/support/ledger.js');
const { indexOf } = require('../bench/support/churn-load.js');
const { wrongHead } = require('../bench/support/head.js');
const { corpus, HOUR, MINUTE } = require('../bench/corpus.js');
const { QueueKeeper } = require('..');

describe('the ledger of a load', () => {
  const ROW = 3;
  const newLedger = () => createLedger(() => 100);
  /** @param {ReturnType<typeof newLedger>} ledger @param {number} value */
  const lost = (ledger, value) =>
    lostRows(ledger, ROW + 1, (row) =>
      row !== ROW ? { nextRenderTime: 100 } : value === GONE ? null : { nextRenderTime: value },
    );

  it('finds a row that has not what was acknowledged', () => {
    const ledger = newLedger();
    ledger.answered(ROW, ledger.begin(ROW, 200));
    assert.deepEqual(lost(ledger, 200), []);
    assert.deepEqual(lost(ledger, 100), [ROW]);
    assert.deepEqual(lost(ledger, GONE), [ROW]);
  });

  it('finds a row that should be gone, and one that should not be', () => {
    const ledger = newLedger();
    assert.deepEqual(lost(ledger, GONE), [ROW]);
    ledger.answered(ROW, ledger.begin(ROW, GONE));
    assert.deepEqual(lost(ledger, 100), [ROW]);
    assert.deepEqual(lost(ledger, GONE), []);
  });

  it('allows either of two writes that were under way at once, and none from before them', () => {
    const ledger = newLedger();
    const [one, other] = [ledger.begin(ROW, 200), ledger.begin(ROW, 300)];
    ledger.answered(ROW, other);
    ledger.answered(ROW, one);
    assert.deepEqual(lost(ledger, 200), []);
    assert.deepEqual(lost(ledger, 300), []);
    assert.deepEqual(lost(ledger, 100), [ROW]);
  });

  it('allows what a write without an answer may have done, also later, and not what was refused', () => {
    const ledger = newLedger();
    ledger.begin(ROW, 200);
    ledger.refused(ROW, ledger.begin(ROW, 250));
    assert.deepEqual(lost(ledger, 100), []);
    assert.deepEqual(lost(ledger, 250), [ROW]);
    ledger.answered(ROW, ledger.begin(ROW, 300));
    assert.deepEqual(lost(ledger, 300), []);
    assert.deepEqual(lost(ledger, 200), []);
    assert.deepEqual(lost(ledger, 100), [ROW]);
    assert.equal(ledger.unknown, 1);
  });

  it('forgets what a later write has settled', () => {
    const ledger = newLedger();
    for (let n = 0; n < 100; n++) ledger.answered(ROW, ledger.begin(ROW, 200 + n));
    assert.equal(ledger.unknown, 0);
    assert.equal(ledger.current(ROW), 299);
    assert.equal(ledger.acknowledged, 100);
  });
});

describe('the load that turns a table over', () => {
  it('knows the row of every key of the corpus', () => {
    const rows = corpus({ rows: 1_000_000, classes: 40, seed: 1 });
    for (let row = 0; row < 3_000_000; row += 997) assert.equal(indexOf(rows.key(row)), row);
    for (const home of [0, 1, 50_000, 50_001]) assert.equal(indexOf(rows.key(home)), home);
  });
});

describe('the head of the queue, worked out anew', () => {
  const now = 29_600_000 * MINUTE;
  const keeper = new QueueKeeper({ now, defaultInterval: 24 * HOUR });
  /** @type {import('../bench/support/head.js').Waiting[]} */
  const waiting = [];
  for (let i = 0; i < 200; i++) {
    const [key, minute] = [`https://www.example.com/${i}`, 29_600_000 - ((i * 37) % 500)];
    const kind = i % 4;
    keeper.apply({
      type: 'put',
      id: key,
      value: {
        nextRenderTime: minute * MINUTE,
        fromSitemap: i % 3 === 0,
        effectiveInterval: kind === 3 ? 6 * HOUR : null,
        changedAt: kind === 1 ? now : null,
        demandPeriod: kind === 1 && i % 8 === 1 ? HOUR : null,
        urgentAt: kind === 2 ? now : null,
      },
    });
    const cadence = kind === 3 ? 6 * HOUR : 24 * HOUR;
    waiting.push({
      key,
      minute,
      boost: i % 3 === 0 ? 2 : 1,
      divisor: kind === 1 && i % 8 === 1 ? HOUR : cadence,
      headStart: kind === 1 ? 1 : kind === 2 ? 0.5 : 0,
    });
  }
  const { rows } = keeper.topK(100);
  const asked = { n: 100, from: now, to: now };

  it('is that of the queue', () => {
    const { wrong, due, now: found } = wrongHead(waiting, rows, asked);
    assert.deepEqual({ wrong, due, found }, { wrong: [], due: 200, found: now });
  });

  it('is not, where two rows have changed places, one is missing, or one is not due', () => {
    const swapped = [...rows];
    [swapped[10], swapped[20]] = [swapped[20], swapped[10]];
    assert.equal(wrongHead(waiting, swapped, asked).wrong.length, 2);
    assert.ok(wrongHead(waiting, rows.slice(1), asked).wrong.length > 0);
    assert.deepEqual(wrongHead(waiting, rows.slice(0, 99), asked).wrong, [
      '99 rows, not 100, of 200 that are due',
    ]);
    const less = waiting.filter(({ key }) => key !== rows[5].key);
    assert.ok(wrongHead(less, rows, asked).wrong.length > 0);
  });
});
