/**
 * `node bench/host.js`: what a subscription costs a host, and what feeding a queue from it costs more, beside single writes and beside
 * batches; whether the queue is the table at the end of each round. How it is taken is in README.md beside this file.
 */

const fs = require('node:fs');
const os = require('node:os');
const { isolatedHarper } = require('../scripts/isolated.js');
const { costInWords, costOf, figuresOf, tableOf } = require('./host/figures.js');
const { startOnHarper } = require('./host/harper.js');
const { ARMS, faultsOf, measure } = require('./host/rounds.js');
const { startStandalone } = require('./host/standalone.js');
const { temporaryFolder } = require('./support/host.js');
const { readOptions } = require('./support/options.js');
const { printTable, shown, startProgress, writeResults } = require('./support/report.js');

/**
 * `ask`: the thread that listens, or the one that writes.
 * @typedef {object} Host
 * @property {(to: 'listener' | 'writer', command: string, args?: object) => Promise<any>} ask
 * @property {() => Promise<void>} stop
 */

const MEMORY = '/dev/shm';
const CLASSES = 40;
/** About how many rows are written, and read, a second. @type {Record<string, Record<string, number>>} */
const SPEED = {
  standalone: { single: 10_000, batch: 40_000, rows: 200_000 },
  harper: { single: 4_500, batch: 20_000, rows: 120_000 },
};
/** @typedef {import('./host/rounds.js').Plan} Plan */

/** Set where this runs beside no network but loopback. */
const ISOLATED = 'QUEUE_BENCH_HARPER';

/** A disk would be most of what a single write waits for. @param {number} rows */
function folderInMemory(rows) {
  try {
    const { bavail, bsize } = fs.statfsSync(MEMORY);
    if (bavail * bsize > 2 ** 28 + rows * 8_000) return MEMORY;
  } catch {
    // There is none.
  }
  return os.tmpdir();
}

/** @param {string[]} hosts @param {Plan[]} plans @param {number} rows */
function announced(hosts, plans, rows) {
  const { rounds, writes } = plans[0];
  return (
    `Writes ${writes.toLocaleString('en')} of ${rows.toLocaleString('en')} rows a round (${plans.map(({ words }) => words).join('; ')}) on ${hosts.join(' and ')}, ` +
    `while a thread listens: not at all, only counting, feeding the plain-JS keeper, feeding this one. ${rounds} ${rounds === 1 ? 'round' : 'rounds'} of all four.`
  );
}

/** @param {string[]} hosts @param {Plan[]} plans @param {number} rows */
function minutesFor(hosts, plans, rows) {
  let seconds = 0;
  for (const host of hosts) {
    const perSecond = SPEED[host];
    seconds += 30;
    for (const { name, rounds, writes } of plans) {
      seconds += rounds * ((ARMS.length * writes) / perSecond[name] + (4 * rows) / perSecond.rows);
    }
  }
  return Math.ceil(seconds / 60);
}

async function main() {
  const options = readOptions(
    'host',
    {
      hosts: {
        what: 'standalone; Harper where HARPER_DIR names one',
        of: ['standalone', 'harper'],
      },
      plans: { what: 'how it is written', of: ['single', 'batch'] },
      rows: { what: 'how many schedule rows', normally: 250_000, quick: 5_000 },
      writes: { what: 'rows written a round and arm', normally: 50_000, quick: 1_000 },
      rounds: { what: 'of which the median is shown', normally: 5, quick: 1 },
      batch: { what: 'rows a transaction, in the second plan', normally: 500, quick: 100 },
      seed: { what: 'of the corpus', normally: 1 },
    },
    { quickly: '5,000 rows, one round of 1,000 writes, some seconds' },
  );
  const { rows, writes, rounds, batch, seed, quick, out } = options;
  if (writes > rows || rows % 1_000_003 === 0) {
    console.error(
      'No row is to be written twice in a round: --writes must be at most --rows, and --rows no multiple of 1,000,003.',
    );
    process.exit(2);
  }
  const found = isolatedHarper();
  const inside = process.env[ISOLATED];
  if (!inside && 'run' in found && options.hosts.includes('harper')) {
    process.exitCode = found.run(process.argv.slice(1), { [ISOLATED]: found.harper });
    return;
  }
  const hosts = options.hosts.filter((name) => name === 'standalone' || inside);
  const left =
    options.hosts.length > hosts.length && 'why' in found ? ` Not on Harper: ${found.why}` : '';
  if (hosts.length === 0) {
    console.error(`Not on Harper: ${'why' in found ? found.why : ''}`);
    process.exit(2);
  }
  const within = folderInMemory(rows);
  /** @type {Plan[]} */
  const plans = [
    { name: 'single', words: 'single writes', batch: 1, stay: false, rounds, writes },
    {
      name: 'batch',
      words: `${batch} rows a write, one subscription throughout`,
      batch,
      stay: true,
      rounds,
      writes,
    },
  ].filter(({ name }) => options.plans.includes(name));
  console.log(
    `${announced(hosts, plans, rows)} Seed ${seed}, the table in ${within}. Takes ${quick ? 'some seconds' : `about ${minutesFor(hosts, plans, rows)} minutes`}` +
      `${out ? `, and writes ${shown(out)}` : ''}.${left}`,
  );

  const loadAverageBefore = os.loadavg();
  const { stage, seconds } = startProgress();
  const corpus = { rows, classes: CLASSES, seed };
  /** @type {Record<string, Record<string, object>>} */
  const results = {};
  /** @type {string[]} */
  const faults = [];
  for (const name of hosts) {
    const start = async () => {
      stage(`${name}: starting, and writing ${rows.toLocaleString('en')} rows`);
      const folder = temporaryFolder(`host-${name}`, within);
      const started =
        inside && name === 'harper'
          ? await startOnHarper(inside, folder, corpus)
          : await startStandalone(folder, corpus);
      await started.ask('writer', 'load');
      return started;
    };
    const host = await start();
    const bare = name === 'harper' ? await start() : host;
    const numbers = { next: 1 };
    results[name] = {};
    for (const plan of plans) {
      const measured = await measure({ host, bare }, plan, numbers, (text) =>
        stage(`${name}, ${text}`),
      );
      const figures = figuresOf(measured);
      const costs = /** @type {const} */ (['js', 'native']).map((arm) => costOf(measured, arm));
      results[name][plan.name] = { plan, figures, costs, rounds: measured };
      faults.push(...faultsOf(measured).map((fault) => `${name}, ${plan.words}, ${fault}`));
      console.log(`\n${name}, ${plan.words}: medians of ${rounds} (least to most)\n`);
      printTable(tableOf(figures));
      console.log();
      for (const cost of costs) console.log(`- ${costInWords(cost)}`);
    }
    await host.stop();
    if (bare !== host) await bare.stop();
  }
  const load = (/** @type {number[]} */ average) => average[0].toFixed(1);
  console.log(
    `\n- Load average of the machine: ${load(loadAverageBefore)} before, ${load(os.loadavg())} after.`,
  );
  for (const fault of faults) console.log(`- FAULT: ${fault}`);
  if (out) {
    writeResults(out, seconds(), {
      corpus,
      table: within,
      arms: ARMS,
      loadAverageBefore,
      faults,
      hosts: results,
    });
  }
  if (faults.length > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
