'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { HarperQueue } = require('../lib/harper/queue.js');
const { createAdminResource, createMetricsResource, reply } = require('../lib/harper/routes.js');
const { HarperTable } = require('../lib/harper/table.js');
const {
  HarperDouble,
  ResourceDouble,
  TableDouble,
  transaction,
} = require('./support/harper-double.js');
const { RealHarper } = require('./support/harper-real.js');
const { CASES } = require('./support/host-cases.js');
const { HARPER, PORT, runCase } = require('./support/port-cases.js');
const { until } = require('./support/until.js');

/** A real Harper: `npm run test:harper`. Without it, the double. */
const harper = process.env.QUEUE_TEST_HARPER;

/** What the example does when it is loaded: its resources, by name. @param {any} scope @param {any} harper */
function component(scope, harper) {
  const queue = HarperQueue.start(scope, harper);
  class RenderQueue extends ResourceDouble {
    /** @param {any} target @param {any} data */
    async post(target, data) {
      const route = target.id;
      if (!this.getContext().user) return { status: 401, headers: {}, data: { error: 'log in' } };
      const body = await data;
      return reply(() =>
        route === 'claim' ? queue.claimJobs(body?.limit) : queue.finishJob(body),
      );
    }
  }
  const resources = {
    prerender_admin: createAdminResource(() => queue, ResourceDouble),
    metrics: createMetricsResource(() => queue, ResourceDouble),
    render_queue: RenderQueue,
  };
  return { queue, resources };
}

const OPTIONS = {
  package: 'prerender-queue-keeper',
  console: '/prerender_console',
  routes: [{ match: 'prefix', path: '/product/', renderInterval: 172_800_000 }],
};
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-harper-test-'));
const host = harper
  ? new RealHarper(harper, OPTIONS)
  : new HarperDouble({ options: OPTIONS, folder, create: component });
before(() => host.start());
after(async () => {
  await host.stop();
  fs.rmSync(folder, { recursive: true });
});

/** @param {import('./support/port-cases.js').Case} one */
function runOnTable(one) {
  if (host instanceof RealHarper) return host.runCase(one.name);
  const raw = new TableDouble();
  const port = new HarperTable({ table: () => raw, transaction });
  const commit = (/** @type {(context: any) => any} */ work, context = {}) =>
    transaction(context, () => work(context));
  return runCase(one, { raw, port, commit, until });
}

describe('the port on a table of Harper', () => {
  for (const one of PORT) test(one.name, () => runOnTable(one));
});

test('a BigInt, as other versions of Harper have for Long columns, is read as a number', async () => {
  const columns = { nextRenderTime: 1_760_000_000_000n, effectiveInterval: 5n, urgentAt: null };
  const table = {
    primaryKey: 'cacheKey',
    get: async () => ({ toJSON: () => ({ ...columns }), getUpdatedTime: () => 7 }),
    async *search() {
      yield { $id: 'k', $updatedtime: 7, ...columns };
    },
  };
  const port = new HarperTable({ table: () => table, transaction });
  const read = { nextRenderTime: 1_760_000_000_000, effectiveInterval: 5, urgentAt: null };
  const expected = { ...read, cacheKey: 'k', version: 7 };
  assert.deepEqual(await port.get('k'), expected);
  assert.deepEqual(await port.walk({ limit: 5 }), [expected]);
});

describe('a table of Harper, as it is', () => {
  for (const one of HARPER) test(one.name, () => runOnTable(one));
});

describe('a component on the queue keeper', () => {
  for (const { name, needsThreads, run } of CASES) {
    const skip = needsThreads && !harper && 'only where workers are threads';
    test(name, { skip }, () => run(host));
  }
});
