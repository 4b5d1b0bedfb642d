/**
 * Retail-like schedule rows, from a seed: row `i` is computed alone, so a corpus of any size costs no memory.
 *
 *     const { corpus } = require('./corpus.js')
 *     const rows = corpus({ rows: 1_000_000, classes: 40 })
 *     rows.key(17)   rows.value(17, now)   rows.routes   rows.reschedule(17, now, round)
 *
 * 85 % product pages at 48 h, sale pages at 6 h, category, brand and magazine pages at 24 h, homepages at 1 h; 30 %
 * discovered (not in a sitemap); keys of 95 to 135 characters, 109 on average, `|desktop` or `|mobile` included.
 */

const HOUR = 3_600_000;
const MINUTE = 60_000;

const HOST = 'https://www.example-outfitters.com';
const DEPARTMENTS = [
  'women',
  'men',
  'kids',
  'home-living',
  'sports-outdoor',
  'beauty',
  'electronics',
  'garden',
  'shoes',
  'accessories',
];
const GROUPS = [
  'coats-jackets',
  'dresses',
  'running-shoes',
  'kitchen-storage',
  'camping-furniture',
  'skin-care',
  'loudspeakers',
  'outdoor-lighting',
  'bed-linen',
  'backpacks',
  'knitwear',
  'office-chairs',
];
const ADJECTIVES = [
  'lightweight',
  'waterproof',
  'recycled',
  'classic',
  'slim-fit',
  'organic-cotton',
  'foldable',
  'insulated',
  'breathable',
  'handmade',
  'compact',
  'quilted',
];
const NOUNS = [
  'down-jacket',
  'midi-dress',
  'trail-runner',
  'storage-box',
  'camping-chair',
  'face-cream',
  'headphones',
  'path-light',
  'duvet-cover',
  'daypack',
  'cardigan',
  'desk-chair',
];
const COLOURS = [
  'black',
  'navy-blue',
  'green',
  'off-white',
  'burgundy',
  'sand',
  'charcoal',
  'sky-blue',
];

/**
 * The routes of the shop, as a component's options would list them; the magazine is unrouted.
 * @type {import('..').RouteRule[]}
 */
const ROUTES = [
  { match: 'exact', path: '/', renderInterval: HOUR },
  { match: 'prefix', path: '/product/', renderInterval: 48 * HOUR },
  { match: 'prefix', path: '/category/sale/', renderInterval: 6 * HOUR },
  { match: 'prefix', path: '/category/', renderInterval: 24 * HOUR },
  { match: 'prefix', path: '/brand/' },
];

/** A well-mixed 32-bit number of (seed, i, salt). @param {number} seed @param {number} i @param {number} salt */
function hash(seed, i, salt) {
  let h =
    Math.imul(seed ^ Math.imul(salt + 1, 0x9e3779b1), 0x85ebca6b) ^
    Math.imul(i + 0x7f4a7c15, 0xc2b2ae35);
  h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
  return (h ^ (h >>> 16)) >>> 0;
}

/** @typedef {{ nextRenderTime: number, fromSitemap: boolean, effectiveInterval: number | null, changedAt: number | null, urgentAt: number | null, demandPeriod: number | null }} Value */

/** Of a thousand pages: the kinds, with their cadence when the row carries none. */
const KINDS = [
  { kind: 'product', share: 850, cadence: 48 * HOUR },
  { kind: 'sale', share: 50, cadence: 6 * HOUR },
  { kind: 'category', share: 60, cadence: 24 * HOUR },
  { kind: 'brand', share: 20, cadence: 24 * HOUR },
  { kind: 'magazine', share: 20, cadence: 24 * HOUR },
];
const HOME = { kind: 'home', share: 1, cadence: HOUR };

/**
 * @param {{ rows?: number, classes?: number, seed?: number }} [options] `classes`: how many classes the rows make, about:
 *   12 by route and sitemap flag alone; 40 with changed and urgent rows and demand periods; any more by carried cadences.
 */
