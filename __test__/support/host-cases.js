'use strict';

/**
 * What a component on the queue keeper does, asked over its routes. The same cases run on the double of Harper and on
 * a real one; they build on one another, in this order.
 *
 * @typedef {{ status: number, headers: Record<string, string>, body: any }} Answer
 * @typedef {object} Host
 * @property {(method: string, path: string, options?: { user?: 'admin' | 'renderer' | null, body?: unknown, type?: string }) => Promise<Answer>} request
 * @property {(rows: Record<string, object | null>) => Promise<unknown>} write  past the queue keeper; null deletes
 * @property {(key: string) => Promise<any>} read
 * @property {(options: Record<string, any>, how?: 'renamed' | 'in place' | 'in two parts' | 'slowly') => Promise<unknown>} setOptions
 *   in the component's file, as it runs: renamed into place, if nothing else is said; `in two parts`: the second is not
 *   seen by itself; `slowly`: the first is seen alone
 * @property {() => string} log  what has been logged since the start
 * @property {(names: string[]) => Promise<unknown>} setNodes  those that Harper sees
 * @property {() => Promise<unknown>} restartWorkers
 * @property {() => Promise<unknown>} endFeeder  the worker that feeds ends without a word
 * @property {((ms: number) => Promise<unknown>) | null} stallFeeder  null where threads cannot be told apart
 * @property {(options?: Record<string, any>) => Promise<unknown>} restart  the whole process
 *
 * @typedef {{ name: string, needsThreads?: boolean, run: (host: Host) => Promise<void> }} Case
 */

const assert = require('node:assert/strict');
const { until } = require('./until.js');

const ROWS = 200;
const LONG = { withinMs: 60_000, everyMs: 100 };
const ADMIN = '/prerender_admin';

/** @param {number} i */
const keyOf = (i) => `https://shop.example/product/${String(i).padStart(4, '0')}`;

/** @param {Host} host */
async function stateOf(host) {
  const { status, body } = await host.request('GET', `${ADMIN}/queue-state`);
  return status === 200 ? body : null;
}

/** @param {Host} host @param {string} what @param {(state: any) => any} condition @param {number} [withinMs] */
function untilState(host, what, condition, withinMs = LONG.withinMs) {
  return until(
    what,
    async () => {
      const state = await stateOf(host);
      return state && condition(state) ? state : null;
    },
    { ...LONG, withinMs },
  );
}

/** @param {Host} host @param {number} limit */
async function claim(host, limit) {
  const { status, body } = await host.request('POST', '/render_queue/claim', { body: { limit } });
  assert.equal(status, 200, JSON.stringify(body));
  return body;
}

/** @param {Host} host @param {any} result */
function finish(host, result) {
  return host.request('POST', '/render_queue/job_result', { user: 'renderer', body: result });
}

/** @param {Host} host @param {string} key */
async function explain(host, key) {
  return (await host.request('POST', `${ADMIN}/explain`, { body: { key } })).body;
}

