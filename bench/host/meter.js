/** What this thread, and the whole process, use between two moments. */

const fs = require('node:fs');
const { PerformanceObserver } = require('node:perf_hooks');
const v8 = require('node:v8');
const vm = require('node:vm');

/** ms, by the clock that all threads of the machine share: `performance.now()` begins anew in each thread. */
function clock() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

/**
 * How long this thread has been on a CPU, in us: the kernel's own sum, to the nanosecond, without the time in which others had the CPU.
 * Event loop utilization counts that, too, and called a thread of Harper's active for nearly all of a time in which it did nothing.
 */
function threadCpu() {
  return Number(fs.readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e3;
}

function processCpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** @type {(() => void) | null} */
let collect = null;

/** What this thread's heap holds, in bytes, after two full collections. */
function heapInUse() {
  if (!collect) {
    v8.setFlagsFromString('--expose-gc');
    collect = /** @type {() => void} */ (vm.runInNewContext('gc'));
  }
  collect();
  collect();
  return v8.getHeapStatistics().used_heap_size;
}

/** Lets the event loop go round. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Begins now. `stop` says what was used until then, of CPU in us, of pauses in ms; the pauses are this thread's. */
function startMeter() {
  /** @type {{ startTime: number, duration: number }[]} */
  const pauses = [];
  const observer = new PerformanceObserver((list) => pauses.push(...list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  const from = performance.now();
  const before = { process: processCpu(), thread: threadCpu() };
  return {
    async stop() {
      const used = { process: processCpu() - before.process, thread: threadCpu() - before.thread };
      const to = performance.now();
      // A pause is told of some turns later.
      for (let i = 0; i < 5; i++) await turn();
      pauses.push(...observer.takeRecords());
      observer.disconnect();
      const inside = pauses.filter(({ startTime }) => startTime >= from && startTime <= to);
      const lengths = inside.map(({ duration }) => duration);
      return {
        ms: to - from,
        processUs: used.process,
        threadUs: used.thread,
        gc: {
          count: lengths.length,
          totalMs: lengths.reduce((sum, ms) => sum + ms, 0),
          longestMs: Math.max(0, ...lengths),
        },
      };
    },
  };
}

module.exports = { clock, heapInUse, startMeter, turn };
