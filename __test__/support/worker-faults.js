'use strict';

/**
 * Loaded into the host under test (`node -r`): a worker does what a file in `FAULTS` says, named after it, be it
 * empty. As long as there is `0.late`, worker 0 does not start; `0.refuse` makes it throw instead of starting, once.
 * `0.throw` makes worker 0 throw; the file is taken away. `0.block` makes it stand still: it names the file
 * `0.blocked`, and goes on once that is taken away. As long as there is `walk`, walks over the table have its first rows
 * and wait for the others. `write` holds up what the main thread writes into the table: it names the file `writing`, and
 * goes on once that is taken away.
 *
 * What cannot be seen from outside the main thread says in files of its own: in `port`, where it listens; in `ended`, a
 * line each, the port of each client whose connection to its worker it has ended.
 */

const diagnostics = require('node:diagnostics_channel');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { isMainThread, workerData } = require('node:worker_threads');
const { LmdbTable } = require('../../lib/standalone/table.js');

const { FAULTS } = process.env;
if (FAULTS && isMainThread) {
  const file = (/** @type {string} */ name) => path.join(FAULTS, name);
  const { listen } = net.Server.prototype;
  net.Server.prototype.listen = function (/** @type {any[]} */ ...args) {
    this.once('listening', () => {
      const address = this.address();
      if (typeof address === 'object') fs.writeFileSync(file('port'), String(address?.port));
    });
    return listen.apply(this, /** @type {any} */ (args));
  };
  diagnostics.subscribe('net.client.socket', (/** @type {any} */ { socket: worker }) => {
    worker.once('pipe', (/** @type {net.Socket} */ { remotePort }) => {
      let isTold = false;
      const tell = () => {
        if (!isTold) fs.appendFileSync(file('ended'), `${remotePort}\n`);
        isTold = true;
      };
      worker.once('finish', tell);
      worker.once('close', tell);
    });
  });
  const { write } = LmdbTable.prototype;
  LmdbTable.prototype.write = async function (writes) {
    if (fs.existsSync(file('write'))) fs.renameSync(file('write'), file('writing'));
    while (fs.existsSync(file('writing'))) await sleep(20);
    return write.call(this, writes);
  };
}
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
