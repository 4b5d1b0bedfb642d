/**
 * `node bench/cluster.js`: a ring of three standalone nodes under load, asked for its state as a whole; a node that is
 * frozen, killed and back; a node added while the fleet works, and one that never came. Then rings of two and three whose
 * writers write rows of all owners, and a table that is told to its listener again (`support/all-owners.js`). How it is
 * taken is in README.md beside this file.
 */

const assert = require('node:assert/strict');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { assertAddsUp } = require('../__test__/support/compare.js');
const { corpus, HOUR } = require('./corpus.js');
const { startHost, temporaryFolder, writeCorpus } = require('./support/host.js');
const { measureOwners, measureResend } = require('./support/all-owners.js');
const { findLost, sleep, startLoad } = require('./support/load.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const {
  askCluster,
  compareAtRest,
  isWhole,
  missedOf,
  ownerOf,
  rowsOf,
  tellAll,
  totalOf,
  untilCluster,
} = require('./support/ring.js');
const { median, quantile, summary } = require('./support/statistics.js');

/** @typedef {import('./support/ring.js').Member} Member */
/** @typedef {import('./support/ring.js').Corpus} Corpus */
/** @typedef {import('./support/ring.js').Asked} Asked */
/** @typedef {{ ms: number[], failed: number, sent: number }} Admin */
/** @typedef {{ name: string, load: ReturnType<typeof startLoad> }} Fleet */

/**
 * What all parts of a run need.
 * @typedef {object} Run
 * @property {Corpus} rows
 * @property {boolean} quick
 * @property {number} renderers
 * @property {number} loadSeconds
 * @property {(text: string) => void} stage
 * @property {(isRight: boolean, what: string) => void} check
 * @property {(name: string, port?: number) => Promise<Member>} start
 */

const NAMES = ['n1.example.com', 'n2.example.com', 'n3.example.com'];
const ADDED = 'n4.example.com';
const NEVER = 'n5.example.com';
/** As after an outage: nearly all are overdue, and the fleet does not run dry. */
const BACKLOG_MS = 48 * HOUR;
/** What a renderer takes for two pages, on average: 50 of them on each of three nodes claim 50 times a second. */
const RENDER_MS = 3_000;
const ADMIN_PER_SECOND = 100;
/** Longer than any renderer takes. */
const QUICK_LEASE_MS = 10_000;
const PARTS = /** @type {const} */ (['fleet', 'owners', 'resend']);
const SIZES = /** @type {const} */ (['2', '3']);
const RESULTS = path.join(__dirname, 'results', 'cluster.json');
const POLL_MS = 500;
const DEADLINE_MS = 2_000;

/** A load on each node; no page is to be leased twice at once in all of them. @param {Member[]} members @param {Corpus} rows @param {{ renderers: number, writers: number }} load */
function startFleets(members, rows, { renderers, writers }) {
  /** @type {Map<string, number>} */
  const leases = new Map();
  const names = members.map(({ name }) => name);
  return members.map(({ name, host }) => {
    // What is written is written to the node whose it is.
    const own = Array.from({ length: rows.rows }, (_, i) => i).filter(
      (i) => ownerOf(rows.key(i), names) === name,
    );
    const mine = { ...rows, nth: (/** @type {number} */ n) => own[rows.nth(n) % own.length] };
    const options = { url: host.url, rows: mine, renderers, writers, renderMs: RENDER_MS, leases };
    return { name, load: startLoad(options) };
  });
}

/** @param {any} asked @param {any} from @param {string} field  how much it has grown, on all nodes together */
const grown = (asked, from, field) => totalOf(asked.answer, field) - totalOf(from.answer, field);

/** A URL at which nobody answers. */
async function deadUrl() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {net.AddressInfo} */ (server.address());
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