/** @type {Case[]} */
const CASES = [
  {
    name: 'what is written to the table by anybody is in the queue, and the state counts it',
    async run(host) {
      await untilState(host, 'an empty queue', ({ trust }) => trust.live);
      const rows = Object.fromEntries(
        Array.from({ length: ROWS }, (_, i) => [
          keyOf(i),
          { nextRenderTime: 60_000 * (i + 1), fromSitemap: i % 2 === 0 },
        ]),
      );
      await host.write(rows);
      const state = await untilState(host, 'all rows', ({ now }) => now.due === ROWS);
      assert.deepEqual([state.now.dueSitemap, state.now.dueDiscovered], [ROWS / 2, ROWS / 2]);
      assert.equal(state.trust.keeper.rows, ROWS);
      assert.equal(state.trust.exact, true);
    },
  },
  {
    name: 'the admin routes are for super-users: 401 without a user, 403 for another; never stored by a cache',
    async run(host) {
      for (const [method, path] of [
        ['GET', `${ADMIN}/queue-state`],
        ['GET', `${ADMIN}/cluster-queue-state`],
        ['POST', `${ADMIN}/explain`],
        ['POST', `${ADMIN}/pause`],
        ['POST', `${ADMIN}/resume`],
        ['GET', '/metrics'],
      ]) {
        const body = method === 'POST' ? { key: 'k' } : undefined;
        const without = await host.request(method, path, { user: null, body });
        assert.equal(without.status, 401, path);
        assert.equal(typeof without.body.error, 'string');
        assert.match(without.headers['www-authenticate'] ?? '', /^Basic/i);
        const other = await host.request(method, path, { user: 'renderer', body });
        assert.equal(other.status, 403, path);
        assert.match(other.body.error, /super-user/);
        for (const { headers } of [without, other]) {
          assert.equal(headers['cache-control'], 'no-store');
          assert.match(headers['content-type'], /^application\/json/);
        }
      }
      assert.equal((await stateOf(host)).now.paused, false);
      const renderer = await host.request('POST', '/render_queue/claim', { user: null, body: {} });
      assert.equal(renderer.status, 401);
    },
  },
  {
    name: 'a wrong request is told what to do: 404 with the routes, 405 with the methods, 415, 422',
    async run(host) {
      const nowhere = await host.request('GET', `${ADMIN}/nothing`);
      assert.equal(nowhere.status, 404);
      assert.ok(nowhere.body.routes.includes('queue-state'));
      const method = await host.request('POST', `${ADMIN}/queue-state`, { body: {} });
      assert.deepEqual([method.status, method.headers.allow], [405, 'GET']);
      const key = await host.request('POST', `${ADMIN}/explain`, { body: { key: 7 } });
      assert.equal(key.status, 422);
      const type = { body: '{}', type: 'text/plain' };
      assert.equal((await host.request('POST', `${ADMIN}/pause`, type)).status, 415);
      for (const limit of [0, -1, 1.5, '5', 10_001]) {
        const body = { limit };
        assert.equal((await host.request('POST', '/render_queue/claim', { body })).status, 422);
      }
      for (const wrong of [
        {},
        { key: keyOf(0) },
        { key: keyOf(0), token: 5, outcome: 'lost' },
        { key: keyOf(0), token: 5, outcome: 'rendered', nextRenderTime: -1 },
      ]) {
        assert.equal((await finish(host, wrong)).status, 422);
      }
    },
  },
  {
    name: 'no job is given out twice, the most overdue come first, and a stale row is repaired instead of rendered',
    async run(host) {
      const claims = await Promise.all(Array.from({ length: 10 }, () => claim(host, 5)));
      const keys = claims.flatMap(({ jobs }) => jobs.map((/** @type {any} */ job) => job.key));
      assert.equal(keys.length, 50);
      assert.equal(new Set(keys).size, 50);
      const best = Array.from({ length: 50 }, (_, i) => keyOf(2 * i));
      assert.deepEqual(new Set(keys), new Set(best));
      assert.equal((await stateOf(host)).now.inFlight, 50);
    },
  },
  {
    name: 'a result writes its row: rendered a cadence on, gone deletes, a lease that has ended is 409',
    async run(host) {
      const [first, second, third] = (await claim(host, 3)).jobs;
      const before = Date.now();
      const { body, status } = await finish(host, { ...first, outcome: 'rendered' });
      assert.deepEqual([status, body.release, body.written], [200, 'released', true]);
      const row = await host.read(first.key);
      assert.equal(row.nextRenderTime, body.nextRenderTime);
      assert.ok(row.nextRenderTime >= before + 172_800_000);
      const again = await finish(host, { ...first, outcome: 'rendered' });
      assert.deepEqual([again.status, again.body.release], [409, 'unknown']);
      assert.equal((await finish(host, { ...second, outcome: 'gone' })).body.gone, true);
      assert.equal(await host.read(second.key), null);
      const at = 60_000 * Math.floor(Date.now() / 60_000 + 90);
      await finish(host, { ...third, outcome: 'failed', nextRenderTime: at });
      assert.equal((await host.read(third.key)).nextRenderTime, at);
      await until('the queue to have heard', async () => {
        const kept = await Promise.all([first, second, third].map(({ key }) => explain(host, key)));
        return !kept[0].due && !kept[1].kept && kept[2].dueAt === at;
      });
    },
  },
  {
    name: 'a trigger that comes while its page is being rendered is not answered by that result',
    async run(host) {
      const [job] = (await claim(host, 1)).jobs;
      const row = await host.read(job.key);
      const changedAt = Date.now() + 1;
      await host.write({ [job.key]: { ...row, changedAt, nextRenderTime: 1 } });
      await finish(host, { ...job, outcome: 'rendered' });
      const after = await host.read(job.key);
      assert.deepEqual([after.changedAt, after.nextRenderTime], [changedAt, 1]);
      await until('it to be due and changed', async () => {
        const { due, changed } = await explain(host, job.key);
        return due && changed;
      });
    },
  },
  {
    name: 'metrics are OpenMetrics, and the cluster of one node is its own state',
    async run(host) {
      const metrics = await host.request('GET', '/metrics');
      assert.equal(metrics.status, 200);
      assert.match(metrics.headers['content-type'], /^application\/openmetrics-text/);
      assert.match(metrics.body, /^# TYPE [\s\S]*# EOF\n$/);
      const { status, body } = await host.request('GET', `${ADMIN}/cluster-queue-state`);
      assert.equal(status, 200);
      assert.equal(body.kind, 'cluster');
      assert.equal(body.now.due, (await stateOf(host)).now.due);
    },
  },
  {
    name: 'the console is served at its path, fenced in, without a log-in',
    async run(host) {
      const page = await host.request('GET', '/prerender_console/', { user: null });
      assert.equal(page.status, 200);
      assert.match(page.headers['content-type'], /^text\/html/);
      assert.match(page.headers['content-security-policy'], /default-src 'none'/);
      assert.match(page.body, /<html/);
      const script = await host.request('GET', '/prerender_console/main.js', { user: null });
      assert.match(script.headers['content-type'], /^text\/javascript/);
    },
  },
  {
    name: 'options that change in the file hold without a restart; wrong ones are left, and those before stay',
    async run(host) {
      const cadence = async () => (await explain(host, keyOf(1))).cadenceMs;
      assert.equal(await cadence(), 172_800_000);
      const routes = [{ match: 'prefix', path: '/product/', renderInterval: 3_600_000 }];
      await host.setOptions({ routes, leases: { maxLeases: 60 } });
      await until('the new cadence', async () => (await cadence()) === 3_600_000, LONG);
      await until('the new limit', async () => (await claim(host, 100)).refused === 'limit', LONG);
      await host.setOptions({ routes: [], defaultInterval: -1 });
      await until(
        'the wrong one to be said',
        () => /options are wrong.*defaultInterval must be a finite number/.test(host.log()),
        LONG,
      );
      await host.setOptions({ routes, defaultInterval: 7_200_000, leases: { maxLeases: 61 } });
      await until('one more lease', async () => (await claim(host, 100)).jobs.length === 1, LONG);
      assert.equal(await cadence(), 3_600_000);
      await host.setOptions({ routes: null, leases: null });
      await until('the default', async () => (await cadence()) === 7_200_000, LONG);
      assert.equal((await stateOf(host)).trust.keeper.repairedTotal, 0);
    },
  },
  {
    name: 'options of a file that is written in place hold, too; while it is half written those before stay',
    async run(host) {
      const cadence = async () => (await explain(host, keyOf(1))).cadenceMs;
      const before = await cadence();
      for (let i = 1; i <= 10; i++) {
        const defaultInterval = 3_600_000 + i;
        await host.setOptions({ defaultInterval }, i % 2 ? 'in place' : 'in two parts');
        await until(`edit ${i}`, async () => (await cadence()) === defaultInterval, LONG);
      }
      await host.setOptions({ defaultInterval: before }, 'slowly');
      assert.match(host.log(), /the options are gone from the file: those before stay/);
      await until('what it says in the end', async () => (await cadence()) === before, LONG);
    },
  },
  {
    name: 'when the workers are restarted another feeds, and what is written meanwhile is in the queue',
    async run(host) {
      const { epoch } = (await stateOf(host)).trust.keeper;
      let restarted = false;
      const restarting = host.restartWorkers().then(() => {
        restarted = true;
      });
      let written = 0;
      while (!restarted || written < 50) {
        const rows = { [keyOf(1_000 + written)]: { nextRenderTime: 60_000 } };
        // A worker that ends takes the request with it: it is written again.
        await until('the row to be written', () => host.write(rows).then(() => true), LONG);
        written += 1;
      }
      await restarting;
      await untilState(host, 'another feeder, and a walk that finds nothing', ({ trust }) => {
        return trust.keeper.epoch > epoch && trust.keeper.verify && trust.exact;
      });
      const last = await explain(host, keyOf(1_000 + written - 1));
      assert.equal(last.kept, true);
    },
  },
  {
    name: 'when the worker that feeds ends without a word another feeds, and claims go on',
    async run(host) {
      const { epoch } = (await stateOf(host)).trust.keeper;
      await host.endFeeder();
      // A request that the worker takes with it is sent again.
      const row = { [keyOf(5_000)]: { nextRenderTime: 60_000 } };
      await until('the row to be written', () => host.write(row).then(() => true), LONG);
      await until('a claim', async () => (await claim(host, 1)).jobs.length === 1, LONG);
      await untilState(host, 'another feeder', ({ trust }) => {
        return trust.keeper.epoch > epoch && !trust.keeper.resyncing;
      });
      await until('the row', async () => (await explain(host, keyOf(5_000))).kept, LONG);
    },
  },
  {
    name: 'a worker that starts while the file is wrong is one of the others, with the options that they have',
    async run(host) {
      const { keeper } = (await stateOf(host)).trust;
      await host.setOptions({ leases: { maxLeases: 'many' } });
      await until('it to be said', () => /maxLeases must be a whole number/.test(host.log()), LONG);
      await host.endFeeder();
      await until('the new worker', () => /those of the other workers hold/.test(host.log()), LONG);
      const state = await untilState(host, 'another feeder', ({ trust }) => {
        return trust.keeper.epoch > keeper.epoch && !trust.keeper.resyncing;
      });
      assert.equal(state.trust.keeper.rows, keeper.rows);
      assert.equal((await explain(host, keyOf(1))).cadenceMs, 7_200_000);
      await host.setOptions({ leases: { maxLeases: 500 } });
      const claimed = () => host.request('POST', '/render_queue/claim', { body: { limit: 1 } });
      for (let i = 0; i < 6; i++) assert.equal((await claimed()).status, 200);
    },
  },
  {
    name: 'when the worker that feeds stands still another takes over, and claims go on meanwhile',
    needsThreads: true,
    async run(host) {
      const { epoch } = (await stateOf(host)).trust.keeper;
      await host.stallFeeder?.(20_000);
      assert.equal((await claim(host, 1)).jobs.length, 1);
      await untilState(host, 'another feeder', ({ trust }) => {
        return trust.keeper.epoch > epoch && !trust.keeper.resyncing;
      });
      await host.write({ [keyOf(6_000)]: { nextRenderTime: 60_000 } });
      await until('the row', async () => (await explain(host, keyOf(6_000))).kept, LONG);
    },
  },
  {
    name: 'a node that Harper comes to see gets its share of the rows; a list that is empty for a while changes nothing',
    async run(host) {
      const { keeper } = (await untilState(host, 'a whole queue', ({ trust }) => trust.exact))
        .trust;
      await host.setNodes(['another.example']);
      const shared = await untilState(host, 'the ring of two', ({ trust }) => {
        return trust.keeper.ring.length === 2 && !trust.keeper.resyncing;
      });
      const { rows } = shared.trust.keeper;
      assert.ok(rows > 0 && rows < keeper.rows, `${rows} of ${keeper.rows}`);
      assert.equal(shared.trust.keeper.repairedTotal, keeper.repairedTotal);
      const cluster = await host.request('GET', `${ADMIN}/cluster-queue-state`);
      assert.equal(cluster.status, 503);
      assert.match(cluster.body.error, /another\.example/);
      await host.setNodes([]);
      const checked = shared.trust.keeper.topCheck.at;
      // Once a minute.
      await untilState(
        host,
        'a later look',
        ({ trust }) => trust.keeper.topCheck.at > checked + 1_500,
        2 * LONG.withinMs,
      );
      assert.equal((await stateOf(host)).trust.keeper.rows, rows);
    },
  },
  {
    name: 'paused stays paused when Harper is started again; the state is 503, and why, until the table is there',
    async run(host) {
      const paused = await host.request('POST', `${ADMIN}/pause`, { body: {} });
      assert.deepEqual(paused.body, { paused: true, status: 'paused', kept: true });
      await host.restart({ table: 'Missing' });
      const answer = await until(
        'a failed load',
        async () => {
          const state = await host.request('GET', `${ADMIN}/queue-state`);
          return state.status === 503 && state.body.trust?.phase === 'failed' ? state : null;
        },
        LONG,
      );
      assert.equal(answer.headers['cache-control'], 'no-store');
      assert.equal(answer.headers['retry-after'], '1');
      assert.match(answer.body.error, /Missing/);
      assert.equal(answer.body.now.due, undefined);
      await host.restart({ table: 'RenderSchedule' });
      const state = await untilState(host, 'the whole queue', ({ now }) => now.due > 0);
      assert.equal(state.now.paused, true);
      assert.equal((await claim(host, 1)).refused, 'paused');
      await host.request('POST', `${ADMIN}/resume`, { body: {} });
      assert.equal((await claim(host, 1)).jobs.length, 1);
    },
  },
];

module.exports = { CASES };
