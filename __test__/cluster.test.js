'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const { after, describe, test } = require('node:test');
const { clusterAnswer } = require('../lib/cluster.js');
const { stateAnswer, QUESTION } = require('../lib/state-answer.js');
const { assertAddsUp } = require('./support/compare.js');
const { ask, at, startHost } = require('./support/host.js');
const { HOUR, MINUTE, START, gone, manual, put } = require('./support/keepers.js');
const { random } = require('./support/random-ops.js');
const { until } = require('./support/until.js');

/** @typedef {import('node:net').AddressInfo} AddressInfo */

const NAMES = ['n1.example.com', 'n2.example.com', 'n3.example.com'];
const STATE = '/prerender_admin/queue-state';
const CLUSTER = '/prerender_admin/cluster-queue-state';

/** @type {Set<http.Server>} */
const servers = new Set();
after(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

/**
 * A node as others see it: a real server that answers as it is told.
 *
 * @param {(request: http.IncomingMessage, response: http.ServerResponse) => void} answer
 * @param {boolean} [isAnswering]  this very question
 */
async function serve(answer, isAnswering = true) {
  const server = http.createServer((request, response) => {
    const question = request.headers[QUESTION];
    if (isAnswering && question) response.setHeader(QUESTION, question);
    answer(request, response);
  });
  servers.add(server);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const url = `http://127.0.0.1:${/** @type {AddressInfo} */ (server.address()).port}`;
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url, stop };
}

/** The state route of a keeper. @param {any} keeper @param {(document: any) => void} [change] */
function serveState(keeper, change) {
  return serve((_, response) => {
    const { status, headers, body } = stateAnswer(keeper);
    const document = JSON.parse(body);
    change?.(document);
    response.writeHead(status, headers).end(JSON.stringify(document));
  });
}

/** @param {any} [options] */
const ringOf = (options = {}) =>
  NAMES.map((node) => manual({ node, nodes: NAMES, maxListed: 200, ...options }));

/**
 * What the first node answers when it asks the others.
 *
 * @param {any} own
 * @param {(string | null)[]} urls  of the others
 * @param {Partial<import('../lib/cluster.js').ClusterOptions>} [options]
 */
async function askCluster(own, urls, options = {}) {
  const nodes = NAMES.map((name, i) => ({ name, url: i === 0 ? null : urls[i - 1] }));
  const answer = await clusterAnswer({
    node: NAMES[0],
    nodes,
    own: () => stateAnswer(own),
    ...options,
  });
  assert.equal(answer.headers['cache-control'], 'no-store');
  assert.equal(answer.headers['content-type'], 'application/json');
  assert.equal(answer.headers['retry-after'], answer.status === 503 ? '1' : undefined);
  return { status: answer.status, document: JSON.parse(answer.body) };
}

/** Asks about real keepers over real HTTP. @param {any[]} keepers @param {any} [options] */
async function askAbout(keepers, options) {
  const leaves = await Promise.all(keepers.slice(1).map((keeper) => serveState(keeper)));
  return askCluster(
    keepers[0],
    leaves.map(({ url }) => url),
    options,
  );
}

/**
 * Random rows, writes, deletions and claims, on all nodes of a ring and on one keeper that is alone.
 *
 * @param {number} seed
 */
function lives(seed) {
  const r = random(seed);
  const routes = [
    { match: 'prefix', path: '/p/', renderInterval: HOUR },
    { match: 'prefix', path: '/c/', renderInterval: 6 * HOUR },
    { match: 'contains', path: 'x', renderInterval: 20 * MINUTE },
  ];
  const nodes = ringOf({ routes });
  const alone = manual({ node: 'alone', routes });
  const all = [...nodes, alone];
  let now = START;
  for (let step = 0; step < 1_500; step++) {
    const key = `https://shop.example/${r.pick(['p', 'c', 'x', 'q'])}/${r.int(400)}${r.pick(['', '|desktop', '|mobile'])}`;
    const event = r.chance(0.1)
      ? gone(key)
      : put(key, {
          nextRenderTime: now + r.between(-600, 300) * MINUTE,
          fromSitemap: r.chance(0.6),
          effectiveInterval: r.chance(0.2) ? r.pick([5 * MINUTE, HOUR]) : null,
          changedAt: r.chance(0.2) ? now : null,
          urgentAt: r.chance(0.1) ? now : null,
          demandPeriod: r.chance(0.5) ? r.pick([HOUR, 2 * HOUR]) : null,
        });
    for (const keeper of all) keeper.apply(event);
    if (r.chance(0.03)) r.pick(nodes).claim(r.between(1, 20));
    if (r.chance(0.02)) {
      now += r.between(1, 4) * MINUTE;
      for (const keeper of all) keeper.setNow(now);
    }
  }
  return { nodes, alone };
}

/** What tells a class apart. @param {any} one */
const identity = ({
  rows: _rows,
  due: _due,
  oldestDueAt: _at,
  oldestLatenessCadences: _late,
  ...one
}) => JSON.stringify(one);
/** @param {any[]} list @param {(one: any) => string} by */
const sorted = (list, by) => [...list].sort((a, b) => (by(a) < by(b) ? -1 : 1));

