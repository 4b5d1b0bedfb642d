'use strict';

/**
 * One question to another node over HTTP, bounded in time and in size. What answers is not trusted: a redirect is not
 * followed, and whatever goes wrong is one error that says why in words.
 *
 * @typedef {'unreachable' | 'timeout' | 'refused' | 'malformed' | 'not-live' | 'stale' | 'ring-differs'
 *   | 'wrong-node'} Reason
 *
 * @typedef {object} Question
 * @property {(url: string, init: any) => Promise<any>} [fetch]
 * @property {string} [method]
 * @property {Record<string, string>} [headers]
 * @property {string} [body]
 * @property {number} [timeoutMs]  how long the node may take, its whole answer included
 * @property {number} [maxBytes]  how long its answer may be
 */

const TIMEOUT_MS = 2_000;
const MOST_BYTES = 4 * 2 ** 20;
/** Of what another node says, so much is passed on in a sentence. */
const MOST_WORDS = 200;

/** Why a node's answer is of no use. */
class Unusable extends Error {
  /**
   * @param {Reason} reason
   * @param {string} message  what follows the node's name in a sentence
   */
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/**
 * @param {string | null} url  of the node; null where it is not known
 * @param {string} path
 * @param {Question} [question]
 * @returns {Promise<{ status: number, body: string }>}
 */
async function askNode(url, path, { timeoutMs = TIMEOUT_MS, ...question } = {}) {
  if (url === null) {
    throw new Unusable('unreachable', 'has no address: name it in the list of nodes with its URL');
  }
  const gaveUp = new AbortController();
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  // Whatever `fetch` makes of the signal, the deadline holds.
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => {
      reject(new Unusable('timeout', `does not answer (timed out after ${timeoutMs} ms)`));
    }, timeoutMs);
  });
  try {
    return await Promise.race([deadline, exchange(url + path, gaveUp.signal, question)]);
  } finally {
    clearTimeout(timer);
    gaveUp.abort();
  }
}

/**
 * @param {string} url
 * @param {AbortSignal} signal
 * @param {Question} question
 */
async function exchange(url, signal, question) {
  const {
    fetch = globalThis.fetch,
    method = 'GET',
    headers,
    body,
    maxBytes = MOST_BYTES,
  } = question;
  let response;
  try {
    response = await fetch(url, {
      method,
      headers: { accept: 'application/json', 'accept-encoding': 'identity', ...headers },
      body,
      // Followed, one would carry the credentials to a host that is not in the list.
      redirect: 'manual',
      signal,
    });
  } catch (error) {
    const { cause } = /** @type {Error} */ (error);
    throw new Unusable('unreachable', `cannot be reached (${messageOf(cause ?? error)})`);
  }
  const { status } = response;
  if (status >= 300 && status < 400) {
    throw new Unusable(
      'refused',
      `answers with a redirect (${status}), which is not followed: name its own URL`,
    );
  }
  return { status, body: await bodyOf(response, maxBytes) };
}

/**
 * @param {any} response
 * @param {number} maxBytes
 */
async function bodyOf(response, maxBytes) {
  /** @type {Uint8Array[]} */
  const chunks = [];
  let bytes = 0;
  try {
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) {
        throw new Unusable('malformed', `answers with more than ${maxBytes} bytes`);
      }
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Unusable) throw error;
    throw new Unusable('unreachable', `broke off its answer (${messageOf(error)})`);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new Unusable('malformed', 'does not answer in UTF-8');
  }
}

/** @param {string} text */
function cut(text) {
  return text.length > MOST_WORDS ? `${text.slice(0, MOST_WORDS)} ...` : text;
}

/** @param {unknown} error */
function messageOf(error) {
  const { message, code } = Object(error);
  return cut(String(message || code || error));
}

module.exports = { askNode, cut, messageOf, Unusable };
