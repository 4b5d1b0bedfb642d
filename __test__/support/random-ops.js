/**
 * Random operations for the model test. A run is a list of plain data made from a seed alone (`plan`), so it can be
 * replayed, cut down to the few operations that matter (`shrink`) and printed. Leases are named by the position of
 * their grant, because a subject's tokens are its own.
 */

const { inspect } = require('node:util');
const { ModelKeeper, MINUTE } = require('./model.js');

/** @typedef {import('./model.js').Options} Options */
/** @typedef {InstanceType<typeof import('./model.js').ModelKeeper>} Model */
/** @typedef {{ op: string, [detail: string]: any }} Op */
/** @typedef {{ options: Options, keys: string[], ops: Op[], dropIn: boolean }} Plan */
/** @typedef {ReturnType<typeof random>} Random */

const START = 1_700_000_000_000 - (1_700_000_000_000 % MINUTE);

/** Mulberry32. @param {number} seed */
function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
  /** @param {number} n */
  const int = (n) => Math.floor(next() * n);
  return {
    next,
    int,
    /** @param {number} low @param {number} high both included */
    between: (low, high) => low + int(high - low + 1),
    /** @param {number} share */
    chance: (share) => next() < share,
    /** @template T @param {readonly T[]} list @returns {T} */
    pick: (list) => /** @type {T} */ (list[int(list.length)]),
    /** Calls one of the functions, by their weights. @param {readonly [number, () => any][]} list @returns {any} */
    weighted: (list) => {
      let at = next() * list.reduce((sum, [weight]) => sum + weight, 0);
      for (const [weight, make] of list) {
        at -= weight;
        if (at < 0) return make();
      }
      return list[0]?.[1]();
    },
    /** @template T @param {readonly T[]} list @param {number} n */
    sample: (list, n) => {
      const rest = [...list];
      const out = [];
      while (out.length < n && rest.length) out.push(...rest.splice(int(rest.length), 1));
      return out;
    },
  };
}

const ODD_KEYS = [
  '',
  '\0',
  '\0a',
  'a\0',
  '\ud800',
  'https://ex.com/\udc00/x',
  'https://ex.com/\ud83d\ude00',
  '__proto__',
  'constructor',
  'toString|desktop',
  'https://ex.com/caf\u00e9',
  'https://ex.com/cafe\u0301',
  'https://ex.com/\u4e2d', // its low byte is that of '-'
  'https://ex.com/-',
  '\u0101',
  '\u0001',
  'not a url',
  'not a url|desktop',
  '|desktop',
  '|',
  'https://ex.com/p/1|tablet',
  'https://ex.com/p/1|desktop|mobile',
  'https://ex.com/p/1|DESKTOP',
  'https://ex.com',
  'https://ex.com/',
  'HTTPS://EX.com/P/1',
  'https://ex.com/x/../p/2',
  'https://ex.com/p%2F1',
  'https://ex.com\\p\\3',
  ' https://ex.com/p/4 ',
  'https://ex.com/a\tb',
  'https://ex.com/?q=/p/',
  'https://ex.com/#/p/',
  'https://b\u00fccher.example/p/1',
  'https://ex.com:99999/p/1',
  'http://[::1]/c/1',
  'mailto:p/1@ex.com',
  'file:///p/1',
  `https://ex.com/p/${'long'.repeat(700)}`,
  `https://ex.com/p/${'long'.repeat(700)}|mobile`,
];

const ROUTES = [
  { match: 'exact', path: '/', renderInterval: 3_600_000 },
  { match: 'prefix', path: '/p/', renderInterval: 600_000 },
  { match: 'prefix', path: '/c/', renderInterval: 300_000 },
  { match: 'contains', path: 'caf' },
  { match: 'contains', path: '%', renderInterval: 120_000 },
  { match: 'prefix', path: '/p/1', mode: 'passthrough', renderInterval: 60_000 },
  { match: 'prefix', path: '/c/', renderInterval: 60_000 },
  { match: 'exact', path: '/p/2', mode: 'prerender', renderInterval: 60_000 },
  { match: 'prefix', path: '/' },
];

const NODES = ['localhost', 'node-b', 'node-c', 'n\u00f6de', 'N'];

