'use strict';

/**
 * What a host's claim route and result route do, the same in every host: claims whose every job was held against
 * its row in the table, and results that are written to it.
 *
 *     const { claim, finish } = createClaims({ keeper, table, defaultInterval: () => 86_400_000 });
 *     const { jobs, status } = await claim(20);
 *     await finish({ key, token, outcome: 'rendered' });
 *
 * What is wrong with what the caller sent is an `HttpError`.
 */

const { HttpError } = require('./http-error.js');
const { checkNumber, FIELD_CHECKS, LATEST_DUE } = require('./row.js');

/**
 * @typedef {import('./schedule-table.js').ScheduleRow} ScheduleRow
 * @typedef {import('../index.js').Job} Job
 *
 * The table, with writes on condition: where the row's version is another than `ifVersion`, nothing is written and
 * the promise resolves to null.
 * @typedef {object} ClaimsTable
 * @property {(key: string) => Promise<ScheduleRow | null>} get
 * @property {(key: string, row: object, condition: { ifVersion?: number }) => Promise<unknown>} put
 * @property {(key: string, condition: { ifVersion?: number }) => Promise<unknown>} delete
 *
 * What a renderer reports of a job.
 * @typedef {object} Result
 * @property {string} key
 * @property {number} token
 * @property {'rendered' | 'failed' | 'gone'} outcome
 * @property {number | string | null} [nextRenderTime]  left out: a cadence from now
 * @property {boolean | null} [fromSitemap]
 * @property {number | null} [effectiveInterval]
 *
 * What a result answers: the row as it was when the result came, and the lease of its job.
 * @typedef {{ first: ScheduleRow | null, lease: import('../index.js').Explanation['lease'] }} Rendered
 */

const MOST_JOBS = 10_000;
/** A result is written over the row as it was read; one written in between is read again, this often. */
const RESULT_TRIES = 8;
/** Longer than this no claim holds up the event loop, however many rows it finds stale. */
const TURN_MS = 5;
/** No page has this key. To read it says whether the table answers, whatever became of its rows. */
const NO_KEY = 'does the table answer?';
const OUTCOMES = new Set(['rendered', 'failed', 'gone']);

/** @type {Record<string, string>} */
const STALE = {
  expired: 'the lease of this job has expired: its result is dropped, claim again',
  superseded: 'the job was given out again since: its result is dropped, claim again',
  unknown: 'no such lease: its result is dropped, claim again',
};

/**
 * @param {object} parts
 * @param {Pick<import('../index.js').QueueKeeper, 'claim' | 'confirm' | 'describe' | 'explain' | 'giveBack' | 'release'>} parts.keeper
 * @param {ClaimsTable} parts.table
 * @param {() => number} parts.defaultInterval  the cadence of a row of which the keeper knows none
 * @param {(name: 'jobs' | 'stale' | 'results') => void} [parts.count]
 */
