'use strict';

/**
 * The nodes of the ring that this host is one of: their names and where each answers. The list lies beside the rows, so
 * that every thread reads the same one, and one that was set while the host ran is there after a restart.
 */

const SETTING = 'nodes';
const MOST_NODES = 1_000;

/**
 * @typedef {import('../cluster.js').ClusterNode} ClusterNode
 * @typedef {Pick<InstanceType<typeof import('./table.js').LmdbTable>, 'setting' | 'saveSetting'>} Settings
 */

/** @param {any} text @returns {text is string} */
function isName(text) {
  return typeof text === 'string' && text !== '' && /** @type {any} */ (text).isWellFormed();
}

/**
 * Where a node answers, without a slash at the end.
 *
 * @param {string} name
 * @param {unknown} text
 */
function checkUrl(name, text) {
  const url = typeof text === 'string' && URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new TypeError(`the URL of node "${name}" must be one such as http://127.0.0.1:9926`);
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError(`the URL of node "${name}" must have no user, query or fragment`);
  }
  return url.href.replace(/\/+$/, '');
}

/**
 * A list as it came from outside; throws a sentence about what is wrong with it.
 *
 * @param {unknown} list
 * @param {string} node  this node's name
 * @returns {ClusterNode[]}
 */
function checkNodes(list, node) {
  if (!Array.isArray(list) || list.length === 0 || list.length > MOST_NODES) {
    throw new TypeError(
      'nodes must be a list such as [{"name": "a", "url": "http://127.0.0.1:9926"}]',
    );
  }
  /** @type {Map<string, ClusterNode>} */
  const nodes = new Map();
  for (const one of list) {
    const { name, url } = Object(one);
    if (!isName(name)) throw new TypeError('each node needs a name, a string that is not empty');
    if (nodes.has(name)) throw new TypeError(`node "${name}" is named twice`);
    nodes.set(name, { name, url: checkUrl(name, url) });
  }
  if (!nodes.has(node)) {
    throw new TypeError(
      `this node, "${node}", is not among them: name it, too; to take it out, see "Taking a node out" in the README`,
    );
  }
  return [...nodes.values()];
}

/** `NAME=URL,NAME=URL`. @param {string} text @param {string} node */
function parseNodes(text, node) {
  const list = text.split(',').map((one) => {
    const [, name, url] = /^([^=]*)=(.*)$/s.exec(one) ?? [];
    return { name, url };
  });
  return checkNodes(list, node);
}

class Nodes {
  #table;
  #named;

  /**
   * @param {object} parts
   * @param {Settings} parts.table
   * @param {string[]} parts.named  by the configuration, which tells no URLs: the list until there is another
   */
  constructor({ table, named }) {
    this.#table = table;
    this.#named = named;
  }

  /** @returns {ClusterNode[] | undefined} */
  get #stored() {
    return /** @type {any} */ (this.#table.setting(SETTING));
  }

  get isStored() {
    return this.#stored !== undefined;
  }

  /** @returns {ClusterNode[]} */
  all() {
    return this.#stored ?? this.#named.map((name) => ({ name, url: null }));
  }

  names() {
    return this.all().map(({ name }) => name);
  }

  /** @param {string} name */
  urlOf(name) {
    return this.all().find((one) => one.name === name)?.url ?? null;
  }

  /** The feeder follows it within a second. @param {ClusterNode[]} list  as `checkNodes` gave it */
  async save(list) {
    await this.#table.saveSetting(SETTING, list);
  }
}

/**
 * The node that a key belongs to, where that is another one. Of a key that is kept nothing is asked that takes time.
 *
 * @param {Pick<import('../../index.js').QueueKeeper, 'describe' | 'explain'>} keeper
 * @param {string} key
 */
function otherOwner(keeper, key) {
  if (keeper.describe(key)) return null;
  const { reason, owner } = keeper.explain(key);
  return reason === 'not-owned' ? owner : null;
}

module.exports = { Nodes, checkNodes, isName, otherOwner, parseNodes };
