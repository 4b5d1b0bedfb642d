'use strict';

/**
 * What the threads of the host tell each other without a message: counters, and each worker's pulse. One shared
 * array of 32-bit numbers.
 */

const COUNTERS = { jobs: 0, stale: 1, results: 2 };
/** What `leftover.js` says of it. */
const LEFTOVER = 3;
const FIRST_PULSE = 16;
const MOST_WORKERS = 64;
const PULSE_MS = 250;

/** @typedef {keyof typeof COUNTERS} Counter */

class Board {
  #cells;

  /** @param {Int32Array} [cells]  another thread's */
  constructor(cells) {
    if (cells) this.#cells = cells;
    else {
      this.#cells = new Int32Array(new SharedArrayBuffer(4 * (FIRST_PULSE + MOST_WORKERS)));
      this.leftover = -1;
    }
  }

  /** To be handed to another thread. */
  get cells() {
    return this.#cells;
  }

  /** @param {Counter} counter */
  count(counter) {
    Atomics.add(this.#cells, COUNTERS[counter], 1);
  }

  /** @param {Counter} counter */
  read(counter) {
    return Atomics.load(this.#cells, COUNTERS[counter]) >>> 0;
  }

  get leftover() {
    return Atomics.load(this.#cells, LEFTOVER);
  }

  /** @param {number} rows */
  set leftover(rows) {
    Atomics.store(this.#cells, LEFTOVER, rows);
  }

  /** @param {number} worker */
  beat(worker) {
    Atomics.store(this.#cells, FIRST_PULSE + worker, monotonicMs());
  }

  /** How long a worker's event loop has stood still, in ms. @param {number} worker */
  silence(worker) {
    return (monotonicMs() - Atomics.load(this.#cells, FIRST_PULSE + worker)) | 0;
  }
}

/** One clock for all threads of the process, wrapping. */
function monotonicMs() {
  return Number(BigInt.asIntN(32, process.hrtime.bigint() / 1_000_000n));
}

module.exports = { Board, PULSE_MS };
