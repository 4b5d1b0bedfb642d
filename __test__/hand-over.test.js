'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { Board } = require('../lib/standalone/board.js');
const { openEnvironment } = require('../lib/standalone/environment.js');
const { startHandOver } = require('../lib/standalone/hand-over.js');
const { Leftover } = require('../lib/standalone/leftover.js');
const { encodeKey } = require('../lib/standalone/row-codec.js');
const { openTable, startWriter } = require('../lib/standalone/table.js');
const { manual } = require('./support/keepers.js');
const { until } = require('./support/until.js');

const ROWS = 30;

test('a row is sent to its own node only, and deleted here only when it has arrived there, whatever answers', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-hand-over-'));
  const writer = await startWriter(folder);
  const table = openTable(folder, writer.connect());
  const keeper = manual({ node: 'a', nodes: ['b'] });
  const keys = Array.from({ length: 200 }, (_, i) => `https://shop.example/${i}`);
  const isTheirs = (/** @type {string} */ key) => keeper.explain(key).reason === 'not-owned';
  const theirs = [...keys.filter(isTheirs).slice(0, ROWS - 1), '\ud800'].filter(isTheirs);
  const ours = keys.filter((key) => !isTheirs(key)).slice(0, 5);
  for (const key of [...theirs, ...ours]) await table.put(key, { nextRenderTime: 1, note: 'é' });

  /** @type {{ method?: string, url?: string, authorization?: string, rows: any[] }[]} */
  const asked = [];
  const report = (/** @type {object} */ said) =>
    JSON.stringify({ written: 0, known: 0, failed: 0, foreign: 0, errors: [], ...said });
  const n = theirs.length;
  /** @type {[number, string][]} */
  const useless = [
    [500, ''],
    [401, '{"error":"no"}'],
    [200, 'garbage'],
    [200, 'null'],
    [200, '{}'],
    [200, report({ written: n - 1 })],
    [200, report({ written: n + 1 })],
    [200, report({ failed: n })],
    [421, report({ foreign: n })],
    [200, report({ written: n - 1, foreign: 1 })],
    [307, ''],
  ];
  /** @type {[number, string][]} */
  let answers = [...useless];
  /** Who it says it is. @type {[number, unknown][]} */
  const posing = [
    [401, { error: 'no' }],
    [404, {}],
    [200, null],
    [200, { node: 'x', ring: ['x'] }],
    [200, { node: 'a', ring: ['a', 'b'] }],
    [200, { node: 'b', ring: ['b'] }],
    [200, { node: 'b', ring: ['a', 'b', 'c'] }],
  ];
  const other = http.createServer(async (request, response) => {
    const { method, url } = request;
    if (method === 'GET') {
      assert.equal(url, '/prerender_admin/nodes');
      const [status, body] = posing.shift() ?? [200, { node: 'b', ring: ['a', 'b'] }];
      return void response.writeHead(status).end(JSON.stringify(body));
    }
    const { authorization } = request.headers;
    let text = '';
    for await (const chunk of request) text += chunk;
    asked.push({
      method,
      url,
      authorization,
      rows: text.split('\n').map((line) => JSON.parse(line)),
    });
    const [status, body] = answers.shift() ?? [500, ''];
    response.writeHead(status, status === 307 ? { location: '/elsewhere' } : {}).end(body);
  });
  await new Promise((resolve) => other.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (other.address());
  /** @type {string[]} */
  const said = [];
  const leftover = new Leftover({ node: 'a', table, board: new Board() });
  const ring = ['a', 'b'];
  assert.deepEqual(leftover.of(ring), { rows: null });
  const nodes = { urlOf: () => `http://127.0.0.1:${port}` };
  const start = () =>
    startHandOver({
      table,
      keeper,
      nodes,
      leftover,
      token: 't',
      log: (message) => said.push(message),
      lookMs: 1,
    });

  let end = start();
  await until('all that it is not', () => {
    if (posing.length > 0) assert.equal(asked.length, 0, 'no row is sent to another');
    return posing.length === 0;
  });
  for (const says of [
    /it does not take the token of this node: start all with the same --token$/,
    /it answers with 404, not with its list of nodes$/,
    /it is not what answers at http:\/\/127\.0\.0\.1:\d+: x is; PUT \/prerender_admin\/nodes with its own URL$/,
    /it goes by another ring: PUT \/prerender_admin\/nodes there, with the same list$/,
  ]) {
    assert.equal(said.filter((text) => says.test(text)).length, 1, `${says} in ${said}`);
  }
  end();
  end = start();
  await until('all of them', () => answers.length === 0);
  end();
  assert.equal(table.count(), n + ours.length, 'nothing is gone');
  assert.deepEqual(leftover.of(ring), { rows: n });
  assert.ok(
    said.some((text) => /rows of node b cannot be handed over: it goes by another ring/.test(text)),
  );
  for (const { method, url, authorization, rows } of asked) {
    assert.deepEqual([method, url, authorization], ['POST', '/render_schedule?newer', 'Bearer t']);
    assert.deepEqual(rows.map(({ cacheKey }) => cacheKey).sort(), [...theirs].sort());
    const { version, ...row } = rows[0];
    assert.deepEqual(row, { cacheKey: row.cacheKey, nextRenderTime: 1, note: 'é' });
    assert.equal(version, table.writtenAt(row.cacheKey));
  }

  // All but the second line, and that one later; one was there already.
  answers = [
    [200, report({ written: n - 2, known: 1, failed: 1, errors: [{ line: 2, error: 'full' }] })],
    [200, report({ written: 1 })],
  ];
  asked.length = 0;
  end = start();
  await until('the last', () => table.count() === ours.length);
  assert.deepEqual(
    asked.map(({ rows }) => rows.length),
    [n, 1],
  );
  assert.equal(asked[1].rows[0].cacheKey, asked[0].rows[1].cacheKey);
  for (const key of ours) assert.ok(await table.get(key));
  await until('that nothing is left', () => leftover.of(ring) === null);
  end();
  other.closeAllConnections();
  other.close();
  await table.close();
  await writer.stop();
  fs.rmSync(folder, { recursive: true });
});

