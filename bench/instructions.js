/**
 * How many CPU instructions one operation of the queue takes, counted by callgrind, against the committed counts in
 * `results/instructions.json`. Counts do not depend on what else the machine does, so that CI can hold to them.
 *
 *     node bench/instructions.js             the table; exit code 1 where an operation takes over 15 % more
 *     node bench/instructions.js --update    writes the counts of now, to be committed
 */

const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { printTable, shown, startProgress, writeResults } = require('./support/report.js');

const ROOT = path.join(__dirname, '..');
const FILE = path.join(__dirname, 'results', 'instructions.json');
const ROWS = 20_000;
/** Hash seeds are random, and move a count by up to 2 %; another version of rustc may move it by several. */
const TOLERANCE = 0.15;

/** How often each is done; the count of the same run with none is taken off it, so that only the operation is left. */
const OPERATIONS = [
  { name: 'load', what: 'a row of a load of 20,000', times: 2, each: ROWS },
  { name: 'apply', what: 'a reschedule, in batches of 64', times: 50_000, each: 1 },
  { name: 'claim', what: 'claim(20) with its 20 results', times: 500, each: 1 },
  { name: 'state', what: 'the state as JSON', times: 4_000, each: 1 },
];

/** Of the whole run. @param {string} program @param {string} operation @param {number} times */
function count(program, operation, times) {
  const args = ['--tool=callgrind', '--callgrind-out-file=/dev/null', program];
  const run = spawnSync('valgrind', [...args, operation, String(ROWS), String(times)], {
    encoding: 'utf8',
  });
  const collected = /Collected : (\d+)/.exec(run.stderr);
  if (run.status !== 0 || !collected) {
    throw new Error(`callgrind did not count ${operation}:\n${run.stderr}${run.error ?? ''}`);
  }
  return Number(collected[1]);
}

function build() {
  const args = ['build', '--release', '--locked', '--no-default-features'];
  execFileSync('cargo', [...args, '--example', 'operations'], { cwd: ROOT, stdio: 'inherit' });
  const metadata = execFileSync('cargo', ['metadata', '--format-version=1', '--no-deps'], {
    cwd: ROOT,
  });
  return path.join(JSON.parse(String(metadata)).target_directory, 'release/examples/operations');
}

function main() {
  const { values } = parseArgs({
    options: {
      update: { type: 'boolean', default: false },
      required: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(`node bench/instructions.js [options]
  --update      writes the counts of now to ${shown(FILE)}
  --required    a missing valgrind is an error (in CI)`);
    return;
  }
  if (spawnSync('valgrind', ['--version']).status !== 0) {
    console.log(
      'Nothing counted: valgrind is missing (Debian: apt-get install valgrind; it is for Linux on x86-64 and ARM).',
    );
    if (values.required) process.exitCode = 1;
    return;
  }
  console.log(
    `Counts instructions of ${OPERATIONS.map(({ name }) => name).join(', ')} under callgrind, ${ROWS.toLocaleString('en')} rows, ` +
      'half a minute, and up to two more where the example must be built.',
  );
  const { stage, seconds } = startProgress();
  stage('build');
  const program = build();
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { name, times, each } of OPERATIONS) {
    stage(name);
    const whole = count(program, name, times) - count(program, name, 0);
    counts[name] = Math.round(whole / (times * each));
  }
  stage('done');
  report(counts, values.update, seconds());
}

/** @param {Record<string, number>} counts @param {boolean} update @param {number} seconds */
function report(counts, update, seconds) {
  const rustc = execFileSync('rustc', ['--version']).toString().trim();
  const stored = fs.existsSync(FILE) ? JSON.parse(fs.readFileSync(FILE, 'utf8')) : null;
  /** @type {string[]} */
  const risen = [];
  const table = OPERATIONS.map(({ name, what }) => {
    const now = Number(counts[name]);
    const committed = stored?.counts[name];
    const change = committed ? now / committed - 1 : Number.NaN;
    if (change > TOLERANCE) risen.push(name);
    const percent = `${change < 0 ? '' : '+'}${(change * 100).toFixed(1)} %`;
    const shownChange = committed ? percent : 'new';
    return [
      name,
      what,
      committed?.toLocaleString('en') ?? '',
      now.toLocaleString('en'),
      shownChange,
    ];
  });
  console.log('');
  printTable([['operation', 'one is', 'committed', 'now', 'change'], ...table]);
  console.log('');
  if (stored && stored.versions.rustc !== rustc) {
    console.log(`The committed counts are of ${stored.versions.rustc}, these of ${rustc}.\n`);
  }
  if (update) {
    const corpus = { rows: ROWS, of: 'examples/operations.rs, seed 1' };
    writeResults(FILE, seconds, { corpus, tolerance: TOLERANCE, counts });
  } else if (!stored) {
    console.log(
      `No counts are committed: node bench/instructions.js --update writes ${shown(FILE)}.`,
    );
    process.exitCode = 1;
  } else if (risen.length) {
    console.log(
      `More than ${TOLERANCE * 100} % more instructions than committed: ${risen.join(', ')}. If that is meant, run ` +
        `node bench/instructions.js --update and commit ${shown(FILE)} with the reason; if not, profile it (bench/README.md).`,
    );
    process.exitCode = 1;
  }
}

main();
