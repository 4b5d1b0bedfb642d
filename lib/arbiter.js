'use strict';

/**
 * Who feeds. The feeder beats a pulse that all threads see; every thread that could feed stands by and listens to
 * it. Where there is none for five seconds, the thread that says so first takes over: there is nobody to ask, and
 * nobody to wait for.
 *
 *     const pulse = new Pulse(cell);      // `cell` of another thread's Pulse, or none for the first
 *     const leave = standBy({ pulse, takeOver: () => new Feeder({ pulse, ... }).start() });
 *
 * This decides when somebody begins to feed, not who may: that is the keeper's epoch. Two that feed at once are no
 * harm, since the older one is refused.
 */

const SILENCE_MS = 5_000;
const LOOK_MS = 500;

/** The feeder's pulse: the moment of its last beat, by a clock that is the same in all threads of a process. */
class Pulse {
  #cell;
  #now;
  /** The last beat that was this one's. */
  #mine = 0n;

  /**
   * @param {BigInt64Array} [cell]
   * @param {() => bigint} [now]  in ns, never 0
   */
  constructor(
    cell = new BigInt64Array(new SharedArrayBuffer(8)),
    now = () => process.hrtime.bigint(),
  ) {
    this.#cell = cell;
    this.#now = now;
  }

  /** To be handed to another thread. */
  get cell() {
    return this.#cell;
  }

  beat() {
    this.#mine = this.#now();
    Atomics.store(this.#cell, 0, this.#mine);
  }

  /** Nobody feeds from now on; nothing where somebody else has begun to. */
  vacate() {
    Atomics.compareExchange(this.#cell, 0, this.#mine, 0n);
  }

  /** Whoever fed is dead. */
  clear() {
    Atomics.store(this.#cell, 0, 0n);
  }

  /** How long there has been no beat, in ms; infinite where nobody feeds. */
  get silenceMs() {
    const last = Atomics.load(this.#cell, 0);
    return last === 0n ? Number.POSITIVE_INFINITY : Number(this.#now() - last) / 1e6;
  }

  /** True where there was no beat for `silenceMs`: to one caller only, whose beat it is from then on. @param {number} silenceMs */
  seize(silenceMs) {
    const last = Atomics.load(this.#cell, 0);
    const now = this.#now();
    if (last !== 0n && Number(now - last) / 1e6 <= silenceMs) return false;
    if (Atomics.compareExchange(this.#cell, 0, last, now) !== last) return false;
    this.#mine = now;
    return true;
  }
}

/**
 * Takes over whenever nobody feeds, until the function that it returns is called. `takeOver` is told how long nobody
 * has: without end, where there was no feeder.
 *
 * @param {object} options
 * @param {Pulse} options.pulse
 * @param {(silenceMs: number) => void} options.takeOver
 * @param {number} [options.silenceMs]
 * @param {{ mono: () => number, after: (ms: number, then: () => void) => () => void }} [options.time]
 * @returns {() => void}
 */
function standBy({ pulse, takeOver, silenceMs = SILENCE_MS, time = realTime }) {
  let lookedAt = time.mono();
  let cancel = () => {};
  const look = () => {
    const now = time.mono();
    // Whoever has stood still itself has no right to say that others did: the process was asleep, it may be.
    const awake = now - lookedAt < 4 * LOOK_MS;
    lookedAt = now;
    cancel = time.after(LOOK_MS, look);
    const silence = pulse.silenceMs;
    if (awake && pulse.seize(silenceMs)) takeOver(silence);
  };
  look();
  return () => cancel();
}

const realTime = {
  mono: () => performance.now(),
  /** @param {number} ms @param {() => void} then */
  after(ms, then) {
    const timer = setTimeout(then, ms);
    return () => clearTimeout(timer);
  },
};

module.exports = { Pulse, standBy };
