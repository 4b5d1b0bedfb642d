'use strict';

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { Worker } = require('node:worker_threads');
const { QueueKeeper } = require('..');
const { assertAddsUp } = require('./support/compare.js');
const { gone, put } = require('./support/keepers.js');
const { random } = require('./support/random-ops.js');
const { until } = require('./support/until.js');

const SEED = Number(process.env.SEED ?? 1);
const ROOT = path.join(__dirname, '..');
const support = (/** @type {string} */ name) => path.join(__dirname, 'support', name);

/** @type {string} */
let folder;
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-threads-'));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

/** What a thread says next; rejects where it fails. @param {Worker} worker */
function answerOf(worker) {
  return new Promise((resolve, reject) => {
    const ended = (/** @type {number} */ code) =>
      reject(new Error(`the thread ended with ${code} and no word`));
    worker.once('error', reject);
    worker.once('exit', ended);
    worker.once('message', (answer) => {
      worker.off('error', reject);
      worker.off('exit', ended);
      resolve(answer);
    });
  });
}

/** A thread that runs this script with `keeper` open. @param {string} name @param {string} script */
function thread(name, script) {
  return new Worker(
    `const { parentPort, workerData } = require('node:worker_threads');
     const { QueueKeeper } = require(workerData.root);
     const keeper = QueueKeeper.open(workerData.name);
     const put = (id) => ({ type: 'put', id, value: { nextRenderTime: 1_700_000_000_000 } });
     ${script}`,
    { eval: true, workerData: { root: ROOT, name } },
  );
}