/** Three nodes, and the rows written to each: it takes its own. @param {Run} run */
async function startRing({ rows, start }) {
  const members = await Promise.all(NAMES.map((name) => start(name)));
  await tellAll(members);
  const epoch = Date.now() - BACKLOG_MS;
  const lines = Array.from({ length: rows.rows }, (_, i) =>
    JSON.stringify({ cacheKey: rows.key(i), ...rows.value(i, epoch) }),
  ).join('\n');
  for (const { host } of members) {
    const response = await fetch(`${host.url}/render_schedule`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-ndjson' },
      body: lines,
    });
    assert.equal(response.status, 200, await response.text());
  }
  await untilCluster(members[0].host.url, 'all rows', isWhole(rows));
  return members;
}

/** Asks each node in turn for the whole ring: every total must add up. @param {Member[]} members */
function startPolling(members) {
  const polled = { asked: 0, none: 0, exact: 0, ms: /** @type {number[]} */ ([]) };
  let polling = true;
  const going = (async () => {
    for (; polling; await sleep(POLL_MS)) {
      const { status, ms, answer } = await askCluster(
        members[polled.asked % members.length].host.url,
      );
      polled.asked += 1;
      polled.ms.push(ms);
      if (status !== 200) {
        // Where a node did not answer in time, that is what is to be said.
        assert.ok(answer.nodes.some((/** @type {any} */ { ok }) => !ok) && !('now' in answer));
        polled.none += 1;
        continue;
      }
      if (answer.trust.exact) polled.exact += 1;
      const { now, nodes } = answer;
      // Of the ring it is the sum of what each node has unclaimed.
      const unclaimed = Math.max(0, now.due - now.inFlight);
      assertAddsUp({ ...answer, now: { ...now, unclaimed } });
      for (const field of ['due', 'inFlight', 'unclaimed', 'heldKeys', 'heldDue', 'leasesLeft']) {
        const sum = nodes.reduce(
          (/** @type {number} */ all, /** @type {any} */ one) => all + one.now[field],
          0,
        );
        assert.equal(now[field], sum, field);
      }
    }
  })();
  return {
    async stop() {
      polling = false;
      await going;
      return polled;
    },
  };
}

/** The fleet at work, by turns alone and beside admin requests. @param {Run} run @param {Member[]} members */
async function measureLoad({ rows, quick, renderers, loadSeconds, stage, check }, members) {
  const windows = quick ? 2 : 12;
  const windowMs = (loadSeconds * 1000) / windows;
  stage(
    `${3 * renderers} renderers for ${loadSeconds} s; in every other ${windowMs / 1000} s, ${ADMIN_PER_SECOND} admin requests a second`,
  );
  const fleets = startFleets(members, rows, { renderers, writers: 2 });
  const admin = new Worker(path.join(__dirname, 'support', 'admin.js'), {
    workerData: { urls: members.map(({ host }) => host.url), perSecond: ADMIN_PER_SECOND },
  });
  const polling = startPolling(members);
  await sleep(quick ? 1_000 : RENDER_MS);
  /** @type {{ withAdmin: boolean, from: number, to: number, admin: Admin | null }[]} */
  const spans = [];
  for (let i = 0; i < windows; i++) {
    const withAdmin = i % 2 === 1;
    const from = performance.now();
    if (withAdmin) admin.postMessage(true);
    await sleep(windowMs);
    const to = performance.now();
    /** @type {Admin | null} */
    let tally = null;
    if (withAdmin) {
      tally = await new Promise((resolve) => {
        admin.once('message', resolve);
        admin.postMessage(false);
      });
    }
    spans.push({ withAdmin, from, to, admin: tally });
  }
  const documents = await polling.stop();
  await Promise.all(fleets.map(({ load }) => load.stop()));
  await admin.terminate();

  const claims = fleets.flatMap(({ load }) => load.claims);
  const measured = spans.map(({ withAdmin, from, to, admin }) => {
    const claimMs = claims.filter(({ asked }) => asked >= from && asked < to).map(({ ms }) => ms);
    const claimsPerSecond = (claimMs.length / (to - from)) * 1000;
    return { withAdmin, claimsPerSecond, ...summary(claimMs), claimMs, admin };
  });
  const arm = (/** @type {boolean} */ withAdmin) => {
    const of = measured.filter((one) => one.withAdmin === withAdmin);
    const p99s = of.map(({ p99 }) => p99);
    return {
      windows: of.length,
      claimsPerSecond: of.reduce((sum, one) => sum + one.claimsPerSecond, 0) / of.length,
      ...summary(of.flatMap(({ claimMs }) => claimMs)),
      p99Median: quantile(p99s, 0.5),
      p99Least: Math.min(...p99s),
      p99Most: Math.max(...p99s),
    };
  };
  const adminMs = measured.flatMap(({ admin }) => admin?.ms ?? []);
  const adminFailed = measured.reduce((sum, { admin }) => sum + (admin?.failed ?? 0), 0);
  const tallies = fleets.map(({ load }) => load.tally);
  const sumOf = (/** @type {'results' | 'doubles'} */ name) =>
    tallies.reduce((sum, one) => sum + one[name], 0);
  check(
    documents.asked > documents.none,
    `under load: ${documents.asked - documents.none} totals, and each adds up; ${documents.none} times none, since a node was too slow`,
  );
  stage(
    `  ${adminMs.length} admin requests were answered, ${adminFailed} were not or with no total`,
  );
  check(
    sumOf('doubles') === 0 && sumOf('results') > 0,
    `${sumOf('results')} results; ${sumOf('doubles')} pages leased twice at once`,
  );
  return {
    fleets,
    alone: arm(false),
    besideAdmin: arm(true),
    windows: measured.map(({ claimMs: _, admin: __, ...one }) => one),
    admin: { perSecond: ADMIN_PER_SECOND, ...summary(adminMs), failed: adminFailed },
    documents: {
      asked: documents.asked,
      none: documents.none,
      exact: documents.exact,
      ...summary(documents.ms),
    },
    tallies,
  };
}

