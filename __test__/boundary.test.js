'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { describe, test } = require('node:test');
const { addonFile } = require('../lib/addon-file.js');
const {
  bare,
  exportsOf,
  undocumentedUnsafe,
  unguarded,
  GUARDS,
} = require('./support/rust-source.js');

const SRC = path.join(__dirname, '..', 'src');

/** @param {string} folder */
const sourcesIn = (folder) =>
  fs
    .readdirSync(path.join(SRC, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.rs'))
    .map((entry) => path.join(entry.path, entry.name));

/** @param {string} file */
const read = (file) => fs.readFileSync(file, 'utf8');

/** Any name in the snake case of Rust as napi gives it to JavaScript. @param {string} name */
const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

describe('no panic reaches Node', () => {
  const binding = read(path.join(SRC, 'node', 'mod.rs'));

  test('every export runs inside the unwind boundary, and nothing that could panic outside of it', () => {
    for (const file of sourcesIn('node')) assert.deepEqual(unguarded(read(file)), [], file);
  });

  test('the exports that were read are those that the addon has', () => {
    const addon = require(path.join(__dirname, '..', addonFile()));
    const found = exportsOf(binding).map(({ name }) => camel(name));
    const classes = ['Owner', 'EndedWalk'];
    const has = Object.keys(addon).filter((name) => !classes.includes(name));
    for (const made of classes.map((name) => addon[name])) {
      has.push(...Object.getOwnPropertyNames(made).filter((name) => !(name in Function)));
      has.push(...Object.getOwnPropertyNames(made.prototype));
    }
    const plain = ['length', 'name', 'prototype', 'constructor'];
    assert.deepEqual(
      has.filter((name) => !plain.includes(name) && !found.includes(name)),
      [],
      'exported, and not looked at',
    );
    assert.ok(found.length > 30);
  });

  test('no export is async with a borrowed self: its thread, and self with it, may be gone when the future runs', () => {
    const borrowed = /pub async fn (\w+)(?:<[^>]*>)?\(\s*&/g;
    for (const file of sourcesIn('node')) {
      assert.deepEqual(
        [...bare(read(file)).matchAll(borrowed)].map((found) => found[1]),
        [],
        file,
      );
    }
    assert.match('pub async fn save(&self, path: String)', borrowed);
  });

  test('an export outside of the boundary would be found, wherever and however it is added', () => {
    const method = (/** @type {string} */ text) =>
      `${binding}\n#[napi]\npub fn added(handle: u32, key: Utf16String) -> Result<f64> {\n${text}\n}\n`;
    const added = {
      'a method without any guard': method('        Ok(key.len() as f64)'),
      'a guard only named in a comment': method(
        '        // with(handle, |keeper| 1)\n        Ok(1.0)',
      ),
      'a guard only named in a string': method(
        '        Ok("with(handle, |keeper| 1)".len() as f64)',
      ),
      'work before the guard': method(
        '        let key = wtf8(&key);\n        with(handle, |keeper| key.len() as f64)',
      ),
      'work behind the guard': method(
        '        let keys = with(handle, |keeper| keeper.keys())?;\n        Ok(keys[0].len() as f64)',
      ),
      'a panic beside the guard': method(
        '        with(handle, |_| ())?;\n        panic!("{key:?}")',
      ),
      'an unwrap beside the guard': method(
        '        Ok(with(handle, |keeper| keeper.find(&key)).unwrap())',
      ),
      'a function with attributes and a comment between': `${binding}\n#[napi(js_name = "added")]\n/// Says something.\n#[inline]\npub fn added() -> f64 {\n    1.0\n}\n`,
      'an async method': method('').replace('pub fn added', 'pub async fn added'),
      'a getter': `${binding}\n#[napi]\nimpl Native {\n    #[napi(getter)]\n    pub fn added(&self) -> f64 {\n        f()\n    }\n}\n`,
    };
    for (const [how, source] of Object.entries(added)) {
      const wrong = unguarded(source);
      assert.ok(
        wrong.some((each) => each.startsWith('added ')),
        `${how} was not found: ${wrong}`,
      );
    }
  });

  test('taking the guard off any one export would be found', () => {
    for (const { name, line, body } of exportsOf(binding)) {
      const start = binding
        .split('\n')
        .slice(0, line - 1)
        .join('\n').length;
      const rest = binding.slice(start);
      const at = rest.indexOf('{');
      const inBody = rest.slice(at, at + body.length + 400);
      const bared =
        binding.slice(0, start) +
        rest.slice(0, at) +
        inBody.replace(GUARDS, 'unguarded(') +
        rest.slice(at + inBody.length);
      assert.ok(
        unguarded(bared).some((each) => each.startsWith(`${name} `)),
        name,
      );
    }
  });
});

describe('unsafe code says why it is sound', () => {
  const files = [...sourcesIn('.')];

  test('each unsafe block has its SAFETY comment, each unsafe fn its Safety section', () => {
    for (const file of files) assert.deepEqual(undocumentedUnsafe(read(file)), [], file);
  });

  test('one without would be found', () => {
    const block = 'fn f() {\n    unsafe { g() }\n}\n';
    assert.equal(undocumentedUnsafe(block).length, 1);
    assert.equal(
      undocumentedUnsafe(block.replace('    unsafe', '    // SAFETY:\n    unsafe')).length,
      1,
      'an empty one',
    );
    assert.equal(
      undocumentedUnsafe(block.replace('    unsafe', '    // SAFETY: g is sound.\n    unsafe'))
        .length,
      0,
    );
    assert.equal(undocumentedUnsafe('unsafe impl Send for X {}\n').length, 1);
    assert.equal(undocumentedUnsafe('/// Does.\nunsafe fn f() {}\n').length, 1);
    assert.equal(undocumentedUnsafe('let text = "unsafe { }"; // unsafe { }\n').length, 0);
    for (const file of files) {
      const source = read(file);
      const documented = source.match(/\/\/ SAFETY: |\/\/\/ # Safety/g) ?? [];
      for (const comment of documented) {
        const without = source.replace(comment, '// ');
        assert.ok(undocumentedUnsafe(without).length > 0, `${file}: ${comment}`);
      }
    }
  });
});

describe('the queue is pure', () => {
  const FORBIDDEN =
    /\bunsafe\b(?!_code)|\bnapi|\bSystemTime\b|\bInstant\b|\bthread\b|\bfs\b|\bMutex\b|\bparking_lot\b|\btokio\b|crate::(?:shared|node)\b|\bstd::(?:env|net|process|io::(?:stdin|stdout))\b/;

  test('src/queue forbids unsafe code', () => {
    assert.match(bare(read(path.join(SRC, 'queue', 'mod.rs'))), /^#!\[forbid\(unsafe_code\)\]$/m);
  });

  test('src/queue knows no Node, clock, thread, lock or file', () => {
    for (const file of sourcesIn('queue')) {
      for (const [i, line] of bare(read(file)).split('\n').entries()) {
        if (line.includes('forbid(unsafe_code)')) continue;
        assert.doesNotMatch(line, FORBIDDEN, `${file}:${i + 1}`);
      }
    }
    for (const line of [
      'use std::fs::File;',
      'std::thread::spawn(f)',
      'let now = Instant::now();',
    ]) {
      assert.match(line, FORBIDDEN);
    }
  });

  test('src/shared.rs knows the queue, and neither Node nor a file', () => {
    assert.doesNotMatch(
      bare(read(path.join(SRC, 'shared.rs'))),
      /\bnapi|crate::node\b|\bfs\b|\btokio\b|\bunsafe\b/,
    );
  });
});
