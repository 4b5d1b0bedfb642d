'use strict';

/**
 * Simulated renderers, in a thread of their own, against the real HTTP interface. Of ten, six render promptly,
 * two slowly, one fails at half of its pages, and one leaves a quarter of its jobs without a result, as a
 * renderer that died would.
 */

const { isMainThread, parentPort, workerData } = require('node:worker_threads');

/**
 * @typedef {object} Tally
 * @property {number} jobs  given out
 * @property {number} rendered
 * @property {number} failed
 * @property {number} silent  left without a result
 * @property {number} late  results refused, their lease being over
 * @property {number} doubles  jobs given out while another renderer's lease lived: must be 0
 * @property {number} errors  requests that failed
 */

const IDLE_MS = 1_000;

/**
 * @param {{ url: string, token?: string, renderers: number }} options
 */
function startFleet({ url, token, renderers }) {
  /** @type {Tally} */
  const tally = { jobs: 0, rendered: 0, failed: 0, silent: 0, late: 0, doubles: 0, errors: 0 };
  /** When the live lease of each key ends. @type {Map<string, number>} */
  const leases = new Map();
  let ending = false;
  /** @type {Set<() => void>} */
  const sleepers = new Set();
  /** @type {Record<string, string>} */
  const headers = { 'content-type': 'application/json' };
  if (token !== undefined) headers.authorization = `Bearer ${token}`;

  /**
   * @param {string} path
   * @param {object} body
   */
  async function post(path, body) {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(30_000),
    });
    return { status: response.status, answer: /** @type {any} */ (await response.json()) };
  }

  /** @param {number} ms */
  const sleep = (ms) =>
    new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        sleepers.delete(wake);
        resolve(undefined);
      };
      const timer = setTimeout(wake, ending ? 0 : ms);
      sleepers.add(wake);
    });

  /** @param {number} index */
  async function renderer(index) {
    const kind = index % 10;
    const limit = 1 + (index % 4);
    while (!ending) {
      let idle = true;
      try {
        const { status, answer } = await post('/render_queue/claim', { limit });
        if (status === 200) {
          take(answer.jobs);
          for (const job of answer.jobs) await render(kind, job);
          idle = answer.jobs.length === 0;
        } else {
          tally.errors += 1;
        }
      } catch {
        tally.errors += 1;
      }
      if (idle) await sleep(IDLE_MS * (0.5 + Math.random()));
    }
  }

  /** @param {{ key: string, expiresAt: number }[]} jobs */
  function take(jobs) {
    const now = Date.now();
    tally.jobs += jobs.length;
    for (const { key, expiresAt } of jobs) {
      if ((leases.get(key) ?? 0) > now) tally.doubles += 1;
      leases.set(key, expiresAt);
    }
  }

  /**
   * @param {number} kind
   * @param {{ key: string, token: any, expiresAt: number }} job
   */
  async function render(kind, job) {
    await sleep(kind === 6 || kind === 7 ? 1_000 + 3_000 * Math.random() : 20 + 80 * Math.random());
    if (kind === 9 && Math.random() < 0.25) {
      tally.silent += 1;
      return;
    }
    const failed = kind === 8 && Math.random() < 0.5;
    if (leases.get(job.key) === job.expiresAt) leases.delete(job.key);
    const outcome = failed ? 'failed' : 'rendered';
    const { status } = await post('/render_queue/job_result', {
      key: job.key,
      token: job.token,
      outcome,
    });
    if (status === 200) tally[outcome] += 1;
    else if (status === 409) tally.late += 1;
    else tally.errors += 1;
  }

  const running = Promise.all(Array.from({ length: renderers }, (_, index) => renderer(index)));
  return {
    tally,
    async stop() {
      ending = true;
      for (const wake of [...sleepers]) wake();
      await running;
      return tally;
    },
  };
}

if (!isMainThread && workerData?.fleet) {
  const fleet = startFleet(workerData.fleet);
  parentPort?.on('message', async () => {
    parentPort?.postMessage(await fleet.stop());
    parentPort?.close();
  });
}

module.exports = { startFleet };
