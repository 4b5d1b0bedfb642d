'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { openEnvironment } = require('../lib/standalone/environment.js');
const { lockFolder } = require('../lib/standalone/folder-lock.js');
const { startFleet } = require('../lib/standalone/fleet.js');
const { createApi, createServer } = require('../lib/standalone/http.js');
const {
  decodeKey,
  decodeRow,
  encodeKey,
  encodeValue,
  rowText,
} = require('../lib/standalone/row-codec.js');
const { openTable, startWriter } = require('../lib/standalone/table.js');
const { assertAddsUp, expectedOf, pick } = require('./support/compare.js');
const { DUE, manual, put } = require('./support/keepers.js');
const { ask, at, newData, newFolder, run, startHost } = require('./support/host.js');
const { until } = require('./support/until.js');

const HOUR = 3_600_000;
const MIB = 2 ** 20;

/** @type {string} */
let folder;
before(() => {
  folder = newFolder();
});

let number = 0;
/** Every row of a data folder, read beside the process that serves it. @param {string} data */
function rowsOf(data) {
  const { root, rows } = openEnvironment(data);
  const all = [];
  for (const { key: id, value } of rows.getRange({})) {
    const key = decodeKey(id, value);
    assert.ok(key !== null);
    all.push(decodeRow(key, value));
  }
  return { all, close: () => root.close() };
}