/** The third node is frozen, sent on, killed, and started again; the others are asked. @param {Run} run @param {Member[]} members */
async function breakNode({ rows, quick, stage, check, start }, members) {
  const [{ host: asked }, , third] = members;
  stage('one node is frozen');
  third.host.freeze();
  const frozen = await untilCluster(asked.url, '503', ({ status }) => status === 503);
  // A quick run judges nothing by time.
  const inTime = (/** @type {Asked} */ { ms }) => quick || ms < DEADLINE_MS + 500;
  check(
    frozen.answer.nodes[2].reason === 'timeout' && inTime(frozen),
    `${frozen.answer.error} (answered after ${frozen.ms.toFixed(0)} ms)`,
  );
  third.host.thaw();
  const thawed = await untilCluster(asked.url, '200', ({ status }) => status === 200);
  stage(`  sent on: a total after ${thawed.afterMs.toFixed(0)} ms`);
  await third.host.kill();
  const killed = await untilCluster(asked.url, '503', ({ status }) => status === 503);
  check(
    killed.answer.nodes[2].reason === 'unreachable' && inTime(killed),
    `killed: ${killed.answer.error} (answered after ${killed.ms.toFixed(0)} ms)`,
  );
  const returning = performance.now();
  members[2] = await start(third.name, third.host.port);
  await untilCluster(asked.url, '200', isWhole(rows));
  const backMs = performance.now() - returning;
  check(true, `started again: a total after ${backMs.toFixed(0)} ms`);
  return {
    frozen: { ms: frozen.ms, error: frozen.answer.error },
    thawedMs: thawed.afterMs,
    killed: { ms: killed.ms, error: killed.answer.error },
    backMs,
  };
}

