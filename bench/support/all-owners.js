/**
 * The parts of `cluster.js` in which every node's writers write rows of all owners: coverage, lag and cost; a node that
 * joins, and one that is killed and back, meanwhile; and a table that is told to its live listener once more.
 */

const assert = require('node:assert/strict');
const { isDeepStrictEqual } = require('node:util');
const { assertAddsUp } = require('../../__test__/support/compare.js');
const { MINUTE } = require('../corpus.js');
const { findLost, sleep, startLoad } = require('./load.js');
const { followWrites, startWriters } = require('./owners.js');
const {
  compareAtRest,
  getJson,
  isWhole,
  missedOf,
  ownerOf,
  rowsOf,
  tellAll,
  untilCluster,
} = require('./ring.js');
const { summary } = require('./statistics.js');

/** @typedef {import('./ring.js').Member} Member */
/** @typedef {import('./ring.js').Corpus} Corpus */
/**
 * What all parts of a run need. `ring`: nodes that have their rows when they start, with `listening.js` in them.
 * @typedef {object} Run
 * @property {boolean} quick
 * @property {(text: string) => void} stage
 * @property {(isRight: boolean, what: string) => void} check
 * @property {(of: string, names: string[], rows: Corpus) => Promise<Member[]>} ring
 * @property {(of: string, name: string, port?: number) => Promise<Member>} start
 */

const WRITERS = 4;
const RENDERERS = 20;
const RENDER_MS = 100;
const POLL_MS = 100;
const STATE = '/prerender_admin/queue-state';

const nameOf = (/** @type {number} */ i) => `n${i + 1}.example.com`;
const count = (/** @type {number} */ n) => n.toLocaleString('en');

/** The value of every row of the ring, and whether each is on its owner's node and on no other. @param {Member[]} members */
async function tablesOf(members) {
  const names = members.map(({ name }) => name);
  /** @type {Map<string, any>} */
  const table = new Map();
  let misplaced = 0;
  for (const member of members) {
    for (const row of await rowsOf(member)) {
      if (table.has(row.cacheKey) || ownerOf(row.cacheKey, names) !== member.name) misplaced += 1;
      table.set(row.cacheKey, row);
    }
  }
  return { get: (/** @type {string} */ key) => table.get(key) ?? null, misplaced };
}

/**
 * Everything at rest: exact, the document the sum of the tables, each row on its owner's, kept as it is there, and no
 * acknowledged write lost.
 *
 * @param {Run} run @param {Member[]} members @param {Corpus} rows
 * @param {Map<string, import('./load.js').Write[]>} history @param {string} when
 */
async function checkAll({ check }, members, rows, history, when) {
  const isRight = isWhole(rows);
  const { answer } = await untilCluster(
    members[0].host.url,
    'an exact total of all rows',
    (asked) => isRight(asked) && asked.answer.trust.exact,
    180_000,
  );
  const compared = await compareAtRest(members, rows);
  const { get, misplaced } = await tablesOf(members);
  const { acknowledged, lost } = findLost(history, get);
  const missed = missedOf(answer);
  check(
    compared.isRight && misplaced === 0 && lost.length === 0 && missed === 0,
    `${when}: ${count(compared.rows)} rows, each on its owner's node alone, ${compared.different} kept otherwise than in its table, ` +
      `${compared.differing.length} fields of the document otherwise than the tables; ${count(acknowledged)} acknowledged writes, ${lost.length} lost; ${missed} counted as missed`,
  );
  return { acknowledged, lost: lost.length, misplaced, missed, different: compared.different };
}

