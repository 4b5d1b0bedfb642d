/** Is it serving? */

import { counted, isNumber, list, roughly, say } from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 * @typedef {'good' | 'warn' | 'bad' | 'unknown'} Level
 * @typedef {{ level: Level, headline: string, why: Parts[] }} Verdict
 */

/** @type {Record<string, string>} */
const PHASES = {
  starting: 'is starting',
  'waiting-for-peers': 'waits to see another node, as it cannot know its share before',
  loading: 'is loading the table',
  live: 'is live',
  failed: 'failed to load the table, and tries again',
  stopped: 'is stopped',
};

/** What a node does, after its name. @param {unknown} phase @returns {Parts} */
export function phaseWords(phase) {
  const text = String(phase);
  return Object.hasOwn(PHASES, text) ? [PHASES[text]] : say`is in the phase ${text}`;
}

/** @param {View} view @returns {Parts} */
export function nameOf({ document, scope }) {
  if (scope === 'cluster') return ['the cluster'];
  return typeof document?.node === 'string' ? [{ outside: document.node }] : ['this node'];
}

/** @param {View} view @returns {Verdict} */
export function judgeServing(view) {
  const { document } = view;
  if (!document) return { level: 'unknown', headline: 'Not known', why: [noAnswer(view)] };
  if (!view.isAnswering) {
    const before = view.scope === 'cluster' ? clusterServing(document) : nodeServing(document);
    const then = say`When it last answered, ${[roughly(view.answerAgeMs ?? 0)]} ago: ${lower(before.headline)}.`;
    return { level: 'unknown', headline: 'Not known', why: [noAnswer(view), then] };
  }
  return view.scope === 'cluster' ? clusterServing(document) : nodeServing(document);
}

/** @param {string} text */
function lower(text) {
  return { strong: text[0].toLowerCase() + text.slice(1) };
}

/** @param {View} view @returns {Parts} */
export function noAnswer(view) {
  if (!view.document && !view.failure) return ['No answer yet.'];
  // As after a sleep of this device, before the next question is answered.
  if (!view.failure) return ['No answer has come in time.'];
  return say`${nameOrHost(view)} does not answer: ${view.failure.why}.`;
}

/** @param {View} view @returns {Parts} */
export function nameOrHost(view) {
  const { node } = view.document ?? {};
  return typeof node === 'string' ? [{ outside: node }] : ['The host of this page'];
}

/**
 * What keeps claims from every page that waits, where something does; null where that is not known either.
 *
 * @param {any} now
 * @returns {'hold' | 'limit' | null}
 */
export function stopOf(now) {
  if (!(now?.unclaimed > 0) || now.paused === true) return null;
  if (now.unclaimed <= now.heldDue) return 'hold';
  return now.leasesLeft === 0 ? 'limit' : null;
}

export const AT_LIMIT = 'At the limit of leases';

/**
 * @param {{ now: any, phase: unknown }} known
 * @returns {{ level: Level, headline: string, why: Parts }}
 */
export function servingOf({ now, phase }) {
  if (phase === 'starting' || phase === 'stopped') {
    return {
      level: 'bad',
      headline: 'No',
      why: say`The queue ${phaseWords(phase)}: claims are refused.`,
    };
  }
  if (now?.paused === true) {
    return {
      level: 'warn',
      headline: 'Paused',
      why: ['Claims grant nothing until somebody resumes.'],
    };
  }
  const partly = phase === 'live' ? null : say`The queue ${phaseWords(phase)}`;
  const stop = stopOf(now);
  switch (now?.status) {
    case 'queued':
      if (stop === 'limit') {
        const why =
          now.inFlight > 0
            ? `${counted(now.inFlight, 'lease')} given out, and leases.maxLeases allows no more: claims get nothing until one ends.`
            : 'Claims get nothing: leases.maxLeases is 0.';
        return { level: 'warn', headline: AT_LIMIT, why: [why] };
      }
      if (partly) {
        return {
          level: 'warn',
          headline: 'Yes, in part',
          why: [...partly, ': claims get what is kept so far.'],
        };
      }
      if (stop === 'hold') {
        return {
          level: 'warn',
          headline: 'Yes, but all is held back',
          why: [
            'Claims get none of the pages that wait: they are held back after repeated misses.',
          ],
        };
      }
      return { level: 'good', headline: 'Yes', why: ['Claims get pages.'] };
    case 'empty':
      return {
        level: 'good',
        headline: 'Yes, nothing is due',
        why: ['Claims find no page that is due.'],
      };
    case 'unready':
      return {
        level: 'warn',
        headline: 'Not yet',
        why: partly
          ? [...partly, ', and nothing of what is kept so far is due.']
          : ['Not the whole table is kept, and nothing of what is kept is due.'],
      };
    default:
      return { level: 'unknown', headline: 'Not known', why: ['The answer does not say.'] };
  }
}

/** @param {any} document @returns {Verdict} */
function nodeServing(document) {
  const { level, headline, why } = servingOf({ now: document.now, phase: document.trust?.phase });
  /** @type {Parts[]} */
  const reasons = [why];
  const { due, inFlight, unclaimed, paused } = document.now;
  if (!paused && isNumber(due) && due > 0 && isNumber(unclaimed)) {
    reasons.push([
      `${counted(inFlight, 'page')} being rendered, ${counted(unclaimed, 'page')} waiting.`,
    ]);
  }
  return { level, headline, why: reasons };
}

/** @param {any} summary  of one node in the cluster's answer */
export function summaryServing(summary) {
  if (summary.phase === null || summary.phase === undefined || !summary.now) {
    const why = typeof summary.error === 'string' ? say`${summary.error}` : ['It does not answer.'];
    return { level: /** @type {Level} */ ('unknown'), headline: 'Not known', why };
  }
  return servingOf(summary);
}

/** @param {any} document @returns {Verdict} */
function clusterServing({ nodes }) {
  /** @type {Map<string, { level: Level, nodes: Parts[] }>} */
  const groups = new Map();
  for (const summary of nodes) {
    const { level, headline } = summaryServing(summary);
    const group = groups.get(headline) ?? { level, nodes: [] };
    group.nodes.push([{ outside: String(summary.node) }]);
    groups.set(headline, group);
  }
  const why = [...groups].map(([headline, group]) => [
    ...list(group.nodes),
    `: ${headline.toLowerCase()}.`,
  ]);
  const all = nodes.length;
  const serving = nodes.filter((/** @type {any} */ summary) => serves(summaryServing(summary)));
  const levels = [...groups.values()].map((group) => group.level);
  if (groups.size === 1) {
    const [headline] = groups.keys();
    const where = all === 1 || serving.length === 0 ? '' : `, on all ${all} nodes`;
    return { level: levels[0], headline: headline + where, why };
  }
  if (serving.length === all && levels.every((level) => level === 'good')) {
    const headline = groups.has('Yes') ? 'Yes' : 'Yes, nothing is due';
    return { level: 'good', headline: `${headline}, on all ${all} nodes`, why };
  }
  const level = levels.includes('bad') || levels.includes('unknown') ? 'bad' : 'warn';
  return { level, headline: `On ${serving.length || 'none'} of ${all} nodes`, why };
}

/** @param {{ level: Level, headline: string }} verdict  of a node */
function serves({ level, headline }) {
  return level === 'good' || headline.startsWith('Yes, ');
}
