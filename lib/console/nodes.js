/** The nodes of a cluster, side by side. */

import { one, setHidden, showRows } from './dom.js';
import { missedTotal } from './keeper.js';
import { summaryServing } from './serving.js';
import { at, count, counted, duration, isNumber, roughly, say } from './text.js';
import { isYoung } from './trust.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

/** In few words; the whole sentence is among what needs attention. @type {Record<string, string>} */
const REASONS = {
  unreachable: 'not reached',
  timeout: 'no answer in time',
  refused: 'refuses to tell',
  malformed: 'not readable',
  'not-live': 'not live',
  stale: 'too old',
  'ring-differs': 'another ring',
  'wrong-node': 'another node answers',
  'handing-over': 'hands rows over',
};

/** @param {View} view */
export function showNodes(view) {
  const { document, scope, now } = view;
  setHidden(one('#nodes'), scope !== 'cluster' || !document);
  if (scope !== 'cluster' || !document) return;
  const why = 'not known now';
  showRows(
    one('#nodes tbody'),
    document.nodes,
    (/** @type {any} */ node) => String(node.node),
    (/** @type {any} */ node) => {
      const serving = summaryServing(node);
      const keeper = node.keeper ?? {};
      const { verify } = keeper;
      const isSelf = node.node === document.node;
      return [
        { is: say`${String(node.node)}`, more: isSelf ? ['this host'] : undefined },
        {
          is: [serving.headline],
          level: serving.level,
          more: node.phase && node.phase !== 'live' ? serving.why : undefined,
        },
        nodeNumbers(node),
        { is: count(node.now?.due, why) },
        { is: count(node.now?.inFlight, why) },
        { is: count(node.now?.heldKeys, why), level: node.now?.heldKeys > 0 ? 'warn' : '' },
        {
          is: isNumber(node.oldestDueAt)
            ? [`${roughly(now - node.oldestDueAt)} ago`]
            : [{ none: node.now?.due === 0 ? 'nothing is due' : why }],
        },
        { is: drainWords(node, document.generatedAt) },
        {
          is: count(keeper.rows, why),
          more: isNumber(keeper.carriedRows)
            ? [counted(keeper.carriedRows, 'carried', 'carried')]
            : undefined,
        },
        { is: count(keeper.gainedTotal, why) },
        { is: count(keeper.lostTotal, why) },
        { is: count(missedTotal(keeper), why), level: missedTotal(keeper) ? 'warn' : '' },
        verify
          ? {
              is: [`${roughly(now - verify.at)} ago`],
              more: [
                `${counted(verify.scanned, 'row')}, ${counted(verify.repaired, 'missed write')}`,
              ],
            }
          : { is: node.keeper ? ['none yet'] : [{ none: why }] },
        {
          is: at(keeper.epochAt, why),
          more: isNumber(keeper.epoch) ? [`epoch ${keeper.epoch}`] : undefined,
        },
      ];
    },
  );
}

/** A node's drain time in few words. @param {any} node @param {number} generatedAt @returns {Parts} */
function drainWords({ now, keeper }, generatedAt) {
  const drainEtaMs = now?.drainEtaMs;
  if (isNumber(drainEtaMs)) return [drainEtaMs === 0 ? 'drained' : duration(drainEtaMs)];
  if (drainEtaMs !== null || now.due === null) return [{ none: 'not known now' }];
  return isYoung(keeper, generatedAt) ? [{ none: 'it began too short a time ago' }] : ['never'];
}

/** @param {any} node @returns {import('./dom.js').Cell} */
function nodeNumbers(node) {
  if (node.ok !== true) {
    const { reason } = node;
    const isKnown = typeof reason === 'string' && Object.hasOwn(REASONS, reason);
    return {
      is: ['None'],
      level: 'bad',
      more: isKnown ? [REASONS[reason]] : say`${String(reason)}`,
    };
  }
  return node.exact === true
    ? { is: ['Exact'], level: 'good' }
    : { is: ['Not proven exact'], level: 'warn' };
}