describe('the sum of all nodes', () => {
  test('is what one queue with all the rows would say, over random lives', async () => {
    for (let seed = 1; seed <= 12; seed++) {
      const { nodes, alone } = lives(seed);
      const { status, document } = await askAbout(nodes);
      assert.equal(status, 200);
      const one = alone.state();
      const { now, lateness } = document;
      for (const field of [
        'due',
        'dueSitemap',
        'dueDiscovered',
        'dueChanged',
        'oldestChangedAt',
        'dueUrgent',
        'oldestUrgentAt',
        'changedByDemand',
        'paused',
        'status',
      ]) {
        assert.deepEqual(now[field], one.now[field], `seed ${seed}: now.${field}`);
      }
      assert.deepEqual(document.coming, one.coming, `seed ${seed}: coming`);
      assert.deepEqual(document.flow, one.flow, `seed ${seed}: flow`);
      for (const field of [
        'edges',
        'sitemap',
        'discovered',
        'oldestDueAt',
        'nextDueAt',
        'byRoute',
      ]) {
        assert.deepEqual(lateness[field], one.lateness[field], `seed ${seed}: lateness.${field}`);
      }
      // Classes that are equally late come in the order of their age, which no document tells.
      const withoutRows = (/** @type {any} */ { rows: _, ...rest }) => rest;
      assert.deepEqual(
        sorted(lateness.classes.map(withoutRows), identity),
        sorted(one.lateness.classes.map(withoutRows), identity),
        `seed ${seed}: classes`,
      );
      const late = lateness.classes.map((/** @type {any} */ each) => each.oldestLatenessCadences);
      assert.deepEqual(
        late,
        [...late].sort((a, b) => b - a),
        'the latest first',
      );
      assertAddsUp({
        ...document,
        now: { ...now, unclaimed: Math.max(0, now.due - now.inFlight) },
      });
      assert.equal(
        document.nodes.reduce(
          (/** @type {number} */ n, /** @type {any} */ { keeper }) => n + keeper.rows,
          0,
        ),
        alone.size,
      );
    }
  });

  test('has every count of the nodes added up, ages at the oldest, and each node beside it', async () => {
    const { nodes } = lives(99);
    const [paused] = nodes;
    paused.pause();
    const { document } = await askAbout(nodes);
    const states = nodes.map((/** @type {any} */ keeper) => keeper.state());
    const total = (/** @type {(state: any) => number} */ of) =>
      states.reduce((/** @type {number} */ n, /** @type {any} */ state) => n + of(state), 0);
    for (const field of ['due', 'inFlight', 'heldKeys', 'heldDue', 'unclaimed', 'leasesLeft']) {
      assert.equal(
        document.now[field],
        total(({ now }) => now[field]),
        field,
      );
    }
    assert.ok(document.now.inFlight > 0 && document.now.unclaimed > 0);
    for (const one of document.lateness.classes) {
      const same = states
        .flatMap(({ lateness }) => lateness.classes)
        .filter((each) => identity(each) === identity(one));
      assert.equal(
        one.rows,
        same.reduce((n, { rows }) => n + rows, 0),
      );
    }
    assert.deepEqual([document.now.paused, document.now.status], [true, 'queued']);
    const { source, live, exact, stateAt, stateAgeMs, maxAgeMs } = document.trust;
    assert.deepEqual(
      [source, live, exact, stateAgeMs, maxAgeMs],
      ['cluster', true, true, 0, 5_000],
    );
    assert.equal(stateAt, Math.min(...states.map(({ trust }) => trust.stateAt)));
    assert.deepEqual(
      [document.schema, document.kind, document.node, document.ring],
      [1, 'cluster', NAMES[0], NAMES],
    );
    for (const [i, node] of document.nodes.entries()) {
      const { now, lateness } = states[i];
      assert.deepEqual([node.node, node.ok, node.reason, node.error], [NAMES[i], true, null, null]);
      assert.deepEqual(node.now, {
        due: now.due,
        inFlight: now.inFlight,
        heldKeys: now.heldKeys,
        heldDue: now.heldDue,
        unclaimed: now.unclaimed,
        leasesLeft: now.leasesLeft,
        paused: i === 0,
        status: i === 0 ? 'paused' : 'queued',
        drainEtaMs: now.drainEtaMs,
      });
      assert.deepEqual([node.ring, node.oldestDueAt], [NAMES, lateness.oldestDueAt]);
      assert.deepEqual([node.phase, node.live, node.exact], ['live', true, true]);
      for (const field of [
        'rows',
        'carriedRows',
        'gainedTotal',
        'lostTotal',
        'repairedTotal',
        'unverifiedRows',
        'epoch',
        'bytes',
      ]) {
        assert.equal(typeof node.keeper[field], 'number', field);
      }
    }
  });

  test('drains when its slowest node has, and never where one never does', async () => {
    const nodes = ringOf({ defaultInterval: MINUTE });
    for (const [i, keeper] of nodes.entries()) {
      const keys = Array.from({ length: 600 }, (_, n) => `https://shop.example/${n}`).filter(
        (key) => keeper.explain(key).reason !== 'not-owned',
      );
      const load = keeper.beginWalk('load');
      load.rows(keys.map((cacheKey) => ({ cacheKey, nextRenderTime: START - HOUR })));
      load.end();
      for (const key of keys.slice(0, 10 * (i + 1)))
        keeper.apply(put(key, { nextRenderTime: START + 24 * HOUR }));
      keeper.setNow(START + 2 * MINUTE);
    }
    const etas = nodes.map((keeper) => keeper.state().now.drainEtaMs);
    assert.equal(new Set(etas).size, 3, String(etas));
    assert.equal((await askAbout(nodes)).document.now.drainEtaMs, Math.max(...etas));
    nodes[1].setNow(START + 30 * MINUTE);
    assert.equal(nodes[1].state().now.drainEtaMs, null);
    assert.equal((await askAbout(nodes)).document.now.drainEtaMs, null);
  });

  test('cuts its lists to 200, and says so; what a node had to leave out of its own shows as a sum that is at least so much', async () => {
    const nodes = ringOf();
    for (const keeper of nodes) {
      for (let i = 0; i < 900; i++) {
        keeper.apply(
          put(`https://shop.example/${i}`, {
            nextRenderTime: START - HOUR,
            effectiveInterval: MINUTE + i,
          }),
        );
      }
    }
    const { document } = await askAbout(nodes);
    assert.equal(document.lateness.listsTruncated, true);
    assert.equal(document.lateness.classes.length, 200);
    assert.deepEqual(
      document.lateness.byRoute.map((/** @type {any} */ { route, due, atLeast }) => [
        route,
        due,
        atLeast,
      ]),
      [['unrouted', 900, undefined]],
    );
    assert.ok(
      document.lateness.classes.every((/** @type {any} */ { atLeast }) => atLeast),
      'each class is on one node only',
    );

    const short = ringOf({ maxListed: 1, routes: [{ match: 'prefix', path: '/p/' }] });
    const rows = { p: [3, 1, 2], q: [1, 3, 0] };
    for (const [path, counts] of Object.entries(rows)) {
      for (const [i, keeper] of short.entries()) {
        for (let n = 0; keeper.size < counts[i] + (path === 'q' ? rows.p[i] : 0); n++) {
          keeper.apply(put(`https://shop.example/${path}/${n}`));
        }
      }
    }
    const cut = (await askAbout(short)).document;
    assert.deepEqual(
      cut.lateness.byRoute.map((/** @type {any} */ { route, due, atLeast }) => [
        route,
        due,
        atLeast,
      ]),
      [
        ['route:prefix:/p/', 5, true],
        ['unrouted', 3, true],
      ],
    );
    assert.deepEqual([cut.now.due, cut.lateness.listsTruncated], [10, true]);
    const whole = ringOf();
    whole[0].apply(put('https://shop.example/'));
    assert.equal((await askAbout(whole)).document.lateness.listsTruncated, false);
  });

  test('of one node alone is its own state', async () => {
    const keeper = manual({ node: 'only' });
    keeper.apply(put('a'));
    const { status, body } = await clusterAnswer({
      node: 'only',
      nodes: [],
      own: () => stateAnswer(keeper),
    });
    const { ring, now, nodes } = JSON.parse(body);
    assert.deepEqual(
      [status, ring, now.due, nodes.length, nodes[0].answeredMs],
      [200, ['only'], 1, 1, 0],
    );
    assert.deepEqual(now, keeper.state().now);
  });
});

