/** How late what is due is: by route, and the oldest page of each class. */

import { one, setHidden, showHeads, showRows } from './dom.js';
import { least, showMore, whyNone } from './section.js';
import { count, decimal, duration, isNumber, roughly, routeName } from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

const FEW_CLASSES = 12;
const FEW_ROUTES = 8;

/** @param {number[]} edges */
function binNames(edges) {
  const name = (/** @type {number} */ edge) => (edge === 0.25 ? '¼' : String(edge));
  const names = edges.map((edge, index) =>
    index === 0 ? `under ${name(edge)}` : `${name(edges[index - 1])} to ${name(edge)}`,
  );
  return [...names, `${name(edges[edges.length - 1])} or more`];
}

/** Which due pages are counted. */
let kind = 'all';
let allRoutes = false;

/** @param {View} view */
export function showLateness(view) {
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
    `${cadence}, ${carried ? 'carried by the row' : 'by route or default'}`,
    fromSitemap ? 'from the sitemap' : 'discovered',
    ...(changed ? ['changed'] : []),
    ...(urgent ? ['urgent'] : []),
    ...(isNumber(demandPeriodMs) ? [`a bot every ${duration(demandPeriodMs)}`] : []),
  ];
  return [words.join(' · ')];
}

/** @param {View} view */
export function showClasses(view) {
  const root = one('#classes');
  const classes = view.numbers?.lateness.classes ?? [];
  const clockNow = view.asOf;
  showRows(
    one('tbody', root),
    allClasses ? classes : classes.slice(0, FEW_CLASSES),
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
  showMore(one('.more button', root), classes.length, FEW_CLASSES, allClasses, 'classes');
  setHidden(one('.cut', root), view.numbers?.lateness.listsTruncated !== true);
}

/** @param {() => void} again  called where a choice changes what is shown */
export function listenToChoices(again) {
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
}
