'use strict';

const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const manifest = require('../package.json');
const { ADDON_CALLS, addonFile } = require('../lib/addon-file.js');
const { until } = require('./support/until.js');

const ROOT = path.join(__dirname, '..');

/** @type {string} */
let folder;
/** @type {string} An empty project that has installed the tarball. */
let project;
/** @type {{ filename: string, size: number, integrity: string, files: { path: string }[] }} */
let tarball;

/** @param {string} command @param {string[]} args @param {string} cwd */
function run(command, args, cwd) {
  return spawnSync(command, args, { cwd, encoding: 'utf8', timeout: 120_000 });
}

/** What the script prints, as JSON, run by a process of its own in the project. @param {string} script @param {string} [ext] */
function answerOf(script, ext = 'cjs') {
  const file = path.join(project, `script.${ext}`);
  fs.writeFileSync(file, script);
  const { status, stdout, stderr } = run(process.execPath, [file], project);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

/** Another copy of the installed package. @param {string} name */
function copyOf(name) {
  const copy = path.join(folder, name);
  fs.cpSync(path.join(project, 'node_modules', manifest.name), copy, { recursive: true });
  return copy;
}

/** What the package depends on, in the versions that this repository has. */
function locked() {
  const text = fs.readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8');
  const all = Object.entries(/** @type {Record<string, any>} */ (JSON.parse(text).packages));
  return Object.fromEntries(all.filter(([name, entry]) => name !== '' && !entry.dev));
}

before(() => {
  folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'queue-package-')));
  const packed = run(
    'npm',
    ['pack', '--json', '--ignore-scripts', '--pack-destination', folder],
    ROOT,
  );
  assert.equal(packed.status, 0, packed.stderr);
  const told = JSON.parse(packed.stdout);
  tarball = Array.isArray(told) ? told[0] : Object.values(told)[0];
  project = path.join(folder, 'project');
  fs.mkdirSync(project);
  const file = `file:${path.join(folder, path.basename(tarball.filename))}`;
  const root = { private: true, dependencies: { [manifest.name]: file } };
  const write = (/** @type {string} */ name, /** @type {object} */ value) =>
    fs.writeFileSync(path.join(project, name), JSON.stringify(value));
  write('package.json', root);
  const { version, dependencies } = manifest;
  const self = { version, resolved: file, integrity: tarball.integrity, dependencies };
  const packages = { '': root, [`node_modules/${manifest.name}`]: self, ...locked() };
  write('package-lock.json', { lockfileVersion: 3, requires: true, packages });
  // With these versions nothing but npm's cache is needed, which has them since `npm ci`; else the registry has them.
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  let installed = run('npm', ['ci', '--offline', ...quiet], project);
  if (installed.status !== 0) {
    fs.rmSync(path.join(project, 'package-lock.json'));
    installed = run('npm', ['install', '--prefer-offline', ...quiet], project);
  }
  assert.equal(installed.status, 0, installed.stderr);
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

describe('the tarball', () => {
  test('has what the package needs, and nothing else', () => {
    const files = tarball.files.map((file) => file.path);
    const expected =
      /^(?:package\.json|README\.md|LICENSE|config\.yaml|index\.(?:js|mjs|d\.ts)|queue_keeper\.[\w-]+\.node|lib\/.+|docs\/[\w-]+\.(?:md|yaml))$/;
    assert.deepEqual(
      files.filter((file) => !expected.test(file)),
      [],
    );
    const stray =
      /(?:^|\/)(?:__test__|tests?|src|target|bench|node_modules)\/|\.(?:rs|log|map|tgz|new|tmp)$|\.test\.js$/;
    assert.deepEqual(
      files.filter((file) => stray.test(file)),
      [],
    );
    for (const file of [
      'package.json',
      'README.md',
      'LICENSE',
      'index.js',
      'index.mjs',
      'index.d.ts',
      addonFile(),
    ]) {
      assert.ok(files.includes(file), file);
    }
  });

  test('has every file that package.json names', () => {
    const files = tarball.files.map((file) => `./${file.path}`);
    /** @param {unknown} entry @returns {string[]} */
    const named = (entry) =>
      typeof entry === 'string'
        ? [entry]
        : Object.values(/** @type {object} */ (entry)).flatMap(named);
    for (const file of [...named(manifest.exports), `./${manifest.main}`, `./${manifest.types}`]) {
      assert.ok(files.includes(file), file);
    }
  });

  test('is smaller than 5 MiB', (t) => {
    t.diagnostic(`${(tarball.size / 2 ** 20).toFixed(2)} MiB`);
    assert.ok(tarball.size < 5 * 2 ** 20, `${tarball.size} bytes`);
  });

  test('runs no script when it is installed', () => {
    for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) {
      assert.equal(Object.hasOwn(manifest.scripts, script), false, script);
    }
  });
});