/** @param {Random} r */
function makeKeys(r) {
  const plain = [];
  for (const folder of ['p', 'c', 'x']) {
    for (let i = 1; i <= 9; i++) {
      for (const device of ['', '|desktop', '|mobile'])
        plain.push(`https://ex.com/${folder}/${i}${device}`);
    }
  }
  const keys = [...r.sample(ODD_KEYS, r.between(6, 25)), ...r.sample(plain, r.between(14, 35))];
  // Few keys in some runs: what takes several events of one key happens there.
  return r.chance(0.3) ? r.sample(keys, r.between(1, 6)) : keys;
}

/** @param {Random} r */
function makePriority(r) {
  /** @type {Partial<import('./model.js').Priority>} */
  const priority = {};
  if (r.chance(0.5)) priority.sitemapBoost = r.pick([1, 2, 2, 0.5, 3]);
  if (r.chance(0.4)) priority.changedHeadStart = r.pick([0, 1, 0.25]);
  if (r.chance(0.4)) priority.urgentHeadStart = r.pick([0, 1, 0.5]);
  if (r.chance(0.3)) priority.changedDemand = r.chance(0.5);
  return priority;
}

/** @param {Random} r */
function makeLeases(r) {
  /** @type {Partial<import('./model.js').Leases>} */
  const leases = {};
  if (r.chance(0.7)) leases.leaseMs = r.pick([1000, 30_000, 60_000, 120_000]);
  if (r.chance(0.7)) leases.maxLeases = r.pick([1, 2, 4, 8, 100]);
  if (r.chance(0.7)) leases.missLimit = r.pick([0, 1, 1, 2, 3]);
  if (r.chance(0.4)) leases.releaseGraceMs = r.pick([0, 1000, 60_000]);
  return leases;
}

/** @param {Random} r */
const makeRoutes = (r) => r.sample(ROUTES, r.between(0, ROUTES.length));
/** @param {Random} r */
const makeExcluded = (r) => r.sample(['/p/9', '/x/', '-', '%00'], r.between(0, 2));

/** Reads a row by its own columns: for a host that passes its classifier. @type {import('./model.js').Classify} */
function classifyByColumns(key, row) {
  if (key.includes('/x/')) return null;
  const interval = row.effectiveInterval;
  const carried = typeof interval === 'number' && Number.isFinite(interval) && interval > 0;
  const route = key.includes('/p/') ? 'products' : 'others';
  const cadenceMs = carried ? Number(interval) : route === 'products' ? 600_000 : 0;
  return { route, cadenceMs, carried };
}

/** What a `nextRenderTime` column may hold, for a row due then. @param {Random} r @param {number} ms */
function dueValue(r, ms) {
  return r.weighted([
    [70, () => ms],
    [6, () => BigInt(ms)],
    [6, () => new Date(ms)],
    [6, () => String(ms)],
    [2, () => `${ms}.75`],
    [1, () => `${ms / 1000}e3`],
    [
      9,
      () =>
        r.pick([
          Number.NaN,
          Number.POSITIVE_INFINITY,
          -1,
          1e300,
          null,
          undefined,
          '',
          ' ',
          '0x10',
          ` ${ms}`,
          `${ms}ms`,
          '-5',
          'Infinity',
          '1e400',
          -5n,
          10n ** 40n,
          new Date(Number.NaN),
          new Date(-1),
          true,
          {},
          [],
          [ms],
          4_294_967_296 * MINUTE,
        ]),
    ],
    [
      2,
      () =>
        r.pick([
          0,
          -0,
          0.5,
          '0',
          0n,
          new Date(0),
          253_402_300_799_999,
          4_294_967_295 * MINUTE + 59_999,
        ]),
    ],
  ]);
}

/** A row with a due time near `now`, so that ties, collisions and moves are the rule. @param {Random} r @param {number} now */
function makeRow(r, now) {
  const spread = r.weighted([
    [60, () => r.between(-6, 6)],
    [20, () => 0],
    [12, () => r.between(-200, 200)],
    [8, () => r.between(-3000, 3000)],
  ]);
  const due = Math.max(0, now + spread * MINUTE + r.pick([0, 0, -1, 1, 17_000]));
  /** @type {Record<string, any>} */
  const row = { nextRenderTime: dueValue(r, due) };
  if (r.chance(0.6))
    row.fromSitemap = r.pick([true, true, true, false, null, 0, 1, '', 'false', 0n, {}]);
  if (r.chance(0.3)) {
    row.effectiveInterval = r.pick([
      60_000,
      60_000,
      600_000,
      86_400_000,
      1n,
      0.5,
      0,
      -1,
      Number.NaN,
      '60000',
      null,
    ]);
  }
  if (r.chance(0.25))
    row.changedAt = r.pick([now, 1, 5n, 0, -1, Number.POSITIVE_INFINITY, '1', null]);
  if (r.chance(0.25)) row.urgentAt = r.pick([now, 1, 5n, 0, -1, Number.NaN, '1', null]);
  if (r.chance(0.25))
    row.demandPeriod = r.pick([60_000, 120_000, 3n, 0, -1, Number.NaN, '60000', null]);
  return row;
}

