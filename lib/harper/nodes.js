'use strict';

/**
 * The other nodes of a Harper cluster. `server.nodes` is empty at every worker's start until Harper has read
 * `system.hdb_nodes`, and has entries without a name; so it is looked at anew each time, and as long as it names
 * nobody, `hdb_nodes` is asked whether there should be somebody.
 */

const READ_EVERY_MS = 1_000;

class HarperNodes {
  #harper;
  #log;
  /** Whether `hdb_nodes` names another node; undefined until it has been read. @type {boolean | undefined} */
  #expected;
  #reading = false;
  #readAt = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {{ server: any, databases: any }} parts.harper
   * @param {(level: 'info' | 'warn' | 'error', message: string) => void} parts.log
   */
  constructor({ harper, log }) {
    this.#harper = harper;
    this.#log = log;
    // Known, it may be, by the time at which it is asked.
    this.peers();
  }

  /** This node's name. @returns {string} */
  get own() {
    return this.#harper.server.hostname ?? 'localhost';
  }

  /** @returns {{ name: string, url?: string }[]} */
  get #seen() {
    const { nodes } = this.#harper.server;
    if (!Array.isArray(nodes)) return [];
    return nodes.filter((node) => isName(node?.name) && node.name !== this.own);
  }

  /** Their names; null while there should be one and none is seen yet. @returns {string[] | null} */
  peers() {
    const names = this.#seen.map(({ name }) => name);
    if (names.length > 0) return [...new Set(names)];
    if (!this.#harper.databases.system?.hdb_nodes) return [];
    if (this.#expected === false) return [];
    this.#lookUp();
    return null;
  }

  /**
   * All nodes, this one included, and where each answers HTTP requests.
   *
   * @param {string | undefined} pattern  such as `https://{host}:9926`
   */
  addresses(pattern) {
    const others = this.#seen.map(({ name, url }) => ({
      name,
      url: addressOf(name, url, pattern),
    }));
    return [{ name: this.own, url: null }, ...others];
  }

  #lookUp() {
    if (this.#reading || performance.now() - this.#readAt < READ_EVERY_MS) return;
    this.#reading = true;
    this.#readAt = performance.now();
    this.#isExpected()
      .then((expected) => {
        this.#expected = expected;
      })
      .catch((error) => {
        this.#log('warn', `system.hdb_nodes cannot be read: ${error.message}`);
      })
      .finally(() => {
        this.#reading = false;
      });
  }

  async #isExpected() {
    const table = this.#harper.databases.system.hdb_nodes;
    for await (const node of table.search({ conditions: [], select: ['$id', 'name'] })) {
      const name = node.name ?? node.$id;
      if (isName(name) && name !== this.own) return true;
    }
    return false;
  }
}

/** @param {unknown} name @returns {name is string} */
function isName(name) {
  return typeof name === 'string' && name !== '';
}

/**
 * @param {string} name
 * @param {unknown} url  of its replication: only its host is of use
 * @param {string | undefined} pattern
 */
function addressOf(name, url, pattern) {
  if (pattern === undefined) return null;
  const host = typeof url === 'string' && URL.canParse(url) ? new URL(url).hostname : name;
  return pattern.replaceAll('{host}', host);
}

module.exports = { HarperNodes };
