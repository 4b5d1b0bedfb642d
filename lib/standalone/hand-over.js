'use strict';

/**
 * After a change of nodes, this table holds rows of other nodes: nobody keeps them, and nobody renders those pages,
 * until they are where they belong. They are sent there, and deleted here once they have arrived; where there is
 * one already, the one that was written later stays. A row whose page is being rendered under a lease of this node waits for its result, so
 * that no page is given out twice at once; and one goes only when it was seen before, unchanged, so that no write that is
 * still on its way into the table is left behind.
 *
 * Done by whoever feeds, again and again until nothing is left; what a crash interrupts, the next feeder goes on with.
 */

const { setTimeout: sleep } = require('node:timers/promises');
const { askNode, cut, messageOf } = require('../ask-node.js');

const LOOK_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** A write that was under way when the nodes changed is in the table after so long. */
const SETTLED_MS = 5_000;
const CHUNK_KEYS = 200;
const BATCH_ROWS = 500;
const SEND_MS = 30_000;
/** Rows that cannot be read are named, once each, the first so many of them. */
const MOST_NAMED = 100;
const LONGEST_NAME = 2_000;
/** Looking through the table takes no more than one part in so many of the time. */
const SHARE = 5;

/** @typedef {import('../schedule-table.js').ScheduleRow} ScheduleRow */

/**
 * @param {object} parts
 * @param {Pick<InstanceType<typeof import('./table.js').LmdbTable>, 'walk' | 'getSync' | 'write' | 'writtenAt'>} parts.table
 * @param {Pick<import('../../index.js').QueueKeeper, 'describe' | 'explain' | 'stateJson'>} parts.keeper
 * @param {Pick<InstanceType<typeof import('./nodes.js').Nodes>, 'urlOf'>} parts.nodes
 * @param {InstanceType<typeof import('./leftover.js').Leftover>} parts.leftover
 * @param {string} [parts.token]  which all nodes of the ring share
 * @param {(message: string) => void} parts.log
 * @param {number} [parts.lookMs]  how often it is looked whether there is something to do
 * @returns {() => void} ends it
 */
