/** A ring of standalone nodes from outside: its document, its list of nodes, and the tables that it must add up to. */

const assert = require('node:assert/strict');
const http = require('node:http');
const { expectedOf } = require('../../__test__/support/compare.js');
const { openEnvironment } = require('../../lib/standalone/environment.js');
const { decodeKey, decodeRow } = require('../../lib/standalone/row-codec.js');
const { MINUTE } = require('../corpus.js');
const { sleep } = require('./load.js');

/** @typedef {{ name: string, data: string, host: import('./host.js').Host }} Member */
/** @typedef {ReturnType<typeof import('../corpus.js').corpus>} Corpus */
/** @typedef {{ status: number, ms: number, answer: any }} Asked */

const CLUSTER = '/prerender_admin/cluster-queue-state';

/** The node of a key by rendezvous hashing, written anew from the specification. @param {string} key @param {string[]} names */
function ownerOf(key, names) {
  const url = key.replace(/\|(desktop|mobile)$/, '');
  let best = { name: '', hash: -1 };
  for (const name of [...names].sort()) {
    let hash = 2_166_136_261;
    for (const char of `${url}|${name}`) {
      hash = Math.imul(hash ^ char.charCodeAt(0), 16_777_619) >>> 0;
    }
    if (hash > best.hash) best = { name, hash };
  }
  return best.name;
}

/**
 * On a connection of its own: one that is kept may be closed just when it is used again. However long it takes.
 *
 * @param {string} url @returns {Promise<Asked>}
 */
function getJson(url) {
  const began = performance.now();
  return new Promise((resolve, reject) => {
    const asked = http.get(url, { agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('error', reject);
      response.on('end', () => {
        const ms = performance.now() - began;
        resolve({ status: Number(response.statusCode), ms, answer: JSON.parse(text) });
      });
    });
    asked.on('error', reject);
  });
}

/** @param {string} url */
const askCluster = (url) => getJson(url + CLUSTER);

/** Resolves when the node goes by the list. @param {string} url @param {{ name: string, url: string }[]} nodes */
async function setNodes(url, nodes) {
  const response = await fetch(`${url}/prerender_admin/nodes`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ nodes }),
  });
  const answer = /** @type {any} */ (await response.json());
  assert.ok(response.ok, answer.error);
  const names = JSON.stringify(nodes.map(({ name }) => name).sort());
  for (let { ring } = answer; JSON.stringify(ring) !== names; await sleep(50)) {
    ({ ring } = (await getJson(`${url}/prerender_admin/nodes`)).answer);
  }
}

/**
 * Asks until the answer is right, and says how long that took.
 *
 * @param {string} url @param {string} what @param {(asked: { status: number, answer: any }) => boolean} isRight
 */
async function untilCluster(url, what, isRight, withinMs = 60_000) {
  const began = performance.now();
  for (;;) {
    const asked = await askCluster(url);
    if (isRight(asked)) return { ...asked, afterMs: performance.now() - began };
    if (performance.now() - began > withinMs) {
      throw new Error(`waited in vain for ${what}: ${asked.status} ${saidBy(asked.answer)}`);
    }
    await sleep(20);
  }
}

/** @param {any} answer */
function saidBy({ error, now, trust, nodes }) {
  if (error) return error;
  const { exact } = trust;
  const kept = nodes.map((/** @type {any} */ { node, keeper, exact }) => {
    const { rows, repairedTotal, verify } = keeper;
    return { node, rows, exact, repairedTotal, missed: verify?.repaired };
  });
  return JSON.stringify({ inFlight: now.inFlight, exact, kept });
}

/** @param {any} answer @param {string} field  of each node's keeper */
const totalOf = (answer, field) =>
  answer.nodes.reduce(
    (/** @type {number} */ sum, /** @type {any} */ one) => sum + one.keeper[field],
    0,
  );

/** The same list to every node, the last one first. @param {Member[]} members @param {{ name: string, url: string }[]} [others] */
async function tellAll(members, others = []) {
  const nodes = [...members.map(({ name, host }) => ({ name, url: host.url })), ...others];
  for (const { host } of [...members].reverse()) await setNodes(host.url, nodes);
}

/**
 * What the last walks found missed. What a claim or a head check finds is not in it: there an event was on its way.
 *
 * @param {any} answer @returns {number}
 */
const missedOf = (answer) =>
  answer.nodes.reduce(
    (/** @type {number} */ sum, /** @type {any} */ { keeper }) =>
      sum + (keeper.verify?.repaired ?? 0),
    0,
  );

/** @param {Corpus} rows */
const isWhole =
  (rows) =>
  (/** @type {{ status: number, answer: any }} */ { status, answer }) =>
    status === 200 && totalOf(answer, 'rows') === rows.rows;

// The tables

