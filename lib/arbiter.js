'use strict';

/**
 * Who feeds. The feeder beats a pulse that all threads see, kept by the queue itself; every thread that could feed
 * stands by and listens to it. Where there is none for five seconds, the thread that says so first takes over:
 * there is nobody to ask, and nobody to wait for.
 *
 *     const leave = standBy({ keeper, takeOver: () => new Feeder({ keeper: handle, pulse: handle, ... }).start() });
 *
 * This decides when somebody begins to feed, not who may: that is the keeper's epoch. Two that feed at once are no
 * harm, since the older one is refused.
 */

const SILENCE_MS = 5_000;
const LOOK_MS = 500;

/**
 * Takes over whenever nobody feeds, until the function that it returns is called. `takeOver` is told how long nobody
 * has: without end, where there was no feeder.
 *
 * @param {object} options
 * @param {Pick<import('../index.js').QueueKeeper, 'feederSilenceMs' | 'seizeFeeder'>} options.keeper
 * @param {(silenceMs: number) => void} options.takeOver
 * @param {(error: unknown) => void} [options.onError]  the keeper can no longer be asked: nobody stands by here any more
 * @param {number} [options.silenceMs]
 * @param {number} [options.patienceMs]  how long a place that was given up, or never taken, is left to others first
 * @param {{ mono: () => number, after: (ms: number, then: () => void) => () => void }} [options.time]
 * @returns {() => void}
 */
function standBy({
  keeper,
  takeOver,
  onError = () => {},
  silenceMs = SILENCE_MS,
  patienceMs = 0,
  time = realTime,
}) {
  let lookedAt = time.mono();
  let vacantSince = lookedAt;
  let cancel = () => {};
  const look = () => {
    const now = time.mono();
    // Whoever has stood still itself has no right to say that others did: the process was asleep, it may be.
    const awake = now - lookedAt < 4 * LOOK_MS;
    lookedAt = now;
    cancel = time.after(LOOK_MS, look);
    try {
      const silence = keeper.feederSilenceMs;
      if (silence !== Number.POSITIVE_INFINITY || !awake) vacantSince = now;
      const patient = silence === Number.POSITIVE_INFINITY && now - vacantSince < patienceMs;
      if (awake && !patient && keeper.seizeFeeder(silenceMs)) takeOver(silence);
    } catch (error) {
      cancel();
      onError(error);
    }
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

module.exports = { standBy };
