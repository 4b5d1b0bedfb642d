/** What stands behind the numbers of one node. */

import { one, setHidden, showFacts } from './dom.js';
import {
  at,
  count,
  counted,
  decimal,
  duration,
  isNumber,
  list,
  roughly,
  say,
  size,
} from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

/** @param {View} view */
export function showKeeper(view) {
  const { document, scope, now } = view;
  const keeper = document?.trust?.keeper;
  const root = one('#keeper');
  setHidden(root, scope !== 'node' || !keeper);
  if (scope !== 'node' || !keeper) return;
  const ago = (/** @type {unknown} */ ms, /** @type {string} */ otherwise) =>
    isNumber(ms) ? [...at(ms), ` (${roughly(now - ms)} ago)`] : [otherwise];
  const { topCheck } = keeper;
  showFacts(one('dl', root), [
    {
      term: 'Phase',
      is: say`${String(keeper.phase)}`,
      more: keeper.resyncing ? ['walking the table again'] : undefined,
    },
    {
      term: 'Feeder',
      is: [`epoch ${keeper.epoch}`],
      more: ['since ', ...ago(keeper.epochAt, 'not known')],
    },
    {
      term: 'Loaded',
      is: ago(keeper.loadedAt, 'not yet'),
      more: [
        `${counted(keeper.loadRows, 'row')}`,
        ...(isNumber(keeper.loadMs) ? [` in ${duration(keeper.loadMs)}`] : []),
        ...(keeper.partialLoad ? [', in part only'] : []),
      ],
    },
    { term: 'Last verification', ...walkWords(keeper.verify, ago) },
    { term: 'Last resync', ...walkWords(keeper.lastResync, ago) },
    {
      term: 'Head check',
      is: ago(topCheck?.at, 'not yet'),
      more: topCheck
        ? [`${counted(topCheck.checked, 'row')} read, ${topCheck.repaired} put right`]
        : undefined,
    },
    { term: 'Last event', is: ago(keeper.lastEventAt, 'none yet') },
    {
      term: 'Events applied',
      is: count(keeper.eventsApplied),
      more: [
        `${counted(keeper.eventsIgnored, 'other')}, ${counted(keeper.eventsOutdated, 'outdated', 'outdated')}, `,
        `${counted(keeper.eventsFlagged, 'to be re-read', 'to be re-read')}, ${counted(keeper.malformed, 'malformed', 'malformed')}`,
      ],
    },
    {
      term: 'Rows kept',
      is: count(keeper.rows),
      more: [
        `in ${counted(keeper.classes, 'class', 'classes')}`,
        ...(isNumber(keeper.carriedRows)
          ? [`, ${counted(keeper.carriedRows, 'row')} with a cadence of their own`]
          : []),
      ],
    },
    {
      term: 'Memory',
      is: size(keeper.bytes),
      more:
        isNumber(keeper.bytes) && keeper.rows > 0
          ? [`${decimal(keeper.bytes / keeper.rows)[0]} B a row`]
          : undefined,
    },
    {
      term: 'Writes missed, put right',
      is: count(missedTotal(keeper)),
      more: isNumber(keeper.lateTotal)
        ? [`since the start; ${counted(keeper.lateTotal, 'other')} came late`]
        : ['since the start'],
    },
    {
      term: 'Rows gained, lost',
      is: [...count(keeper.gainedTotal), ', ', ...count(keeper.lostTotal)],
      more: ['by changes of the ring of nodes'],
    },
    {
      term: 'Unverified rows',
      is: count(keeper.unverifiedRows),
      more: ['from a snapshot, not compared yet'],
    },
    { term: 'Rows waiting to be read', is: count(keeper.awaitingRead) },
    { term: 'Unreadable rows', is: count(keeper.unreadableRows) },
    {
      term: 'Ring of nodes',
      is: Array.isArray(keeper.ring)
        ? list(keeper.ring.map((/** @type {unknown} */ name) => say`${String(name)}`))
        : count(null),
    },
    {
      term: 'Last error',
      ...(typeof keeper.lastError === 'string'
        ? { is: say`${keeper.lastError}`, more: ['the last there was; it may be long over'] }
        : { is: ['none'] }),
    },
  ]);
}

/**
 * @param {any} report
 * @param {(ms: unknown, otherwise: string) => Parts} ago
 * @returns {{ is: Parts, more?: Parts }}
 */
function walkWords(report, ago) {
  if (!report) return { is: ['none yet'] };
  return {
    is: ago(report.at, 'not known'),
    more: [
      `${counted(report.scanned, 'row')} in ${duration(report.ms)}${report.partial ? ', in part only' : ''}: `,
      `${counted(report.repaired, 'missed write')} put right `,
      `(${report.missing} missing, ${report.mismatched} different, ${counted(report.phantoms, 'phantom')}), `,
      `${report.gained} gained, ${report.lost} lost`,
    ],
  };
}

/** Writes put right less those that were only late. @param {any} keeper */
export function missedTotal({ repairedTotal, lateTotal }) {
  return isNumber(repairedTotal) ? repairedTotal - (isNumber(lateTotal) ? lateTotal : 0) : null;
}
