'use strict';

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { inspect } = require('node:util');
const { Worker } = require('node:worker_threads');
const { QueueKeeper } = require('..');
const { addonFile } = require('../lib/addon-file.js');
const { DUE, START, keysOf, manual, put, withCode } = require('./support/keepers.js');
const { until } = require('./support/until.js');

const ROOT = path.join(__dirname, '..');

/** @type {string} */
let folder;
before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-errors-'));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

/** @param {string} name */
const inFolder = (name) => path.join(folder, name);

describe('wrong arguments throw TypeError at the call', () => {
  const COUNTS = [undefined, null, -1, 0.5, Number.NaN, Infinity, '5', 5n, {}, []];
  const KEYS = [undefined, null, 5, 5n, {}, [], Symbol('key'), new String('key')];
  const TOKENS = [undefined, null, -1, 0.5, Number.NaN, 2 ** 53, '5', 5n, {}, []];
  const OBJECTS = [null, 5, 'text', true, 5n, Symbol('object')];
  const PATHS = [undefined, null, 5, {}, Buffer.from('a'), new URL('file:///tmp/a')];

  /** @type {Record<string, (keeper: any, wrong: any) => unknown>} */
  const CALLS = {
    topK: (keeper, wrong) => keeper.topK(wrong),
    claim: (keeper, wrong) => keeper.claim(wrong),
    headCheck: (keeper, wrong) => keeper.headCheck(wrong === undefined ? null : wrong),
    describe: (keeper, wrong) => keeper.describe(wrong),
    explain: (keeper, wrong) => keeper.explain(wrong),
    'release, the key': (keeper, wrong) => keeper.release(wrong),
    'release, the token': (keeper, wrong) =>
      keeper.release('a', wrong === undefined ? null : wrong),
    'confirm, the token': (keeper, wrong) => keeper.confirm(wrong, DUE),
    'extend, the token': (keeper, wrong) => keeper.extend(wrong),
    'repair, the key': (keeper, wrong) => keeper.repair(wrong, DUE),
  };
  const WRONG = {
    topK: COUNTS,
    claim: COUNTS,
    headCheck: COUNTS,
    describe: KEYS,
    explain: KEYS,
    'release, the key': KEYS,
    'release, the token': TOKENS,
    'confirm, the token': TOKENS,
    'extend, the token': TOKENS,
    'repair, the key': KEYS,
  };
  for (const [name, call] of Object.entries(CALLS)) {
    test(name, () => {
      const keeper = manual();
      keeper.apply(put('a'));
      for (const wrong of WRONG[/** @type {'topK'} */ (name)]) {
        assert.throws(() => call(keeper, wrong), TypeError, `${name} ${String(wrong)}`);
      }
      assert.equal(keeper.size, 1);
      keeper.validate();
    });
  }

  test('apply: an event that is no object', () => {
    const keeper = manual();
    for (const wrong of [...OBJECTS, undefined, () => DUE]) {
      assert.throws(() => keeper.apply(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
  });

  test('onApplied: what is neither a function nor null', () => {
    const keeper = manual();
    for (const wrong of [undefined, 'f', 1, {}, true]) {
      assert.throws(() => keeper.onApplied(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
  });

  test('applyAll and rows of a walk: what is no array', () => {
    const keeper = manual();
    const walk = keeper.beginWalk('verify');
    for (const wrong of [undefined, null, 5, 'text', {}, new Set(), { length: 1, 0: put('a') }]) {
      assert.throws(() => keeper.applyAll(/** @type {any} */ (wrong)), TypeError, String(wrong));
      assert.throws(() => walk.rows(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
  });

  test('confirm and repair: a row that is neither an object nor null', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    const [{ token }] = keeper.claim(1).jobs;
    for (const wrong of [5, 'row', true, 5n, Symbol('row'), () => DUE]) {
      assert.throws(() => keeper.confirm(token, wrong), TypeError, String(wrong));
      assert.throws(() => keeper.repair('a', wrong), TypeError, String(wrong));
    }
    assert.deepEqual([keeper.size, keeper.state().now.inFlight], [1, 1]);
  });

  test('extend and setNow: what is no number of 0 or more', () => {
    const keeper = manual();
    for (const wrong of [null, -1, Number.NaN, Infinity, '5', 5n, {}]) {
      assert.throws(() => keeper.extend(5, /** @type {any} */ (wrong)), TypeError, String(wrong));
      assert.throws(() => keeper.setNow(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
  });

  test('beginWalk, end and setPhase', () => {
    const keeper = manual();
    for (const wrong of [undefined, null, 'Load', '', 5, {}]) {
      assert.throws(() => keeper.beginWalk(/** @type {any} */ (wrong)), TypeError, String(wrong));
      assert.throws(() => keeper.setPhase(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
    const walk = keeper.beginWalk('verify');
    const ends = [null, 5, 'text', { partial: 1 }, { partial: null }, { unreadable: -1 }];
    for (const wrong of [...ends, { unreadable: '5' }, { unreadable: Number.NaN }]) {
      assert.throws(() => walk.end(/** @type {any} */ (wrong)), TypeError, JSON.stringify(wrong));
    }
    assert.deepEqual(walk.end().suspects, [], 'the walk is still under way');
    for (const wrong of [
      null,
      5,
      'text',
      { resyncing: 1 },
      { error: 5 },
      { error: new Error('e') },
    ]) {
      assert.throws(() => keeper.setPhase('live', /** @type {any} */ (wrong)), TypeError);
    }
  });

  test('what an option is instead is told, whatever it is, and nothing of it is called', () => {
    const trap = {
      toString() {
        throw new Error('called');
      },
    };
    for (const [wrong, told] of [
      [Symbol('s'), 'of type symbol'],
      [Object.create(null), 'of type object'],
      [trap, 'of type object'],
      [5n, '5n'],
      [true, 'true'],
    ]) {
      const options = /** @type {any} */ ({ defaultInterval: wrong });
      assert.throws(() => new QueueKeeper(options), {
        name: 'TypeError',
        message: new RegExp(`^options.defaultInterval must be .*, not ${told}$`),
      });
    }
  });

  test('a snapshot: a path that is no well-formed string', async () => {
    const keeper = manual();
    for (const wrong of [undefined, 1, '\ud800']) {
      const path = /** @type {any} */ (wrong);
      assert.throws(() => keeper.saveSnapshot(path), TypeError);
      assert.throws(() => keeper.loadSnapshot(path), TypeError);
    }
  });

  test('open: a name that is no well-formed string', () => {
    for (const wrong of [...KEYS, '\ud800']) {
      assert.throws(() => QueueKeeper.open(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
  });

  test('saveSnapshot and loadSnapshot: a path that is no string', async () => {
    const keeper = manual();
    for (const wrong of PATHS) {
      await assert.rejects(async () => keeper.saveSnapshot(/** @type {any} */ (wrong)), TypeError);
      await assert.rejects(async () => keeper.loadSnapshot(/** @type {any} */ (wrong)), TypeError);
    }
  });

  /** @type {Record<string, unknown[]>} What a field of the options may not be. */
  const FIELDS = {
    node: [null, 5, '', '\ud800', {}],
    nodes: [null, 'a', {}, [5], [null], ['\ud800']],
    routes: [null, 'rule', {}, 5],
    excludePathPatterns: [null, '/a', {}, 5],
    defaultInterval: [null, 0, -1, Number.NaN, Infinity, '5', 5n],
    priority: [
      null,
      5,
      [],
      { sitemapBoost: -1 },
      { sitemapBoost: Number.NaN },
      { sitemapBoost: null },
      { changedHeadStart: '1' },
      { urgentHeadStart: null },
      { changedDemand: 1 },
      { unknown: 1 },
    ],
    leases: [
      null,
      5,
      [],
      { leaseMs: 0 },
      { leaseMs: Infinity },
      { leaseMs: '5' },
      { maxLeases: -1 },
      { maxLeases: 0.5 },
      { releaseGraceMs: -1 },
      { missLimit: 1.5 },
      { missLimit: null },
      { unknown: 1 },
    ],
  };
  const ONLY_AT_THE_START = {
    delimiter: [null, '', 5],
    deviceTypes: [null, 'desktop', [5]],
    flowMinutes: [null, 0, 0.5, -1, '60', Infinity],
    maxListed: [null, -1, 0.5, '200'],
    classify: [null, 5, 'text', {}],
    now: [null, -1, Number.NaN, Infinity, '5', 5n, new Date()],
    unknown: [1],
    __proto__x: [1],
  };

  test('the options of a keeper, field by field, nested ones and unknown ones included', () => {
    for (const wrong of [...OBJECTS, []]) {
      assert.throws(() => new QueueKeeper(/** @type {any} */ (wrong)), TypeError, String(wrong));
      assert.throws(() => QueueKeeper.open('wrong', /** @type {any} */ (wrong)), TypeError);
    }
    for (const [field, values] of Object.entries({ ...FIELDS, ...ONLY_AT_THE_START })) {
      for (const value of values) {
        const where = `${field}: ${typeof value} ${JSON.stringify(value, (_, each) => String(each))}`;
        assert.throws(
          () => new QueueKeeper({ [field]: value }),
          (err) => err instanceof TypeError && err.message.includes(field),
          where,
        );
      }
    }
  });

  test('a wrong patch of configure changes nothing', () => {
    const keeper = manual({ routes: [{ match: 'exact', path: '/' }] });
    keeper.applyAll([put('https://shop.example/'), put('https://shop.example/x')]);
    const before = [keeper.version, keeper.stateJson()];
    for (const wrong of [undefined, ...OBJECTS, []]) {
      assert.throws(() => keeper.configure(/** @type {any} */ (wrong)), TypeError, String(wrong));
    }
    for (const [field, values] of Object.entries(FIELDS)) {
      for (const value of values) {
        const patch = { defaultInterval: 5, routes: [], [field]: value };
        assert.throws(() => keeper.configure(patch), TypeError, field);
      }
    }
    for (const field of Object.keys(ONLY_AT_THE_START)) {
      assert.throws(() => keeper.configure({ routes: [], [field]: 1 }), TypeError, field);
    }
    assert.deepEqual([keeper.version, keeper.stateJson()], before);
  });

  test('rules beside a classifier, at the start or later', () => {
    const classify = () => null;
    for (const [field, value] of Object.entries({ nodes: ['b'], routes: [], defaultInterval: 5 })) {
      assert.throws(() => new QueueKeeper({ classify, [field]: value }), TypeError, field);
      assert.throws(() => new QueueKeeper({ classify }).configure({ [field]: value }), TypeError);
    }
  });

  test('QueueKeeper without new', () => {
    assert.throws(() => /** @type {any} */ (QueueKeeper)({}), TypeError);
  });
});

/** Every method, with arguments that are fine, and whether it only feeds. */
const METHODS = {
  apply: { call: (/** @type {any} */ keeper) => keeper.apply(put('a')), feeds: true, late: true },
  applyAll: { call: (/** @type {any} */ keeper) => keeper.applyAll([put('a')]), feeds: true },
  topK: { call: (/** @type {any} */ keeper) => keeper.topK(1) },
  claim: { call: (/** @type {any} */ keeper) => keeper.claim(1) },
  confirm: { call: (/** @type {any} */ keeper) => keeper.confirm(5, DUE) },
  release: { call: (/** @type {any} */ keeper) => keeper.release('a', 5) },
  extend: { call: (/** @type {any} */ keeper) => keeper.extend(5) },
  pause: { call: (/** @type {any} */ keeper) => keeper.pause() },
  resume: { call: (/** @type {any} */ keeper) => keeper.resume() },
  status: { call: (/** @type {any} */ keeper) => keeper.status },
  dueSummary: { call: (/** @type {any} */ keeper) => keeper.dueSummary() },
  state: { call: (/** @type {any} */ keeper) => keeper.state() },
  stateJson: { call: (/** @type {any} */ keeper) => keeper.stateJson() },
  describe: { call: (/** @type {any} */ keeper) => keeper.describe('a') },
  explain: { call: (/** @type {any} */ keeper) => keeper.explain('a') },
  configure: { call: (/** @type {any} */ keeper) => keeper.configure({ defaultInterval: 5 }) },
  beginWalk: { call: (/** @type {any} */ keeper) => keeper.beginWalk('verify'), feeds: true },
  headCheck: { call: (/** @type {any} */ keeper) => keeper.headCheck(), feeds: true },
  repair: { call: (/** @type {any} */ keeper) => keeper.repair('a', DUE), feeds: true },
  setPhase: { call: (/** @type {any} */ keeper) => keeper.setPhase('live'), feeds: true },
  takeFeeder: { call: (/** @type {any} */ keeper) => keeper.takeFeeder() },
  metrics: { call: (/** @type {any} */ keeper) => keeper.metrics() },
  setNow: { call: (/** @type {any} */ keeper) => keeper.setNow(START) },
  size: { call: (/** @type {any} */ keeper) => keeper.size },
  version: { call: (/** @type {any} */ keeper) => keeper.version },
  classCount: { call: (/** @type {any} */ keeper) => keeper.classCount },
  bytes: { call: (/** @type {any} */ keeper) => keeper.bytes },
};

describe('every code can be met, on err.code', () => {
  test('E_CLOSED from every method after close, which may be called again', async () => {
    for (const [name, { call }] of Object.entries(METHODS)) {
      const keeper = manual();
      keeper.apply(put('a'));
      const walk = keeper.beginWalk('verify');
      keeper.close();
      keeper.close();
      assert.throws(() => call(keeper), withCode('E_CLOSED'), name);
      assert.throws(() => call(keeper), withCode('E_CLOSED'), `${name} again`);
      assert.throws(() => walk.rows([{ cacheKey: 'a', ...DUE }]), withCode('E_CLOSED'));
      assert.throws(() => walk.end(), withCode('E_CLOSED'));
      await assert.rejects(keeper.saveSnapshot(inFolder('closed')), withCode('E_CLOSED'));
      await assert.rejects(keeper.loadSnapshot(inFolder('closed')), withCode('E_CLOSED'));
      keeper.close();
    }
  });

  test('closing applies what was buffered, and a handle closed in mid-batch raises nothing later', async () => {
    const [a, b] = [QueueKeeper.open('errors closing'), QueueKeeper.open('errors closing')];
    a.apply(put('buffered'));
    a.close();
    assert.equal(b.size, 1);
    await new Promise(setImmediate);
    b.apply({
      type: 'put',
      get id() {
        b.close();
        return 'while closing';
      },
      value: DUE,
    });
    await new Promise(setImmediate);
    assert.equal(QueueKeeper.open('errors closing').size <= 2, true);
  });

  test('E_CLOSED rejects nothing that was under way: a save begun before close ends well', async () => {
    const keeper = manual();
    keeper.applyAll(Array.from({ length: 20_000 }, (_, i) => put(`key ${i}`)));
    const saving = keeper.saveSnapshot(inFolder('closing'));
    keeper.close();
    assert.equal((await saving).rows, 20_000);
  });

  test('a handle closed while another thread uses the queue leaves that thread its queue', async () => {
    const mine = QueueKeeper.open('errors shared');
    const worker = new Worker(
      `const { parentPort, workerData } = require('node:worker_threads');
       const { QueueKeeper } = require(workerData.root);
       const keeper = QueueKeeper.open('errors shared');
       parentPort.on('message', () => process.exit(0));
       let calls = 0;
       (function use() {
         for (let i = 0; i < 20; i++) keeper.apply({ type: 'put', id: 'key ' + calls++ % 5000, value: { nextRenderTime: calls } });
         keeper.claim(5).jobs.forEach(({ key, token }) => keeper.release(key, token));
         keeper.validate();
         parentPort.postMessage(calls);
         setImmediate(use);
       })();`,
      { eval: true, workerData: { root: ROOT } },
    );
    let calls = 0;
    /** @type {unknown} */
    let failed;
    worker.on('message', (count) => {
      calls = count;
    });
    worker.on('error', (err) => {
      failed = err;
    });
    await until('the other thread to use the queue', () => calls > 0);
    for (let i = 0; i < 50; i++) QueueKeeper.open('errors shared').close();
    mine.close();
    const at = calls;
    await until('the other thread to go on', () => {
      if (failed) throw failed;
      return calls > at + 1_000;
    });
    await worker.terminate();
    const again = QueueKeeper.open('errors shared');
    assert.ok(again.size > 0);
    again.validate();
  });

  test('E_DEPOSED for whatever a feeder does once another has taken over; reads and claims go on', () => {
    for (const [name, { call, feeds, late }] of /** @type {[string, any][]} */ (
      Object.entries(METHODS)
    )) {
      if (name === 'setNow') continue;
      const queue = `errors deposed ${name}`;
      const [old, next] = [QueueKeeper.open(queue), QueueKeeper.open(queue)];
      assert.equal(old.takeFeeder(), 1);
      const walk = old.beginWalk('verify');
      assert.equal(next.takeFeeder(), 2);
      if (feeds) {
        // `apply` may hold an event back: then the next call is told.
        const called = late ? () => [call(old), old.size] : () => call(old);
        assert.throws(called, withCode('E_DEPOSED'), name);
        assert.equal(next.size, 0);
      } else {
        call(old);
      }
      if (name !== 'takeFeeder') {
        assert.throws(() => walk.rows([{ cacheKey: 'a', ...DUE }]), withCode('E_DEPOSED'), name);
        assert.throws(() => walk.end(), withCode('E_DEPOSED'), name);
        next.apply(put('a'));
        assert.equal(next.size, 1, 'the one who took over feeds');
      }
      next.validate();
    }
  });

  test('E_DEPOSED is told once for buffered events, to whoever calls next, and raises nothing by itself', async () => {
    const [old, next] = [QueueKeeper.open('errors late'), QueueKeeper.open('errors late')];
    old.takeFeeder();
    next.takeFeeder();
    /** @type {unknown[]} */
    const told = [];
    old.onApplied((status) => told.push(status));
    old.apply(put('a'));
    await new Promise(setImmediate);
    assert.deepEqual(told, [undefined]);
    assert.throws(() => old.size, withCode('E_DEPOSED'));
    assert.equal(old.size, 0);
    // What another call of the same turn has handed over was refused, too; and nobody is told of a keeper that was closed.
    old.apply(put('b'));
    assert.throws(() => old.size, withCode('E_DEPOSED'));
    await new Promise(setImmediate);
    assert.deepEqual(told, [undefined, undefined]);
    old.apply(put('c'));
    old.close();
    await new Promise(setImmediate);
    assert.equal(told.length, 2);
  });

  test('a handle that was deposed may take the role again', () => {
    const [a, b] = [QueueKeeper.open('errors again'), QueueKeeper.open('errors again')];
    a.takeFeeder();
    b.takeFeeder();
    assert.equal(a.takeFeeder(), 3);
    a.apply(put('a'));
    assert.equal(a.size, 1);
    assert.throws(() => b.applyAll([put('b')]), withCode('E_DEPOSED'));
  });

  test('E_OPTIONS where a name is opened with options that differ, and not where they are the same', () => {
    const routes = [{ match: /** @type {const} */ ('prefix'), path: '/p/' }];
    const first = QueueKeeper.open('errors options', { node: 'a', routes, leases: { leaseMs: 5 } });
    QueueKeeper.open('errors options');
    QueueKeeper.open('errors options', { leases: { leaseMs: 5 }, routes: [...routes], node: 'a' });
    for (const options of [
      {},
      { node: 'b', routes, leases: { leaseMs: 5 } },
      { node: 'a', routes: [], leases: { leaseMs: 5 } },
      { node: 'a', routes, leases: { leaseMs: 6 } },
      { node: 'a', routes, leases: { leaseMs: 5 }, maxListed: 5 },
      { node: 'a', routes, leases: { leaseMs: 5 }, now: START },
    ]) {
      assert.throws(() => QueueKeeper.open('errors options', options), withCode('E_OPTIONS'));
    }
    first.configure({ defaultInterval: 7 });
    QueueKeeper.open('errors options', { node: 'a', routes, leases: { leaseMs: 5 } });
    QueueKeeper.open('errors defaults', {});
    QueueKeeper.open('errors defaults', { node: 'localhost', leases: { leaseMs: 120_000 } });
  });

  test('E_OPTIONS where one handle has a classifier and the other has not', () => {
    const classify = () => ({ route: 'r', cadenceMs: 5 });
    QueueKeeper.open('errors classified', { classify });
    assert.throws(() => QueueKeeper.open('errors classified', {}), withCode('E_OPTIONS'));
    assert.throws(() => QueueKeeper.open('errors classified'), withCode('E_OPTIONS'));
    assert.equal(QueueKeeper.open('errors classified', { classify }).size, 0);
    QueueKeeper.open('errors ruled');
    assert.throws(() => QueueKeeper.open('errors ruled', { classify }), withCode('E_OPTIONS'));
  });

  test('E_OPTIONS where the clock differs, manual or real', () => {
    QueueKeeper.open('errors manual', { now: START }).setNow(START + 5);
    QueueKeeper.open('errors manual', { now: START });
    assert.throws(() => QueueKeeper.open('errors manual', {}), withCode('E_OPTIONS'));
    QueueKeeper.open('errors real', {});
    assert.throws(() => QueueKeeper.open('errors real', { now: START }), withCode('E_OPTIONS'));
  });

  test('E_WALK for a walk that has ended, was abandoned, or that another has followed', () => {
    const keeper = manual();
    const ended = keeper.beginWalk('verify');
    ended.end();
    const abandoned = keeper.beginWalk('verify');
    abandoned.abandon();
    const followed = keeper.beginWalk('load');
    const current = keeper.beginWalk('verify');
    for (const walk of [ended, abandoned, followed]) {
      assert.throws(() => walk.rows([{ cacheKey: 'a', ...DUE }]), withCode('E_WALK'));
      assert.throws(() => walk.end(), withCode('E_WALK'));
      walk.abandon();
    }
    current.rows([{ cacheKey: 'a', ...DUE }]);
    assert.equal(current.end().scanned, 1);
  });

  test('E_CLOCK where the clocks are real and someone sets them', () => {
    assert.throws(() => new QueueKeeper().setNow(START), withCode('E_CLOCK'));
  });

  test('E_POISONED after a fault inside: from every call and every handle of that queue, and no other', () => {
    // What index.js never does: room for results that is too small, so that the addon panics, in a process of its own.
    const script = `
      const { QueueKeeper } = require(process.argv[1]);
      const addon = require(process.argv[1] + '/' + require(process.argv[1] + '/lib/addon-file.js').addonFile());
      const code = (call) => {
        try {
          call();
        } catch (err) {
          return err.code;
        }
      };
      const [one, same, other] = ['a', 'a', 'b'].map((name) => QueueKeeper.open(name));
      one.size;
      const codes = [code(() => addon.top(addon.open('a').handle, 1, new ArrayBuffer(16)))];
      codes.push(code(() => one.size), code(() => same.claim(1)), code(() => same.state()));
      codes.push(code(() => QueueKeeper.open('a')), code(() => one.close()), code(() => one.size));
      codes.push(code(() => other.claim(1)), code(() => QueueKeeper.open('c').size));
      same.saveSnapshot(process.argv[2]).catch((err) => {
        codes.push(err.code);
        console.log(JSON.stringify(codes));
      });
    `;
    const run = spawnSync(process.execPath, ['-e', script, ROOT, inFolder('poisoned')], {
      encoding: 'utf8',
    });
    const poisoned = 'E_POISONED';
    assert.equal(run.status, 0, run.stderr);
    assert.deepEqual(JSON.parse(run.stdout), [
      ...[poisoned, poisoned, poisoned, poisoned, poisoned],
      ...[null, 'E_CLOSED', null, null, poisoned],
    ]);
    assert.match(run.stderr, /panicked/, 'the message of the fault is on stderr');
  });

  test('E_IO for a file that is not there or a folder that cannot be written', async () => {
    const keeper = manual();
    await assert.rejects(keeper.loadSnapshot(inFolder('none')), withCode('E_IO'));
    await assert.rejects(keeper.saveSnapshot(inFolder('none/none')), withCode('E_IO'));
    await assert.rejects(keeper.loadSnapshot(folder), withCode('E_IO'));
    for (const odd of ['', '\0', 'a\0b']) {
      await assert.rejects(keeper.saveSnapshot(odd), withCode('E_IO'));
      await assert.rejects(keeper.loadSnapshot(odd), withCode('E_IO'));
    }
  });

  test('E_ARGUMENT is what the addon says to a wrong argument that the package should have refused', () => {
    const addon = require(path.join(ROOT, addonFile()));
    assert.throws(() => addon.create('{'), withCode('E_ARGUMENT'));
    const { handle } = addon.create('{}');
    const buffer = new ArrayBuffer(64);
    const detached = new ArrayBuffer(64);
    structuredClone(detached, { transfer: [detached] });
    for (const wrong of [
      [handle, 'a', buffer, 2],
      [handle, 'a', detached, 1],
      [handle, 'a', new ArrayBuffer(7), 1],
      [handle, 'a', new SharedArrayBuffer(64), 1],
      [handle, 'a', new Float64Array(8), 1],
      [handle, 'a', buffer, '1'],
      [handle, 'a', buffer],
      [handle, 1, buffer, 1],
      [handle, 'a', buffer, 1, [1]],
      ['1', 'a', buffer, 1],
      [],
    ]) {
      assert.throws(() => addon.applyBatch(...wrong), withCode('E_ARGUMENT'), inspect(wrong));
    }
    const long = new Float64Array(8).fill(0, 0, 7).fill(2, 7);
    assert.throws(() => addon.applyBatch(handle, 'a', long.buffer, 1), withCode('E_ARGUMENT'));
    assert.throws(
      () => addon.walkRows(handle, 1, 'a', new Float64Array(8), 1),
      withCode('E_ARGUMENT'),
    );
    assert.throws(() => addon.applyBatch(0, 'a', buffer, 1), withCode('E_CLOSED'));
    assert.throws(() => addon.setPhase(addon.create('{}').handle, 'other'), withCode('E_ARGUMENT'));
  });

  test('an error inside one call leaves the keeper as it was', () => {
    const keeper = manual();
    keeper.apply(put('a'));
    assert.throws(() => keeper.topK(-1), TypeError);
    assert.deepEqual(keysOf(keeper.topK(1).rows), ['a']);
    keeper.validate();
  });
});

describe('the list of codes is closed', () => {
  /** @param {string} file @param {RegExp} pattern */
  const codesIn = (file, pattern) => {
    const text = fs.readFileSync(path.join(ROOT, file), 'utf8');
    return [...new Set([...text.matchAll(pattern)].map((found) => found[1]))].sort();
  };

  test('index.d.ts names every code that the addon or index.js gives, and no other', () => {
    const native = codesIn('src/node/error.rs', /"(E_[A-Z_]+)"/g);
    const script = codesIn('index.js', /'(E_[A-Z_]+)'/g);
    assert.ok(native.length > 5 && script.length > 1);
    const given = [...new Set([...native, ...script])].sort();
    assert.deepEqual(codesIn('index.d.ts', /'(E_[A-Z_]+)'/g), given);
  });

  test('every code is met by a test of this suite', () => {
    const tests = ['errors', 'snapshot', 'package', 'threads', 'boundary']
      .map((name) => path.join(__dirname, `${name}.test.js`))
      .map((file) => fs.readFileSync(file, 'utf8'))
      .join('\n');
    const codes = codesIn('src/node/error.rs', /"(E_[A-Z_]+)"/g);
    codes.push(...codesIn('index.js', /'(E_[A-Z_]+)'/g));
    const unmet = codes.filter((code) => !new RegExp(`'\\^?${code}\\$?'`).test(tests));
    assert.deepEqual(unmet, []);
  });
});
