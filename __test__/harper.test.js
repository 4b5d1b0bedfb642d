'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { QueueKeeper } = require('..');
const exported = require('../lib/harper/index.js');
const { HarperNodes } = require('../lib/harper/nodes.js');
const { readOptions } = require('../lib/harper/options.js');
const { HarperQueue } = require('../lib/harper/queue.js');
const { createAdminResource, createMetricsResource, reply } = require('../lib/harper/routes.js');
const { HarperTable } = require('../lib/harper/table.js');
const { stateAnswer, QUESTION } = require('../lib/state-answer.js');
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

test('where there is no Harper, what needs one says so', () => {
  for (const call of [
    exported.startQueueKeeper,
    exported.adminResource,
    exported.metricsResource,
  ]) {
    assert.throws(() => call(), { name: 'TypeError', message: /^there is no .*Harper here: / });
  }
});

describe('options', () => {
  const harperOf = (config = {}) => ({ node: 'a.example', config });

  test('are the keeper’s own, checked, and the host’s; what Harper puts beside them is passed over', () => {
    const options = readOptions(
      {
        package: 'x',
        timeout: 5,
        files: 'y',
        routes: [],
        priority: { sitemapBoost: 3 },
        table: 'T',
      },
      harperOf({ rootPath: '/harper', http: { securePort: 9926, port: null } }),
    );
    assert.deepEqual(options.keeper, {
      node: 'a.example',
      routes: [],
      priority: { sitemapBoost: 3 },
    });
    assert.equal(options.table, 'T');
    assert.equal(options.snapshot, '/harper/prerender-queue-keeper/render_schedule.T.snapshot');
    assert.equal(options.peerUrl, 'https://{host}:9926');
    assert.equal(
      readOptions({ snapshot: false }, harperOf({ rootPath: '/x' })).snapshot,
      undefined,
    );
  });

  test('one that is taken out of the file goes back to its default', () => {
    const { changeable } = readOptions({ leases: { leaseMs: 5_000 } }, harperOf());
    const defaults = new QueueKeeper();
    defaults.configure(changeable);
    assert.deepEqual(changeable.leases, {
      leaseMs: 5_000,
      maxLeases: 8_192,
      releaseGraceMs: 5_000,
      missLimit: 3,
    });
    assert.deepEqual(Object.keys(changeable).sort(), [
      'defaultInterval',
      'excludePathPatterns',
      'leases',
      'priority',
      'routes',
    ]);
    defaults.close();
  });

  test('a wrong one is a TypeError that names it', () => {
    for (const [name, value] of Object.entries({
      verifyEveryMs: 5,
      snapshot: 7,
      peerUrl: 'no url',
      console: 'prerender_console',
      database: '',
      nodes: [],
      now: 5,
      defaultInterval: '1d',
      leases: { leaseMs: 0 },
      wrongName: 1,
    })) {
      const read = () => readOptions({ [name]: value }, harperOf());
      assert.throws(read, (/** @type {any} */ error) => {
        return error instanceof TypeError && error.message.includes(name);
      });
    }
  });

  test('one that is Harper’s own affair is refused, and what to do is said', () => {
    for (const [name, value] of Object.entries({ node: 'b.example', nodes: ['a.example'] })) {
      assert.throws(() => readOptions({ [name]: value }, harperOf()), {
        name: 'TypeError',
        message: new RegExp(`^${name} is not an option here: take it out`),
      });
    }
  });

  test('a component that classifies rows itself keeps its classifier over changes', () => {
    const classify = () => null;
    const { keeper, changeable } = readOptions({ classify, database: 'd' }, harperOf());
    assert.equal(keeper?.classify, classify);
    assert.deepEqual(Object.keys(changeable).sort(), ['leases', 'priority']);
  });

  test('a queue that nobody holds yet does not start with wrong ones, and says so', () => {
    const harper = { databases: {}, server: {}, threads: {}, transaction };
    assert.throws(() => HarperQueue.start({ database: 'nobody’s', defaultInterval: -1 }, harper), {
      name: 'TypeError',
      message: /defaultInterval/,
    });
  });
});

