'use strict';

/**
 * Rows shaped like a retail site's, to try the queue on: 85 % product pages due every 48 h, catalog pages every
 * 6 and 24 h, a homepage every hour; 30 % discovered by following links, the rest listed in a sitemap; URLs of
 * 95 to 135 characters (but for the homepage's). Row `i` of a seed is always the same page; nothing is kept.
 */

const HOUR = 3_600_000;
const ORIGIN = 'https://www.northwind-outdoor.example';
const SECTIONS = ['women', 'men', 'kids', 'camping', 'climbing', 'cycling', 'winter', 'travel'];
const THINGS = [
  'jacket',
  'trousers',
  'boots',
  'backpack',
  'tent',
  'sleeping-bag',
  'gloves',
  'stove',
];
const WORDS = [
  'waterproof',
  'lightweight',
  'insulated',
  'recycled',
  'midnight-blue',
  'forest-green',
  'three-season',
  'breathable',
  'packable',
  'two-person',
  'merino',
  'windproof',
  'all-terrain',
  'quick-dry',
  'anthracite',
  'reflective',
];
const SHORTEST = 95;
const LONGEST = 135;

/** The routes that give these rows their cadence. */
const SAMPLE_ROUTES = [
  { match: 'exact', path: '/', mode: 'prerender', renderInterval: HOUR },
  { match: 'prefix', path: '/catalog/sale/', mode: 'prerender', renderInterval: 6 * HOUR },
  { match: 'prefix', path: '/catalog/', mode: 'prerender', renderInterval: 24 * HOUR },
  { match: 'prefix', path: '/product/', mode: 'prerender', renderInterval: 48 * HOUR },
];

/**
 * A well mixed 32-bit number of a row, another for each `salt`.
 *
 * @param {number} seed
 * @param {number} index
 * @param {number} salt
 */
function mixed(seed, index, salt) {
  let h = Math.imul(seed ^ 0x9e37_79b9, 0x85eb_ca6b) ^ Math.imul(index + 1, 0xc2b2_ae35);
  h = Math.imul(h ^ (salt * 0x27d4_eb2f), 0x1656_67b1);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b_3c6d);
  h = Math.imul(h ^ (h >>> 12), 0x297a_2d39);
  return (h ^ (h >>> 15)) >>> 0;
}

/**
 * @param {number} seed
 * @param {number} index
 */
function kindOf(seed, index) {
  if (index === 0) return { path: '/', cadence: HOUR };
  const share = mixed(seed, index, 1) % 100;
  if (share < 85) return { path: '/product/', cadence: 48 * HOUR };
  if (share < 90) return { path: '/catalog/sale/', cadence: 6 * HOUR };
  return { path: '/catalog/', cadence: 24 * HOUR };
}

/**
 * @param {number} seed
 * @param {number} index
 * @param {string} path
 */
function urlOf(seed, index, path) {
  if (index === 0) return `${ORIGIN}/`;
  const section = SECTIONS[mixed(seed, index, 2) % SECTIONS.length];
  const thing = THINGS[mixed(seed, index, 3) % THINGS.length];
  const end = `-${String(index).padStart(8, '0')}`;
  const length = SHORTEST + (mixed(seed, index, 4) % (LONGEST - SHORTEST + 1));
  let url = `${ORIGIN}${path}${section}/${thing}`;
  for (let word = 5; url.length + end.length < length; word++) {
    url += `-${WORDS[mixed(seed, index, word) % WORDS.length]}`;
  }
  // Cut to the length drawn, but never on a hyphen.
  return url.slice(0, length - end.length).replace(/-$/, 'x') + end;
}

/**
 * How late a row is, in cadences: most wait for their time, a tail is overdue in every bin of the state.
 *
 * @param {number} seed
 * @param {number} index
 */
function latenessOf(seed, index) {
  const share = mixed(seed, index, 100) % 10_000;
  const within = mixed(seed, index, 101) / 2 ** 32;
  if (share < 9_300) return -within;
  if (share < 9_800) return 0.25 * within;
  if (share < 9_940) return 0.25 + 0.75 * within;
  if (share < 9_980) return 1 + within;
  return 2 + 3 * within;
}

/**
 * @param {number} index
 * @param {{ seed?: number, now: number, carried?: boolean }} options  `carried`: the rows carry their cadence
 * @returns {{ cacheKey: string, nextRenderTime: number, fromSitemap: boolean, effectiveInterval: number | null, changedAt: number | null, urgentAt: number | null, demandPeriod: number | null }}
 */
function sampleRow(index, { seed = 1, now, carried = false }) {
  const { path, cadence } = kindOf(seed, index);
  const late = latenessOf(seed, index);
  const nextRenderTime = Math.round(now - late * cadence);
  const special = late >= 0 ? mixed(seed, index, 102) % 100 : 100;
  return {
    cacheKey: urlOf(seed, index, path),
    nextRenderTime,
    fromSitemap: index === 0 || mixed(seed, index, 103) % 10 >= 3,
    effectiveInterval: carried ? cadence : null,
    changedAt: special < 5 ? nextRenderTime : null,
    urgentAt: special === 5 ? nextRenderTime : null,
    demandPeriod: special < 4 ? [HOUR, 6 * HOUR][special % 2] : null,
  };
}

/**
 * Writes the rows that are not there yet; one that is keeps its due time.
 *
 * @param {{ write(writes: import('./table.js').TableWrite[]): Promise<(object | null)[]> }} table
 * @param {number} rows
 * @param {{ seed?: number, now: number, carried?: boolean, isForeign?: ((key: string) => boolean) | null, onProgress?: (done: number) => void }} options
 * @returns {Promise<number>} how many were written
 */
async function writeSample(table, rows, options) {
  const chunk = 1_000;
  let written = 0;
  for (let start = 0; start < rows; start += chunk) {
    const writes = [];
    for (let index = start; index < Math.min(start + chunk, rows); index++) {
      const row = sampleRow(index, options);
      if (options.isForeign?.(row.cacheKey)) continue;
      writes.push({ key: row.cacheKey, row, ifVersion: 0 });
    }
    for (const one of await table.write(writes)) if (one) written += 1;
    options.onProgress?.(Math.min(start + chunk, rows));
  }
  return written;
}

module.exports = { sampleRow, writeSample, SAMPLE_ROUTES };
