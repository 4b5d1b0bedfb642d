'use strict';

/**
 * A real Harper as a child process, over a folder of its own, with two workers. It listens on more ports than these, on every
 * interface: run it where there is only loopback (`scripts/isolated.js`).
 */

const { spawn } = require('node:child_process');
const path = require('node:path');

const PORT = 9926;
const OPERATIONS = 9925;
const WORKERS = 2;
/** So long it may take until it answers. */
const START_MS = 90_000;

/** Where a component of it is to be put. @param {string} root @param {string} name */
const componentFolder = (root, name) => path.join(root, 'hdb/components', name);

/**
 * @param {object} options
 * @param {string} options.harper  its folder, built
 * @param {string} options.root  a folder for all that it writes
 * @param {number} [options.port]  for HTTP
 * @param {number} [options.operations]  for the operations API
 * @param {(text: string) => void} options.print  takes what it prints
 */
function startHarper({ harper, root, port = PORT, operations = OPERATIONS, print }) {
  /** @type {Record<string, string>} */
  const settings = {
    ROOTPATH: path.join(root, 'hdb'),
    HDB_ADMIN_USERNAME: 'admin',
    HDB_ADMIN_PASSWORD: 'admin',
    TC_AGREEMENT: 'yes',
    DEFAULTS_MODE: 'prod',
    NODE_HOSTNAME: 'localhost',
    THREADS_COUNT: String(WORKERS),
    THREADS_DEBUG: 'false',
    HTTP_PORT: String(port),
    OPERATIONSAPI_NETWORK_PORT: String(operations),
    LOGGING_STDSTREAMS: 'true',
    LOGGING_LEVEL: 'info',
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const child = spawn(process.execPath, [path.join(harper, 'dist/bin/harperdb.js'), ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: root },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', print);
  return {
    /** At once, as when this process ends. */
    kill: () => child.kill('SIGKILL'),
    async stop() {
      if (child.exitCode !== null) return;
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 5_000);
      await gone;
      clearTimeout(timer);
    },
  };
}

module.exports = { componentFolder, startHarper, OPERATIONS, PORT, START_MS, WORKERS };
