'use strict';
// The drop-in for the component's JS keeper (SPEC.md section 13): the same names and behaviour on the native queue.

const { QueueKeeper } = require('../index.js');
const { dueOf, isObject } = require('./packer.js');
const { isDueTime } = require('./row.js');

/** The edges between lateness bins, in cadences. */
const LATENESS_EDGES = Object.freeze([0.25, 1, 2, 4]);

/**
 * @typedef {{nowMs?: number, sitemapBoost?: number, changedHeadStart?: number, urgentHeadStart?: number,
 *   changedDemand?: boolean}} Ranking
 */

/**
 * The score of a row (SPEC.md section 4).
 * @param {{dueAt: number, fromSitemap?: boolean, changed?: boolean, urgent?: boolean, demandPeriodMs?: number | null}} row
 * @param {Ranking & {nowMs: number, intervalMs: number}} ranking
 */
function scoreOf(row, ranking) {
  const { nowMs, intervalMs, sitemapBoost = 1, changedDemand = false } = ranking;
  const late = Math.max(0, nowMs - row.dueAt);
  const period = row.changed && changedDemand ? row.demandPeriodMs : null;
  const divisor = period ? Number(period) : intervalMs;
  const score = (divisor > 0 ? late / divisor : late) * (row.fromSitemap ? sitemapBoost : 1);
  let headStart = 0;
  if (row.changed) headStart = headStartOf(ranking.changedHeadStart);
  else if (row.urgent) headStart = headStartOf(ranking.urgentHeadStart);
  return headStart > 0 ? score + headStart * Math.max(1, sitemapBoost) : score;
}

/** One that is not finite and above 0 adds nothing. @param {any} value */
function headStartOf(value) {
  return value > 0 && value < Number.POSITIVE_INFINITY ? Number(value) : 0;
}

/**
 * @param {{classify: import('..').Classify, now?: () => number, flowMinutes?: number}} options
 */