describe('rows, claims and results', () => {
  /** @type {Awaited<ReturnType<typeof startHost>>} */
  let host;
  /** @type {(path: string, method: string, body?: unknown, headers?: Record<string, string>) => ReturnType<typeof ask>} */
  let call;
  before(async () => {
    const config = path.join(folder, 'routed.json');
    const routes = [{ match: 'prefix', path: '/routed/', renderInterval: 48 * HOUR }];
    fs.writeFileSync(config, JSON.stringify({ routes }));
    host = await startHost(['--sample', '0', '--config', config]);
    call = (path, method, body, headers) => ask(host.url + path, method, body, headers);
  });
  after(async () => {
    assert.equal(await host.stop(), 0, host.output());
  });

  /** @param {string} key */
  function kept(key) {
    return until('the row to be kept', async () => {
      const { answer } = await call('/prerender_admin/explain', 'POST', { key });
      return answer.kept && answer;
    });
  }

  test('a row goes from PUT to a job to its result, and is due again a cadence later', async () => {
    const key = 'https://shop.example/a?b=c&d=é|mobile';
    const created = await call(at(key), 'PUT', {
      nextRenderTime: 1_000,
      fromSitemap: true,
      effectiveInterval: HOUR,
    });
    assert.deepEqual([created.status, created.answer.cacheKey], [201, key]);
    const again = await call(at(key), 'PUT', {
      nextRenderTime: 2_000,
      fromSitemap: true,
      effectiveInterval: HOUR,
    });
    assert.equal(again.status, 200);
    assert.ok(again.answer.version > created.answer.version);
    assert.equal((await call(at(key), 'GET')).answer.nextRenderTime, 2_000);
    await kept(key);
    assert.equal((await call('/queue_status', 'GET')).answer.status, 'queued');

    const claimed = await call('/render_queue/claim', 'POST', { limit: 5 });
    assert.equal(claimed.status, 200);
    const [job] = claimed.answer.jobs;
    assert.equal(claimed.answer.jobs.length, 1);
    assert.deepEqual([job.key, job.fromSitemap, job.dueAt], [key, true, 0]);
    assert.deepEqual(
      [claimed.answer.complete, claimed.answer.skippedStale, claimed.answer.skippedLeased],
      [true, 0, 0],
    );
    assert.equal((await call('/render_queue/claim', 'POST', { limit: 5 })).answer.jobs.length, 0);

    const before = Date.now();
    const result = await call('/render_queue/job_result', 'POST', {
      key,
      token: job.token,
      outcome: 'rendered',
    });
    assert.equal(result.status, 200);
    const row = (await call(at(key), 'GET')).answer;
    assert.ok(row.nextRenderTime >= before + HOUR && row.nextRenderTime <= Date.now() + HOUR);

    const late = await call('/render_queue/job_result', 'POST', {
      key,
      token: job.token,
      outcome: 'failed',
    });
    assert.equal(late.status, 409);
    assert.ok(['expired', 'superseded', 'unknown'].includes(late.answer.release));
    assert.match(late.answer.error, /claim again/);
    assert.deepEqual((await call(at(key), 'GET')).answer, row);

    assert.equal((await call(at(key), 'DELETE')).answer.existed, true);
    assert.equal((await call(at(key), 'DELETE')).answer.existed, false);
    assert.equal((await call(at(key), 'GET')).status, 404);
  });

  test('a result may name the next due time and more; gone deletes the row; a row deleted meanwhile stays so', async () => {
    const keys = ['named', 'gone', 'deleted'].map((name) => `https://shop.example/${name}`);
    for (const key of keys)
      await call(at(key), 'PUT', { nextRenderTime: 1, fromSitemap: true, note: key });
    for (const key of keys) await kept(key);
    /** @type {Map<string, any>} */
    const jobs = new Map();
    for (const job of (await call('/render_queue/claim', 'POST', { limit: 10 })).answer.jobs) {
      jobs.set(job.key, job);
    }
    const send = (/** @type {string} */ key, /** @type {object} */ result) =>
      call('/render_queue/job_result', 'POST', { key, token: jobs.get(key).token, ...result });
    const due = Date.now() + 5 * HOUR;
    const named = await send(keys[0], {
      outcome: 'failed',
      nextRenderTime: due,
      fromSitemap: false,
      effectiveInterval: 7 * HOUR,
    });
    assert.equal(named.status, 200);
    const { version: _, ...row } = (await call(at(keys[0]), 'GET')).answer;
    assert.deepEqual(row, {
      cacheKey: keys[0],
      nextRenderTime: due,
      fromSitemap: false,
      effectiveInterval: 7 * HOUR,
      note: keys[0],
    });
    assert.equal((await send(keys[1], { outcome: 'gone' })).status, 200);
    assert.equal((await call(at(keys[1]), 'GET')).status, 404);
    await call(at(keys[2]), 'DELETE');
    assert.equal((await send(keys[2], { outcome: 'rendered' })).answer.written, false);
    assert.equal((await call(at(keys[2]), 'GET')).status, 404);
    await call(at(keys[0]), 'DELETE');
  });

  test('a render answers a change made before it, not one made during it', async () => {
    for (const [name, changedAt, isStillDue] of /** @type {const} */ ([
      ['before', 1, false],
      ['during', Date.now() + HOUR, true],
    ])) {
      const key = `https://shop.example/changed-${name}`;
      await call(at(key), 'PUT', { nextRenderTime: 1, changedAt: 1, effectiveInterval: HOUR });
      await kept(key);
      const [job] = (await call('/render_queue/claim', 'POST', { limit: 1 })).answer.jobs;
      assert.deepEqual([job.key, job.changed], [key, true]);
      await call(at(key), 'PUT', { nextRenderTime: 2, changedAt, effectiveInterval: HOUR });
      await call('/render_queue/job_result', 'POST', {
        key,
        token: job.token,
        outcome: 'rendered',
      });
      const row = (await call(at(key), 'GET')).answer;
      assert.deepEqual(
        [row.nextRenderTime === 2, row.changedAt],
        [isStillDue, isStillDue ? changedAt : null],
      );
      await call(at(key), 'DELETE');
    }
  });

  test('a render answers a change that is told by a clock far ahead, unless it was made meanwhile', async () => {
    const key = 'https://shop.example/ahead';
    const changedAt = Date.now() + HOUR;
    await call(at(key), 'PUT', { nextRenderTime: 1, changedAt, urgentAt: changedAt * 1_000 });
    await kept(key);
    const [job] = (await call('/render_queue/claim', 'POST', { limit: 1 })).answer.jobs;
    assert.deepEqual([job.key, job.changed], [key, true]);
    await call('/render_queue/job_result', 'POST', { key, token: job.token, outcome: 'rendered' });
    const row = (await call(at(key), 'GET')).answer;
    assert.deepEqual([row.changedAt, row.urgentAt], [null, null]);
    assert.ok(row.nextRenderTime > changedAt);
    await call(at(key), 'DELETE');
  });

  test('the cadence of a result is that of the row as it leaves it, and never ends its being kept', async () => {
    for (const [path, interval, wanted] of /** @type {const} */ ([
      ['routed/page', null, 48 * HOUR],
      ['elsewhere/page', null, 24 * HOUR],
      ['routed/named', 3 * HOUR, 3 * HOUR],
      ['routed/endless', 1e15, 2 ** 32 * 60_000 - 1 - Date.now()],
    ])) {
      const key = `https://shop.example/${path}`;
      await call(at(key), 'PUT', { nextRenderTime: 1, effectiveInterval: HOUR });
      await kept(key);
      const [job] = (await call('/render_queue/claim', 'POST', { limit: 1 })).answer.jobs;
      assert.equal(job.key, key);
      const result = { key, token: job.token, outcome: 'rendered', effectiveInterval: interval };
      const before = Date.now();
      const { answer } = await call('/render_queue/job_result', 'POST', result);
      const cadence = answer.nextRenderTime - before;
      assert.ok(Math.abs(cadence - wanted) < 60_000, `${path} ${interval}: ${cadence}`);
      await until('the queue to have heard', async () => {
        const { kept, due } = (await call('/prerender_admin/explain', 'POST', { key })).answer;
        return kept && !due;
      });
      await call(at(key), 'DELETE');
    }
  });

  test('paused grants nothing until resumed', async () => {
    const key = 'https://shop.example/paused';
    await call(at(key), 'PUT', { nextRenderTime: 1 });
    await kept(key);
    const paused = await call('/render_queue/pause', 'POST');
    assert.deepEqual([paused.status, paused.answer.status], [200, 'paused']);
    const { answer } = await call('/render_queue/claim', 'POST', { limit: 1 });
    assert.deepEqual([answer.jobs, answer.status, answer.refused], [[], 'paused', 'paused']);
    assert.equal((await call('/queue_status', 'GET')).answer.status, 'paused');
    assert.equal((await call('/render_queue/resume', 'POST')).answer.paused, false);
    assert.equal((await call('/render_queue/claim', 'POST', { limit: 1 })).answer.jobs.length, 1);
    await call(at(key), 'DELETE');
  });

  test('the state, the metrics and an explanation', async () => {
    const state = await call('/prerender_admin/queue-state', 'GET');
    assert.equal(state.headers.get('cache-control'), 'no-store');
    assertAddsUp(state.answer);
    const metrics = await call('/metrics', 'GET');
    assert.match(String(metrics.headers.get('content-type')), /^application\/openmetrics-text/);
    assert.equal(metrics.headers.get('cache-control'), 'no-store');
    assert.match(metrics.answer, /# EOF\n$/);
    const { answer } = await call('/prerender_admin/explain', 'POST', { key: 'nobody knows it' });
    assert.deepEqual([answer.kept, answer.reason], [false, 'unknown']);
    assert.equal((await fetch(`${host.url}/queue_status`, { method: 'HEAD' })).status, 200);
  });

  test('rows come in as NDJSON: what is wrong is listed by line, the rest is written', async () => {
    const lines = [
      '{"cacheKey":"nd:1","nextRenderTime":4e12}',
      '',
      '{"cacheKey":"nd:\\ud800","nextRenderTime":4e12}',
      'not json',
      '{"nextRenderTime":1}',
      '{"cacheKey":"nd:2","nextRenderTime":-1}',
      '{"cacheKey":"nd:3","nextRenderTime":"soon"}',
      '{"cacheKey":"nd:4","nextRenderTime":1,"fromSitemap":"yes"}',
      '{"cacheKey":"nd:5","nextRenderTime":1,"effectiveInterval":"1h"}',
      '{"cacheKey":7,"nextRenderTime":1}',
      '[1]',
      '{"cacheKey":"","nextRenderTime":1}',
      '{"cacheKey":"nd:6","nextRenderTime":1,"other":1e999}',
      '{"cacheKey":"nd:6","nextRenderTime":1,"other":{"a":[{"b":[0,-1e999]}]}}',
      `{"cacheKey":"nd:${'x'.repeat(5_000)}","nextRenderTime":4e12}\r`,
      '{"cacheKey":"nd:nul\\u0000","nextRenderTime":4e12,"__proto__":{"a":1}}',
    ];
    const { status, answer } = await call('/render_schedule', 'POST', lines.join('\n'), {
      'content-type': 'application/x-ndjson',
    });
    assert.equal(status, 200);
    assert.equal(answer.written, 4);
    assert.deepEqual(
      answer.errors.map((/** @type {any} */ error) => error.line),
      [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    );
    for (const { error } of answer.errors) assert.match(error, /\w+ \w+ \w+/);
    for (const key of ['nd:1', 'nd:\ud800', `nd:${'x'.repeat(5_000)}`, 'nd:nul\0']) await kept(key);
    const nothing = await call('/render_schedule', 'POST', 'x\ny');
    assert.deepEqual([nothing.status, nothing.answer.failed], [422, 2]);
    assert.match(nothing.answer.error, /errors says/);
  });

  test('a line that is too long, or not UTF-8, costs only itself', async () => {
    const body = Buffer.concat([
      Buffer.from('{"cacheKey":"long:1","nextRenderTime":4e12}\n{"cacheKey":"'),
      Buffer.alloc(17 * MIB, 'x'),
      Buffer.from('","nextRenderTime":4e12}\n{"cacheKey":"'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('","nextRenderTime":4e12}\n{"cacheKey":"long:2","nextRenderTime":4e12}'),
    ]);
    const { status, answer } = await call('/render_schedule', 'POST', body);
    assert.equal(status, 200);
    assert.deepEqual(
      [answer.written, answer.errors.map((/** @type {any} */ e) => e.line)],
      [2, [2, 3]],
    );
    assert.match(answer.errors[0].error, /longer than 16777216 bytes/);
    assert.match(answer.errors[1].error, /UTF-8/);
  });

  test('a stream of any size is taken, with back-pressure: 200,000 rows in one request', async () => {
    const rows = 200_000;
    const report = await new Promise((resolve, reject) => {
      const request = http.request(
        `${host.url}/render_schedule`,
        { method: 'POST', headers: { 'content-type': 'application/x-ndjson' } },
        async (response) => {
          let text = '';
          for await (const chunk of response) text += chunk;
          resolve(JSON.parse(text));
        },
      );
      request.on('error', reject);
      let row = 0;
      const write = () => {
        while (row < rows) {
          let lines = '';
          for (let i = 0; i < 500; i++, row++) {
            lines += `{"cacheKey":"stream:${row}","nextRenderTime":4e12}\n`;
          }
          if (!request.write(lines)) return request.once('drain', write);
        }
        return request.end();
      };
      write();
    });
    assert.deepEqual([report.written, report.failed], [rows, 0]);
    await until(
      'all of them to be kept',
      async () => (await call('/queue_status', 'GET')).answer.rows >= rows,
    );
  });

  test('a client that goes away in the middle of a stream costs nothing but the rest of it', async () => {
    const socket = net.connect(Number(new URL(host.url).port), '127.0.0.1');
    await new Promise((resolve) => {
      socket.write(
        'POST /render_schedule HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n' +
          'transfer-encoding: chunked\r\n\r\n' +
          '2a\r\n{"cacheKey":"cut","nextRenderTime":4e12}\n\n\r\n',
        resolve,
      );
    });
    socket.destroy();
    assert.equal((await call('/queue_status', 'GET')).status, 200);
  });

  describe('what is wrong has its own status and a sentence', () => {
    const json = { 'content-type': 'application/json' };
    const key = 'https://shop.example/wrong';
    /** @type {Record<string, [path: string, method: string, body: unknown, headers: Record<string, string>, status: number]>} */
    const cases = {
      'an unknown route': ['/nothing', 'GET', undefined, {}, 404],
      'a route of Object’s own': ['/constructor', 'GET', undefined, {}, 404],
      'a row without a key': ['/render_schedule/', 'GET', undefined, {}, 404],
      'a wrong method': ['/render_queue/claim', 'GET', undefined, {}, 405],
      'a wrong method of a row': [at(key), 'PATCH', {}, json, 405],
      'a preflight of another site': ['/render_queue/claim', 'OPTIONS', undefined, {}, 405],
      'no content type': ['/render_queue/claim', 'POST', '{"limit":1}', {}, 415],
      'a form’s content type': [
        '/render_queue/pause',
        'POST',
        '',
        { 'content-type': 'text/plain;application/json' },
        415,
      ],
      'an encoded body': [
        '/render_queue/claim',
        'POST',
        '{}',
        { ...json, 'content-encoding': 'gzip' },
        415,
      ],
      'a body that is not JSON': ['/render_queue/claim', 'POST', '{limit:1}', json, 400],
      'a body that is not UTF-8': [
        '/render_queue/claim',
        'POST',
        Buffer.from([0x22, 0xff, 0x22]),
        json,
        400,
      ],
      'a body that is no object': ['/render_queue/claim', 'POST', '[1]', json, 422],
      'a limit that is no number': ['/render_queue/claim', 'POST', { limit: '5' }, json, 422],
      'a limit of 0': ['/render_queue/claim', 'POST', { limit: 0 }, json, 422],
      'a limit of 1.5': ['/render_queue/claim', 'POST', { limit: 1.5 }, json, 422],
      'a limit of 1e9': ['/render_queue/claim', 'POST', { limit: 1e9 }, json, 422],
      'a row that is no object': [at(key), 'PUT', '7', json, 422],
      'a row of nothing': [at(key), 'PUT', '', json, 422],
      'a row without a due time': [at(key), 'PUT', { fromSitemap: true }, json, 422],
      'a due time in words': [at(key), 'PUT', { nextRenderTime: 'tomorrow' }, json, 422],
      'a due time below 0': [at(key), 'PUT', { nextRenderTime: -1 }, json, 422],
      'a due time beyond numbers': [at(key), 'PUT', '{"nextRenderTime":1e999}', json, 422],
      'a number beyond numbers': [at(key), 'PUT', '{"nextRenderTime":1,"x":1e400}', json, 422],
      'one inside a list': [at(key), 'PUT', '{"nextRenderTime":1,"x":[{"y":-1e400}]}', json, 422],
      'a list in a list, a million times': [
        at(key),
        'PUT',
        `{"nextRenderTime":1,"x":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`,
        json,
        422,
      ],
      'a key other than the path’s': [
        at(key),
        'PUT',
        { cacheKey: 'x', nextRenderTime: 1 },
        json,
        422,
      ],
      'a query after a key': [`${at(key)}?a=b`, 'GET', undefined, {}, 400],
      'a key wrongly encoded': ['/render_schedule/%E0%A4%A', 'GET', undefined, {}, 400],
      'a row that is not there': [at(key), 'GET', undefined, {}, 404],
      'a body of more than 16 MiB': [at(key), 'PUT', Buffer.alloc(16 * MIB + 1, 32), json, 413],
      'a result without a key': [
        '/render_queue/job_result',
        'POST',
        { token: 1, outcome: 'gone' },
        json,
        422,
      ],
      'a result without a token': [
        '/render_queue/job_result',
        'POST',
        { key, outcome: 'gone' },
        json,
        422,
      ],
      'a result of another kind': [
        '/render_queue/job_result',
        'POST',
        { key, token: 1, outcome: 'ok' },
        json,
        422,
      ],
      'a result due in words': [
        '/render_queue/job_result',
        'POST',
        { key, token: 1, outcome: 'rendered', nextRenderTime: 'later' },
        json,
        422,
      ],
      'a result of a job never given out': [
        '/render_queue/job_result',
        'POST',
        { key, token: 123_456, outcome: 'rendered' },
        json,
        409,
      ],
      'an explanation of a number': ['/prerender_admin/explain', 'POST', { key: 7 }, json, 422],
    };
    for (const [name, [path, method, body, headers, status]] of Object.entries(cases)) {
      test(`${name}: ${status}`, async () => {
        const answered = await call(path, method, body, headers);
        assert.equal(answered.status, status, JSON.stringify(answered.answer));
        assert.match(answered.answer.error, /\w+ \w+ \w+/);
        if (status === 405) assert.ok(answered.headers.get('allow'));
      });
    }

    test('a chunked body of more than 16 MiB: 413', async () => {
      const status = await new Promise((resolve, reject) => {
        const request = http.request(
          host.url + at(key),
          { method: 'PUT', headers: json },
          (response) => {
            response.resume();
            resolve(response.statusCode);
          },
        );
        request.on('error', reject);
        const piece = Buffer.alloc(MIB, 32);
        for (let i = 0; i < 20; i++) request.write(piece);
        request.end();
      });
      assert.equal(status, 413);
    });

    test('a name that is not this machine’s, as after DNS rebinding: 421', async () => {
      for (const name of [
        'evil.example',
        'localhost.evil.example',
        '10.0.0.1:9926',
        '127.0.0.1.evil.example',
      ]) {
        assert.match(
          await raw(
            host.url,
            `GET /queue_status HTTP/1.1\r\nhost: ${name}\r\nconnection: close\r\n\r\n`,
          ),
          /^HTTP\/1.1 421 /,
        );
      }
      for (const name of ['localhost', '127.0.0.1:1', '[::1]:9926', 'LOCALHOST:80']) {
        assert.match(
          await raw(
            host.url,
            `GET /queue_status HTTP/1.1\r\nhost: ${name}\r\nconnection: close\r\n\r\n`,
          ),
          /^HTTP\/1.1 200 /,
        );
      }
    });

    test('what is not HTTP: 400; a path of 100 KiB: 431', async () => {
      assert.match(await raw(host.url, 'hello\r\n\r\n'), /^HTTP\/1.1 400 /);
      assert.match(
        await raw(
          host.url,
          `GET /render_schedule/${'x'.repeat(100_000)} HTTP/1.1\r\nhost: localhost\r\n\r\n`,
        ),
        /^HTTP\/1.1 431 [\s\S]*NDJSON/,
      );
    });

    test('what Node would answer by itself, or with silence, is answered as all else', async () => {
      /** @type {[request: string, status: number, says: RegExp][]} */
      const requests = [
        ['GET /queue_status HTTP/1.1\r\n', 400, /header host/],
        ['GET /queue_status HTTP/1.1\r\nhost: localhost\r\nexpect: foo\r\n', 417, /expect/],
        ['CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n', 405, /no proxy/],
        ['GET /console HTTP/1.1\r\nhost: localhost\r\n', 308, /\/console\//],
      ];
      for (const [request, status, says] of requests) {
        const answer = await raw(host.url, `${request}connection: close\r\n\r\n`);
        assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), request);
        assert.match(answer, /\r\ncontent-type: application\/json\r\n/i, request);
        assert.match(JSON.parse(answer.split('\r\n\r\n')[1]).error, says, request);
      }
      // Nobody can insist on another protocol.
      const upgrade = await raw(
        host.url,
        'POST /prerender_admin/explain HTTP/1.1\r\nhost: localhost\r\nconnection: close, upgrade\r\nupgrade: h2c\r\n' +
          'content-type: application/json\r\ncontent-length: 11\r\n\r\n{"key":"x"}',
      );
      assert.match(upgrade, /^HTTP\/1.1 200 [\s\S]*"key":"x"/);
    });

    test('none of it has cost a worker', () => {
      assert.doesNotMatch(host.output(), /has ended|failed/);
    });
  });
});

/**
 * @param {string} url
 * @param {string} bytes
 * @returns {Promise<string>}
 */
function raw(url, bytes) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(bytes));
    let answer = '';
    socket.setEncoding('latin1');
    socket.on('data', (text) => {
      answer += text;
    });
    socket.on('end', () => {
      resolve(answer);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

describe('connections', () => {
  test('one is kept alive over many requests, pipelined ones included, and all workers share the work', async () => {
    const host = await startHost(['--sample', '0']);
    const one = 'GET /queue_status HTTP/1.1\r\nhost: localhost\r\n\r\n';
    const answer = await raw(
      host.url,
      `${one.repeat(20)}GET /queue_status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`,
    );
    assert.equal(answer.match(/HTTP\/1\.1 200 OK/g)?.length, 21);
    assert.equal(await host.stop(), 0);
  });

  test('a client that has said all it has to say and closed its half is still answered', async () => {
    const host = await startHost(['--sample', '0']);
    const answer = await new Promise((resolve, reject) => {
      const socket = net.connect({
        port: Number(new URL(host.url).port),
        host: '127.0.0.1',
        allowHalfOpen: true,
      });
      let text = '';
      socket.on('data', (chunk) => {
        text += chunk;
      });
      socket.on('end', () => resolve(text));
      socket.on('error', reject);
      socket.end('GET /queue_status HTTP/1.1\r\nhost: localhost\r\n\r\n');
    });
    assert.match(answer, /^HTTP\/1.1 200 /);
    assert.equal(await host.stop(), 0);
  });
});

describe('a token', () => {
  test('is asked of every request, in the bearer’s way; then any name of the host will do', async () => {
    const host = await startHost(['--sample', '0', '--token', 's3cret']);
    const good = { authorization: 'Bearer s3cret' };
    for (const headers of [
      {},
      { authorization: 'Bearer wrong' },
      { authorization: 'Basic s3cret' },
      { authorization: 'Bearer s3cret2' },
    ]) {
      const {
        status,
        answer,
        headers: given,
      } = await ask(`${host.url}/metrics`, 'GET', undefined, /** @type {any} */ (headers));
      assert.equal(status, 401);
      assert.equal(given.get('www-authenticate'), 'Bearer');
      assert.match(answer.error, /authorization: Bearer/);
    }
    assert.equal((await ask(`${host.url}/queue_status`, 'GET', undefined, good)).status, 200);
    assert.match(
      await raw(
        host.url,
        'GET /queue_status HTTP/1.1\r\nhost: queue.internal\r\nauthorization: Bearer s3cret\r\nconnection: close\r\n\r\n',
      ),
      /^HTTP\/1.1 200 /,
    );
    assert.equal(await host.stop(), 0);
  });
});

describe('the command line', () => {
  /** @type {Record<string, [args: string[], code: number, says: RegExp]>} */
  const cases = {
    'an unknown option': [['--nothing'], 2, /--nothing.*--help/],
    'nodes without a name of its own': [['--nodes', 'a=http://127.0.0.1:1'], 2, /--node /],
    'nodes without this one': [
      ['--node', 'b', '--nodes', 'a=http://127.0.0.1:1'],
      2,
      /this node, "b", is not among them/,
    ],
    'a node without its URL': [['--node', 'a', '--nodes', 'a,b'], 2, /needs a name|such as http/],
    'a node without a name': [['--node', ''], 2, /--node must be a name/],
    'an argument too many': [['now'], 2, /now.*--help/],
    'a port that is none': [['--port', 'http'], 2, /--port must be a whole number/],
    'a port beyond all': [['--port', '65536'], 2, /--port must be a whole number/],
    'no workers': [['--workers', '0'], 2, /--workers must be a whole number/],
    'an option without its value': [['--port'], 2, /--port.*--help/],
    'a host that others can reach, without a token': [['--host', '0.0.0.0'], 2, /--token/],
    'an empty token': [['--token', ''], 2, /--token must not be empty/],
    'a sample that is no number': [['--sample', '1e3'], 2, /--sample must be a whole number/],
    'a sitemap that is not there': [['--sitemap', '/nowhere.xml'], 2, /no such file/],
    'a configuration that is not there': [['--config', '/nowhere.json'], 2, /cannot be read/],
    help: [['--help'], 0, /--sitemap FILE/],
  };
  for (const [name, [args, code, says]] of Object.entries(cases)) {
    test(`${name}: exit ${code}, and a sentence`, async () => {
      const { ended, output } = run(
        [...args, '--data', newData()].slice(
          0,
          args[0] === '--port' && args.length === 1 ? 1 : undefined,
        ),
      );
      assert.equal(await ended, code);
      assert.match(output(), says);
      assert.doesNotMatch(output(), /\n +at /);
      if (code === 2) assert.equal(output().trim().split('\n').length, 1);
    });
  }

  for (const [name, text, says] of /** @type {const} */ ([
    ['is not JSON', '{routes:[]}', /is not JSON/],
    ['has an unknown option', '{"route":[]}', /no option "route"/],
    ['has an option of a wrong type', '{"defaultInterval":"day"}', /defaultInterval/],
  ])) {
    test(`a configuration that ${name}: exit 2, and a sentence`, async () => {
      const file = path.join(folder, `config-${number++}.json`);
      fs.writeFileSync(file, text);
      const { ended, output } = run(['--port', '0', '--data', newData(), '--config', file]);
      assert.equal(await ended, 2, output());
      assert.match(output(), says);
    });
  }

  test('a port that is taken, or a data folder that is served already: exit 1, and a sentence', async () => {
    const host = await startHost(['--sample', '0']);
    const data = newData();
    const taken = run(['--port', new URL(host.url).port, '--data', data]);
    assert.equal(await taken.ended, 1, taken.output());
    assert.match(taken.output(), /is taken.*--port/);
    // Found out before anything is written, so the next start is still the first.
    assert.doesNotMatch(taken.output(), /sample rows/);
    assert.deepEqual(fs.readdirSync(path.join(data, 'run')), []);
    assert.deepEqual(fs.readdirSync(data), ['run']);
    const served = run(['--port', '0', '--data', host.data]);
    assert.equal(await served.ended, 1, served.output());
    assert.match(served.output(), /another process serves/);
    assert.equal(await host.stop(), 0);
  });

  /** A process that has locked the folder. @param {string} data */
  async function lockedBy(data) {
    const module = require.resolve('../lib/standalone/folder-lock.js');
    const script = `require(${JSON.stringify(module)}).lockFolder(${JSON.stringify(data)}).then(() => {
      process.stdout.write('locked');
      setInterval(() => {}, 1_000);
    });`;
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    return child;
  }

  test('a data folder is served by one, however many begin at once over what a killed process left', async () => {
    const data = newData();
    for (let round = 0; round < 3; round++) {
      const child = await lockedBy(data);
      await assert.rejects(lockFolder(data), /another process serves/);
      child.kill('SIGKILL');
      await once(child, 'exit');
      const all = await Promise.allSettled([1, 2, 3].map(() => lockFolder(data)));
      const locks = all.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      assert.equal(locks.length, 1);
      for (const one of all) {
        if (one.status === 'rejected') assert.match(one.reason.message, /another process serves/);
      }
      const [{ sockets, release }] = locks;
      assert.equal(fs.readdirSync(sockets).length, 1);
      release();
      assert.deepEqual(fs.readdirSync(sockets), []);
    }
    // As a version before this one locked it.
    const before = net.createServer((socket) => socket.destroy());
    before.listen(path.join(data, 'run', 'lock.sock'));
    await once(before, 'listening');
    await assert.rejects(lockFolder(data), /another process serves/);
    before.close();
  });

  test('a lock of which nobody can tell whether it lives is named, and why', async () => {
    const data = newData();
    (await lockFolder(data)).release();
    const run = path.join(data, 'run');
    // Whoever runs the tests may be allowed everything, but not to follow this.
    const lock = path.join(run, 'lock-0-loop.sock');
    fs.symlinkSync(lock, lock);
    await assert.rejects(lockFolder(data), ({ message }) => {
      assert.match(message, /it cannot be told whether another process serves .*\(ELOOP at /);
      assert.ok(message.includes(lock), message);
      return true;
    });
    assert.deepEqual(fs.readdirSync(run), ['lock-0-loop.sock']);
    // One that surely lives is what has to be stopped.
    const before = net.createServer((socket) => socket.destroy());
    before.listen(path.join(run, 'lock.sock'));
    await once(before, 'listening');
    await assert.rejects(lockFolder(data), /another process serves .*: stop it/);
    before.close();
    fs.rmSync(lock);
    (await lockFolder(data)).release();
  });

  // Other systems refuse where there is no room for one more that waits, as if nobody listened.
  const isLinux = process.platform === 'linux';
  test('nor does one that stands still lose its data folder, be it that no more can wait for it', {
    skip: !isLinux,
  }, async () => {
    const data = newData();
    const child = await lockedBy(data);
    const exited = once(child, 'exit');
    const [name] = fs.readdirSync(path.join(data, 'run'));
    /** @type {net.Socket[]} */
    const waiting = [];
    try {
      child.kill('SIGSTOP');
      await until('it to stand still', () =>
        / T /.test(fs.readFileSync(`/proc/${child.pid}/stat`, 'latin1')),
      );
      const connect = async () => {
        const socket = net.connect(path.join(data, 'run', name));
        waiting.push(socket);
        await once(socket, 'connect');
      };
      await assert.rejects(
        async () => {
          while (waiting.length < 10_000) await connect();
        },
        { code: 'EAGAIN' },
      );
      await assert.rejects(lockFolder(data), /another process serves .*: stop it/);
      assert.deepEqual(fs.readdirSync(path.join(data, 'run')), [name]);
    } finally {
      for (const socket of waiting) socket.destroy();
      child.kill('SIGKILL');
      await exited;
    }
    (await lockFolder(data)).release();
  });

  test('without arguments but a folder: 20,000 sample rows, and what to try next', async () => {
    const host = await startHost();
    assert.match(host.output(), /20000 sample rows/);
    assert.match(host.output(), /curl -s .*\/render_queue\/claim -d/);
    const { answer } = await ask(`${host.url}/queue_status`, 'GET');
    assert.equal(answer.rows, 20_000);
    assert.ok(answer.due > 500 && answer.due < 3_000);
    const started = Date.now();
    assert.equal(await host.stop(), 0);
    const stopMs = [Date.now() - started];
    const again = await startHost([], { data: host.data });
    assert.doesNotMatch(again.output(), /sample rows/);
    assert.equal((await ask(`${again.url}/queue_status`, 'GET')).answer.rows, 20_000);
    const stoppedAgain = Date.now();
    assert.equal(await again.stop(), 0);
    stopMs.push(Date.now() - stoppedAgain);
    // What the code itself takes is in both; what the machine does to the process is not.
    assert.ok(Math.min(...stopMs) < 5_000, `${stopMs} ms`);
  });

  test('a folder that was used before gets no sample unasked, be its table empty or lost', async () => {
    const one = ['--workers', '1'];
    const emptied = await startHost([...one, '--sample', '0']);
    await ask(emptied.url + at('https://shop.example/'), 'PUT', { nextRenderTime: 4e12 });
    await ask(emptied.url + at('https://shop.example/'), 'DELETE');
    // Without a last snapshot.
    emptied.child.kill('SIGKILL');
    await emptied.ended;
    fs.rmSync(path.join(emptied.data, 'queue.snapshot'), { force: true });
    const lost = ['queue.snapshot', 'config.json'].map((name) => {
      const data = newData();
      fs.mkdirSync(data);
      fs.writeFileSync(path.join(data, name), name === 'config.json' ? '{}' : 'damaged');
      return data;
    });
    for (const data of [emptied.data, ...lost]) {
      const host = await startHost(one, { data });
      assert.doesNotMatch(host.output(), /sample rows/);
      assert.match(host.output(), /the table is empty: .*--sitemap FILE.*--sample N/);
      assert.equal((await ask(`${host.url}/queue_status`, 'GET')).answer.rows, 0);
      assert.equal(await host.stop(), 0);
    }
    const asked = await startHost([...one, '--sample', '10'], { data: emptied.data });
    assert.match(asked.output(), /10 sample rows/);
    assert.doesNotMatch(asked.output(), /the table is empty/);
    assert.equal(await asked.stop(), 0);
  });

  test('a first start that comes to no end leaves a folder whose next start is still the first', async () => {
    const file = path.join(folder, `config-${number++}.json`);
    fs.writeFileSync(file, '{"delimiter":5}');
    const wrong = newData();
    const refused = run(['--port', '0', '--data', wrong, '--config', file]);
    assert.equal(await refused.ended, 2, refused.output());

    const stopped = newData();
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    fs.writeFileSync(path.join(faults, '0.late'), '');
    const first = run(['--port', '0', '--data', stopped, '--workers', '1'], faults);
    // It is written just before the rows: none, some or all of them are there when it stops.
    const routes = path.join(stopped, 'config.json');
    await until('the sample’s routes', () => fs.existsSync(routes), { everyMs: 1 });
    first.child.kill('SIGINT');
    assert.equal(await first.ended, 0, first.output());

    for (const data of [wrong, stopped]) {
      const host = await startHost(['--workers', '1'], { data });
      assert.match(host.output(), /sample rows/);
      assert.equal((await ask(`${host.url}/queue_status`, 'GET')).answer.rows, 20_000);
      assert.equal(await host.stop(), 0);
    }
  });

  test('rows that a process which was killed left behind get no sample beside them', async () => {
    const data = newData();
    fs.mkdirSync(data);
    const writer = await startWriter(data);
    const table = openTable(data, writer.connect());
    await table.put('https://shop.example/', DUE);
    await table.close();
    await writer.stop();
    const host = await startHost(['--workers', '1'], { data });
    assert.equal((await ask(`${host.url}/queue_status`, 'GET')).answer.rows, 1);
    assert.doesNotMatch(host.output(), /sample rows|the table is empty/);
    assert.equal(await host.stop(), 0);
  });

  test('while the rows are written the port answers that the host is not ready', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    fs.writeFileSync(path.join(faults, 'write'), '');
    const host = run(['--port', '0', '--data', newData(), '--sample', '2000'], faults);
    const writing = path.join(faults, 'writing');
    await until('the first rows', () => fs.existsSync(writing));
    const url = `http://127.0.0.1:${fs.readFileSync(path.join(faults, 'port'), 'utf8')}`;
    const first = await ask(`${url}/queue_status`, 'GET');
    assert.equal(first.status, 503);
    assert.match(first.answer.error, /send the same request again/);
    assert.doesNotMatch(host.output(), /listens on|sample rows/);
    fs.rmSync(writing);
    await until('the host', async () => (await ask(`${url}/queue_status`, 'GET')).status === 200);
    assert.match(host.output(), /2000 sample rows/);
    host.child.kill('SIGTERM');
    assert.equal(await host.ended, 0);
  });

  test('a sitemap is imported while the host already answers', async () => {
    const file = path.join(folder, 'sitemap.xml');
    fs.writeFileSync(
      file,
      '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://shop.example/</loc><priority>1</priority></url><url><loc>x</loc></url></urlset>',
    );
    const host = await startHost(['--sitemap', file]);
    await until('the report', () => /1 written, 0 known already, 1 skipped/.test(host.output()));
    assert.match(host.output(), /sitemap\.xml:1: <loc> is not an absolute/);
    await until(
      'the row',
      async () => (await ask(`${host.url}/queue_status`, 'GET')).answer.due === 1,
    );
    assert.equal(await host.stop(), 0);
  });
});

describe('a running fleet', () => {
  test('every job once, every state adds up, and at the end the keeper equals the table row for row', async () => {
    const host = await startHost(['--sample', '3000']);
    const fleet = startFleet({ url: host.url, renderers: 20 });
    const began = Date.now();
    let states = 0;
    // For ten seconds, or as long as a slow machine takes; no lease ends meanwhile.
    const isEnough = () =>
      states > 50 && fleet.tally.rendered > 100 && fleet.tally.failed > 0 && fleet.tally.silent > 0;
    while (Date.now() - began < (isEnough() ? 10_000 : 60_000)) {
      const { status, answer } = await ask(`${host.url}/prerender_admin/queue-state`, 'GET');
      assert.equal(status, 200);
      assertAddsUp(answer);
      states += 1;
      // Something for the queue to do beside the renderers.
      await ask(host.url + at(`https://shop.example/new/${states % 50}`), 'PUT', {
        nextRenderTime: Date.now() - 1_000,
        fromSitemap: states % 2 === 0,
        urgentAt: states % 3 === 0 ? Date.now() : null,
      });
    }
    const tally = await fleet.stop();
    assert.ok(isEnough(), `${states} states, ${JSON.stringify(tally)}`);
    assert.deepEqual([tally.doubles, tally.errors, tally.late], [0, 0, 0], JSON.stringify(tally));
    const { all, close } = rowsOf(host.data);
    await until('the last events', async () => {
      const { answer } = await ask(`${host.url}/queue_status`, 'GET');
      return answer.rows === all.length;
    });
    for (const row of all) {
      const { answer } = await ask(`${host.url}/prerender_admin/explain`, 'POST', {
        key: row.cacheKey,
      });
      assert.equal(answer.kept, true, row.cacheKey);
      const found = pick({ ...answer, minute: Math.floor(answer.dueAt / 60_000) });
      assert.deepEqual(found, expectedOf(row), row.cacheKey);
    }
    const { answer } = await ask(`${host.url}/prerender_admin/queue-state`, 'GET');
    assert.equal(answer.now.inFlight, tally.silent, 'in flight is what was never answered');
    await close();
    assert.doesNotMatch(host.output(), /failed:|has ended/);
    assert.equal(await host.stop(), 0);
  });
});

describe('kill -9', () => {
  test('of the process in the middle of writes: all that was acknowledged is there and kept after the restart', async () => {
    const data = newData();
    /** @type {Map<string, number>} */
    const acknowledged = new Map();
    for (let round = 0; round < 3; round++) {
      const host = await startHost(['--sample', '0'], { data });
      let written = 0;
      let going = true;
      const writers = Array.from({ length: 8 }, async (_, lane) => {
        for (let i = 0; going; i++) {
          const key = `https://shop.example/${lane}/${i % 40}`;
          const nextRenderTime = 60_000 * (1 + round * 1_000_000 + i);
          try {
            const { status } = await ask(host.url + at(key), 'PUT', { nextRenderTime });
            if (status >= 300) continue;
            acknowledged.set(key, nextRenderTime);
            written += 1;
          } catch {
            going = false;
          }
        }
      });
      await until('a few hundred writes', () => written > 400);
      host.child.kill('SIGKILL');
      await Promise.all(writers);
      assert.equal(await host.ended, 'SIGKILL');
      const again = await startHost(['--sample', '0'], { data });
      for (const [key, nextRenderTime] of acknowledged) {
        const { answer } = await ask(again.url + at(key), 'GET');
        // One more write of that lane may have been committed without its answer.
        assert.ok(answer.nextRenderTime >= nextRenderTime, `${key} ${answer.nextRenderTime}`);
        const explained = await ask(`${again.url}/prerender_admin/explain`, 'POST', { key });
        assert.equal(explained.answer.dueAt, answer.nextRenderTime);
      }
      assert.equal(await again.stop(), 0);
    }
  });
});

describe('what the keeper keeps wrongly', () => {
  test('a stale row is never given out: it is skipped, repaired, and another takes its place; nor is one that cannot be read', async () => {
    const host = await startHost(['--sample', '0']);
    const keys = ['stale', 'deleted', 'damaged', 'good'].map(
      (name) => `https://shop.example/${name}`,
    );
    for (const [index, key] of keys.entries()) {
      // Due in the order of the list.
      await ask(host.url + at(key), 'PUT', { nextRenderTime: 60_000 * (index + 1) });
    }
    await until(
      'the rows',
      async () => (await ask(`${host.url}/queue_status`, 'GET')).answer.due === 4,
    );
    // Beside the host, which hears nothing of it.
    const { root, rows } = openEnvironment(host.data);
    const [stale, deleted, damaged, good] = keys;
    const read = decodeRow(stale, /** @type {Buffer} */ (rows.get(encodeKey(stale))));
    await rows.put(
      encodeKey(stale),
      encodeValue(stale, rowText({ ...read, nextRenderTime: 4e12 }), 1),
    );
    await rows.remove(encodeKey(deleted));
    await rows.put(encodeKey(damaged), Buffer.from('damaged'));
    const { answer } = await ask(`${host.url}/render_queue/claim`, 'POST', { limit: 1 });
    assert.deepEqual(
      answer.jobs.map((/** @type {any} */ job) => job.key),
      [good],
    );
    // The head check may have come first.
    assert.ok(answer.skippedStale <= 2 && answer.skippedUnreadable === 1, JSON.stringify(answer));
    const explained = await ask(`${host.url}/prerender_admin/explain`, 'POST', { key: stale });
    assert.equal(explained.answer.dueAt, 60_000 * Math.floor(4e12 / 60_000));
    const unknown = await ask(`${host.url}/prerender_admin/explain`, 'POST', { key: deleted });
    assert.equal(unknown.answer.kept, false);
    assert.equal((await ask(host.url + at(damaged), 'GET')).status, 500);
    await root.close();
    assert.equal(await host.stop(), 0);
  });
});

describe('a damaged row of another node', () => {
  test('is named, and deleted by whoever is told to; no other row of another node is', async () => {
    const host = await startHost(['--sample', '0', '--node', 'a']);
    const ring = [
      { name: 'a', url: host.url },
      { name: 'b', url: 'http://127.0.0.1:1' },
    ];
    await ask(`${host.url}/prerender_admin/nodes`, 'PUT', { nodes: ring });
    const keys = Array.from({ length: 50 }, (_, i) => `https://shop.example/${i}`);
    const owners = await Promise.all(
      keys.map((key) => ask(`${host.url}/prerender_admin/explain`, 'POST', { key })),
    );
    const key = keys[owners.findIndex(({ answer }) => answer.owner === 'b')];
    const { root, rows } = openEnvironment(host.data);
    await rows.put(encodeKey(key), encodeValue(key, rowText({ nextRenderTime: 1 }), 1));
    assert.equal((await ask(host.url + at(key), 'DELETE')).status, 421);
    await rows.put(encodeKey(key), Buffer.from('damaged'));
    await until('its name', () => host.output().includes(`row "${key}" of node b cannot be read`));
    assert.deepEqual((await ask(host.url + at(key), 'DELETE')).answer.existed, true);
    assert.equal((await ask(host.url + at(key), 'DELETE')).status, 421);
    await until('the end of the hand-over', async () => {
      const { status, answer } = await ask(`${host.url}/prerender_admin/queue-state`, 'GET');
      return status === 200 && !('handOver' in answer);
    });
    await root.close();
    assert.equal(await host.stop(), 0);
  });
});

/**
 * Makes a worker stand still until it is woken.
 *
 * @param {string} faults
 * @param {string} worker
 */
async function standStill(faults, worker) {
  const fault = path.join(faults, `${worker}.block`);
  fs.writeFileSync(fault, '');
  await until('the worker to stand still', () => fs.existsSync(`${fault}ed`));
  return () => fs.rmSync(`${fault}ed`);
}

describe('a worker that fails', () => {
  test('by an error: it is replaced, another feeds, the queue is not loaded anew, and claims go on', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    const host = await startHost(['--sample', '500', '--workers', '3'], { faults });
    const epoch = async () => {
      const { status, answer } = await ask(`${host.url}/prerender_admin/queue-state`, 'GET');
      return status === 200 ? answer.trust.keeper.epoch : null;
    };
    assert.equal(await epoch(), 1);
    fs.writeFileSync(path.join(faults, '0.throw'), '');
    fs.writeFileSync(path.join(faults, '1.throw'), '');
    fs.writeFileSync(path.join(faults, '2.throw'), '');
    await until(
      'three replacements',
      () => host.output().match(/has ended: it is replaced/g)?.length === 3,
    );
    await until('the next feeder', async () => Number(await epoch()) >= 2);
    assert.match(host.output(), /thrown by the test/);
    const key = 'https://shop.example/after';
    await until(
      'a write',
      async () => (await ask(host.url + at(key), 'PUT', { nextRenderTime: 0 })).status === 201,
    );
    await until('the claim of it', async () => {
      const { answer } = await ask(`${host.url}/render_queue/claim`, 'POST', { limit: 50 });
      return answer.jobs.some((/** @type {any} */ job) => job.key === key);
    });
    const { answer } = await ask(`${host.url}/prerender_admin/queue-state`, 'GET');
    assert.equal(answer.trust.keeper.loadRows, 500);
    assert.equal(await host.stop(), 0);
  });

  test('before the others have started: it is replaced like any other, and once more where that fails', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    const fault = (/** @type {string} */ name) => path.join(faults, name);
    fs.writeFileSync(fault('1.late'), '');
    const args = ['--port', '0', '--data', newData(), '--sample', '0', '--workers', '2'];
    const host = run(args, faults);
    await until('the first feeder', () => /worker 0 feeds/.test(host.output()));
    fs.writeFileSync(fault('0.refuse'), '');
    fs.writeFileSync(fault('0.throw'), '');
    await until('the next one', () => host.output().match(/worker 0 feeds/g)?.length === 2);
    assert.match(host.output(), /thrown by the test/);
    assert.match(host.output(), /refused by the test/);
    assert.equal(host.output().match(/worker 0 has ended: it is replaced/g)?.length, 2);
    assert.doesNotMatch(host.output(), /listens on/);
    fs.rmSync(fault('1.late'));
    await until('the start', () => /listens on .* with 2 workers/.test(host.output()));
    host.child.kill('SIGTERM');
    assert.equal(await host.ended, 0);
  });

  test('instead of starting: the host ends with what it said', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    fs.writeFileSync(path.join(faults, '0.refuse'), '');
    const args = ['--port', '0', '--data', newData(), '--sample', '0', '--workers', '2'];
    const host = run(args, faults);
    assert.equal(await host.ended, 1);
    assert.match(host.output(), /worker 0 failed: .*refused by the test/);
    assert.doesNotMatch(host.output(), /replaced|listens on/);
  });

  test('by standing still: within seconds another feeds; what it finds on waking it is refused, and it answers again', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    const host = await startHost(['--sample', '500', '--workers', '3'], { faults });
    const worker = await until('the feeder', () => /worker (\d) feeds/.exec(host.output())?.[1]);
    const wake = await standStill(faults, worker);
    let claims = 0;
    await until('the take-over', async () => {
      // A connection of its own: one that was kept alive may be the still worker's.
      const text = await raw(
        host.url,
        'POST /render_queue/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n' +
          'content-length: 11\r\nconnection: close\r\n\r\n{"limit":1}',
      );
      assert.match(text, /^HTTP\/1.1 200 /);
      claims += 1;
      return /has stood still for \d+ ms: another one feeds/.test(host.output());
    });
    // One that waited for the worker that stands still would have taken all of the time.
    assert.ok(claims > 5, String(claims));
    const state = async () =>
      JSON.parse(
        (
          await raw(
            host.url,
            'GET /prerender_admin/queue-state HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n',
          )
        ).split('\r\n\r\n')[1],
      );
    await until('the new epoch', async () => (await state()).trust.keeper.epoch === 2);
    assert.equal((await state()).trust.phase, 'live');
    wake();
    await until('the old feeder’s end', () =>
      new RegExp(`worker ${worker} feeds no longer`).test(host.output()),
    );
    assert.equal((await state()).trust.keeper.epoch, 2);
    assert.doesNotMatch(host.output(), /has ended/);
    assert.equal(await host.stop(), 0);
  });

  test('by standing still for 15 s: it is ended and replaced; time in which the whole process stood still does not count', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    const host = await startHost(['--sample', '0', '--workers', '2'], { faults });
    await standStill(faults, '0');
    const began = performance.now();
    host.child.kill('SIGSTOP');
    const frozen = () => performance.now() - began > 16_000;
    await until('more than a worker may be silent', frozen, { everyMs: 100 });
    host.child.kill('SIGCONT');
    const said = /worker (\d) has stood still for (\d+) ms: it is ended/;
    const [, worker, silence] = await until('its end', () => said.exec(host.output()));
    assert.equal(worker, '0');
    assert.ok(Number(silence) > 31_000, silence);
    await until('another', () => /worker 0 has ended: it is replaced/.test(host.output()));
    assert.equal(await host.stop(), 0);
  });
});