/** Made to grow with time by `dated`. @param {Random} r */
const makeVersion = (r) => r.int(20) + r.pick([0, 0, 0.5]);

/**
 * Versions come in any order within 8 minutes and grow from one 8 minutes to the next: an event is never so late that
 * its version may be forgotten (10 minutes).
 * @param {any} event @param {Model} model
 */
function dated(event, model) {
  if (typeof event !== 'object' || event === null) return event;
  if (!Number.isFinite(event.version)) return { ...event };
  return { ...event, version: Math.floor(model.mono / (8 * MINUTE)) * 1000 + event.version };
}

/** @param {Random} r @param {string[]} keys @param {number} now */
function makeEvent(r, keys, now) {
  const id = r.pick(keys);
  const version = r.chance(0.5)
    ? makeVersion(r)
    : r.weighted([
        [9, () => undefined],
        [1, () => r.pick([null, Number.NaN, Number.POSITIVE_INFINITY, '7', {}])],
      ]);
  /** @type {Record<string, any>} */
  const event = r.weighted([
    [75, () => ({ type: 'put', id, value: makeRow(r, now) })],
    [9, () => ({ type: r.pick(['delete', 'invalidate']), id, value: undefined })],
    [2, () => ({ type: 'delete', id, value: makeRow(r, now) })],
    [3, () => ({ type: 'put', id, value: r.pick([undefined, null]) })],
    [3, () => ({ type: 'patch', id, value: r.pick([undefined, makeRow(r, now)]) })],
    [
      4,
      () => ({
        type: r.pick(['message', 'publish', 'reload', 'PUT', '', '__proto__']),
        id,
        value: makeRow(r, now),
      }),
    ],
    [1, () => ({ type: 'end_txn', id: null })],
    [
      2,
      () => ({
        type: r.pick(['put', 'delete']),
        id: r.pick([null, undefined, 5, 5n, {}, ['a'], true]),
        value: makeRow(r, now),
      }),
    ],
  ]);
  if (version !== undefined) event.version = version;
  return event;
}

/** @param {Random} r */
function makePatch(r) {
  return r.weighted([
    [3, () => ({ priority: makePriority(r) })],
    [3, () => ({ leases: makeLeases(r) })],
    [2, () => ({ routes: makeRoutes(r) })],
    [1, () => ({ excludePathPatterns: makeExcluded(r) })],
    [1, () => ({ defaultInterval: r.pick([60_000, 600_000, 86_400_000]) })],
    [2, () => ({ nodes: r.sample(NODES, r.between(0, 3)) })],
    [1, () => ({ routes: makeRoutes(r), priority: makePriority(r), nodes: r.sample(NODES, 2) })],
  ]);
}

/** What a durable row reads as by the time it is read. @param {Random} r @param {number} now */
function makeRead(r, now) {
  return r.weighted([
    [5, () => ({ as: 'kept' })],
    [2, () => ({ as: 'moved', minutes: r.pick([-3, -1, 1, 5, 600]) })],
    [1, () => ({ as: 'row', row: makeRow(r, now) })],
    [1, () => ({ as: 'gone' })],
  ]);
}

/**
 * The plan of one run. `dropIn`: only what the drop-in interface has (SPEC 13), with a classifier.
 * @param {number} seed @param {number} steps @param {{ dropIn?: boolean }} [profile] @returns {Plan}
 */
