'use strict';

const http = require('node:http');
const https = require('node:https');

/**
 * One question to another node over HTTP, bounded in time and in size. What answers is not trusted: a redirect is not
 * followed, and whatever goes wrong is one error that says why in words.
 *
 * @typedef {'unreachable' | 'timeout' | 'refused' | 'malformed' | 'not-live' | 'stale' | 'ring-differs'
 *   | 'wrong-node' | 'handing-over'} Reason
 *
 * @typedef {object} Question
 * @property {string} [method]
 * @property {Record<string, string>} [headers]
 * @property {string} [body]
 * @property {number} [timeoutMs]  how long the node may take, its whole answer included
 * @property {number} [maxBytes]  how long its answer may be
 */

const PLAIN = { request: http.request, agent: new http.Agent({ keepAlive: true }) };
const SECURE = { request: https.request, agent: new https.Agent({ keepAlive: true }) };
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

/** A kept connection was closed before anything came back. */
class ClosedIdle extends Unusable {}

/**
 * @param {string | null} url  of the node; null where it is not known
 * @param {string} path
 * @param {Question} [question]
 * @returns {Promise<{ status: number, headers: http.IncomingHttpHeaders, body: string }>}
 */
async function askNode(url, path, question = {}) {
  if (url === null) {
    throw new Unusable('unreachable', 'has no address: name it in the list of nodes with its URL');
  }
  const { timeoutMs = TIMEOUT_MS } = question;
  const gaveUp = new AbortController();
  const timer = setTimeout(() => {
    gaveUp.abort(new Unusable('timeout', `does not answer (timed out after ${timeoutMs} ms)`));
  }, timeoutMs);
  try {
    const ask = () => exchange(url + path, gaveUp.signal, question);
    const { status, headers, bytes } = await ask().catch((error) => {
      // Closed, as idle, while the question was on its way: that says nothing about the node.
      if (error instanceof ClosedIdle && !gaveUp.signal.aborted) return ask();
      throw error;
    });
    if (status >= 300 && status < 400) {
      throw new Unusable(
        'refused',
        `answers with a redirect (${status}), which is not followed: name its own URL`,
      );
    }
    return { status, headers, body: textOf(bytes) };
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Not `fetch`, which takes several times as long for a short answer, and follows redirects and unpacks unless it is told.
 *
 * @param {string} url
 * @param {AbortSignal} signal
 * @param {Question} question
 * @returns {Promise<{ status: number, headers: http.IncomingHttpHeaders, bytes: Buffer }>}
 */
function exchange(url, signal, question) {
  const { method = 'GET', headers = {}, body, maxBytes = MOST_BYTES } = question;
  return new Promise((resolve, reject) => {
    const { request, agent } = url.startsWith('https:') ? SECURE : PLAIN;
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const sent = {
      accept: 'application/json',
      'accept-encoding': 'identity',
      ...length,
      ...headers,
    };
    // Whatever the connection does, or does not do.
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    let isAnswered = false;
    /** @type {http.ClientRequest} */
    let asked;
    try {
      asked = request(url, { agent, method, headers: sent, signal });
    } catch (error) {
      return reject(new Unusable('unreachable', `cannot be asked (${messageOf(error)})`));
    }
    asked.on('error', (error) => {
      const Why = asked.reusedSocket && !isAnswered ? ClosedIdle : Unusable;
      reject(new Why('unreachable', `cannot be reached (${messageOf(error)})`));
    });
    asked.on('response', (response) => {
      isAnswered = true;
      /** @type {Buffer[]} */
      const chunks = [];
      let bytes = 0;
      response.on('data', (/** @type {Buffer} */ chunk) => {
        bytes += chunk.length;
        if (bytes <= maxBytes) return void chunks.push(chunk);
        reject(new Unusable('malformed', `answers with more than ${maxBytes} bytes`));
        asked.destroy();
      });
      response.on('end', () =>
        resolve({
          status: Number(response.statusCode),
          headers: response.headers,
          bytes: Buffer.concat(chunks),
        }),
      );
      response.on('error', (error) =>
        reject(new Unusable('unreachable', `broke off its answer (${messageOf(error)})`)),
      );
    });
    asked.end(body);
  });
}

/** @param {Buffer} bytes */
function textOf(bytes) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
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
