'use strict';

/**
 * Reads a sitemap, or a sitemap index and the local files it names, into the table. Streams: memory does not
 * grow with the file. A broken file keeps what was read before the break.
 */

const fs = require('node:fs');
const path = require('node:path');
const { fileURLToPath } = require('node:url');
const zlib = require('node:zlib');
const { SaxesParser } = require('saxes');

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** @type {Record<string, number>} What a `changefreq` says about how often to render. */
const CADENCES = {
  always: HOUR,
  hourly: HOUR,
  daily: DAY,
  weekly: 7 * DAY,
  monthly: 30 * DAY,
  yearly: 365 * DAY,
  never: 365 * DAY,
};
/** Pages of priority 1 are due at once, those of 0 are spread over this, or over their cadence if shorter. */
const SPREAD = 6 * HOUR;
const BATCH = 1_000;
/** An index may name sitemaps, and by the protocol no further index. */
const DEEPEST = 3;
const LONGEST_TEXT = 64 * 1024;
const MOST_PROBLEMS = 100;
/** By the protocol a file lists no more: so many are remembered, to tell those that are listed twice. */
const MOST_LISTED = 50_000;

/**
 * @typedef {{ loc: string, changefreq: string, priority: string, line: number }} Entry
 * @typedef {{ file: string, line: number | null, reason: string }} Problem
 * @typedef {object} Report
 * @property {number} files  read, broken ones included
 * @property {number} urls  read
 * @property {number} written
 * @property {number} unchanged  rows that were there with the same cadence already, or listed before in the same file
 * @property {number} skipped  entries that named no page
 * @property {number} foreign  pages of other nodes, left to them
 * @property {Problem[]} problems  the first hundred
 * @property {string[]} notFetched  sitemaps that an index names elsewhere
 *
 * @typedef {object} Target
 * @property {(key: string) => import('../schedule-table.js').ScheduleRow | null} getSync
 * @property {(writes: import('./table.js').TableWrite[]) => Promise<(object | null)[]>} write
 */

/** Where each page falls in its spread: the same on every import. @param {string} text */
function fraction(text) {
  let h = 2_166_136_261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16_777_619);
  h = Math.imul(h ^ (h >>> 16), 0x85eb_ca6b);
  return ((h ^ (h >>> 13)) >>> 0) / 2 ** 32;
}

/**
 * What an entry says of its page, or why it says nothing. `changefreq` and `priority` are hints: one that makes no sense is
 * complained of, and the page taken without it.
 *
 * @param {Entry} entry
 * @param {number} now
 * @param {(reason: string) => void} complain
 * @returns {{ key: string, due: number, cadence: number | null } | { reason: string }}
 */
function readEntry(entry, now, complain) {
  const { loc } = entry;
  if (loc === '') return { reason: 'a <url> without <loc>' };
  if (!/^https?:\/\//i.test(loc) || !isUrl(loc)) {
    return { reason: `<loc> is not an absolute http(s) URL: ${shown(loc)}` };
  }
  const frequency = entry.changefreq.toLowerCase();
  const cadence = Object.hasOwn(CADENCES, frequency) ? CADENCES[frequency] : null;
  if (frequency !== '' && !Object.hasOwn(CADENCES, frequency)) {
    complain(`unknown <changefreq>, taken as none: ${shown(entry.changefreq)}`);
  }
  let priority = entry.priority === '' ? 0.5 : Number(entry.priority);
  if (!(priority >= 0 && priority <= 1)) {
    complain(`<priority> is not a number from 0 to 1, taken as 0.5: ${shown(entry.priority)}`);
    priority = 0.5;
  }
  const spread = Math.min(SPREAD, cadence ?? SPREAD) * (1 - priority);
  return { key: loc, due: Math.round(now + spread * fraction(loc)), cadence };
}

/**
 * Not `URL.canParse`: in Node 20 it errs now and then, once compiled, on text that is neither ASCII nor two bytes a character.
 *
 * @param {string} text
 */