describe('a file of options that is seen while it is being written', () => {
  const HALVES = {
    'without the section': undefined,
    'with its name alone': null,
    'with none of its options': {},
  };
  for (const [what, half] of Object.entries(HALVES)) {
    test(`${what} changes nothing, at once or later, and what it says in the end holds`, async () => {
      const routes = [{ match: 'prefix', path: '/', renderInterval: 5_000 }];
      const double = new HarperDouble({ options: { routes }, folder, create: component });
      double.start();
      const explain = (key = 'https://shop.example/') =>
        double.request('POST', '/prerender_admin/explain', { body: { key } });
      const cadence = async () => (await explain()).body.cadenceMs;
      try {
        await until('the first feeder', async () => (await cadence()) === 5_000);
        double.see(undefined);
        double.see(half);
        await until('it to be said', () => /options are gone/.test(double.log()));
        assert.equal(await cadence(), 5_000);
        await double.setOptions({ routes: [{ ...routes[0], renderInterval: 6_000 }] });
        await until('the new cadence', async () => (await cadence()) === 6_000);
        // From here on Harper compares, and tells what is other.
        double.see(half);
        await double.setOptions({ leases: { maxLeases: 7 } });
        const { trust } = (await double.request('GET', '/prerender_admin/queue-state')).body;
        assert.equal(trust.phase, 'live');
        assert.equal(await cadence(), 6_000);
        assert.doesNotMatch(double.log(), /wrong/);
      } finally {
        await double.stop();
      }
    });
  }
});

test('where the folder of the snapshot cannot be made the queue is fed without one, at the start and by a reload, and that is said once', async () => {
  const file = path.join(folder, 'a regular file');
  fs.writeFileSync(file, '');
  const snapshot = path.join(file, 'below', 'queue.snapshot');
  const double = new HarperDouble({ options: { snapshot }, folder, create: component });
  const times = () => double.log().split('ENOTDIR').length - 1;
  const state = async () => (await double.request('GET', '/prerender_admin/queue-state')).body;
  const untilFed = (/** @type {number} */ epoch) =>
    until('a feeder, and all read', async () => {
      const { live, exact, keeper } = (await state()).trust;
      return live && exact && keeper.epoch > epoch && keeper;
    });
  double.start();
  try {
    const first = await untilFed(0);
    assert.equal(times(), 1, double.log());
    assert.match(double.log(), /name another file with the option snapshot/);
    await double.setOptions({ snapshot: path.join(folder, 'made', 'queue.snapshot') });
    const second = await untilFed(first.epoch);
    assert.ok(fs.existsSync(path.join(folder, 'made')));
    await double.setOptions({ snapshot });
    await untilFed(second.epoch);
    await double.write({ 'https://shop.example/': { nextRenderTime: 1 } });
    await until('the row', async () => (await state()).now.due === 1);
    assert.equal(times(), 2, double.log());
    assert.doesNotMatch(double.log(), /cannot feed/);
  } finally {
    await double.stop();
  }
});

test('a worker that answers before the one that feeds has started answers for nothing', async () => {
  const harper = {
    databases: {},
    server: { hostname: 'a', workerIndex: 1 },
    threads: {},
    transaction,
  };
  const queue = HarperQueue.start({ database: `early ${process.pid}` }, harper);
  const { live, phase, keeper } = queue.keeper.state().trust;
  assert.deepEqual([live, phase, keeper.epoch], [false, 'starting', 0]);
  assert.equal((await queue.claimJobs(1)).status, 'unready');
  await queue.stop();
});

