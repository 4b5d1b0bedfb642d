/** A real Harper with the bench's component in it, asked over HTTP. */

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const {
  componentFolder,
  startHarper,
  START_MS,
  WORKERS,
} = require('../../__test__/support/harper-process.js');
const { until } = require('../../__test__/support/until.js');

const ROOT = path.join(__dirname, '../../');
const COMPONENT = path.join(__dirname, 'harper-component');
const LOG = 3_000;

/** @param {number} port @param {string} url @param {object} body @returns {Promise<any>} */
function post(port, url, body) {
  const text = JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const request = http.request(
      // Without an agent each request is a connection, and any worker's.
      `http://127.0.0.1:${port}${url}`,
      {
        method: 'POST',
        agent: false,
        auth: 'admin:admin',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
      },
      (response) => {
        let answer = '';
        response.setEncoding('utf8').on('data', (chunk) => {
          answer += chunk;
        });
        response.on('error', reject);
        response.on('end', () => {
          try {
            const { value, error } = JSON.parse(answer);
            if (response.statusCode === 200 && error === undefined) resolve(value);
            else reject(new Error(error ?? answer));
          } catch {
            reject(new Error(`${response.statusCode} ${answer}`));
          }
        });
      },
    );
    request.on('error', reject);
    request.end(text);
  });
}

/** Its ports are this and the next. */
let nextPort = 9_950;

/**
 * @param {string} harper  its folder @param {string} folder  for all that it writes
 * @param {import('./standalone.js').CorpusOptions} corpus
 * @returns {Promise<import('../host.js').Host>}
 */
async function startOnHarper(harper, folder, corpus) {
  const component = componentFolder(folder, 'bench');
  fs.cpSync(COMPONENT, component, { recursive: true });
  fs.writeFileSync(path.join(component, 'bench.json'), JSON.stringify({ root: ROOT, corpus }));
  const port = nextPort;
  nextPort += 2;
  let log = '';
  const running = startHarper({
    harper,
    root: folder,
    port,
    operations: port + 1,
    print: (text) => {
      log += text;
    },
  });
  const killNow = () => running.kill();
  process.prependOnceListener('exit', killNow);
  const roles = new Set();
  await until(
    'Harper to answer',
    async () => roles.add(await post(port, '/bench/who', {})).size === WORKERS,
    { withinMs: START_MS, everyMs: 300 },
  ).catch((error) => {
    killNow();
    throw new Error(`${error.message}\n${log.slice(-LOG)}`);
  });
  return {
    ask: async (to, command, args = {}) => {
      try {
        return await post(port, '/bench/ask', { to, command, args });
      } catch (error) {
        throw new Error(`${/** @type {Error} */ (error).message}\n${log.slice(-LOG)}`);
      }
    },
    async stop() {
      process.off('exit', killNow);
      await running.stop();
    },
  };
}

module.exports = { startOnHarper };
