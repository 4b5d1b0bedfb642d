'use strict';

/**
 * The state of a whole cluster: every node's own state document, asked for side by side and added up. There is a
 * total only where every node has given a number that can be vouched for; else it is 503, with each node that has
 * not, why, and what is known of each. Never a partial sum.
 *
 * It knows the nodes and the HTTP contract of their state route, and nothing of the host it runs in.
 */

const { randomUUID } = require('node:crypto');
const { askNode, cut, messageOf, Unusable } = require('./ask-node.js');
const { flawOfState, knownOfKeeper, EDGES } = require('./state-shape.js');
const { QUESTION } = require('./state-answer.js');

/**
 * @typedef {{ name: string, url: string | null }} ClusterNode  `url`: what the route's path is put behind; null
 *   where it is not known
 * @typedef {{ status: number, body: string }} StateAnswer  what the state route answers
 * @typedef {import('./ask-node.js').Reason} Reason
 *
 * What is known of one node. null where it is not known.
 * @typedef {object} NodeSummary
 * @property {string} node
 * @property {boolean} ok  its numbers are in the total, or would be
 * @property {Reason | null} reason
 * @property {string | null} error  the reason, for people
 * @property {number | null} answeredMs  how long its answer took; 0 for the node that was asked
 * @property {string | null} phase
 * @property {boolean | null} live
 * @property {boolean | null} exact
 * @property {number | null} stateAt
 * @property {number | null} stateAgeMs
 * @property {string[] | null} ring
 * @property {Record<string, any> | null} now  counts only where it is live
 * @property {number | null} oldestDueAt
 * @property {{ rows: number | null } | null} handOver  rows that it has and another node owns; null where there are none
 * @property {Record<string, any> | null} keeper  as in `trust.keeper` of its document
 *
 * @typedef {object} ClusterOptions
 * @property {string} node  this node's name
 * @property {ClusterNode[]} nodes  all nodes of the ring; nobody else is asked
 * @property {() => StateAnswer | Promise<StateAnswer>} own  this node's own answer: it does not ask itself over HTTP
 * @property {Record<string, string | string[] | undefined>} [headers]  of the request that is answered
 * @property {string[]} [forward]  which of these go to the other nodes: the caller's credentials
 * @property {string} [path]  of the state route
 * @property {number} [timeoutMs]  how long a node may take, its whole answer included
 * @property {number} [maxBytes]  how long an answer may be
 * @property {() => number} [now]
 */

const STATE_PATH = '/prerender_admin/queue-state';
const HEADERS = { 'content-type': 'application/json', 'cache-control': 'no-store' };
const MOST_LISTED = 200;
/** As old as a state may be, whatever a node says of its own. */
const MOST_AGE_MS = 5_000;

/** @type {Record<string, string>} */
const PHASES = {
  starting: 'is starting',
  'waiting-for-peers': 'is waiting to see another node',
  loading: 'is loading',
  failed: 'failed to load, and tries again',
  stopped: 'is stopped',
};

/**
 * @param {ClusterOptions} options
 * @returns {Promise<{ status: 200 | 503, headers: Record<string, string>, body: string }>}
 */
async function clusterAnswer(options) {
  const { node, now = Date.now } = options;
  /** @type {Map<string, string | null>} */
  const urls = new Map([[node, null]]);
  for (const { name, url } of options.nodes) urls.set(name, url);
  const ring = [...urls.keys()].sort();
  const looks = await Promise.all(
    ring.map((name) => lookAt(name, urls.get(name) ?? null, ring, options)),
  );
  const nodes = looks.map(({ summary }) => summary);
  const head = { schema: 1, kind: 'cluster', generatedAt: now(), node, ring };
  const errors = nodes.flatMap(({ error }) => error ?? []);
  if (errors.length > 0) {
    return {
      status: 503,
      headers: { ...HEADERS, 'retry-after': '1' },
      body: JSON.stringify({ ...head, error: `no total: ${errors.join('; ')}`, nodes }),
    };
  }
  const total = merge(looks.map(({ document }) => document));
  return { status: 200, headers: HEADERS, body: JSON.stringify({ ...head, ...total, nodes }) };
}

/**
 * One node's document, and what is known of it. Never throws.
 *
 * @param {string} name
 * @param {string | null} url
 * @param {string[]} ring
 * @param {ClusterOptions} options
 * @returns {Promise<{ summary: NodeSummary, document: any }>}
 */