function plan(seed, steps, { dropIn = false } = {}) {
  const r = random(seed);
  const keys = makeKeys(r);
  /** @type {Options} */
  const options = {
    now: START + r.pick([0, 1, 30_000, 59_999]),
    flowMinutes: r.pick([60, 60, 5, 1]),
  };
  if (dropIn || r.chance(0.15)) {
    options.classify = classifyByColumns;
  } else {
    options.routes = makeRoutes(r);
    if (r.chance(0.4)) options.nodes = r.sample(NODES, r.between(0, 2));
    if (r.chance(0.2)) options.node = r.pick(NODES);
    if (r.chance(0.3)) options.excludePathPatterns = makeExcluded(r);
    if (r.chance(0.5)) options.defaultInterval = r.pick([60_000, 600_000]);
    if (r.chance(0.2)) options.delimiter = r.pick(['|', '::', '/']);
    if (r.chance(0.2))
      options.deviceTypes = r.pick([[], ['mobile'], ['desktop', 'mobile', 'tablet', '1']]);
  }
  if (!dropIn) {
    options.leases = makeLeases(r);
    options.maxListed = r.pick([200, 200, 3]);
  }
  options.priority = makePriority(r);

  let now = options.now;
  const clock = () => {
    const to = r.weighted([
      [30, () => now + r.between(0, 90_000)],
      [10, () => now - (now % MINUTE) + MINUTE],
      [10, () => now + r.pick([1000, 5000, 30_000, 60_000, 120_000])],
      [4, () => now + 1],
      [3, () => now - r.between(1, 5 * MINUTE)],
      [2, () => now + r.between(10, 90) * MINUTE],
      [1, () => now + r.between(1, 4) * 86_400_000],
      [1, () => now - r.between(1, 2) * 86_400_000],
    ]);
    now = Math.max(0, to);
    return { op: 'setNow', ms: now };
  };
  const event = () => makeEvent(r, keys, now);
  const events = () => Array.from({ length: r.between(1, 12) }, event);
  const lease = () => r.int(1000);
  const reads = r.weighted([
    [3, () => 0.9],
    [1, () => 0.5],
  ]);
  const walk = () => ({
    op: 'walk',
    kind: r.pick(['verify', 'verify', 'load']),
    rows: keys
      .filter(() => r.chance(reads))
      .map((key) => ({
        key,
        read: r.chance(0.6) ? { as: 'kept' } : makeRead(r, now),
        version: r.chance(0.3) ? makeVersion(r) : undefined,
      })),
    between: r.chance(0.7) ? events() : [],
    suspects: {
      reads: keys.map(() => (r.chance(0.8) ? makeRead(r, now) : null)),
      between: r.chance(0.5) ? events() : [],
    },
  });
  /** @type {[number, () => Op][]} */
  const mix = [
    [25, () => ({ op: 'apply', event: event() })],
    [
      6,
      () => ({
        op: 'applyAll',
        events: [...events(), ...(r.chance(0.1) ? [r.pick([null, undefined, 5, 'put'])] : [])],
      }),
    ],
    [14, clock],
    [3, () => ({ op: 'topK', n: r.between(0, 9) })],
  ];
  if (dropIn) {
    mix.push([
      2,
      () => ({ op: 'quiet', key: r.pick(keys), row: r.chance(0.2) ? null : makeRow(r, now) }),
    ]);
  } else {
    mix.push(
      [12, () => ({ op: 'claim', n: r.pick([0, 1, 1, 2, 3, 8, 100]) })],
      [9, () => ({ op: 'confirm', lease: lease(), read: makeRead(r, now) })],
      [11, () => ({ op: 'release', lease: lease(), key: r.chance(0.05) ? r.pick(keys) : null })],
      [2, () => ({ op: 'releaseAny', key: r.pick(keys) })],
      [2, () => ({ op: 'extend', lease: lease(), ms: r.pick([undefined, 1, 60_000, 300_000]) })],
      [1, () => ({ op: 'pause' })],
      [2, () => ({ op: 'resume' })],
      [
        2,
        () => ({
          op: 'configure',
          patch: options.classify ? { priority: makePriority(r) } : makePatch(r),
        }),
      ],
      [
        5,
        () => ({
          op: 'repair',
          key: r.pick(keys),
          asked: r.chance(0.6) ? r.int(1000) : null,
          read: makeRead(r, now),
        }),
      ],
      [3, () => ({ op: 'headCheck' })],
      [3, walk],
    );
  }
  // Each operation names the key that is explained after it: the same one when the run is cut down.
  const ops = Array.from({ length: steps }, () => ({ ...r.weighted(mix), look: r.pick(keys) }));
  return { options, keys, ops, dropIn };
}

/** @param {any} subject @param {Model} model @param {any[]} events @returns {[any, any]} */
function applyBoth(subject, model, events) {
  const list = events.map((event) => dated(event, model));
  return [subject.applyAll(list.map(copy)), model.applyAll(list)];
}

/** A copy that neither side can change for the other. @param {any} row @returns {any} */
const copy = (row) => (typeof row === 'object' && row !== null ? { ...row } : row);

