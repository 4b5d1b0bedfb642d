/** The parts of the page that show numbers. Each takes what is known and changes what it shows in place. */

import { FLOWS, flowChart, hoursChart } from './charts.js';
import {
  isSelected,
  one,
  setHidden,
  setText,
  show,
  showFacts,
  showHeads,
  showRows,
} from './dom.js';
import { isYoung, summaryServing } from './judge.js';
import {
  at,
  clock,
  count,
  counted,
  decimal,
  duration,
  isNumber,
  list,
  roughly,
  routeName,
  say,
  size,
} from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

const MINUTE = 60_000;
const HOUR = 3_600_000;
const FEW = 12;
const FEW_ROUTES = 8;

/** A section that stands still while somebody has text of it selected, and says so. */
class Section {
  #note;
  /** @type {string | null} What it shows is of this moment. */
  #shownAt = null;

  /** @param {string} id @param {(view: View) => void} update */
  constructor(id, update) {
    this.root = /** @type {HTMLElement} */ (one(`#${id}`));
    this.update = update;
    this.#note = document.createElement('p');
    this.#note.className = 'note standing';
    this.#note.hidden = true;
    this.root.append(this.#note);
  }

  /** @param {View} view @param {string} moment */
  show(view, moment) {
    const stands = this.#shownAt !== null && isSelected(this.root);
    if (stands) {
      if (this.#shownAt !== moment) {
        setText(this.#note, `Not refreshed while text in it is selected. As of ${this.#shownAt}.`);
        setHidden(this.#note, false);
      }
      return;
    }
    setHidden(this.#note, true);
    this.#shownAt = moment;
    this.update(view);
  }
}

/** Why a count is not there. @param {View} view */
function whyNone({ document, failure }) {
  if (failure) return `no answer: ${failure.status ?? 'not reached'}`;
  return typeof document?.error === 'string' ? 'the host gives no numbers now' : 'no answer yet';
}

// Due now

/** @param {View} view */
function showDue(view) {
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
    { term: 'In flight', is: count(now.inFlight, why), more: ['being rendered'] },
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
  if (drainEtaMs === null && isYoung(numbers)) {
    return {
      is: [{ none: 'it began too short a time ago' }],
      more: ['not known so soon after a start'],
    };
  }
  return drainEtaMs === null
    ? { is: ['never'], more: ['the late pages do not get fewer'] }
    : { is: count(undefined), more };
}

/** A node's drain time in few words. @param {any} node @param {number} generatedAt @returns {Parts} */
function drainWords({ now, keeper }, generatedAt) {
  const drainEtaMs = now?.drainEtaMs;
  if (isNumber(drainEtaMs)) return [drainEtaMs === 0 ? 'drained' : duration(drainEtaMs)];
  if (drainEtaMs !== null || now.due === null) return [{ none: 'not known now' }];
  const isSoon = isYoung({ generatedAt, trust: { keeper } });
  return isSoon ? [{ none: 'it began too short a time ago' }] : ['never'];
}

// Lateness

/** @param {number[]} edges */
function binNames(edges) {
  const name = (/** @type {number} */ edge) => (edge === 0.25 ? '¼' : String(edge));
  const names = edges.map((edge, index) =>
    index === 0 ? `under ${name(edge)}` : `${name(edges[index - 1])} to ${name(edge)}`,
  );
  return [...names, `${name(edges[edges.length - 1])} or more`];
}

let kind = 'all';
let allRoutes = false;

/** @param {View} view */
function showLateness(view) {
  const lateness = view.numbers?.lateness;
  const root = one('#lateness');
  const edges = lateness?.edges ?? [0.25, 1, 2, 4];
  showHeads(one('thead tr', root), ['Route', 'Due', ...binNames(edges)]);
  const routes = lateness?.byRoute ?? [];
  const listed = allRoutes ? routes : routes.slice(0, FEW_ROUTES);
  const rows = [
    { route: null, sitemap: lateness?.sitemap ?? [], discovered: lateness?.discovered ?? [] },
    ...listed,
  ];
  const why = whyNone(view);
  showRows(
    one('tbody', root),
    rows,
    (row) => (row.route === null ? '' : `route ${row.route}`),
    (row) => {
      /** @type {(number | null)[]} */
      const bins = binNames(edges).map((_, index) => {
        const [sitemap, discovered] = [row.sitemap[index], row.discovered[index]];
        if (kind === 'sitemap') return isNumber(sitemap) ? sitemap : null;
        if (kind === 'discovered') return isNumber(discovered) ? discovered : null;
        return isNumber(sitemap) && isNumber(discovered) ? sitemap + discovered : null;
      });
      const known = bins.every(isNumber);
      const sum = known ? bins.reduce((total, bin) => total + Number(bin), 0) : null;
      return [
        { is: row.route === null ? ['All routes'] : routeName(row.route) },
        { is: least(row, count(sum, why)) },
        ...bins.map((bin, index) => ({
          is: count(bin, why),
          share: sum ? Number(bin) / sum : 0,
          level: bin && index >= bins.length - 1 ? 'bad' : bin && index >= 2 ? 'warn' : '',
        })),
      ];
    },
  );
  showMore(one('.more button', root), routes.length, FEW_ROUTES, allRoutes, 'routes');
  setHidden(one('.cut', root), lateness?.listsTruncated !== true);
}

/** A node cut its list before this: there may be more of it. @param {any} entry @param {Parts} parts @returns {Parts} */
function least(entry, parts) {
  return entry.atLeast === true ? ['at least ', ...parts] : parts;
}

/** @param {HTMLElement} button @param {number} total @param {number} few @param {boolean} all @param {string} nouns */
function showMore(button, total, few, all, nouns) {
  setHidden(button, total <= few);
  setText(button, all ? `Show the first ${few} only` : `Show all ${total} ${nouns}`);
  button.setAttribute('aria-expanded', String(all));
}

// Classes

let allClasses = false;

/** @param {any} each */
function classKey(each) {
  const { route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = each;
  return JSON.stringify([route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs]);
}

/** All that tells a class apart. @param {any} each @returns {Parts} */
function classWords(each) {
  const { cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = each;
  const cadence = isNumber(cadenceMs) ? `every ${duration(cadenceMs)}` : 'no cadence';
  const words = [
    `${cadence}, ${carried ? 'carried by the row' : 'of the route'}`,
    fromSitemap ? 'from the sitemap' : 'discovered',
    ...(changed ? ['changed'] : []),
    ...(urgent ? ['urgent'] : []),
    ...(isNumber(demandPeriodMs) ? [`a bot every ${duration(demandPeriodMs)}`] : []),
  ];
  return [words.join(' · ')];
}

/** @param {View} view */
function showClasses(view) {
  const root = one('#classes');
  const classes = view.numbers?.lateness.classes ?? [];
  const clockNow = view.asOf;
  showRows(
    one('tbody', root),
    allClasses ? classes : classes.slice(0, FEW),
    classKey,
    (/** @type {any} */ each) => [
      { is: routeName(each.route), more: classWords(each) },
      { is: isNumber(each.oldestDueAt) ? [roughly(clockNow - each.oldestDueAt)] : count(null) },
      {
        is: decimal(each.oldestLatenessCadences, 'its cadence is not above 0'),
        level:
          each.oldestLatenessCadences >= 4 ? 'bad' : each.oldestLatenessCadences >= 1 ? 'warn' : '',
      },
      { is: least(each, count(each.due)) },
      { is: least(each, count(each.rows)) },
    ],
  );
  setHidden(one('.scroll', root), classes.length === 0);
  setHidden(one('.empty', root), classes.length > 0);
  showMore(one('.more button', root), classes.length, FEW, allClasses, 'classes');
  setHidden(one('.cut', root), view.numbers?.lateness.listsTruncated !== true);
}

// Coming

/** @type {ReturnType<typeof hoursChart> | null} */
let hours = null;

/** @param {View} view */
function showComing(view) {
  const { numbers } = view;
  const byHour = numbers?.coming.byHour ?? [];
  const root = one('#coming');
  const from = numbers ? Math.floor(numbers.generatedAt / MINUTE) * MINUTE : 0;
  const most = Math.max(...byHour.filter(isNumber));
  const peak = byHour.indexOf(most);
  const at = from + peak * HOUR;
  show(one('.sum', root), [
    ...count(numbers?.coming.next24h, whyNone(view)),
    ' pages come due',
    ...(peak >= 0 ? [`, at most ${counted(most, 'page')} in an hour, from ${clock(at)}.`] : ['.']),
  ]);
  hours ??= hoursChart(one('.chart', root));
  void hours.set(
    from,
    byHour.map((/** @type {unknown} */ value) => (isNumber(value) ? value : null)),
  );
  showRows(
    one('tbody', root),
    byHour.map((/** @type {unknown} */ value, /** @type {number} */ hour) => ({ value, hour })),
    (row) => String(row.hour),
    (row) => [
      {
        is: [
          `${clock(from + row.hour * HOUR)} to ${clock(from + row.hour * HOUR + HOUR - MINUTE)}`,
        ],
      },
      { is: count(row.value), share: most > 0 ? Number(row.value) / most : 0 },
    ],
  );
}

// Flow

/** @type {ReturnType<typeof flowChart> | null} */
let flow = null;

/**
 * Each minute of the last hour. One that the answer leaves out had nothing in it, unless it was before the counting
 * began.
 *
 * @param {any} numbers
 * @param {number | null} since
 */
function minutesOf(numbers, since) {
  const last = Math.floor(numbers.generatedAt / MINUTE);
  const first = since === null ? last - 59 : Math.max(last - 59, Math.floor(since / MINUTE));
  const known = new Map(numbers.flow.map((/** @type {any} */ entry) => [entry.minute, entry]));
  return Array.from({ length: 60 }, (_, index) => {
    const minute = last - 59 + index;
    const entry = known.get(minute);
    const counts = FLOWS.map(({ name }) => {
      if (entry) return isNumber(entry[name]) ? entry[name] : null;
      return minute >= first ? 0 : null;
    });
    return { minute, counts };
  });
}

/** Since when the flow is counted: the youngest load of those that are added up. @param {View} view */
function countedSince({ numbers, scope }) {
  /** @type {{ at: number, node: string }[]} */
  const begun = [];
  const keepers = scope === 'cluster' ? numbers.nodes : [{ ...numbers.trust, node: numbers.node }];
  for (const { keeper, node } of keepers) {
    const at = keeper?.loadStartedAt ?? keeper?.loadedAt;
    if (isNumber(at)) begun.push({ at, node: String(node) });
  }
  return begun.length > 0 ? begun.reduce((one, other) => (other.at > one.at ? other : one)) : null;
}
/** @param {View} view */
function showFlow(view) {
  const { numbers } = view;
  const root = one('#flow');
  const legend = one('.legend', root);
  const since = numbers ? countedSince(view) : null;
  const minutes = numbers ? minutesOf(numbers, since?.at ?? null) : [];
  FLOWS.forEach(({ label }, index) => {
    const values = minutes.map((minute) => minute.counts[index]).filter(isNumber);
    const sum = values.length > 0 ? values.reduce((total, value) => total + value, 0) : null;
    const item = legend.children[index] ?? legend.appendChild(document.createElement('li'));
    item.className = `s${index + 1}`;
    show(item, [`${label} `, { strong: '' }, ...count(sum, whyNone(view))]);
  });
  flow ??= flowChart(one('.chart', root));
  void flow.set(minutes);
  const young = since && view.now - since.at < HOUR ? since : null;
  const note = one('.since', root);
  setHidden(note, !young);
  if (young) {
    const only =
      view.scope === 'cluster' ? say`${young.node} has counted` : ['It has been counted'];
    show(note, [...only, ' only since ', ...at(young.at), ': it began then.']);
  }
  showHeads(one('thead tr', root), ['Minute', ...FLOWS.map(({ label }) => label)]);
  showRows(
    one('tbody', root),
    [...minutes].reverse(),
    (entry) => String(entry.minute),
    (entry) => [
      { is: [clock(entry.minute * MINUTE)] },
      ...entry.counts.map((value) => ({ is: count(value, 'not counted then') })),
    ],
  );
}

// Nodes

/** @param {View} view */
function showNodes(view) {
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

/** Writes put right less those that were only late. @param {any} keeper */
function missedTotal({ repairedTotal, lateTotal }) {
  return isNumber(repairedTotal) ? repairedTotal - (isNumber(lateTotal) ? lateTotal : 0) : null;
}

/** @param {any} node @returns {import('./dom.js').Cell} */
function nodeNumbers(node) {
  if (node.ok !== true) {
    const why = typeof node.error === 'string' ? node.error : String(node.reason);
    return { is: ['None'], level: 'bad', more: say`${why}` };
  }
  return node.exact === true
    ? { is: ['Exact'], level: 'good' }
    : { is: ['Not proven exact'], level: 'warn' };
}

// Behind the numbers

/** @param {View} view */
function showKeeper(view) {
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
      is: typeof keeper.lastError === 'string' ? say`${keeper.lastError}` : ['none'],
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

/** @param {() => void} again  called where a choice changes what is shown */
export function createSections(again) {
  one('#lateness .choice').addEventListener('change', (/** @type {any} */ event) => {
    kind = event.target.value;
    again();
  });
  one('#lateness .more button').addEventListener('click', () => {
    allRoutes = !allRoutes;
    again();
  });
  one('#classes .more button').addEventListener('click', () => {
    allClasses = !allClasses;
    again();
  });
  return [
    new Section('nodes', showNodes),
    new Section('due', showDue),
    new Section('lateness', showLateness),
    new Section('coming', showComing),
    new Section('flow', showFlow),
    new Section('classes', showClasses),
    new Section('keeper', showKeeper),
  ];
}
