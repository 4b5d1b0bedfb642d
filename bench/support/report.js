/** What every harness shows and writes: where it is, its table, and its file of results. */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

/** Says on stderr where the harness is, and after how long. */
function startProgress() {
  const started = performance.now();
  const seconds = () => (performance.now() - started) / 1000;
  return {
    /** @param {string} text */
    stage: (text) => console.error(`[${seconds().toFixed(1).padStart(5)} s] ${text}`),
    seconds,
  };
}

/** @param {number | null | undefined} value */
function short(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return '';
  if (value >= 10_000) return Math.round(value).toLocaleString('en');
  if (value >= 100 || value === 0) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(value >= 1 ? 2 : 3);
}

/** @param {string[][]} rows  the first is the head */
function printTable(rows) {
  const [head = []] = rows;
  const widths = head.map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const line = (/** @type {string[]} */ cells) =>
    console.log(`| ${cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`);
  line(head);
  line(widths.map((width) => '-'.repeat(width)));
  for (const row of rows.slice(1)) line(row);
}

/** @param {Record<string, number>} values */
function mustBeWhole(values) {
  for (const [name, value] of Object.entries(values)) {
    if (!Number.isInteger(value) || value < 1)
      throw new TypeError(`--${name} must be a whole number of at least 1`);
  }
}

/** @param {string} file */
const shown = (file) => path.relative(process.cwd(), file);

/** @param {string} file @param {number} seconds @param {object} results */
function writeResults(file, seconds, results) {
  const written = {
    at: new Date().toISOString(),
    seconds: Math.round(seconds),
    machine: machine(),
    versions: versions(),
    ...results,
  };
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, `${JSON.stringify(written, null, 2)}\n`);
  console.log(`Written: ${shown(file)}`);
}

function machine() {
  return {
    cpu: os.cpus()[0]?.model ?? 'unknown',
    cpus: os.availableParallelism(),
    memoryGb: Math.round(os.totalmem() / 2 ** 30),
    platform: `${os.platform()} ${os.arch()} ${os.release()}`,
    loadAverage: os.loadavg(),
  };
}

function versions() {
  /** @param {string} command @param {string[]} args */
  const said = (command, args) => {
    try {
      const options = { cwd: __dirname, stdio: ['ignore', 'pipe', 'ignore'] };
      return execFileSync(command, args, /** @type {any} */ (options))
        .toString()
        .trim();
    } catch {
      return null;
    }
  };
  return {
    keeper: require('../../package.json').version,
    commit: said('git', ['describe', '--always', '--dirty']),
    node: process.version,
    v8: process.versions.v8,
    rustc: said('rustc', ['--version']),
  };
}

module.exports = { startProgress, short, printTable, mustBeWhole, shown, writeResults };
