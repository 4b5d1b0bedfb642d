/**
 * `node bench/churn.js`: the standalone host with a production-size table that is turned over for as long as asked, and killed and
 * started again before and after that. How it is taken is in README.md beside this file.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { assertAddsUp } = require('../__test__/support/compare.js');
const { openEnvironment } = require('../lib/standalone/environment.js');
const { corpus, HOUR, MINUTE } = require('./corpus.js');
const { indexOf, startChurn } = require('./support/churn-load.js');
const { waitingRows, wrongHead } = require('./support/head.js');
const { openReader, startHost, temporaryFolder, writeCorpus } = require('./support/host.js');
const { createLedger, lostRows } = require('./support/ledger.js');
const { getOnce, sleep } = require('./support/load.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { watchRestart } = require('./support/restarted.js');
const { compareAtRest } = require('./support/ring.js');
const { median, quantile } = require('./support/statistics.js');
const { readTurns } = require('./support/turns.js');

/** @typedef {import('./support/churn-load.js').Claimed} Claimed */
/** @typedef {Awaited<ReturnType<typeof startHost>>} Host */
/** @typedef {'snapshot' | 'table' | 'cold'} Arm */
/** @typedef {Awaited<ReturnType<typeof restart>>} Restart */
/** @typedef {{ at: number, ms: number, scanned: number, repaired: number, late: number, partial: boolean }} Walk  `at` its end, by the wall clock */
/**
 * One look at the host.
 * @typedef {{ at: number, rows: number, due: number, inFlight: number, bytes: number, anonMb: number, repaired: number, exact: boolean }} Seen
 */

const CLASSES = 40;
/** So much of each kind is overdue that the queue does not run dry. */
const BACKLOG_MS = { normally: HOUR, quick: 12 * HOUR };
/** Jobs that no renderer reports come back within the run. */
const LEASES = {
  normally: { leaseMs: 20_000 },
  quick: { leaseMs: 2_000, releaseGraceMs: 500 },
};
const HEAD = 1_000;
const LOOK_MS = 500;
const PATIENCE_MS = 120_000;
const SLICES = 10;
/** So many are kept: the order is whole, but for the last pages that came new. */
const WHOLE = 0.99;
const ARMS = {
  snapshot: 'with a snapshot',
  table: 'without',
  cold: 'without, file not in memory',
};

/** What lies in the file. @param {string} data */
function fileOf(data) {
  const { root, rows } = openEnvironment(data);
  const { entryCount, treeDepth, treeLeafPageCount, pageSize } = /** @type {any} */ (
    rows.getStats()
  );
  const mb = fs.statSync(path.join(data, 'schedule.mdb')).size / 2 ** 20;
  const stats = {
    rows: Number(entryCount),
    mb,
    treeDepth,
    leafPages: treeLeafPageCount,
    bytesOfLeafARow: (treeLeafPageCount * pageSize) / entryCount,
  };
  return { stats, close: () => root.close() };
}

/**
 * Drops a file from the page cache, where the system can, so that it is read from the disk again; says what share of it is still
 * there, or null where it cannot be said.
 *
 * @param {string} file
 */
function dropFromMemory(file) {
  try {
    /** @type {import('node:child_process').ExecFileSyncOptions} */
    const quiet = { stdio: ['ignore', 'pipe', 'ignore'] };
    execFileSync('dd', [`if=${file}`, 'iflag=nocache', 'count=0'], quiet);
    const left = execFileSync('fincore', ['-b', '-n', '-o', 'RES', file], quiet).toString();
    return Number(left) / fs.statSync(file).size;
  } catch {
    return null;
  }
}

/** Memory of the process that is no file's, MB; NaN where the system does not say. @param {number | undefined} pid */
function anonymousMb(pid) {
  try {
    const status = fs.readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) / 1024;
  } catch {
    return Number.NaN;
  }
}

