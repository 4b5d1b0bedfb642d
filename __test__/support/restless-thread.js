'use strict';
// Does everything that can be done with a queue, in an order drawn from a seed, until it is terminated.
const { workerData } = require('node:worker_threads');

const done = new Int32Array(workerData.done);
const at = workerData.at;
/** @param {number} step */
const step = (step) => Atomics.store(done, at, step);

const { QueueKeeper } = require('../..');
const { random } = require('./random-ops.js');

const { name, options, seed, file, keys } = workerData;
const { int, chance, pick } = random(seed);
const keeper = QueueKeeper.open(name, options);
const MINUTE = 60_000;

/** @type {{ key: string, token: number }[]} */
let jobs = [];
const event = () => ({
  type: pick(['put', 'put', 'put', 'put', 'delete', 'patch', 'message']),
  id: `https://shop.example/${int(keys)}`,
  value: {
    nextRenderTime: Date.now() + (int(200) - 150) * MINUTE,
    effectiveInterval: chance(0.1) ? int(50) * MINUTE : null,
  },
  version: chance(0.3) ? Date.now() : undefined,
});

const OPERATIONS = [
  () => keeper.apply(event()),
  () => keeper.apply(event()),
  () => keeper.applyAll(Array.from({ length: int(300) }, event)),
  () => {
    jobs = keeper.claim(int(30)).jobs;
  },
  () => {
    for (const { token } of jobs) keeper.confirm(token, chance(0.5) ? event().value : null);
  },
  () => {
    for (const { key, token } of jobs) keeper.release(key, token);
  },
  () => keeper.topK(int(500)),
  () => keeper.stateJson(),
  () => keeper.metrics(),
  () => {
    for (const key of keeper.headCheck(20)) keeper.repair(key, event().value);
  },
  () => keeper.configure({ defaultInterval: (1 + int(100)) * MINUTE }),
  () => {
    const walk = keeper.beginWalk('verify');
    try {
      walk.rows(
        Array.from({ length: 200 }, (_, i) => ({
          cacheKey: `https://shop.example/${i}`,
          ...event().value,
        })),
      );
      if (chance(0.7)) walk.end({ partial: chance(0.5) });
    } catch (err) {
      // Another thread has begun a walk of its own.
      if (/** @type {any} */ (err).code !== 'E_WALK') throw err;
    }
  },
  () => void keeper.saveSnapshot(file).catch(expected),
  () => void keeper.saveSnapshot(file).catch(expected),
  () => void keeper.loadSnapshot(file).catch(expected),
  () => void QueueKeeper.open(name, options).size,
  () => void new QueueKeeper(options).applyAll([event()]),
];

/** @param {any} err */
function expected(err) {
  if (!['E_BUSY', 'E_IO'].includes(err.code)) throw err;
}

async function main() {
  for (let count = 1; ; count++) {
    pick(OPERATIONS)();
    step(count);
    if (chance(0.2)) await new Promise(setImmediate);
  }
}

main();