async function lookAt(name, url, ring, options) {
  const since = performance.now();
  let answeredMs = null;
  let document = null;
  /** @type {InstanceType<typeof Unusable> | null} */
  let unusable = null;
  try {
    const answer = name === options.node ? await options.own() : await ask(url, options);
    answeredMs = name === options.node ? 0 : Math.round(performance.now() - since);
    const said = read(answer);
    if (said.node !== name) {
      throw new Unusable('wrong-node', `is not what answers at its address: ${cut(said.node)} is`);
    }
    document = said;
    judge(said, answer.status, ring);
  } catch (error) {
    unusable =
      error instanceof Unusable
        ? error
        : new Unusable('malformed', `cannot be understood: ${messageOf(error)}`);
  }
  return { summary: summaryOf(name, document, unusable, answeredMs), document };
}

/**
 * @param {string | null} url
 * @param {ClusterOptions} options
 * @returns {Promise<StateAnswer>}
 */
async function ask(url, { headers, forward, path = STATE_PATH, timeoutMs, maxBytes }) {
  const question = randomUUID();
  const answer = await askNode(url, path, {
    headers: {
      ...credentialsOf(headers, forward),
      'cache-control': 'no-cache',
      [QUESTION]: question,
    },
    timeoutMs,
    maxBytes,
  });
  const { status } = answer;
  if (status === 200 && answer.headers[QUESTION] !== question) {
    throw new Unusable(
      'stale',
      `does not answer this question, but with something older: is there a cache before it? (${QUESTION} does not come back)`,
    );
  }
  if (status === 200 || status === 503) return answer;
  if (status === 401 || status === 403) {
    throw new Unusable('refused', `does not take these credentials (${status})`);
  }
  throw new Unusable('refused', `answers with ${status}, not with its state`);
}

/**
 * @param {Record<string, string | string[] | undefined>} [headers]
 * @param {string[]} [forward]
 */
function credentialsOf(headers = {}, forward = ['authorization']) {
  /** @type {Record<string, string>} */
  const sent = {};
  for (const name of forward) {
    const value = headers[name];
    if (typeof value === 'string') sent[name] = value;
  }
  return sent;
}

/** @param {StateAnswer} answer */
function read({ status, body }) {
  let document;
  try {
    document = JSON.parse(body);
  } catch {
    throw new Unusable('malformed', 'does not answer with JSON');
  }
  const flaw = flawOfState(document);
  if (!flaw) return document;
  // A host that is not up yet has no document to give.
  const { error } = Object(document);
  if (status === 503 && typeof error === 'string' && document.trust === undefined) {
    throw new Unusable('not-live', `is not ready: ${cut(error)}`);
  }
  throw new Unusable('malformed', `does not answer with a state document: ${flaw}`);
}

/**
 * Throws where the document cannot be part of a total.
 *
 * @param {any} document
 * @param {number} status
 * @param {string[]} ring
 */
function judge({ generatedAt, trust, handOver }, status, ring) {
  if (!trust.live) {
    const { phase, keeper } = trust;
    const why = Object.hasOwn(PHASES, phase) ? PHASES[phase] : `is not live (${cut(phase)})`;
    const { lastError } = keeper;
    const cause = phase === 'failed' && typeof lastError === 'string' ? `: ${cut(lastError)}` : '';
    throw new Unusable('not-live', why + cause);
  }
  if (status !== 200) throw new Unusable('malformed', `says that it is live, and ${status}`);
  // Both of its own clock.
  const ageMs = Math.max(trust.stateAgeMs, generatedAt - trust.stateAt);
  const mostMs = Math.min(trust.maxAgeMs, MOST_AGE_MS);
  if (ageMs > mostMs) {
    throw new Unusable('stale', `says what was ${ageMs} ms ago, and ${mostMs} ms is the most`);
  }
  const theirs = new Set(trust.keeper.ring);
  const lacks = ring.filter((name) => !theirs.has(name));
  const has = [...theirs].filter((name) => !ring.includes(name));
  if (lacks.length + has.length > 0) {
    const differences = [
      ...(lacks.length > 0 ? [`it lacks ${cut(lacks.join(', '))}`] : []),
      ...(has.length > 0 ? [`it has ${cut(has.join(', '))}`] : []),
    ];
    throw new Unusable('ring-differs', `is on another ring: ${differences.join(', and ')}`);
  }
  if (handOver) {
    const { rows } = handOver;
    throw new Unusable(
      'handing-over',
      rows > 0
        ? `has rows of other nodes: ${rows} are still to be handed over`
        : 'is looking for rows that are to be handed over to other nodes',
    );
  }
}

/**
 * @param {string} node
 * @param {any} document  null where there is none that can be read
 * @param {InstanceType<typeof Unusable> | null} unusable
 * @param {number | null} answeredMs
 * @returns {NodeSummary}
 */