/** A fourth node, while the fleet works. @param {Run} run @param {Member[]} members */
async function addNode({ rows, quick, renderers, stage, check, start }, members) {
  stage('a fourth node is added, while the fleet works');
  const fourth = await start(ADDED);
  const { url } = members[0].host;
  const before = await askCluster(url);
  const fleets = startFleets(members, rows, { renderers, writers: 0 });
  await sleep(quick ? 2_000 : 5_000);
  const telling = performance.now();
  members.push(fourth);
  await tellAll(members);
  const told = performance.now();
  fleets.push(...startFleets([fourth], rows, { renderers, writers: 0 }));
  const names = members.map(({ name }) => name);
  const share = Array.from({ length: rows.rows }, (_, i) => rows.key(i)).filter(
    (key) => ownerOf(key, names) === ADDED,
  ).length;
  const has = (/** @type {any} */ answer) =>
    answer.nodes.find((/** @type {any} */ { node }) => node === ADDED).keeper?.rows ?? 0;
  await untilCluster(
    url,
    'most rows to be where they belong',
    ({ answer }) => has(answer) > 0.95 * share,
    180_000,
  );
  const mostMs = performance.now() - telling;
  // Those under a lease wait for their result, or for the lease to run out where a renderer got no answer in time.
  await untilCluster(url, 'all rows to be where they belong', isWhole(rows), 180_000);
  const movedMs = performance.now() - telling;
  await sleep(quick ? 1_000 : 10_000);
  await Promise.all(fleets.map(({ load }) => load.stop()));
  const isSettled = isWhole(rows);
  // Exact again: the walk that each node owes after a change of nodes is over, and found nothing.
  const after = await untilCluster(
    url,
    'all rows and results, and an exact total',
    (asked) => isSettled(asked) && asked.answer.now.inFlight === 0 && asked.answer.trust.exact,
    180_000,
  );

  const found = has(after.answer);
  const seconds = (/** @type {number} */ ms) => `${(ms / 1000).toFixed(1)} s`;
  check(
    found === share,
    `it has its share by rendezvous hashing, ${found} of ${rows.rows} rows (${((100 * share) / rows.rows).toFixed(1)} %); 95 % of it ${seconds(mostMs)} after the first node was told, all of it after ${seconds(movedMs)}`,
  );
  const lost = grown(after, before, 'lostTotal');
  const missed = missedOf(after.answer);
  check(
    missed === 0,
    `${lost} rows lost by the others, ${missed} counted as missed; the total is exact`,
  );
  /** Who gave a page out, once all knew the ring. @type {Map<string, Set<string>>} */
  const givers = new Map();
  let claimed = 0;
  let misplaced = 0;
  for (const { name, load } of fleets) {
    for (const { keys } of load.claims.filter(({ asked }) => asked >= told)) {
      for (const key of keys) {
        givers.set(key, (givers.get(key) ?? new Set()).add(name));
        claimed += 1;
        if (ownerOf(key, names) !== name) misplaced += 1;
      }
    }
  }
  const byTwo = [...givers.values()].filter(({ size }) => size > 1).length;
  check(
    misplaced + byTwo === 0 && claimed > 0,
    `${claimed} pages claimed once all knew the ring: ${misplaced} of a node that does not own them, ${byTwo} of two nodes`,
  );
  return {
    fleets,
    figures: { share, found, mostMs, movedMs, lost, missed, claimed, misplaced, byTwo },
  };
}

/** A fifth node, which never comes and is taken out again. @param {Run} run @param {Member[]} members */
async function nameAbsent({ rows, stage, check }, members) {
  stage('a fifth node is named that is not there, and taken out again');
  const { url } = members[0].host;
  const before = await askCluster(url);
  await tellAll(members, [{ name: NEVER, url: await deadUrl() }]);
  const without = await untilCluster(url, '503', ({ status }) => status === 503);
  check(without.answer.nodes.at(-1).reason === 'unreachable', without.answer.error);
  await tellAll(members);
  const isBack = isWhole(rows);
  const after = await untilCluster(
    url,
    'an exact total',
    (asked) => isBack(asked) && asked.answer.trust.exact,
  );
  const lost = grown(after, before, 'lostTotal');
  const gained = grown(after, before, 'gainedTotal');
  const missed = missedOf(after.answer);
  check(
    gained === lost && gained > 0 && missed === 0,
    `${lost} rows lost, ${gained} gained again, ${missed} counted as missed; exact ${after.afterMs.toFixed(0)} ms after the nodes were told`,
  );
  return { lost, gained, missed, exactAfterMs: after.afterMs };
}