/** Looks at the state again and again. @param {() => Host} host */
function startWatch(host) {
  /** @type {Seen[]} */
  const seen = [];
  /** @type {Walk[]} */
  const walks = [];
  let unanswered = 0;
  let ending = false;
  const running = (async () => {
    for (; !ending; await sleep(LOOK_MS)) {
      const { url, pid } = host();
      let asked;
      try {
        asked = await getOnce(`${url}/prerender_admin/queue-state`);
      } catch {
        unanswered += 1;
        continue;
      }
      if (asked.status !== 200) {
        unanswered += 1;
        continue;
      }
      assertAddsUp(asked.answer);
      const { now, trust } = asked.answer;
      const { rows, bytes, repairedTotal, verify } = trust.keeper;
      seen.push({
        ...{ at: Date.now(), rows, bytes, due: now.due, inFlight: now.inFlight },
        ...{ anonMb: anonymousMb(pid), repaired: repairedTotal, exact: trust.exact },
      });
      if (verify && verify.at !== walks.at(-1)?.at) walks.push(verify);
    }
  })();
  return {
    seen,
    walks,
    unanswered: () => unanswered,
    async stop() {
      ending = true;
      await running;
    },
  };
}

/** What an array of claims comes to. @param {Claimed[]} claims @param {number} seconds */
function summary(claims, seconds) {
  const times = claims.filter(({ jobs }) => jobs.length > 0).map(({ ms }) => ms);
  const jobs = claims.flatMap((claim) => claim.jobs);
  const late = jobs.map((job) => job.late);
  return {
    claimsPerSecond: times.length / seconds,
    jobsPerSecond: jobs.length / seconds,
    empty: claims.length - times.length,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    longest: times.reduce((most, ms) => Math.max(most, ms), 0),
    stale: claims.reduce((sum, { stale }) => sum + stale, 0),
    late: median(late),
    latest: late.reduce((most, one) => Math.max(most, one), 0),
    score: median(jobs.map(({ score }) => score)),
  };
}

/**
 * Kills the host under load and starts it again; the load goes on, without uploads until all is as before.
 *
 * @param {Host} host @param {ReturnType<typeof startChurn>} load @param {Arm} arm
 * @param {{ data: string, workers: number, turns: string, loadSeconds: number }} options
 */
async function restart(host, load, arm, { data, workers, turns, loadSeconds }) {
  const snapshot = path.join(data, 'queue.snapshot');
  await host.saveSnapshot(snapshot);
  load.let('all');
  await sleep(loadSeconds * 1000);
  await host.kill();
  load.let('renderers');
  load.forgetLeases();
  load.takeClaims();
  if (arm !== 'snapshot') fs.rmSync(snapshot, { force: true });
  const file = fileOf(data);
  await file.close();
  const rows = file.stats.rows;
  const inMemory = arm === 'cold' ? dropFromMemory(path.join(data, 'schedule.mdb')) : null;
  const next = await startHost({ data, port: host.port, workers, turns });
  const times = await watchRestart(next, Math.floor(rows * WHOLE));
  const claims = load.takeClaims().filter(({ jobs }) => jobs.length > 0);
  const { answer } = await getOnce(`${next.url}/prerender_admin/queue-state`);
  const { startedAt } = next;
  const until = (/** @type {number} */ ms) => claims.filter(({ at }) => at - startedAt < ms);
  const firstClaim = (claims[0]?.at ?? Number.NaN) - startedAt;
  const { loadMs, snapshotMs, verify } = answer.trust.keeper;
  return {
    host: next,
    arm,
    rows,
    inMemory,
    listening: next.listeningMs,
    firstClaim,
    ...times,
    partial: Math.max(0, times.wholeOrder - firstClaim),
    walk: /** @type {number} */ (arm === 'snapshot' ? (verify?.ms ?? loadMs) : loadMs),
    snapshotMs: /** @type {number | null} */ (snapshotMs),
    longestClaim: until(times.live).reduce((most, { ms }) => Math.max(most, ms), 0),
    partialClaims: until(times.wholeOrder).length,
    stale: until(times.live).reduce((sum, { stale }) => sum + stale, 0),
  };
}