describe('a client that goes away', () => {
  /** @param {string} url @param {object} body */
  const claimOf = (url, body) => {
    const text = JSON.stringify(body);
    return (
      `POST /render_queue/claim HTTP/1.1\r\nhost: ${new URL(url).host}\r\n` +
      `content-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`
    );
  };

  test('while its worker stands still: its claim, read when the worker wakes, gives nothing out', async () => {
    const faults = fs.mkdtempSync(path.join(folder, 'faults-'));
    const host = await startHost(['--sample', '0', '--workers', '1'], { faults });
    for (let i = 0; i < 40; i++) {
      await ask(host.url + at(`https://shop.example/${i}`), 'PUT', { nextRenderTime: 1 });
    }
    const state = async () =>
      (await ask(`${host.url}/prerender_admin/queue-state`, 'GET')).answer.now;
    await until('the rows', async () => (await state()).due === 40);
    // Connections that the worker has taken already.
    const clients = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const client = net.connect(Number(new URL(host.url).port), '127.0.0.1');
        client.write('GET /queue_status HTTP/1.1\r\nhost: localhost\r\n\r\n');
        await once(client, 'data');
        return client;
      }),
    );
    const wake = await standStill(faults, '0');
    const ports = clients.map(({ localPort }) => String(localPort));
    await Promise.all(
      clients.map(async (client) => {
        await new Promise((resolve) => client.write(claimOf(host.url, { limit: 5 }), resolve));
        client.destroy();
      }),
    );
    await until('the ends to be passed on to the worker', () => {
      const ended = new Set(fs.readFileSync(path.join(faults, 'ended'), 'utf8').split('\n'));
      return ports.every((port) => ended.has(port));
    });
    wake();
    // The second is sent when the worker has answered the first, and read what lay there with it.
    for (let i = 0; i < 2; i++) await state();
    assert.equal((await state()).inFlight, 0);
    const { answer } = await ask(`${host.url}/render_queue/claim`, 'POST', { limit: 100 });
    assert.equal(answer.jobs.length, 40);
    assert.doesNotMatch(host.output(), /failed/);
    assert.equal(await host.stop(), 0);
  });

  test('while it is being served: its jobs are given back as if they had not been given out', async (t) => {
    const data = newData();
    const writer = await startWriter(data);
    const table = openTable(data, writer.connect());
    const keeper = manual();
    const keys = ['a', 'b', 'c'].map((name) => `https://shop.example/${name}`);
    for (const key of keys) {
      const written = await table.put(key, DUE);
      keeper.apply(put(key, DUE, written?.version));
    }
    /** Reads of the table wait for it. @type {Promise<unknown>} */
    let reading = Promise.resolve();
    let reads = 0;
    let failures = 0;
    const api = createApi({
      keeper,
      table: /** @type {any} */ ({
        /** @param {string} key */
        async get(key) {
          reads += 1;
          await reading;
          return table.getSync(key);
        },
      }),
      nodes: /** @type {any} */ (null),
      leftover: /** @type {any} */ (null),
      node: 'localhost',
      defaultInterval: HOUR,
      onError: () => {
        failures += 1;
      },
    });
    const server = createServer(api);
    t.after(async () => {
      server.closeAllConnections();
      server.close();
      keeper.close();
      await table.close();
      await writer.stop();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
    const { port } = /** @type {net.AddressInfo} */ (server.address());
    const url = `http://127.0.0.1:${port}`;
    // More often than a page may miss.
    for (let round = 0; round < 6; round++) {
      let read = () => {};
      reading = new Promise((resolve) => {
        read = () => resolve(undefined);
      });
      reads = 0;
      const client = net.connect(port, '127.0.0.1');
      /** @type {Promise<net.Socket>} */
      const served = new Promise((resolve) => server.once('connection', resolve));
      client.write(claimOf(url, { limit: 2 }));
      const socket = await served;
      await until('the claim', () => reads > 0);
      assert.equal(keeper.state().now.inFlight, 2);
      client.destroy();
      await once(socket, 'close');
      read();
      await until('their end', () => keeper.state().now.inFlight === 0);
    }
    assert.equal(keeper.explain(keys[0]).misses, 0);
    assert.equal(keeper.size, 3);
    const { answer } = await ask(`${url}/render_queue/claim`, 'POST', { limit: 3 });
    assert.deepEqual(answer.jobs.map((/** @type {any} */ { key }) => key).sort(), keys);
    const state = keeper.state();
    assert.deepEqual([state.now.heldKeys, state.trust.keeper.repairedTotal], [0, 0]);
    assert.equal(failures, 0);
  });
});

describe('pause', () => {
  test('survives a restart', async () => {
    const host = await startHost(['--sample', '10']);
    await ask(`${host.url}/render_queue/pause`, 'POST');
    host.child.kill('SIGKILL');
    await host.ended;
    const again = await startHost([], { data: host.data });
    assert.equal((await ask(`${again.url}/queue_status`, 'GET')).answer.status, 'paused');
    assert.equal(await again.stop(), 0);
  });
});