/** @param {Run} run @param {number} size @param {Corpus} rows @param {number} writes  of each node's writers */
async function measureOwners(run, size, rows, writes) {
  const { quick, stage, check } = run;
  const of = `owners-${size}`;
  const names = Array.from({ length: size }, (_, i) => nameOf(i));
  stage(
    `${size} nodes, ${WRITERS} writers on each: ${count(writes)} rows of all owners from each node`,
  );
  const members = await run.ring(of, names, rows);
  const hosts = () => members.map(({ host }) => host);

  for (const host of hosts()) await host.watch();
  const cpuBefore = await Promise.all(hosts().map((host) => host.cpuMs()));
  const writers = startWriters(members, rows, { perNode: WRITERS, writes: writes * size });
  const ms = await writers.done;
  const cpuAfter = await Promise.all(hosts().map((host) => host.cpuMs()));
  /** @type {Map<string, import('./load.js').Write[]>} */
  const history = new Map(writers.history);
  const atRest = await checkAll(run, members, rows, history, 'after the writes');
  const nodes = [];
  for (const { name, host } of members) nodes.push({ name, seen: await host.seen() });
  const { get } = await tablesOf(members);
  const followed = followWrites(writers.history, nodes, get);
  const { uncovered, superseded, foreign, distinct, lagMs } = followed;
  const { tally } = writers;
  check(
    uncovered.length + foreign + tally.refused + tally.unready === 0 && tally.acknowledged > 0,
    `${count(distinct)} distinct rows were written, ${uncovered.length} did not reach their owner's queue as the table has them; ` +
      `${superseded} of ${count(tally.acknowledged)} acknowledged writes were never told, and ${foreign} of another node's rows were; ${tally.unanswered} writes got no answer within a second`,
  );
  for (const key of uncovered.slice(0, 3)) stage(`  not covered: ${key}`);
  const cost = nodes.map(({ name, seen }, i) => {
    const cpuMs = cpuAfter[i] - cpuBefore[i];
    return {
      node: name,
      events: seen.keys.length,
      cpuMs,
      usPerEvent: (1000 * cpuMs) / seen.keys.length,
    };
  });
  stage(
    `  ${(tally.acknowledged / (ms / 1000)).toFixed(0)} writes/s, ${((100 * tally.redirected) / tally.acknowledged).toFixed(1)} % sent on after 421; ` +
      `from the answer to the owner's queue p50 ${lagMs.p50.toFixed(2)} ms, p99 ${lagMs.p99.toFixed(2)} ms`,
  );

  stage('  a node joins while they write');
  const more = startWriters(members, rows, { perNode: WRITERS });
  await sleep(quick ? 500 : 3_000);
  const joining = performance.now();
  members.push(await run.start(of, nameOf(size)));
  await tellAll(members);
  await untilCluster(members[0].host.url, 'all rows', isWhole(rows), 180_000);
  const joinedMs = performance.now() - joining;
  await sleep(quick ? 500 : 3_000);

  stage('  a node is killed and started again while they write');
  const killed = members[1];
  await killed.host.kill();
  await sleep(quick ? 500 : 3_000);
  const returning = performance.now();
  members[1] = await run.start(of, killed.name, killed.host.port);
  await untilCluster(members[0].host.url, 'all rows', isWhole(rows), 180_000);
  const backMs = performance.now() - returning;
  await sleep(quick ? 500 : 3_000);
  await more.stop();
  for (const [key, made] of more.history) history.set(key, [...(history.get(key) ?? []), ...made]);
  const after = await checkAll(run, members, rows, history, 'after the join and the kill');
  check(more.tally.refused === 0, `${more.tally.refused} writes were sent on without an end`);
  stage(
    `  ${count(more.tally.acknowledged)} writes meanwhile, ${count(more.tally.redirected)} sent on, ${more.tally.unready} to a node that was starting, ${more.tally.unanswered} without an answer; ` +
      `joined after ${(joinedMs / 1000).toFixed(1)} s, back after ${(backMs / 1000).toFixed(1)} s`,
  );
  for (const host of hosts()) await host.stop();
  return {
    nodes: size,
    seconds: ms / 1000,
    writesPerSecond: tally.acknowledged / (ms / 1000),
    ...tally,
    ...{ ...followed, uncovered: uncovered.length },
    cost,
    atRest,
    joined: { ms: joinedMs, backMs, writes: more.tally, atRest: after },
  };
}

/** What the state says besides when. @param {any} answer */
function countsOf({ now, coming, lateness, flow, trust }) {
  const { rows, classes, gainedTotal, lostTotal, repairedTotal, epoch } = trust.keeper;
  const { drainEtaMs: _, ...counts } = now;
  const kept = { rows, classes, gainedTotal, lostTotal, repairedTotal, epoch, exact: trust.exact };
  return { counts, coming, lateness, flow, kept };
}

/** @param {string} url */
async function outdatedOf(url) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^keeper_events_outdated_total (\S+)$/m.exec(text)?.[1]);
}

/**
 * A base copy that carries a row makes Harper tell a live subscriber the node's whole table again. Here the harness does, in
 * the real process, to the real listener: at rest, and while pages are claimed, rendered and written.
 *
 * @param {Run} run @param {Corpus} rows  of two nodes
 */