function startHandOver({ table, keeper, nodes, leftover, token, log, lookMs = LOOK_MS }) {
  const ending = new AbortController();
  const { signal } = ending;
  /** What was said last about a node, so that it is not said again with each try. @type {Map<string, string>} */
  const said = new Map();
  /** Rows that the last pass saw, and their versions. @type {Map<string, number | undefined>} */
  let before = new Map();
  /** Rows that it could not read, as far as they were named. @type {Set<string>} */
  let named = new Set();

  let settled = false;
  let seen = '';
  let since = 0;
  let failures = 0;
  let next = 0;

  async function run() {
    for (;;) {
      await sleep(lookMs, undefined, { signal });
      await look().catch((error) => {
        signal.throwIfAborted();
        failures += 1;
        wait(0);
        log(`rows could not be handed over: ${messageOf(error)}; it is tried again`);
      });
    }
  }

  /** @param {number} busyMs */
  function wait(busyMs) {
    const ms = Math.max(lookMs * (2 ** failures - 1), SHARE * busyMs);
    next = performance.now() + Math.min(LONGEST_PAUSE_MS, ms);
  }

  async function look() {
    const { live, keeper: account } = JSON.parse(keeper.stateJson()).trust;
    const ring = JSON.stringify(account.ring);
    if (!live) return;
    if (ring !== seen) {
      // At the start of one that was settled there is no write under way that was meant for another ring.
      const isKnown = seen === '' && leftover.isSettled(account.ring);
      if (!isKnown) await leftover.forget();
      since = isKnown ? Number.NEGATIVE_INFINITY : performance.now();
      seen = ring;
      settled = false;
      failures = 0;
      next = 0;
    }
    const began = performance.now();
    if (settled || began < next) return;
    // On its own, it owns all there is.
    if (account.ring.length > 1) {
      const { moved, waiting, failed, busyMs } = await pass(account.ring);
      leftover.found(waiting + failed);
      if (moved > 0) log(`${moved} rows were handed over to other nodes`);
      failures = failed > 0 ? failures + 1 : 0;
      wait(busyMs);
      if (waiting + failed > 0 || began - since < SETTLED_MS) return;
    }
    before = new Map();
    await leftover.settle(account.ring);
    settled = true;
  }

  /** Once through the table. @param {string[]} ring */
  async function pass(ring) {
    // `busyMs`: how long it held up the event loop.
    const outcome = { moved: 0, waiting: 0, failed: 0, busyMs: 0 };
    /** @type {Map<string, ScheduleRow[]>} */
    const batches = new Map();
    /** Whether what answers in a node's place is that node. @type {Map<string, boolean>} */
    const known = new Map();
    /** @type {typeof before} */
    const seen = new Map();
    /** @type {typeof named} */
    const damaged = new Set();
    /** @param {string} owner @param {ScheduleRow[]} rows */
    const send = async (owner, rows) => {
      if (!known.has(owner)) known.set(owner, await isItself(owner, ring));
      const moved = known.get(owner) ? await handOver(owner, rows) : 0;
      leftover.gone(moved);
      outcome.moved += moved;
      outcome.failed += rows.length - moved;
    };
    for (let after = null; ; ) {
      /** @type {ScheduleRow[]} */
      const rows = await table.walk({ after, limit: CHUNK_KEYS, keysOnly: true });
      if (rows.length === 0) break;
      after = rows[rows.length - 1].cacheKey;
      const began = performance.now();
      /** @type {[string, ScheduleRow[]][]} */
      const full = [];
      for (const { cacheKey: key } of rows) {
        if (keeper.describe(key)) continue;
        const { reason, owner, lease } = keeper.explain(key);
        if (reason !== 'not-owned') continue;
        const row = lease ? null : readable(key);
        if (row === undefined) {
          outcome.failed += 1;
          if (damaged.size < MOST_NAMED) {
            if (!named.has(key)) log(unreadable(key, owner));
            damaged.add(key);
          }
          continue;
        }
        if (row) seen.set(key, row.version);
        if (!row || before.get(key) !== row.version) {
          outcome.waiting += 1;
          continue;
        }
        const batch = batches.get(owner) ?? [];
        batches.set(owner, batch);
        batch.push(row);
        if (batch.length < BATCH_ROWS) continue;
        full.push([owner, batch]);
        batches.delete(owner);
      }
      outcome.busyMs += performance.now() - began;
      for (const [owner, batch] of full) await send(owner, batch);
      await new Promise((resolve) => setImmediate(resolve));
      signal.throwIfAborted();
    }
    for (const [owner, rows] of batches) await send(owner, rows);
    before = seen;
    named = damaged;
    return outcome;
  }

  /**
   * @param {string} owner
   * @param {ScheduleRow[]} rows
   * @returns {Promise<number>} how many are there now, and here no longer
   */
  async function handOver(owner, rows) {
    const refused = await deliver(owner, rows).catch((error) => complain(owner, error));
    signal.throwIfAborted();
    if (refused === null) return 0;
    said.delete(owner);
    const arrived = rows.filter((_, index) => !refused.has(index + 1));
    // One that was written meanwhile goes with the next pass.
    const deleted = await table.write(
      arrived.map(({ cacheKey, version }) => ({ key: cacheKey, row: null, ifVersion: version })),
    );
    return deleted.filter((one) => one !== null).length;
  }

  /** @param {string} owner @param {unknown} error */
  function complain(owner, error) {
    const why = messageOf(error);
    if (said.get(owner) !== why) log(`rows of node ${owner} cannot be handed over: it ${why}`);
    said.set(owner, why);
    return null;
  }

  /**
   * Whatever has the token takes rows. They are deleted here once they are taken, so it is asked first who it is.
   *
   * @param {string} owner
   * @param {string[]} ring
   */
  async function isItself(owner, ring) {
    try {
      const url = nodes.urlOf(owner);
      const { status, body } = await askNode(url, '/prerender_admin/nodes', { headers: headers() });
      if (status === 401) {
        throw new Error('does not take the token of this node: start all with the same --token');
      }
      if (status !== 200) throw new Error(`answers with ${status}, not with its list of nodes`);
      const { node, ring: theirs } = Object(JSON.parse(body));
      if (node !== owner) {
        throw new Error(
          `is not what answers at ${url}: ${cut(String(node))} is; PUT /prerender_admin/nodes with its own URL`,
        );
      }
      if (JSON.stringify(theirs) !== JSON.stringify(ring)) {
        throw new Error(
          'goes by another ring: PUT /prerender_admin/nodes there, with the same list',
        );
      }
      return true;
    } catch (error) {
      complain(owner, error);
      return false;
    }
  }

  /** Of two that were written of a page, on whichever node, the later stays. @param {ScheduleRow} row */
  function lineOf(row) {
    return JSON.stringify({ ...row, version: table.writtenAt(row.cacheKey) });
  }

  function headers() {
    return /** @type {Record<string, string>} */ (
      token === undefined ? {} : { authorization: `Bearer ${token}` }
    );
  }

  /** Undefined for a row that cannot be read. @param {string} key */
  function readable(key) {
    try {
      return table.getSync(key);
    } catch (error) {
      if (/** @type {any} */ (error).code !== 'E_TABLE_READ') throw error;
      return undefined;
    }
  }

  /**
   * @param {string} owner
   * @param {ScheduleRow[]} rows
   * @returns {Promise<Set<number>>} the lines that were not taken
   */
  async function deliver(owner, rows) {
    const { status, body } = await askNode(nodes.urlOf(owner), '/render_schedule?newer', {
      method: 'POST',
      headers: { ...headers(), 'content-type': 'application/x-ndjson' },
      body: rows.map((row) => lineOf(row)).join('\n'),
      timeoutMs: SEND_MS,
    });
    const report = [200, 421, 422].includes(status) ? JSON.parse(body) : {};
    const { written, known, failed, foreign, errors } = report;
    if (foreign > 0) throw new Error('goes by another ring');
    if (written + known + failed !== rows.length || errors?.length !== failed) {
      throw new Error(`answers with ${status}, not with what it has taken`);
    }
    return new Set(errors.map((/** @type {any} */ { line }) => line));
  }

  run().catch((error) => {
    if (!signal.aborted) log(`rows are no longer handed over to other nodes: ${error.stack}`);
  });
  return () => ending.abort();
}

/** @param {string} key @param {string} owner */
function unreadable(key, owner) {
  const name = JSON.stringify(key.slice(0, LONGEST_NAME));
  return `row ${name} of node ${owner} cannot be read, so it cannot be handed over: DELETE it here, and PUT the page on that node`;
}

module.exports = { startHandOver };