describe('no total', () => {
  const [a, b, c] = ringOf();
  for (const keeper of [a, b, c])
    for (let i = 0; i < 50; i++) keeper.apply(put(`https://shop.example/${i}`));

  /**
   * @param {string} reason
   * @param {RegExp} says
   * @param {{ status: number, document: any }} answered
   */
  function assertRefused(reason, says, { status, document }) {
    assert.equal(status, 503, JSON.stringify(document).slice(0, 500));
    assert.match(document.error, /^no total: n2\.example\.com /);
    assert.match(document.error, says);
    const [first, second, third] = document.nodes;
    assert.deepEqual([second.node, second.ok, second.reason], [NAMES[1], false, reason]);
    assert.equal(document.error, `no total: ${second.error}`);
    assert.deepEqual([first.ok, third.ok], [true, true]);
    assert.ok(third.now.due > 0, 'what is known of the others stays');
    for (const field of ['now', 'coming', 'lateness', 'flow', 'trust']) {
      assert.equal(field in document, false, `no ${field}`);
    }
    return second;
  }

  /** @param {(request: http.IncomingMessage, response: http.ServerResponse) => void} answer @param {any} [options] */
  async function withSecond(answer, options) {
    const second = await serve(answer);
    const third = await serveState(c);
    try {
      return await askCluster(a, [second.url, third.url], options);
    } finally {
      await second.stop();
    }
  }

  /** @param {(document: any) => void} change */
  async function withChanged(change) {
    return withSecond((_, response) => {
      const document = b.state();
      change(document);
      response.writeHead(document.trust?.live === false ? 503 : 200).end(JSON.stringify(document));
    });
  }

  test('where a node cannot be reached, or has no address', async () => {
    const dead = await serve(() => {});
    await dead.stop();
    const third = await serveState(c);
    const answered = await askCluster(a, [dead.url, third.url]);
    const { now, phase, answeredMs } = assertRefused(
      'unreachable',
      /cannot be reached \(.*ECONNREFUSED/,
      answered,
    );
    assert.deepEqual([now, phase, answeredMs], [null, null, null]);
    assertRefused('unreachable', /no address/, await askCluster(a, [null, third.url]));
  });

  test('where a node hangs: within the deadline, its headers or its body', async () => {
    const hangs = [
      () => {},
      (/** @type {any} */ _, /** @type {http.ServerResponse} */ response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.write('{"schema":1,');
      },
    ];
    for (const hang of hangs) {
      const began = performance.now();
      const answered = await withSecond(hang, { timeoutMs: 150 });
      assertRefused('timeout', /does not answer \(timed out after 150 ms\)/, answered);
      assert.ok(performance.now() - began < 30_000);
    }
  });

  test('but not where each waits for the other to be asked: they are asked side by side', async () => {
    /** @type {(() => void)[]} */
    const waiting = [];
    const leaves = await Promise.all(
      [b, c].map((keeper) =>
        serve((_, response) => {
          const { status, headers, body } = stateAnswer(keeper);
          waiting.push(() => response.writeHead(status, headers).end(body));
          if (waiting.length === 2) for (const answer of waiting) answer();
        }),
      ),
    );
    const urls = leaves.map(({ url }) => url);
    assert.equal((await askCluster(a, urls, { timeoutMs: 20_000 })).status, 200);
  });

  test('where a node breaks off, sends what is no JSON, no UTF-8, another document, or nothing', async () => {
    assertRefused(
      'unreachable',
      /broke off|cannot be reached/,
      await withSecond((_, response) => {
        response.writeHead(200, { 'content-length': '1000' });
        response.write('{');
        response.socket?.destroy();
      }),
    );
    const bodies = [
      '',
      'garbage',
      '{"schema":1',
      'null',
      '[]',
      '"x"',
      '5',
      '{}',
      '<html>',
      '{"__proto__":{"node":"x"}}',
    ];
    for (const body of [...bodies, Buffer.of(0x22, 0xff, 0x22)]) {
      assertRefused(
        'malformed',
        /does not answer/,
        await withSecond((_, response) => response.end(body)),
      );
    }
  });

  test('where a node sends 100 MB, as soon as that is seen, and whether or not it says so', async () => {
    const chunk = Buffer.alloc(64 * 1024, 0x20);
    for (const headers of [{ 'content-length': String(100 * 2 ** 20) }, {}]) {
      let sent = 0;
      const answered = await withSecond((_, response) => {
        response.writeHead(200, headers);
        const more = () => {
          while (sent < 100 * 2 ** 20 && !response.destroyed) {
            sent += chunk.length;
            if (!response.write(chunk)) return void response.once('drain', more);
          }
          response.end();
        };
        more();
      });
      assertRefused('malformed', /more than 4194304 bytes/, answered);
      assert.ok(sent < 50 * 2 ** 20, `${sent} bytes were sent`);
    }
  });

  test('where a node redirects: nobody goes there, least of all with the credentials', async () => {
    let asked = 0;
    const elsewhere = await serve((_, response) => {
      asked += 1;
      response.end('{}');
    });
    for (const status of [301, 302, 303, 307, 308]) {
      const answered = await withSecond(
        (_, response) => response.writeHead(status, { location: `${elsewhere.url}${STATE}` }).end(),
        { headers: { authorization: 'Bearer secret' } },
      );
      assertRefused('refused', /redirect/, answered);
    }
    assert.equal(asked, 0);
  });

  test('where a node does not take the credentials, or answers otherwise', async () => {
    for (const [status, says] of /** @type {const} */ ([
      [401, /does not take these credentials \(401\)/],
      [403, /does not take these credentials \(403\)/],
      [404, /answers with 404/],
      [500, /answers with 500/],
      [204, /answers with 204/],
    ])) {
      const answered = await withSecond((_, response) => response.writeHead(status).end());
      assertRefused('refused', says, answered);
    }
  });

  test('where a node is not live: its phase, and no counts', async () => {
    for (const [phase, says] of /** @type {const} */ ([
      ['starting', /is starting/],
      ['waiting-for-peers', /is waiting to see another node/],
      ['loading', /is loading/],
      ['failed', /failed to load, and tries again: the disk is gone/],
      ['stopped', /is stopped/],
    ])) {
      const keeper = manual({ node: NAMES[1], nodes: NAMES });
      keeper.apply(put('a'));
      keeper.setPhase(phase, { error: 'the disk is gone' });
      const second = await serveState(keeper);
      const third = await serveState(c);
      const summary = assertRefused('not-live', says, await askCluster(a, [second.url, third.url]));
      assert.deepEqual([summary.phase, summary.live, summary.exact], [phase, false, false]);
      assert.deepEqual(
        [summary.now.due, summary.now.inFlight, summary.now.paused],
        [null, null, false],
      );
      assert.equal(summary.oldestDueAt, null);
      assert.equal(summary.keeper.rows, keeper.size);
    }
    assertRefused(
      'not-live',
      /is not ready: no worker is ready yet/,
      await withSecond((_, response) =>
        response.writeHead(503).end('{"error":"no worker is ready yet"}'),
      ),
    );
    const own = manual({ node: NAMES[0], nodes: NAMES });
    own.setPhase('loading');
    const { status, document } = await askAbout([own, b, c]);
    assert.deepEqual([status, document.error], [503, 'no total: n1.example.com is loading']);
  });

  test('where a state is older than it may be', async () => {
    const answered = await withChanged(({ trust }) => Object.assign(trust, { stateAgeMs: 5_001 }));
    const { stateAgeMs, now } = assertRefused(
      'stale',
      /5001 ms ago, and 5000 ms is the most/,
      answered,
    );
    assert.equal(stateAgeMs, 5_001);
    assert.ok(now.due > 0);
    const { status } = await withChanged(({ trust }) =>
      Object.assign(trust, { stateAgeMs: 5_000 }),
    );
    assert.equal(status, 200);
  });

  test('where an answer is older than the question, whatever age it says it has, and whatever the clocks say', async () => {
    const { status, headers, body } = stateAnswer(b);
    const kept = { ...headers, [QUESTION]: 'an earlier one' };
    for (const sent of [headers, kept]) {
      const second = await serve(
        (_, response) => response.writeHead(status, sent).end(body),
        false,
      );
      const third = await serveState(c);
      const answered = await askCluster(a, [second.url, third.url]);
      assertRefused('stale', /does not answer this question, but with something older/, answered);
    }
    const clock = await withChanged((document) => {
      document.generatedAt += 24 * HOUR;
      document.trust.stateAt += 24 * HOUR;
    });
    assert.equal(clock.status, 200, 'a clock that is off');
    const inside = await withChanged((document) => (document.trust.stateAt -= HOUR));
    assertRefused('stale', /3600000 ms ago, and 5000 ms is the most/, inside);
    const own = await withChanged(({ trust }) =>
      Object.assign(trust, { stateAgeMs: HOUR, maxAgeMs: 1e12 }),
    );
    assertRefused('stale', /3600000 ms ago, and 5000 ms is the most/, own);
  });

  test('where another node answers at the address: what it says is not passed off as that node', async () => {
    const answered = await withChanged((document) => Object.assign(document, { node: 'n9' }));
    const { now, keeper } = assertRefused('wrong-node', /n9 is/, answered);
    assert.deepEqual([now, keeper], [null, null]);
  });

  test('where a node is on another ring: what it lacks and what it has', async () => {
    for (const [ring, says] of /** @type {const} */ ([
      [[NAMES[0], NAMES[1]], /it lacks n3\.example\.com$/],
      [[...NAMES, 'n4'], /it has n4$/],
      [[NAMES[1], 'n4'], /it lacks n1\.example\.com, n3\.example\.com, and it has n4$/],
    ])) {
      const keeper = manual({ node: NAMES[1], nodes: ring });
      const second = await serveState(keeper);
      const third = await serveState(c);
      const summary = assertRefused(
        'ring-differs',
        says,
        await askCluster(a, [second.url, third.url]),
      );
      assert.deepEqual(summary.ring, [...ring].sort());
    }
  });

  test('where a field of a document is not what it should be: it is named, whatever it is', async () => {
    const wrong = [undefined, null, -1, 0.5, '5', [], {}, true, 2 ** 60];
    /** @type {[string, (document: any, value: any) => void, any[]][]} */
    const fields = [
      ['now.due', (d, v) => (d.now.due = v), wrong],
      ['now.heldKeys', (d, v) => (d.now.heldKeys = v), wrong],
      [
        'now.leasesLeft',
        (d, v) => (d.now.leasesLeft = v),
        wrong.filter((v) => v !== undefined && v !== null),
      ],
      ['now.status', (d, v) => (d.now.status = v), wrong],
      ['now.oldestChangedAt', (d, v) => (d.now.oldestChangedAt = v), [undefined, 'x', {}]],
      [
        'coming.byHour',
        (d, v) => (d.coming.byHour = v),
        [...wrong, Array(23).fill(0), Array(24).fill('0')],
      ],
      ['lateness.edges', (d, v) => (d.lateness.edges = v), [...wrong, [0.25, 1, 2, 5]]],
      ['lateness.sitemap', (d, v) => (d.lateness.sitemap = v), wrong],
      ['lateness.classes', (d, v) => (d.lateness.classes = v), [undefined, null, {}, 'x']],
      [
        'lateness.classes\\[0\\].carried',
        (d, v) => (d.lateness.classes[0].carried = v),
        [undefined, null, 1],
      ],
      [
        'lateness.byRoute\\[0\\].route',
        (d, v) => (d.lateness.byRoute[0].route = v),
        [undefined, null, 1],
      ],
      ['flow', (d, v) => (d.flow = v), [undefined, null, 1]],
      ['flow\\[0\\].minute', (d, v) => (d.flow = [{ minute: v }]), wrong],
      ['trust.exact', (d, v) => (d.trust.exact = v), [undefined, null, 1]],
      ['trust.stateAgeMs', (d, v) => (d.trust.stateAgeMs = v), [undefined, null, 'x', -1, 1e300]],
      ['handOver', (d, v) => (d.handOver = v), [true, 'x', {}, { rows: -1 }, { rows: 'x' }]],
      ['trust.keeper.ring', (d, v) => (d.trust.keeper.ring = v), [undefined, null, 'abc', {}]],
      ['trust.keeper', (d, v) => (d.trust.keeper = v), [undefined, null, 'abc', []]],
      ['schema', (d, v) => (d.schema = v), [undefined, 2, '1']],
      ['node', (d, v) => (d.node = v), [undefined, null, 5]],
    ];
    for (const [field, set, values] of fields) {
      for (const value of values) {
        const answered = await withChanged((document) => void set(document, value));
        assertRefused('malformed', new RegExp(`state document: ${field} is not`), answered);
      }
    }
    assertRefused('malformed', /not the sum/, await withChanged(({ now }) => (now.due += 1)));
    assertRefused(
      'malformed',
      /does not add up/,
      await withChanged(({ lateness }) => (lateness.sitemap[4] += 1)),
    );
    assertRefused(
      'malformed',
      /lateness.classes does not add up/,
      await withChanged(({ lateness }) => lateness.classes.push(lateness.classes[0])),
    );
  });

  for (const field of /** @type {const} */ (['leasesLeft', 'heldDue'])) {
    test(`a node of an older version, that does not say ${field}, is counted, and no part is taken for the sum`, async () => {
      const { status, document } = await withChanged(({ now }) => delete now[field]);
      assert.equal(status, 200);
      assert.equal(document.now[field], null);
      const each = document.nodes.map((/** @type {any} */ { now }) => now[field]);
      assert.deepEqual(each, [a.state().now[field], null, c.state().now[field]]);
    });
  }

  test('whatever else a document has is neither passed on nor believed', async () => {
    const { status, document } = await withChanged((document) => {
      document.now.evil = 'x';
      document.trust.keeper.lastError = { not: 'a string' };
      document.trust.keeper.verify = { deep: { er: 1 } };
      document.trust.keeper.invalidRules = [null];
      document.lateness.classes[0].html = '<b>';
    });
    assert.equal(status, 200);
    assert.deepEqual(
      ['lastError', 'verify', 'invalidRules'].map((field) => document.nodes[1].keeper[field]),
      [null, null, null],
    );
    assert.equal(JSON.stringify(document).includes('<b>'), false);
    assert.equal(JSON.stringify(document).includes('evil'), false);
  });

  test('but not where a connection that was kept is closed just when it is used again', async () => {
    let asked = 0;
    const keeper = b;
    const second = await serve((request, response) => {
      asked += 1;
      // The second question on a connection gets no answer.
      if (request.socket.bytesWritten > 0) return void request.socket.destroy();
      const { status, headers, body } = stateAnswer(keeper);
      response.writeHead(status, headers).end(body);
    });
    const third = await serveState(c);
    for (let i = 0; i < 3; i++) {
      assert.equal((await askCluster(a, [second.url, third.url])).status, 200);
    }
    assert.equal(asked, 5, 'twice, for each time but the first');
  });

  test('where a node stands still, on a connection that was kept: no other error comes of it', async () => {
    let isStill = false;
    const second = await serve((_, response) => {
      if (isStill) return;
      const { status, headers, body } = stateAnswer(b);
      response.writeHead(status, headers).end(body);
    });
    const third = await serveState(c);
    const urls = [second.url, third.url];
    assert.equal((await askCluster(a, urls)).status, 200);
    const answer = () => askCluster(a, urls, { timeoutMs: 100 });
    isStill = true;
    for (let i = 0; i < 3; i++) assertRefused('timeout', /timed out after 100 ms/, await answer());
    isStill = false;
    await second.stop();
    // What is left of it fails where nobody waits for it any more.
    for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
    assertRefused('unreachable', /cannot be reached/, await answer());
  });

  test('names every node there is something wrong with', async () => {
    const second = await serve((_, response) => response.writeHead(401).end());
    const third = await serve((_, response) => response.end('x'));
    const { document } = await askCluster(a, [second.url, third.url]);
    assert.equal(
      document.error,
      'no total: n2.example.com does not take these credentials (401); n3.example.com does not answer with JSON',
    );
  });
});

describe('credentials', () => {
  test('go to the nodes as the caller gave them, and nothing else of the request does', async () => {
    const [own, other, third] = ringOf();
    /** @type {http.IncomingHttpHeaders[]} */
    const seen = [];
    /** @type {(string | undefined)[]} */
    const paths = [];
    const leaves = await Promise.all(
      [other, third].map((keeper) =>
        serve(({ headers, url, method }, response) => {
          seen.push(headers);
          paths.push(`${method} ${url}`);
          const { status, body } = stateAnswer(keeper);
          response.writeHead(status).end(body);
        }),
      ),
    );
    const urls = leaves.map(({ url }) => url);
    const headers = {
      authorization: 'Basic abc',
      cookie: 'session=1',
      host: 'evil',
      'x-other': '1',
    };
    const forAll = ['accept', 'accept-encoding', 'cache-control', 'connection', 'host', QUESTION];
    const ask = async (/** @type {any} */ options) => {
      seen.length = 0;
      assert.equal((await askCluster(own, urls, options)).status, 200);
      for (const sent of seen) {
        for (const name of Object.keys(sent)) {
          assert.ok([...forAll, 'authorization', 'cookie'].includes(name), name);
        }
        assert.match(String(sent.host), /^127\.0\.0\.1:/);
      }
      return seen.map(({ authorization, cookie }) => [authorization, cookie]);
    };
    assert.deepEqual(await ask({ headers }), [
      ['Basic abc', undefined],
      ['Basic abc', undefined],
    ]);
    const forward = ['authorization', 'cookie'];
    assert.deepEqual(await ask({ headers, forward }), [
      ['Basic abc', 'session=1'],
      ['Basic abc', 'session=1'],
    ]);
    assert.deepEqual(await ask({}), [
      [undefined, undefined],
      [undefined, undefined],
    ]);
    assert.deepEqual(new Set(paths), new Set([`GET ${STATE}`]));
  });

  test('that no header can carry end nothing', async () => {
    const [own] = ringOf();
    const { status, document } = await askCluster(
      own,
      ['http://127.0.0.1:1', 'http://127.0.0.1:1'],
      {
        headers: { authorization: 'a\r\nb: c' },
      },
    );
    assert.equal(status, 503);
    assert.equal(document.nodes[1].reason, 'unreachable');
  });
});

describe('three hosts as one ring', () => {
  const JSON_TYPE = { 'content-type': 'application/json' };
  const key = (/** @type {number} */ i) => `https://shop.example/product/${i}|desktop`;
  const ROWS = 3_000;

  test('each keeps its own rows, and together they are all; a dead one is named until it is back', async () => {
    const hosts = await Promise.all(
      NAMES.map((node) => startHost(['--node', node, '--workers', '1', '--sample', '0'])),
    );
    const [first] = hosts;
    const nodes = NAMES.map((name, i) => ({ name, url: hosts[i].url }));
    const cluster = () => ask(first.url + CLUSTER, 'GET');
    const unknown = await cluster();
    assert.deepEqual([unknown.status, unknown.answer.ring], [200, [NAMES[0]]]);

    for (const host of hosts) {
      await setNodes(host.url, nodes);
      assert.deepEqual((await ask(`${host.url}/prerender_admin/nodes`, 'GET')).answer.nodes, nodes);
    }
    const due = Date.now() - HOUR;
    const lines = Array.from({ length: ROWS }, (_, i) =>
      JSON.stringify({ cacheKey: key(i), nextRenderTime: due - i * 1_000, fromSitemap: i % 3 > 0 }),
    );
    let written = 0;
    for (const host of hosts) {
      const { answer } = await ask(`${host.url}/render_schedule`, 'POST', lines.join('\n'), {
        'content-type': 'application/x-ndjson',
      });
      assert.equal(answer.written + answer.foreign, ROWS);
      assert.equal(answer.failed, 0);
      assert.ok(answer.written > ROWS / 6, 'a share');
      written += answer.written;
    }
    assert.equal(written, ROWS, 'each row on one node');
    const { answer } = await until('all rows', async () => {
      const asked = await cluster();
      return asked.status === 200 && asked.answer.now.due === ROWS ? asked : null;
    });
    assert.equal(
      answer.nodes.reduce(
        (/** @type {number} */ n, /** @type {any} */ one) => n + one.keeper.rows,
        0,
      ),
      ROWS,
    );
    assertAddsUp(answer);
    await until('the same answer, whoever is asked, within one minute', async () => {
      const latenesses = [];
      for (const { url } of hosts)
        latenesses.push((await ask(url + CLUSTER, 'GET')).answer.lateness);
      for (const lateness of latenesses) assert.deepEqual(lateness, latenesses[0]);
      return true;
    });

    // Rows of another node are not taken, and who takes them is said.
    const { answer: explained } = await ask(`${first.url}/prerender_admin/explain`, 'POST', {
      key: key(1),
    });
    const owner = hosts[NAMES.indexOf(explained.owner)];
    const other = hosts.find((host) => host !== owner);
    assert.ok(other);
    for (const [method, body] of /** @type {const} */ ([
      ['PUT', { nextRenderTime: 1 }],
      ['DELETE'],
      ['GET'],
    ])) {
      const refused = await ask(other.url + at(key(1)), method, body);
      assert.equal(refused.status, 421);
      assert.deepEqual([refused.answer.owner, refused.answer.url], [explained.owner, owner.url]);
      assert.match(refused.answer.error, /belongs to node .*: send it to http/);
    }
    assert.equal((await ask(owner.url + at(key(1)), 'PUT', { nextRenderTime: 1 })).status, 200);
    const misdirected = await ask(`${other.url}/render_schedule`, 'POST', lines[1], JSON_TYPE);
    assert.deepEqual([misdirected.status, misdirected.answer.foreign], [421, 1]);

    // No page is given out by two nodes.
    const jobs = new Set();
    for (const { url } of hosts) {
      const claimed = await ask(`${url}/render_queue/claim`, 'POST', { limit: 500 });
      for (const job of claimed.answer.jobs) {
        assert.equal(jobs.has(job.key), false, job.key);
        jobs.add(job.key);
      }
    }
    assert.equal(jobs.size, 1_500);
    assert.equal((await cluster()).answer.now.inFlight, 1_500);

    hosts[2].child.kill('SIGKILL');
    await hosts[2].ended;
    const partial = await cluster();
    assert.equal(partial.status, 503);
    assert.match(partial.answer.error, /^no total: n3\.example\.com cannot be reached/);
    assert.equal(partial.headers.get('retry-after'), '1');
    const port = new URL(hosts[2].url).port;
    const list = nodes.map(({ name, url }) => `${name}=${url}`).join(',');
    const back = await startHost(
      ['--node', NAMES[2], '--nodes', list, '--workers', '1', '--port', port],
      {
        data: hosts[2].data,
      },
    );
    await until('the total again', async () => (await cluster()).status === 200);
    assert.equal((await cluster()).answer.now.due, ROWS);
    for (const host of [hosts[0], hosts[1], back])
      assert.equal(await host.stop(), 0, host.output());
  });

  /** A ring of hosts with rows, all due, each on its own node. @param {string[]} names @param {number} rows */
  async function startRing(names, rows) {
    const hosts = await Promise.all(
      names.map((node) => startHost(['--node', node, '--workers', '1', '--sample', '0'])),
    );
    const nodes = names.map((name, i) => ({ name, url: hosts[i].url }));
    for (const { url } of hosts) await setNodes(url, nodes);
    const lines = Array.from({ length: rows }, (_, i) =>
      JSON.stringify({ cacheKey: key(i), nextRenderTime: Date.now() - HOUR, fromSitemap: true }),
    );
    for (const { url } of hosts) {
      await ask(`${url}/render_schedule`, 'POST', lines.join('\n'), JSON_TYPE);
    }
    await until('all rows', async () => {
      const { status, answer } = await ask(hosts[0].url + CLUSTER, 'GET');
      return status === 200 && answer.now.due === rows;
    });
    return { hosts, nodes };
  }

  /** @param {string} url @param {{ name: string, url: string }[]} nodes */
  async function setNodes(url, nodes) {
    const { status, answer } = await ask(`${url}/prerender_admin/nodes`, 'PUT', { nodes });
    assert.ok(status === 200 || status === 202, JSON.stringify(answer));
    const names = nodes.map(({ name }) => name).sort();
    await until('the ring', async () => {
      const { ring } = (await ask(`${url}/prerender_admin/nodes`, 'GET')).answer;
      return JSON.stringify(ring) === JSON.stringify(names);
    });
  }

  /** @param {any} document @param {string} field */
  const totalOf = (document, field) =>
    document.nodes.reduce(
      (/** @type {number} */ n, /** @type {any} */ one) => n + one.keeper[field],
      0,
    );

  test('a node added gets its share of the rows, but for a page that is being rendered; nothing is missed or given out twice', async () => {
    const { hosts, nodes } = await startRing(['n1.example.com', 'n2.example.com'], ROWS);
    const [first, second] = hosts;
    const claim = async (/** @type {string} */ url, /** @type {number} */ limit) =>
      (await ask(`${url}/render_queue/claim`, 'POST', { limit })).answer.jobs;
    const jobs = await claim(first.url, 200);
    const third = await startHost(['--node', NAMES[2], '--workers', '1', '--sample', '0']);
    const grown = [...nodes, { name: NAMES[2], url: third.url }];
    for (const { url } of [third, first, second]) await setNodes(url, grown);
    const cluster = () => ask(first.url + CLUSTER, 'GET');
    const ownerOf = async (/** @type {string} */ of) =>
      (await ask(`${first.url}/prerender_admin/explain`, 'POST', { key: of })).answer.owner;
    const moving = [];
    for (const job of jobs) if ((await ownerOf(job.key)) === NAMES[2]) moving.push(job.key);
    assert.ok(moving.length > 0 && moving.length < jobs.length);
    await until('all rows but those', async () => {
      const { status, answer } = await cluster();
      assert.equal(status, 503, 'a part is no total');
      assert.ok(!('now' in answer));
      return totalOf(answer, 'rows') === ROWS - moving.length;
    });
    const waiting = await until('that it is said', async () => {
      const { answer } = await cluster();
      return answer.nodes[0].handOver?.rows === moving.length ? answer : null;
    });
    const [one] = waiting.nodes;
    assert.deepEqual([one.ok, one.reason], [false, 'handing-over']);
    assert.equal(
      one.error,
      `n1.example.com has rows of other nodes: ${moving.length} are still to be handed over`,
    );
    const own = await ask(first.url + STATE, 'GET');
    assert.deepEqual([own.status, own.answer.handOver], [200, { rows: moving.length }]);
    const metrics = async () => (await fetch(`${first.url}/metrics`)).text();
    assert.match(await metrics(), /\nkeeper_handing_over 1\n# EOF\n$/);

    // What the new node gives out, nobody else has.
    const given = new Set(jobs.map((/** @type {any} */ job) => job.key));
    for (const { url } of [third, first, second]) {
      for (const job of await claim(url, ROWS)) {
        assert.equal(given.has(job.key), false, job.key);
        given.add(job.key);
      }
    }
    assert.equal(given.size, ROWS);
    for (const { key, token } of jobs) {
      const result = { key, token, outcome: 'rendered' };
      assert.equal((await ask(`${first.url}/render_queue/job_result`, 'POST', result)).status, 200);
    }
    const { status, answer } = await until('a total', async () => {
      const asked = await cluster();
      return asked.status === 200 ? asked : null;
    });
    assert.equal(totalOf(answer, 'rows'), ROWS, 'those, too');
    assert.equal('handOver' in (await ask(first.url + STATE, 'GET')).answer, false);
    assert.match(await metrics(), /\nkeeper_handing_over 0\n# EOF\n$/);
    assert.deepEqual(
      [status, answer.trust.exact, totalOf(answer, 'repairedTotal')],
      [200, true, 0],
    );
    assert.equal(totalOf(answer, 'lostTotal'), answer.nodes[2].keeper.rows);
    for (const of of moving) {
      const { answer: row } = await ask(third.url + at(of), 'GET');
      assert.ok(row.nextRenderTime > Date.now(), 'as its result left it');
    }
    assert.match(first.output(), /rows were handed over to other nodes/);
    for (const host of [first, second, third]) assert.equal(await host.stop(), 0, host.output());
  });

  test('a node added that is not there keeps its rows where they are; taken out again, they are gained, not missed', async () => {
    const { hosts, nodes } = await startRing(['n1.example.com', 'n2.example.com'], ROWS);
    const cluster = () => ask(hosts[0].url + CLUSTER, 'GET');
    const dead = await serve(() => {});
    await dead.stop();
    for (const { url } of hosts) await setNodes(url, [...nodes, { name: NAMES[2], url: dead.url }]);
    const { status, answer } = await cluster();
    assert.equal(status, 503);
    assert.match(answer.error, /^no total: .*n3\.example\.com cannot be reached/);
    await until('that it is said', () =>
      hosts.every((host) =>
        /rows of node n3\.example\.com cannot be handed over: it cannot be reached/.test(
          host.output(),
        ),
      ),
    );
    for (const { url } of hosts) await setNodes(url, nodes);
    const whole = await until('the total', async () => {
      const asked = await cluster();
      return asked.status === 200 && asked.answer.trust.exact ? asked.answer : null;
    });
    assert.equal(whole.now.due, ROWS);
    const lost = totalOf(whole, 'lostTotal');
    assert.ok(lost > ROWS / 6);
    assert.deepEqual([totalOf(whole, 'gainedTotal'), totalOf(whole, 'repairedTotal')], [lost, 0]);
    for (const host of hosts) assert.equal(await host.stop(), 0, host.output());
  });

  test('of a page that was written while its node was out of the ring, the newer row stays when it is back', async () => {
    const { hosts, nodes } = await startRing(NAMES, 60);
    const [first, second, third] = hosts;
    const ownerOf = async (/** @type {string} */ url, /** @type {string} */ of) =>
      (await ask(`${url}/prerender_admin/explain`, 'POST', { key: of })).answer.owner;
    /** @type {string[]} */
    const theirs = [];
    for (let i = 0; theirs.length < 2; i++) {
      if ((await ownerOf(first.url, key(i))) === NAMES[2]) theirs.push(key(i));
    }
    const [page, other] = theirs;
    const without = nodes.slice(0, 2);
    for (const { url } of [first, second]) await setNodes(url, without);
    const owner = (await ownerOf(first.url, page)) === NAMES[0] ? first : second;
    const put = { nextRenderTime: 7, note: 'newer' };
    assert.equal((await ask(owner.url + at(page), 'PUT', put)).status, 201);
    // The third never heard of it, and the other page is the newer there.
    const heir = (await ownerOf(first.url, other)) === NAMES[0] ? first : second;
    assert.equal((await ask(heir.url + at(other), 'PUT', put)).status, 201);
    assert.equal((await ask(third.url + at(other), 'PUT', { nextRenderTime: 8 })).status, 200);
    for (const { url } of [first, second]) await setNodes(url, nodes);
    await until('the total', async () => (await ask(first.url + CLUSTER, 'GET')).status === 200);
    const { answer } = await ask(third.url + at(page), 'GET');
    assert.deepEqual([answer.nextRenderTime, answer.note], [7, 'newer']);
    assert.equal((await ask(third.url + at(other), 'GET')).answer.nextRenderTime, 8);
    for (const host of hosts) assert.equal(await host.stop(), 0, host.output());
  });

  test('a node is taken out with its rows: its folder is emptied under the names of two others', async () => {
    const { hosts, nodes } = await startRing(NAMES, 300);
    const [first, second, third] = hosts;
    const left = nodes.slice(0, 2);
    const refused = await ask(`${third.url}/prerender_admin/nodes`, 'PUT', { nodes: left });
    assert.equal(refused.status, 422);
    assert.match(refused.answer.error, /to take it out, see "Taking a node out" in the README$/);
    for (const { url } of [first, second]) await setNodes(url, left);
    assert.equal(await third.stop(), 0);
    const list = left.map(({ name, url }) => `${name}=${url}`).join(',');
    /** @type {number[]} */
    const rest = [];
    for (const { name } of left) {
      const args = ['--node', name, '--nodes', list, '--workers', '1', '--sample', '0'];
      const emptied = await startHost(args, { data: third.data });
      const { answer } = await until('the end of the hand-over', async () => {
        const asked = await ask(emptied.url + STATE, 'GET');
        return 'handOver' in asked.answer ? null : asked;
      });
      rest.push(answer.trust.keeper.rows);
      assert.equal(await emptied.stop(), 0);
    }
    assert.ok(rest[0] > 0 && rest[1] === 0, String(rest));
    const { answer } = await until('all rows', async () => {
      const asked = await ask(first.url + CLUSTER, 'GET');
      return asked.status === 200 ? asked : null;
    });
    assert.equal(answer.now.due, 300);
    for (const host of [first, second]) assert.equal(await host.stop(), 0, host.output());
  });

  test('a node at the address of another gets none of its rows', async () => {
    const { hosts, nodes } = await startRing(['n1.example.com', 'n2.example.com'], ROWS);
    const stranger = await startHost(['--node', 'x', '--workers', '1', '--sample', '0']);
    await setNodes(hosts[0].url, [...nodes, { name: NAMES[2], url: stranger.url }]);
    await until('that it is said', () =>
      /rows of node n3\.example\.com cannot be handed over: it is not what answers at http\S+: x is; PUT/.test(
        hosts[0].output(),
      ),
    );
    assert.equal((await ask(stranger.url + STATE, 'GET')).answer.trust.keeper.rows, 0);
    await setNodes(hosts[0].url, nodes);
    const { answer } = await until('the total', async () => {
      const asked = await ask(hosts[1].url + CLUSTER, 'GET');
      return asked.status === 200 ? asked : null;
    });
    assert.equal(answer.now.due, ROWS);
    for (const host of [...hosts, stranger]) assert.equal(await host.stop(), 0, host.output());
  });

  test('a list of nodes that makes no sense is refused with a sentence, and changes nothing', async () => {
    const host = await startHost(['--node', 'a', '--workers', '1', '--sample', '0']);
    const url = 'http://127.0.0.1:1';
    for (const [nodes, says] of /** @type {const} */ ([
      [undefined, /must be a list/],
      [[], /must be a list/],
      [{}, /must be a list/],
      [[{ name: 'b', url }], /this node, "a", is not among them: name it, too/],
      [
        [
          { name: 'a', url },
          { name: 'a', url },
        ],
        /named twice/,
      ],
      [[{ name: '', url }], /needs a name/],
      [[null], /needs a name/],
      [[{ name: 'a' }], /must be one such as http/],
      [[{ name: 'a', url: 'ftp://x' }], /must be one such as http/],
      [[{ name: 'a', url: 'http://u:p@x/' }], /no user/],
      [[{ name: 'a', url: 'http://x/?q' }], /no user, query/],
    ])) {
      const { status, answer } = await ask(`${host.url}/prerender_admin/nodes`, 'PUT', { nodes });
      assert.equal(status, 422);
      assert.match(answer.error, says);
    }
    const form = await ask(`${host.url}/prerender_admin/nodes`, 'PUT', '{}', {
      'content-type': 'text/plain',
    });
    assert.equal(form.status, 415, 'no page of another site can send it');
    const { answer } = await ask(`${host.url}/prerender_admin/nodes`, 'GET');
    assert.deepEqual(answer, { node: 'a', nodes: [], ring: ['a'] });
    await host.stop();
  });

  test("with a token, the caller's own opens every node; without it, none", async () => {
    const token = 'correct horse';
    const auth = { authorization: `Bearer ${token}`, ...JSON_TYPE };
    const started = await Promise.all(
      ['a', 'b'].map((node) =>
        startHost(['--node', node, '--workers', '1', '--sample', '0', '--token', token]),
      ),
    );
    const lines = Array.from({ length: 100 }, (_, i) =>
      JSON.stringify({ cacheKey: key(i), nextRenderTime: 1 }),
    );
    const sent = await ask(`${started[0].url}/render_schedule`, 'POST', lines.join('\n'), auth);
    assert.equal(sent.answer.written, 100);
    const nodes = ['a', 'b'].map((name, i) => ({ name, url: started[i].url }));
    for (const { url } of started) {
      assert.equal((await ask(`${url}/prerender_admin/nodes`, 'PUT', { nodes }, auth)).status, 200);
    }
    await until('the total, and rows on both', async () => {
      const { status, answer } = await ask(started[0].url + CLUSTER, 'GET', undefined, auth);
      return (
        status === 200 && answer.now.due === 100 && answer.nodes[0].now.due < 100 && !answer.error
      );
    });
    assert.equal((await ask(started[0].url + CLUSTER, 'GET')).status, 401);
    for (const host of started) await host.stop();
  });
});