async function measureResend(run, rows) {
  const { quick, stage, check } = run;
  const names = [nameOf(0), nameOf(1)];
  stage(
    `two nodes with ${count(rows.rows)} rows: the whole table of one is told to its listener again`,
  );
  const members = await run.ring('resend', names, rows);
  const [{ host }] = members;
  const { url } = host;
  const state = async () => {
    const { answer } = await getJson(url + STATE);
    assert.ok(answer.trust.live, answer.error);
    return answer;
  };
  await untilCluster(url, 'an exact total', ({ answer }) => answer.trust?.exact, 180_000);

  // At rest, within one minute: nothing at all may change.
  /** @type {import('./listening.js').Resent} */
  let resent;
  let isSame = false;
  for (;;) {
    const before = await state();
    resent = await host.resend();
    const after = await state();
    const minute = (/** @type {any} */ { generatedAt }) => Math.floor(generatedAt / MINUTE);
    if (minute(before) !== minute(after)) continue;
    isSame = isDeepStrictEqual(countsOf(before), countsOf(after));
    break;
  }
  check(
    isSame,
    `at rest: ${count(resent.rows)} rows told again in ${resent.ms.toFixed(0)} ms, of which the listener took ${resent.keeperMs.toFixed(0)} ms; no count of the state has changed`,
  );

  const own = Array.from({ length: rows.rows }, (_, i) => i).filter(
    (i) => ownerOf(rows.key(i), names) === names[0],
  );
  const mine = { ...rows, nth: (/** @type {number} */ n) => own[rows.nth(n) % own.length] };
  const load = startLoad({
    url,
    rows: mine,
    renderers: RENDERERS,
    writers: 2,
    renderMs: RENDER_MS,
  });
  await sleep(500);
  const windowMs = quick ? 1_500 : 10_000;
  const outdatedBefore = await outdatedOf(url);
  const states = { asked: 0, exact: 0 };
  let polling = true;
  const polled = (async () => {
    for (; polling; await sleep(POLL_MS)) {
      const answer = await state();
      assertAddsUp(answer);
      states.asked += 1;
      if (answer.trust.exact) states.exact += 1;
    }
  })();
  /** `repaired`: by claims and head checks, which came before the event. @type {{ during: boolean, from: number, to: number, repaired: number }[]} */
  const spans = [];
  const repairedTotal = async () => (await state()).trust.keeper.repairedTotal;
  /** @type {import('./listening.js').Resent[]} */
  const bursts = [];
  for (let i = 0; i < 4; i++) {
    const during = i % 2 === 1;
    const before = await repairedTotal();
    const from = performance.now();
    if (during) {
      while (performance.now() - from < windowMs) bursts.push(await host.resend());
    } else {
      await sleep(windowMs);
    }
    spans.push({ during, from, to: performance.now(), repaired: (await repairedTotal()) - before });
  }
  polling = false;
  await polled;
  await load.stop();
  const outdated = (await outdatedOf(url)) - outdatedBefore;
  const compared = await host.compare();
  const { get } = await tablesOf(members);
  const { acknowledged, lost } = findLost(load.history, get);
  const missed = (await state()).trust.keeper.verify?.repaired ?? 0;
  const { doubles } = load.tally;
  check(
    states.exact === states.asked && missed === 0,
    `under load: ${bursts.length} times told again, ${count(outdated)} rows older than what was kept by then, and refused; ${states.exact} of ${states.asked} states exact, ${missed} writes counted as missed`,
  );
  check(
    compared.different + lost.length + doubles === 0,
    `then: ${count(compared.rows)} rows, ${compared.different} kept otherwise than in the table; ${count(acknowledged)} acknowledged writes, ${lost.length} lost; ${doubles} pages leased twice at once`,
  );
  for (const example of compared.examples) stage(`  differs: ${example}`);
  const claims = (/** @type {boolean} */ during) => {
    const of = spans.filter((span) => span.during === during);
    const within = load.claims.filter(({ asked }) =>
      of.some(({ from, to }) => asked >= from && asked < to),
    );
    const ms = of.reduce((sum, { from, to }) => sum + to - from, 0);
    const repaired = of.reduce((sum, span) => sum + span.repaired, 0);
    return {
      repaired,
      perSecond: (1000 * within.length) / ms,
      ...summary(within.map((one) => one.ms)),
    };
  };
  const rates = { alone: claims(false), during: claims(true) };
  for (const { host } of members) await host.stop();
  return {
    rows: rows.rows,
    atRest: resent,
    bursts,
    outdated,
    states,
    claims: rates,
    different: compared.different,
    acknowledged,
    lost: lost.length,
  };
}

module.exports = { measureOwners, measureResend };