/** @param {Model} model @param {string} key @param {any} read */
function readRow(model, key, read) {
  if (read.as === 'gone') return null;
  if (read.as === 'row') return read.row;
  const row = model.heldValue(key);
  if (row && read.as === 'moved')
    row.nextRenderTime = Math.max(0, row.nextRenderTime + read.minutes * MINUTE);
  return row;
}

/**
 * Does one operation on both and gives what each answered, tokens named by position.
 * @param {any} subject @param {Model} model @param {Op} op @param {{ key: string, subject: any, model: number }[]} grants
 * @returns {[any, any]}
 */
function execute(subject, model, op, grants) {
  const named =
    op.lease === undefined || grants.length === 0
      ? null
      : grants[grants.length - 1 - (op.lease % Math.min(grants.length, 12))];
  switch (op.op) {
    case 'apply': {
      const before = { model: model.version, subject: subject.version };
      const event = dated(op.event, model);
      subject.apply(copy(event));
      model.apply(event);
      // An event that changes nothing leaves the version alone; one that moves a row does not.
      return [
        { moved: subject.version !== before.subject },
        { moved: model.version !== before.model },
      ];
    }
    case 'applyAll': {
      const [got, counts] = applyBoth(subject, model, op.events);
      // A drop-in keeper counts no events: it answers undefined.
      return [got, got === undefined ? undefined : counts];
    }
    case 'quiet': {
      const reading = op.row === null ? null : model.read(op.key, op.row);
      return [subject.quiet(op.key, op.row), model.place(op.key, reading, false)];
    }
    case 'setNow':
      subject.setNow(op.ms);
      model.setNow(op.ms);
      return [null, null];
    case 'topK':
      return [subject.topK(op.n), model.topK(op.n)];
    case 'claim': {
      const got = subject.claim(op.n);
      const want = model.claim(op.n);
      const last = grants.at(-1)?.subject ?? Number.NEGATIVE_INFINITY;
      const rising = got.jobs.every(
        (/** @type {any} */ job, /** @type {number} */ i) =>
          job.token > (i ? got.jobs[i - 1].token : last),
      );
      want.jobs.forEach((/** @type {any} */ job, /** @type {number} */ i) => {
        grants.push({ key: job.key, subject: got.jobs[i]?.token, model: job.token });
      });
      const untoken = (/** @type {any} */ claim) => ({
        ...claim,
        jobs: claim.jobs.map((/** @type {any} */ job) => ({ ...job, token: 0 })),
      });
      return [
        { ...untoken(got), rising },
        { ...untoken(want), rising: true },
      ];
    }
    case 'confirm': {
      if (!named) return [null, null];
      const row = readRow(model, named.key, op.read);
      return [subject.confirm(named.subject, copy(row)), model.confirm(named.model, row)];
    }
    case 'release': {
      if (!named) return [null, null];
      const key = op.key ?? named.key;
      return [subject.release(key, named.subject), model.release(key, named.model)];
    }
    case 'releaseAny':
      return [subject.release(op.key), model.release(op.key)];
    case 'extend':
      if (!named) return [null, null];
      return op.ms === undefined
        ? [subject.extend(named.subject), model.extend(named.model)]
        : [subject.extend(named.subject, op.ms), model.extend(named.model, op.ms)];
    case 'pause':
    case 'resume':
      subject[op.op]();
      model[op.op]();
      return [null, null];
    case 'configure':
      return [subject.configure(op.patch), model.configure(op.patch)];
    case 'repair': {
      const asked = [...model.asked.keys()];
      const key = op.asked === null || asked.length === 0 ? op.key : asked[op.asked % asked.length];
      // How long an answer that is very late still counts is not promised.
      if (model.mono - (model.asked.get(key)?.mono ?? model.mono) > 9 * MINUTE) return [null, null];
      const row = readRow(model, key, op.read);
      return [subject.repair(key, copy(row)), model.repair(key, row)];
    }
    case 'headCheck':
      return [subject.headCheck(10_000), model.headCheck(10_000)];
    case 'walk':
      return walkBoth(subject, model, op);
    default:
      throw new Error(`no such operation: ${op.op}`);
  }
}

