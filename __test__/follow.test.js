'use strict';

const assert = require('node:assert/strict');
const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, beforeEach, afterEach, describe, test } = require('node:test');
const { followOptions } = require('../lib/harper/follow.js');
const { until } = require('./support/until.js');

/** Reads a component's file as Harper does: when the system says that it has changed, but for what it passes over. */
class ScopeDouble extends EventEmitter {
  options = new EventEmitter();
  /** @type {any} */
  #section;
  #watcher;
  looks = 0;
  /** What is written like this is not looked at before the file is touched. */
  /** @type {string | null} */
  passesOver = null;

  /** @param {string} directory */
  constructor(directory) {
    super();
    this.directory = directory;
    this.file = path.join(directory, 'config.yaml');
    this.#read();
    Object.assign(this.options, { getAll: () => this.#section });
    this.#watcher = fs.watch(this.file, () => {
      if (fs.readFileSync(this.file, 'utf8') === this.passesOver && !this.#isTouched()) return;
      this.looks += 1;
      this.#read();
      this.options.emit(this.#section ? 'ready' : 'remove');
      this.emit('looked');
    });
  }

  /** Writing a file changes both of its times alike. */
  #isTouched() {
    const { mtimeNs, ctimeNs } = fs.statSync(this.file, { bigint: true });
    return mtimeNs !== ctimeNs;
  }

  #read() {
    const text = fs.readFileSync(this.file, 'utf8');
    this.#section = text === '' ? undefined : JSON.parse(text);
  }

  close() {
    this.#watcher.close();
  }
}

describe("a component's options are followed", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-follow-test-'));
  const file = path.join(folder, 'config.yaml');
  const write = (/** @type {any} */ section) => fs.writeFileSync(file, JSON.stringify(section));
  const writeUnseen = (/** @type {any} */ section) => {
    scope.passesOver = JSON.stringify(section);
    write(section);
  };
  /** @type {ScopeDouble} */
  let scope;
  /** @type {any[]} */
  let taken;
  /** @type {string[]} */
  let said;
  let unfollow = () => {};

  beforeEach(() => {
    write({ a: 1 });
    scope = new ScopeDouble(folder);
    taken = [];
    said = [];
    unfollow = followOptions(scope, {
      take: () => taken.push(/** @type {any} */ (scope.options).getAll()),
      log: (_, message) => said.push(message),
    });
  });
  afterEach(() => {
    unfollow();
    scope.close();
  });
  after(() => fs.rmSync(folder, { recursive: true }));

  test('where they were seen half written, to the end', async () => {
    fs.writeFileSync(file, '');
    await until('it to be looked at', () => scope.looks > 0);
    writeUnseen({ a: 2 });
    await until('the rest', () => taken.at(-1)?.a === 2);
    assert.match(said[0], /the options are gone from the file: those before stay/);
    assert.equal(said.length, 1);
  });

  test('where they are written just after the file was touched, too', async () => {
    fs.writeFileSync(file, '');
    await until('it to be looked at', () => scope.looks > 0);
    const looks = scope.looks;
    writeUnseen({ a: 2 });
    scope.on('looked', () => {
      // By a touch, which is no sooner than what has been written.
      if (/** @type {any} */ (scope.options).getAll()?.a === 2) writeUnseen({ a: 3 });
    });
    await until('what was passed over', () => taken.at(-1)?.a === 3);
    assert.ok(scope.looks > looks + 1, `${scope.looks - looks} looks`);
  });

  test('no longer, once that has been ended', async () => {
    fs.writeFileSync(file, '');
    await until('it to be looked at', () => scope.looks > 0);
    unfollow();
    const { mtimeMs } = fs.statSync(file);
    const another = new ScopeDouble(folder);
    // A later look of another's is after all that this one would have done.
    const seen = [];
    const end = followOptions(another, { take: () => seen.push(1), log: () => {} });
    another.options.emit('remove');
    await until('a touch', () => fs.statSync(file).mtimeMs > mtimeMs);
    write({ a: 4 });
    await until('the options', () => seen.length > 0);
    end();
    another.close();
    assert.deepEqual(taken, []);
  });

  test('a file that is no YAML is told, and does not end the worker', () => {
    scope.emit('error', new Error('bad indentation'));
    assert.deepEqual(said, ['the options before stay: bad indentation']);
  });
});
