/** What is due, and what is coming next. */

import { one, setHidden, showFacts, showRows } from './dom.js';
import { whyNone } from './section.js';
import { count, counted, duration, isNumber, roughly } from './text.js';
import { isYoung } from './trust.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

/** @param {View} view */
export function showDue(view) {
  const { numbers } = view;
  const why = whyNone(view);
  const now = numbers?.now ?? {};
  const coming = numbers?.coming ?? {};
  const lateness = numbers?.lateness ?? {};
  const clockNow = view.asOf;
  /** @param {unknown} due @param {unknown} oldest @returns {Parts} */
  const oldest = (due, oldest) => {
    if (due === 0) return ['none'];
    return isNumber(oldest) ? [`oldest due ${roughly(clockNow - oldest)} ago`] : ['\u00a0'];
  };
  showFacts(one('#due .tiles'), [
    {
      term: 'Due',
      is: count(now.due, why),
      more: numbers ? oldest(now.due, lateness.oldestDueAt) : [why],
    },
    { term: 'From the sitemap', is: count(now.dueSitemap, why), more: ['of those due'] },
    { term: 'Discovered', is: count(now.dueDiscovered, why), more: ['of those due'] },
    {
      term: 'Changed',
      is: count(now.dueChanged, why),
      more: oldest(now.dueChanged, now.oldestChangedAt),
    },
    {
      term: 'Urgent',
      is: count(now.dueUrgent, why),
      more: oldest(now.dueUrgent, now.oldestUrgentAt),
    },
    {
      term: 'In flight',
      is: count(now.inFlight, why),
      more: isNumber(now.leasesLeft)
        ? [`being rendered, ${counted(now.leasesLeft, 'lease')} left`]
        : ['being rendered'],
      level: now.leasesLeft === 0 ? 'warn' : '',
    },
    { term: 'Unclaimed', is: count(now.unclaimed, why), more: ['due and not in flight'] },
    {
      term: 'Held back',
      is: count(now.heldKeys, why),
      more: ['after repeated misses'],
      level: now.heldKeys > 0 ? 'warn' : '',
    },
    { term: 'Drained in', ...drain(numbers, why) },
    { term: 'Next 15 minutes', is: count(coming.next15m, why), more: ['come due'] },
    { term: 'Next 60 minutes', is: count(coming.next60m, why), more: ['come due'] },
    {
      term: 'Next 24 hours',
      is: count(coming.next24h, why),
      more: nextDue(lateness.nextDueAt, clockNow),
    },
  ]);
  const demand = Array.isArray(now.changedByDemand) ? now.changedByDemand : [];
  setHidden(one('#demand'), demand.length === 0);
  showRows(
    one('#demand tbody'),
    demand,
    (entry) => String(entry.periodMs),
    (entry) => [
      { is: isNumber(entry.periodMs) ? [duration(entry.periodMs)] : ['not known'] },
      { is: count(entry.due) },
      {
        is: isNumber(entry.oldestDueAt)
          ? [`${roughly(clockNow - entry.oldestDueAt)} ago`]
          : count(null),
      },
    ],
  );
}

/** @param {unknown} nextDueAt @param {number} now @returns {Parts} */
function nextDue(nextDueAt, now) {
  if (!isNumber(nextDueAt)) return ['come due'];
  return nextDueAt <= now
    ? ['come due, the next now']
    : [`come due, the next in ${roughly(nextDueAt - now)}`];
}

/** @param {any} numbers @param {string} why @returns {{ is: Parts, more: Parts }} */
function drain(numbers, why) {
  const more = ['until none is later than its cadence'];
  if (!numbers) return { is: [{ none: why }], more };
  const { drainEtaMs } = numbers.now;
  if (drainEtaMs === 0) return { is: ['drained'], more: ['none is later than its cadence'] };
  if (isNumber(drainEtaMs)) return { is: [duration(drainEtaMs)], more };
  if (drainEtaMs !== null) return { is: count(undefined), more };
  const { generatedAt, nodes, now, trust } = numbers;
  const all = nodes ?? [{ now, keeper: trust.keeper }];
  const never = all.filter((/** @type {any} */ node) => {
    return node.now?.drainEtaMs === null && !isYoung(node.keeper, generatedAt);
  });
  if (never.length === 0) {
    return {
      is: [{ none: 'it began too short a time ago' }],
      more: ['not known so soon after a start'],
    };
  }
  const where = nodes ? `on ${never.length} of ${counted(all.length, 'node')} ` : '';
  return { is: ['never'], more: [`${where}the late pages do not get fewer`] };
}
