'use strict';

/**
 * The one thread that writes. Every other thread sends it what to write, by message, and reads for itself.
 *
 * Why one: a worker may be terminated at any moment, and one terminated inside a write transaction would take
 * LMDB's write lock with it. Nobody terminates this thread. It also gives, for nothing, what a log would have
 * to be built for: one order of all commits, in which events leave for the subscribers; and while one commit
 * waits for the disk, what arrives meanwhile gathers into the next.
 *
 * A version is one counter for the whole table, raised inside the write transaction and stored in it. It follows the
 * wall clock, 1,024 to a millisecond, so that what two nodes wrote of one page can be told apart by age.
 *
 * A subscriber that stops reading does not fill the memory: past `WINDOW` events, or bytes, that it has not
 * acknowledged, its subscription is closed, and says so.
 */

const { parentPort, receiveMessageOnPort, workerData } = require('node:worker_threads');
const { openEnvironment } = require('./environment.js');
const { encodeKey, encodeValue, versionOf, writtenOf } = require('./row-codec.js');

/**
 * One write: `[key, text]`, text null to delete; the third, where given, is the version that the row must have
 * (0: that there be none). A write whose condition fails does nothing. With `written`, the version under which another
 * node wrote the row, it is done where nothing newer is there.
 * @typedef {[key: string, text: string | null, ifVersion?: number, written?: number]} Write
 *
 * A write's outcome: its version and whether there was a row before; null where its condition failed.
 * @typedef {[version: number, existed: boolean] | null} Written
 *
 * @typedef {[id: string, text: string | null, version: number, localTime: number]} Commit
 *
 * @typedef {{ id: number, writes: Write[], meta?: [string, unknown] }} Request
 * @typedef {{ port: import('node:worker_threads').MessagePort, request: Request }} Pending
 * @typedef {{ port: import('node:worker_threads').MessagePort, id: number, events: number, bytes: number }} Subscriber
 */

const WINDOW = {
  events: workerData.windowEvents ?? 500_000,
  bytes: workerData.windowBytes ?? 256 * 2 ** 20,
};
/** So that a commit, and what it holds up, stays short. */
const COMMIT_WRITES = 20_000;
const EVENTS_A_MESSAGE = 2_000;

const { root, rows, meta } = openEnvironment(workerData.folder);
let version = Number(meta.get('version') ?? 0);
let localTime = 0;

/** @type {Pending[]} */
let pending = [];
let scheduled = false;
/** @type {Set<Subscriber>} */
const subscribers = new Set();
/** @type {Set<import('node:worker_threads').MessagePort>} */
const ports = new Set();

/**
 * @param {Request} request
 * @param {Commit[]} commits
 * @returns {Written[]}
 */
function write(request, commits) {
  /** @type {Written[]} */
  const outcomes = [];
  for (const [key, text, ifVersion, written] of request.writes) {
    const id = encodeKey(key);
    if (ifVersion !== undefined) {
      const before = rows.get(id);
      if ((before === undefined ? 0 : versionOf(before)) !== ifVersion) {
        outcomes.push(null);
        continue;
      }
    }
    if (written !== undefined) {
      const before = rows.get(id);
      if (before !== undefined && writtenOf(before) >= written) {
        outcomes.push(null);
        continue;
      }
    }
    const existed = rows.doesExist(id);
    version = Math.max(version + 1, Date.now() * 1_024);
    if (text === null) rows.removeSync(id);
    else rows.putSync(id, encodeValue(key, text, version, written));
    outcomes.push([version, existed]);
    // Strictly growing, whatever the wall clock does.
    localTime = Math.max(Date.now(), localTime + 1 / 1024);
    commits.push([key, text, version, localTime]);
  }
  if (request.meta) meta.putSync(request.meta[0], request.meta[1]);
  return outcomes;
}

/** @param {Pending[]} batch */
function commit(batch) {
  const before = version;
  /** @type {Commit[]} */
  const commits = [];
  /** @type {Written[][]} */
  const answers = [];
  try {
    root.transactionSync(() => {
      for (const { request } of batch) answers.push(write(request, commits));
      if (version !== before) meta.putSync('version', version);
    });
  } catch (error) {
    version = before;
    if (batch.length > 1) {
      // One of them is at fault: the others must not pay for it.
      for (const one of batch) commit([one]);
      return;
    }
    const [{ port, request }] = batch;
    port.postMessage({ id: request.id, error: String(/** @type {Error} */ (error).message) });
    return;
  }
  // Before anyone is told: who hears of a commit must be able to read it.
  Atomics.add(workerData.commits, 0, 1);
  if (commits.length > 0) for (const subscriber of subscribers) tell(subscriber, commits);
  for (const [index, { port, request }] of batch.entries()) {
    port.postMessage({ id: request.id, written: answers[index] });
  }
}

/**
 * @param {Subscriber} subscriber
 * @param {Commit[]} commits
 */
function tell(subscriber, commits) {
  for (let start = 0; start < commits.length; start += EVENTS_A_MESSAGE) {
    const events = commits.slice(start, start + EVENTS_A_MESSAGE);
    let bytes = 0;
    for (const [key, text] of events) bytes += key.length + (text?.length ?? 0);
    if (subscriber.events >= WINDOW.events || subscriber.bytes >= WINDOW.bytes) {
      subscribers.delete(subscriber);
      subscriber.port.postMessage({
        subscription: subscriber.id,
        closed: `the subscriber fell ${subscriber.events} events behind`,
      });
      return;
    }
    subscriber.events += events.length;
    subscriber.bytes += bytes;
    subscriber.port.postMessage({ subscription: subscriber.id, events, bytes });
  }
}

function drain() {
  scheduled = false;
  // What has arrived since, of any thread, goes into this commit too.
  for (const port of ports) {
    while (pending.length < COMMIT_WRITES) {
      const more = receiveMessageOnPort(port);
      if (!more) break;
      receive(port, more.message);
    }
  }
  let taken = 0;
  let writes = 0;
  while (taken < pending.length && writes < COMMIT_WRITES) {
    writes += pending[taken].request.writes.length;
    taken += 1;
  }
  const batch = pending.slice(0, taken);
  pending = pending.slice(taken);
  if (batch.length > 0) commit(batch);
  if (pending.length > 0) schedule();
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  setImmediate(drain);
}

/**
 * @param {import('node:worker_threads').MessagePort} port
 * @param {any} message
 */
function receive(port, message) {
  if (message.writes) {
    pending.push({ port, request: message });
    schedule();
  } else if (message.subscribe !== undefined) {
    subscribers.add({ port, id: message.subscribe, events: 0, bytes: 0 });
    port.postMessage({ subscription: message.subscribe, open: true });
  } else {
    for (const subscriber of subscribers) {
      if (subscriber.port !== port || subscriber.id !== message.subscription) continue;
      if (message.end) subscribers.delete(subscriber);
      subscriber.events -= message.events ?? 0;
      subscriber.bytes -= message.bytes ?? 0;
    }
  }
}

/** @param {import('node:worker_threads').MessagePort} port */
function connect(port) {
  ports.add(port);
  port.on('message', (message) => receive(port, message));
  port.on('close', () => {
    ports.delete(port);
    for (const subscriber of subscribers) {
      if (subscriber.port === port) subscribers.delete(subscriber);
    }
  });
}

parentPort?.on('message', (message) => {
  if (message.connect) {
    connect(message.connect);
  } else if (message.close) {
    while (pending.length > 0) drain();
    for (const port of ports) port.close();
    root.close().then(() => parentPort?.close());
  }
});
parentPort?.postMessage({ ready: true });