/** @param {any} subject @param {Model} model @param {Op} op @returns {[any, any]} */
function walkBoth(subject, model, op) {
  const walks = [subject.beginWalk(op.kind), model.beginWalk(op.kind)];
  /** @param {any[]} part */
  const chunk = (part) => {
    const rows = [];
    for (const { key, read: as, version } of part) {
      const row = readRow(model, key, as);
      if (!row) continue;
      const read = version === undefined ? {} : { version };
      rows.push(dated({ ...row, cacheKey: key, ...read }, model));
    }
    for (const walk of walks) walk.rows(rows);
  };
  const half = op.rows.length >> 1;
  chunk(op.rows.slice(0, half));
  const applied = applyBoth(subject, model, op.between);
  chunk(op.rows.slice(half));
  const reports = walks.map((walk) => {
    const report = walk.end({});
    return {
      scanned: report.scanned,
      owned: report.owned,
      unowned: report.unowned,
      suspects: [...report.suspects].sort(),
      // A first load repairs nothing.
      ...(op.kind === 'load'
        ? {}
        : { missing: report.missing, mismatched: report.mismatched, gained: report.gained }),
    };
  });
  const between = applyBoth(subject, model, op.suspects.between);
  const repaired = reports[1]?.suspects.map((key, i) => {
    const read = op.suspects.reads[i];
    if (read === null) return []; // not answered, or by a later repair
    const row = readRow(model, key, read);
    return [subject.repair(key, copy(row)), model.repair(key, row)];
  });
  const side = (/** @type {number} */ i) => ({
    applied: applied[i],
    report: reports[i],
    between: between[i],
    repaired: repaired?.map((pair) => pair[i]),
  });
  return [side(0), side(1)];
}

/** @param {any} value */
const byText = (value) => JSON.stringify(value);
/** @param {any[]} list */
function anyOrder(list) {
  const texts = list.map((item) => ({ item, text: byText(item) }));
  return texts.sort((a, b) => (a.text < b.text ? -1 : 1)).map(({ item }) => item);
}
/** Only the fields that `like` has: new ones may be added. @param {any} value @param {any} like @returns {any} */
function only(value, like) {
  if (like === null || typeof like !== 'object' || value === null || typeof value !== 'object')
    return value;
  if (Array.isArray(like))
    return Array.isArray(value) ? value.map((item, i) => only(item, like[i] ?? like[0])) : value;
  return Object.fromEntries(Object.keys(like).map((name) => [name, only(value[name], like[name])]));
}

/** The order of equals in the state's lists is not promised; that they are sorted is. @param {any} state */
function stateInAnyOrder(state) {
  const { byRoute, classes } = state.lateness;
  const falls = (/** @type {any[]} */ list, /** @type {string} */ name) =>
    list.every((item, i) => i === 0 || (item[name] ?? -1) <= (list[i - 1][name] ?? -1));
  return {
    ...state,
    now: { ...state.now, changedByDemand: anyOrder(state.now.changedByDemand) },
    lateness: {
      ...state.lateness,
      // Which of the equals a cut list shows is not promised either.
      byRoute: state.lateness.listsTruncated ? byRoute.length : anyOrder(byRoute),
      classes: state.lateness.listsTruncated ? classes.length : anyOrder(classes),
      sorted: falls(byRoute, 'due') && falls(classes, 'oldestLatenessCadences'),
    },
  };
}

/**
 * Everything that can be read, from both.
 * @param {any} subject @param {Model} model @param {string[]} keys @param {string} look
 * @returns {Record<string, () => [any, any]>}
 */
function readings(subject, model, keys, look) {
  return {
    'topK(all)': () => [subject.topK(10_000), model.topK(10_000)],
    dueSummary: () => [subject.dueSummary(), model.dueSummary()],
    size: () => [subject.size, model.size],
    classCount: () => [subject.classCount, model.classCount],
    status: () => [subject.status, model.status],
    describe: () => [keys.map((k) => subject.describe(k)), keys.map((k) => model.describe(k))],
    state: () => {
      const want = model.state();
      return [stateInAnyOrder(only(subject.state(), want)), stateInAnyOrder(want)];
    },
    explain: () => {
      const want = model.explain(look);
      return [only(subject.explain(look), want), want];
    },
  };
}

/**
 * The same of a drop-in keeper, as far as it goes.
 * @param {any} subject @param {Model} model @param {string[]} keys
 * @returns {Record<string, () => [any, any]>}
 */
