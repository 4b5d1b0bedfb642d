'use strict';
// By how much a thread is held up, without what other programs do to it: Linux tells for each thread how long it ran, and how long it was
// ready to run and had no CPU. Elsewhere both are 0.

const fs = require('node:fs');
const { PerformanceObserver } = require('node:perf_hooks');

/** @typedef {{ ran: number, waited: number }} Share  ms */

/** @param {string} thread below /proc @returns {Share} */
function shareOf(thread) {
  try {
    const told = fs.readFileSync(`/proc/${thread}/schedstat`, 'latin1').split(' ');
    return { ran: Number(told[0]) / 1e6, waited: Number(told[1]) / 1e6 };
  } catch {
    return { ran: 0, waited: 0 };
  }
}

/** The threads of this process that do long work for the queue, and may have its lock. */
function workers() {
  try {
    const threads = fs.readdirSync('/proc/self/task').map((thread) => `self/task/${thread}`);
    return threads.filter((thread) =>
      fs.readFileSync(`/proc/${thread}/comm`, 'latin1').startsWith('tokio'),
    );
  } catch {
    return [];
  }
}

/**
 * CPU time of this thread while it does nothing but wait for a job, ms.
 * @template T @param {() => Promise<T>} job @returns {Promise<{ ms: number, result: T }>}
 */
async function ranDuring(job) {
  // What a thread ran is told of the last tick, unless it has slept since.
  const sleep = () => new Promise((resolve) => setTimeout(resolve, 5));
  await sleep();
  const before = shareOf('thread-self').ran;
  const result = await job();
  await sleep();
  return { ms: shareOf('thread-self').ran - before, result };
}

/** The time, and how long this thread has waited until then: as little as can be comes between the two, in few tries: they count as this turn's. */
function moment() {
  let best = { at: 0, waited: 0, between: Number.POSITIVE_INFINITY };
  for (let tries = 0; tries < 5 && best.between >= 1; tries++) {
    const at = performance.now();
    const { waited } = shareOf('thread-self');
    const between = performance.now() - at;
    if (between < best.between) best = { at, waited, between };
  }
  return best;
}

/** V8's collections from here on: `end` once no more is to be heard of them, then `within` says how many ms of a time they took. */
function collections() {
  /** @type {{ startTime: number, duration: number }[]} */
  const all = [];
  const observer = new PerformanceObserver((list) => all.push(...list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  return {
    async end() {
      // The observer is told of a collection in a later turn.
      for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
      observer.disconnect();
    },
    /** @param {number} from @param {number} to */
    within(from, to) {
      let ms = 0;
      for (const { startTime, duration } of all)
        ms += Math.max(0, Math.min(to, startTime + duration) - Math.max(from, startTime));
      return ms;
    },
  };
}

/**
 * The longest turn of the event loop while a job is under way, ms: without V8's collections, and without the time that this thread
 * had no CPU; `clock` with both.
 * @template T @param {() => Promise<T>} job @returns {Promise<{ ms: number, told: string, clock: number, result: T }>}
 */
async function longestTurn(job) {
  const collected = collections();
  /** @type {{ at: number, waited: number }[]} */
  const moments = [];
  const look = () => moments.push(moment());
  let done = false;
  const turn = () => {
    look();
    if (!done) setImmediate(turn);
  };
  look();
  setImmediate(turn);
  const result = await job().finally(() => {
    look();
    done = true;
  });
  await collected.end();
  let longest = { ms: 0, told: 'none' };
  let clock = 0;
  for (let i = 1; i < moments.length; i++) {
    const [from, to] = [moments[i - 1], moments[i]];
    const parts = [to.waited - from.waited, collected.within(from.at, to.at)];
    const ms = to.at - from.at - parts[0] - parts[1];
    clock = Math.max(clock, to.at - from.at);
    if (ms > longest.ms) longest = { ms, told: told(to.at - from.at, parts) };
  }
  return { ...longest, clock, result };
}

/** @param {number} all ms @param {number[]} parts of them */
function told(all, parts) {
  const [waited, collecting, held] = parts.map((ms) => ms.toFixed(1));
  const other = held === undefined ? '' : `, and ${held} another was without a CPU`;
  return `${all.toFixed(1)} ms, ${waited} of them without a CPU, ${collecting} collecting${other}`;
}

/**
 * The longest call while a job is under way, a call every ms, ms: without V8's collections, and without the time that
 * this thread had no CPU, or slept while a thread that may have the lock had none.
 * @template T @param {() => Promise<T>} job @param {() => void} call
 * @returns {Promise<{ ms: number, told: string, calls: number, result: T }>}
 */
async function longestCall(job, call) {
  const collected = collections();
  const long = [];
  let calls = 0;
  let done = false;
  const under = job().finally(() => {
    done = true;
  });
  while (!done) {
    // It sleeps in between: where CPUs are few, the job gets on.
    await new Promise((resolve) => setTimeout(resolve, 1));
    const threads = workers();
    const others = threads.map((thread) => shareOf(thread).waited);
    const before = shareOf('thread-self').waited;
    const from = performance.now();
    call();
    const to = performance.now();
    calls++;
    const waited = shareOf('thread-self').waited - before;
    if (to - from - waited < 1) continue;
    const other = threads.map((thread, i) => shareOf(thread).waited - others[i]);
    long.push({ from, to, waited, held: Math.max(0, ...other) });
  }
  const result = await under;
  await collected.end();
  let longest = { ms: 0, told: 'under 1 ms' };
  for (const { from, to, waited, held } of long) {
    const parts = [waited, collected.within(from, to), held];
    const ms = to - from - parts.reduce((sum, part) => sum + part);
    if (ms > longest.ms) longest = { ms, told: told(to - from, parts) };
  }
  return { ...longest, calls, result };
}

module.exports = { longestCall, longestTurn, ranDuring };
