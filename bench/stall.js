/**
 * `node bench/stall.js`: the worker that feeds stands still for 30 s, under load, and the one that feeds after it
 * ends by an error. How it is taken is in README.md beside this file.
 */

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { assertAddsUp } = require('../__test__/support/compare.js');
const { corpus, HOUR, MINUTE } = require('./corpus.js');
const { openReader, startHost, temporaryFolder, writeCorpus } = require('./support/host.js');
const { findLost, getOnce, sleep, startLoad } = require('./support/load.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { quantile } = require('./support/statistics.js');

/**
 * One look at the state, `at` by the wall clock.
 * @typedef {{ at: number, epoch: number, epochAt: number, exact: boolean, resyncing: boolean, due: number,
 *   repaired: number, live: boolean }} Seen
 * @typedef {{ what: string, from: number, to: number }} Phase  by the wall clock
 */

/** As after an outage: what was due within the last hours is overdue, and the load does not run dry. */
const BACKLOG_MS = 12 * HOUR;
const POLL_MS = 100;
/** The fault begins so long before a full minute that rows come due while nobody feeds. */
const BEFORE_MINUTE_MS = 2500;

/** Looks at the state again and again. @param {string} url */
function startWatch(url) {
  /** @type {Seen[]} */
  const seen = [];
  /** What came due by the clock alone, by minute. @type {Map<number, number>} */
  const cameDue = new Map();
  /** @type {number[]} */
  const unanswered = [];
  let ending = false;
  const running = (async () => {
    for (; !ending; await sleep(POLL_MS)) {
      const at = Date.now();
      let asked;
      try {
        asked = await getOnce(`${url}/prerender_admin/queue-state`);
      } catch {
        unanswered.push(at);
        continue;
      }
      const { status, answer } = asked;
      const { epoch, epochAt, exact, resyncing, repairedTotal } = answer.trust.keeper;
      if (status === 200) {
        assertAddsUp(answer);
        for (const one of answer.flow) cameDue.set(one.minute, one.cameDue);
      }
      seen.push({
        at,
        epoch,
        epochAt,
        exact,
        resyncing,
        due: answer.now.due,
        repaired: repairedTotal,
        live: status === 200,
      });
    }
  })();
  return {
    seen,
    cameDue,
    unanswered,
    /** @param {string} what @param {(last: Seen) => boolean} condition @param {number} [withinMs] */
    async until(what, condition, withinMs = 60_000) {
      const end = Date.now() + withinMs;
      for (; Date.now() < end; await sleep(POLL_MS / 2)) {
        const last = seen.at(-1);
        if (last && condition(last)) return last;
      }
      throw new Error(`waited in vain for ${what}`);
    },
    async stop() {
      ending = true;
      await running;
    },
  };
}

/** @param {import('./support/host.js').Host} host @param {number} [from] */
async function nextFeeder(host, from = 0) {
  const { match } = await host.said(/worker (\d+) feeds\n/, from);
  return Number(match[1]);
}

async function main() {
  const {
    rows: count,
    renderers,
    workers,
    seed,
    quick,
    out,
    ...seconds
  } = readOptions(
    'stall',
    {
      rows: { what: 'how many schedule rows', normally: 250_000, quick: 20_000 },
      stall: {
        what: 'seconds that the feeding worker stands still',
        normally: 30,
        quick: 6,
        fraction: true,
        least: 0.001,
      },
      before: {
        what: 'seconds under load before it, and after each fault, at least',
        normally: 10,
        quick: 1,
        fraction: true,
      },
      renderers: { what: 'simulated renderers', normally: 20 },
      workers: { what: 'worker threads of the host', normally: 4 },
      seed: { what: 'of the corpus', normally: 1 },
    },
    { quickly: '20,000 rows, 6 s, under 20 seconds' },
  );
  const stallMs = 1000 * seconds.stall;
  const beforeMs = 1000 * seconds.before;
  console.log(
    `Blocks the feeding worker of the standalone host for ${stallMs / 1000} s under load, then ends the next feeder by an error: ` +
      `${count.toLocaleString('en')} rows, ${renderers} renderers, ${workers} workers, seed ${seed}. ` +
      `Takes ${quick ? 'under 20 seconds' : '2 to 3 minutes'}${out ? `, and writes ${shown(out)}` : ''}.`,
  );

  const loadAverageBefore = os.loadavg();
  const { stage, seconds: elapsed } = startProgress();
  const folder = temporaryFolder('stall');
  const [data, faults] = [path.join(folder, 'data'), path.join(folder, 'faults')];
  fs.mkdirSync(faults);
  const rows = corpus({ rows: count, classes: 40, seed });
  stage(`writing ${count.toLocaleString('en')} rows`);
  await writeCorpus(data, rows, Date.now() - BACKLOG_MS);
  stage('starting');
  const host = await startHost({ data, workers, faults });
  const { url } = host;
  const watch = startWatch(url);
  await watch.until('the queue to be live', ({ live, exact }) => live && exact);
  const feeder = await nextFeeder(host);

  const load = startLoad({ url, rows, renderers, writers: 2 });
  const began = Date.now() + 500; // once all renderers are connected
  const untilMinute = MINUTE - ((began + beforeMs + BEFORE_MINUTE_MS) % MINUTE);
  const waitMs = quick ? beforeMs : beforeMs + untilMinute;
  stage(`before: ${(waitMs / 1000).toFixed(1)} s under load; worker ${feeder} feeds`);
  await sleep(waitMs + 500);

  let printed = host.output().length;
  const fault = path.join(faults, `${feeder}.block`);
  fs.writeFileSync(fault, String(stallMs));
  while (fs.existsSync(fault)) await sleep(5);
  const blocked = Date.now();
  stage(`worker ${feeder} stands still, for ${stallMs / 1000} s`);
  const first = watch.seen.at(-1)?.epoch ?? 0;
  const second = await watch.until('another to feed', ({ epoch }) => epoch > first);
  const next = await nextFeeder(host, printed);
  stage(`worker ${next} feeds, ${second.epochAt - blocked} ms after the fault`);
  // It is ended by the host where it stands still for longer than that allows.
  /** @type {number | null} */
  let endedAt = null;
  const ended = host.said(new RegExp(`worker ${feeder} has stood still.*it is ended`), printed);
  ended.then(
    () => {
      endedAt = Date.now();
      stage(`worker ${feeder} was ended by the host, ${endedAt - blocked} ms after the fault`);
    },
    () => {},
  );
  await sleep(Math.max(0, blocked + stallMs - Date.now()));
  const over = Date.now();
  await sleep(beforeMs);

  const feeding = watch.seen.at(-1)?.epoch ?? 0;
  printed = host.output().length;
  const crash = path.join(faults, `${next}.throw`);
  fs.writeFileSync(crash, '');
  while (fs.existsSync(crash)) await sleep(1);
  const crashed = Date.now();
  stage(`worker ${next} ends by an error`);
  const third = await watch.until('another to feed', ({ epoch }) => epoch > feeding);
  stage(
    `worker ${await nextFeeder(host, printed)} feeds, ${third.epochAt - crashed} ms after the fault`,
  );
  await sleep(beforeMs);
  const end = Date.now();
  await load.stop();
  await watch.until('the last walk', ({ resyncing }) => !resyncing);
  const compared = await host.compare();
  const table = openReader(data);
  const written = findLost(load.history, table.get);
  await table.close();
  await watch.stop();
  const { answer: last } = await getOnce(`${url}/prerender_admin/queue-state`);
  await host.stop();
  stage('done');

  const stoodUntil = endedAt ?? over;
  /** @type {Phase[]} */
  const phases = [
    { what: 'before', from: began, to: blocked },
    { what: 'it stands still: nobody feeds', from: blocked, to: second.epochAt },
    { what: 'it stands still: another feeds', from: second.epochAt, to: stoodUntil },
    { what: 'its standing still is over', from: stoodUntil, to: crashed },
    { what: 'a feeder has thrown: nobody feeds', from: crashed, to: third.epochAt },
    { what: 'another feeds', from: third.epochAt, to: end },
  ];
  const wall = (/** @type {number} */ at) => performance.timeOrigin + at;
  const measured = phases.map((phase) => {
    const within = load.claims.filter(({ at }) => wall(at) >= phase.from && wall(at) < phase.to);
    const ms = phase.to - phase.from;
    const times = [phase.from, ...within.map(({ at }) => wall(at)), phase.to];
    const gaps = times.slice(1).map((at, i) => at - times[i]);
    const states = watch.seen.filter(({ at }) => at >= phase.from && at < phase.to);
    return {
      ...phase,
      seconds: ms / 1000,
      claimsPerSecond: (within.length / ms) * 1000,
      jobsPerSecond: (within.reduce((sum, { jobs }) => sum + jobs, 0) / ms) * 1000,
      p50: quantile(
        within.map(({ ms }) => ms),
        0.5,
      ),
      p99: quantile(
        within.map(({ ms }) => ms),
        0.99,
      ),
      longestGapMs: gaps.reduce((most, gap) => Math.max(most, gap), 0),
      stale: within.reduce((sum, { stale }) => sum + stale, 0),
      epoch: states.at(-1)?.epoch ?? null,
      statesLive: states.filter(({ live }) => live).length,
      states: states.length,
      exactAtEnd: states.at(-1)?.exact ?? null,
    };
  });
  console.log('');
  printTable([
    [
      'phase',
      's',
      'claims/s',
      'jobs/s',
      'p50 ms',
      'p99 ms',
      'longest without a claim, ms',
      'stale, skipped',
      'epoch',
      'exact',
    ],
    ...measured.map((one) => [
      one.what,
      one.seconds.toFixed(1),
      one.claimsPerSecond.toFixed(0),
      one.jobsPerSecond.toFixed(0),
      short(one.p50),
      short(one.p99),
      short(one.longestGapMs),
      String(one.stale),
      String(one.epoch ?? ''),
      one.exactAtEnd === null ? '' : one.exactAtEnd ? 'yes' : 'no',
    ]),
  ]);
  // The minute that began while nobody fed.
  const minute = Math.floor(second.epochAt / MINUTE);
  const clock = minute * MINUTE > blocked ? (watch.cameDue.get(minute) ?? 0) : null;
  const epochs = watch.seen.filter(({ epoch }, i, all) => epoch !== all[i - 1]?.epoch);
  const statesDead = watch.seen.filter(({ at, live }) => at >= began && !live).length;
  const exactAgain =
    watch.seen.find(({ epoch, exact }) => epoch === second.epoch && exact)?.at ?? Number.NaN;
  const verified =
    watch.seen.find(({ epoch, resyncing }) => epoch === second.epoch && !resyncing)?.at ??
    Number.NaN;
  const leastDue = watch.seen
    .filter(({ at, live }) => live && at >= began)
    .reduce((least, { due }) => Math.min(least, due), Number.POSITIVE_INFINITY);
  const facts = {
    takeOverMs: second.epochAt - blocked,
    takeOverAfterErrorMs: third.epochAt - crashed,
    endedByHostMs: endedAt === null ? null : endedAt - blocked,
    cameDueWhileNobodyFed: clock,
    verifiedMs: verified - second.epochAt,
    exactAgainMs: exactAgain - second.epochAt,
    repaired: last.trust.keeper.repairedTotal,
    loadRows: last.trust.keeper.loadRows,
    different: compared.different,
    lost: written.lost.length,
    acknowledged: written.acknowledged,
    leastDue,
    statesNotLive: statesDead,
    statesUnanswered: watch.unanswered.length,
    ...load.tally,
  };
  console.log(`
- Take-over: ${facts.takeOverMs} ms after the worker stood still, ${facts.takeOverAfterErrorMs} ms after one ended by an error.
- Who feeds since when: ${epochs.map(({ epoch, epochAt }) => `epoch ${epoch} at ${new Date(epochAt).toISOString().slice(11, 23)}`).join(', ')}.
- Came due by the clock while nobody fed: ${clock === null ? 'no minute began meanwhile' : `${clock} rows`}.
- The walk over the table after the take-over ended ${facts.verifiedMs} ms after it; \`exact\` ${Number.isNaN(exactAgain) ? 'did not come back until the next fault' : `came back after ${facts.exactAgainMs} ms`}.
- Loaded once: ${facts.loadRows} rows; ${facts.repaired} rows put right by walks, claims and head checks.
- At the end: ${compared.rows} rows compared, ${facts.different} kept otherwise than in the table; ${facts.lost} of ${facts.acknowledged} acknowledged writes lost; ${facts.doubles} keys leased twice at once.
- Due at every moment: ${leastDue} rows at least${leastDue === 0 ? ': the queue ran dry, the claims above say nothing' : ''}.
- The state: asked every ${POLL_MS} ms, ${statesDead} times not live, ${facts.statesUnanswered} times not answered within a second.
- Requests of the load not answered within a second, or cut: ${facts.noAnswer}; refused: ${facts.refused}; results too late: ${facts.late}.
- Load average of the machine: ${loadAverageBefore[0].toFixed(1)} before, ${os.loadavg()[0].toFixed(1)} after.
`);
  for (const example of compared.examples) console.log(`- differs: ${example}`);
  if (out) {
    writeResults(out, elapsed(), {
      corpus: { rows: count, classes: 40, seed, backlogMs: BACKLOG_MS },
      load: { renderers, writers: 2, workers, stallMs },
      loadAverageBefore,
      phases: measured,
      epochs,
      ...facts,
    });
  }
  if (facts.different + facts.lost + facts.doubles > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
