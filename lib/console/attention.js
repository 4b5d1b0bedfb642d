/** What needs attention? */

import { noAnswer, stopOf } from './serving.js';
import { counted, duration, isNumber, list, roughly, say } from './text.js';
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
/** A page that has just come due need not be rendered yet. */
const WAITING_MS = 2 * 60_000;

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
  const { trust, lateness, generatedAt } = document;
  /** @type {Trouble[]} */
  const found = [];
  if (trust.phase === 'failed' && typeof document.error === 'string') {
    found.push({ level: 'bad', is: say`${document.error}.` });
  }
  for (const { level, holds, is } of OF_CLAIMS) {
    const node = { now: document.now, keeper: trust.keeper, oldestDueAt: lateness?.oldestDueAt };
    if (holds(node, generatedAt)) found.push({ level, is: is([]) });
  }
  return [...found, ...queueTroubles(document), ...keeperTroubles(trust.keeper, now)];
}

/** @param {View} view @returns {Trouble[]} */
function clusterTroubles({ document, now }) {
  const { nodes, generatedAt } = document;
  /** @type {Trouble[]} */
  const found = [];
  for (const { level, holds, is } of OF_CLAIMS) {
    // What is wrong with one that gives no numbers is said below.
    const where = nodes.filter((/** @type {any} */ node) => {
      return node.ok === true && holds(node, generatedAt);
    });
    const names = where.map((/** @type {any} */ { node }) => say`${String(node)}`);
    if (names.length > 0) found.push({ level, is: is([' on ', ...list(names)]) });
  }
  found.push(...queueTroubles(document));
  for (const summary of nodes) {
    if (summary.ok !== true) found.push({ level: 'bad', is: nodeTrouble(summary) });
    for (const trouble of keeperTroubles(summary.keeper, now)) {
      found.push({ ...trouble, is: [...say`${String(summary.node)}: `, ...trouble.is] });
    }
  }
  return found;
}

/**
 * Where it `holds` for a node it is said of that node, however well the others do.
 *
 * @typedef {object} OfClaims
 * @property {'warn' | 'bad'} level
 * @property {(node: { now: any, keeper: any, oldestDueAt: any }, generatedAt: number) => boolean} holds
 * @property {(where: Parts) => Parts} is  `where`: of a cluster, on which nodes
 */

/** What may be wrong with the claims of a node. @type {OfClaims[]} */
const OF_CLAIMS = [
  {
    level: 'bad',
    holds: ({ now, oldestDueAt }, generatedAt) =>
      now?.due > 0 &&
      now.inFlight === 0 &&
      now.paused !== true &&
      stopOf(now) === null &&
      generatedAt - oldestDueAt > WAITING_MS,
    is: (where) => [
      'Pages are due',
      ...where,
      ' and none of them is being rendered: ',
      where.length > 0 ? 'does the fleet claim there?' : 'is the fleet running?',
    ],
  },
  {
    level: 'bad',
    holds: ({ now }) => stopOf(now) === 'limit' && now.inFlight === 0,
    is: (where) => [
      'Pages are due',
      ...where,
      ' and none of them is ever given out: leases.maxLeases is 0. Raise it.',
    ],
  },
  {
    level: 'warn',
    holds: ({ now }) => stopOf(now) === 'limit' && now.inFlight > 0,
    is: (where) => [
      'Claims get nothing',
      ...where,
      ', at the limit of leases: raise leases.maxLeases, or see why renderers do not finish.',
    ],
  },
  {
    level: 'warn',
    holds: ({ now }) => now?.paused === true,
    is: (where) => ['Claims are paused', ...where, '.'],
  },
  {
    level: 'warn',
    holds: ({ now, keeper }, generatedAt) =>
      now?.drainEtaMs === null && now.inFlight > 0 && !isYoung(keeper, generatedAt),
    is: (where) => ['The backlog of late pages', ...where, ' does not shrink at the recent rates.'],
  },
];

/** What the counts tell, where there are counts. @param {any} document @returns {Trouble[]} */
function queueTroubles({ now, lateness, coming }) {
  /** @type {Trouble[]} */
  const found = [];
  if (!isNumber(now?.due) || !lateness || !coming) return found;
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
  return found;
}

/** @param {any} keeper @param {number} now @returns {Trouble[]} */
function keeperTroubles(keeper, now) {
  /** @type {Trouble[]} */
  const found = [];
  if (!keeper) return found;
  const { verify, unreadableRows, partialLoad, epoch, epochAt, invalidRules } = keeper;
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
  if (verify?.partial) {
    found.push({ level: 'warn', is: ['The last verification stopped short, and is tried again.'] });
  }
  const verifiedAt = keeper.verifiedAt ?? keeper.loadedAt;
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
