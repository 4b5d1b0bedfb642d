'use strict';

/**
 * The LMDB environment of one data folder: the rows by key, and a few named values. Every thread opens it for
 * itself; LMDB shares the map within the process. All threads must open it with the same options.
 */

const { mkdirSync } = require('node:fs');
const path = require('node:path');
const lmdb = require('lmdb');

/** Address space only, reserved at once: growing a map under the feet of other threads is a risk for nothing. */
const MAP_SIZE = 256 * 2 ** 30;

/** @param {string} folder */
function openEnvironment(folder) {
  mkdirSync(folder, { recursive: true });
  const root = lmdb.open({
    path: path.join(folder, 'schedule.mdb'),
    noSubdir: true,
    mapSize: MAP_SIZE,
    maxDbs: 4,
    // A commit returns when it is on disk, not before.
    overlappingSync: false,
  });
  /** @type {import('lmdb').Database<Buffer, Buffer>} */
  const rows = root.openDB({ name: 'rows', encoding: 'binary', keyEncoding: 'binary' });
  /** @type {import('lmdb').Database<unknown, string>} */
  const meta = root.openDB({ name: 'meta', encoding: 'json' });
  return { root, rows, meta };
}

module.exports = { openEnvironment };