/** Nothing acknowledged is lost, wherever it was written. @param {Run} run @param {Member[]} members @param {Fleet[]} fleets */
async function lookForWrites({ check }, members, fleets) {
  /** @type {Map<string, import('./support/load.js').Write[]>} */
  const history = new Map();
  for (const { load } of fleets) {
    for (const [key, writes] of load.history) {
      history.set(key, [...(history.get(key) ?? []), ...writes]);
    }
  }
  const rows = (await Promise.all(members.map(rowsOf))).flat();
  const table = new Map(rows.map((row) => [row.cacheKey, row]));
  const { acknowledged, lost } = findLost(history, (key) => table.get(key) ?? null);
  check(lost.length === 0, `${acknowledged} acknowledged writes, ${lost.length} lost`);
  for (const key of lost.slice(0, 3)) console.error(`  lost: ${key}`);
  return { acknowledged, lost: lost.length };
}

/** @param {Run} run @param {number} workers */
async function runFleet(run, workers) {
  const { rows, stage } = run;
  /** @type {Awaited<ReturnType<typeof compareAtRest>>[]} */
  const atRest = [];
  /** @param {string} when @param {Member[]} members */
  const compare = async (when, members) => {
    const compared = await compareAtRest(members, rows);
    atRest.push(compared);
    const { isRight, differing } = compared;
    const found = differing.length > 0 ? `, but for ${differing.join(', ')}` : '';
    run.check(
      isRight,
      `${when}: the document is the sum of the tables (${compared.rows} rows, ${compared.due} due)${found}`,
    );
    for (const example of compared.examples) stage(`  differs: ${example}`);
  };

  stage('starting three nodes, and writing all rows to each: it takes its own');
  const members = await startRing(run);
  await compare('before', members);
  const { fleets, ...load } = await measureLoad(run, members);
  await compare('after it', members);
  const broken = await breakNode(run, members);
  const added = await addNode(run, members);
  await compare('then', members);
  const writes = await lookForWrites(run, members, [...fleets, ...added.fleets]);
  const absent = await nameAbsent(run, members);
  for (const { host } of members) await host.stop();
  const { renderers, loadSeconds } = run;
  const made = { seconds: loadSeconds, renderers, writers: 2, workers, renderMs: RENDER_MS };
  return { load: made, ...load, ...broken, added: added.figures, absent, writes, atRest };
}

/** @param {Awaited<ReturnType<typeof runFleet>>} fleet */
function printFleet({ alone, besideAdmin, admin, documents, frozen, killed, backMs }) {
  console.log('\nClaims while the fleet works:\n');
  printTable([
    ['', 'claims/s', 'claims', 'p50 ms', 'p99 ms', 'p99 of each window: median, range, ms'],
    ...[
      { what: 'alone', one: alone },
      { what: `beside ${ADMIN_PER_SECOND} admin requests a second`, one: besideAdmin },
    ].map(({ what, one }) => [
      what,
      one.claimsPerSecond.toFixed(0),
      String(one.count),
      short(one.p50),
      short(one.p99),
      `${short(one.p99Median)}, ${short(one.p99Least)} to ${short(one.p99Most)}`,
    ]),
  ]);
  console.log(`
- Admin requests: p50 ${short(admin.p50)} ms, p99 ${short(admin.p99)} ms; one in four asks the whole ring.
- The document of the ring under load: p50 ${short(documents.p50)} ms, p99 ${short(documents.p99)} ms; exact in ${documents.exact} of ${documents.asked}, none in ${documents.none}.
- A node frozen: 503 after ${frozen.ms.toFixed(0)} ms; killed: 503 after ${killed.ms.toFixed(0)} ms; back: 200 ${backMs.toFixed(0)} ms after its start.`);
}