/** Waits until no row is leased, nor in the grace after a result. @param {Host} host */
async function untilRested(host) {
  const patience = performance.now() + PATIENCE_MS;
  for (; performance.now() < patience; await sleep(200)) {
    const { answer } = await getOnce(`${host.url}/prerender_admin/queue-state`);
    if (answer.now.inFlight > 0) continue;
    if ((await host.topK(HEAD)).skippedLeased === 0) return;
  }
  throw new Error('jobs are leased although nobody renders');
}

/**
 * With the load stopped: everything that is kept and said against the table.
 *
 * @param {Host} host @param {string} data @param {ReturnType<typeof corpus>} rows
 * @param {ReturnType<typeof createLedger>} ledger @param {number} ever  rows there have ever been
 */
async function compareAll(host, data, rows, ledger, ever) {
  await untilRested(host);
  const from = Date.now();
  const head = await host.topK(HEAD);
  const to = Date.now();
  const file = waitingRows(data, to + MINUTE, (key) => rows.cadence(indexOf(key)));
  const order = wrongHead(file.waiting, head.rows, { n: HEAD, from, to });
  await file.close();
  const table = openReader(data);
  const lost = lostRows(ledger, ever, (row) => table.get(rows.key(row)));
  await table.close();
  const member = { name: 'localhost', data, host };
  const { differing, different, examples, ...all } = await compareAtRest([member], rows);
  return {
    rows: all.rows,
    headRows: head.rows.length,
    headDue: order.due,
    headWrong: order.wrong.length,
    countsWrong: differing.length,
    different,
    lost: lost.length,
    acknowledged: ledger.acknowledged,
    unknown: ledger.unknown,
    examples: [
      ...order.wrong.slice(0, 5).map((wrong) => `the head: ${wrong}`),
      ...differing.map((field) => `the state's ${field} is not that of the table`),
      ...examples.map((example) => `kept otherwise: ${example}`),
      ...lost.slice(0, 5).map((row) => `lost: ${rows.key(row)}`),
    ],
  };
}

/** The walks that were under way during the run, whole. @param {Walk[]} walks @param {number} began @param {number} ended */
const walksWithin = (walks, began, ended) =>
  walks.filter(({ at, ms }) => at - ms >= began && at <= ended);

/**
 * Claims and turns of the event loops while a walk went on, against those at other times.
 *
 * @param {Walk[]} walks @param {{ at: number, ms: number }[]} claims @param {string} turns
 * @param {{ feeder: number, workers: number, began: number, ended: number }} run
 */
function effectOfWalks(walks, claims, turns, { feeder, workers, began, ended }) {
  /** Of a time and what lasted until then. @param {number} from @param {number} to */
  const isDuring = (from, to) => walks.some(({ at, ms }) => to >= at - ms && from <= at);
  const all = Array.from({ length: workers }, (_, worker) =>
    readTurns(turns, worker)
      .filter(({ at }) => at >= began && at < ended)
      .map((turn) => ({ ...turn, worker })),
  ).flat();
  /** @param {string} when @param {boolean} during */
  const of = (when, during) => {
    const times = claims
      .filter(({ at, ms }) => {
        const wall = performance.timeOrigin + at;
        return isDuring(wall - ms, wall) === during;
      })
      .map(({ ms }) => ms);
    const turnsThen = all.filter(({ at }) => isDuring(at, at + 1000) === during);
    const longest = (/** @type {boolean} */ ofFeeder) =>
      turnsThen
        .filter(({ worker }) => (worker === feeder) === ofFeeder)
        .reduce((most, { ms }) => Math.max(most, ms), 0);
    return {
      when,
      claims: times.length,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      feederTurn: longest(true),
      otherTurn: longest(false),
    };
  };
  return { during: of('a walk goes on', true), between: of('none does', false) };
}

