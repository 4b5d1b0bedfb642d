const test = require('node:test');
const assert = require('node:assert/strict');
const { runModel } = require('./support/random-ops.js');
const { QueueKeeper } = require('..');

// `SEED=n node --test __test__/model.test.js` replays one run; SEEDS=n does n of them from SEED on, however long.
const BASE = Number(process.env.SEED ?? 1);
const SEEDS = Number(process.env.SEEDS ?? (process.env.SEED ? 1 : 100_000));
const SECONDS = Number(process.env.SECONDS ?? (process.env.SEEDS ? 3600 : 10));

/** @param {any} options */
const make = (options) => new QueueKeeper(options);

test('the keeper agrees with the model: events, clock steps, configuration, claims, leases, walks in any order', (t) => {
  t.diagnostic(`seeds from SEED=${BASE}`);
  const until = Date.now() + SECONDS * 1000;
  let seeds = 0;
  while (seeds < SEEDS && Date.now() < until) {
    runModel({ make, seed: BASE + seeds, steps: 200 });
    seeds++;
  }
  t.diagnostic(`${seeds} seeds of 200 operations each, up to SEED=${BASE + seeds - 1}`);
  assert.ok(seeds > 0);
});