function createClaims({ keeper, table, defaultInterval, count }) {
  /**
   * Claims, holds each row against the table, and claims again in the place of those that were stale.
   *
   * @param {any} asked  1 to 10,000; left out: 1
   */
  async function claim(asked) {
    const limit = asked ?? 1;
    if (!Number.isInteger(limit) || limit < 1 || limit > MOST_JOBS) {
      throw new HttpError(422, `limit must be a whole number from 1 to ${MOST_JOBS}`);
    }
    /** @type {Job[]} */
    const jobs = [];
    /** @type {Map<string, unknown>} */
    const held = new Map();
    let skippedStale = 0;
    let skippedUnreadable = 0;
    let since = performance.now();
    for (;;) {
      const before = jobs.length;
      const { jobs: granted, ...claimed } = keeper.claim(limit - before);
      for (const key of claimed.held) held.set(key.key, key);
      let wasCutShort = false;
      for (const [at, job] of granted.entries()) {
        // After a restart from a snapshot, all that was rendered since lies at the head.
        if (performance.now() - since > TURN_MS) {
          await new Promise((resolve) => setImmediate(resolve));
          since = performance.now();
        }
        /** @type {ScheduleRow | null} */
        let row;
        try {
          row = await table.get(job.key);
        } catch (error) {
          if (await tableAnswers()) {
            skippedUnreadable += 1;
            // As after a bad render: one that stays unreadable is soon held back.
            keeper.release(job.key, job.token);
            continue;
          }
          for (const { token } of granted.slice(at)) keeper.giveBack(token);
          if (jobs.length === 0) {
            const why = /** @type {Error} */ (error).message;
            throw new HttpError(503, `the table cannot be read, claim again in a moment: ${why}`, {
              headers: { 'retry-after': '2' },
            });
          }
          wasCutShort = true;
          break;
        }
        if (keeper.confirm(job.token, row)) {
          jobs.push(job);
          count?.('jobs');
        } else {
          skippedStale += 1;
          count?.('stale');
        }
      }
      const allGood = jobs.length === before + granted.length;
      const isDone = allGood && (claimed.complete || jobs.length >= limit);
      if (granted.length > 0 && !isDone && !wasCutShort) continue;
      return {
        jobs,
        ...claimed,
        complete: claimed.complete && !wasCutShort,
        // Not those of this very claim.
        skippedLeased: Math.max(0, claimed.skippedLeased - before),
        held: [...held.values()],
        skippedStale,
        ...(skippedUnreadable > 0 && { skippedUnreadable }),
      };
    }
  }

  async function tableAnswers() {
    try {
      await table.get(NO_KEY);
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Ends the lease of a job and writes what came of it.
   *
   * @param {any} result  a `Result`, as the renderer sent it
   */
  async function finish(result) {
    const { key, token } = checkResult(result);
    const row = await table.get(key);
    // What was asked for after the job was handed out is not answered by its result.
    const triggered = Math.max(Number(row?.changedAt ?? 0), Number(row?.urgentAt ?? 0));
    const lease = triggered > 0 ? keeper.explain(key).lease : null;
    const released = keeper.release(key, token);
    if (released !== 'released') {
      throw new HttpError(409, STALE[released] ?? STALE.unknown, { fields: { release: released } });
    }
    count?.('results');
    try {
      return await write(result, { first: row, lease });
    } catch (error) {
      // Not to be sent again: there is no lease any more to send it for.
      const why = /** @type {Error} */ (error).message;
      throw new HttpError(503, `the result is lost and its page stays due, claim again: ${why}`);
    }
  }

  /**
   * @param {Result} result
   * @param {Rendered} rendered
   */
  async function write(result, rendered) {
    const { key } = result;
    for (let tries = 0; tries < RESULT_TRIES; tries++) {
      const row = await table.get(key);
      if (!row) return { release: 'released', written: false, gone: true };
      const condition = { ifVersion: row.version };
      if (result.outcome === 'gone') {
        if (await table.delete(key, condition)) {
          return { release: 'released', written: true, gone: true };
        }
        continue;
      }
      const next = resultRow(row, result, rendered);
      if (await table.put(key, next, condition)) {
        return { release: 'released', written: true, nextRenderTime: next.nextRenderTime };
      }
    }
    throw new Error('the row is written too often to write over it');
  }

  /**
   * @param {ScheduleRow} row
   * @param {Result} result
   * @param {Rendered} rendered
   */
  function resultRow(row, result, { first, lease }) {
    const next = { ...row };
    if (result.fromSitemap !== undefined) next.fromSitemap = result.fromSitemap;
    if (result.effectiveInterval !== undefined) next.effectiveInterval = result.effectiveInterval;
    let stillDue = false;
    // Not written since: then nothing was asked for meanwhile, however far ahead the clock is by which it was.
    const isAsClaimed = lease !== null && lease.version !== null && row.version === lease.version;
    if (result.outcome === 'rendered') {
      for (const name of /** @type {const} */ (['changedAt', 'urgentAt'])) {
        const at = row[name];
        if (typeof at !== 'number' || at <= 0) continue;
        const isNewer = lease !== null && at > lease.grantedAt && !isAsClaimed;
        if (isNewer || at !== first?.[name]) stillDue = true;
        else next[name] = null;
      }
    }
    if (result.nextRenderTime !== undefined) next.nextRenderTime = result.nextRenderTime;
    else if (!stillDue) {
      const due = Date.now() + cadenceOf(row.cacheKey, next);
      // A cadence of ten thousand years is no reason for a row to be kept no more.
      next.nextRenderTime = Math.min(due, LATEST_DUE - 1);
    }
    return next;
  }

  /**
   * @param {string} key
   * @param {ScheduleRow} row
   */
  function cadenceOf(key, row) {
    const carried = row.effectiveInterval;
    if (typeof carried === 'number' && carried > 0) return carried;
    const kept = keeper.describe(key);
    if (kept && !kept.carried && kept.cadenceMs) return kept.cadenceMs;
    return keeper.explain(key).routeCadenceMs ?? defaultInterval();
  }

  return { claim, finish };
}

/** @param {any} result @returns {Result} */
function checkResult(result) {
  const { key, token, outcome } = result ?? {};
  if (typeof key !== 'string') throw new HttpError(422, 'key must be the key of the job');
  if (!Number.isSafeInteger(token) || token < 0) {
    throw new HttpError(422, 'token must be the token of the job, as the claim gave it');
  }
  if (!OUTCOMES.has(outcome)) {
    throw new HttpError(422, 'outcome must be "rendered", "failed" or "gone"');
  }
  for (const name of /** @type {const} */ (['nextRenderTime', 'fromSitemap'])) {
    const wrong = result[name] === undefined ? null : FIELD_CHECKS[name](result[name]);
    if (wrong) throw new HttpError(422, wrong);
  }
  if (result.effectiveInterval !== undefined) {
    const wrong = checkNumber('effectiveInterval', result.effectiveInterval);
    if (wrong) throw new HttpError(422, wrong);
  }
  return result;
}

module.exports = { createClaims };
