/**
 * A load that turns a store over, all of it over HTTP: sitemaps are uploaded (pages rescheduled, new ones, ones that come
 * back), pages are deleted, marked as changed or urgent, given another cadence; renderers claim and report. Every write is
 * entered in a ledger.
 *
 * Uploads carry most of it, 500 rows a request, as one row a request would be bound by HTTP and not by the store. The rate is
 * kept where the host can; where it cannot, the load waits for it.
 */

const http = require('node:http');
const { HOUR, MINUTE } = require('../corpus.js');
const { GONE } = require('./ledger.js');
const { request, sleep } = require('./load.js');

const UPLOAD_ROWS = 500;
/** Of a hundred rows of an upload; the others are rescheduled. */
const UPLOAD = { fresh: 2, back: 3 };
const UPLOADERS = 2;
const UPLOAD_PATIENCE_MS = 30_000;
/** Of a hundred edits of one page. */
const EDIT = { urgent: 30, changed: 30, interval: 40 };
const INTERVALS = [6 * HOUR, 12 * HOUR, 24 * HOUR, 72 * HOUR];
const DEMANDS = [1 * HOUR, 2 * HOUR, 3 * HOUR];
/** Of a thousand jobs; the others are rendered. */
const OUTCOME = { silent: 3, failed: 20, gone: 10, interval: 20 };
/** Share of the writes after which the page is due within ten minutes: so that the queue does not run dry. */
const SOON_SHARE = 0.13;
const CLAIM = 2;
const RENDER_MS = 100;
const RETRY_MS = 250;
/** The first renderer asks sooner, so that it sees the first job. */
const EAGER_RETRY_MS = 5;

/** @typedef {ReturnType<typeof import('../corpus.js').corpus>} Corpus */
/** A job that was given out. `late` in cadences of the corpus. @typedef {{ late: number, score: number }} Given */
/** @typedef {{ at: number, ms: number, stale: number, jobs: Given[] }} Claimed  `at` by performance.now() */

/** The row of a key of the corpus. */
function indexer() {
  const [first, many, step] = [10_000_000, 90_000_000, 56_598_313];
  // The inverse of the step that the corpus makes from page to page.
  let [a, b, x, y] = [step, many, 1, 0];
  while (b > 0) {
    const q = Math.floor(a / b);
    [a, b, x, y] = [b, a % b, y, x - q * y];
  }
  const inverse = BigInt(((x % many) + many) % many);
  /** @param {string} key */
  return (key) => {
    const id = /[-=](\d{8})(?=[&|])/.exec(key)?.[1];
    const page = Number((BigInt(Number(id) - first) * inverse) % BigInt(many));
    return page * 2 + (key.endsWith('|mobile') ? 1 : 0);
  };
}
const indexOf = indexer();

/**
 * @param {object} options
 * @param {string} options.url
 * @param {Corpus} options.rows
 * @param {ReturnType<typeof import('./ledger.js').createLedger>} options.ledger
 * @param {number} options.renderers
 * @param {number} options.uploads  rows a second
 * @param {number} options.edits  a second, and deletes as many as come back and come new
 */
