'use strict';

/**
 * The console as a host serves it: every file by its path below the mount, with the headers that fence the page in.
 * There are no numbers in these files, so they need no token.
 */

const fs = require('node:fs');
const path = require('node:path');

const FOLDER = path.join(__dirname, 'console');

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '': 'text/plain; charset=utf-8',
};

const HEADERS = {
  // The same in index.html, for a mount that sends no headers of its own; that one cannot say frame-ancestors.
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-cache',
};

/** Where each file is: the console's own, and the chart library's out of its package. */
function locate() {
  /** @type {Map<string, string>} */
  const files = new Map();
  for (const name of fs.readdirSync(FOLDER)) {
    if (Object.hasOwn(TYPES, path.extname(name))) files.set(name, path.join(FOLDER, name));
  }
  const library = charts();
  if (library !== null) {
    files.set('vendor/uPlot.esm.js', path.join(library, 'dist', 'uPlot.esm.js'));
    files.set('vendor/uPlot.min.css', path.join(library, 'dist', 'uPlot.min.css'));
    files.set('vendor/LICENSE', path.join(library, 'LICENSE'));
  }
  return files;
}

/** The chart library's folder; null where it is not installed: the console has tables instead. */
function charts() {
  try {
    return path.dirname(require.resolve('uplot/package.json'));
  } catch {
    return null;
  }
}

/** @type {Map<string, string> | null} */
let files = null;
/** @type {Map<string, { status: 200, headers: Record<string, string>, body: Buffer }>} */
const answers = new Map();

/**
 * The file at a path below the mount; `''` is the page. Null where there is none.
 *
 * @param {string} name
 */
function consoleFile(name) {
  files ??= locate();
  const wanted = name === '' ? 'index.html' : name;
  const file = files.get(wanted);
  if (file === undefined) return null;
  let answer = answers.get(wanted);
  if (!answer) {
    const headers = { ...HEADERS, 'content-type': TYPES[path.extname(wanted)] };
    answer = { status: 200, headers, body: fs.readFileSync(file) };
    answers.set(wanted, answer);
  }
  return answer;
}

/** Every path that `consoleFile` answers. */
function consolePaths() {
  files ??= locate();
  return [...files.keys()];
}

module.exports = { consoleFile, consolePaths };
