/** What comes due in the next 24 hours, and what went on in the last hour. */

import { FLOWS, flowChart, hoursChart } from './charts.js';
import { one, setHidden, show, showHeads, showRows } from './dom.js';
import { whyNone } from './section.js';
import { at, clock, count, counted, isNumber, say } from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

const MINUTE = 60_000;
const HOUR = 3_600_000;

/** @type {ReturnType<typeof hoursChart> | null} */
let hours = null;

/** @param {View} view */
export function showComing(view) {
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

/** @type {ReturnType<typeof flowChart> | null} */
let flow = null;

/** The keepers whose numbers are added up. @param {View} view @returns {{ keeper: any, node: unknown }[]} */
function keepersOf({ numbers, scope }) {
  return scope === 'cluster' ? numbers.nodes : [{ ...numbers.trust, node: numbers.node }];
}

/**
 * Each minute of the last hour. One that the answer leaves out had nothing in it, unless it was before the counting began, or is not
 * remembered.
 *
 * @param {View} view
 * @param {number | null} since
 */
function minutesOf(view, since) {
  const { numbers } = view;
  const last = Math.floor(numbers.generatedAt / MINUTE);
  const known = new Map(numbers.flow.map((/** @type {any} */ entry) => [entry.minute, entry]));
  const remembered = keepersOf(view).map(({ keeper }) => keeper?.flowMinutes ?? 60);
  const from = last + 1 - Math.min(60, ...remembered);
  const first = since === null ? from : Math.max(from, Math.floor(since / MINUTE));
  return Array.from({ length: 60 }, (_, index) => {
    const minute = last - 59 + index;
    const entry = known.get(minute);
    const counts = FLOWS.map(({ name }) => {
      if (minute < from || (!entry && minute < first)) return null;
      return entry ? (isNumber(entry[name]) ? entry[name] : null) : 0;
    });
    return { minute, counts };
  });
}

/** Since when the flow is counted: the youngest load of those that are added up. @param {View} view */
function countedSince(view) {
  /** @type {{ at: number, node: string }[]} */
  const begun = [];
  for (const { keeper, node } of keepersOf(view)) {
    const at = keeper?.loadStartedAt ?? keeper?.loadedAt;
    if (isNumber(at)) begun.push({ at, node: String(node) });
  }
  return begun.length > 0 ? begun.reduce((one, other) => (other.at > one.at ? other : one)) : null;
}
/** @param {View} view */
export function showFlow(view) {
  const { numbers } = view;
  const root = one('#flow');
  const legend = one('.legend', root);
  const since = numbers ? countedSince(view) : null;
  const minutes = numbers ? minutesOf(view, since?.at ?? null) : [];
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
  const first = minutes.find(({ counts }) => counts.some(isNumber));
  setHidden(note, !young && first === minutes[0]);
  if (young) {
    const only =
      view.scope === 'cluster' ? say`${young.node} has counted` : ['It has been counted'];
    show(note, [...only, ' only since ', ...at(young.at), ': it began then.']);
  } else if (first) {
    show(note, [
      `Only the minutes from ${clock(first.minute * MINUTE)} on are remembered: see flowMinutes.`,
    ]);
  }
  showHeads(one('thead tr', root), ['Minute', ...FLOWS.map(({ label }) => label)]);
  showRows(
    one('tbody', root),
    [...minutes].reverse(),
    (entry) => String(entry.minute),
    (entry) => [
      { is: [clock(entry.minute * MINUTE)] },
      ...entry.counts.map((value) => ({ is: count(value, 'nothing is remembered of it') })),
    ],
  );
}
