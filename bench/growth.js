/**
 * How the figures of `run.js` grow with the rows and with the classes: it is run once for each size, in a process of its own.
 * `plot.js` draws what this writes.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');

const STAGES = 'memory,load,apply,claim,read,snapshot';
const ROUNDS = 3;
const FEW_CLASSES = 40;
/** With more, the plain-JS keeper, which looks at each of them for a claim, is left out. */
const MOST_CLASSES_IN_JS = 10_000;
/** With more, its heap would be some gigabytes, and a round of it many minutes. */
const MOST_ROWS_IN_JS = 1_000_000;
const LARGE = { rows: 10_000_000, classes: FEW_CLASSES };

/** @typedef {{ what: string, unit: string, ours: number, js?: number }} Figure */
/** `classes` are those that were made, `asked` those that were wanted. @typedef {{ rows: number, asked: number, classes: number, at: string, commit: string, loadAverage: number[], figures: Figure[] }} Point */

/** @param {boolean} quick */
function plan(quick) {
  const byRows = quick ? [1_000, 3_000] : [10_000, 100_000, 1_000_000];
  const byClasses = quick ? [10, 100] : [10, 100, 1_000, 10_000, 100_000];
  const rows = quick ? 3_000 : 250_000;
  return {
    rows: byRows.map((count) => ({ rows: count, classes: FEW_CLASSES })),
    classes: byClasses.map((classes) => ({ rows, classes })),
  };
}

/** @param {{ rows: number, classes: number }} size @param {boolean} quick @param {string} file @returns {Point} */
function measure({ rows, classes }, quick, file) {
  const args = ['--only', STAGES, '--rows', rows, '--classes', classes, '--out', file];
  if (quick) args.push('--quick');
  else args.push('--rounds', ROUNDS);
  if (classes > MOST_CLASSES_IN_JS || rows > MOST_ROWS_IN_JS) args.push('--alone');
  // Where it is, is worth telling of a run of many minutes.
  const progress = rows > MOST_ROWS_IN_JS ? 'inherit' : 'pipe';
  const options = { stdio: ['ignore', 'pipe', progress] };
  execFileSync(
    process.execPath,
    [path.join(__dirname, 'run.js'), ...args.map(String)],
    /** @type {any} */ (options),
  );
  const { at, corpus, machine, versions, figures } = JSON.parse(fs.readFileSync(file, 'utf8'));
  return {
    rows,
    asked: classes,
    classes: corpus.classes,
    at,
    commit: versions.commit,
    loadAverage: machine.loadAverage,
    figures: figures.map((/** @type {Figure} */ { what, unit, ours, js }) => ({
      what,
      unit,
      ours,
      js,
    })),
  };
}

/** @param {string} title @param {Point[]} points @param {(point: Point) => string} head */
function print(title, points, head) {
  console.log(`\n${title}: this keeper / plain JS\n`);
  const names = points[0]?.figures ?? [];
  printTable([
    ['what', 'unit', ...points.map(head)],
    ...names.map(({ what, unit }) => [
      what,
      unit,
      ...points.map(({ figures }) => {
        const one = figures.find((figure) => figure.what === what);
        return one?.js === undefined ? short(one?.ours) : `${short(one.ours)} / ${short(one.js)}`;
      }),
    ]),
  ]);
}

/** A point of a run of its own, put among those of the file; one of the same size is replaced. @param {string} out @param {Point} point */
function addTo(out, point) {
  const grown = JSON.parse(fs.readFileSync(out, 'utf8'));
  const byRows = grown.byRows.filter((/** @type {Point} */ { rows }) => rows !== point.rows);
  byRows.push(point);
  byRows.sort((/** @type {Point} */ a, /** @type {Point} */ b) => a.rows - b.rows);
  fs.writeFileSync(out, `${JSON.stringify({ ...grown, byRows }, null, 2)}\n`);
  console.log(`Added to: ${shown(out)}`);
}

function main() {
  const { quick, large, out } = readOptions(
    'growth',
    {
      large: {
        what: '10,000,000 rows alone, without the plain-JS keeper: added to the file, which must be there',
        flag: true,
      },
    },
    { quickly: 'small sizes, half a minute' },
  );
  const sizes = large ? { rows: [LARGE], classes: [] } : plan(quick);
  console.log(
    large
      ? `Runs bench/run.js for ${LARGE.rows.toLocaleString('en')} rows, this keeper alone: the plain-JS keeper would take some gigabytes and many minutes. ` +
          `Takes 5 to 15 minutes and 2 GB${out ? `, and adds to ${shown(out)}` : ''}.`
      : `Runs bench/run.js for ${sizes.rows.length} numbers of rows and ${sizes.classes.length} of classes. Takes ` +
          `${quick ? 'half a minute' : '5 to 10 minutes'}${out ? `, and writes ${shown(out)}` : ''}.`,
  );
  if (large && out && !fs.existsSync(out)) {
    console.error(`${shown(out)} is not there to be added to: run without --large first`);
    process.exit(2);
  }
  const { stage, seconds } = startProgress();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-keeper-growth-'));
  process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'figures.json');
  /** @param {{ rows: number, classes: number }[]} list */
  const all = (list) =>
    list.map((size) => {
      stage(`${size.rows.toLocaleString('en')} rows, ${size.classes.toLocaleString('en')} classes`);
      return measure(size, quick, file);
    });
  const byRows = all(sizes.rows);
  const byClasses = all(sizes.classes);
  stage('done');
  print(
    `By rows, ${byRows[0]?.classes} to ${byRows.at(-1)?.classes} classes`,
    byRows,
    ({ rows }) => `${rows.toLocaleString('en')} rows`,
  );
  if (large) {
    if (out) addTo(out, byRows[0]);
    return;
  }
  print(
    `By classes, ${byClasses[0]?.rows.toLocaleString('en')} rows`,
    byClasses,
    ({ classes }) => `${classes.toLocaleString('en')} classes`,
  );
  if (out) writeResults(out, seconds(), { rounds: quick ? 2 : ROUNDS, byRows, byClasses });
}

main();