/** All rows of a node's table, read beside the process. @param {Member} member */
async function rowsOf({ data }) {
  const { root, rows } = openEnvironment(data);
  const all = [];
  for (const { key: id, value } of rows.getRange({})) {
    all.push(decodeRow(String(decodeKey(id, value)), value));
  }
  await root.close();
  return all;
}

/** @param {any} row @param {Corpus} corpus */
function cadenceOf(row, { routes, defaultInterval }) {
  if (typeof row.effectiveInterval === 'number' && row.effectiveInterval > 0)
    return row.effectiveInterval;
  const { pathname } = new URL(row.cacheKey.replace(/\|(desktop|mobile)$/, ''));
  const rule = routes.find((route) =>
    route.match === 'exact' ? pathname === route.path : pathname.startsWith(route.path),
  );
  return rule?.renderInterval ?? defaultInterval;
}

/** What the tables together say in that minute, counted row by row. @param {any[]} rows @param {Corpus} corpus @param {number} minute */
function countTables(rows, corpus, minute) {
  const total = {
    rows: 0,
    due: 0,
    dueSitemap: 0,
    dueDiscovered: 0,
    dueChanged: 0,
    dueUrgent: 0,
    oldestDueAt: /** @type {number | null} */ (null),
    nextDueAt: /** @type {number | null} */ (null),
    next15m: 0,
    next60m: 0,
    next24h: 0,
    byHour: /** @type {number[]} */ (Array(24).fill(0)),
    sitemap: [0, 0, 0, 0, 0],
    discovered: [0, 0, 0, 0, 0],
  };
  for (const row of rows) {
    const kept = expectedOf(row);
    if (!kept) continue;
    total.rows += 1;
    const ahead = kept.minute - minute;
    const at = kept.minute * MINUTE;
    if (ahead > 0) {
      if (ahead <= 15) total.next15m += 1;
      if (ahead <= 60) total.next60m += 1;
      if (ahead < 24 * 60) {
        total.next24h += 1;
        total.byHour[Math.floor(ahead / 60)] += 1;
      }
      total.nextDueAt = Math.min(total.nextDueAt ?? at, at);
      continue;
    }
    const late = (-ahead * MINUTE) / cadenceOf(row, corpus);
    const bin = [0.25, 1, 2, 4].filter((edge) => late >= edge).length;
    total.due += 1;
    total[kept.fromSitemap ? 'dueSitemap' : 'dueDiscovered'] += 1;
    total[kept.fromSitemap ? 'sitemap' : 'discovered'][bin] += 1;
    if (kept.changed) total.dueChanged += 1;
    if (kept.urgent) total.dueUrgent += 1;
    total.oldestDueAt = Math.min(total.oldestDueAt ?? at, at);
  }
  return total;
}

/**
 * At rest: the document of the ring against its tables, and what each node keeps against its own, row by row.
 *
 * @param {Member[]} members @param {Corpus} corpus
 */
async function compareAtRest(members, corpus) {
  const kept = [];
  for (const { name, host } of members) kept.push({ name, ...(await host.compare()) });
  const rows = (await Promise.all(members.map(rowsOf))).flat();
  for (;;) {
    const minute = Math.floor(Date.now() / MINUTE);
    const { status, answer } = await askCluster(members[0].host.url);
    if (Math.floor(Date.now() / MINUTE) !== minute) continue;
    assert.equal(status, 200, answer.error);
    const { now, coming, lateness } = answer;
    const { next15m, next60m, next24h, byHour } = coming;
    const { due, dueSitemap, dueDiscovered, dueChanged, dueUrgent } = now;
    const { oldestDueAt, nextDueAt, sitemap, discovered } = lateness;
    const document = {
      rows: totalOf(answer, 'rows'),
      ...{ due, dueSitemap, dueDiscovered, dueChanged, dueUrgent, oldestDueAt, nextDueAt },
      ...{ next15m, next60m, next24h, byHour, sitemap, discovered },
    };
    const tables = countTables(rows, corpus, minute);
    const differing = Object.keys(tables).filter(
      (field) =>
        JSON.stringify(/** @type {any} */ (tables)[field]) !==
        JSON.stringify(/** @type {any} */ (document)[field]),
    );
    const copies = rows.length - new Set(rows.map(({ cacheKey }) => cacheKey)).size;
    return {
      rows: rows.length,
      due,
      differing,
      copies,
      different: kept.reduce((sum, one) => sum + one.different, 0),
      examples: kept.flatMap(({ examples }) => examples),
      isRight:
        differing.length === 0 &&
        copies === 0 &&
        rows.length === corpus.rows &&
        kept.every(({ different }) => different === 0),
    };
  }
}

module.exports = {
  ownerOf,
  getJson,
  askCluster,
  setNodes,
  tellAll,
  untilCluster,
  totalOf,
  missedOf,
  isWhole,
  rowsOf,
  compareAtRest,
};