function dropInReadings(subject, model, keys) {
  const { status: _, explain: __, ...both } = readings(subject, model, keys, '');
  return {
    ...both,
    state: () => {
      const got = subject.state();
      return [stateInAnyOrder(got), stateInAnyOrder(only(model.state(), got))];
    },
    keys: () => [subject.keys().sort(), [...model.rows.keys()].sort()],
    heldValue: () => {
      const held = (/** @type {string} */ key) => {
        const row = subject.heldValue(key);
        return row === null ? null : model.read(key, row);
      };
      const kept = (/** @type {string} */ key) => {
        const row = model.rows.get(key);
        return row ? { minute: row.minute, cls: row.cls } : null;
      };
      return [keys.map(held), keys.map(kept)];
    },
  };
}

/** Deep equality of plain data: `util.isDeepStrictEqual`, and several times faster. @param {any} a @param {any} b @returns {boolean} */
function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (Array.isArray(a)) return a.length === b.length && a.every((item, i) => same(item, b[i]));
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]))
  );
}

/** What differs, told by path. @param {any} got @param {any} want @param {string} [path] @returns {string[]} */
function differences(got, want, path = '') {
  if (same(got, want)) return [];
  if (got && want && typeof got === 'object' && typeof want === 'object') {
    const names = [...new Set([...Object.keys(got), ...Object.keys(want)])];
    const inside = names.flatMap((name) => differences(got[name], want[name], `${path}.${name}`));
    if (inside.length) return inside.slice(0, 12);
  }
  return [
    `${path || 'answer'}: got ${inspect(got, { depth: 3 })}, the model says ${inspect(want, { depth: 3 })}`,
  ];
}

/**
 * Runs a plan; gives what went wrong first, or null.
 * @param {(options: Options) => any} make @param {Plan} run @param {string[]} [compare] only these readings
 */
function runPlan(make, run, compare) {
  const model = new ModelKeeper(run.options);
  const subject = make(run.options);
  /** @type {{ key: string, subject: any, model: number }[]} */
  const grants = [];
  try {
    for (const [step, op] of run.ops.entries()) {
      let where = op.op;
      try {
        const [got, want] = execute(subject, model, op, grants);
        subject.validate?.();
        let found = differences(got, want);
        const reads = run.dropIn
          ? dropInReadings(subject, model, run.keys)
          : readings(subject, model, run.keys, op.look);
        for (const name of compare ?? Object.keys(reads)) {
          if (found.length) break;
          where = `${name} after ${op.op}`;
          const [is, should] = /** @type {() => [any, any]} */ (reads[name])();
          found = differences(is, should);
        }
        if (found.length) return { step, where, found };
      } catch (error) {
        return { step, where, found: [`threw ${/** @type {Error} */ (error).stack}`] };
      }
    }
    return null;
  } finally {
    subject.close?.();
  }
}

/**
 * Leaves out operations, and then events and rows of those left, as long as the run goes wrong in the same way.
 * @param {(options: Options) => any} make @param {Plan} run @param {string} where @param {string[]} [compare]
 */
function shrink(make, run, where, compare) {
  const until = Date.now() + 15_000;
  let ops = run.ops;
  /** @param {any[]} list @param {(fewer: any[]) => Op[]} put */
  const cut = (list, put) => {
    let left = list;
    for (let size = Math.max(1, left.length >> 1); size >= 1; size >>= 1) {
      for (let at = 0; at < left.length && Date.now() < until; ) {
        const fewer = left.toSpliced(at, size);
        const tried = put(fewer);
        const failure = runPlan(make, { ...run, ops: tried }, compare);
        if (failure?.where === where) {
          left = fewer;
          ops = tried.slice(0, failure.step + 1);
          if (list === run.ops) left = ops;
        } else {
          at += size;
        }
      }
    }
  };
  cut(ops, (fewer) => fewer);
  for (const [place, op] of ops.entries()) {
    for (const name of ['events', 'rows', 'between']) {
      if (Array.isArray(op[name])) {
        cut(op[name], (fewer) =>
          ops.with(place, { .../** @type {Op} */ (ops[place]), [name]: fewer }),
        );
      }
    }
  }
  return { ...run, ops };
}

/**
 * One run against the model. Throws, with the seed and the fewest operations found, where the two differ.
 * @param {{ make: (options: Options) => any, seed: number, steps: number, compare?: string[], dropIn?: boolean }} run
 */