describe('the nodes of a cluster', () => {
  /** @param {any} server @param {InstanceType<typeof TableDouble> | undefined} hdb_nodes */
  const nodesOf = (server, hdb_nodes) =>
    new HarperNodes({ harper: { server, databases: { system: { hdb_nodes } } }, log: () => {} });

  test('a node on its own waits for none', async () => {
    assert.deepEqual(nodesOf({ hostname: 'a' }, undefined).peers(), []);
    const nodes = nodesOf({ hostname: 'a', nodes: [] }, new TableDouble('name'));
    await until('the table to be read', () => nodes.peers()?.length === 0);
  });

  test('where hdb_nodes names another, it is waited for until it is seen', async () => {
    const table = new TableDouble('name');
    for (const name of ['a', 'b']) await table.put(name, { name });
    const server = { hostname: 'a', nodes: /** @type {any[]} */ ([]) };
    const nodes = nodesOf(server, table);
    assert.equal(nodes.peers(), null);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(nodes.peers(), null);
    server.nodes = [{}, { name: 'a' }, { name: 'b' }, { name: '' }, { name: 'b' }, null];
    assert.deepEqual(nodes.peers(), ['b']);
  });

  test('each is asked at the host that Harper names it by, and no other', () => {
    const seen = [{ name: 'b.example' }, { name: 'c', url: 'wss://c.example:9933' }, { name: 'a' }];
    const nodes = nodesOf({ hostname: 'a', nodes: seen }, undefined);
    assert.deepEqual(nodes.addresses('https://{host}:9926'), [
      { name: 'a', url: null },
      { name: 'b.example', url: 'https://b.example:9926' },
      { name: 'c', url: 'https://c.example:9926' },
    ]);
    assert.equal(nodes.addresses(undefined)[1].url, null);
  });
});

test('the nodes of a cluster are asked with what the caller is known by, a session’s cookie too, and nobody else is', async () => {
  /** @type {import('node:http').IncomingHttpHeaders[]} */
  const seen = [];
  const hostname = '127.0.0.1';
  const server = http.createServer(({ headers }, response) => {
    seen.push(headers);
    const isKnown = headers.cookie === 'hdb-session=1' || headers.authorization === 'Basic x';
    const keeper = new QueueKeeper({ node: hostname, nodes: ['localhost'] });
    const { status, headers: own, body } = stateAnswer(keeper, undefined, headers[QUESTION]);
    response.writeHead(isKnown ? status : 401, own).end(isKnown ? body : '');
    keeper.close();
  });
  await new Promise((resolve) => server.listen(0, hostname, () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const peerUrl = `http://{host}:${port}`;
  const double = new HarperDouble({ options: { peerUrl }, folder, create: component });
  double.start();
  try {
    await double.setNodes([hostname]);
    const ask = async (/** @type {object} */ headers) => {
      seen.length = 0;
      const path = '/prerender_admin/cluster-queue-state';
      const { body } = await double.request('GET', path, { headers });
      assert.equal(seen.length, 1);
      return body.nodes.find((/** @type {any} */ { node }) => node === hostname).reason;
    };
    assert.equal(await ask({}), 'refused');
    assert.equal(await ask({ authorization: 'Basic x' }), null);
    const other = { 'x-secret': 's', host: 'elsewhere', origin: 'http://elsewhere' };
    assert.equal(await ask({ cookie: 'hdb-session=1', ...other }), null);
    const [sent] = seen;
    assert.equal(sent.cookie, 'hdb-session=1');
    assert.equal(sent.host, `${hostname}:${port}`);
    assert.deepEqual([sent['x-secret'], sent.origin], [undefined, undefined]);
    // A node that Harper does not name is asked by nobody.
    seen.length = 0;
    await double.setNodes([]);
    await double.request('GET', '/prerender_admin/cluster-queue-state', {
      headers: { cookie: 'hdb-session=1' },
    });
    assert.equal(seen.length, 0);
  } finally {
    await double.stop();
    server.closeAllConnections();
    server.close();
  }
});

describe('a component on the queue keeper', () => {
  for (const { name, needsThreads, run } of CASES) {
    const skip = needsThreads && !harper && 'only where workers are threads';
    test(name, { skip }, () => run(host));
  }
});
