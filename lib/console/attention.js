/** What needs attention? */

import { noAnswer } from './serving.js';
import { counted, duration, isNumber, roughly, say } from './text.js';
import { isYoung } from './trust.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 * @typedef {import('./serving.js').Verdict} Verdict
 */

/** Verification is hourly unless configured: later than this it is late under any sensible setting. */
const VERIFY_LATE_MS = 2 * 3_600_000;
const CLOCKS_APART_MS = 30_000;
const RECENT_MS = 15 * 60_000;

/** @param {View} view @returns {Verdict} */
export function judgeAttention(view) {
  const { document } = view;
  if (!document) return { level: 'unknown', headline: 'Not known', why: [] };
  /** @type {Trouble[]} */
  let items;
  // What was wrong before may be so no longer.
  if (!view.isAnswering) items = [{ level: 'bad', is: noAnswer(view) }];
  else items = view.scope === 'cluster' ? clusterTroubles(view) : nodeTroubles(view);
  if (Math.abs(view.aheadMs) > CLOCKS_APART_MS) {
    const side = view.aheadMs > 0 ? 'ahead of' : 'behind';
    items.push({
      level: 'warn',
      is: [
        `This device's clock is ${duration(Math.abs(view.aheadMs))} ${side} the host's. Ages are counted on the host's.`,
      ],
    });
  }
  const bad = items.filter((item) => item.level === 'bad').length;
  const warn = items.length - bad;
  if (items.length === 0) {
    return { level: 'good', headline: 'Nothing', why: [['No trouble that the queue knows of.']] };
  }
  items.sort((one, other) => Number(other.level === 'bad') - Number(one.level === 'bad'));
  return {
    level: bad > 0 ? 'bad' : 'warn',
    headline: `${counted(bad + warn, 'thing')} to look at`,
    why: items.map((item) => item.is),
  };
}

/** @typedef {{ level: 'warn' | 'bad', is: Parts }} Trouble */

/** @param {View} view @returns {Trouble[]} */
function nodeTroubles({ document, now }) {
  return [...queueTroubles(document), ...keeperTroubles(document.trust?.keeper, now)];
}

/** @param {View} view @returns {Trouble[]} */
function clusterTroubles({ document, now }) {
  const found = queueTroubles(document);
  for (const summary of document.nodes) {
    if (summary.ok !== true) found.push({ level: 'bad', is: nodeTrouble(summary) });
    for (const trouble of keeperTroubles(summary.keeper, now)) {
      found.push({ ...trouble, is: [...say`${String(summary.node)}: `, ...trouble.is] });
    }
  }
  return found;
}

/** What the counts tell, where there are counts. @param {any} document @returns {Trouble[]} */
function queueTroubles(document) {
  const { now, lateness, coming } = document;
  /** @type {Trouble[]} */
  const found = [];
  if (now?.paused === true) found.push({ level: 'warn', is: ['Claims are paused.'] });
  if (!isNumber(now?.due) || !lateness || !coming) return found;
  if (now.due > 0 && now.inFlight === 0 && now.paused !== true) {
    found.push({
      level: 'bad',
      is: ['Pages are due and none is being rendered: is the fleet running?'],
    });
  }
  const last = lateness.edges.length;
  const latest = (lateness.sitemap[last] ?? 0) + (lateness.discovered[last] ?? 0);
  if (latest > 0) {
    found.push({
      level: 'warn',
      is: [`${counted(latest, 'page')} late by ${lateness.edges[last - 1]} cadences or more.`],
    });
  }
  if (now.heldKeys > 0) {
    found.push({
      level: 'warn',
      is: [
        `${counted(now.heldKeys, 'page')} held back: rendered again and again without coming to an end.`,
      ],
    });
  }
  if (now.drainEtaMs === null && now.inFlight > 0 && !isYoung(document)) {
    found.push({
      level: 'warn',
      is: ['The backlog of late pages does not shrink at the recent rates.'],
    });
  }
  return found;
}

/** @param {any} keeper @param {number} now @returns {Trouble[]} */
function keeperTroubles(keeper, now) {
  /** @type {Trouble[]} */
  const found = [];
  if (!keeper) return found;
  const { verify, lastError, unreadableRows, partialLoad, epoch, epochAt, invalidRules, loadedAt } =
    keeper;
  if (typeof lastError === 'string' && lastError !== '') {
    found.push({ level: 'warn', is: say`The last error: ${lastError}` });
  }
  if (partialLoad)
    found.push({ level: 'bad', is: ['The load stopped short: some rows are not kept.'] });
  if (unreadableRows > 0) {
    found.push({
      level: 'warn',
      is: [`${counted(unreadableRows, 'row')} of the table cannot be read.`],
    });
  }
  if (verify?.repaired > 0) {
    found.push({
      level: 'warn',
      is: [`The last verification put right ${counted(verify.repaired, 'missed write')}.`],
    });
  }
  const verifiedAt = verify?.at ?? loadedAt;
  if (isNumber(verifiedAt) && now - verifiedAt > VERIFY_LATE_MS) {
    found.push({ level: 'warn', is: [`No verification for ${roughly(now - verifiedAt)}.`] });
  }
  if (epoch > 1 && isNumber(epochAt) && now - epochAt < RECENT_MS) {
    found.push({
      level: 'warn',
      is: say`Another worker took over the feeding ${[roughly(now - epochAt)]} ago.`,
    });
  }
  if (Array.isArray(invalidRules)) {
    for (const rule of invalidRules) {
      const what = String(rule?.what ?? 'which, is not said');
      found.push({ level: 'warn', is: say`A rule of the routes is left out: ${what}` });
    }
  }
  return found;
}

/** @param {any} summary @returns {Parts} */
function nodeTrouble(summary) {
  const { node, error, reason } = summary;
  const why = typeof error === 'string' ? error : String(reason);
  return why.startsWith(String(node)) ? say`${why}.` : say`${String(node)}: ${why}.`;
}
