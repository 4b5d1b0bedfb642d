'use strict';

/**
 * The rows in this table that other nodes own and do not have yet. Nobody counts them, so while there are any, or may
 * be, no sum over the nodes is whole. The feeder counts them; every thread, and the next process, can tell.
 */

const SETTING = 'handedOver';
const NOT_COUNTED = -1;

/**
 * @typedef {Pick<InstanceType<typeof import('./table.js').LmdbTable>, 'setting' | 'saveSetting'>} Settings
 */

class Leftover {
  #table;
  #board;
  #node;

  /** @param {{ node: string, table: Settings, board: InstanceType<typeof import('./board.js').Board> }} parts */
  constructor({ node, table, board }) {
    this.#node = node;
    this.#table = table;
    this.#board = board;
  }

  /** Whether all was where it belongs when it was last looked. @param {string[]} ring */
  isSettled(ring) {
    return ring.length === 1 || this.#table.setting(SETTING) === this.#settledAs(ring);
  }

  /**
   * What a state document says of it: null where all is where it belongs; `rows` is null, or 0, while that is still
   * being found out.
   *
   * @param {string[]} ring
   * @returns {{ rows: number | null } | null}
   */
  of(ring) {
    if (ring.length === 1) return null;
    const rows = this.#board.leftover;
    if (rows > 0) return { rows };
    return this.isSettled(ring) ? null : { rows: rows === NOT_COUNTED ? null : rows };
  }

  /** The folder may have been another node's. @param {string[]} ring */
  #settledAs(ring) {
    return JSON.stringify([this.#node, ring]);
  }

  /** From here on it is not known: there is another ring. */
  async forget() {
    await this.#table.saveSetting(SETTING, null);
    this.#board.leftover = NOT_COUNTED;
  }

  /** @param {number} rows */
  found(rows) {
    this.#board.leftover = rows;
  }

  /** @param {number} rows */
  gone(rows) {
    this.#board.leftover = Math.max(NOT_COUNTED, this.#board.leftover - rows);
  }

  /** All is where it belongs. @param {string[]} ring */
  async settle(ring) {
    if (!this.isSettled(ring)) await this.#table.saveSetting(SETTING, this.#settledAs(ring));
    this.#board.leftover = NOT_COUNTED;
  }
}

module.exports = { Leftover };
