'use strict';

/**
 * Loaded into the host under test (`node -r`): a worker does what a file in `FAULTS` says, named after it, be it
 * empty. As long as there is `0.late`, worker 0 does not start; `0.refuse` makes it throw instead of starting, once.
 * `0.throw` makes worker 0 throw; the file is taken away. `0.block` makes it stand still: it names the file
 * `0.blocked`, and goes on once that is taken away. As long as there is `walk`, walks over the table have its first rows
 * and wait for the others.
 */

const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { isMainThread, workerData } = require('node:worker_threads');
const { LmdbTable } = require('../../lib/standalone/table.js');

const { FAULTS } = process.env;
if (!isMainThread && FAULTS && workerData?.index !== undefined) {
  const file = (/** @type {string} */ fault) => path.join(FAULTS, `${workerData.index}.${fault}`);
  const still = new Int32Array(new SharedArrayBuffer(4));
  while (fs.existsSync(file('late'))) Atomics.wait(still, 0, 0, 20);
  if (fs.existsSync(file('refuse'))) {
    fs.rmSync(file('refuse'));
    throw new Error('refused by the test');
  }
  setInterval(() => {
    if (fs.existsSync(file('throw'))) {
      fs.rmSync(file('throw'));
      throw new Error('thrown by the test');
    }
    if (!fs.existsSync(file('block'))) return;
    fs.renameSync(file('block'), file('blocked'));
    while (fs.existsSync(file('blocked'))) Atomics.wait(still, 0, 0, 20);
  }, 20).unref();
  const { walk } = LmdbTable.prototype;
  LmdbTable.prototype.walk = async function (range) {
    const isFirst = (range.after ?? null) === null;
    while (!isFirst && fs.existsSync(path.join(FAULTS, 'walk'))) await sleep(20);
    return walk.call(this, range);
  };
}