test('a row that cannot be read holds up no other: it is named once, counted, and looked at ever less often', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-hand-over-'));
  const writer = await startWriter(folder);
  const table = openTable(folder, writer.connect());
  const keeper = manual({ node: 'a', nodes: ['b'] });
  const keys = Array.from({ length: 400 }, (_, i) => `https://shop.example/${i}`);
  const theirs = keys.filter((key) => keeper.explain(key).reason === 'not-owned').slice(0, 150);
  for (const key of theirs) await table.put(key, { nextRenderTime: 1 });
  const { root, rows } = openEnvironment(folder);
  const damage = async (/** @type {string} */ key) => {
    await rows.put(encodeKey(key), Buffer.from('damaged'));
  };
  await damage(theirs[0]);
  const other = http.createServer(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    const written = sent.split('\n').length;
    const report = { written, known: 0, failed: 0, foreign: 0, errors: [] };
    const answer = request.method === 'GET' ? { node: 'b', ring: ['a', 'b'] } : report;
    response.end(JSON.stringify(answer));
  });
  await new Promise((resolve) => other.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (other.address());
  const leftover = new Leftover({ node: 'a', table, board: new Board() });
  /** @type {string[]} */
  const said = [];
  /** When each pass began. @type {number[]} */
  let passes = [];
  const start = () =>
    startHandOver({
      table: {
        walk(range) {
          if (range.after === null) passes.push(performance.now());
          return table.walk(range);
        },
        getSync: (key) => table.getSync(key),
        write: (writes) => table.write(writes),
        writtenAt: (key) => table.writtenAt(key),
      },
      keeper,
      nodes: { urlOf: () => `http://127.0.0.1:${port}` },
      leftover,
      log: (message) => said.push(message),
      lookMs: 1,
    });
  const named = () => said.filter((text) => text.includes('cannot be read'));

  let end = start();
  await until('nine passes', () => passes.length > 8);
  const pause = passes[8] - passes[7];
  assert.ok(pause >= 250, `${pause} ms`);
  assert.deepEqual(leftover.of(['a', 'b']), { rows: 1 });
  assert.equal(table.count(), 1);
  const is = `row "${theirs[0]}" of node b cannot be read`;
  assert.deepEqual(named(), [
    `${is}, so it cannot be handed over: DELETE it here, and PUT the page on that node`,
  ]);
  await table.delete(theirs[0]);
  await until('that nothing is left', () => leftover.of(['a', 'b']) === null);
  end();

  // No more than so many are named at once; those that follow when these are gone.
  await leftover.forget();
  for (const key of theirs) await damage(key);
  said.length = 0;
  passes = [];
  end = start();
  await until('a second pass', () => passes.length > 2);
  assert.equal(named().length, 100);
  const gone = theirs.filter((key) => named().some((text) => text.includes(`"${key}"`)));
  for (const key of gone) await table.delete(key);
  await until('the others', () => named().length === theirs.length);
  end();
  other.closeAllConnections();
  other.close();
  await root.close();
  await table.close();
  await writer.stop();
  fs.rmSync(folder, { recursive: true });
});