/** @param {Awaited<ReturnType<typeof measureOwners>>[]} rings */
function printOwners(rings) {
  console.log("\nEvery node's writers write rows of all owners:\n");
  printTable([
    [
      'nodes',
      'writes/s',
      'sent on after 421',
      'distinct rows, not covered',
      'from the answer to the owner’s queue: p50, p99 ms',
      'from the sending: p50, p99 ms',
      'CPU a delivered event, us, by node',
    ],
    ...rings.map((one) => [
      String(one.nodes),
      one.writesPerSecond.toFixed(0),
      `${((100 * one.redirected) / one.acknowledged).toFixed(1)} %`,
      `${one.distinct}, ${one.uncovered}`,
      `${one.lagMs.p50.toFixed(2)}, ${one.lagMs.p99.toFixed(2)}`,
      `${short(one.fromSendingMs.p50)}, ${short(one.fromSendingMs.p99)}`,
      one.cost.map(({ usPerEvent }) => usPerEvent.toFixed(0)).join(', '),
    ]),
  ]);
}

/** @param {Awaited<ReturnType<typeof measureResend>>} resend */
function printResend({ atRest, bursts, claims, outdated }) {
  const each = (/** @type {'ms' | 'keeperMs' | 'longestMs'} */ name) =>
    short(median(bursts.map((burst) => burst[name])));
  console.log(`
A table of ${atRest.rows} rows told to its live listener again, at rest in ${short(atRest.ms)} ms (the listener: ${short(atRest.keeperMs)} ms, in one turn at most ${short(atRest.longestMs)} ms);
under load ${bursts.length} times, median ${each('ms')} ms (${each('keeperMs')} and ${each('longestMs')} ms), ${outdated} rows of them outdated:
`);
  printTable([
    ['claims', 'claims/s', 'p50 ms', 'p99 ms', 'rows read before their event came'],
    ...Object.entries(claims).map(([when, { perSecond, p50, p99, repaired }]) => [
      when === 'alone' ? 'alone' : 'while it is told again',
      perSecond.toFixed(0),
      short(p50),
      short(p99),
      String(repaired),
    ]),
  ]);
}

