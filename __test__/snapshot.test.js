'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { after, before, beforeEach, describe, test } = require('node:test');
const { Worker } = require('node:worker_threads');
const { QueueKeeper } = require('..');
const { longestCall, ranDuring } = require('./support/held-up.js');
const { DUE, HOUR, MINUTE, START } = require('./support/keepers.js');
const { assertFields, gone, keysOf, manual, put, withCode } = require('./support/keepers.js');
const { random } = require('./support/random-ops.js');
const { fileOf, framesOf } = require('./support/snapshot-file.js');
const { until } = require('./support/until.js');

const SEED = Number(process.env.SEED ?? 1);

/** @type {string} */
let folder;
/** @type {string} */
let file;
let number = 0;
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-snapshot-'));
});
beforeEach(() => {
  file = path.join(folder, `${number++}.snapshot`);
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

/** @param {any} keeper */
const order = (keeper) => keysOf(keeper.topK(1_000_000).rows);

/** A keeper with rows of many classes, several of each minute. @param {number} rows @param {object} [options] */
function filled(rows, options) {
  const keeper = manual(options);
  const { int, chance } = random(SEED);
  const events = Array.from({ length: rows }, (_, i) =>
    put(`https://shop.example/${i % 3 ? 'p' : 'c'}/${i}|${i % 2 ? 'desktop' : 'mobile'}`, {
      nextRenderTime: START - int(200) * MINUTE,
      fromSitemap: chance(0.5),
      changedAt: chance(0.1) ? START : null,
      urgentAt: chance(0.1) ? START : null,
      demandPeriod: chance(0.5) ? HOUR : null,
      effectiveInterval: chance(0.1) ? HOUR * (1 + int(3)) : null,
    }),
  );
  keeper.applyAll(events);
  return keeper;
}

describe('a snapshot of the kept queue', () => {
  test('comes back with every row, class and the order kept', async () => {
    const keeper = filled(20_000);
    const saved = await keeper.saveSnapshot(file);
    assertFields(saved, 'rows bytes ms');
    assert.equal(saved.rows, 20_000);
    assert.equal(saved.bytes, fs.statSync(file).size);
    const back = manual();
    const loaded = await back.loadSnapshot(file);
    assertFields(loaded, 'rows savedAt ms');
    assert.deepEqual([loaded.rows, loaded.savedAt], [20_000, START]);
    assert.deepEqual([back.size, back.classCount], [keeper.size, keeper.classCount]);
    assert.deepEqual(back.topK(20_000), keeper.topK(20_000));
    for (const key of keysOf(keeper.topK(500).rows)) {
      assert.deepEqual(back.describe(key), keeper.describe(key));
    }
    const flow = back.state().flow;
    assert.deepEqual(flow, [], 'loading counts nothing');
    back.validate();
    keeper.validate();
  });

  test('keeps odd keys exactly', async () => {
    const keys = ['', '\0', 'a\0b', '\ud800', '\udc00', '\ud83d\ude00', '__proto__', 'cafe\u0301'];
    keys.push(
      'caf\u00e9',
      '\u4e2d',
      '-',
      'x'.repeat(2 ** 20),
      `${'x'.repeat(2 ** 20)}y`,
      '\udfff\ud800',
    );
    const keeper = manual();
    keeper.applyAll(keys.map((key) => put(key)));
    await keeper.saveSnapshot(file);
    const back = manual();
    await back.loadSnapshot(file);
    assert.deepEqual(order(back), keys);
    keeper.applyAll(keys.map((key) => gone(key)));
    assert.equal(keeper.size, 0);
    await keeper.saveSnapshot(file);
    assert.equal((await back.loadSnapshot(file)).rows, 0, 'an empty queue has a snapshot, too');
  });

  test('is of the moment of the call: what comes later is not in it', async () => {
    const keeper = filled(50_000);
    const before = order(keeper);
    const saving = keeper.saveSnapshot(file);
    await new Promise(setImmediate);
    for (let i = 0; i < 50_000; i += 3) keeper.apply(gone(before[i]));
    await saving;
    const back = manual();
    await back.loadSnapshot(file);
    const kept = new Set(before);
    assert.ok(back.size <= before.length && back.size >= keeper.size);
    assert.ok(order(back).every((key) => kept.has(key)));
    keeper.validate();
  });

  test('has in it what was applied through the handle just before', async () => {
    const keeper = manual();
    keeper.apply(put('a'));
    assert.equal((await keeper.saveSnapshot(file)).rows, 1);
  });

  test('never overwrites what is kept already, and loading it twice changes nothing', async () => {
    const keeper = manual();
    keeper.applyAll([put('a'), put('b'), put('deleted')]);
    await keeper.saveSnapshot(file);
    const back = manual();
    back.applyAll([
      put('a', { nextRenderTime: START }),
      put('deleted', DUE, 1),
      gone('deleted', 2),
    ]);
    assert.equal((await back.loadSnapshot(file)).rows, 1);
    assert.equal(back.describe('a')?.dueAt, START);
    assert.equal(back.describe('deleted'), null, 'an event of a version has said so');
    const { version } = back;
    assert.equal((await back.loadSnapshot(file)).rows, 0);
    assert.equal(back.version, version);
    back.validate();
  });

  test('is judged by the rules of now: routes, intervals and nodes may have changed', async () => {
    const routes = [{ match: 'prefix', path: '/p/', renderInterval: HOUR }];
    const keeper = filled(1_000, { routes });
    await keeper.saveSnapshot(file);
    const back = manual({ routes: [{ match: 'prefix', path: '/c/' }], nodes: ['other'] });
    const { rows } = await back.loadSnapshot(file);
    assert.ok(rows > 100 && rows < 900, `${rows} are owned by this node`);
    for (const key of order(back)) {
      const { route, carried, cadenceMs } = back.describe(key) ?? {};
      assert.equal(route, key.includes('/c/') ? 'route:prefix:/c/' : 'unrouted');
      if (!carried) assert.equal(cadenceMs, 86_400_000);
      assert.equal(back.explain(key).owner, 'localhost');
    }
    back.validate();
  });

  test('keeps what a custom classifier had said', async () => {
    const classify = (/** @type {string} */ key) => ({ route: `of ${key}`, cadenceMs: HOUR });
    const keeper = manual({ classify });
    keeper.applyAll([put('a'), put('b')]);
    await keeper.saveSnapshot(file);
    const back = manual({ classify });
    await back.loadSnapshot(file);
    assert.deepEqual(back.describe('b'), keeper.describe('b'));
  });
});

describe('rows of a snapshot are unverified until the table has been seen', () => {
  test('they are counted, and the state is not exact, until a walk has seen them', async () => {
    await filled(100).saveSnapshot(file);
    const keeper = manual();
    assert.equal(keeper.state().trust.exact, true);
    await keeper.loadSnapshot(file);
    assert.equal(keeper.state().trust.keeper.unverifiedRows, 100);
    assert.equal(keeper.state().trust.exact, false);
    assert.equal(keeper.claim(5).jobs.length, 5, 'claims are served at once');
    const keys = [...keeper.keys()];
    keeper.apply(put(keys[0], { nextRenderTime: START }));
    assert.equal(keeper.state().trust.keeper.unverifiedRows, 99, 'an event has told');
    const first = keeper.beginWalk('load');
    first.rows(keys.slice(0, 50).map((key) => ({ cacheKey: key, ...rowOf(keeper, key) })));
    const { suspects } = first.end();
    assert.deepEqual([...suspects].sort(), keys.slice(50).sort());
    assert.equal(keeper.state().trust.keeper.unverifiedRows, 50);
    assert.equal(keeper.state().trust.exact, false);
    for (const [i, key] of suspects.entries()) {
      keeper.repair(key, i % 2 ? rowOf(keeper, key) : null);
    }
    assert.equal(keeper.state().trust.keeper.unverifiedRows, 0);
    const last = keeper.beginWalk('verify');
    last.rows([...keeper.keys()].map((key) => ({ cacheKey: key, ...rowOf(keeper, key) })));
    assert.deepEqual(last.end().suspects, []);
    assert.equal(keeper.state().trust.exact, true);
    assert.equal(keeper.state().trust.keeper.repairedTotal, 0, 'what the load suspected was old');
    keeper.validate();
  });

  test('where they are wrong, no write was missed: not by a claim, nor by a check of the head', async () => {
    await filled(10).saveSnapshot(file);
    const keeper = manual();
    await keeper.loadSnapshot(file);
    const [job] = keeper.claim(1).jobs;
    assert.equal(keeper.confirm(job.token, null), false);
    for (const key of keeper.headCheck(3)) assert.equal(keeper.repair(key, null), true);
    const { repairedTotal, unverifiedRows, topCheck } = keeper.state().trust.keeper;
    assert.deepEqual([repairedTotal, unverifiedRows, topCheck.repaired], [0, 6, 3]);
  });

  /** @param {any} keeper @param {string} key */
  function rowOf(keeper, key) {
    const { dueAt, carried, cadenceMs, changed, urgent, ...rest } = keeper.describe(key);
    return {
      nextRenderTime: dueAt,
      fromSitemap: rest.fromSitemap,
      effectiveInterval: carried ? cadenceMs : null,
      changedAt: changed ? START : null,
      urgentAt: urgent ? START : null,
      demandPeriod: rest.demandPeriodMs,
    };
  }
});

describe('a file that is not what it should be is refused by code, and nothing of it is kept', () => {
  /** @param {Buffer} bytes @param {string | RegExp} code @param {object} [options] */
  async function refused(bytes, code, options) {
    fs.writeFileSync(file, bytes);
    const keeper = manual(options);
    keeper.apply(put('kept'));
    const pattern = new RegExp(code);
    await assert.rejects(keeper.loadSnapshot(file), (/** @type {any} */ err) => {
      assert.match(String(err.code), pattern, err.message);
      return withCode(err.code)(err);
    });
    assert.equal(keeper.size, 1);
    assert.deepEqual(order(keeper), ['kept']);
    keeper.validate();
  }

  /** @param {number} rows */
  async function bytesOf(rows) {
    await filled(rows).saveSnapshot(file);
    return fs.readFileSync(file);
  }

  test('cut off at any byte', async () => {
    const bytes = await bytesOf(6);
    for (let length = 0; length < bytes.length; length++) {
      await refused(bytes.subarray(0, length), 'E_SNAPSHOT_DAMAGED');
    }
    const long = await bytesOf(30_000);
    const { int } = random(SEED);
    for (let i = 0; i < 10; i++)
      await refused(long.subarray(0, int(long.length)), 'E_SNAPSHOT_DAMAGED');
  });

  test('with any bit turned over', async () => {
    const bytes = await bytesOf(6);
    for (let at = 0; at < bytes.length; at++) {
      const turned = Buffer.from(bytes);
      turned[at] ^= 1 << (at % 8);
      await refused(turned, at >= 8 && at < 12 ? 'E_SNAPSHOT_VERSION' : 'E_SNAPSHOT_DAMAGED');
    }
  });

  test('of another format version, of another node, or nothing like a snapshot', async () => {
    const bytes = await bytesOf(6);
    const later = Buffer.from(bytes);
    later.writeUInt32LE(later.readUInt32LE(8) + 1, 8);
    await refused(later, '^E_SNAPSHOT_VERSION$');
    await refused(bytes, '^E_SNAPSHOT_FOREIGN$', { node: 'other' });
    await refused(Buffer.from(''), '^E_SNAPSHOT_DAMAGED$');
    await refused(Buffer.from('{"rows": 5}\n'), '^E_SNAPSHOT_DAMAGED$');
    await refused(Buffer.alloc(1024 * 1024), '^E_SNAPSHOT_DAMAGED$');
  });

  test('that lies, whatever its checksums say', async () => {
    const bytes = await bytesOf(6);
    const [header, rows, end] = framesOf(bytes);
    const head = JSON.parse(header.toString());
    const text = (/** @type {object} */ change) =>
      Buffer.from(JSON.stringify({ ...head, ...change }));
    const K = (/** @type {number[]} */ ...key) => Buffer.from([0x4b, 0, key.length, ...key]);
    const C = Buffer.concat([Buffer.from([0x43, 1, 0x72]), Buffer.alloc(17)]);
    const M = Buffer.from([0x4d, 5]);
    assert.equal(fileOf(bytes, [header, rows, end]).compare(bytes), 0, 'put together as it was');
    /** @type {Record<string, Uint8Array[]>} */
    const lies = {
      'more rows than there are': [text({ rows: 7 }), rows, end],
      'fewer rows than there are': [text({ rows: 5 }), rows, end],
      'a header that is none': [Buffer.from('[]'), rows, end],
      'a header without rows': [text({ rows: undefined }), rows, end],
      'no end': [header, rows],
      'no rows': [header, end],
      'an unknown entry': [header, Buffer.from([0x58]), rows, end],
      'a row before any class': [text({ rows: 1 }), K(0x61), end],
      'a row before any minute': [text({ rows: 1 }), Buffer.concat([C, K(0x61)]), end],
      'a minute past the last': [
        text({ rows: 1 }),
        Buffer.concat([C, Buffer.from([0x4d, 0xff, 0xff, 0xff, 0xff, 0x7f]), K(0x61)]),
        end,
      ],
      'a number without an end': [
        text({ rows: 1 }),
        Buffer.concat([C, Buffer.from([0x4d, ...Array(20).fill(0xff)]), K(0x61)]),
        end,
      ],
      'a key longer than the file': [
        text({ rows: 1 }),
        Buffer.concat([C, M, Buffer.from([0x4b, 0, 0xff, 0xff, 0xff, 0x7f, 0x61])]),
        end,
      ],
      'a key that shares more than there is': [
        text({ rows: 1 }),
        Buffer.concat([C, M, Buffer.from([0x4b, 9, 1, 0x61])]),
        end,
      ],
      'a key that no string has': [text({ rows: 1 }), Buffer.concat([C, M, K(0xff)]), end],
      'a character in two halves, a second spelling of a key': [
        text({ rows: 1 }),
        Buffer.concat([C, M, K(0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80)]),
        end,
      ],
      'a route that is no text': [
        text({ rows: 1 }),
        Buffer.concat([Buffer.from([0x43, 1, 0xff]), Buffer.alloc(17), M, K(0x61)]),
        end,
      ],
    };
    for (const [lie, frames] of Object.entries(lies)) {
      await refused(fileOf(bytes, frames), '^E_SNAPSHOT_DAMAGED$').catch((err) => {
        throw new Error(`${lie}: ${err.message}`, { cause: err });
      });
    }
    fs.writeFileSync(file, fileOf(bytes, [text({ rows: 1 }), Buffer.concat([C, M, K(0x61)]), end]));
    const keeper = manual();
    await keeper.loadSnapshot(file);
    assert.deepEqual(order(keeper), ['a'], 'the parts themselves are right');
  });

  test('and a folder that cannot be written leaves what was there', async () => {
    const keeper = filled(10);
    await assert.rejects(keeper.saveSnapshot(path.join(folder, 'none', 'file')), withCode('E_IO'));
    const taken = path.join(folder, 'a folder');
    fs.mkdirSync(taken);
    await assert.rejects(keeper.saveSnapshot(taken), withCode('E_IO'));
    assert.deepEqual(
      fs.readdirSync(folder).filter((name) => name.includes('tmp')),
      [],
    );
    assert.equal((await keeper.saveSnapshot(file)).rows, 10, 'the next save is not busy');
  });
});

test('what is no file is neither replaced nor waited for', async () => {
  const pipe = path.join(folder, 'no file');
  const server = net.createServer().listen(pipe);
  await once(server, 'listening');
  const keeper = filled(10);
  await assert.rejects(keeper.saveSnapshot(pipe), withCode('E_IO'));
  await assert.rejects(keeper.loadSnapshot(pipe), withCode('E_IO'));
  assert.ok(fs.lstatSync(pipe).isSocket());
  server.close();
});

describe('saving and loading beside other work', () => {
  test('E_BUSY while a save of this queue is under way, from any handle, and the file is whole', async () => {
    const [a, b] = [QueueKeeper.open('snapshot busy'), QueueKeeper.open('snapshot busy')];
    a.applyAll(Array.from({ length: 50_000 }, (_, i) => put(`https://shop.example/${i}`)));
    /** @type {string[]} */
    const ends = [];
    const ended = (/** @type {Promise<any>} */ saving) =>
      saving.then(
        () => ends.push('saved'),
        (err) => ends.push(err.code),
      );
    const saves = [];
    for (let i = 0; i < 40; i++) {
      saves.push(ended((i % 2 ? a : b).saveSnapshot(file)));
      a.apply(gone(`https://shop.example/${i * 7}`));
      await new Promise(setImmediate);
    }
    await Promise.all(saves);
    assert.deepEqual([...new Set(ends)].sort(), ['E_BUSY', 'saved']);
    const back = manual();
    const { rows } = await back.loadSnapshot(file);
    assert.ok(rows >= 49_960 && rows <= 50_000);
    assert.equal((await a.saveSnapshot(file)).rows, 49_960);
    assert.deepEqual(
      fs.readdirSync(folder).filter((name) => name.includes('tmp')),
      [],
    );
    a.validate();
  });

  test('two queues that save to one path at the same time leave one whole file', async () => {
    const keepers = [filled(20_000), filled(30_000)];
    for (let round = 0; round < 5; round++) {
      await Promise.allSettled(keepers.map((keeper) => keeper.saveSnapshot(file)));
      const { rows } = await manual().loadSnapshot(file);
      assert.ok(rows === 20_000 || rows === 30_000, `${rows}`);
    }
  });

  test('no thread of JavaScript is held up for more than 5 ms while 400,000 rows are saved or loaded: not by work, not by the lock', async (t) => {
    const many = 400_000;
    const LIMIT = 5;
    const { int } = random(SEED);
    const name = `held-up-${process.pid}`;
    const keeper = QueueKeeper.open(name);
    const row = (/** @type {number} */ i) =>
      put(`https://shop.example/some-department/some-product/${i}|desktop`, {
        nextRenderTime: START + int(2_000) * MINUTE,
      });
    for (let from = 0; from < many; from += 1_000)
      keeper.applyAll(Array.from({ length: 1_000 }, (_, i) => row(from + i)));
    const batches = Array.from({ length: 50 }, () =>
      Array.from({ length: 128 }, () => row(int(many))),
    );
    // What is done once is no part of it.
    await ranDuring(() => new QueueKeeper({}).saveSnapshot(file));
    let made = 0;
    // Rows all over the memory are written to.
    const call = (/** @type {QueueKeeper} */ queue) => () =>
      queue.applyAll(batches[made++ % batches.length]);
    // Three rounds within the limit come before the third beyond it: not all that a machine does to a process is told.
    const beyond = [];
    for (let within = 0; within < 3; ) {
      const idle = new QueueKeeper({});
      const work = [
        await ranDuring(() => keeper.saveSnapshot(file)),
        await ranDuring(() => idle.loadSnapshot(file)),
      ];
      assert.equal(idle.size, many);
      idle.close();
      const save = await longestCall(() => keeper.saveSnapshot(file), call(keeper));
      assert.equal(save.result.rows, many);
      const back = new QueueKeeper({});
      const load = await longestCall(() => back.loadSnapshot(file), call(back));
      assert.equal(back.size, many);
      back.close();
      const cpu = work.map(({ ms }) => ms.toFixed(1)).join(' and ');
      t.diagnostic(`work: ${cpu} ms; calls: ${save.told} saving, ${load.told} loading`);
      const calls = Math.min(save.calls, load.calls);
      if (calls > 3 && Math.max(...work.map(({ ms }) => ms), save.ms, load.ms) <= LIMIT) within++;
      else
        beyond.push(
          `${calls} calls, ${cpu} ms of work; beside a save ${save.told}, beside a load ${load.told}`,
        );
      assert.ok(beyond.length < 3, beyond.join('\n'));
    }
    keeper.validate();
  });

  test('a thread that is held up for long is told of', async () => {
    const name = `holder-${process.pid}`;
    const keeper = QueueKeeper.open(name);
    keeper.applyAll(Array.from({ length: 200_000 }, (_, i) => put(`${i}`)));
    const work = await ranDuring(async () => keeper.validate());
    if (process.platform === 'linux') assert.ok(work.ms > 5, `${work.ms} ms of work`);
    // The other thread has the lock nearly all the time, until it is told to end.
    const stop = new Int32Array(new SharedArrayBuffer(4));
    const hold = `const { QueueKeeper } = require(${JSON.stringify(path.join(__dirname, '..'))});
      const keeper = QueueKeeper.open(${JSON.stringify(name)});
      const stop = require('node:worker_threads').workerData;
      while (Atomics.wait(stop, 0, 0, 1) === 'timed-out') keeper.validate();`;
    const holder = new Worker(hold, { eval: true, workerData: stop });
    const ended = once(holder, 'exit');
    let calls = 0;
    const someCalls = () => {
      const all = calls + 10;
      return until('some calls', () => calls >= all);
    };
    const call = () => {
      calls++;
      return keeper.size;
    };
    try {
      await until('a call to have waited for a lock that was held for long', async () => {
        return (await longestCall(someCalls, call)).ms > 5;
      });
    } finally {
      Atomics.store(stop, 0, 1);
      await ended;
    }
  });

  test('calls are answered while a snapshot is saved and loaded, and the queue is whole afterwards', async () => {
    const keeper = filled(100_000);
    let made = 0;
    /**
     * @param {Promise<unknown>} work
     * @param {() => void} call
     */
    const callsDuring = async (work, call) => {
      let done = false;
      let calls = 0;
      const ended = work.finally(() => {
        done = true;
      });
      while (!done) {
        call();
        calls++;
        await new Promise(setImmediate);
      }
      await ended;
      return calls;
    };
    // On a busy machine this thread may have had no CPU until a save, or a load, had ended: then once more.
    let calls = 0;
    for (let saves = 0; calls <= 3; saves++) {
      assert.ok(saves < 100, `${calls} calls during the last of ${saves} saves`);
      calls = await callsDuring(keeper.saveSnapshot(file), () => {
        keeper.apply(put(`new ${made++}`, { nextRenderTime: START - made * MINUTE }));
        for (const { key, token } of keeper.claim(3).jobs) {
          keeper.apply(put(key, { nextRenderTime: START + HOUR }));
          keeper.release(key, token);
        }
      });
      keeper.validate();
    }
    calls = 0;
    for (let loads = 0; calls <= 3; loads++) {
      assert.ok(loads < 100, `${calls} calls during the last of ${loads} loads`);
      const back = manual();
      calls = await callsDuring(back.loadSnapshot(file), () => {
        back.apply(put(`newer ${made++}`));
        back.claim(1);
      });
      back.validate();
    }
  });

  test('kill -9 at any moment of repeated saves leaves a whole file', async (t) => {
    t.diagnostic(`SEED=${SEED}`);
    const { int } = random(SEED);
    for (let round = 0; round < 8; round++) {
      const child = spawn(
        process.execPath,
        [path.join(__dirname, 'support', 'saver-process.js'), file, '20000'],
        { stdio: ['ignore', 'pipe', 'inherit'] },
      );
      const exited = new Promise((resolve) => child.once('exit', resolve));
      await new Promise((resolve) => child.stdout.once('data', resolve));
      // The moment is drawn: a count of turns of this event loop, and its file system's.
      for (let i = int(60); i > 0; i--) await fs.promises.stat(file);
      child.kill('SIGKILL');
      await exited;
      const { rows } = await manual().loadSnapshot(file);
      assert.ok(rows > 20_000, `${rows}`);
    }
  });
});
