/**
 * `node bench/restart.js`: the standalone host is killed under load (kill -9) and started again, with and
 * without a snapshot in turns. How it is taken is in README.md beside this file.
 */

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { corpus, HOUR } = require('./corpus.js');
const { openReader, startHost, temporaryFolder, writeCorpus } = require('./support/host.js');
const { findLost, sleep, startLoad } = require('./support/load.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { watchRestart } = require('./support/restarted.js');
const { median } = require('./support/statistics.js');

/** @typedef {'with a snapshot' | 'without'} Arm */
/**
 * ms from the start of the process on, but for the last four.
 * @typedef {object} Round
 * @property {number} listening
 * @property {number} firstClaim
 * @property {number} wholeOrder  every row is kept, verified or not: claims come in the order of the whole queue
 * @property {number} live  the state answers 200, with no unverified row
 * @property {number} exact  and `trust.exact`
 * @property {number} partialClaims  claims served before the whole order was there
 * @property {number} stale  rows that a claim found otherwise than in the table, and skipped, until all were verified
 * @property {number} longestClaim  the longest that a claim took until all were verified
 * @property {number} different  rows kept otherwise than in the table, at the end
 * @property {number} lost  acknowledged writes that are not there
 */

const ARMS = /** @type {Arm[]} */ (['with a snapshot', 'without']);
/** As after an outage: what was due within the last hours is overdue, and the load does not run dry. */
const BACKLOG_MS = 12 * HOUR;

async function main() {
  const {
    rows: count,
    rounds,
    load: loadSeconds,
    renderers,
    workers,
    seed,
    quick,
    out,
  } = readOptions(
    'restart',
    {
      rows: { what: 'how many schedule rows', normally: 250_000, quick: 10_000 },
      rounds: {
        what: 'restarts of each kind, in turns, of which the median is shown',
        normally: 5,
        quick: 1,
      },
      load: {
        what: 'seconds under load before each kill; the snapshot is as old as that',
        normally: 10,
        quick: 1,
      },
      renderers: { what: 'simulated renderers', normally: 20 },
      workers: { what: 'worker threads of the host', normally: 4 },
      seed: { what: 'of the corpus', normally: 1 },
    },
    { quickly: '10,000 rows, one round, under 20 seconds' },
  );
  const expected = 25 + rounds * 2 * (loadSeconds + count / 25_000);
  console.log(
    `Kills the standalone host under load (kill -9) and starts it again, ${rounds} times with a snapshot and ${rounds} times without, ` +
      `in turns: ${count.toLocaleString('en')} rows, ${renderers} renderers, ${workers} workers, seed ${seed}. ` +
      `Takes ${quick ? 'under 20 seconds' : `about ${Math.ceil(expected / 60)} minutes`}${out ? `, and writes ${shown(out)}` : ''}.`,
  );

  const loadAverageBefore = os.loadavg();
  const { stage, seconds } = startProgress();
  const folder = temporaryFolder('restart');
  const data = path.join(folder, 'data');
  const snapshot = path.join(data, 'queue.snapshot');
  const rows = corpus({ rows: count, classes: 40, seed });
  stage(`writing ${count.toLocaleString('en')} rows`);
  await writeCorpus(data, rows, Date.now() - BACKLOG_MS);

  stage('the first start, and its load');
  let host = await startHost({ data, workers });
  await watchRestart(host, count);
  const { port, url } = host;
  const table = openReader(data);
  /** @type {Record<Arm, Round[]>} */
  const measured = { 'with a snapshot': [], without: [] };
  let acknowledged = 0;
  for (let n = 0; n < rounds * 2; n++) {
    const arm = ARMS[n % 2];
    const load = startLoad({ url, rows, renderers, writers: 2 });
    await host.saveSnapshot(snapshot);
    await sleep(loadSeconds * 1000);
    await host.kill();
    load.forgetLeases();
    if (arm === 'without') fs.rmSync(snapshot);
    stage(`${arm}, round ${(n >> 1) + 1}: killed after ${load.claims.length} claims, starting`);
    const starting = performance.now();
    host = await startHost({ data, port, workers });
    const times = await watchRestart(host, count);
    await load.stop();
    const began = host.startedAt;
    const before =
      (/** @type {number} */ ms) =>
      (/** @type {{ at: number }} */ { at }) =>
        at - began < ms;
    const after = load.claims.filter(({ at }) => at > starting);
    const compared = await host.compare();
    table.fresh();
    const written = findLost(load.history, table.get);
    acknowledged += written.acknowledged;
    /** @type {Round} */
    const round = {
      listening: host.listeningMs,
      firstClaim: (after[0]?.at ?? Number.NaN) - began,
      ...times,
      partialClaims: after.filter(before(times.wholeOrder)).length,
      stale: after.filter(before(times.live)).reduce((sum, { stale }) => sum + stale, 0),
      longestClaim: after
        .filter(before(times.live))
        .reduce((most, { ms }) => Math.max(most, ms), 0),
      different: compared.different,
      lost: written.lost.length,
    };
    measured[arm].push(round);
    stage(
      `  listening ${short(round.listening)} ms, first claim ${short(round.firstClaim)} ms, whole order ${short(round.wholeOrder)} ms, ` +
        `live ${short(round.live)} ms; ${compared.rows} rows compared, ${round.different} differ; ${written.acknowledged} writes acknowledged, ${round.lost} lost`,
    );
    for (const example of compared.examples) stage(`  differs: ${example}`);
    for (const key of written.lost.slice(0, 3)) stage(`  lost: ${key}`);
  }
  await table.close();
  await host.stop();
  stage('done');

  const of = (/** @type {Arm} */ arm, /** @type {keyof Round} */ name) =>
    median(measured[arm].map((round) => round[name]));
  const sum = (/** @type {Arm} */ arm, /** @type {keyof Round} */ name) =>
    measured[arm].reduce((total, round) => total + round[name], 0);
  const figures = [
    ...Object.entries({
      listening: 'the port is open',
      firstClaim: 'the first claim is served',
      wholeOrder: 'every row is kept: the whole order is served',
      live: 'every row is verified against the table, the state is live',
      exact: 'and exact',
    }).map(([name, what]) => ({ what, unit: 'ms', of, name })),
    ...Object.entries({
      longestClaim: 'the longest claim until all were verified',
      partialClaims: 'claims served before the whole order was there',
      stale: 'rows skipped by claims as stale, until all were verified',
    }).map(([name, what]) => ({ what, unit: name === 'longestClaim' ? 'ms' : '', of, name })),
    ...Object.entries({
      different: 'rows kept otherwise than in the table, all rounds',
      lost: 'acknowledged writes lost, all rounds',
    }).map(([name, what]) => ({ what, unit: '', of: sum, name })),
  ].map(({ what, unit, of: value, name }) => ({
    what,
    unit,
    withSnapshot: value('with a snapshot', /** @type {keyof Round} */ (name)),
    without: value('without', /** @type {keyof Round} */ (name)),
  }));
  console.log(`\nFrom the start of the process, medians of ${rounds} rounds each:\n`);
  printTable([
    ['what', 'unit', ...ARMS],
    ...figures.map(({ what, unit, withSnapshot, without }) => [
      what,
      unit,
      short(withSnapshot),
      short(without),
    ]),
  ]);
  console.log(
    `\n- ${acknowledged.toLocaleString('en')} writes were acknowledged; each was looked for after the restart.`,
  );
  const load1 = (/** @type {number[]} */ average) => average[0].toFixed(1);
  console.log(
    `- Load average of the machine: ${load1(loadAverageBefore)} before, ${load1(os.loadavg())} after.\n`,
  );
  if (out) {
    writeResults(out, seconds(), {
      corpus: { rows: count, classes: 40, seed, backlogMs: BACKLOG_MS },
      load: { seconds: loadSeconds, renderers, writers: 2, workers },
      loadAverageBefore,
      acknowledged,
      figures,
      rounds: measured,
    });
  }
  if (figures.slice(-2).some(({ withSnapshot, without }) => withSnapshot + without > 0))
    process.exitCode = 1;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
