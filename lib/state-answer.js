'use strict';

/**
 * The answer of the state route, the same from every host: the document while the keeper can vouch for its
 * numbers, else 503 with what it can still say and why. A wrong number is never shown.
 */

/** @type {Record<string, string>} */
const WHY = {
  starting: 'the queue keeper is starting',
  'waiting-for-peers': 'the queue keeper is waiting to see another node',
  loading: 'the queue keeper is loading',
  failed: 'the queue keeper failed to load, and tries again',
  stopped: 'the queue keeper is stopped',
};

/**
 * @param {{ stateJson(): string }} keeper
 * @returns {{ status: 200 | 503, headers: Record<string, string>, body: string }}
 */
function stateAnswer(keeper) {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  const text = keeper.stateJson();
  const document = JSON.parse(text);
  if (document.trust.live) return { status: 200, headers, body: text };
  return {
    status: 503,
    headers: { ...headers, 'retry-after': '1' },
    body: JSON.stringify(withoutCounts(document)),
  };
}

/** @param {any} document */
function withoutCounts(document) {
  const { coming: _coming, lateness: _lateness, flow: _flow, now, ...rest } = document;
  const { phase, keeper } = rest.trust;
  const why = WHY[phase] ?? `the queue keeper is not live (${phase})`;
  const cause = phase === 'failed' && keeper?.lastError ? `: ${errorText(keeper.lastError)}` : '';
  return { ...rest, now: { paused: now.paused, status: now.status }, error: `${why}${cause}` };
}

/** @param {unknown} error */
function errorText(error) {
  if (typeof error === 'string') return error;
  const message = /** @type {any} */ (error)?.message;
  return typeof message === 'string' ? message : JSON.stringify(error);
}

module.exports = { stateAnswer };
