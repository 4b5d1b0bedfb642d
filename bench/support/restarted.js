/** From the start of a host's process until everything is as before. */

const { assertAddsUp } = require('../../__test__/support/compare.js');
const { getOnce, sleep } = require('./load.js');

const POLL_MS = 20;
const LONGEST_MS = 300_000;

/**
 * ms from the start of the process on; NaN where it did not come to that.
 *
 * @typedef {object} Restarted
 * @property {number} wholeOrder  so many rows are kept, verified or not: claims come in the order of the whole queue
 * @property {number} live  the state answers 200, with no unverified row
 * @property {number} exact  and `trust.exact`
 */

/**
 * @param {{ startedAt: number, url: string }} host @param {number} rows  that make the order whole
 * @returns {Promise<Restarted>}
 */
async function watchRestart({ startedAt, url }, rows) {
  const since = () => performance.now() - startedAt;
  const seen = { wholeOrder: Number.NaN, live: Number.NaN, exact: Number.NaN };
  for (; since() < LONGEST_MS; await sleep(POLL_MS)) {
    try {
      if (Number.isNaN(seen.wholeOrder)) {
        const { answer } = await getOnce(`${url}/queue_status`);
        if (answer.rows >= rows) seen.wholeOrder = since();
      }
      const { status, answer } = await getOnce(`${url}/prerender_admin/queue-state`);
      if (status !== 200 || answer.trust.keeper.unverifiedRows > 0) continue;
      if (Number.isNaN(seen.wholeOrder)) seen.wholeOrder = since();
      if (Number.isNaN(seen.live)) seen.live = since();
      assertAddsUp(answer);
      if (!answer.trust.exact) continue;
      seen.exact = since();
      return seen;
    } catch (error) {
      if (/** @type {any} */ (error).code === 'ERR_ASSERTION') throw error;
      // Not answered yet.
    }
  }
  return seen;
}

module.exports = { watchRestart };
