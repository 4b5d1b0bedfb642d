'use strict';

/** The command line and the configuration file. What is wrong with them is one sentence. */

const fs = require('node:fs');
const net = require('node:net');
const { parseArgs } = require('node:util');
const { isName, parseNodes } = require('./nodes.js');

const USAGE = `Usage: npm start -- [options]

A render queue on its own: claims and results over HTTP, rows in an embedded database.

  --host HOST      where to listen (127.0.0.1); one other than loopback needs --token
  --port PORT      the port (9926); 0 takes a free one
  --workers N      worker threads that answer requests (4)
  --data DIR       where the rows are kept (./data)
  --config FILE    JSON: routes, priority, leases, ... (DIR/config.json)
  --node NAME      this node's name, where there are several
  --nodes LIST     all nodes of the ring, this one included, and where each
                   answers: NAME=URL,NAME=URL,...; each keeps its own share
  --token T        ask every request for "authorization: Bearer T"; the
                   environment's QUEUE_TOKEN does the same unseen by ps
  --sitemap FILE   import a sitemap or a sitemap index, gzip or not; an index
                   names files in its own folder
  --sample N       add N rows shaped like a retail site (20000 in a DIR that was
                   never used, without --node or --sitemap)
  --fleet N        run N simulated renderers against the HTTP interface
  --help           this text
`;

/** What a configuration file may say: the keeper's options, and how often to verify. */
const KEEPER_OPTIONS = new Set([
  'node',
  'nodes',
  'routes',
  'excludePathPatterns',
  'defaultInterval',
  'delimiter',
  'deviceTypes',
  'priority',
  'leases',
  'flowMinutes',
  'maxListed',
]);
const HOST_OPTIONS = new Set(['verifyEveryMs']);

/** Said to whoever started the program, without a stack. */
class UsageError extends Error {}

/**
 * @param {string} name
 * @param {string | undefined} text
 * @param {{ from: number, to: number, otherwise: number }} range
 */
function wholeNumber(name, text, { from, to, otherwise }) {
  if (text === undefined) return otherwise;
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (number >= from && number <= to) return number;
  throw new UsageError(`--${name} must be a whole number from ${from} to ${to}, not "${text}".`);
}

/** @param {string} host */
function isLoopback(host) {
  if (host === 'localhost' || host === '::1') return true;
  return net.isIPv4(host) && host.startsWith('127.');
}

/** @param {string} text @param {string} node */
function readNodes(text, node) {
  try {
    return parseNodes(text, node);
  } catch (error) {
    throw new UsageError(`--nodes: ${/** @type {Error} */ (error).message}.`);
  }
}

/** @param {string[]} args */
function readOptions(args) {
  let values;
  try {
    ({ values } = parseArgs({
      args,
      options: {
        host: { type: 'string' },
        port: { type: 'string' },
        workers: { type: 'string' },
        data: { type: 'string' },
        config: { type: 'string' },
        node: { type: 'string' },
        nodes: { type: 'string' },
        token: { type: 'string' },
        sitemap: { type: 'string' },
        sample: { type: 'string' },
        fleet: { type: 'string' },
        help: { type: 'boolean' },
      },
    }));
  } catch (error) {
    // The first sentence says what; those after it talk about another mistake.
    const [sentence] = /** @type {Error} */ (error).message.split(/\. |\n/, 1);
    throw new UsageError(`${sentence.replace(/\.$/, '')}: --help lists the options.`);
  }
  values.token ??= process.env.QUEUE_TOKEN;
  const host = values.host ?? '127.0.0.1';
  if (host === '') throw new UsageError('--host must name an address to listen on.');
  if (values.token !== undefined && values.token.trim() === '') {
    throw new UsageError('--token must not be empty.');
  }
  if (!isLoopback(host) && values.token === undefined) {
    throw new UsageError(
      `--host ${host} can be reached from other machines: give a --token that requests must carry.`,
    );
  }
  if (values.node !== undefined && !isName(values.node)) {
    throw new UsageError('--node must be a name, not empty.');
  }
  if (values.nodes !== undefined && values.node === undefined) {
    throw new UsageError('--nodes says who is in the ring: say with --node which of them this is.');
  }
  return {
    help: values.help === true,
    host,
    port: wholeNumber('port', values.port, { from: 0, to: 65_535, otherwise: 9_926 }),
    workers: wholeNumber('workers', values.workers, { from: 1, to: 64, otherwise: 4 }),
    data: values.data ?? './data',
    config: values.config,
    node: values.node,
    nodes: values.nodes === undefined ? undefined : readNodes(values.nodes, String(values.node)),
    token: values.token,
    sitemap: values.sitemap,
    sample:
      values.sample === undefined
        ? undefined
        : wholeNumber('sample', values.sample, { from: 0, to: 100_000_000, otherwise: 0 }),
    fleet: wholeNumber('fleet', values.fleet, { from: 0, to: 10_000, otherwise: 0 }),
  };
}

/**
 * @param {string} file
 * @returns {{ keeper: Record<string, any>, verifyEveryMs?: number }}
 */
function readConfig(file) {
  let text;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`${file} cannot be read: ${/** @type {Error} */ (error).message}.`);
  }
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${file} is not JSON: ${/** @type {Error} */ (error).message}.`);
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new UsageError(`${file} must hold a JSON object.`);
  }
  /** @type {Record<string, any>} */
  const keeper = {};
  for (const [name, value] of Object.entries(config)) {
    if (KEEPER_OPTIONS.has(name)) keeper[name] = value;
    else if (!HOST_OPTIONS.has(name)) {
      const known = [...KEEPER_OPTIONS, ...HOST_OPTIONS].join(', ');
      throw new UsageError(`${file}: there is no option "${name}"; there are ${known}.`);
    }
  }
  const { verifyEveryMs } = config;
  if (verifyEveryMs !== undefined && !(Number.isFinite(verifyEveryMs) && verifyEveryMs >= 1_000)) {
    throw new UsageError(`${file}: verifyEveryMs must be a number of ms, 1000 or more.`);
  }
  return { keeper, verifyEveryMs };
}

module.exports = { readOptions, readConfig, UsageError, USAGE };
