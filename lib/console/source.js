/**
 * What is known from one route: its latest answer, the latest one with numbers, and how old each is. The last
 * numbers are kept when no new ones come, and are never fresh again by that.
 */

import { elapsed } from './api.js';
import { isNumber } from './text.js';

/** Numbers older than this are old, whatever the reason: two refreshes have failed to come. */
export const FRESH_MS = 12_000;

/** @typedef {{ document: any, sent: import('./api.js').Moment }} Kept */

export class Source {
  /** @type {Kept | null} The latest answer. */
  latest = null;
  /** @type {Kept | null} The latest answer with numbers. */
  numbers = null;
  /** @type {{ why: string, status: number | null } | null} Why the latest question has no answer. */
  failure = null;

  /** @param {'node' | 'cluster'} scope */
  constructor(scope) {
    this.scope = scope;
  }

  /** @param {import('./api.js').Answered | import('./api.js').Failed} reply */
  take(reply) {
    if (reply.kind === 'failure') {
      this.failure = { why: reply.why, status: reply.status };
      return;
    }
    const { document, sent, status } = reply;
    const wrong = whatIsWrong(document, this.scope, status);
    if (wrong) {
      this.failure = { why: wrong, status };
      return;
    }
    this.failure = null;
    this.latest = { document, sent };
    if (status === 200) this.numbers = this.latest;
  }

  /** Where what was taken turns out to be no good. @param {string} why */
  forget(why) {
    this.latest = null;
    this.numbers = null;
    this.failure = { why, status: null };
  }

  /** What the views show, at this moment. */
  view() {
    const { latest, numbers, failure, scope } = this;
    const document = latest?.document ?? null;
    const ageMs = numbers ? ageOf(numbers) : null;
    const trust = numbers?.document.trust;
    const isOldAtHome =
      isNumber(trust?.stateAgeMs) && isNumber(trust?.maxAgeMs) && trust.stateAgeMs > trust.maxAgeMs;
    const isFresh =
      numbers !== null &&
      numbers === latest &&
      failure === null &&
      ageMs !== null &&
      ageMs <= FRESH_MS &&
      !isOldAtHome;
    return {
      scope,
      failure,
      /** The latest answer, with numbers or without. */
      document,
      answerAgeMs: latest ? elapsed(latest.sent) : null,
      /** The latest answer with numbers. */
      numbers: numbers?.document ?? null,
      ageMs,
      isFresh,
      /** Whether the latest answer is of now, with numbers or without. */
      isAnswering: failure === null && latest !== null && elapsed(latest.sent) <= FRESH_MS,
      isOldAtHome,
      /** The moment of the latest answer, on the host's clock: whatever part of the page says how long ago something was, counts from it. */
      now: document?.generatedAt,
      /** The moment of the numbers: nothing about them goes on. */
      asOf: numbers?.document.generatedAt,
      /** How far this device's clock is ahead of the host's, less than what the answer took. */
      aheadMs: latest ? latest.sent.wall - latest.document.generatedAt : 0,
    };
  }
}

/** @typedef {ReturnType<Source['view']>} View */

/** @param {Kept} kept */
function ageOf({ document, sent }) {
  const before = document.trust?.stateAgeMs;
  return elapsed(sent) + (isNumber(before) ? before : 0);
}

/**
 * What this console cannot read is said, rather than shown in parts.
 *
 * @param {any} document
 * @param {'node' | 'cluster'} scope
 * @param {number} status
 */
function whatIsWrong(document, scope, status) {
  if (document.schema !== 1) return 'an answer of another schema than this console reads (1)';
  if (!isNumber(document.generatedAt)) return 'an answer that does not say when it was made';
  if (scope === 'cluster') {
    const { nodes } = document;
    if (!Array.isArray(nodes) || !nodes.every(isObject)) return 'an answer without nodes';
    if (status !== 200 && nodes.every((node) => node.ok === true)) return 'no total, and no reason';
  } else if (!isObject(document.trust) || !isObject(document.now)) {
    return 'an answer without trust or now';
  }
  if (status !== 200) return null;
  for (const name of ['now', 'coming', 'lateness', 'trust']) {
    if (!isObject(document[name])) return `an answer without ${name}`;
  }
  if (!Array.isArray(document.flow)) return 'an answer without flow';
  for (const name of ['byRoute', 'classes', 'edges', 'sitemap', 'discovered']) {
    if (!Array.isArray(document.lateness[name])) return `an answer without lateness.${name}`;
  }
  return Array.isArray(document.coming.byHour) ? null : 'an answer without coming.byHour';
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