describe('one queue for all threads of the process', () => {
  test('four threads claim 100,000 rows while a fifth applies them: no key twice while leased, none lost', async (t) => {
    const rows = 100_000;
    const shared = {
      out: new SharedArrayBuffer(4 * rows),
      given: new SharedArrayBuffer(4 * rows),
      marks: new SharedArrayBuffer(8),
      parts: new SharedArrayBuffer(4 * 4),
    };
    // The same row is written again and again, which is no miss of the renderer's; nothing is to wait for a grace.
    const options = { leases: { releaseGraceMs: 0, missLimit: 1_000_000 } };
    const workerData = { name: 'threads claiming', options, rows, shared };
    const start = performance.now();
    const workers = ['apply', 'claim', 'claim', 'claim', 'claim'].map(
      (role, i) =>
        new Worker(support('claiming-thread.js'), {
          workerData: { ...workerData, role, at: i - 1 },
        }),
    );
    let again;
    try {
      [again] = await Promise.all(workers.map(answerOf));
    } finally {
      // Where one has failed, the others wait for it.
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
    const given = new Int32Array(shared.given);
    const total = given.reduce((sum, count) => sum + count, 0);
    t.diagnostic(
      `${total} jobs in ${new Int32Array(shared.parts).join(' + ')} claims, ${again} rows written again, ${(performance.now() - start).toFixed(0)} ms`,
    );
    assert.equal(
      new Int32Array(shared.marks)[0],
      0,
      'no key twice while leased, every release of a live lease',
    );
    assert.equal(given.indexOf(0), -1, 'none lost');
    const keeper = QueueKeeper.open('threads claiming', options);
    const { now } = keeper.state();
    assert.deepEqual([keeper.size, now.due, now.inFlight, now.heldKeys], [rows, 0, 0, 0]);
    assert.equal(Number(/keeper_claims_granted_total (\d+)/.exec(keeper.metrics())?.[1]), total);
    keeper.validate();
  });

  test('two names are two queues, from any thread', async () => {
    const script = `keeper.applyAll([put('in ' + workerData.name)]); parentPort.postMessage([...keeper.keys()])`;
    const answers = ['threads a', 'threads b'].map((name) => answerOf(thread(name, script)));
    assert.deepEqual(await Promise.all(answers), [['in threads a'], ['in threads b']]);
    assert.deepEqual([...QueueKeeper.open('threads a').keys()], ['in threads a']);
    assert.deepEqual([...QueueKeeper.open('threads b').keys()], ['in threads b']);
  });

  test('what another thread applied is seen by the next turn of its event loop', async () => {
    const worker = thread(
      'threads visible',
      `parentPort.on('message', (key) => {
         keeper.apply(put(key));
         setImmediate(() => parentPort.postMessage(key));
       });`,
    );
    const keeper = QueueKeeper.open('threads visible');
    for (let i = 0; i < 50; i++) {
      worker.postMessage(`key ${i}`);
      assert.equal(await answerOf(worker), `key ${i}`);
      assert.equal(keeper.size, i + 1);
    }
    await worker.terminate();
  });

  test('a lease granted on one thread is confirmed, extended and released on another', async () => {
    const keeper = QueueKeeper.open('threads lease');
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    const worker = thread(
      'threads lease',
      `parentPort.on('message', (token) => parentPort.postMessage([
         keeper.confirm(token, { nextRenderTime: 5 }),
         keeper.extend(token) > Date.now(),
         keeper.release('a', token),
       ]));`,
    );
    worker.postMessage(token);
    assert.deepEqual(await answerOf(worker), [true, true, 'released']);
    assert.equal(keeper.state().now.inFlight, 0);
    await worker.terminate();
  });

  test('a feeder that dies leaves the queue served; the one that takes over has a new epoch', async () => {
    const worker = thread(
      'threads feeder',
      `keeper.takeFeeder(); keeper.setPhase('live'); keeper.applyAll([put('a'), put('b')]);
       keeper.beginWalk('verify'); parentPort.postMessage('fed'); for (;;);`,
    );
    assert.equal(await answerOf(worker), 'fed');
    await worker.terminate();
    const keeper = QueueKeeper.open('threads feeder');
    assert.equal(keeper.claim(1).jobs.length, 1);
    assert.equal(keeper.takeFeeder(), 2);
    const walk = keeper.beginWalk('verify');
    walk.rows(['a', 'b'].map((cacheKey) => ({ cacheKey, nextRenderTime: 1_700_000_000_000 })));
    assert.deepEqual(walk.end().suspects, []);
    keeper.validate();
  });
});

describe('any thread may be terminated at any moment', () => {
  test('one that is loses only what it had not flushed', async () => {
    const keeper = QueueKeeper.open('threads lost');
    const worker = thread(
      'threads lost',
      `for (let i = 0; i < 300; i++) keeper.apply(put('flushed ' + i));
       setImmediate(() => setImmediate(() => {
         for (let i = 0; i < 100; i++) keeper.apply(put('buffered ' + i));
         parentPort.postMessage('buffered');
         for (;;);
       }));`,
    );
    assert.equal(await answerOf(worker), 'buffered');
    assert.equal(keeper.size, 300);
    await worker.terminate();
    assert.equal(keeper.size, 300);
    assert.ok([...keeper.keys()].every((key) => key.startsWith('flushed')));
    const walk = keeper.beginWalk('verify');
    const rows = [...keeper.keys(), ...Array.from({ length: 100 }, (_, i) => `buffered ${i}`)];
    walk.rows(rows.map((cacheKey) => ({ cacheKey, nextRenderTime: 1_700_000_000_000 })));
    assert.equal(walk.end().missing, 100, 'the next verification finds it');
    keeper.validate();
  });

  test('a hundred threads, and fifty twice more, in calls and out, saves under way, the maker too: queue whole, memory flat', async (t) => {
    t.diagnostic(`SEED=${SEED}`);
    const { int, chance } = random(SEED);
    const name = 'threads restless';
    const options = { leases: { leaseMs: 50, releaseGraceMs: 5, missLimit: 2 } };
    const file = path.join(folder, 'restless.snapshot');
    const keys = 3_000;
    const rounds = [100, 150, 200];
    const done = new SharedArrayBuffer(4 * 200);
    const steps = new Int32Array(done);
    /** @type {unknown[]} */
    const failures = [];
    let at = 0;
    let early = 0;

    const one = async () => {
      const mine = at++;
      const workerData = { name, options, seed: SEED + mine, file, keys, done, at: mine };
      const worker = new Worker(support('restless-thread.js'), { workerData });
      worker.once('error', (err) => failures.push(err));
      if (chance(0.1)) {
        // Before it has loaded the addon, or while it does.
        for (let turns = int(20); turns > 0; turns--) await new Promise(setImmediate);
        early++;
      } else {
        const wanted = int(60);
        await until(
          'the thread to have done its steps',
          () => failures[0] || steps[mine] > wanted,
          { everyMs: 1 },
        );
      }
      await worker.terminate();
    };

    /** @type {number[]} */
    const rss = [];
    /** @type {any} */
    let keeper;
    for (const last of rounds) {
      const lanes = Array.from({ length: 3 }, async () => {
        while (at < last && failures.length === 0) await one();
      });
      await Promise.all(lanes);
      assert.deepEqual(failures, []);
      // The main thread opens the queue only now: a thread that is gone made it.
      keeper ??= QueueKeeper.open(name, options);
      keeper.validate();
      assertAddsUp(keeper.state());
      assert.ok(keeper.size <= keys && keeper.size > 0);
      await until('the leases of the dead to end', () => keeper.state().now.inFlight === 0);
      keeper.apply(put('https://shop.example/mine'));
      assert.ok(keeper.claim(keys).jobs.length > 0);
      keeper.apply(gone('https://shop.example/mine'));
      keeper.validate();
      rss.push(process.memoryUsage().rss / 2 ** 20);
    }
    const bytes = keeper.bytes / 2 ** 20;
    t.diagnostic(
      `RSS ${rss.map((mb) => mb.toFixed(0)).join(', ')} MiB after each round, queue ${bytes.toFixed(1)} MiB, ${early} ended while starting`,
    );
    assert.ok(
      rss[2] - rss[1] < 24,
      `grown by ${(rss[2] - rss[1]).toFixed(0)} MiB in the third round`,
    );
    assert.ok(rss[2] - rss[0] < 60, `grown by ${(rss[2] - rss[0]).toFixed(0)} MiB since the first`);
    const back = new QueueKeeper(options);
    await until('the last save to be whole', () => back.loadSnapshot(file));
  });

  test('the process ends in good order with saves and loads under way, in any thread', () => {
    const script = `
      const { Worker, isMainThread, workerData } = require('node:worker_threads');
      const { QueueKeeper } = require(process.env.ROOT);
      const keeper = QueueKeeper.open('ending');
      const value = { nextRenderTime: 5 };
      keeper.applyAll(Array.from({ length: 20_000 }, (_, i) => ({ type: 'put', id: 'key ' + i, value })));
      const file = process.env.FOLDER + '/ending.' + (isMainThread ? 'main' : workerData);
      keeper.saveSnapshot(file).then(() => keeper.loadSnapshot(file)).catch(() => {});
      if (isMainThread) {
        let left = 3;
        for (let i = 0; i < 3; i++) {
          new Worker(__filename, { workerData: i }).on('exit', () => {
            if (--left === 0 && process.env.HOW === 'exit') process.exit(0);
          });
        }
      } else if (workerData === 0) process.exit(0);
      else if (workerData === 1) setImmediate(() => process.exit(0));
    `;
    const file = path.join(folder, 'ending.js');
    fs.writeFileSync(file, script);
    for (const HOW of ['exit', 'end']) {
      for (let round = 0; round < 3; round++) {
        const run = spawnSync(process.execPath, [file], {
          env: { ...process.env, ROOT, FOLDER: folder, HOW },
          encoding: 'utf8',
          timeout: 120_000,
        });
        assert.deepEqual([run.status, run.signal, run.stderr], [0, null, '']);
      }
    }
  });
});

describe('native memory', () => {
  test('of keepers that nobody holds any more comes back, closed or not', (t) => {
    const script = `
      const { QueueKeeper } = require(process.argv[1]);
      const events = Array.from({ length: 100_000 }, (_, i) => ({
        type: 'put',
        id: 'https://shop.example/category/' + (i % 977) + '/product-' + i + '|desktop',
        value: { nextRenderTime: i * 1_000 },
      }));
      const rss = () => process.memoryUsage().rss / 2 ** 20;
      let [round, bytes, first] = [0, 0, 0];
      (function next() {
        const keeper = new QueueKeeper();
        keeper.applyAll(events);
        bytes += keeper.bytes / 2 ** 20;
        if (process.argv[2] === 'closed') keeper.close();
        if (++round === 5) first = rss();
        if (round < 25) setImmediate(next);
        else console.log(JSON.stringify([rss() - first, bytes]));
      })();
    `;
    for (const how of ['closed', 'left']) {
      const run = spawnSync(process.execPath, ['-e', script, ROOT, how], { encoding: 'utf8' });
      assert.equal(run.status, 0, run.stderr);
      const [grown, made] = JSON.parse(run.stdout);
      t.diagnostic(`${how}: grown by ${grown.toFixed(0)} MiB, ${made.toFixed(0)} MiB made`);
      assert.ok(made > 70, `${made}`);
      assert.ok(grown < made / 3, `${how}: grown by ${grown} MiB of ${made}`);
    }
  });
});
