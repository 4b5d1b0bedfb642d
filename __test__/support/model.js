/**
 * The queue keeper as SPEC.md tells it, and nothing clever: every answer scans and sorts everything again. It is the
 * oracle of the model test, so a line here that is not obviously right is a bug. Manual clock only.
 */

const MINUTE = 60_000;
const HOUR = 3_600_000;
const MAX_MINUTE = 4_294_967_295;
const LATENESS_EDGES = [0.25, 1, 2, 4];
const NUMERIC = /^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;

/**
 * @typedef {{ route: string, cadenceMs: number, carried: boolean, fromSitemap: boolean, changed: boolean,
 *   urgent: boolean, demandPeriodMs: number | null }} Class
 * @typedef {{ minute: number, cls: Class, seq: number }} Row  seq: its place in line within one minute of one class
 * @typedef {{ minute: number, cls: Class }} Reading
 * @typedef {{ token: number, dueMinute: number, grantedAt: number, version: number | null, untilMono: number, claimedAt: number, overtaken: boolean, before: { misses: number, releasedDue: number | null, holdServed: boolean } }} Lease
 * @typedef {{ misses: number, releasedDue: number | null, holdServed: boolean, lease: Lease | null,
 *   graceMono: number | null, holdMono: number | null, expiredToken: number | null }} Entry
 * @typedef {{ cameDue: number, added: number, triggered: number, rescheduled: number, removed: number }} Flow
 * @typedef {{ match: string, path: string, mode?: string, renderInterval?: number }} Rule
 * @typedef {{ sitemapBoost: number, changedHeadStart: number, urgentHeadStart: number, changedDemand: boolean }} Priority
 * @typedef {{ leaseMs: number, maxLeases: number, releaseGraceMs: number, missLimit: number }} Leases
 * @typedef {(key: string, row: any) => null | { route: string, cadenceMs: number, carried?: boolean }} Classify
 * @typedef {{ node?: string, nodes?: string[], routes?: Rule[], excludePathPatterns?: string[], defaultInterval?: number,
 *   delimiter?: string, deviceTypes?: string[], priority?: Partial<Priority>, leases?: Partial<Leases>,
 *   flowMinutes?: number, maxListed?: number, classify?: Classify, now: number }} Options
 */

/** The due minute of a row's `nextRenderTime`, or null where the row is not kept. @param {any} value */
function dueMinute(value) {
  let ms = Number.NaN;
  if (typeof value === 'number') ms = value;
  else if (typeof value === 'bigint') ms = Number(value);
  else if (value instanceof Date) ms = value.getTime();
  else if (typeof value === 'string' && NUMERIC.test(value)) ms = Number(value);
  if (!Number.isFinite(ms) || ms < 0) return null;
  const minute = Math.floor(ms / MINUTE) + 0; // + 0: -0 is 0
  return minute <= MAX_MINUTE ? minute : null;
}

/** A finite number > 0 or BigInt > 0, as a number; else null. @param {any} value */
function positive(value) {
  if (typeof value !== 'number' && typeof value !== 'bigint') return null;
  const number = Number(value);
  return Number.isFinite(number) && number > 0 ? number : null;
}

/** 32-bit FNV-1a over UTF-16 code units. @param {string} text */
function fnv1a(text) {
  let hash = 2_166_136_261;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 16_777_619) >>> 0;
  }
  return hash;
}

/** @param {string} url */
function pathname(url) {
  try {
    return new URL(url).pathname;
  } catch {
    return null;
  }
}

/** @type {WeakMap<Class, string>} */
const identities = new WeakMap();

