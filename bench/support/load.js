/**
 * The load of the harnesses on the standalone host: renderers that claim and report, and writers that
 * reschedule pages, over HTTP. It remembers what it wrote and when, so that a lost write is found.
 *
 * A page rendered is due again within 1 to 10 minutes, so that the queue neither runs dry nor stands still.
 * A renderer keeps its connection, as long as it is answered within `PATIENCE_MS`; else it takes a new one.
 */

const http = require('node:http');

const MINUTE = 60_000;
const CLAIM = 2;
const RENDER_MS = 100;
const WRITE_EVERY_MS = 20;
/** How long a renderer waits for an answer. */
const PATIENCE_MS = 1_000;
/** One that got nothing asks again after so long; the first of them, sooner, so that it sees the first job. */
const RETRY_MS = 250;
const EAGER_RETRY_MS = 5;

/** @typedef {ReturnType<typeof import('../corpus.js').corpus>} Corpus */
/** `end` is Infinity where no answer came. @typedef {{ value: number, start: number, end: number }} Write */
/** One claim that gave jobs; when it was asked and answered. @typedef {{ asked: number, at: number, ms: number, jobs: number, stale: number, keys: string[] }} Claimed */

const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** One request on a connection of its own. @param {string} url @returns {Promise<{ status: number, answer: any }>} */
function getOnce(url) {
  return request(url, 'GET', undefined, false);
}

/**
 * @param {string} url @param {string} method @param {object | string | undefined} body  a text is sent as it is
 * @param {http.Agent | false} agent @param {number} [patienceMs]
 * @returns {Promise<{ status: number, answer: any }>}
 */
function request(url, method, body, agent, patienceMs = PATIENCE_MS) {
  return new Promise((resolve, reject) => {
    const text = typeof body === 'object' ? JSON.stringify(body) : body;
    const headers = text
      ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }
      : {};
    const asked = http.request(url, { method, agent, headers }, (response) => {
      let answer = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        answer += chunk;
      });
      response.on('error', fail);
      response.on('end', () => {
        clearTimeout(timer);
        resolve({ status: Number(response.statusCode), answer: JSON.parse(answer) });
      });
    });
    const fail = (/** @type {Error} */ error) => {
      clearTimeout(timer);
      reject(error);
    };
    asked.on('error', fail);
    const timer = setTimeout(() => asked.destroy(new Error('no answer')), patienceMs);
    asked.end(text);
  });
}

/**
 * `renderMs`: how long a renderer takes for what it claimed, on average; `leases`: of several loads on one ring, the same
 * for all, when the lease of a job that is being rendered ends.
 *
 * @param {{ url: string, rows: Pick<Corpus, 'nth' | 'key' | 'value'>, renderers: number, writers: number, renderMs?: number, leases?: Map<string, number> }} options
 */
function startLoad({ url, rows, renderers, writers, renderMs = RENDER_MS, leases = new Map() }) {
  const tally = {
    results: 0,
    late: 0,
    writes: 0,
    doubles: 0,
    noAnswer: 0,
    refused: 0,
    misdirected: 0,
  };
  /** @type {Claimed[]} */
  const claims = [];
  /** @type {Map<string, Write[]>} */
  const history = new Map();
  let ending = false;
  let touched = 0;

  /** @param {http.Agent} agent @param {string} method @param {string} path @param {object} body */
  async function ask(agent, method, path, body) {
    try {
      const answered = await request(url + path, method, body, agent);
      if (answered.status >= 500) tally.refused += 1;
      return answered;
    } catch {
      tally.noAnswer += 1;
      return null;
    }
  }

  /**
   * A write of a due time, remembered with when it was sent and answered.
   *
   * @param {string} key @param {number} value @param {() => ReturnType<typeof ask>} send
   */
  async function write(key, value, send) {
    const made = { value, start: performance.now(), end: Number.POSITIVE_INFINITY };
    const of = history.get(key) ?? [];
    of.push(made);
    history.set(key, of);
    const answered = await send();
    if (answered && answered.status < 300 && answered.answer.written !== false)
      made.end = performance.now();
    // Refused: it was not written.
    else if (answered && answered.status < 500) of.splice(of.indexOf(made), 1);
    return answered;
  }

  const soon = () => Math.floor(Date.now() + MINUTE * (1 + 9 * Math.random()));

  /** @param {number} index */
  async function renderer(index) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const retryMs = index === 0 ? EAGER_RETRY_MS : RETRY_MS;
    while (!ending) {
      const asked = performance.now();
      const claimed = await ask(agent, 'POST', '/render_queue/claim', { limit: CLAIM });
      const jobs = claimed?.status === 200 ? claimed.answer.jobs : [];
      if (jobs.length === 0) {
        await sleep(retryMs * (0.5 + Math.random()));
        continue;
      }
      const at = performance.now();
      claims.push({
        asked,
        at,
        ms: at - asked,
        jobs: jobs.length,
        stale: claimed?.answer.skippedStale,
        keys: jobs.map((/** @type {{ key: string }} */ { key }) => key),
      });
      for (const { key, expiresAt } of jobs) {
        if ((leases.get(key) ?? 0) > Date.now()) tally.doubles += 1;
        leases.set(key, expiresAt);
      }
      await sleep(renderMs * (0.5 + Math.random()));
      for (const { key, token } of jobs) {
        const nextRenderTime = soon();
        const result = { key, token, outcome: 'rendered', nextRenderTime };
        leases.delete(key);
        const answered = await write(key, nextRenderTime, () =>
          ask(agent, 'POST', '/render_queue/job_result', result),
        );
        if (answered?.status === 200) tally.results += 1;
        if (answered?.status === 409) tally.late += 1;
      }
    }
    agent.destroy();
  }

  async function writer() {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    while (!ending) {
      const i = rows.nth(touched++);
      const key = rows.key(i);
      const row = { ...rows.value(i, Date.now()), nextRenderTime: soon() };
      const path = `/render_schedule/${encodeURIComponent(key)}`;
      const answered = await write(key, row.nextRenderTime, () => ask(agent, 'PUT', path, row));
      if (answered && answered.status < 300) tally.writes += 1;
      if (answered?.status === 421) tally.misdirected += 1;
      await sleep(answered ? WRITE_EVERY_MS : RETRY_MS);
    }
    agent.destroy();
  }

  const running = Promise.all([
    ...Array.from({ length: renderers }, (_, index) => renderer(index)),
    ...Array.from({ length: writers }, () => writer()),
  ]);
  return {
    tally,
    claims,
    history,
    /** The leases of a process that was killed ended with it. */
    forgetLeases: () => leases.clear(),
    /** Resolves when all that was asked is answered. */
    async stop() {
      ending = true;
      await running;
    },
  };
}

/**
 * How many keys do not have what was acknowledged last: a row must hold one of the values written, and no
 * write may have been acknowledged after that one's answer and before its own beginning.
 *
 * @param {Map<string, Write[]>} history @param {(key: string) => any} get
 */
function findLost(history, get) {
  let acknowledged = 0;
  const lost = [];
  for (const [key, writes] of history) {
    const answered = writes.filter(({ end }) => end !== Number.POSITIVE_INFINITY);
    acknowledged += answered.length;
    if (answered.length === 0) continue;
    const value = get(key)?.nextRenderTime;
    const isRight = writes.some(
      (write) => write.value === value && !answered.some(({ start }) => start > write.end),
    );
    if (!isRight) lost.push(key);
  }
  return { acknowledged, keys: history.size, lost };
}

module.exports = { startLoad, findLost, getOnce, request, sleep };
