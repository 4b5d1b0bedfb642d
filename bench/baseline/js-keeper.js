/**
 * The plain-JS keeper that the product replaces: the yardstick of the benches and of the drop-in's tests. Written anew
 * from SPEC.md, in the design of the component's own: a Map of key to (class, due minute) packed in one number, and per
 * class a Map of minute to a Set of keys, which is first in, first out by itself. It is tuned as one would tune such a
 * keeper for production, and no further.
 */

const MINUTE = 60_000;
const MAX_MINUTE = 4_294_967_295;
const CLASS_UNIT = 4_294_967_296;
const LATENESS_EDGES = Object.freeze([0.25, 1, 2, 4]);
const NUMERIC = /^[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;

/**
 * @typedef {{ route: string, cadenceMs: number, carried: boolean, fromSitemap: boolean, changed: boolean,
 *   urgent: boolean, demandPeriodMs: number | null }} ClassIdentity
 * @typedef {{ id: number, began: number, rows: number, minutes: Map<number, Set<string>>, order: number[] | null,
 *   first: number, stale: number, inside: Map<any, any>, at: any }} ClassRest
 * @typedef {ClassIdentity & ClassRest} Class
 * @typedef {{ cameDue: number, added: number, triggered: number, rescheduled: number, removed: number }} Flow
 * @typedef {{ nowMs?: number, sitemapBoost?: number, changedHeadStart?: number, urgentHeadStart?: number,
 *   changedDemand?: boolean, skip?: (key: string) => boolean }} Ranking
 */

/** @param {any} value @returns {number} the due minute, or -1 */
function dueMinute(value) {
  let ms = Number.NaN;
  if (typeof value === 'number') ms = value;
  else if (typeof value === 'bigint') ms = Number(value);
  else if (typeof value === 'string') {
    if (NUMERIC.test(value)) ms = Number(value);
  } else if (value instanceof Date) ms = value.getTime();
  if (!(ms >= 0 && ms < Number.POSITIVE_INFINITY)) return -1;
  const minute = Math.floor(ms / MINUTE) + 0; // + 0: -0 is 0
  return minute <= MAX_MINUTE ? minute : -1;
}

/** @param {any} value @returns {number | null} */
function positive(value) {
  const number = typeof value === 'bigint' ? Number(value) : value;
  return typeof number === 'number' && number > 0 && number < Number.POSITIVE_INFINITY
    ? number
    : null;
}

/**
 * @param {{ dueAt: number, fromSitemap?: boolean, changed?: boolean, urgent?: boolean, demandPeriodMs?: number | null }} row
 * @param {{ nowMs: number, intervalMs: number, sitemapBoost?: number, changedHeadStart?: number, urgentHeadStart?: number, changedDemand?: boolean }} ranking
 */
function scoreOf(row, ranking) {
  const {
    sitemapBoost = 1,
    changedHeadStart = 0,
    urgentHeadStart = 0,
    changedDemand = false,
  } = ranking;
  const late = Math.max(0, ranking.nowMs - row.dueAt);
  const byDemand = row.changed && changedDemand && row.demandPeriodMs;
  const divisor = byDemand ? Number(row.demandPeriodMs) : ranking.intervalMs;
  let score = divisor > 0 ? late / divisor : late;
  if (row.fromSitemap) score *= sitemapBoost;
  const headStart = row.changed ? changedHeadStart : row.urgent ? urgentHeadStart : 0;
  if (headStart > 0 && headStart < Number.POSITIVE_INFINITY)
    score += headStart * Math.max(1, sitemapBoost);
  return score;
}

/** @template K, V @param {Map<K, V>} map @param {K} key @param {() => V} make @returns {V} */
function getOrMake(map, key, make) {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

/**
 * @param {{ classify: (key: string, row: any) => null | { route: string, cadenceMs: number, carried?: boolean },
 *   now?: () => number, flowMinutes?: number }} options
 */
function createQueueKeeper({ classify, now = Date.now, flowMinutes = 60 }) {
  /** Key to class id * 2^32 + due minute. @type {Map<string, number>} */
  const held = new Map();
  /** @type {(Class | undefined)[]} */
  const byId = [];
  /** @type {number[]} */
  const freeIds = [];
  /** @type {Set<Class>} */
  const classes = new Set();
  /** Route to cadence to flags (or flags and demand period) to class. @type {Map<string, Map<number, Map<any, Class>>>} */
  const registry = new Map();
  /** @type {Map<number, Flow>} */
  const flow = new Map();
  let began = 0;
  let version = 0;
  let flowMinute = Math.floor(now() / MINUTE);

  // ---- Classes

  /** @param {{ route: string, cadenceMs: number, carried?: boolean }} said @param {any} row @returns {Class} */
  function classFor(said, row) {
    const { route, cadenceMs } = said;
    const carried = said.carried === true;
    const fromSitemap = Boolean(row.fromSitemap);
    const changed = positive(row.changedAt) !== null;
    const urgent = !changed && positive(row.urgentAt) !== null;
    const demandPeriodMs = changed ? positive(row.demandPeriod) : null;
    const flags = (carried ? 1 : 0) | (fromSitemap ? 2 : 0) | (changed ? 4 : 0) | (urgent ? 8 : 0);
    const at = demandPeriodMs === null ? flags : `${flags} ${demandPeriodMs}`;
    const byCadence = getOrMake(registry, route, () => new Map());
    const inside = getOrMake(byCadence, cadenceMs, () => new Map());
    const known = inside.get(at);
    if (known) return known;
    const id = freeIds.pop() ?? byId.length;
    const cls = {
      route,
      cadenceMs,
      carried,
      fromSitemap,
      changed,
      urgent,
      demandPeriodMs,
      id,
      began: ++began,
      rows: 0,
      minutes: new Map(),
      order: null,
      first: 0,
      stale: 0,
      inside,
      at,
    };
    inside.set(at, cls);
    byId[id] = cls;
    classes.add(cls);
    return cls;
  }

  /** @param {Class} cls */
  function endClass(cls) {
    cls.inside.delete(cls.at);
    if (cls.inside.size === 0) {
      const byCadence = registry.get(cls.route);
      byCadence?.delete(cls.cadenceMs);
      if (byCadence?.size === 0) registry.delete(cls.route);
    }
    byId[cls.id] = undefined;
    freeIds.push(cls.id);
    classes.delete(cls);
  }

  /** @param {Class} cls @param {number} minute @param {string} key */
  function enter(cls, minute, key) {
    let keys = cls.minutes.get(minute);
    if (keys === undefined) {
      keys = new Set();
      cls.minutes.set(minute, keys);
      if (cls.order !== null) noteMinute(cls, cls.order, minute);
    }
    keys.add(key);
    cls.rows++;
  }

  /** Keeps the order of a class's minutes when one begins. @param {Class} cls @param {number[]} order @param {number} minute */
  function noteMinute(cls, order, minute) {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {number} */ (order[middle]) < minute) low = middle + 1;
      else high = middle;
    }
    if (order[low] === minute) cls.stale--;
    else order.splice(low, 0, minute);
    // An emptied minute before `first` may have been passed for good.
    if (low <= cls.first) cls.first = low;
  }

  /** @param {Class} cls @param {number} minute @param {string} key */
  function leave(cls, minute, key) {
    const keys = /** @type {Set<string>} */ (cls.minutes.get(minute));
    keys.delete(key);
    cls.rows--;
    if (keys.size === 0) {
      cls.minutes.delete(minute);
      if (cls.order !== null && ++cls.stale > 64 && cls.stale > cls.order.length >> 1)
        cls.order = null;
    }
  }

  /** The minutes of a class, rising; those emptied since are still among them. @param {Class} cls */
  function ordered(cls) {
    if (cls.order === null) {
      cls.order = [...cls.minutes.keys()].sort((a, b) => a - b);
      cls.first = 0;
      cls.stale = 0;
    }
    return cls.order;
  }

  /** The index in `ordered` of the first minute with rows. @param {Class} cls */
  function headOf(cls) {
    const order = ordered(cls);
    while (cls.first < order.length && !cls.minutes.has(/** @type {number} */ (order[cls.first])))
      cls.first++;
    return cls.first;
  }

  // ---- Flow

  /** @param {number} minute @returns {Flow} */
  function flowAt(minute) {
    return getOrMake(flow, minute, () => ({
      cameDue: 0,
      added: 0,
      triggered: 0,
      rescheduled: 0,
      removed: 0,
    }));
  }

  /** @param {number} [nowMs] */
  function tick(nowMs = now()) {
    const minute = Math.floor(nowMs / MINUTE);
    if (minute === flowMinute) return;
    const from = Math.max(flowMinute, minute - flowMinutes) + 1;
    for (let at = from; at <= minute; at++) {
      let cameDue = 0;
      for (const cls of classes) cameDue += cls.minutes.get(at)?.size ?? 0;
      if (cameDue > 0) flowAt(at).cameDue += cameDue;
    }
    flowMinute = minute;
    for (const at of flow.keys()) if (at > minute || at <= minute - flowMinutes) flow.delete(at);
  }

  // ---- The one place where a row changes

  /**
   * @param {string} key @param {any} value the row, or null where there is none @param {{ quiet?: boolean }} [options]
   * @returns {boolean} whether the key is kept now
   */
  function apply(key, value, options) {
    tick();
    let minute = -1;
    let cls = null;
    if (value !== null && value !== undefined) {
      minute = dueMinute(value.nextRenderTime);
      if (minute >= 0) {
        const said = classify(key, value);
        if (said !== null) cls = classFor(said, value);
      }
    }
    const old = held.get(key);
    if (old === undefined) {
      if (cls === null) return false;
      enter(cls, minute, key);
      held.set(key, cls.id * CLASS_UNIT + minute);
      version++;
      if (!options?.quiet) flowAt(flowMinute).added++;
      return true;
    }
    const oldMinute = old % CLASS_UNIT;
    const oldClass = /** @type {Class} */ (byId[(old - oldMinute) / CLASS_UNIT]);
    if (cls === null) {
      leave(oldClass, oldMinute, key);
      if (oldClass.rows === 0) endClass(oldClass);
      held.delete(key);
      version++;
      if (!options?.quiet) flowAt(flowMinute).removed++;
      return false;
    }
    if (cls === oldClass && minute === oldMinute) return true;
    leave(oldClass, oldMinute, key);
    enter(cls, minute, key);
    if (oldClass.rows === 0) endClass(oldClass);
    held.set(key, cls.id * CLASS_UNIT + minute);
    version++;
    if (!options?.quiet) {
      const wasDue = oldMinute <= flowMinute;
      const nowDue = minute <= flowMinute;
      if (nowDue && !wasDue) flowAt(flowMinute).triggered++;
      else if (wasDue && !nowDue) flowAt(flowMinute).rescheduled++;
    }
    return true;
  }

  // ---- Order

  /**
   * The best `k` due rows: a merge over the heads of the classes. All rows of one minute of one class are equals, so
   * they are taken together.
   * @param {number} k @param {Ranking} [ranking]
   */
  function topK(k, ranking = {}) {
    const {
      nowMs = now(),
      sitemapBoost,
      changedHeadStart,
      urgentHeadStart,
      changedDemand,
      skip,
    } = ranking;
    const nowMinute = Math.floor(nowMs / MINUTE);
    const rows = [];
    let skipped = 0;

    /** @typedef {{ cls: Class, index: number, minute: number, score: number }} Head */
    /** A binary heap, the best head first. @type {Head[]} */
    const heads = [];
    const ahead = (/** @type {Head} */ a, /** @type {Head} */ b) =>
      a.score !== b.score
        ? a.score > b.score
        : a.minute !== b.minute
          ? a.minute < b.minute
          : a.cls.began < b.cls.began;
    const sink = (/** @type {number} */ at) => {
      const head = /** @type {Head} */ (heads[at]);
      for (;;) {
        let child = 2 * at + 1;
        if (child >= heads.length) break;
        if (
          child + 1 < heads.length &&
          ahead(/** @type {Head} */ (heads[child + 1]), /** @type {Head} */ (heads[child]))
        ) {
          child++;
        }
        if (!ahead(/** @type {Head} */ (heads[child]), head)) break;
        heads[at] = /** @type {Head} */ (heads[child]);
        at = child;
      }
      heads[at] = head;
    };
    const score = (/** @type {Class} */ cls, /** @type {number} */ minute) =>
      scoreOf(
        {
          dueAt: minute * MINUTE,
          fromSitemap: cls.fromSitemap,
          changed: cls.changed,
          urgent: cls.urgent,
          demandPeriodMs: cls.demandPeriodMs,
        },
        {
          nowMs,
          intervalMs: cls.cadenceMs,
          sitemapBoost,
          changedHeadStart,
          urgentHeadStart,
          changedDemand,
        },
      );

    for (const cls of classes) {
      const index = headOf(cls);
      const minute = /** @type {number} */ (ordered(cls)[index]);
      if (minute <= nowMinute) heads.push({ cls, index, minute, score: score(cls, minute) });
    }
    for (let at = (heads.length >> 1) - 1; at >= 0; at--) sink(at);

    while (heads.length > 0 && rows.length < k) {
      const head = /** @type {Head} */ (heads[0]);
      const { cls } = head;
      const dueAt = head.minute * MINUTE;
      for (const cacheKey of /** @type {Set<string>} */ (cls.minutes.get(head.minute))) {
        if (rows.length >= k) break;
        if (skip?.(cacheKey)) skipped++;
        else
          rows.push({
            entry: { cacheKey, dueAt, fromSitemap: cls.fromSitemap },
            score: head.score,
          });
      }
      const order = ordered(cls);
      do head.index++;
      while (
        head.index < order.length &&
        !cls.minutes.has(/** @type {number} */ (order[head.index]))
      );
      const next = order[head.index];
      if (next !== undefined && next <= nowMinute) {
        head.minute = next;
        head.score = score(cls, next);
      } else {
        const last = /** @type {Head} */ (heads.pop());
        if (heads.length > 0) heads[0] = last;
      }
      if (heads.length > 0) sink(0);
    }
    return { rows, skipped, complete: rows.length < k };
  }

  // ---- What can be asked

  /** @param {number} [nowMs] */
  function dueSummary(nowMs = now()) {
    const nowMinute = Math.floor(nowMs / MINUTE);
    let due = 0;
    let first = Number.POSITIVE_INFINITY;
    let next = Number.POSITIVE_INFINITY;
    for (const cls of classes) {
      const order = ordered(cls);
      for (let i = headOf(cls); i < order.length; i++) {
        const minute = /** @type {number} */ (order[i]);
        const rows = cls.minutes.get(minute)?.size;
        if (rows === undefined) continue;
        if (minute > nowMinute) {
          next = Math.min(next, minute);
          break;
        }
        first = Math.min(first, minute);
        due += rows;
      }
    }
    const known = (/** @type {number} */ minute) =>
      minute === Number.POSITIVE_INFINITY ? null : minute;
    return {
      rows: held.size,
      due,
      firstDueMinute: known(first),
      earliestNotYetDueMinute: known(next),
    };
  }

  /** @param {number} [nowMs] */
  function state(nowMs = now()) {
    tick(nowMs);
    const nowMinute = Math.floor(nowMs / MINUTE);
    let due = 0;
    let dueSitemap = 0;
    let dueChanged = 0;
    let dueUrgent = 0;
    let next15m = 0;
    let next60m = 0;
    let next24h = 0;
    let oldest = Number.POSITIVE_INFINITY;
    let oldestChanged = Number.POSITIVE_INFINITY;
    let oldestUrgent = Number.POSITIVE_INFINITY;
    let next = Number.POSITIVE_INFINITY;
    const byHour = new Array(24).fill(0);
    const lateness = { sitemap: [0, 0, 0, 0, 0], discovered: [0, 0, 0, 0, 0] };
    /** @type {Map<string, { route: string, due: number, sitemap: number[], discovered: number[] }>} */
    const byRoute = new Map();
    /** @type {Map<number | null, { periodMs: number | null, due: number, oldestDueAt: number }>} */
    const byDemand = new Map();
    const listed = [];

    for (const cls of classes) {
      let clsDue = 0;
      let clsOldest = Number.POSITIVE_INFINITY;
      const bins = [0, 0, 0, 0, 0];
      for (const [minute, { size }] of cls.minutes) {
        const ahead = minute - nowMinute;
        if (ahead > 0) {
          if (minute < next) next = minute;
          if (ahead < 1440) {
            next24h += size;
            byHour[Math.floor(ahead / 60)] += size;
            if (ahead <= 60) next60m += size;
            if (ahead <= 15) next15m += size;
          }
          continue;
        }
        clsDue += size;
        if (minute < clsOldest) clsOldest = minute;
        const cadences = cls.cadenceMs > 0 ? (-ahead * MINUTE) / cls.cadenceMs : 0;
        let bin = 0;
        while (bin < 4 && cadences >= /** @type {number} */ (LATENESS_EDGES[bin])) bin++;
        bins[bin] = /** @type {number} */ (bins[bin]) + size;
      }
      if (clsDue === 0) continue;
      due += clsDue;
      oldest = Math.min(oldest, clsOldest);
      if (cls.fromSitemap) dueSitemap += clsDue;
      if (cls.urgent) {
        dueUrgent += clsDue;
        oldestUrgent = Math.min(oldestUrgent, clsOldest);
      }
      if (cls.changed) {
        dueChanged += clsDue;
        oldestChanged = Math.min(oldestChanged, clsOldest);
        const periodMs = cls.demandPeriodMs;
        const of = getOrMake(byDemand, periodMs, () => ({
          periodMs,
          due: 0,
          oldestDueAt: Number.POSITIVE_INFINITY,
        }));
        of.due += clsDue;
        of.oldestDueAt = Math.min(of.oldestDueAt, clsOldest * MINUTE);
      }
      const { route } = cls;
      const perRoute = getOrMake(byRoute, route, () => ({
        route,
        due: 0,
        sitemap: [0, 0, 0, 0, 0],
        discovered: [0, 0, 0, 0, 0],
      }));
      perRoute.due += clsDue;
      const side = cls.fromSitemap ? 'sitemap' : 'discovered';
      for (let bin = 0; bin < 5; bin++) {
        const rows = /** @type {number} */ (bins[bin]);
        lateness[side][bin] = /** @type {number} */ (lateness[side][bin]) + rows;
        perRoute[side][bin] = /** @type {number} */ (perRoute[side][bin]) + rows;
      }
      listed.push({
        route,
        cadenceMs: cls.cadenceMs,
        carried: cls.carried,
        fromSitemap: cls.fromSitemap,
        changed: cls.changed,
        urgent: cls.urgent,
        demandPeriodMs: cls.demandPeriodMs,
        rows: cls.rows,
        due: clsDue,
        oldestDueAt: clsOldest * MINUTE,
        oldestLatenessCadences:
          cls.cadenceMs > 0 ? ((nowMinute - clsOldest) * MINUTE) / cls.cadenceMs : null,
      });
    }
    listed.sort((a, b) => (b.oldestLatenessCadences ?? -1) - (a.oldestLatenessCadences ?? -1));
    const at = (/** @type {number} */ minute) =>
      minute === Number.POSITIVE_INFINITY ? null : minute * MINUTE;
    return {
      rows: held.size,
      due,
      dueSitemap,
      dueDiscovered: due - dueSitemap,
      dueChanged,
      oldestChangedDueAt: at(oldestChanged),
      dueUrgent,
      oldestUrgentDueAt: at(oldestUrgent),
      changedByDemand: [...byDemand.values()],
      oldestDueAt: at(oldest),
      nextDueAt: at(next),
      coming: { next15m, next60m, next24h, byHour },
      lateness: { edges: [...LATENESS_EDGES], ...lateness },
      byRoute: [...byRoute.values()].sort((a, b) => b.due - a.due),
      classes: listed,
      flow: [...flow].sort(([a], [b]) => a - b).map(([minute, counts]) => ({ minute, ...counts })),
    };
  }

  /** @param {string} key @returns {{ minute: number, cls: Class } | null} */
  function find(key) {
    const packed = held.get(key);
    if (packed === undefined) return null;
    const minute = packed % CLASS_UNIT;
    return { minute, cls: /** @type {Class} */ (byId[(packed - minute) / CLASS_UNIT]) };
  }

  /** @param {string} key */
  function describe(key) {
    const at = find(key);
    if (at === null) return null;
    const { route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = at.cls;
    return {
      minute: at.minute,
      route,
      cadenceMs,
      carried,
      fromSitemap,
      changed,
      urgent,
      demandPeriodMs,
    };
  }

  /** A row that would be kept just so. @param {string} key */
  function heldValue(key) {
    const at = find(key);
    if (at === null) return null;
    const { cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = at.cls;
    const nextRenderTime = at.minute * MINUTE;
    return {
      nextRenderTime,
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
    has: (key) => held.has(key),
    keys: () => held.keys(),
    /** @param {string} key */
    dueMinuteOf: (key) => find(key)?.minute ?? null,
    get version() {
      return version;
    },
    get size() {
      return held.size;
    },
    get classCount() {
      return classes.size;
    },
  };
}

/** A URL whose path is what `new URL` would say without looking twice. */
const PLAIN_URL = /^https:\/\/[a-z0-9.-]+(\/[A-Za-z0-9/_~-]*)(?:[?#]|$)/;

/**
 * The built-in rules of SPEC 3 for a node without peers, as the component has them in JS: for the benches. Most paths
 * are cut out with one regular expression, because `new URL` alone would cost as much as the rest of an event.
 * @param {{ routes: { match: string, path: string, mode?: string, renderInterval?: number }[], defaultInterval: number,
 *   delimiter?: string, deviceTypes?: string[] }} rules
 */
function createClassifier({
  routes,
  defaultInterval,
  delimiter = '|',
  deviceTypes = ['desktop', 'mobile'],
}) {
  const devices = new Set(deviceTypes);
  const named = routes.map((rule) => ({ ...rule, name: `route:${rule.match}:${rule.path}` }));

  /** @param {string} url */
  function pathOf(url) {
    const plain = PLAIN_URL.exec(url);
    if (plain) return /** @type {string} */ (plain[1]);
    try {
      return new URL(url).pathname;
    } catch {
      return null;
    }
  }

  /** @param {string} key @param {any} row */
  return function classify(key, row) {
    const at = key.lastIndexOf(delimiter);
    const url = at >= 0 && devices.has(key.slice(at + delimiter.length)) ? key.slice(0, at) : key;
    const carried = positive(row.effectiveInterval);
    const path = pathOf(url);
    let route = 'unrouted';
    let interval = defaultInterval;
    for (const rule of path === null ? [] : named) {
      const { match } = rule;
      const hit =
        match === 'exact'
          ? path === rule.path
          : match === 'prefix'
            ? /** @type {string} */ (path).startsWith(rule.path)
            : /** @type {string} */ (path).includes(rule.path);
      if (!hit) continue;
      if (rule.mode !== 'passthrough') {
        route = rule.name;
        interval = rule.renderInterval ?? defaultInterval;
      }
      break;
    }
    return { route, cadenceMs: carried ?? interval, carried: carried !== null };
  };
}

module.exports = { createQueueKeeper, createClassifier, scoreOf, LATENESS_EDGES };
