'use strict';

/** The options of the component, as its `config.yaml` or the caller of `startQueueKeeper` has them. */

const path = require('node:path');
const { checkOptions } = require('../options.js');

/**
 * @typedef {object} HarperOptions
 * @property {string} database
 * @property {string} table
 * @property {string} settings  the table in which it is kept whether claims are paused
 * @property {Record<string, any> | undefined} keeper  what the queue is opened with; left out: as it is
 * @property {Record<string, any>} changeable  of these, what can be changed while it runs, with all defaults
 * @property {number} defaultInterval
 * @property {number | undefined} verifyEveryMs
 * @property {string | undefined} snapshot  a file
 * @property {string | undefined} peerUrl
 * @property {string | undefined} console  the path under which it is served
 */

const DAY_MS = 86_400_000;
/** Set again when the option is taken out of the file. */
const DEFAULTS = {
  routes: [],
  excludePathPatterns: [],
  defaultInterval: DAY_MS,
  priority: { sitemapBoost: 2, changedHeadStart: 1, urgentHeadStart: 0.5, changedDemand: true },
  leases: { leaseMs: 120_000, maxLeases: 8_192, releaseGraceMs: 5_000, missLimit: 3 },
};
/** Options that cannot be given together with `classify`, which decides instead. */
const OF_RULES = ['routes', 'excludePathPatterns', 'defaultInterval'];
/** Options of the keeper that are not for a component to give, and what to do instead. @type {Record<string, string>} */
const NOT_HERE = {
  node: "take it out: this node's name is the one that Harper has (server.hostname)",
  nodes: 'take it out: the nodes are those that Harper knows (server.nodes)',
  now: 'take it out: it is for tests',
};
/** Harper's own, in the same section of the file. */
const HARPERS = ['package', 'timeout', 'files', 'urlPath', 'port', 'securePort', 'network'];

/** @type {Record<string, [test: (value: any) => boolean, what: string]>} */
const OF_HOST = {
  database: [isName, 'the name of a database'],
  table: [isName, 'the name of a table'],
  settings: [isName, 'the name of a table'],
  verifyEveryMs: [
    (value) => Number.isFinite(value) && value >= 1_000 && value < 2 ** 31,
    'a number of ms, 1000 or more',
  ],
  snapshot: [(value) => value === false || isName(value), 'the path of a file, or false for none'],
  peerUrl: [
    (value) => typeof value === 'string' && URL.canParse(value.replaceAll('{host}', 'localhost')),
    'a URL such as https://{host}:9926',
  ],
  console: [isPath, 'a path such as /prerender_console'],
};

/** @param {unknown} value */
function isPath(value) {
  return typeof value === 'string' && /^(\/[\w.-]+)+$/.test(value);
}

/** @param {unknown} value */
function isName(value) {
  return typeof value === 'string' && value !== '';
}

/**
 * Throws a `TypeError` that says what is wrong.
 *
 * @param {any} given
 * @param {{ node: string, config?: any }} harper  `config`: Harper's own, of `server.config`
 * @returns {HarperOptions}
 */
function readOptions(given, { node, config }) {
  /** @type {Record<string, any>} */
  const host = {
    database: 'render_schedule',
    table: 'RenderSchedule',
    settings: 'RenderQueueSetting',
  };
  /** @type {Record<string, any>} */
  const own = {};
  for (const [name, value] of Object.entries(given ?? {})) {
    if (HARPERS.includes(name) || value === undefined || value === null) continue;
    if (Object.hasOwn(NOT_HERE, name)) {
      throw new TypeError(`${name} is not an option here: ${NOT_HERE[name]}`);
    }
    if (!Object.hasOwn(OF_HOST, name)) {
      own[name] = value;
      continue;
    }
    const [test, what] = OF_HOST[name];
    if (!test(value)) throw new TypeError(`${name} must be ${what}, not ${JSON.stringify(value)}`);
    host[name] = value;
  }
  const unknown = Object.keys(own).find((name) => !KEEPERS.includes(name));
  if (unknown !== undefined) {
    const known = [...Object.keys(OF_HOST), ...KEEPERS].join(', ');
    throw new TypeError(`there is no option ${unknown}; there are ${known}`);
  }
  const keeper = { node, ...own };
  checkOptions(keeper);
  return {
    database: host.database,
    table: host.table,
    settings: host.settings,
    keeper,
    changeable: changeableOf(own),
    defaultInterval: own.defaultInterval ?? DAY_MS,
    verifyEveryMs: host.verifyEveryMs,
    snapshot: snapshotOf(host, config),
    peerUrl: host.peerUrl ?? peerUrlOf(config),
    console: host.console,
  };
}

const KEEPERS = [
  ...Object.keys(DEFAULTS),
  'delimiter',
  'deviceTypes',
  'flowMinutes',
  'maxListed',
  'classify',
];

/** @param {Record<string, any>} own */
function changeableOf(own) {
  const changeable = {
    ...DEFAULTS,
    ...Object.fromEntries(
      Object.keys(DEFAULTS).flatMap((name) => (own[name] === undefined ? [] : [[name, own[name]]])),
    ),
    priority: { ...DEFAULTS.priority, ...own.priority },
    leases: { ...DEFAULTS.leases, ...own.leases },
  };
  if (own.classify === undefined) return changeable;
  return Object.fromEntries(
    Object.entries(changeable).filter(([name]) => !OF_RULES.includes(name)),
  );
}

/** @param {Record<string, any>} host @param {any} config */
function snapshotOf({ snapshot, database, table }, config) {
  if (snapshot === false) return undefined;
  if (snapshot !== undefined) return path.resolve(snapshot);
  const root = config?.rootPath;
  return isName(root)
    ? path.join(root, 'prerender-queue-keeper', `${database}.${table}.snapshot`)
    : undefined;
}

/** Where the other nodes answer, if they are set up like this one. @param {any} config */
function peerUrlOf(config) {
  const { port, securePort } = config?.http ?? {};
  if (Number.isInteger(securePort)) return `https://{host}:${securePort}`;
  return Number.isInteger(port) ? `http://{host}:${port}` : undefined;
}

module.exports = { readOptions };
