'use strict';

/** The standalone host as a process of its own, over a folder that goes with the test. */

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after } = require('node:test');
const { until } = require('./until.js');

const MAIN = path.join(__dirname, '../../lib/standalone/main.js');

/** @type {Set<import('node:child_process').ChildProcess>} */
const children = new Set();
/** @type {string | null} */
let folder = null;
let number = 0;

/** What all folders of this test file lie in. */
function newFolder() {
  folder ??= fs.mkdtempSync(path.join(os.tmpdir(), 'queue-host-'));
  return folder;
}

after(() => {
  for (const child of children) child.kill('SIGKILL');
  if (folder) fs.rmSync(folder, { recursive: true, force: true });
});

function newData() {
  return path.join(newFolder(), String(number++));
}

/**
 * @param {string[]} args
 * @param {string} [faults]  the folder of `support/worker-faults.js`
 */
function run(args, faults) {
  const preload = faults ? ['-r', path.join(__dirname, 'worker-faults.js')] : [];
  const child = spawn(process.execPath, [...preload, MAIN, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: faults ? { ...process.env, FAULTS: faults } : process.env,
  });
  children.add(child);
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
  });
  /** @type {Promise<number | string | null>} */
  const ended = new Promise((resolve) => {
    child.once('exit', (code, signal) => {
      children.delete(child);
      resolve(code ?? signal);
    });
  });
  return { child, ended, output: () => output };
}

/**
 * @param {string[]} args
 * @param {{ data?: string, faults?: string }} [options]
 */
async function startHost(args = [], { data = newData(), faults } = {}) {
  const host = run(['--port', '0', '--data', data, ...args], faults);
  const url = await until('the URL', () => {
    if (host.child.exitCode !== null) throw new Error(host.output());
    return /listens on (http:\S+),/.exec(host.output())?.[1];
  });
  if (!args.includes('--token')) {
    await until('the queue to be live', async () => {
      return (await fetch(`${url}/prerender_admin/queue-state`)).status === 200;
    });
  }
  return {
    ...host,
    url,
    data,
    async stop() {
      host.child.kill('SIGTERM');
      return host.ended;
    },
  };
}

/**
 * @param {string} url
 * @param {string} method
 * @param {unknown} [body]  a string or bytes go as they are
 * @param {Record<string, string>} [headers]
 */
async function ask(url, method, body, headers = { 'content-type': 'application/json' }) {
  const sent = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  const response = await fetch(url, {
    method,
    headers,
    body: /** @type {any} */ (sent ? body : JSON.stringify(body)),
  });
  const text = await response.text();
  /** @type {any} */
  let answer = text;
  if (response.headers.get('content-type') === 'application/json') answer = JSON.parse(text);
  return { status: response.status, headers: response.headers, answer };
}

/** @param {string} key */
function at(key) {
  return `/render_schedule/${encodeURIComponent(key)}`;
}

module.exports = { ask, at, newData, newFolder, run, startHost };