function summaryOf(node, document, unusable, answeredMs) {
  const head = {
    node,
    ok: unusable === null,
    reason: unusable?.reason ?? null,
    error: unusable && `${node} ${unusable.message}`,
    answeredMs,
  };
  if (document === null) {
    return {
      ...head,
      phase: null,
      live: null,
      exact: null,
      stateAt: null,
      stateAgeMs: null,
      ring: null,
      now: null,
      oldestDueAt: null,
      handOver: null,
      keeper: null,
    };
  }
  const { now, trust, handOver } = document;
  const { phase, live, exact, stateAt, stateAgeMs } = trust;
  const counted = (/** @type {string} */ field) => (live ? now[field] : null);
  return {
    ...head,
    phase,
    live,
    exact,
    stateAt,
    stateAgeMs,
    ring: trust.keeper.ring,
    now: {
      due: counted('due'),
      inFlight: counted('inFlight'),
      heldKeys: counted('heldKeys'),
      heldDue: counted('heldDue') ?? null,
      unclaimed: counted('unclaimed'),
      leasesLeft: counted('leasesLeft') ?? null,
      paused: now.paused,
      status: now.status,
      drainEtaMs: counted('drainEtaMs'),
    },
    oldestDueAt: live ? document.lateness.oldestDueAt : null,
    handOver: handOver ?? null,
    keeper: knownOfKeeper(trust.keeper),
  };
}

// The sum

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
/** @param {(number | null)[]} times */
const earliest = (times) =>
  times.reduce((a, b) => (a === null ? b : b === null ? a : Math.min(a, b)), null);
/** Element by element. @param {number[][]} lists */
const sums = (lists) => lists[0].map((_, i) => sum(lists.map((list) => list[i])));
/** null, which means without end, is the greatest. @param {(number | null)[]} numbers */
const greatest = (numbers) =>
  numbers.some((each) => each === null)
    ? null
    : numbers.reduce((a, b) => Math.max(Number(a), Number(b)));
/** By code unit. @param {string} a @param {string} b */
const inOrder = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/**
 * What the nodes' documents say together.
 *
 * @param {any[]} documents  live ones, at least one
 */
function merge(documents) {
  const trusts = documents.map(({ trust }) => trust);
  return {
    now: mergeNow(documents.map(({ now }) => now)),
    coming: mergeComing(documents.map(({ coming }) => coming)),
    lateness: mergeLateness(documents.map(({ lateness }) => lateness)),
    flow: mergeFlow(documents.flatMap(({ flow }) => flow)),
    trust: {
      source: 'cluster',
      live: true,
      exact: trusts.every(({ exact }) => exact),
      stateAt: Math.min(...trusts.map(({ stateAt }) => stateAt)),
      stateAgeMs: Math.max(...trusts.map(({ stateAgeMs }) => stateAgeMs)),
      maxAgeMs: Math.max(...trusts.map(({ maxAgeMs }) => maxAgeMs)),
    },
  };
}

/** @param {any[]} nows */
function mergeNow(nows) {
  const total = (/** @type {string} */ field) => sum(nows.map((now) => now[field]));
  // What a node of an older version does not say: then nobody knows the sum.
  const known = (/** @type {string} */ field) =>
    nows.every((now) => typeof now[field] === 'number') ? total(field) : null;
  const has = (/** @type {string} */ status) => nows.some((now) => now.status === status);
  const status = ['queued', 'unready', 'paused'].find(has) ?? 'empty';
  const byDemand = groupBy(
    nows.flatMap(({ changedByDemand }) => changedByDemand),
    ({ periodMs }) => String(periodMs),
  );
  const changedByDemand = byDemand.map((group) => ({
    periodMs: group[0].periodMs,
    due: sum(group.map(({ due }) => due)),
    oldestDueAt: earliest(group.map(({ oldestDueAt }) => oldestDueAt)),
  }));
  // Unknown periods last.
  const rank = (/** @type {number | null} */ period) => period ?? Number.POSITIVE_INFINITY;
  changedByDemand.sort((a, b) => (rank(a.periodMs) < rank(b.periodMs) ? -1 : 1));
  return {
    due: total('due'),
    dueSitemap: total('dueSitemap'),
    dueDiscovered: total('dueDiscovered'),
    dueChanged: total('dueChanged'),
    oldestChangedAt: earliest(nows.map((now) => now.oldestChangedAt)),
    dueUrgent: total('dueUrgent'),
    oldestUrgentAt: earliest(nows.map((now) => now.oldestUrgentAt)),
    changedByDemand,
    inFlight: total('inFlight'),
    heldKeys: total('heldKeys'),
    heldDue: known('heldDue'),
    // Not due less in flight: what one node has in flight takes nothing away from what another has due.
    unclaimed: total('unclaimed'),
    leasesLeft: known('leasesLeft'),
    paused: nows.some(({ paused }) => paused),
    status,
    // Nothing is late where no node has anything late, and no node renders another's rows: the slowest decides. From
    // rates summed up, a node that never drains would not show.
    drainEtaMs: greatest(nows.map((now) => now.drainEtaMs)),
  };
}

