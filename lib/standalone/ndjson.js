'use strict';

/**
 * Rows as newline-delimited JSON, read from a stream of any length. Memory holds one line and one batch,
 * whatever is sent; a line that is wrong is reported by its number and the rest goes on.
 */

const { checkRow } = require('../row.js');
const { rowText } = require('./row-codec.js');

const LONGEST_LINE = 16 * 2 ** 20;
const BATCH_ROWS = 1_000;
const BATCH_BYTES = 4 * 2 ** 20;
/** More are counted, not listed. */
const MOST_ERRORS = 1_000;
const NEWLINE = 10;

/**
 * The lines of a stream, as bytes without their end. A line longer than `longest` comes as null.
 *
 * @param {AsyncIterable<Buffer>} stream
 * @param {number} longest
 * @returns {AsyncGenerator<Buffer | null>}
 */
async function* linesOf(stream, longest) {
  /** @type {Buffer[]} */
  let parts = [];
  let length = 0;
  let tooLong = false;
  /** @param {Buffer} part */
  const add = (part) => {
    length += part.length;
    if (length > longest) {
      tooLong = true;
      parts = [];
    } else if (part.length > 0) {
      parts.push(part);
    }
  };
  const take = () => {
    const line = tooLong ? null : parts.length === 1 ? parts[0] : Buffer.concat(parts);
    parts = [];
    length = 0;
    tooLong = false;
    return line;
  };
  for await (const chunk of stream) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(NEWLINE, start);
      if (end < 0) break;
      add(chunk.subarray(start, end));
      yield take();
      start = end + 1;
    }
    add(chunk.subarray(start));
  }
  if (length > 0) yield take();
}

/**
 * @param {Buffer} line
 * @param {InstanceType<typeof TextDecoder>} decoder
 * @param {boolean} isNewer
 * @returns {{ key: string, text: string, written?: number } | { error: string } | null}  null for an empty line
 */
function readLine(line, decoder, isNewer) {
  let text;
  try {
    text = decoder.decode(line);
  } catch {
    return { error: 'the line is not UTF-8: encode it as UTF-8' };
  }
  if (text.trim() === '') return null;
  let row;
  try {
    row = JSON.parse(text);
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    return { error: `the line is not JSON (${message}): send one JSON object on each line` };
  }
  if (typeof row !== 'object' || row === null || typeof row.cacheKey !== 'string') {
    return {
      error: 'cacheKey is missing: each row names its key, {"cacheKey": "https://...", ...}',
    };
  }
  if (row.cacheKey === '') return { error: 'cacheKey is empty: name the page by its URL' };
  const wrong = checkRow(row);
  if (wrong) return { error: wrong };
  try {
    const of = { key: row.cacheKey, text: rowText(row) };
    if (!isNewer) return of;
    if (!Number.isFinite(row.version) || row.version <= 0) {
      return { error: 'version is missing: when the row was written, a number above 0' };
    }
    return { ...of, written: row.version };
  } catch (error) {
    return { error: `the row cannot be stored: ${/** @type {Error} */ (error).message}` };
  }
}

/**
 * @param {AsyncIterable<Buffer>} stream
 * @param {{ write(writes: import('./table.js').TableWrite[]): Promise<(object | null)[]> }} table
 * @param {object} [options]
 * @param {number} [options.longestLine]
 * @param {((key: string) => boolean) | null} [options.isForeign]  of another node, to be left to it
 * @param {boolean} [options.onlyMissing]  rows that are there stay as they are
 * @param {boolean} [options.onlyNewer]  rows that are there and were written later than a line's `version` says, too
 */
async function importRows(stream, table, options = {}) {
  const {
    longestLine = LONGEST_LINE,
    isForeign = null,
    onlyMissing = false,
    onlyNewer = false,
  } = options;
  const decoder = new TextDecoder('utf-8', { fatal: true });
  /** @type {{ line: number, error: string }[]} */
  const errors = [];
  let written = 0;
  let failed = 0;
  let foreign = 0;
  let known = 0;
  let line = 0;
  /** @type {{ line: number, key: string, text: string, ifVersion?: number, written?: number }[]} */
  let batch = [];
  let bytes = 0;
  /** @type {Promise<void>} */
  let writing = Promise.resolve();

  /**
   * @param {number} at
   * @param {string} error
   */
  const fail = (at, error) => {
    failed += 1;
    if (errors.length < MOST_ERRORS) errors.push({ line: at, error });
  };
  const flush = async () => {
    if (batch.length === 0) return;
    const rows = batch;
    batch = [];
    bytes = 0;
    // One batch is read while the one before is written, no more.
    await writing;
    writing = table.write(rows).then(
      (outcomes) => {
        const there = outcomes.filter((outcome) => outcome === null).length;
        known += there;
        written += rows.length - there;
      },
      (/** @type {Error} */ error) => {
        for (const row of rows) fail(row.line, `${error.message}; send this line again`);
      },
    );
  };

  for await (const content of linesOf(stream, longestLine)) {
    line += 1;
    if (content === null) {
      fail(line, `the line is longer than ${longestLine} bytes: a row must be shorter`);
      continue;
    }
    const row = readLine(content, decoder, onlyNewer);
    if (row === null) continue;
    if ('error' in row) {
      fail(line, row.error);
      continue;
    }
    if (isForeign?.(row.key)) {
      foreign += 1;
      continue;
    }
    batch.push({ line, ...row, ...(onlyMissing && { ifVersion: 0 }) });
    bytes += content.length;
    if (batch.length >= BATCH_ROWS || bytes >= BATCH_BYTES) await flush();
  }
  await flush();
  await writing;
  errors.sort((a, b) => a.line - b.line);
  return { written, known, failed, foreign, errors, errorsTruncated: failed > errors.length };
}

module.exports = { importRows };
