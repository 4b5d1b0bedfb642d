'use strict';

/**
 * The answer of the state route, the same from every host: the document while the keeper can vouch for its
 * numbers, else 503 with what it can still say and why. A wrong number is never shown.
 */

/**
 * What the asker gave here comes back, so that an answer that was kept somewhere on the way (by a proxy) shows itself:
 * no clock is needed for that.
 */
const QUESTION = 'x-queue-question';
const LONGEST_QUESTION = 64;

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
 * @param {(document: any) => object | null} [more]  what the host has to say beside it
 * @param {unknown} [question]  what came in the header `QUESTION`
 * @returns {{ status: 200 | 503, headers: Record<string, string>, body: string }}
 */
function stateAnswer(keeper, more = () => null, question = undefined) {
  /** @type {Record<string, string>} */
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  if (typeof question === 'string' && question.length <= LONGEST_QUESTION) {
    headers[QUESTION] = question;
  }
  const text = keeper.stateJson();
  const document = JSON.parse(text);
  const said = more(document);
  if (document.trust.live) {
    const body = said ? `${text.slice(0, -1)},${JSON.stringify(said).slice(1)}` : text;
    return { status: 200, headers, body };
  }
  return {
    status: 503,
    headers: { ...headers, 'retry-after': '1' },
    body: JSON.stringify({ ...withoutCounts(document), ...said }),
  };
}

/** @param {any} document */
function withoutCounts(document) {
  const { coming: _coming, lateness: _lateness, flow: _flow, now, ...rest } = document;
  const { phase, keeper } = rest.trust;
  const why = WHY[phase] ?? `the queue keeper is not live (${phase})`;
  const cause = phase === 'failed' && keeper.lastError ? `: ${keeper.lastError}` : '';
  return { ...rest, now: { paused: now.paused, status: now.status }, error: `${why}${cause}` };
}

module.exports = { stateAnswer, QUESTION };