/** @param {any[]} comings */
function mergeComing(comings) {
  const total = (/** @type {string} */ field) => sum(comings.map((coming) => coming[field]));
  return {
    next15m: total('next15m'),
    next60m: total('next60m'),
    next24h: total('next24h'),
    byHour: sums(comings.map(({ byHour }) => byHour)),
  };
}

/** @param {any[]} latenesses */
function mergeLateness(latenesses) {
  const byRoute = mergeList(latenesses, 'byRoute', ({ route }) => route, mergeRoute);
  const classes = mergeList(latenesses, 'classes', identityOf, mergeClass);
  byRoute.sort((a, b) => b.due - a.due || inOrder(a.route, b.route));
  const late = (/** @type {any} */ one) => one.oldestLatenessCadences ?? -1;
  classes.sort(
    (a, b) => late(b) - late(a) || b.due - a.due || inOrder(identityOf(a), identityOf(b)),
  );
  return {
    edges: EDGES,
    sitemap: sums(latenesses.map(({ sitemap }) => sitemap)),
    discovered: sums(latenesses.map(({ discovered }) => discovered)),
    oldestDueAt: earliest(latenesses.map(({ oldestDueAt }) => oldestDueAt)),
    nextDueAt: earliest(latenesses.map(({ nextDueAt }) => nextDueAt)),
    byRoute: byRoute.slice(0, MOST_LISTED),
    classes: classes.slice(0, MOST_LISTED),
    listsTruncated:
      latenesses.some(({ listsTruncated }) => listsTruncated) ||
      byRoute.length > MOST_LISTED ||
      classes.length > MOST_LISTED,
  };
}

/**
 * A list by identity. Where a node had to cut its own list, what it does not name it may have nevertheless: an entry
 * that misses such a node's part says `atLeast`.
 *
 * @param {any[]} latenesses
 * @param {'byRoute' | 'classes'} field
 * @param {(entry: any) => string} identity
 * @param {(group: any[]) => any} mergeGroup
 * @returns {any[]}
 */
function mergeList(latenesses, field, identity, mergeGroup) {
  const other = field === 'byRoute' ? 'classes' : 'byRoute';
  // Both are cut to the same length: the shorter one was not.
  const isCut = (/** @type {any} */ lateness) =>
    lateness.listsTruncated && lateness[field].length >= lateness[other].length;
  const cut = latenesses
    .filter(isCut)
    .map((lateness) => new Set(lateness[field].map((/** @type {any} */ one) => identity(one))));
  return groupBy(
    latenesses.flatMap((lateness) => lateness[field]),
    identity,
  ).map((group) => {
    const merged = mergeGroup(group);
    const id = identity(group[0]);
    return cut.every((listed) => listed.has(id)) ? merged : { ...merged, atLeast: true };
  });
}

/** @param {any[]} group */
function mergeRoute(group) {
  return {
    route: group[0].route,
    due: sum(group.map(({ due }) => due)),
    sitemap: sums(group.map(({ sitemap }) => sitemap)),
    discovered: sums(group.map(({ discovered }) => discovered)),
  };
}

/** @param {any} one */
function identityOf({ route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs }) {
  return JSON.stringify([route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs]);
}

/** @param {any[]} group */
function mergeClass(group) {
  const { route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriodMs } = group[0];
  return {
    route,
    cadenceMs,
    carried,
    fromSitemap,
    changed,
    urgent,
    demandPeriodMs,
    rows: sum(group.map(({ rows }) => rows)),
    due: sum(group.map(({ due }) => due)),
    oldestDueAt: earliest(group.map(({ oldestDueAt }) => oldestDueAt)),
    oldestLatenessCadences: greatest(group.map((one) => one.oldestLatenessCadences)),
  };
}

/** @param {any[]} minutes */
function mergeFlow(minutes) {
  const merged = groupBy(minutes, ({ minute }) => String(minute)).map((group) => ({
    minute: group[0].minute,
    cameDue: sum(group.map(({ cameDue }) => cameDue)),
    added: sum(group.map(({ added }) => added)),
    triggered: sum(group.map(({ triggered }) => triggered)),
    rescheduled: sum(group.map(({ rescheduled }) => rescheduled)),
    removed: sum(group.map(({ removed }) => removed)),
  }));
  return merged.sort((a, b) => a.minute - b.minute);
}

/**
 * @param {any[]} list
 * @param {(one: any) => string} keyOf
 * @returns {any[][]}
 */
function groupBy(list, keyOf) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const one of list) {
    const key = keyOf(one);
    const group = groups.get(key);
    if (group) group.push(one);
    else groups.set(key, [one]);
  }
  return [...groups.values()];
}

module.exports = { clusterAnswer, merge };
