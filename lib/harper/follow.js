'use strict';

/** The options in a component's file, followed as they change. */

const fs = require('node:fs/promises');
const path = require('node:path');

/** @typedef {import('./queue.js').Log} Log */

/** How long the file is quiet before its options are taken: longer than an editor takes to write it. */
const QUIET_MS = 100;
const LOOK_AGAIN_MS = 500;
const MOST_TRIES = 10;
/** Where Harper has a component's options. */
const CONFIGS = ['harperdb-config.yaml', 'config.yaml'];

/**
 * Harper tells of a file that it sees whole by 'change', once for each option; of one that it has read while it was
 * being written by 'remove' and 'ready', without any 'change'. So each of them counts, and what they say does not.
 *
 * What is written less than 50 ms after Harper has looked it passes over, and would not see before the next edit: a
 * file without the section is touched, so that it looks again.
 *
 * @param {any} scope
 * @param {{ take: () => void, log: Log }} to  `take`: the options are to be read
 * @returns {() => void}  ends it
 */
function followOptions(scope, { take, log }) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  let ended = false;
  let gone = false;
  let tries = 0;
  const look = () => {
    if (!isEmpty(scope.options.getAll())) {
      gone = false;
      take();
      return;
    }
    if (!gone) log('warn', 'the options are gone from the file: those before stay');
    gone = true;
    tries += 1;
    if (tries > MOST_TRIES) return;
    if (typeof scope.directory === 'string') {
      for (const name of CONFIGS) void touch(path.join(scope.directory, name));
    }
    timer = setTimeout(look, LOOK_AGAIN_MS).unref();
  };

  /** @param {string} file */
  const touch = async (file) => {
    const text = await read(file);
    if (text === null || ended) return;
    try {
      const { atime } = await fs.stat(file);
      await fs.utimes(file, atime, new Date());
    } catch {
      log('error', `save ${file} again: Harper has not seen the whole of it`);
      return;
    }
    // What was written just after it is passed over because of it, in each worker.
    setTimeout(async () => {
      const now = await read(file);
      if (now !== null && now !== text) void touch(file);
    }, LOOK_AGAIN_MS).unref();
  };

  const told = () => {
    // Something has changed: it is worth looking as often as at first.
    tries = 0;
    clearTimeout(timer);
    timer = setTimeout(look, QUIET_MS).unref();
  };
  const events = ['change', 'ready', 'remove'];
  for (const event of events) scope.options.on(event, told);
  // A file that is no YAML: without a listener, it would end the worker; so it stays to the end.
  scope.on('error', (/** @type {Error} */ { message }) =>
    log('error', `the options before stay: ${message}`),
  );
  return () => {
    ended = true;
    clearTimeout(timer);
    for (const event of events) scope.options.off(event, told);
  };
}

/** Also what Harper leaves of a section that has been emptied. @param {any} options */
function isEmpty(options) {
  return Object.values(options ?? {}).every((value) => value === undefined || value === null);
}

/** The text of a file; null where it cannot be read. @param {string} file */
function read(file) {
  return fs.readFile(file, 'utf8').catch(() => null);
}

module.exports = { followOptions };