/** @param {Restart[]} fresh @param {Restart[]} churned */
function restartFigures(fresh, churned) {
  const names = /** @type {const} */ ({
    listening: ['the port is open', 'ms'],
    firstClaim: ['the first claim is served', 'ms'],
    wholeOrder: ['the whole order is served', 'ms'],
    partial: ['the order was partial for', 'ms'],
    walk: ['the walk over the table took', 'ms'],
    live: ['every row is verified, the state is live', 'ms'],
    longestClaim: ['the longest claim until then', 'ms'],
    partialClaims: ['claims served before the whole order was there', ''],
    stale: ['rows skipped by claims as stale, until then', ''],
  });
  /** @param {Restart[]} list @param {Arm} arm @param {keyof typeof names} name */
  const of = (list, arm, name) =>
    median(list.filter((one) => one.arm === arm).map((one) => one[name]));
  return Object.entries(names).map(([name, [what, unit]]) => {
    const field = /** @type {keyof typeof names} */ (name);
    const arms = /** @type {Arm[]} */ (Object.keys(ARMS)).map((arm) => [
      arm,
      { fresh: of(fresh, arm, field), churned: of(churned, arm, field) },
    ]);
    return { what, unit, ...Object.fromEntries(arms) };
  });
}

async function main() {
  const options = readOptions(
    'churn',
    {
      rows: { what: 'how many schedule rows', normally: 1_000_000, quick: 10_000 },
      minutes: {
        what: 'how long the table is turned over',
        normally: 10,
        quick: 0.1,
        fraction: true,
      },
      hours: { what: 'the same in hours, added to it', normally: 0, fraction: true },
      uploads: { what: 'rows a second in sitemaps', normally: 3_000, quick: 1_000 },
      edits: { what: 'edits of one page a second', normally: 50 },
      renderers: { what: 'simulated renderers', normally: 20 },
      restarts: {
        what: 'of each kind, before and after, of which the median is shown',
        normally: 3,
        quick: 1,
      },
      load: {
        what: 'seconds under load before each kill; the snapshot is as old as that',
        normally: 5,
        quick: 1,
      },
      workers: { what: 'worker threads of the host', normally: 4, quick: 2 },
      seed: { what: 'of the corpus', normally: 1 },
    },
    { quickly: '10,000 rows, 6 s, one restart of each kind: under 30 seconds' },
  );
  const { rows: count, uploads, edits, renderers, restarts, workers, seed, quick, out } = options;
  const churnMs = options.hours * HOUR + options.minutes * MINUTE;
  const loadSeconds = options.load;
  const leases = quick ? LEASES.quick : LEASES.normally;
  const expected =
    churnMs / 1000 + count / 10_000 + restarts * 6 * (loadSeconds + 2 + count / 60_000);
  console.log(
    `Turns the table of the standalone host over for ${short(churnMs / MINUTE)} minutes, and kills and starts it before and after that, ${restarts} times ` +
      `with a snapshot, without, and without the file in memory: ${count.toLocaleString('en')} rows, ${uploads} rows a second uploaded, ${edits} edits a second, ` +
      `${renderers} renderers, ${workers} workers, seed ${seed}. Takes ${quick ? 'under 30 seconds' : `about ${Math.ceil(expected / 60)} minutes`}${out ? `, and writes ${shown(out)}` : ''}.`,
  );

  const loadAverageBefore = os.loadavg();
  const { stage, seconds } = startProgress();
  const folder = temporaryFolder('churn');
  const [data, turns] = [path.join(folder, 'data'), path.join(folder, 'turns')];
  fs.mkdirSync(turns);
  const rows = corpus({ rows: count, classes: CLASSES, seed });
  const backlogMs = quick ? BACKLOG_MS.quick : BACKLOG_MS.normally;
  const epoch = Date.now() - backlogMs;
  stage(`writing ${count.toLocaleString('en')} rows`);
  await writeCorpus(data, rows, epoch, { byKey: true });
  const config = path.join(data, 'config.json');
  const verifyEveryMs = Math.max(1_000, Math.floor(churnMs / 5));
  const wanted = { ...JSON.parse(fs.readFileSync(config, 'utf8')), verifyEveryMs };
  fs.writeFileSync(config, JSON.stringify({ ...wanted, leases }));
  const ledger = createLedger((row) => (row < count ? rows.value(row, epoch).nextRenderTime : -1));

  stage('the first start');
  let host = await startHost({ data, workers, turns });
  await watchRestart(host, count);
  const load = startChurn({ url: host.url, rows, ledger, renderers, uploads, edits });

  /** @param {string} when */
  async function restartAll(when) {
    /** @type {Restart[]} */
    const list = [];
    for (let n = 0; n < restarts; n++) {
      for (const arm of /** @type {Arm[]} */ (Object.keys(ARMS))) {
        const one = await restart(host, load, arm, { data, workers, turns, loadSeconds });
        host = one.host;
        list.push(one);
        stage(
          `${when}, ${ARMS[arm]}: first claim ${short(one.firstClaim)} ms, whole order ${short(one.wholeOrder)} ms, live ${short(one.live)} ms, ` +
            `walk ${short(one.walk)} ms${one.inMemory === null ? '' : `, ${short(one.inMemory * 100)} % of the file in memory before`}`,
        );
      }
    }
    return list;
  }

  const fresh = await restartAll('fresh');
  const before = fileOf(data);
  await before.close();

  stage(`turning the table over for ${short(churnMs / MINUTE)} minutes`);
  const watch = startWatch(() => host);
  load.takeClaims();
  load.let('all');
  const tallyBefore = { ...load.tally };
  const began = Date.now();
  /** @type {{ at: number, ms: number }[]} */
  const claimTimes = [];
  const slices = [];
  for (let slice = 1; slice <= SLICES; slice++) {
    const from = performance.now();
    await sleep(Math.max(0, began + (churnMs * slice) / SLICES - Date.now()));
    const taken = load.takeClaims();
    for (const { at, ms, jobs } of taken) if (jobs.length > 0) claimTimes.push({ at, ms });
    const last = watch.seen.at(-1);
    const one = {
      minutes: (Date.now() - began) / MINUTE,
      ...summary(taken, (performance.now() - from) / 1000),
      ...{ rows: last?.rows, due: last?.due, bytes: last?.bytes, anonMb: last?.anonMb },
      uploaded: load.tally.uploaded - tallyBefore.uploaded,
    };
    slices.push(one);
    stage(
      `${short(one.minutes)} min: ${one.uploaded.toLocaleString('en')} rows uploaded, ${short(one.jobsPerSecond)} jobs/s, claim p50 ${short(one.p50)} ms, ` +
        `p99 ${short(one.p99)} ms, ${one.due?.toLocaleString('en')} due, claimed ${short(one.late)} cadences late, ${one.stale} stale`,
    );
  }
  await load.rest();
  const ended = Date.now();
  await watch.stop();
  const walks = walksWithin(watch.walks, began, ended);
  const feeder = Number([...host.output().matchAll(/worker (\d+) feeds\n/g)].at(-1)?.[1]);
  const verification = effectOfWalks(walks, claimTimes, turns, { feeder, workers, began, ended });
  const tally = Object.fromEntries(
    Object.entries(load.tally).map(([name, value]) => [
      name,
      value - /** @type {any} */ (tallyBefore)[name],
    ]),
  );
  stage('at rest: everything against the table');
  const atRest = await compareAll(host, data, rows, ledger, load.rowsEver());
  const after = fileOf(data);
  await after.close();
  load.let('renderers');
  const churned = await restartAll('churned');
  await load.rest();
  stage('at rest again: everything against the table');
  const atEnd = await compareAll(host, data, rows, ledger, load.rowsEver());
  await load.stop();
  await host.stop();
  stage('done');

  const restarted = restartFigures(fresh, churned);
  const arms = /** @type {Arm[]} */ (Object.keys(ARMS));
  console.log(`\nRestart after kill -9, from the start of the process, medians of ${restarts}:\n`);
  printTable([
    ['what', 'unit', ...arms.flatMap((arm) => [`${ARMS[arm]}: fresh`, 'churned'])],
    ...restarted.map((one) => [
      one.what,
      one.unit,
      ...arms.flatMap((arm) => [short(one[arm].fresh), short(one[arm].churned)]),
    ]),
  ]);
  console.log('\nThe run:\n');
  printTable([
    [
      'minutes',
      'rows uploaded',
      'claims/s',
      'p50 ms',
      'p99 ms',
      'longest ms',
      'claimed: cadences late',
      'at most',
      'stale, skipped',
      'rows',
      'due',
      'B/row',
      'memory, MB',
    ],
    ...slices.map((one) => [
      short(one.minutes),
      short(one.uploaded),
      short(one.claimsPerSecond),
      short(one.p50),
      short(one.p99),
      short(one.longest),
      short(one.late),
      short(one.latest),
      short(one.stale),
      short(one.rows),
      short(one.due),
      short(Number(one.bytes) / Number(one.rows)),
      short(one.anonMb),
    ]),
  ]);
  console.log('\nVerification while the load goes on:\n');
  printTable([
    ['', 'claims', 'p50 ms', 'p99 ms', 'longest turn of the feeder, ms', 'of the others, ms'],
    ...[verification.during, verification.between].map((one) => [
      one.when,
      String(one.claims),
      short(one.p50),
      short(one.p99),
      short(one.feederTurn),
      short(one.otherTurn),
    ]),
  ]);
  const repaired = walks.reduce((sum, walk) => sum + walk.repaired, 0);
  const notExact = watch.seen.filter(({ exact }) => !exact).length;
  const wrong = [atRest, atEnd].reduce(
    (sum, one) => sum + one.different + one.lost + one.headWrong + one.countsWrong,
    0,
  );
  const pages = (/** @type {typeof before} */ { stats }) =>
    `${short(stats.mb)} MB, ${stats.leafPages.toLocaleString('en')} leaf pages, ${short(stats.bytesOfLeafARow)} B of them a row`;
  console.log(`
- ${walks.length} walks, ${walks.map(({ ms }) => short(ms / 1000)).join(', ')} s each; ${repaired} missed writes put right, ${walks.reduce((sum, { late }) => sum + late, 0)} of events that came later.
- The state, asked every ${LOOK_MS} ms: ${watch.seen.length} times whole and adding up, ${notExact} of them not exact; ${watch.unanswered()} times not answered, or not live.
- The file, fresh: ${pages(before)}; churned: ${pages(after)}.
- Written in the run: ${Object.entries(tally)
    .map(([name, n]) => `${name} ${n.toLocaleString('en')}`)
    .join(', ')}.`);
  for (const [when, one] of /** @type {const} */ ([
    ['After the run', atRest],
    ['At the end', atEnd],
  ])) {
    console.log(
      `- ${when}: ${one.rows.toLocaleString('en')} rows, ${one.different} kept otherwise than in the table; the first ${one.headRows.toLocaleString('en')} of ${one.headDue.toLocaleString('en')} due then, ${one.headWrong} not where the ` +
        `table has them; ${one.countsWrong} counts not those of the table; of ${one.acknowledged.toLocaleString('en')} acknowledged writes ${one.lost} lost (${one.unknown} rows of which an answer is missing).`,
    );
    for (const example of one.examples) console.log(`  - ${example}`);
  }
  console.log(
    `- Load average of the machine: ${loadAverageBefore[0].toFixed(1)} before, ${os.loadavg()[0].toFixed(1)} after.\n`,
  );
  if (out) {
    writeResults(out, seconds(), {
      corpus: { rows: count, classes: CLASSES, seed, backlogMs },
      load: { ...{ churnMs, uploads, edits, renderers, workers, loadSeconds }, leases },
      loadAverageBefore,
      figures: restarted,
      restarts: [...fresh, ...churned].map(({ host: _, ...one }, i) => ({
        when: i < fresh.length ? 'fresh' : 'churned',
        ...one,
      })),
      slices,
      verification: { walks, ...verification },
      tally,
      file: { fresh: before.stats, churned: after.stats },
      states: { asked: watch.seen.length, notExact, unanswered: watch.unanswered() },
      atRest,
      atEnd,
    });
  }
  if (wrong + repaired + tally.doubles > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