function startChurn({ url, rows, ledger, renderers, uploads, edits }) {
  const tally = {
    ...{ uploaded: 0, fresh: 0, back: 0, deletes: 0, urgent: 0, changed: 0, interval: 0 },
    ...{ results: 0, gone: 0, silent: 0, late: 0, doubles: 0, noAnswer: 0, refused: 0 },
  };
  /** @type {Claimed[]} */
  let claims = [];
  /** @type {Map<string, number>} */
  const leases = new Map();
  /** Rows that are deleted, the oldest first. @type {number[]} */
  const dead = [];
  let total = rows.rows;
  /** @type {'all' | 'renderers' | 'nothing'} */
  let mode = 'all';
  let ending = false;
  /** Requests under way, and what follows from one at once. */
  let active = 0;

  /** A row that is there, as far as is known. */
  function anyRow() {
    for (;;) {
      const row = Math.floor(Math.random() * total);
      if (ledger.current(row) !== GONE) return row;
    }
  }

  /** @param {number} row */
  function nextDue(row) {
    if (Math.random() < SOON_SHARE) return Math.floor(Date.now() + Math.random() * 10 * MINUTE);
    return Math.floor(Date.now() + (0.02 + 0.98 * Math.random()) * rows.cadence(row));
  }

  /** @param {http.Agent} agent @param {string} method @param {string} path @param {object | string} [body] @param {number} [patienceMs] */
  async function ask(agent, method, path, body, patienceMs) {
    try {
      const answered = await request(url + path, method, body, agent, patienceMs);
      if (answered.status >= 500) tally.refused += 1;
      return answered;
    } catch {
      tally.noAnswer += 1;
      return null;
    }
  }

  /**
   * @param {{ row: number, value: number }[]} written  what the request writes
   * @param {() => ReturnType<typeof ask>} send
   */
  async function write(written, send) {
    const begun = written.map(({ row, value }) => ({ row, write: ledger.begin(row, value) }));
    const answered = await send();
    const { status = 500, answer } = answered ?? {};
    for (const { row, write } of begun) {
      if (status < 300 && answer.written !== false && !(answer.failed > 0)) {
        ledger.answered(row, write);
      } else if (status < 500 && !(answer.failed > 0)) ledger.refused(row, write);
      // Else nobody knows.
    }
    return answered;
  }

  /** Does one thing after another, `perSecond` of them, while all is let work. @param {number} perSecond @param {(agent: http.Agent) => Promise<unknown>} job */
  async function atRate(perSecond, job) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    for (let due = performance.now(); !ending; ) {
      if (mode !== 'all') {
        await sleep(RETRY_MS);
        due = performance.now();
        continue;
      }
      active += 1;
      await job(agent);
      active -= 1;
      due += 1000 / perSecond;
      // What could not be done in time is not made up for.
      due = Math.max(due, performance.now() - 1000);
      await sleep(Math.max(0, due - performance.now()));
    }
    agent.destroy();
  }

  /** @param {http.Agent} agent */
  async function upload(agent) {
    /** @type {Set<number>} */
    const chosen = new Set();
    const count = { fresh: 0, back: 0 };
    while (chosen.size < UPLOAD_ROWS) {
      const at = Math.random() * 100;
      if (at < UPLOAD.fresh) {
        chosen.add(total++);
        count.fresh += 1;
      } else if (at < UPLOAD.fresh + UPLOAD.back && dead.length > 0) {
        chosen.add(Number(dead.shift()));
        count.back += 1;
      } else chosen.add(anyRow());
    }
    const now = Date.now();
    const list = [...chosen].map((row) => ({ row, value: nextDue(row) }));
    const body = list.map(({ row, value }) =>
      JSON.stringify({ cacheKey: rows.key(row), ...rows.value(row, now), nextRenderTime: value }),
    );
    await write(list, () =>
      ask(agent, 'POST', '/render_schedule', body.join('\n'), UPLOAD_PATIENCE_MS),
    );
    tally.uploaded += list.length;
    tally.fresh += count.fresh;
    tally.back += count.back;
  }

  const pathOf = (/** @type {number} */ row) =>
    `/render_schedule/${encodeURIComponent(rows.key(row))}`;

  /** @param {http.Agent} agent */
  async function remove(agent) {
    const row = anyRow();
    const answered = await write([{ row, value: GONE }], () => ask(agent, 'DELETE', pathOf(row)));
    if (!answered || answered.status >= 300) return;
    dead.push(row);
    tally.deletes += 1;
  }

  /** @param {http.Agent} agent */
  async function edit(agent) {
    const row = anyRow();
    const path = pathOf(row);
    const got = await ask(agent, 'GET', path);
    if (got?.status !== 200) return;
    const { version, ...value } = got.answer;
    const at = Math.random() * 100;
    const now = Date.now();
    /** @type {'urgent' | 'changed' | 'interval'} */
    let kind = 'interval';
    if (at < EDIT.urgent) {
      kind = 'urgent';
      Object.assign(value, { urgentAt: now, nextRenderTime: now });
    } else if (at < EDIT.urgent + EDIT.changed) {
      kind = 'changed';
      const demandPeriod = DEMANDS[Math.floor(Math.random() * 4)] ?? null;
      Object.assign(value, { changedAt: now, nextRenderTime: now, demandPeriod });
    } else value.effectiveInterval = INTERVALS[Math.floor(Math.random() * INTERVALS.length)];
    const answered = await write([{ row, value: value.nextRenderTime }], () =>
      ask(agent, 'PUT', path, value),
    );
    if (answered && answered.status < 300) tally[kind] += 1;
  }

  /** @param {number} index */
  async function renderer(index) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const retryMs = index === 0 ? EAGER_RETRY_MS : RETRY_MS;
    while (!ending) {
      if (mode === 'nothing') {
        await sleep(RETRY_MS);
        continue;
      }
      active += 1;
      const found = await claimAndRender(agent);
      active -= 1;
      if (!found) await sleep(retryMs * (0.5 + Math.random()));
    }
    agent.destroy();
  }

  /** Says whether there was anything to render. @param {http.Agent} agent */
  async function claimAndRender(agent) {
    const asked = performance.now();
    const claimed = await ask(agent, 'POST', '/render_queue/claim', { limit: CLAIM });
    const jobs = claimed?.status === 200 ? claimed.answer.jobs : [];
    const at = performance.now();
    if (claimed?.status === 200) {
      claims.push({
        at,
        ms: at - asked,
        stale: claimed.answer.skippedStale,
        jobs: jobs.map((/** @type {any} */ { key, dueAt, score }) => ({
          late: (Date.now() - dueAt) / rows.cadence(indexOf(key)),
          score,
        })),
      });
    }
    for (const { key, expiresAt } of jobs) {
      if ((leases.get(key) ?? 0) > Date.now()) tally.doubles += 1;
      leases.set(key, expiresAt);
    }
    await sleep(RENDER_MS * (0.5 + Math.random()));
    for (const { key, token } of jobs) await report(agent, key, token);
    return jobs.length > 0;
  }

  /** @param {http.Agent} agent @param {string} key @param {number} token */
  async function report(agent, key, token) {
    const at = Math.random() * 1000;
    // It stays leased until the lease ends.
    if (at < OUTCOME.silent && mode === 'all') {
      tally.silent += 1;
      return;
    }
    leases.delete(key);
    const row = indexOf(key);
    const isGone = at >= 500 && at < 500 + OUTCOME.gone && mode === 'all';
    const value = isGone ? GONE : nextDue(row);
    /** @type {Record<string, unknown>} */
    const result = { key, token, outcome: isGone ? 'gone' : 'rendered' };
    if (!isGone) result.nextRenderTime = value;
    if (at < OUTCOME.silent + OUTCOME.failed) result.outcome = 'failed';
    else if (at < OUTCOME.silent + OUTCOME.failed + OUTCOME.interval) {
      result.effectiveInterval = INTERVALS[Math.floor(at) % INTERVALS.length];
    }
    const answered = await write([{ row, value }], () =>
      ask(agent, 'POST', '/render_queue/job_result', result),
    );
    if (answered?.status === 409) tally.late += 1;
    if (answered?.status !== 200) return;
    tally.results += 1;
    if (isGone && answered.answer.written) {
      dead.push(row);
      tally.gone += 1;
    }
  }

  // So that the table stays as large as it is; pages that are gone come on top.
  const deletes = (uploads * (UPLOAD.fresh + UPLOAD.back)) / 100;
  const running = Promise.all([
    ...Array.from({ length: renderers }, (_, index) => renderer(index)),
    ...Array.from({ length: UPLOADERS }, () => atRate(uploads / UPLOAD_ROWS / UPLOADERS, upload)),
    ...Array.from({ length: UPLOADERS }, () => atRate(deletes / UPLOADERS, remove)),
    ...Array.from({ length: UPLOADERS }, () => atRate(edits / UPLOADERS, edit)),
  ]);
  return {
    tally,
    /** The claims since this was last asked. */
    takeClaims() {
      const taken = claims;
      claims = [];
      return taken;
    },
    /** So many rows there have ever been. */
    rowsEver: () => total,
    /** Who works: with `renderers` alone, no row comes or goes, and all report. @param {typeof mode} who */
    let(who) {
      mode = who;
    },
    /** Resolves when nobody works and all is answered. */
    async rest() {
      mode = 'nothing';
      while (active > 0) await sleep(20);
    },
    /** The leases of a process that was killed ended with it. */
    forgetLeases: () => leases.clear(),
    async stop() {
      ending = true;
      await running;
    },
  };
}

module.exports = { startChurn, indexOf };