function isUrl(text) {
  try {
    return Boolean(new URL(text));
  } catch {
    return false;
  }
}

/** @param {string} text */
function shown(text) {
  return JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}…` : text);
}

/** Text of a sitemap's bytes, by its byte order mark or its XML declaration; throws where they are not that. */
class XmlDecoder {
  /** @type {InstanceType<typeof TextDecoder> | null} */
  #decoder = null;
  #head = Buffer.alloc(0);

  /** @param {Buffer} chunk */
  write(chunk) {
    if (this.#decoder) return this.#decoder.decode(chunk, { stream: true });
    this.#head = Buffer.concat([this.#head, chunk]);
    return this.#head.length < 200 ? '' : this.#start();
  }

  end() {
    const head = this.#decoder ? '' : this.#start();
    return head + (this.#decoder?.decode() ?? '');
  }

  #start() {
    const head = this.#head;
    let label = 'utf-8';
    if (head[0] === 0xff && head[1] === 0xfe) label = 'utf-16le';
    else if (head[0] === 0xfe && head[1] === 0xff) label = 'utf-16be';
    else {
      const declared = /^(?:\xef\xbb\xbf)?<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)["']/.exec(
        head.toString('latin1', 0, 200),
      );
      if (declared) label = declared[1];
    }
    try {
      this.#decoder = new TextDecoder(label, { fatal: true });
    } catch {
      throw new Error(`the encoding ${label} is not known: save the file as UTF-8`);
    }
    return this.#decoder.decode(head, { stream: true });
  }
}

/**
 * The entries of one file, a batch at a time, with what is wrong with it.
 *
 * @param {string} file
 * @param {(bytes: number) => void} onBytes  how much of the file was read
 * @returns {AsyncGenerator<{ kind: 'url' | 'sitemap', entries: Entry[] } | { problem: Problem }>}
 */
async function* readFile(file, onBytes) {
  const parser = new SaxesParser({ fileName: file });
  /** @type {string[]} */
  const open = [];
  /** @type {Entry[]} */
  let entries = [];
  /** @type {Entry | null} */
  let entry = null;
  /** @type {'url' | 'sitemap' | null} */
  let kind = null;
  let prefix = '';
  /** @type {Problem | null} */
  let broken = null;
  let text = '';

  /** @param {string} reason */
  const breakOff = (reason) => {
    broken ??= { file, line: parser.line, reason };
  };
  parser.on('error', (error) => {
    // "file:line:column: what"; the first is the cause, the rest follow from it.
    const what = error.message.replace(/^.*?:\d+:\d+: /, '');
    breakOff(open.length === 0 && kind === null ? `this is not XML, so no sitemap: ${what}` : what);
  });
  parser.on('opentag', ({ name }) => {
    open.push(name);
    text = '';
    if (open.length === 1) {
      const colon = name.lastIndexOf(':') + 1;
      prefix = name.slice(0, colon);
      const root = name.slice(colon);
      if (root === 'urlset') kind = 'url';
      else if (root === 'sitemapindex') kind = 'sitemap';
      else breakOff(`the root element is <${name}>, not <urlset> or <sitemapindex>`);
    } else if (open.length === 2 && name === prefix + kind) {
      entry = { loc: '', changefreq: '', priority: '', line: parser.line };
    }
  });
  /** @param {string} part */
  const addText = (part) => {
    if (open.length === 3 && text.length <= LONGEST_TEXT) text += part;
  };
  parser.on('text', addText);
  parser.on('cdata', addText);
  parser.on('closetag', ({ name }) => {
    if (entry && open.length === 3 && !broken) {
      // Only the sitemap's own elements: <image:loc> names no page.
      if (name === `${prefix}loc`) entry.loc = text.trim();
      else if (name === `${prefix}changefreq`) entry.changefreq = text.trim();
      else if (name === `${prefix}priority`) entry.priority = text.trim();
    } else if (entry && open.length === 2) {
      if (!broken) entries.push(entry);
      entry = null;
    }
    open.pop();
  });

  const decoder = new XmlDecoder();
  try {
    for await (const chunk of bytesOf(file, onBytes)) {
      parser.write(decoder.write(chunk));
      if (entries.length >= BATCH && kind) {
        yield { kind, entries };
        entries = [];
      }
      if (broken) break;
    }
    if (!broken) {
      parser.write(decoder.end());
      parser.close();
    }
  } catch (error) {
    breakOff(reasonOf(error));
  }
  if (kind && entries.length > 0) yield { kind, entries };
  if (broken) yield { problem: broken };
}

/** @param {unknown} error */
function reasonOf(error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  if (code === 'ENOENT') return 'there is no such file';
  if (code === 'ENAMETOOLONG') return 'the name is too long for a file';
  if (code === 'EISDIR') return 'this is a folder: name the file';
  if (code === 'Z_BUF_ERROR') return 'the gzip file is cut off';
  if (code?.startsWith('Z_')) return `the gzip file is damaged (${message})`;
  if (code === 'ERR_ENCODING_INVALID_ENCODED_DATA')
    return 'the text is not in its declared encoding';
  return message;
}

/** 0 where that cannot be known: the reading says why. @param {string} file */
function sizeOf(file) {
  try {
    return fs.statSync(file).size;
  } catch {
    return 0;
  }
}

/**
 * @param {string} file
 * @param {(bytes: number) => void} onBytes
 * @returns {AsyncGenerator<Buffer>}
 */
async function* bytesOf(file, onBytes) {
  const raw = fs.createReadStream(file);
  /** @type {zlib.Gunzip | null} */
  let unzip = null;
  async function* counted() {
    for await (const chunk of raw) {
      onBytes(chunk.length);
      yield chunk;
    }
  }
  const chunks = counted();
  const first = await chunks.next();
  if (first.done) throw new Error('the file is empty');
  async function* whole() {
    yield first.value;
    yield* chunks;
  }
  if (first.value[0] !== 0x1f || first.value[1] !== 0x8b) {
    yield* whole();
    return;
  }
  unzip = zlib.createGunzip();
  const { Readable, pipeline } = require('node:stream');
  // What goes wrong in the pipeline comes out of the iteration below.
  pipeline(Readable.from(whole()), unzip, () => {});
  yield* unzip;
}

/**
 * @param {string} file
 * @param {object} options
 * @param {Target} options.table
 * @param {number} options.now
 * @param {((key: string) => boolean) | null} [options.isForeign]  of another node
 * @param {(progress: { bytes: number, totalBytes: number, urls: number }) => void} [options.onProgress]
 * @returns {Promise<Report>}
 */
async function importSitemap(file, { table, now, isForeign, onProgress }) {
  /** @type {Report} */
  const report = {
    files: 0,
    urls: 0,
    written: 0,
    unchanged: 0,
    skipped: 0,
    foreign: 0,
    problems: [],
    notFetched: [],
  };
  const folder = path.dirname(path.resolve(file));
  /** @type {Set<string>} */
  const seen = new Set();
  const progress = { bytes: 0, totalBytes: 0, urls: 0 };

  /** @param {Problem} problem */
  const complain = (problem) => {
    if (report.problems.length < MOST_PROBLEMS) report.problems.push(problem);
  };

  /**
   * @param {string} from
   * @param {Entry[]} entries
   * @param {Map<string, number | null>} listed  before, in this file, and with which cadence
   */
  const writeUrls = async (from, entries, listed) => {
    /** @type {{ key: string, due: number, cadence: number | null }[]} */
    let pages = [];
    for (const entry of entries) {
      report.urls += 1;
      /** @param {string} reason */
      const tell = (reason) => complain({ file: from, line: entry.line, reason });
      const page = readEntry(entry, now, tell);
      if ('reason' in page) {
        report.skipped += 1;
        tell(page.reason);
        continue;
      }
      const { key, cadence } = page;
      if (isForeign?.(key)) {
        report.foreign += 1;
      } else if (listed.has(key)) {
        report.unchanged += 1;
        if (listed.get(key) !== cadence) {
          tell(`listed before, with another <changefreq>, which is the one taken: ${shown(key)}`);
        }
      } else {
        if (listed.size < MOST_LISTED) listed.set(key, cadence);
        pages.push(page);
      }
    }
    // A row that someone else writes between its reading and its writing is read again.
    while (pages.length > 0) {
      const changed = pages.filter((page) => !isKnown(page));
      report.unchanged += pages.length - changed.length;
      const written = await table.write(changed.map(writeOf));
      pages = changed.filter((_, index) => written[index] === null);
      report.written += changed.length - pages.length;
    }
  };

  /** @param {{ key: string, cadence: number | null }} page */
  const isKnown = ({ key, cadence }) => {
    const row = readQuietly(key);
    return row?.fromSitemap === true && (row.effectiveInterval ?? null) === cadence;
  };

  /**
   * A page that is known keeps its due time: an import repeated must not render the site anew.
   *
   * @param {{ key: string, due: number, cadence: number | null }} page
   * @returns {import('./table.js').TableWrite}
   */
  const writeOf = ({ key, due, cadence }) => {
    const before = readQuietly(key);
    return {
      key,
      row: {
        ...(before ?? { nextRenderTime: due }),
        fromSitemap: true,
        effectiveInterval: cadence,
      },
      // 0: where there is still none.
      ifVersion: before === undefined ? undefined : (before?.version ?? 0),
    };
  };

  /** Undefined for a row that cannot be read: it is written anew. @param {string} key */
  const readQuietly = (key) => {
    try {
      return table.getSync(key);
    } catch {
      return undefined;
    }
  };

  /**
   * @param {string} name
   * @param {number} depth
   */
  const readOne = async (name, depth) => {
    if (seen.has(name)) return;
    seen.add(name);
    report.files += 1;
    progress.totalBytes += sizeOf(name);
    const listed = new Map();
    const found = readFile(name, (bytes) => {
      progress.bytes += bytes;
    });
    for await (const part of found) {
      if ('problem' in part) complain(part.problem);
      else if (part.kind === 'url') await writeUrls(name, part.entries, listed);
      else await readIndexed(name, part.entries, depth);
      progress.urls = report.urls;
      onProgress?.(progress);
    }
  };

  /** Whoever writes an index on the web must not choose what is read of this machine. @param {string} name */
  const isInside = (name) => {
    const way = path.relative(folder, name);
    return way.split(path.sep)[0] !== '..' && !path.isAbsolute(way);
  };

  /** The file that an index names; null where it can name none. @param {string} loc */
  const localName = (loc) => {
    try {
      return /^file:/i.test(loc) ? fileURLToPath(loc) : path.resolve(folder, loc);
    } catch {
      return null;
    }
  };

  /**
   * @param {string} from
   * @param {Entry[]} entries
   * @param {number} depth
   */
  const readIndexed = async (from, entries, depth) => {
    for (const { loc, line } of entries) {
      if (loc === '') {
        complain({ file: from, line, reason: 'a <sitemap> without <loc>' });
      } else if (/^https?:/i.test(loc)) {
        report.notFetched.push(loc);
      } else if (depth >= DEEPEST) {
        complain({ file: from, line, reason: `indexes are nested too deep to read ${shown(loc)}` });
      } else {
        const name = localName(loc);
        if (name === null) {
          complain({ file: from, line, reason: `not a file's URL: ${shown(loc)}` });
        } else if (!isInside(name)) {
          const reason = `outside the index's folder: move the file into it: ${shown(loc)}`;
          complain({ file: from, line, reason });
        } else await readOne(name, depth + 1);
      }
    }
  };

  await readOne(path.resolve(file), 1);
  return report;
}

module.exports = { importSitemap };
