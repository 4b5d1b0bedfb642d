'use strict';

/**
 * Loaded into the host under test (`node -r`): a worker does what a file in `FAULTS` says, named after it:
 * `0.throw` makes worker 0 throw, `0.block` makes it stand still for the ms in the file.
 */

const fs = require('node:fs');
const path = require('node:path');
const { isMainThread, workerData } = require('node:worker_threads');

const { FAULTS } = process.env;
if (!isMainThread && FAULTS && workerData?.index !== undefined) {
  const take = (/** @type {string} */ fault) => {
    const file = path.join(FAULTS, `${workerData.index}.${fault}`);
    if (!fs.existsSync(file)) return null;
    const text = fs.readFileSync(file, 'utf8');
    fs.rmSync(file, { force: true });
    return text;
  };
  setInterval(() => {
    if (take('throw') !== null) throw new Error('thrown by the test');
    const ms = take('block');
    if (ms !== null) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(ms));
  }, 20).unref();
}