/** @param {Class} cls */
function identity(cls) {
  const known = identities.get(cls);
  if (known !== undefined) return known;
  const { route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = cls;
  const id = JSON.stringify([
    route,
    cadenceMs,
    carried,
    fromSitemap,
    changed,
    urgent,
    demandPeriodMs,
  ]);
  identities.set(cls, id);
  return id;
}

/** @param {number} ms */
const minuteAt = (ms) => Math.floor(ms / MINUTE);

class ModelKeeper {
  /** @param {Options} options */
  constructor(options) {
    this.node = options.node ?? 'localhost';
    this.nodes = options.nodes ?? [];
    this.routes = options.routes ?? [];
    this.excludePathPatterns = options.excludePathPatterns ?? [];
    this.defaultInterval = options.defaultInterval ?? 86_400_000;
    this.delimiter = options.delimiter ?? '|';
    this.deviceTypes = options.deviceTypes ?? ['desktop', 'mobile'];
    /** @type {Priority} */
    this.priority = {
      sitemapBoost: 2,
      changedHeadStart: 1,
      urgentHeadStart: 0.5,
      changedDemand: true,
      ...options.priority,
    };
    /** @type {Leases} */
    this.leases = {
      leaseMs: 120_000,
      maxLeases: 8192,
      releaseGraceMs: 5000,
      missLimit: 3,
      ...options.leases,
    };
    this.flowMinutes = options.flowMinutes ?? 60;
    this.maxListed = options.maxListed ?? 200;
    this.classify = options.classify;

    this.now = options.now;
    this.mono = 0;
    this.seq = 0;
    this.lastToken = 0;
    this.paused = false;
    this.version = 0;
    this.eventsApplied = 0;
    this.malformed = 0;
    this.holdEvents = 0;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** The classes that have rows, by identity: when each began. @type {Map<string, { began: number, rows: number }>} */
    this.classes = new Map();
    /** @type {Map<number, Flow>} */
    this.flow = new Map();
    /** @type {Map<string, number>} */
    this.versions = new Map();
    /** When an event last touched a key. @type {Map<string, number>} */
    this.touched = new Map();
    /** Keys that an event said have changed, but not to what: to be read. @type {Set<string>} */
    this.flagged = new Set();
    /** Writes that a walk has found without their event. @type {Map<string, { version: number, report: any, what: string }>} */
    this.unheard = new Map();
    /** The rings of nodes that there have been since the last walk. @type {{ node: string, nodes: string[] }[]} */
    this.formerRings = [];
    /** Keys handed out to be read, and since when. @type {Map<string, { since: number, mono: number, flaggedMono: number | null, overtaken: boolean }>} */
    this.asked = new Map();
    /** When the head check last looked at a key. @type {Map<string, number>} */
    this.checked = new Map();
    /** @type {Map<string, Entry>} */
    this.entries = new Map();
  }

  // ---- Section 3: owner, route, cadence, class

  /** @param {string} key */
  urlOf(key) {
    const at = key.lastIndexOf(this.delimiter);
    if (at < 0) return key;
    return this.deviceTypes.includes(key.slice(at + this.delimiter.length))
      ? key.slice(0, at)
      : key;
  }

  /** @param {string} key @param {{ node: string, nodes: string[] }} [ring] */
  ownerOf(key, ring = this) {
    if (this.classify) return this.node;
    const url = this.urlOf(key);
    let owner = ring.node;
    let best = -1;
    for (const node of [...new Set([ring.node, ...ring.nodes])].sort()) {
      const hash = fnv1a(`${url}|${node}`);
      if (hash > best) {
        owner = node;
        best = hash;
      }
    }
    return owner;
  }

  /** @param {string} key */
  owns(key) {
    return this.ownerOf(key) === this.node;
  }

  /** Whether it was another node's at some time since the last walk. @param {string} key */
  isGained(key) {
    return this.formerRings.some((ring) => this.ownerOf(key, ring) !== ring.node);
  }

  /** @param {string} key @returns {{ route: string, renderInterval: number | null }} */
  routeOf(key) {
    const unrouted = { route: 'unrouted', renderInterval: null };
    const path = pathname(this.urlOf(key));
    if (path === null) return unrouted;
    if (this.excludePathPatterns.some((pattern) => path.includes(pattern))) return unrouted;
    for (const rule of this.routes) {
      const matches =
        (rule.match === 'exact' && path === rule.path) ||
        (rule.match === 'prefix' && path.startsWith(rule.path)) ||
        (rule.match === 'contains' && path.includes(rule.path));
      if (!matches) continue;
      if (rule.mode === 'passthrough') return unrouted;
      return {
        route: `route:${rule.match}:${rule.path}`,
        renderInterval: rule.renderInterval ?? null,
      };
    }
    return unrouted;
  }

  /** What a durable row says, or null where it is not to be kept. @param {string} key @param {any} row */
  read(key, row) {
    const minute = dueMinute(row.nextRenderTime);
    if (minute === null || !this.owns(key)) return null;
    let route = '';
    let cadenceMs = positive(row.effectiveInterval);
    let carried = cadenceMs !== null;
    if (this.classify) {
      const said = this.classify(key, row);
      if (said === null) return null;
      route = said.route;
      cadenceMs = said.cadenceMs;
      carried = said.carried ?? false;
    } else {
      const matched = this.routeOf(key);
      route = matched.route;
      cadenceMs ??= matched.renderInterval ?? this.defaultInterval;
    }
    const changed = positive(row.changedAt) !== null;
    const urgent = !changed && positive(row.urgentAt) !== null;
    const demandPeriodMs = changed ? positive(row.demandPeriod) : null;
    const fromSitemap = Boolean(row.fromSitemap);
    return {
      minute,
      cls: { route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs },
    };
  }

  // ---- The one place where a row changes

  /**
   * @param {string} key @param {Reading | null} next @param {boolean} counts whether flow counts it
   * @returns {boolean} whether anything changed
   */
  place(key, next, counts) {
    const old = this.rows.get(key);
    if (!old && !next) return false;
    if (old && next && old.minute === next.minute && identity(old.cls) === identity(next.cls))
      return false;
    if (next) {
      const id = identity(next.cls);
      const cls = this.classes.get(id) ?? { began: ++this.seq, rows: 0 };
      cls.rows++;
      this.classes.set(id, cls);
    }
    if (old) {
      const id = identity(old.cls);
      const cls = /** @type {{ began: number, rows: number }} */ (this.classes.get(id));
      cls.rows--;
      if (cls.rows === 0) this.classes.delete(id);
    }
    if (next) this.rows.set(key, { ...next, seq: ++this.seq });
    else this.rows.delete(key);
    if (counts) {
      const wasDue = old !== undefined && this.isDue(old);
      const nowDue = next !== null && this.isDue(next);
      if (!old) this.flowNow().added++;
      else if (!next) this.flowNow().removed++;
      else if (!wasDue && nowDue) this.flowNow().triggered++;
      else if (wasDue && !nowDue) this.flowNow().rescheduled++;
    }
    this.version++;
    this.noteMove(key);
    return true;
  }

  /** @param {{ minute: number }} row */
  isDue(row) {
    return row.minute <= minuteAt(this.now);
  }

  /** @param {number} minute @returns {Flow} */
  flowAt(minute) {
    const flow = this.flow.get(minute) ?? {
      cameDue: 0,
      added: 0,
      triggered: 0,
      rescheduled: 0,
      removed: 0,
    };
    this.flow.set(minute, flow);
    return flow;
  }

  flowNow() {
    return this.flowAt(minuteAt(this.now));
  }

  // ---- Section 5: events

  /** @param {any} event */
  apply(event) {
    const result = this.applyOne(event);
    if (result === 'applied') this.eventsApplied++;
    if (result === 'malformed') this.malformed++;
    return result;
  }

  /** @param {any[]} events */
  applyAll(events) {
    const counts = { applied: 0, ignored: 0, malformed: 0 };
    for (const event of events) counts[this.apply(event)]++;
    return counts;
  }

  /** @param {any} event @returns {'applied' | 'ignored' | 'malformed'} */
  applyOne(event) {
    if (typeof event !== 'object' || event === null) return 'malformed';
    const { type, id, value, version } = event;
    if (!['put', 'patch', 'delete', 'invalidate'].includes(type)) return 'ignored';
    if (typeof id !== 'string') return 'malformed';
    if (!this.owns(id)) {
      // Owned again before a read of it is answered, that read is still older than this event; and so are older events.
      this.touched.set(id, ++this.seq);
      if (Number.isFinite(version)) {
        this.versions.set(id, Math.max(version, this.versions.get(id) ?? version));
      }
      return 'ignored';
    }
    const unheard = this.unheard.get(id);
    if (unheard && Number.isFinite(version) && unheard.version === version) {
      // The event of a write that the walk found: late, not missed.
      unheard.report[unheard.what]--;
      this.unheard.delete(id);
    }
    if (type === 'patch' || (type === 'put' && (value === undefined || value === null))) {
      this.touched.set(id, ++this.seq);
      this.flagged.add(id);
      return 'ignored';
    }
    if (Number.isFinite(version)) {
      const known = this.versions.get(id);
      if (known !== undefined && version < known) return 'ignored';
      this.versions.set(id, version);
    }
    this.touched.set(id, ++this.seq);
    this.place(id, type === 'put' ? this.read(id, value) : null, true);
    return 'applied';
  }

  /** Whether an event touched the key since then. @param {string} key @param {number} since */
  touchedSince(key, since) {
    return (this.touched.get(key) ?? 0) > since;
  }

  // ---- Section 4: order

  /** @param {Row} row */
  score(row) {
    const { cls } = row;
    const late = Math.max(0, this.now - row.minute * MINUTE);
    const { sitemapBoost, changedHeadStart, urgentHeadStart, changedDemand } = this.priority;
    const byDemand = cls.changed && changedDemand && cls.demandPeriodMs !== null;
    const divisor = byDemand ? Number(cls.demandPeriodMs) : cls.cadenceMs;
    let score = divisor > 0 ? late / divisor : late;
    if (cls.fromSitemap) score *= sitemapBoost;
    const headStart = cls.changed ? changedHeadStart : cls.urgent ? urgentHeadStart : 0;
    if (Number.isFinite(headStart) && headStart > 0) score += headStart * Math.max(1, sitemapBoost);
    return score;
  }

  /** When its class began: the older one goes first. @param {Row} row */
  beganOf(row) {
    return this.classes.get(identity(row.cls))?.began ?? 0;
  }

  /** Every due row, best first. */
  dueInOrder() {
    const due = [];
    for (const [key, row] of this.rows) {
      if (!this.isDue(row)) continue;
      due.push({ key, row, score: this.score(row), began: this.beganOf(row) });
    }
    return due.sort(
      (a, b) =>
        b.score - a.score ||
        a.row.minute - b.row.minute ||
        a.began - b.began ||
        a.row.seq - b.row.seq,
    );
  }

  /** @param {number} n */
  topK(n) {
    const rows = [];
    let skippedLeased = 0;
    for (const { key, row, score } of this.dueInOrder()) {
      if (rows.length >= n) break;
      const entry = this.entries.get(key);
      if (entry?.lease || (entry && entry.graceMono !== null)) {
        skippedLeased++;
        continue;
      }
      const { fromSitemap, changed, urgent } = row.cls;
      rows.push({ key, dueAt: row.minute * MINUTE, fromSitemap, changed, urgent, score });
    }
    return { rows, skippedLeased, complete: rows.length < n };
  }

  // ---- Section 6 and 7: claims and leases

  /** @param {number} n */
  claim(n) {
    const jobs = [];
    const held = [];
    let skippedLeased = 0;
    /** @type {null | 'limit' | 'paused'} */
    let refused = this.paused ? 'paused' : null;
    for (const { key, row, score } of this.paused ? [] : this.dueInOrder()) {
      if (jobs.length >= n) break;
      const entry = this.entries.get(key) ?? this.newEntry();
      if (entry.lease || entry.graceMono !== null) {
        skippedLeased++;
        continue;
      }
      if (entry.holdMono !== null) {
        held.push({ key, misses: entry.misses, until: this.wallAt(entry.holdMono) });
        continue;
      }
      if (this.inFlight() >= this.leases.maxLeases) {
        refused = 'limit';
        break;
      }
      const { misses, releasedDue, holdServed } = entry;
      if (entry.releasedDue === row.minute) {
        entry.misses++;
        entry.releasedDue = null;
      }
      this.entries.set(key, entry);
      if (entry.misses > this.leases.missLimit && !entry.holdServed) {
        const doubled = this.leases.leaseMs * 2 ** (entry.misses - this.leases.missLimit);
        const ms = row.cls.cadenceMs > 0 ? Math.min(row.cls.cadenceMs, doubled) : doubled;
        entry.holdMono = this.mono + ms;
        this.holdEvents++;
        held.push({ key, misses: entry.misses, until: this.wallAt(entry.holdMono) });
        continue;
      }
      entry.holdServed = false;
      const token = ++this.lastToken;
      const untilMono = this.mono + this.leases.leaseMs;
      entry.expiredToken = null;
      entry.lease = {
        token,
        dueMinute: row.minute,
        grantedAt: this.now,
        version: null,
        untilMono,
        claimedAt: ++this.seq,
        overtaken: false,
        before: { misses, releasedDue, holdServed },
      };
      const { fromSitemap, changed, urgent } = row.cls;
      jobs.push({
        key,
        token,
        dueAt: row.minute * MINUTE,
        fromSitemap,
        changed,
        urgent,
        score,
        expiresAt: this.wallAt(untilMono),
      });
    }
    return {
      jobs,
      status: this.status,
      due: this.dueSummary().due,
      complete: refused === null && jobs.length < n,
      skippedLeased,
      held: held.slice(0, this.maxListed),
      refused,
    };
  }

  /** What the wall clock will say at a moment of the monotonic one. @param {number} mono */
  wallAt(mono) {
    return this.now + (mono - this.mono);
  }

  /** @returns {Entry} */
  newEntry() {
    return {
      misses: 0,
      releasedDue: null,
      holdServed: false,
      lease: null,
      graceMono: null,
      holdMono: null,
      expiredToken: null,
    };
  }

  inFlight() {
    return [...this.entries.values()].filter((entry) => entry.lease).length;
  }

  /** @param {(key: string) => boolean} [counts] */
  heldKeys(counts = () => true) {
    const held = [...this.entries].filter(([, entry]) => entry.holdMono !== null);
    return held.filter(([key]) => counts(key)).length;
  }

  /** The key and entry whose live lease has this token. @param {number} token */
  leaseOf(token) {
    for (const [key, entry] of this.entries) {
      if (entry.lease?.token === token) return { key, entry, lease: entry.lease };
    }
    return null;
  }

  /** @param {number} token @param {any} row */
  confirm(token, row) {
    const found = this.leaseOf(token);
    if (!found) return false;
    const { key, entry, lease } = found;
    const byEvent = this.touchedSince(key, lease.claimedAt);
    const touched = byEvent || lease.overtaken;
    const reading = row === null ? null : this.read(key, row);
    if (touched && !byEvent) this.doubt(key, reading);
    if (reading !== null && this.isDue(reading)) {
      lease.version = Number.isFinite(row.version) ? row.version : null;
      if (!touched) {
        lease.dueMinute = reading.minute;
        if (this.place(key, reading, false)) this.overtake(key, null);
      }
      return true;
    }
    entry.lease = null;
    Object.assign(entry, lease.before);
    if (!touched && this.place(key, reading, false)) this.overtake(key, null);
    this.noteMove(key);
    return false;
  }

  /** @param {string} key @param {number} [token] */
  release(key, token) {
    const entry = this.entries.get(key);
    if (!entry) return 'unknown';
    const { lease } = entry;
    if (lease && (token === undefined || token === lease.token)) {
      entry.lease = null;
      const row = this.rows.get(key);
      if (row && row.minute === lease.dueMinute) {
        entry.releasedDue = row.minute;
      } else {
        entry.misses = 0;
        entry.releasedDue = null;
      }
      if (this.leases.releaseGraceMs > 0) entry.graceMono = this.mono + this.leases.releaseGraceMs;
      this.tidy(key);
      return 'released';
    }
    if (token === undefined) return 'unknown';
    if (lease) return token < lease.token ? 'superseded' : 'unknown';
    return entry.expiredToken === token ? 'expired' : 'unknown';
  }

  /** @param {number} token @param {number} [ms] */
  extend(token, ms = this.leases.leaseMs) {
    const found = this.leaseOf(token);
    if (!found) return null;
    const { lease } = found;
    // A lease's end is never early: a shorter extension does not shorten it.
    lease.untilMono = Math.max(lease.untilMono, this.mono + ms);
    return this.wallAt(lease.untilMono);
  }

  /** What a row's move means for the count of its misses. @param {string} key */
  noteMove(key) {
    const entry = this.entries.get(key);
    if (!entry) return;
    if (entry.releasedDue !== null && this.rows.get(key)?.minute !== entry.releasedDue) {
      entry.misses = 0;
      entry.releasedDue = null;
      entry.holdServed = false;
    }
    this.tidy(key);
  }

  /** Forgets an idle entry that has nothing left to say. @param {string} key */
  tidy(key) {
    const entry = this.entries.get(key);
    if (!entry || entry.lease || entry.graceMono !== null || entry.holdMono !== null) return;
    if (!this.rows.has(key) || (entry.misses === 0 && entry.releasedDue === null))
      this.entries.delete(key);
  }

  /** Ends what has run out: leases, graces, holds. */
  settle() {
    for (const [key, entry] of [...this.entries]) {
      if (entry.lease && this.mono >= entry.lease.untilMono) {
        entry.expiredToken = entry.lease.token;
        entry.lease = null;
        entry.misses++;
      }
      if (entry.graceMono !== null && this.mono >= entry.graceMono) entry.graceMono = null;
      if (entry.holdMono !== null && this.mono >= entry.holdMono) {
        entry.holdMono = null;
        entry.holdServed = true;
      }
      this.tidy(key);
    }
  }

  pause() {
    this.paused = true;
  }

  resume() {
    this.paused = false;
  }

  get status() {
    if (this.paused) return 'paused';
    return this.dueSummary().due > 0 ? 'queued' : 'empty';
  }

  // ---- The clock

  /** @param {number} ms */
  setNow(ms) {
    const before = minuteAt(this.now);
    const minute = minuteAt(ms);
    this.mono += Math.max(0, ms - this.now);
    this.now = ms;
    for (const row of this.rows.values()) {
      if (row.minute > before && row.minute <= minute) this.flowAt(row.minute).cameDue++;
    }
    for (const at of [...this.flow.keys()]) {
      if (at > minute || at <= minute - this.flowMinutes) this.flow.delete(at);
    }
    this.settle();
  }

  // ---- Section 8: repairs and walks

  /** @param {string} key @param {any} row */
  repair(key, row) {
    const asked = this.asked.get(key);
    this.asked.delete(key);
    const next = row === null ? null : this.read(key, row);
    if (asked && (asked.overtaken || this.touchedSince(key, asked.since))) {
      // Still to be read: the read that was asked for does not count.
      if (asked.flaggedMono !== null) this.flagged.add(key);
      if (asked.overtaken) this.doubt(key, next);
      return false;
    }
    const changed = this.place(key, next, false);
    if (changed) this.overtake(key, this.entries.get(key)?.lease ?? null);
    return changed;
  }

  /**
   * A read has put right what was kept: others under way may be older, or newer, and do not count.
   *
   * @param {string} key @param {Lease | null} lease
   */
  overtake(key, lease) {
    const asked = this.asked.get(key);
    if (asked && !this.touchedSince(key, asked.since)) asked.overtaken = true;
    if (lease) lease.overtaken = true;
  }

  /** A read that another has overtaken: where it says something else, the key is read again. @param {string} key @param {Reading | null} next */
  doubt(key, next) {
    const kept = this.rows.get(key) ?? null;
    const same =
      kept && next && kept.minute === next.minute && identity(kept.cls) === identity(next.cls);
    if (!same && (kept || next)) this.flagged.add(key);
  }

  /** A key is handed out to be read. @param {string} key @param {boolean} flagged */
  ask(key, flagged) {
    const flaggedMono = flagged ? this.mono : (this.asked.get(key)?.flaggedMono ?? null);
    this.asked.set(key, { since: ++this.seq, mono: this.mono, flaggedMono, overtaken: false });
  }

  /** Flagged keys first, then the head, each of it at most once a minute. @param {number} n */
  headCheck(n) {
    for (const asked of this.asked.values()) {
      // Whoever has not answered in ten minutes never will.
      if (asked.flaggedMono !== null && this.mono - asked.flaggedMono >= 10 * MINUTE)
        asked.flaggedMono = null;
    }
    const keys = [...this.flagged].slice(0, n);
    for (const key of keys) {
      this.flagged.delete(key);
      this.ask(key, true);
    }
    for (const { key } of this.topK(n).rows) {
      const last = this.checked.get(key);
      if (keys.includes(key) || (last !== undefined && this.mono - last < MINUTE)) continue;
      this.checked.set(key, this.mono);
      this.ask(key, false);
      keys.push(key);
    }
    return keys;
  }

  /** @param {'load' | 'verify'} kind */
  beginWalk(kind) {
    this.unheard.clear();
    const began = ++this.seq;
    const seen = new Set();
    const report = { scanned: 0, owned: 0, unowned: 0, missing: 0, mismatched: 0, gained: 0 };
    return {
      rows: (/** @type {any[]} */ rows) => {
        for (const row of rows) {
          const key = row.cacheKey;
          const owned = this.owns(key) && !(this.classify && this.classify(key, row) === null);
          report.scanned++;
          report[owned ? 'owned' : 'unowned']++;
          if (owned) seen.add(key);
          if (this.touchedSince(key, began)) continue;
          const had = this.rows.has(key);
          const isFlagged =
            this.flagged.has(key) || typeof this.asked.get(key)?.flaggedMono === 'number';
          const changed = this.place(key, owned ? this.read(key, row) : null, false);
          if (changed) {
            const what = had ? 'mismatched' : 'missing';
            if (kind === 'verify') {
              if (!had && this.isGained(key)) report.gained++;
              // What was to be read anyway was not missed.
              else if (!isFlagged) {
                report[what]++;
                this.unheard.set(key, { version: row.version, report, what });
              }
            }
            this.overtake(key, this.entries.get(key)?.lease ?? null);
          }
          if (owned && Number.isFinite(row.version)) {
            this.versions.set(key, Math.max(row.version, this.versions.get(key) ?? row.version));
          }
        }
      },
      end: () => {
        const suspects = [...this.rows.keys()].filter(
          (key) => !seen.has(key) && !this.touchedSince(key, began),
        );
        // What was flagged and handed out before, this has read.
        for (const asked of this.asked.values()) if (asked.since < began) asked.flaggedMono = null;
        for (const key of suspects) this.ask(key, false);
        this.formerRings = [];
        return { ...report, suspects };
      },
    };
  }

  // ---- Section 8: reclassification

  /** @param {Partial<Options>} patch */
  configure(patch) {
    this.formerRings.push({ node: this.node, nodes: this.nodes });
    if (patch.node !== undefined) this.node = patch.node;
    if (patch.nodes !== undefined && patch.nodes.length > 0) this.nodes = patch.nodes;
    if (patch.routes !== undefined) this.routes = patch.routes;
    if (patch.excludePathPatterns !== undefined)
      this.excludePathPatterns = patch.excludePathPatterns;
    if (patch.defaultInterval !== undefined) this.defaultInterval = patch.defaultInterval;
    Object.assign(this.priority, patch.priority);
    Object.assign(this.leases, patch.leases);
    let moved = 0;
    let dropped = 0;
    if (this.classify) return { moved, dropped };
    for (const key of this.keysInClassOrder()) {
      const next = this.read(key, this.heldValue(key));
      const changed = this.place(key, next, false);
      const asked = this.asked.get(key);
      // A read that was under way does not count: it says nothing of what is owned later.
      if (!next && asked) asked.since = -1;
      if (!next) dropped++;
      else if (changed) moved++;
    }
    return { moved, dropped };
  }

  /** Oldest class first, then by minute, then first in, first out: the order in which rows are reclassified. */
  keysInClassOrder() {
    const rows = [...this.rows].map(([key, row]) => ({ key, row, began: this.beganOf(row) }));
    rows.sort((a, b) => a.began - b.began || a.row.minute - b.row.minute || a.row.seq - b.row.seq);
    return rows.map(({ key }) => key);
  }

  /** A row that would be kept just so. @param {string} key */
  heldValue(key) {
    const row = this.rows.get(key);
    if (!row) return null;
    const { cls } = row;
    return {
      nextRenderTime: row.minute * MINUTE,
      fromSitemap: cls.fromSitemap,
      effectiveInterval: cls.carried ? cls.cadenceMs : null,
      changedAt: cls.changed ? 1 : null,
      urgentAt: cls.urgent ? 1 : null,
      demandPeriod: cls.demandPeriodMs,
    };
  }

  // ---- Section 9: what can be asked

  get size() {
    return this.rows.size;
  }

  get classCount() {
    return this.classes.size;
  }

  dueSummary() {
    const minutes = [...this.rows.values()].map((row) => row.minute);
    const due = minutes.filter((minute) => minute <= minuteAt(this.now));
    const later = minutes.filter((minute) => minute > minuteAt(this.now));
    return {
      rows: minutes.length,
      due: due.length,
      firstDueMinute: due.length ? Math.min(...due) : null,
      earliestNotYetDueMinute: later.length ? Math.min(...later) : null,
    };
  }

  /** @param {string} key */
  describe(key) {
    const row = this.rows.get(key);
    return row ? { dueAt: row.minute * MINUTE, minute: row.minute, ...row.cls } : null;
  }

  /** @param {string} key */
  explain(key) {
    const row = this.rows.get(key);
    const entry = this.entries.get(key);
    const lease = entry?.lease;
    const held = entry?.holdMono ?? null;
    const due = row !== undefined && this.isDue(row);
    const place = this.dueInOrder().findIndex((at) => at.key === key);
    return {
      key,
      kept: row !== undefined,
      reason: row ? null : this.owns(key) ? 'unknown' : 'not-owned',
      owner: this.ownerOf(key),
      routeCadenceMs: this.classify
        ? null
        : (this.routeOf(key).renderInterval ?? this.defaultInterval),
      ...(row ? { ...row.cls, dueAt: row.minute * MINUTE } : {}),
      due,
      ...(due ? { score: this.score(row) } : {}),
      rank: due ? place + 1 : null,
      lease: lease
        ? {
            grantedAt: lease.grantedAt,
            expiresAt: this.wallAt(lease.untilMono),
            version: lease.version,
          }
        : null,
      misses: entry?.misses ?? 0,
      hold: entry && held !== null ? { misses: entry.misses, until: this.wallAt(held) } : null,
    };
  }

  /** The lateness bin of a due row, from the current minute, in its own cadences. @param {Row} row */
  bin(row) {
    const late = (minuteAt(this.now) - row.minute) * MINUTE;
    const cadences = row.cls.cadenceMs > 0 ? late / row.cls.cadenceMs : 0;
    return LATENESS_EDGES.filter((edge) => cadences >= edge).length;
  }

  state() {
    const nowMinute = minuteAt(this.now);
    const all = [...this.rows.values()];
    const due = all.filter((row) => this.isDue(row));
    const later = all.filter((row) => !this.isDue(row));
    /** @param {Row[]} rows */
    const oldest = (rows) =>
      rows.length ? Math.min(...rows.map((row) => row.minute)) * MINUTE : null;
    /** @param {Row[]} rows */
    const bins = (rows) =>
      [0, 1, 2, 3, 4].map((bin) => rows.filter((row) => this.bin(row) === bin).length);
    const changed = due.filter((row) => row.cls.changed);
    const urgent = due.filter((row) => row.cls.urgent);
    const sitemap = due.filter((row) => row.cls.fromSitemap);
    const discovered = due.filter((row) => !row.cls.fromSitemap);
    const within = (/** @type {number} */ minutes) =>
      later.filter((row) => row.minute - nowMinute <= minutes).length;
    const byHour = [...Array(24).keys()].map(
      (hour) => later.filter((row) => Math.floor((row.minute - nowMinute) / 60) === hour).length,
    );
    const periods = [...new Set(changed.map((row) => row.cls.demandPeriodMs))];
    const routes = [...new Set(due.map((row) => row.cls.route))];
    const classes = [...new Set(due.map((row) => identity(row.cls)))];
    const byRoute = routes
      .map((route) => {
        const rows = due.filter((row) => row.cls.route === route);
        return {
          route,
          due: rows.length,
          sitemap: bins(rows.filter((row) => row.cls.fromSitemap)),
          discovered: bins(rows.filter((row) => !row.cls.fromSitemap)),
        };
      })
      .sort((a, b) => b.due - a.due);
    const listed = classes
      .map((id) => {
        const rows = due.filter((row) => identity(row.cls) === id);
        const cls = /** @type {Row} */ (rows[0]).cls;
        const oldestDueAt = /** @type {number} */ (oldest(rows));
        return {
          ...cls,
          rows: this.classes.get(id)?.rows,
          due: rows.length,
          oldestDueAt,
          oldestLatenessCadences:
            cls.cadenceMs > 0 ? (nowMinute * MINUTE - oldestDueAt) / cls.cadenceMs : null,
        };
      })
      .sort((a, b) => (b.oldestLatenessCadences ?? -1) - (a.oldestLatenessCadences ?? -1));
    const inFlight = this.inFlight();
    return {
      schema: 1,
      node: this.node,
      generatedAt: this.now,
      now: {
        due: due.length,
        dueSitemap: sitemap.length,
        dueDiscovered: discovered.length,
        dueChanged: changed.length,
        oldestChangedAt: oldest(changed),
        dueUrgent: urgent.length,
        oldestUrgentAt: oldest(urgent),
        changedByDemand: periods.map((periodMs) => {
          const rows = changed.filter((row) => row.cls.demandPeriodMs === periodMs);
          return { periodMs, due: rows.length, oldestDueAt: oldest(rows) };
        }),
        inFlight,
        heldKeys: this.heldKeys(),
        heldDue: this.heldKeys((key) => due.includes(/** @type {Row} */ (this.rows.get(key)))),
        unclaimed: Math.max(0, due.length - inFlight),
        leasesLeft: Math.max(0, this.leases.maxLeases - inFlight),
        paused: this.paused,
        status: this.status,
      },
      coming: {
        next15m: within(15),
        next60m: within(60),
        next24h: byHour.reduce((sum, count) => sum + count, 0),
        byHour,
      },
      lateness: {
        edges: LATENESS_EDGES,
        sitemap: bins(sitemap),
        discovered: bins(discovered),
        oldestDueAt: oldest(due),
        nextDueAt: oldest(later),
        byRoute: byRoute.slice(0, this.maxListed),
        classes: listed.slice(0, this.maxListed),
        listsTruncated: byRoute.length > this.maxListed || listed.length > this.maxListed,
      },
      flow: [...this.flow]
        .sort(([a], [b]) => a - b)
        .map(([minute, counts]) => ({ minute, ...counts })),
      trust: {
        keeper: {
          rows: all.length,
          classes: this.classes.size,
          eventsApplied: this.eventsApplied,
          malformed: this.malformed,
        },
      },
    };
  }
}

module.exports = { ModelKeeper, dueMinute, positive, fnv1a, LATENESS_EDGES, MINUTE, HOUR };
