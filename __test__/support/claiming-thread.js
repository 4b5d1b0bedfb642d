'use strict';
// One of several threads on one queue. `claim`: takes jobs, marks each key as out, writes its row again, gives it back.
// `apply`: writes every row once, and some of them again and again, until each of the others has had its part.
const { parentPort, workerData } = require('node:worker_threads');
const { QueueKeeper } = require('../..');

const { name, options, role, at, rows, shared } = workerData;
/** 1 while some thread has the key. */
const out = new Int32Array(shared.out);
/** How often each key was given out. */
const given = new Int32Array(shared.given);
/** Keys given out twice at once; whether all has been applied. */
const marks = new Int32Array(shared.marks);
/** How many claims gave jobs, by thread. */
const parts = new Int32Array(shared.parts);
/** What is enough of these. */
const PART = 10;
const MINUTE = 60_000;

const keeper = QueueKeeper.open(name, options);
const keyOf = (/** @type {number} */ i) => `https://shop.example/product/${i}|desktop`;
const turn = () => new Promise(setImmediate);

async function claim() {
  for (let claims = 1; ; claims++) {
    const all = Atomics.load(marks, 1) === 1;
    const { jobs, due } = keeper.claim(50);
    if (jobs.length > 0) Atomics.add(parts, at, 1);
    for (const { key } of jobs) {
      const i = Number(key.slice(29, -8));
      if (Atomics.exchange(out, i, 1) !== 0) Atomics.add(marks, 0, 1);
    }
    if (claims % 3 === 0) await turn();
    for (const { key, token } of jobs) {
      const i = Number(key.slice(29, -8));
      keeper.apply({ type: 'put', id: key, value: { nextRenderTime: Date.now() + 60 * MINUTE } });
      Atomics.add(given, i, 1);
      Atomics.store(out, i, 0);
      if (keeper.release(key, token) !== 'released') Atomics.add(marks, 0, 1);
    }
    if (jobs.length === 0) {
      if (all && due === 0) return;
      await turn();
    }
  }
}

async function apply() {
  const due = Date.now() - 100_000 * MINUTE;
  let again = 0;
  const writeAgain = (/** @type {number} */ below) => {
    const value = { nextRenderTime: due + ++again * MINUTE };
    keeper.apply({ type: 'put', id: keyOf((again * 7_919) % below), value });
  };
  for (let i = 0; i < rows; i++) {
    keeper.apply({ type: 'put', id: keyOf(i), value: { nextRenderTime: due, fromSitemap: i % 2 } });
    if (i % 10 === 9) writeAgain(i);
    if (i % 500 === 0) await turn();
  }
  // A thread may begin long after the others.
  while (parts.some((_, at) => Atomics.load(parts, at) < PART)) {
    for (let i = 0; i < 100; i++) writeAgain(rows);
    await turn();
  }
  await turn();
  Atomics.store(marks, 1, 1);
  return again;
}

(role === 'claim' ? claim() : apply()).then((again) => {
  keeper.close();
  parentPort?.postMessage(again ?? null);
});