function createQueueKeeper(options) {
  const { classify, now = Date.now, flowMinutes = 60 } = options ?? {};
  if (typeof classify !== 'function')
    throw new TypeError('classify must be a function: createQueueKeeper({ classify })');
  /** What the classifier threw: the JS keeper lets it through. @type {{thrown: unknown} | null} */
  let failure = null;
  const keeper = new QueueKeeper({
    classify: (key, row) => {
      try {
        // Of a row that is never due the JS keeper asks nothing.
        if (!isDueTime(dueOf(row.nextRenderTime))) return null;
        const said = classify(key, row);
        if (said === null) return null;
        const { route, cadenceMs, carried } = said ?? {};
        if (typeof route !== 'string' || typeof cadenceMs !== 'number') {
          throw new TypeError(
            'classify must give { route: a string, cadenceMs: a number }, or null',
          );
        }
        return { route, cadenceMs, carried: carried === true };
      } catch (thrown) {
        failure = { thrown };
        throw thrown;
      }
    },
    now: now(),
    flowMinutes,
    maxListed: 100_000,
    priority: { sitemapBoost: 1, changedHeadStart: 0, urgentHeadStart: 0, changedDemand: false },
  });
  let ranked = '';

  /** A time or a boost as the rows of a table may have it. All else is refused: the JS keeper makes 0 of it, or NaN. */
  const numberOf = dueOf;

  /** @param {number} [nowMs] */
  function tick(nowMs = now()) {
    keeper.setNow(numberOf(nowMs));
  }

  /** @param {Ranking} ranking */
  function rankBy({
    sitemapBoost = 1,
    changedHeadStart = 0,
    urgentHeadStart = 0,
    changedDemand = false,
  }) {
    const priority = {
      sitemapBoost: numberOf(sitemapBoost),
      changedHeadStart: headStartOf(changedHeadStart),
      urgentHeadStart: headStartOf(urgentHeadStart),
      changedDemand: Boolean(changedDemand),
    };
    const ranking = Object.values(priority).join(' ');
    if (ranking === ranked) return;
    keeper.configure({ priority });
    ranked = ranking;
  }

  /** @param {string} key @param {any} value @param {{quiet?: boolean}} [options] */
  function apply(key, value, options) {
    tick();
    if (typeof key !== 'string') return false;
    failure = null;
    const row = isObject(value) ? value : null;
    if (options?.quiet) keeper.repair(key, row);
    else if (row === null) keeper.applyAll([{ type: 'delete', id: key }]);
    else keeper.applyAll([{ type: 'put', id: key, value: row }]);
    if (failure !== null) throw /** @type {{thrown: unknown}} */ (failure).thrown;
    return dueMinuteOf(key) !== null;
  }

  /** @param {number} k @param {Ranking & {skip?: (key: string) => boolean}} [ranking] */
  function topK(k, ranking = {}) {
    const { nowMs = now(), skip } = ranking;
    rankBy(ranking);
    tick(nowMs);
    /** @type {Map<string, boolean>} */
    const asked = new Map();
    // Anything is taken for k: what is not above 0 asks for nothing.
    for (let want = k > 0 ? Math.ceil(Number(k)) : 0; ; want *= 2) {
      const top = keeper.topK(Math.min(want, Number.MAX_SAFE_INTEGER));
      /** @type {{entry: {cacheKey: string, dueAt: number, fromSitemap: boolean}, score: number}[]} */
      const rows = [];
      let skipped = 0;
      for (const { key: cacheKey, dueAt, fromSitemap, score } of top.rows) {
        if (rows.length >= k) break;
        if (skip && !asked.has(cacheKey)) asked.set(cacheKey, Boolean(skip(cacheKey)));
        if (asked.get(cacheKey)) skipped++;
        else rows.push({ entry: { cacheKey, dueAt, fromSitemap }, score });
      }
      if (!(rows.length < k) || top.complete) return { rows, skipped, complete: rows.length < k };
    }
  }

  /** @param {number} [nowMs] */
  function dueSummary(nowMs = now()) {
    tick(nowMs);
    return keeper.dueSummary();
  }

  /** @param {number} [nowMs] */
  function state(nowMs = now()) {
    tick(nowMs);
    const { now: due, coming, lateness, flow, trust } = keeper.state();
    return {
      rows: trust.keeper.rows,
      due: due.due,
      dueSitemap: due.dueSitemap,
      dueDiscovered: due.dueDiscovered,
      dueChanged: due.dueChanged,
      oldestChangedDueAt: due.oldestChangedAt,
      dueUrgent: due.dueUrgent,
      oldestUrgentDueAt: due.oldestUrgentAt,
      changedByDemand: due.changedByDemand,
      oldestDueAt: lateness.oldestDueAt,
      nextDueAt: lateness.nextDueAt,
      coming,
      lateness: {
        edges: lateness.edges,
        sitemap: lateness.sitemap,
        discovered: lateness.discovered,
      },
      byRoute: lateness.byRoute,
      classes: lateness.classes,
      flow,
    };
  }

  /** No key but a string is kept. @param {string} key */
  function find(key) {
    return typeof key === 'string' ? keeper.describe(key) : null;
  }

  /** @param {string} key */
  function dueMinuteOf(key) {
    return typeof key === 'string' ? keeper.dueMinuteOf(key) : null;
  }

  /** @param {string} key */
  function describe(key) {
    const described = find(key);
    if (described === null) return null;
    const { dueAt: _, ...rest } = described;
    return rest;
  }

  /** The row that would hold a key just so. @param {string} key */
  function heldValue(key) {
    const described = find(key);
    if (described === null) return null;
    const { dueAt, fromSitemap, carried, cadenceMs, changed, urgent, demandPeriodMs } = described;
    return {
      nextRenderTime: dueAt,
      fromSitemap,
      effectiveInterval: carried ? cadenceMs : null,
      changedAt: changed ? 1 : null,
      urgentAt: urgent ? 1 : null,
      demandPeriod: demandPeriodMs,
    };
  }

  return {
    apply,
    tick,
    topK,
    dueSummary,
    state,
    describe,
    heldValue,
    /** @param {string} key */
    has: (key) => dueMinuteOf(key) !== null,
    keys: () => keeper.keys().values(),
    dueMinuteOf,
    get version() {
      return keeper.version;
    },
    get size() {
      return keeper.size;
    },
    get classCount() {
      return keeper.classCount;
    },
  };
}

module.exports = { createQueueKeeper, scoreOf, LATENESS_EDGES };
