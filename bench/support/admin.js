/**
 * A worker thread of its own, so that what it reads does not hold up the load that is measured: admin requests at a
 * steady rate, over all nodes in turns, while it is told to.
 */

const { parentPort, workerData } = require('node:worker_threads');

/** As consoles, scrapers and autoscalers ask: one in four for the whole ring, which asks all others. */
const PATHS = [
  '/prerender_admin/cluster-queue-state',
  '/prerender_admin/queue-state',
  '/queue_status',
  '/metrics',
];
const TICK_MS = 20;

/** @type {{ urls: string[], perSecond: number }} */
const { urls, perSecond } = workerData;
/** @type {{ ms: number[], failed: number, sent: number }} */
let tally = { ms: [], failed: 0, sent: 0 };
let asked = 0;

async function one() {
  const url = urls[asked % urls.length] + PATHS[Math.floor(asked / urls.length) % PATHS.length];
  asked += 1;
  const { ms } = tally;
  const began = performance.now();
  tally.sent += 1;
  try {
    const response = await fetch(url);
    await response.arrayBuffer();
    if (response.status === 200) ms.push(performance.now() - began);
    else tally.failed += 1;
  } catch {
    tally.failed += 1;
  }
}

/** @type {NodeJS.Timeout | undefined} */
let timer;
/** @type {Promise<void>[]} */
let going = [];

parentPort?.on('message', async (on) => {
  if (on) {
    tally = { ms: [], failed: 0, sent: 0 };
    going = [];
    const began = performance.now();
    timer = setInterval(() => {
      const wanted = ((performance.now() - began) * perSecond) / 1000;
      while (going.length < wanted) going.push(one());
    }, TICK_MS);
  } else {
    clearInterval(timer);
    await Promise.all(going);
    parentPort?.postMessage(tally);
  }
});