describe('in an empty project, installed with scripts off', () => {
  const USE = `
    const keeper = new QueueKeeper({ now: 1_700_000_040_000 });
    keeper.apply({ type: 'put', id: 'a', value: { nextRenderTime: 5 } });
    const [job] = keeper.claim(1).jobs;
    console.log(JSON.stringify([job.key, keeper.confirm(job.token, { nextRenderTime: 5 }), keeper.release('a', job.token)]));
  `;

  test('require works', () => {
    const answer = answerOf(`const { QueueKeeper } = require('${manifest.name}');${USE}`);
    assert.deepEqual(answer, ['a', true, 'released']);
  });

  test('import works, and is the same class', () => {
    const script = `import { QueueKeeper } from '${manifest.name}';${USE}`;
    assert.deepEqual(answerOf(script, 'mjs'), ['a', true, 'released']);
    const both = `
      import { createRequire } from 'node:module';
      import { QueueKeeper } from '${manifest.name}';
      const required = createRequire(import.meta.url)('${manifest.name}');
      console.log(JSON.stringify(required.QueueKeeper === QueueKeeper));
    `;
    assert.equal(answerOf(both, 'mjs'), true);
  });

  test('compat has the names of the drop-in, from require and import', () => {
    const names = ['LATENESS_EDGES', 'createQueueKeeper', 'scoreOf'];
    const required = answerOf(
      `console.log(JSON.stringify(Object.keys(require('${manifest.name}/compat'))))`,
    );
    assert.deepEqual(
      names.filter((name) => !required.includes(name)),
      [],
    );
    const used = answerOf(
      `import { createQueueKeeper } from '${manifest.name}/compat';
       const keeper = createQueueKeeper({ classify: () => ({ route: 'r', cadenceMs: 60_000 }), now: () => 120_000 });
       keeper.apply('a', { nextRenderTime: 60_000 });
       console.log(JSON.stringify([keeper.size, keeper.topK(1, { nowMs: 120_000 }).rows]));`,
      'mjs',
    );
    assert.deepEqual(used, [
      1,
      [{ entry: { cacheKey: 'a', dueAt: 60_000, fromSitemap: false }, score: 1 }],
    ]);
  });

  test('the console is in it, the chart library and its licence included', () => {
    const served = answerOf(`
      const { consoleFile, consolePaths } = require('${manifest.name}/console-files');
      console.log(JSON.stringify(consolePaths().map((name) => [name, consoleFile(name).body.length])));
    `);
    const names = served.map((/** @type {[string, number]} */ [name]) => name);
    for (const name of ['index.html', 'console.css', 'main.js', 'icon.svg']) {
      assert.ok(names.includes(name), name);
    }
    for (const name of ['vendor/uPlot.esm.js', 'vendor/uPlot.min.css', 'vendor/LICENSE']) {
      assert.ok(names.includes(name), name);
    }
    for (const [name, length] of served) assert.ok(length > 100, name);
  });

  test('where the chart library is not installed the rest of the console is served', () => {
    const files = path.join(copyOf('without charts'), 'lib/console-files.js');
    const [page, chart, names] = answerOf(`
      const { consoleFile, consolePaths } = require(${JSON.stringify(files)});
      console.log(JSON.stringify([consoleFile('').status, consoleFile('vendor/uPlot.esm.js'), consolePaths()]));
    `);
    assert.deepEqual([page, chart], [200, null]);
    assert.ok(names.includes('main.js') && !/vendor/.test(names));
  });

  test('its service serves the console', async () => {
    const main = path.join(project, 'node_modules', manifest.name, 'lib/standalone/main.js');
    const args = ['--port', '0', '--sample', '0', '--workers', '1', '--data', 'data'];
    const host = spawn(process.execPath, [main, ...args], { cwd: project });
    let output = '';
    for (const stream of [host.stdout, host.stderr]) {
      stream.on('data', (chunk) => {
        output += chunk;
      });
    }
    try {
      const url = await until('the URL', () => {
        if (host.exitCode !== null) throw new Error(output);
        return /listens on (http:\S+),/.exec(output)?.[1];
      });
      const page = await fetch(`${url}/console/`);
      assert.match(await page.text(), /<title>Render queue<\/title>/);
      const library = await fetch(`${url}/console/vendor/uPlot.esm.js`);
      assert.deepEqual(
        [library.status, library.headers.get('content-type')],
        [200, 'text/javascript; charset=utf-8'],
      );
    } finally {
      const ended = new Promise((resolve) => host.once('exit', resolve));
      host.kill('SIGTERM');
      await ended;
    }
  });

  test('every way in that package.json names can be required', () => {
    for (const entry of Object.keys(manifest.exports)) {
      const id = path.posix.join(manifest.name, entry);
      assert.equal(answerOf(`require('${id}'); console.log('true')`), true, id);
    }
    const hidden = `try { require('${manifest.name}/lib/packer.js'); } catch (err) { console.log(JSON.stringify(err.code)); }`;
    assert.equal(answerOf(hidden), 'ERR_PACKAGE_PATH_NOT_EXPORTED');
  });

  test('the types compile, and refuse what the methods refuse', () => {
    fs.writeFileSync(
      path.join(project, 'use.mts'),
      `import { QueueKeeper } from '${manifest.name}';
       const own = new QueueKeeper({ leases: { leaseMs: 5 }, classify: (key, row) => (row ? { route: key, cadenceMs: 5 } : null) });
       const keeper: QueueKeeper = QueueKeeper.open('name', { node: 'a', nodes: ['b'], routes: [{ match: 'exact', path: '/' }] });
       keeper.apply({ type: 'put', id: 'a', value: { nextRenderTime: new Date(), effectiveInterval: 5n } });
       const counts: { applied: number; ignored: number; malformed: number } = keeper.applyAll([]);
       const { jobs, status, held, refused } = keeper.claim(20);
       for (const { key, token, dueAt, score, expiresAt } of jobs) {
         const yes: boolean = keeper.confirm(token, null);
         const ended: 'released' | 'expired' | 'superseded' | 'unknown' = keeper.release(key, token);
         const until: number | null = keeper.extend(token, dueAt + score + expiresAt);
         void [yes, ended, until];
       }
       const named: 'unready' | 'queued' | 'empty' | 'paused' = status;
       const misses: number[] = held.map((each) => each.misses);
       const walk = keeper.beginWalk('verify');
       walk.rows([{ cacheKey: 'a', nextRenderTime: 5 }]);
       const suspects: string[] = walk.end({ partial: true }).suspects;
       const saved: Promise<{ rows: number }> = keeper.saveSnapshot('file');
       const { moved, dropped } = keeper.configure({ priority: { sitemapBoost: 3 } });
       const due: number = keeper.state().now.due + moved + dropped + keeper.size + keeper.bytes;
       const text: string = keeper.stateJson() + keeper.metrics();
       const described: number | null | undefined = keeper.describe('a')?.cadenceMs;
       const rank: number | null = keeper.explain('a').rank;
       own.setNow(5);
       own.close();
       void [counts, named, misses, suspects, saved, due, text, described, rank, refused];
       // @ts-expect-error a count
       keeper.claim('5');
       // @ts-expect-error a kind of walk
       keeper.beginWalk('other');
       // @ts-expect-error no such option
       new QueueKeeper({ unknown: 1 });
       // @ts-expect-error not changeable
       keeper.configure({ delimiter: ',' });
       // @ts-expect-error what a confirm tells is no lease
       keeper.confirm(5, null).token;
      `,
    );
    const tsc = path.join(ROOT, 'node_modules', '.bin', 'tsc');
    const strict = [
      '--noEmit',
      '--strict',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--types',
      '',
    ];
    const compiled = run(tsc, [...strict, 'use.mts'], project);
    assert.equal(compiled.status, 0, compiled.stdout + compiled.stderr);
  });

  test('index.d.ts declares the methods that there are, and no other', () => {
    const { QueueKeeper } = require('..');
    const text = fs.readFileSync(path.join(ROOT, 'index.d.ts'), 'utf8');
    const body = /export (?:declare )?class QueueKeeper \{([\s\S]*?)\n\}/.exec(text)?.[1] ?? '';
    const declared = [...body.matchAll(/^ {2}(?:readonly |get |static )?(\w+)[(:<]/gm)].map(
      (found) => found[1],
    );
    const has = [
      ...Object.getOwnPropertyNames(QueueKeeper.prototype),
      ...Object.getOwnPropertyNames(QueueKeeper).filter(
        (name) => !['length', 'name', 'prototype'].includes(name),
      ),
    ];
    assert.deepEqual([...new Set(declared)].sort(), has.sort());
  });
});

describe('a second copy of the package in one process', () => {
  const CODE = `
    const { Worker } = require('node:worker_threads');
    const codeOf = (id) => {
      try {
        return typeof require(id).QueueKeeper;
      } catch (err) {
        return [err.code, err.message];
      }
    };
    const inThread = (id) => new Promise((resolve, reject) => {
      const script = 'const codeOf = ' + codeOf + '; require("node:worker_threads").parentPort.postMessage(codeOf(' + JSON.stringify(id) + '))';
      new Worker(script, { eval: true }).once('message', resolve).once('error', reject);
    });
  `;

  test('is refused in the same thread with E_SECOND_COPY, which names both', () => {
    const copy = copyOf('same thread');
    const [first, [code, message], again] = answerOf(
      `${CODE} console.log(JSON.stringify(['${manifest.name}', ${JSON.stringify(copy)}, '${manifest.name}'].map(codeOf)))`,
    );
    assert.deepEqual([first, code, again], ['function', 'E_SECOND_COPY', 'function']);
    assert.ok(message.includes(copy), message);
    assert.ok(message.includes(path.join(project, 'node_modules')), message);
  });

  test('is refused in another thread, and the first goes on in new threads', {
    skip: process.platform !== 'linux',
  }, () => {
    const copy = copyOf('other thread');
    const answers = answerOf(
      `${CODE} (async () => {
         const own = require.resolve('${manifest.name}');
         const { QueueKeeper } = require(own);
         const answers = [];
         for (const id of [own, ${JSON.stringify(copy)}, own, ${JSON.stringify(copy)}, own]) answers.push(await inThread(id));
         answers.push(QueueKeeper.open('name').size);
         console.log(JSON.stringify(answers));
       })();`,
    );
    assert.deepEqual(
      answers.map((/** @type {any} */ answer) => (Array.isArray(answer) ? answer[0] : answer)),
      ['function', 'E_SECOND_COPY', 'function', 'E_SECOND_COPY', 'function', 0],
    );
  });

  test('the same copy, required again after its modules were forgotten, is the same queue', () => {
    const sizes = answerOf(
      `const { QueueKeeper } = require('${manifest.name}');
       QueueKeeper.open('name').applyAll([{ type: 'put', id: 'a', value: { nextRenderTime: 5 } }]);
       for (const file of Object.keys(require.cache)) delete require.cache[file];
       console.log(JSON.stringify([require('${manifest.name}').QueueKeeper === QueueKeeper, require('${manifest.name}').QueueKeeper.open('name').size]));`,
    );
    assert.deepEqual(sizes, [false, 1]);
  });
});

describe('E_ADDON', () => {
  /** @param {string} name @param {(copy: string) => void} change */
  function loading(name, change) {
    const copy = copyOf(name);
    change(copy);
    return answerOf(
      `try { require(${JSON.stringify(copy)}); } catch (err) { console.log(JSON.stringify([err.code, err.message])); }`,
    );
  }
  const addon = (/** @type {string} */ copy) => path.join(copy, addonFile());

  test('where the addon is missing or cannot be loaded says what to do', () => {
    for (const [code, message] of [
      loading('missing', (copy) => fs.rmSync(addon(copy))),
      loading('garbage', (copy) => fs.writeFileSync(addon(copy), 'no addon')),
    ]) {
      assert.equal(code, 'E_ADDON', message);
      assert.match(message, /npm run build/);
    }
  });

  test('where the addon is of another version than the package', () => {
    const [code, message] = loading('version', (copy) => {
      const file = path.join(copy, 'package.json');
      fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(manifest.version, '99.0.0'));
    });
    assert.equal(code, 'E_ADDON');
    assert.match(message, /99\.0\.0/);
  });

  test('where the addon was built before the package needed more of it', () => {
    const [code, message] = loading('older', (copy) => {
      const file = path.join(copy, 'lib/addon-file.js');
      const text = fs.readFileSync(file, 'utf8');
      fs.writeFileSync(file, text.replace("  'validate',", "  'validate',\n  'newlyNeeded',"));
    });
    assert.equal(code, 'E_ADDON', message);
    assert.match(message, /it has no newlyNeeded\): build it again with `npm run build`/);
  });

  test('is said at the start for all that is called of it', () => {
    const text = fs.readFileSync(path.join(__dirname, '../index.js'), 'utf8');
    const called = new Set([...text.matchAll(/\bnative\.(\w+)/g)].map(([, name]) => name));
    assert.deepEqual([...called].sort(), [...ADDON_CALLS].sort());
  });
});