function corpus({ rows = 1_000_000, classes = 12, seed = 1 } = {}) {
  const carries = classes > 40;

  /** The kind of page p. @param {number} p */
  function kind(p) {
    if (p % 25_000 === 0) return HOME;
    let at = hash(seed, p, 1) % 1000;
    for (const one of KINDS) {
      at -= one.share;
      if (at < 0) return one;
    }
    return HOME;
  }

  /** @template T @param {T[]} list @param {number} i @param {number} salt */
  const pick = (list, i, salt) => /** @type {T} */ (list[hash(seed, i, salt) % list.length]);

  /** @param {number} p */
  function path(p) {
    // Not in the order of the rows: numbers that count up would compress better than a shop's do.
    const id = 10_000_000 + ((p * 56_598_313) % 90_000_000);
    const department = pick(DEPARTMENTS, p, 2);
    const group = pick(GROUPS, p, 3);
    const thing = `${pick(ADJECTIVES, p, 4)}-${pick(NOUNS, p, 5)}`;
    const colour = pick(COLOURS, p, 6);
    switch (kind(p).kind) {
      case 'home':
        return `/?shop=${id}&utm_source=newsletter&utm_medium=email&utm_campaign=season`;
      case 'product':
        return `/product/${department}/${group}/${thing}-${colour}-${id}`;
      case 'sale':
        return `/category/sale/${department}/${group}/colour-${colour}/page-${id}`;
      case 'category':
        return `/category/${department}/${group}/${thing}/filter-${colour}-${id}`;
      case 'brand':
        return `/brand/north-harbour-${colour}/${department}/${group}/page-${id}`;
      default:
        return `/magazine/${department}/how-to-choose-a-${thing}-${id}`;
    }
  }

  /** The key of row i: pages have two rows each, one a device. @param {number} i */
  function key(i) {
    return `${HOST}${path(i >> 1)}${i & 1 ? '|mobile' : '|desktop'}`;
  }

  /** @param {number} i */
  function cadence(i) {
    const { share, cadence } = kind(i >> 1);
    if (!carries) return cadence;
    // As many cadences for a kind of page as its share of the classes, sitemap or not making two of each.
    const cadences = Math.max(1, Math.round((classes * share) / 2000));
    return cadence + (hash(seed, i, 7) % cadences) * 1000;
  }

  /** What row i says besides its due time. @param {number} i @param {number} now */
  function marks(i, now) {
    const page = kind(i >> 1).kind;
    /** @type {Omit<Value, 'nextRenderTime'>} */
    const said = {
      fromSitemap: hash(seed, i >> 1, 8) % 10 >= 3,
      effectiveInterval: carries ? cadence(i) : null,
      changedAt: null,
      urgentAt: null,
      demandPeriod: null,
    };
    if (classes > 12 && !carries && page !== 'home' && page !== 'magazine') {
      const mark = hash(seed, i, 9) % 100;
      if (mark < 4) said.changedAt = now - 2 * HOUR;
      if (mark < 3 && (page === 'product' || page === 'category'))
        said.demandPeriod = (1 + mark) * HOUR;
      if (mark === 4) said.urgentAt = now - HOUR;
    }
    return said;
  }

  /**
   * Row i at `now`: due times spread over the cadence as in a queue that is served, 2 % of them overdue.
   * @param {number} i @param {number} now @returns {Value}
   */
  function value(i, now) {
    const interval = cadence(i);
    const spread = hash(seed, i, 10) / 4_294_967_296;
    const nextRenderTime = Math.floor(now + (spread - 0.02) * interval);
    return { nextRenderTime, ...marks(i, now) };
  }

  /** Row i as its result writes it: due again after its cadence, give or take a tenth. @param {number} i @param {number} now @param {number} round */
  function reschedule(i, now, round) {
    const interval = cadence(i);
    const jitter = hash(seed + round, i, 11) / 4_294_967_296;
    return { nextRenderTime: Math.floor(now + interval * (0.9 + 0.2 * jitter)), ...marks(i, now) };
  }

  /** An endless shuffle: the n-th row to touch. @param {number} n */
  const nth = (n) => hash(seed + 77, n, 12) % rows;

  const kindOf = (/** @type {number} */ i) => kind(i >> 1).kind;
  const routes = ROUTES.map((route) => ({ ...route }));
  return {
    rows,
    classes,
    seed,
    routes,
    defaultInterval: 24 * HOUR,
    key,
    value,
    reschedule,
    nth,
    kind: kindOf,
    cadence,
  };
}

/** As a queue has it that nothing is said of. */
const PRIORITY = {
  sitemapBoost: 2,
  changedHeadStart: 1,
  urgentHeadStart: 0.5,
  changedDemand: true,
};

module.exports = { corpus, ROUTES, HOUR, MINUTE, PRIORITY };