async function main() {
  const {
    rows: count,
    seconds: loadSeconds,
    renderers,
    workers,
    seed,
    nodes,
    writes,
    resend,
    only,
    quick,
    out: file,
  } = readOptions(
    'cluster',
    {
      only: { what: 'which parts; if not all, nothing is written unless --out', of: PARTS },
      rows: {
        what: 'how many schedule rows, on all nodes together',
        normally: 30_000,
        quick: 3_000,
      },
      seconds: {
        what: `of the fleet's load, half of them with ${ADMIN_PER_SECOND} admin requests a second beside it`,
        normally: 120,
        quick: 8,
      },
      renderers: { what: 'simulated renderers on each node', normally: 50, quick: 10 },
      nodes: {
        what: "sizes of the rings whose nodes' writers write rows of all owners",
        of: SIZES,
        quick: ['2'],
      },
      writes: { what: 'of these, from each node', normally: 20_000, quick: 1_000 },
      resend: {
        what: 'rows of each of two nodes, of which one is told its whole table again',
        normally: 250_000,
        quick: 3_000,
      },
      workers: { what: 'worker threads of each node', normally: 2, quick: 1 },
      seed: { what: 'of the corpus', normally: 1 },
    },
    { quickly: '3,000 rows, 8 s, about a minute' },
  );
  const isAll = only.length === PARTS.length && nodes.length === SIZES.length;
  // A part of the figures does not take the place of all of them.
  const out = isAll || file !== RESULTS ? file : null;
  const has = (/** @type {string} */ part) => only.includes(part);
  const number = (/** @type {number} */ n) => n.toLocaleString('en');
  const parts = [
    has('fleet') &&
      `three nodes with ${number(count)} rows, ${renderers} renderers on each, for ${loadSeconds} s; one node is frozen, killed and started again, a fourth is added under load, and a fifth that never comes`,
    has('owners') &&
      `${nodes.join(' and ')} nodes with ${number(count)} rows, ${number(writes)} writes of rows of all owners from each, and more while a node joins and one is killed and back`,
    has('resend') &&
      `two nodes with ${number(resend)} rows each, of which one is told its whole table again while it is claimed from`,
  ];
  const expected =
    Number(has('fleet')) * (loadSeconds + 90) +
    Number(has('owners')) * nodes.length * (40 + writes / 400) +
    Number(has('resend')) * (45 + resend / 8_000);
  console.log(
    `Rings of standalone nodes: ${parts.filter(Boolean).join('. Then ')}. ${workers} workers a node, seed ${seed}. ` +
      `Takes ${quick ? 'about a minute' : `about ${Math.ceil(expected / 60)} minutes`}${out ? `, and writes ${shown(out)}` : ''}.`,
  );

  const loadAverageBefore = os.loadavg();
  const { stage, seconds } = startProgress();
  const folder = temporaryFolder('cluster');
  const rows = corpus({ rows: count, classes: 40, seed });
  const resendRows = corpus({ rows: 2 * resend, classes: 40, seed });
  /** @type {string[]} */
  const wrong = [];
  const common = {
    ...{ quick, stage },
    check(/** @type {boolean} */ isRight, /** @type {string} */ what) {
      if (!isRight) wrong.push(what);
      stage(`  ${isRight ? 'right' : 'WRONG'}: ${what}`);
    },
  };
  // A page whose renderer got no answer in time waits for its lease's end, and with it a change of nodes: where nothing is
  // judged by time, not for two minutes.
  const leases = quick ? { leaseMs: QUICK_LEASE_MS } : {};
  /** @param {string} of @param {string} name @param {number} [port] @param {boolean} [listening] @returns {Promise<Member>} */
  async function start(of, name, port, listening = true) {
    const data = path.join(folder, of, name);
    fs.mkdirSync(data, { recursive: true });
    // Of every corpus.
    const config = { routes: rows.routes, defaultInterval: rows.defaultInterval, leases };
    fs.writeFileSync(path.join(data, 'config.json'), JSON.stringify(config));
    const more = ['--node', name];
    return { name, data, host: await startHost({ data, port, workers, listening, more }) };
  }
  const owners = {
    ...common,
    start,
    async ring(/** @type {string} */ of, /** @type {string[]} */ names, /** @type {Corpus} */ all) {
      const epoch = Date.now() - BACKLOG_MS;
      for (const name of names) {
        const isOwn = (/** @type {string} */ key) => ownerOf(key, names) === name;
        await writeCorpus(path.join(folder, of, name), all, epoch, { isOwn });
      }
      const members = await Promise.all(names.map((name) => start(of, name)));
      await tellAll(members);
      await untilCluster(members[0].host.url, 'all rows', isWhole(all));
      return members;
    },
  };

  const fleet = has('fleet')
    ? await runFleet(
        {
          ...{ ...common, rows, renderers, loadSeconds },
          start: (name, port) => start('fleet', name, port, false),
        },
        workers,
      )
    : null;
  const measureRings = async () => {
    const rings = [];
    if (has('owners'))
      for (const size of nodes) rings.push(await measureOwners(owners, Number(size), rows, writes));
    return rings;
  };
  const measureResent = async () => (has('resend') ? measureResend(owners, resendRows) : null);
  // Most of the time they wait for rings to settle: where nothing is judged by time, both at once.
  const going = quick ? measureResent() : null;
  const rings = await measureRings();
  const resent = await (going ?? measureResent());
  stage('done');

  if (fleet) printFleet(fleet);
  if (rings.length > 0) printOwners(rings);
  if (resent) printResend(resent);
  console.log(`
- Load average of the machine: ${loadAverageBefore[0].toFixed(1)} before, ${os.loadavg()[0].toFixed(1)} after.
- ${wrong.length === 0 ? 'All of it was right.' : `WRONG: ${wrong.join('; ')}`}
`);
  if (out) {
    writeResults(out, seconds(), {
      corpus: { rows: count, classes: 40, seed, backlogMs: BACKLOG_MS },
      loadAverageBefore,
      wrong,
      ...fleet,
      owners: rings,
      resend: resent,
    });
  }
  if (wrong.length > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