function runModel({ make, seed, steps, compare, dropIn = false }) {
  const whole = plan(seed, steps, { dropIn });
  const first = runPlan(make, whole, compare);
  if (!first) return;
  const until = { ...whole, ops: whole.ops.slice(0, first.step + 1) };
  const short = shrink(make, until, first.where, compare);
  const failure = runPlan(make, short, compare) ?? first;
  const show = (/** @type {any} */ value) =>
    inspect(value, { depth: 9, breakLength: 160, maxStringLength: 120 });
  throw new Error(
    [
      `SEED=${seed} differs from the model at step ${first.step} of ${steps} (${first.where})`,
      `cut down to ${short.ops.length} operations, it differs in ${failure.where}:`,
      ...failure.found.map((line) => `  ${line}`),
      `options: ${show(short.options)}`,
      'operations:',
      ...short.ops.slice(-40).map((op) => `  ${show(op)}`),
    ].join('\n'),
  );
}

/**
 * A keeper of the drop-in interface (SPEC 13), dressed as far as it goes like the one of SPEC 14. What it cannot answer
 * is answered by the lack of it: it knows no versions, leases or counts of events.
 * @param {(options: any) => any} createQueueKeeper @returns {(options: Options) => any}
 */
function dropInSubject(createQueueKeeper) {
  return (options) => {
    let now = options.now;
    const { classify, flowMinutes } = options;
    const keeper = createQueueKeeper({ classify, flowMinutes, now: () => now });
    const priority = {
      sitemapBoost: 2,
      changedHeadStart: 1,
      urgentHeadStart: 0.5,
      changedDemand: true,
      ...options.priority,
    };
    /** @type {Map<string, number>} */
    const versions = new Map();
    const subject = {
      /** @param {any} event */
      apply({ type, id, value, version }) {
        if (!['put', 'delete', 'invalidate'].includes(type) || typeof id !== 'string') return;
        if (type === 'put' && (value === undefined || value === null)) return;
        if (Number.isFinite(version)) {
          if (version < (versions.get(id) ?? version)) return;
          versions.set(id, version);
        }
        const kept = keeper.apply(id, type === 'put' ? value : null);
        if (kept !== keeper.has(id)) throw new Error(`apply answers ${kept} for ${inspect(id)}`);
      },
      /** @param {any[]} events */
      applyAll(events) {
        for (const event of events)
          if (typeof event === 'object' && event !== null) subject.apply(event);
      },
      /** @param {string} key @param {any} row */
      quiet(key, row) {
        const version = keeper.version;
        keeper.apply(key, row, { quiet: true });
        return keeper.version !== version;
      },
      /** @param {number} ms */
      setNow(ms) {
        now = ms;
        keeper.tick(ms);
      },
      /** @param {number} n */
      topK(n) {
        const { rows, skipped, complete } = keeper.topK(n, { nowMs: now, ...priority });
        return {
          rows: rows.map((/** @type {any} */ { entry, score }) => {
            const { changed, urgent } = keeper.describe(entry.cacheKey);
            return {
              key: entry.cacheKey,
              dueAt: entry.dueAt,
              fromSitemap: entry.fromSitemap,
              changed,
              urgent,
              score,
            };
          }),
          skippedLeased: skipped,
          complete,
        };
      },
      dueSummary: () => keeper.dueSummary(now),
      get size() {
        return keeper.size;
      },
      get classCount() {
        return keeper.classCount;
      },
      get version() {
        return keeper.version;
      },
      /** @param {string} key */
      describe(key) {
        const said = keeper.describe(key);
        if (said === null) return null;
        if (keeper.dueMinuteOf(key) !== said.minute)
          throw new Error('dueMinuteOf is not describe().minute');
        return { dueAt: said.minute * MINUTE, ...said };
      },
      state() {
        const flat = keeper.state(now);
        return {
          now: {
            due: flat.due,
            dueSitemap: flat.dueSitemap,
            dueDiscovered: flat.dueDiscovered,
            dueChanged: flat.dueChanged,
            oldestChangedAt: flat.oldestChangedDueAt,
            dueUrgent: flat.dueUrgent,
            oldestUrgentAt: flat.oldestUrgentDueAt,
            changedByDemand: flat.changedByDemand,
          },
          coming: flat.coming,
          lateness: {
            ...flat.lateness,
            oldestDueAt: flat.oldestDueAt,
            nextDueAt: flat.nextDueAt,
            byRoute: flat.byRoute,
            classes: flat.classes,
          },
          flow: flat.flow,
          trust: { keeper: { rows: flat.rows, classes: keeper.classCount } },
        };
      },
      heldValue: (/** @type {string} */ key) => keeper.heldValue(key),
      keys: () => [...keeper.keys()],
    };
    return subject;
  };
}

module.exports = { random, plan, runPlan, runModel, dropInSubject, classifyByColumns, START };
