'use strict';
// The OpenMetrics parser of the Prometheus project (PyPI: prometheus-client), put under node_modules/.cache when it is missing.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const PACKAGE = 'prometheus-client==0.26.0';
const CACHE = path.join(__dirname, '..', '..', 'node_modules', '.cache');
const TARGET = path.join(CACHE, PACKAGE.replace('==', '-'));

/** @param {string[]} args @param {import('node:child_process').SpawnSyncOptions} [options] */
function python(args, options) {
  return spawnSync('python3', args, { encoding: 'utf8', ...options });
}

/** Fetches the parser where it is missing; the answer is why there is none, for a test to skip by. @returns {string | undefined} */
function install() {
  const why = missing();
  if (why && process.env.METRICS_PARSER === 'required') throw new Error(why);
  return why;
}

/** @returns {string | undefined} */
function missing() {
  if (fs.existsSync(TARGET)) return undefined;
  if (python(['-m', 'pip', '--version']).status !== 0) {
    return 'python3 with pip is missing: install it (Debian: apt-get install python3-pip) to check the metrics.';
  }
  fs.mkdirSync(CACHE, { recursive: true });
  const making = fs.mkdtempSync(`${TARGET}.`);
  const once = ['--quiet', '--no-deps', '--disable-pip-version-check', '--retries', '1'];
  const done = python(['-m', 'pip', 'install', ...once, '--target', making, PACKAGE]);
  if (done.status !== 0) {
    fs.rmSync(making, { recursive: true, force: true });
    const last = String(done.stderr).trim().split('\n').at(-1);
    return `pip cannot fetch ${PACKAGE}, which checks the metrics (${last}): is PyPI reachable?`;
  }
  fs.renameSync(making, TARGET);
  return undefined;
}

/**
 * @typedef {{ name: string, type: string, unit: string, help: string,
 *   samples: { name: string, labels: Record<string, string>, value: string | null }[] }} Family
 */

/**
 * What is in the text; throws with the parser's words where it is not well-formed. NaN is null.
 *
 * @param {string} text
 * @returns {Family[]}
 */
function parse(text) {
  const run = python([path.join(__dirname, 'openmetrics.py')], {
    input: text,
    env: { ...process.env, PYTHONPATH: TARGET, PYTHONDONTWRITEBYTECODE: '1' },
  });
  if (run.status !== 0)
    throw new Error(`not OpenMetrics: ${String(run.stderr).trim().split('\n').at(-1)}`);
  return JSON.parse(String(run.stdout));
}

/**
 * The value of each sample, by its name and labels as they are written: `name{label="text"}`.
 *
 * @param {Family[]} families
 * @returns {Record<string, number>}
 */
function valuesOf(families) {
  /** @type {Record<string, number>} */
  const values = {};
  for (const { samples } of families) {
    for (const { name, labels, value } of samples) {
      const inside = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
      const id = inside.length ? `${name}{${inside.join(',')}}` : name;
      if (Object.hasOwn(values, id)) throw new Error(`${id} is there twice`);
      values[id] = value === null ? Number.NaN : Number(value.replace('inf', 'Infinity'));
    }
  }
  return values;
}

module.exports = { install, parse, valuesOf };
