/**
 * `npm run bench`: this keeper alone in a process, as in production, and then beside the plain-JS one it replaces, in one process, in
 * turns, on one corpus. It prints the table of what is to be reached (README.md beside this file) and writes `results/core.json`.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const v8 = require('node:v8');
const vm = require('node:vm');
const { PerformanceObserver } = require('node:perf_hooks');
const { parseArgs } = require('node:util');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { corpus, HOUR, PRIORITY } = require('./corpus.js');
const { createQueueKeeper, createClassifier } = require('./baseline/js-keeper.js');
const {
  mustBeWhole,
  printTable,
  short,
  shown,
  startProgress,
  writeResults,
} = require('./support/report.js');
const { median, quantile } = require('./support/statistics.js');
const { addonFile } = require('../lib/addon-file.js');
const { OTHER, Packer, STRIDE } = require('../lib/packer.js');
const { sampleKeys } = require('../lib/sample-keys.js');
const { longestCall, longestTurn, ranDuring } = require('../__test__/support/held-up.js');
const { QueueKeeper } = require('..');

/** @typedef {ReturnType<typeof corpus>} Corpus */
/** @typedef {ReturnType<typeof createQueueKeeper>} JsKeeper */
/** @typedef {ReturnType<typeof eventOf>} Event */
/** @typedef {{ ours: number[], js: number[] }} Rounds */
/**
 * What is to be reached: a figure of at most, or at least, so much, and so many times as good as the plain-JS keeper's.
 * @typedef {{ most?: number, least?: number, times?: number }} Wanted
 * @typedef {{ what: string, unit: string, ours: number, alone?: number, js?: number, ratio?: number, wanted?: Wanted, reached?: boolean,
 *   note?: string, rounds?: Rounds }} Figure
 */
/**
 * What the stages share. `js` is null where this keeper is measured alone.
 * @typedef {{ count: number, rounds: number, quick: boolean, rows: Corpus, epoch: number, native: QueueKeeper,
 *   js: JsKeeper | null, makeJs: () => JsKeeper | null, options: import('..').KeeperOptions,
 *   stage: (text: string) => void, gc: () => void, touched: number }} Bench
 */

const NAME = 'bench';
const CLAIM = 20;
/** A fleet of some hundred renderers. */
const IN_FLIGHT = 4_000;
/** Events made at once, and how many times before the other keeper's turn. */
const PORTION = 128;
const PORTIONS = 80;
const HELP = `npm run bench -- [options]
  --rows 1000000    how many schedule rows
  --classes 40      about how many classes: 12, 40, or any more (by carried cadences)
  --seed 1          of the corpus
  --rounds 5        rounds in turns, of which the median is shown
  --alone           this keeper only, without the run beside the plain-JS one: for sizes that this one does not fit
  --only load,apply some of: memory load growth apply claim read threads snapshot; writes nothing
  --quick           20,000 rows, under half a minute: shows that all of it runs, judges nothing, writes nothing
  --out FILE        where the figures go (default results/core.json)`;

/** @param {Corpus} rows @returns {import('..').KeeperOptions} */
function keeperOptions(rows) {
  return {
    routes: rows.routes,
    defaultInterval: rows.defaultInterval,
    priority: PRIORITY,
    // Room for every claim of a run, and no key held: claimers release and claim again without a result.
    leases: { maxLeases: 1_000_000, releaseGraceMs: 0, missLimit: 1_000_000 },
  };
}

const now = () => performance.now();
const breathe = () => new Promise((resolve) => setImmediate(resolve));

/** @returns {Rounds} */
const newRounds = () => ({ ours: [], js: [] });

/** More keys, sorted, are more than V8's heap takes. */
const MOST_SORTED = 2_000_000;

/** Bytes a row of a queue that is loaded as the feeder does it: in the order of the keys, after a sample. @param {Bench} bench */
async function bytesInOrder(bench) {
  const keys = Array.from({ length: bench.count }, (_, i) => bench.rows.key(i));
  const order = Uint32Array.from(keys.keys()).sort((a, b) => (keys[a] < keys[b] ? -1 : 1));
  keys.sort();
  /** The first place whose key is not below this one. @param {string} key */
  const placeOf = (key) => {
    let [low, high] = [0, keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (keys[middle] < key) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const keeper = new QueueKeeper(bench.options);
  const sample = await sampleKeys(async ({ after, before, limit, reverse }) => {
    let from = after ? placeOf(after) : 0;
    if (after && keys[from] === after) from += 1;
    const to = before ? placeOf(before) : keys.length;
    const some = reverse
      ? keys.slice(Math.max(from, to - limit), to).reverse()
      : keys.slice(from, Math.min(to, from + limit));
    return some.map((cacheKey) => ({ cacheKey }));
  }, 512);
  await keeper.learnKeys(sample);
  const walk = keeper.beginWalk('load');
  for (let from = 0; from < bench.count; from += 1000) {
    const rows = Array.from(order.subarray(from, from + 1000), (i) => ({
      cacheKey: flat(bench.rows.key(i)),
      ...bench.rows.value(i, bench.epoch),
    }));
    walk.rows(rows);
  }
  walk.end({});
  const bytes = keeper.bytes / keeper.size;
  keeper.close();
  return bytes;
}

/**
 * A figure of which less is better, with the ratio against plain JS.
 * @param {string} what @param {string} unit @param {Rounds} rounds
 * @param {{ share?: number, wanted?: Wanted, note?: string }} [more]
 * @returns {Figure}
 */
function figure(what, unit, rounds, { share = 0.5, wanted, note } = {}) {
  const ours = quantile(rounds.ours, share);
  /** @type {Figure} */
  const made = { what, unit, ours, wanted, note };
  if (rounds.js.length) {
    made.js = quantile(rounds.js, share);
    made.ratio = made.js / ours;
  }
  if (rounds.ours.length < 100) made.rounds = rounds;
  return made;
}

/** @param {number} ns */
const inNs = (ns) => `${ns.toFixed(0)} ns`;

/** @param {number[]} all ms */
const list = (all) => all.map((ms) => ms.toFixed(2)).join(', ');

/** A string as a decoder makes it: flat, and not one that a keeper has hashed before. @param {string} text */
const flat = (text) => Buffer.from(text, 'latin1').toString('latin1');

/** Versions grow; those of a thread that starts later are newer than all that the main thread gives out. */
let lastVersion = isMainThread ? 1_000_000_000_000 : Date.now();
function nextVersion() {
  lastVersion += 0.25;
  return lastVersion;
}

/** An event as Harper's subscription delivers it. @param {string} key @param {ReturnType<Corpus['value']>} value */
function eventOf(key, value) {
  const id = flat(key);
  const version = nextVersion();
  return {
    id,
    localTime: version,
    value: { cacheKey: id, ...value },
    version,
    type: 'put',
    beginTxn: true,
  };
}

/** What the component's listener does with the plain-JS keeper. @param {JsKeeper} keeper @param {Event} event */
function listenJs(keeper, event) {
  keeper.apply(event.id, event.type === 'put' ? event.value : null);
}

/** Random reschedules of kept rows. @param {Bench} bench @param {number} from @param {number} n @param {number} round */
function eventsOf({ rows, epoch }, from, n, round) {
  /** @type {Event[]} */
  const events = [];
  for (let at = from; at < from + n; at++) {
    const i = rows.nth(at);
    events.push(eventOf(rows.key(i), rows.reschedule(i, epoch, round)));
  }
  return events;
}

/** The same ones for each keeper: neither sees a string that the other has hashed. @param {Bench} bench @param {number} n @param {number} round */
function makeEvents(bench, n, round) {
  const from = bench.touched;
  bench.touched += n;
  return {
    mine: eventsOf(bench, from, n, round),
    yours: bench.js ? eventsOf(bench, from, n, round) : [],
  };
}

/** Rows as a walk reads them. @param {Bench} bench @param {number} from */
function chunkOf({ rows, count, epoch }, from) {
  const chunk = [];
  for (let i = from; i < Math.min(count, from + 1000); i++) {
    chunk.push({ cacheKey: flat(rows.key(i)), ...rows.value(i, epoch) });
  }
  return chunk;
}

/** Rescheduling leaves ever fewer rows due, as no time passes: as many as a live queue has are made due again. @param {Bench} bench */
function comeDue(bench) {
  const { native, js, rows, count, epoch } = bench;
  const enough = Math.max(count * 0.02, Math.min(count / 3, 6000));
  while (native.dueSummary().due < enough) {
    for (let n = 0; n < 1000; n++) {
      const i = rows.nth(bench.touched++);
      const due = { ...rows.value(i, epoch), nextRenderTime: epoch - (n + 1) * 30_000 };
      native.apply(eventOf(rows.key(i), due));
      if (js) listenJs(js, eventOf(rows.key(i), due));
    }
  }
}

// ---- The stages

/**
 * Fills both keepers, while the process is clean, this one first.
 * @param {Bench} bench @returns {Promise<Figure[]>}
 */
async function memory(bench) {
  const { count, native, js } = bench;
  const settled = async () => {
    for (let i = 0; i < 3; i++) {
      bench.gc();
      await breathe();
    }
    return process.memoryUsage();
  };
  bench.stage('memory: this keeper');
  const before = await settled();
  const walk = native.beginWalk('load');
  for (let i = 0; i < count; i += 1000) walk.rows(chunkOf(bench, i));
  walk.end({});
  const afterNative = await settled();
  if (js) {
    bench.stage('memory: the plain-JS keeper');
    for (let i = 0; i < count; i += 1000) {
      for (const row of chunkOf(bench, i)) js.apply(row.cacheKey, row, { quiet: true });
    }
  }
  const afterJs = await settled();
  if (native.size !== count || (js && js.size !== count)) {
    throw new Error(`the corpus has ${count} rows, but ${native.size} and ${js?.size} are kept`);
  }
  const counted = native.bytes / count;
  /** @type {Figure[]} */
  const ordered = [];
  if (count <= MOST_SORTED) {
    bench.stage('memory: in the order of the keys');
    const inOrder = await bytesInOrder(bench);
    ordered.push({
      what: 'memory, counted, loaded in the order of the keys',
      unit: 'B/row',
      ours: inOrder,
      wanted: { most: 64 },
      note: 'as the feeder does it: the keeper learns from a sample first',
    });
  }
  return [
    {
      what: 'memory, counted',
      unit: 'B/row',
      ours: counted,
      js: js ? (afterJs.heapUsed - afterNative.heapUsed) / count : undefined,
      wanted: { most: 64 },
      note: 'keeper.bytes; in JS, the growth of the heap',
    },
    ...ordered,
    {
      what: 'memory, RSS',
      unit: 'B/row',
      ours: (afterNative.rss - before.rss) / count,
      js: js ? (afterJs.rss - afterNative.rss) / count : undefined,
    },
  ];
}

/**
 * Into keepers of their own, one whole load after the other: chunk by chunk in turns, this keeper's calls would be charged with
 * collecting what the plain-JS one holds.
 * @param {Bench} bench @returns {Promise<Figure[]>}
 */
async function load(bench) {
  const { count } = bench;
  const rates = newRounds();
  /** Rows a second. @param {(chunk: ReturnType<typeof chunkOf>) => void} take @param {() => void} [end] */
  const rate = async (take, end = () => {}) => {
    bench.gc();
    await breathe();
    let ms = 0;
    for (let i = 0; i < count; i += 1000) {
      const chunk = chunkOf(bench, i);
      const at = now();
      take(chunk);
      ms += now() - at;
    }
    const at = now();
    end();
    ms += now() - at;
    return (count / ms) * 1000;
  };
  for (let round = 0; round < Math.min(3, bench.rounds); round++) {
    bench.stage(`load, round ${round + 1}`);
    const ours = new QueueKeeper(bench.options);
    const walk = ours.beginWalk('load');
    rates.ours.push(
      await rate(
        (chunk) => walk.rows(chunk),
        () => walk.end({}),
      ),
    );
    ours.close();
    const theirs = bench.makeJs();
    if (!theirs) continue;
    rates.js.push(
      await rate((chunk) => {
        for (const row of chunk) theirs.apply(row.cacheKey, row, { quiet: true });
      }),
    );
  }
  const ours = median(rates.ours);
  const ratio = rates.js.length ? ours / median(rates.js) : undefined;
  const crossed = crossings(
    bench,
    (turn) => chunkOf(bench, (turn * PORTION) % count).slice(0, PORTION),
    (packer, rows, i) => packer.walkedAt(rows, i),
  );
  return [
    {
      what: 'load, walk.rows in chunks of 1,000',
      unit: 'rows/s',
      ours,
      js: rates.js.length ? median(rates.js) : undefined,
      ratio,
      wanted: { least: 2_000_000, times: 8 },
      note: `${inNs(1e9 / ours)} a row, of which packing and crossing alone take ${inNs(crossed)}; to reach 2,000,000 is 500 ns${
        ratio === undefined ? '' : `, 8x ${inNs((1e9 * ratio) / ours / 8)}`
      }`,
      rounds: rates,
    },
  ];
}

/**
 * How long a call took, ms: by the clock or, where that is less, by the CPU time of the process, which does not run on while another
 * process has the CPU. What waits for nothing takes no longer than either.
 * @param {() => void} call
 */
function spent(call) {
  const before = process.cpuUsage();
  const at = now();
  call();
  const ms = now() - at;
  const { user, system } = process.cpuUsage(before);
  return Math.min(ms, (user + system) / 1000);
}

/**
 * Every single apply from 0 rows on. A collection of V8's garbage during a call of this keeper's is the harness' (its events
 * are garbage), and left out; during one of the JS keeper's it is counted, as the JS keeper's rows are what is collected.
 * @param {Bench} bench @returns {Promise<Figure[]>}
 */
async function growth(bench) {
  const { count, rows, epoch } = bench;
  const longest = newRounds();
  const raw = [];
  const over = [];
  /** @type {{ from: number, to: number }[]} */
  const collections = [];
  const observer = new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) {
      collections.push({ from: startTime, to: startTime + duration });
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  for (let round = 0; round < Math.min(3, bench.rounds); round++) {
    bench.stage(`growth from 0, round ${round + 1}`);
    const ours = new QueueKeeper(bench.options);
    const theirs = bench.makeJs();
    /** @type {{ from: number, ms: number }[]} */
    const slow = [];
    let longestJs = 0;
    for (let from = 0; from < count; from += 1000) {
      const mine = [];
      const yours = [];
      for (let i = from; i < Math.min(count, from + 1000); i++) {
        const [key, value] = [rows.key(i), rows.value(i, epoch)];
        mine.push(eventOf(key, value));
        if (theirs) yours.push(eventOf(key, value));
      }
      for (const event of mine) {
        const at = now();
        const ms = spent(() => ours.apply(event));
        if (ms > 0.1) slow.push({ from: at, ms });
      }
      for (const event of yours) {
        longestJs = Math.max(
          longestJs,
          spent(() => theirs && listenJs(theirs, event)),
        );
      }
      if (from % 20_000 === 0) await breathe();
    }
    await new Promise((resolve) => setTimeout(resolve, 20)); // for the observer to be told
    const own = slow.filter(
      ({ from, ms }) => !collections.some((gc) => gc.from < from + ms && gc.to > from),
    );
    longest.ours.push(own.reduce((max, { ms }) => Math.max(max, ms), 0));
    raw.push(slow.reduce((max, { ms }) => Math.max(max, ms), 0));
    over.push(own.filter(({ ms }) => ms > 1).length);
    if (theirs) longest.js.push(longestJs);
    collections.length = 0;
    ours.close();
  }
  observer.disconnect();
  return [
    figure('longest single apply, growing from 0', 'ms', longest, {
      share: 0, // the least of the rounds' longest: what is not in every round is the machine
      wanted: { most: 1 },
      note:
        `the least of ${list(longest.ours)} ms in ${over.length} rounds; calls over 1 ms: ${over.join(', ')}; with the ` +
        `harness' garbage collections: ${list(raw)} ms`,
    }),
  ];
}

/**
 * Random reschedules of kept rows. The events are made a thousand at a time, just before they are applied: a subscription's listener
 * gets them fresh, too. The keepers take turns every ten thousand, so that what else the machine does befalls them alike.
 * @param {Bench} bench @returns {Promise<Figure[]>}
 */
async function applies(bench) {
  const { native, js } = bench;
  const turns = bench.quick ? 1 : 20;
  const buffered = newRounds();
  const single = newRounds();
  /** @type {Event[]} */
  const one = [];
  const alone = (/** @type {Event} */ event) => {
    one[0] = event;
    native.applyAll(one);
  };
  const listen = (/** @type {Event} */ event) => native.apply(event);
  const listenToJs = (/** @type {Event} */ event) => js && listenJs(js, event);
  for (let round = 0; round <= bench.rounds; round++) {
    bench.stage(round === 0 ? 'apply, warm-up' : `apply, round ${round}`);
    bench.gc();
    await breathe();
    for (let turn = 0; turn < turns; turn++) {
      for (const [rounds, listener] of /** @type {const} */ ([
        [buffered, listen],
        [single, alone],
      ])) {
        const from = bench.touched;
        bench.touched += PORTION * PORTIONS;
        /** ns an event of each portion. @param {number[]} into @param {(event: Event) => void} hear */
        const timed = (into, hear) => {
          for (let portion = 0; portion < PORTIONS; portion++) {
            const events = eventsOf(bench, from + portion * PORTION, PORTION, round);
            const at = now();
            for (const event of events) hear(event);
            native.size; // The last events of a buffer are flushed inside the time.
            into.push(((now() - at) / PORTION) * 1e6);
          }
        };
        const both = [() => timed(rounds.ours, listener)];
        if (js) both.push(() => timed(rounds.js, listenToJs));
        if (turn % 2) both.reverse();
        for (const each of both) each();
      }
    }
    if (round === 0) for (const { ours, js } of [buffered, single]) ours.length = js.length = 0;
  }
  if (js) agree(bench);
  const share = (/** @type {number[]} */ ns) => ns.map((one) => (one / 26_000) * 100);
  const read = readsOfMemory();
  const crossed = crossings(
    bench,
    () => eventsOf(bench, bench.touched, PORTION, 1),
    (packer, events, i) => packer.event(events[i]),
  );
  /** @param {Rounds} rounds @param {number} times */
  const timesIs = (rounds, times) =>
    js ? `; ${times}x is ${inNs(median(rounds.js) / times)}` : '';
  return [
    figure('apply(event) as the listener calls it', 'ns', buffered, {
      wanted: { times: 15 },
      note:
        `packing and crossing alone take ${inNs(crossed)} of it, and eight reads of memory that need not be waited ` +
        `for ${inNs(8 * read.alongside)}${timesIs(buffered, 15)}`,
    }),
    figure('one event at a time, applyAll([event])', 'ns', single, {
      wanted: { times: 7 },
      note:
        `a call with an event that says nothing takes ${inNs(median(callsInVain(bench)))}, and a read of memory that must be ` +
        `waited for ${inNs(read.waited)}, of which there are three one after the other at least (index, row, neighbour)${timesIs(single, 7)}`,
    }),
    figure(
      "share of Harper's own 26 us an event",
      '%',
      { ours: share(buffered.ours), js: share(buffered.js) },
      { wanted: { most: 2 } },
    ),
  ];
}

/**
 * What it costs to pack what `make` makes and to have it cross, hashed on the way, to a queue that has no rows and takes no notice of it: ns each.
 * @template T
 * @param {Bench} bench @param {(turn: number) => T[]} make  as many as a portion @param {(packer: InstanceType<typeof Packer>, made: T[], i: number) => void} pack
 */
function crossings(bench, make, pack) {
  const addon = require(path.join(__dirname, '..', addonFile()));
  const owner = addon.open(`${NAME}, empty`, undefined, undefined);
  const packer = new Packer(PORTION);
  /** @type {number[]} */
  const taken = [];
  for (let turn = 0; turn < (bench.quick ? 5 : 100); turn++) {
    const made = make(turn);
    const at = now();
    for (let i = 0; i < made.length; i++) pack(packer, made, i);
    for (let n = 0; n < packer.count; n++) packer.numbers[n * STRIDE + 6] = OTHER;
    addon.applyBatch(owner.handle, packer.keys, packer.buffer, packer.count);
    packer.clear();
    taken.push(((now() - at) / made.length) * 1e6);
  }
  addon.close(owner.handle);
  return median(taken);
}

/** What a call costs with an event of which nobody takes notice: ns each. @param {Bench} bench */
function callsInVain({ native }) {
  const events = [{ type: 'end_txn', id: '', value: undefined }];
  return Array.from({ length: 200 }, () => {
    const at = now();
    for (let n = 0; n < 1000; n++) native.applyAll(events);
    return ((now() - at) / 1000) * 1e6;
  });
}

/**
 * ns for a read of memory, all over as much as a million rows take: one that must be waited for, as its place is what the one before
 * has read, and one that need not.
 */
function readsOfMemory() {
  const places = 1 << 24;
  // A linear congruential generator modulo a power of two meets every number once (Hull and Dobell, 1962: the increment odd, the factor less one a multiple of four).
  const after = (/** @type {number} */ at) =>
    (Math.imul(at, 1_664_525) + 1_013_904_223) & (places - 1);
  const next = new Uint32Array(places);
  for (let at = 0; at < places; at++) next[at] = after(at);
  const reads = 1_000_000;
  const taken = { waited: 0, alongside: 0 };
  // The second time counts: at the first, V8 does not know the loops yet.
  for (let round = 0; round < 2; round++) {
    let [at, sum] = [0, 0];
    const began = now();
    for (let n = 0; n < reads; n++) {
      sum = (sum + next[at]) | 0;
      at = next[at];
    }
    const between = now();
    at = 0;
    for (let n = 0; n < reads; n++) {
      sum = (sum - next[at]) | 0;
      at = after(at);
    }
    taken.waited = ((between - began) / reads) * 1e6;
    taken.alongside = ((now() - between) / reads) * 1e6;
    if (sum !== 0) throw new Error('the same places were to be read');
  }
  return taken;
}

/** Both must keep the same, or the times say nothing. @param {Bench} bench */
function agree({ native, js, rows }) {
  for (let n = 0; n < 1000; n++) {
    const key = rows.key(rows.nth(n * 7));
    const mine = native.describe(key);
    const yours = js?.describe(key);
    if (
      JSON.stringify({ ...yours, ...mine }) !== JSON.stringify({ ...yours, dueAt: mine?.dueAt })
    ) {
      throw new Error(
        `kept differently: ${key}: ${JSON.stringify(mine)} and ${JSON.stringify(yours)}`,
      );
    }
  }
}

/** Rows come due as fast as they are claimed; results are not in the time. @param {Bench} bench @returns {Promise<Figure[]>} */
async function claims(bench) {
  const { native, js } = bench;
  bench.stage('claims on one thread');
  comeDue(bench);
  /** @type {Set<string>} */
  const leases = new Set();
  const alone = await claimRounds(bench, bench.quick ? 300 : 3000, leases);
  bench.stage(`claims, ${IN_FLIGHT} rows in flight`);
  comeDue(bench);
  const inFlight = native.claim(IN_FLIGHT).jobs;
  for (const { key } of inFlight) leases.add(key);
  const behind = await claimRounds(bench, bench.quick ? 50 : 300, leases);
  for (const { key, token } of inFlight) {
    report(bench, key);
    native.release(key, token);
    js?.apply(key, rendered(bench));
  }
  return [
    figure(`claim(${CLAIM}) p50`, 'us', alone, {
      wanted: { most: 10 },
      note: 'in JS: topK and a Set of leases',
    }),
    figure(`claim(${CLAIM}) p99`, 'us', alone, { share: 0.99 }),
    figure(`claim(${CLAIM}) p50, ${IN_FLIGHT} rows in flight`, 'us', behind, {
      note: 'the most overdue ones; what comes due between two claims is more overdue still',
    }),
  ];
}

/** What a row is once its page has been rendered. @param {Bench} bench */
function rendered({ epoch }) {
  return { nextRenderTime: epoch + 24 * HOUR };
}

/** The result of a page, as the subscription tells it. @param {Bench} bench @param {string} key */
function report(bench, key) {
  bench.native.apply({ type: 'put', id: key, value: rendered(bench), version: nextVersion() });
}

/**
 * Claims, each followed by its results, and preceded by as many rows that come due and as many that are rescheduled.
 * @param {Bench} bench @param {number} rounds @param {Set<string>} leases  the keys that are in flight
 */
async function claimRounds(bench, rounds, leases) {
  const { native, js, epoch } = bench;
  const times = newRounds();
  const skip = (/** @type {string} */ key) => leases.has(key);
  for (let n = 0; n < rounds; n++) {
    const events = makeEvents(bench, 2 * CLAIM, 1000 + n);
    for (const list of [events.mine, events.yours]) {
      for (const event of list.slice(0, CLAIM)) event.value.nextRenderTime = epoch - HOUR - n * 10;
    }
    for (const event of events.mine) native.apply(event);
    native.size; // Flushed: a claim's time is its own.
    const at = now();
    const { jobs } = native.claim(CLAIM);
    times.ours.push((now() - at) * 1000);
    for (const job of jobs) {
      report(bench, job.key);
      native.release(job.key, job.token);
    }
    if (js) {
      for (const event of events.yours) listenJs(js, event);
      const at = now();
      const { rows } = js.topK(CLAIM, { nowMs: Date.now(), ...PRIORITY, skip });
      for (const { entry } of rows) leases.add(entry.cacheKey);
      times.js.push((now() - at) * 1000);
      for (const { entry } of rows) {
        js.apply(entry.cacheKey, rendered(bench));
        leases.delete(entry.cacheKey);
      }
    }
    if (n % 100 === 0) await breathe();
  }
  return times;
}

/** Each call after an event, so that nothing computed before can be handed out. @param {Bench} bench @returns {Promise<Figure[]>} */
async function reads(bench) {
  const { native, js } = bench;
  bench.stage('state and topK');
  comeDue(bench);
  const calls = bench.quick ? 30 : 200;
  const events = makeEvents(bench, calls * 4, 5000);
  const state = newRounds();
  const json = newRounds();
  const top = newRounds();
  const filled = newRounds();
  // What `topK` calls; its objects are made of what this fills.
  const addon = require(path.join(__dirname, '..', addonFile()));
  const owner = addon.open(NAME, undefined, undefined);
  const buffer = new Float64Array(8 + 5 * 5000);
  /** @param {number[]} into @param {() => any} read */
  const timed = (into, read) => {
    const event = events.mine.pop();
    const twin = events.yours.pop();
    if (event) native.apply(event);
    if (twin && js) listenJs(js, twin);
    native.size;
    const at = now();
    read();
    into.push(now() - at);
  };
  for (let n = 0; n < calls; n++) {
    timed(state.ours, () => native.state());
    timed(json.ours, () => native.stateJson());
    timed(top.ours, () => native.topK(5000));
    timed(filled.ours, () => addon.top(owner.handle, 5000, buffer.buffer));
    if (js) {
      timed(state.js, () => js.state());
      timed(json.js, () => JSON.stringify(js.state()));
      timed(top.js, () => js.topK(5000, { nowMs: Date.now(), ...PRIORITY }));
    }
    if (n % 10 === 0) await breathe();
  }
  filled.js = top.js;
  addon.close(owner.handle);
  const high = (/** @type {Rounds} */ { ours }) => `p99 ${quantile(ours, 0.99).toFixed(2)} ms`;
  return [
    figure('state()', 'ms', state, { wanted: { most: 0.5 }, note: high(state) }),
    figure('stateJson()', 'ms', json, { wanted: { most: 0.5 }, note: high(json) }),
    figure('topK(5,000) into a buffer', 'ms', filled, {
      wanted: { times: 1 },
      note: "the addon's own call: numbers in one array, keys 64 to a string; beside the JS keeper's topK",
    }),
    figure('topK(5,000) as objects', 'ms', top, {
      note: `${high(top)}; makes 5,000 strings, where the JS keeper hands out those it has`,
    }),
  ];
}

/** Four threads claim while a fifth applies. @param {Bench} bench @returns {Promise<Figure[]>} */
async function threads(bench) {
  bench.stage('claims from 4 threads beside 100,000 applies/s in a fifth');
  comeDue(bench);
  const { rows, count } = bench;
  const task = { rows: count, classes: rows.classes, seed: rows.seed, perSecond: 100_000 };
  const ms = bench.quick ? 1000 : 5000;
  const crew = ['claim', 'claim', 'claim', 'claim', 'apply'].map(
    (role) => new Worker(__filename, { workerData: { ...task, ms, role } }),
  );
  let ready = 0;
  const reports = await Promise.all(
    crew.map(
      (worker) =>
        new Promise((resolve, reject) => {
          worker.on('error', reject);
          worker.on('message', (message) => {
            if (message !== 'ready') resolve(message);
            else if (++ready === crew.length) for (const other of crew) other.postMessage('go');
          });
        }),
    ),
  );
  /** @type {number[]} */
  const samples = reports.flatMap((report) => report.samples);
  const rate = (/** @type {string} */ role) => {
    const per = reports
      .filter((report) => report.role === role)
      .map(({ done, ms }) => (done / ms) * 1000);
    return Math.round(per.reduce((sum, one) => sum + one, 0)).toLocaleString('en');
  };
  const jobs = reports.reduce((sum, report) => sum + report.jobs, 0) / samples.length;
  return [
    figure(
      `claim(${CLAIM}) p99, 4 threads beside applies`,
      'ms',
      { ours: samples, js: [] },
      {
        share: 0.99,
        wanted: { most: 0.3 },
        note:
          `p50 ${(quantile(samples, 0.5) * 1000).toFixed(0)} us, max ${quantile(samples, 1).toFixed(1)} ms; ${rate('claim')} ` +
          `claims/s of ${jobs.toFixed(1)} jobs, ${rate('apply')} applies/s, on ${os.availableParallelism()} CPUs`,
      },
    ),
  ];
}

/** One of those threads. @param {{ role: string, ms: number, rows: number, classes: number, seed: number, perSecond: number }} task */
async function work(task) {
  const rows = corpus(task);
  const keeper = QueueKeeper.open(NAME, keeperOptions(rows));
  const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
  /** @type {number[]} */
  const samples = [];
  let done = 0;
  let jobs = 0;
  /** @type {Event[]} */
  const events = [];
  for (let n = 0; task.role === 'apply' && n < 50_000; n++) {
    const i = rows.nth(n);
    events.push(eventOf(rows.key(i), rows.reschedule(i, Date.now(), 1)));
  }
  port.postMessage('ready');
  await new Promise((resolve) => port.once('message', resolve));
  const began = now();
  while (now() - began < task.ms) {
    if (task.role === 'apply') {
      const owed = Math.floor(((now() - began) / 1000) * task.perSecond);
      for (; done < owed; done++) {
        const event = /** @type {Event} */ (events[done % events.length]);
        event.version = nextVersion();
        // Each pass moves the row: the same value twice would change nothing.
        event.value.nextRenderTime += 60_000;
        keeper.apply(event);
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    } else {
      const at = now();
      const claim = keeper.claim(CLAIM);
      samples.push(now() - at);
      done++;
      jobs += claim.jobs.length;
      for (const job of claim.jobs) keeper.release(job.key, job.token);
      await breathe();
    }
  }
  const ms = now() - began;
  keeper.close();
  port.postMessage({ role: task.role, samples, done, jobs, ms });
}

/**
 * Until no thread of this process does anything: V8 gives memory back for a while after a collection, on threads of its own, and whoever
 * touches new memory meanwhile waits for them.
 */
async function atRest() {
  for (let busy = true; busy; ) {
    const before = process.cpuUsage();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const { user, system } = process.cpuUsage(before);
    busy = user + system > 5_000;
  }
}

/**
 * Saved and read back three times a round: nothing else done, with events beside it, and beside an event loop that turns without a
 * pause, which keeps a CPU busy.
 * @param {Bench} bench @returns {Promise<Figure[]>}
 */
async function snapshot(bench) {
  const { native, rows } = bench;
  const saved = newRounds();
  const restored = newRounds();
  const blocked = newRounds();
  /** @type {number[]} */
  const turns = [];
  const batches = Array.from({ length: 50 }, () =>
    Array.from({ length: PORTION }, () => {
      const i = rows.nth(bench.touched++);
      return eventOf(rows.key(i), rows.reschedule(i, bench.epoch, 1));
    }),
  );
  let calls = 0;
  /** @param {QueueKeeper} queue */
  const call = (queue) => () => {
    const batch = batches[calls++ % batches.length];
    for (const event of batch) {
      // Once more the same would change nothing.
      event.version = nextVersion();
      event.value.nextRenderTime += 60_000;
    }
    queue.applyAll(batch);
  };
  /** @typedef {(queue: QueueKeeper, action: () => Promise<any>) => Promise<any>} Take */
  /** @param {number} round @param {number[]} took @returns {Take[]} */
  const takes = (round, took) => {
    const held = (/** @type {{ ms: number }} */ { ms }) => {
      blocked.ours[round] = Math.max(blocked.ours[round] ?? 0, ms);
    };
    return [
      async (_, action) => {
        bench.gc();
        await breathe();
        const at = now();
        await action();
        took.push(now() - at);
      },
      async (_, action) => held(await ranDuring(action)),
      async (queue, action) => held(await longestCall(action, call(queue))),
      async (_, action) => {
        await atRest();
        turns.push((await longestTurn(action)).ms);
      },
    ];
  };
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-keeper-bench-'));
  const file = path.join(folder, 'snapshot');
  let bytes = 0;
  try {
    for (let round = 0; round < Math.min(3, bench.rounds); round++) {
      bench.stage(`snapshot, round ${round + 1}`);
      for (const take of takes(round, saved.ours))
        await take(native, () => native.saveSnapshot(file));
      bytes = fs.statSync(file).size;
      for (const take of takes(round, restored.ours)) {
        const other = new QueueKeeper(bench.options);
        await take(other, () => other.loadSnapshot(file));
        if (other.size !== native.size)
          throw new Error(`the snapshot has ${other.size} of ${native.size} rows`);
        other.close();
      }
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
  return [
    figure('snapshot saved', 'ms', saved, {
      wanted: { most: 200 },
      note: `${(bytes / 1e6).toFixed(1)} MB`,
    }),
    figure('snapshot read back', 'ms', restored, { wanted: { most: 300 } }),
    figure('JS thread blocked by snapshots, longest', 'ms', blocked, {
      share: 1,
      wanted: { most: 5 },
      note:
        `its own CPU time, and the longest call of ${PORTION} events beside it: the most of ${list(blocked.ours)} ms; ` +
        `the longest turns of a loop that keeps a CPU busy: ${list(turns)} ms`,
    }),
  ];
}

// ---- The run

/** @type {Record<string, (bench: Bench) => Promise<Figure[]>>} */
const STAGES = {
  memory,
  load,
  growth,
  apply: applies,
  claim: claims,
  read: reads,
  threads,
  snapshot,
};

async function main() {
  const { values } = parseArgs({
    options: {
      rows: { type: 'string' },
      classes: { type: 'string', default: '40' },
      seed: { type: 'string', default: '1' },
      rounds: { type: 'string' },
      out: { type: 'string' },
      alone: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return;
  }
  const { quick, alone } = values;
  const both = !alone && !values.only;
  const count = Number(values.rows ?? (quick ? 20_000 : 1_000_000));
  const rounds = Number(values.rounds ?? (quick ? 2 : 5));
  const seed = Number(values.seed);
  const classes = Number(values.classes);
  mustBeWhole({ rows: count, rounds, seed, classes });
  const only = values.only?.split(',') ?? Object.keys(STAGES);
  const unknown = only.filter((name) => !(name in STAGES));
  if (unknown.length > 0) throw new Error(`no such stage: ${unknown}; --help lists them`);
  const out =
    values.out ?? (quick || values.only ? null : path.join(__dirname, 'results', 'core.json'));
  const takes = quick
    ? 'under half a minute'
    : `about ${Math.max(1, Math.round((count * rounds) / 1_500_000))} minutes`;
  const writes = out ? `, and writes ${shown(out)}` : '';
  console.log(
    `Measures this keeper${both ? ' alone, then it' : ''}${alone ? ' alone' : ' and the plain-JS one in turns'}: ${count.toLocaleString('en')} rows, about ${classes} ` +
      `classes, seed ${seed}, ${rounds} rounds. Takes ${takes}${writes}.`,
  );

  const { stage, seconds } = startProgress();
  const figuresAlone = both ? measuredAlone(process.argv.slice(2), stage) : [];
  if (both) stage('beside the plain-JS keeper');
  const rows = corpus({ rows: count, classes, seed });
  const options = keeperOptions(rows);
  const makeJs = () =>
    alone
      ? null
      : createQueueKeeper({ classify: createClassifier(rows), now: Date.now, flowMinutes: 60 });
  v8.setFlagsFromString('--expose-gc');
  let keyLength = 0;
  for (let i = 0; i < count; i++) keyLength += rows.key(i).length; // Also compiles the corpus before memory is read.
  /** @type {Bench} */
  const bench = {
    count,
    rounds,
    quick,
    rows,
    epoch: Date.now(),
    native: QueueKeeper.open(NAME, options),
    js: makeJs(),
    makeJs,
    options,
    stage,
    gc: vm.runInNewContext('gc'),
    touched: 0,
  };
  /** @type {Figure[]} */
  const figures = [];
  // The rows get in with the first stage.
  for (const name of new Set(['memory', ...only])) {
    figures.push(...(await STAGES[name](bench)));
    bench.gc();
  }
  const corpusIs = {
    rows: count,
    classes: bench.native.classCount,
    seed,
    meanKeyLength: Math.round((keyLength / count) * 10) / 10,
  };
  bench.native.close();
  stage('done');
  for (const figure of figures) {
    figure.alone = alone
      ? figure.ours
      : figuresAlone.find(({ what }) => what === figure.what)?.ours;
    figure.reached = isReached(figure);
  }
  print(figures, corpusIs, { quick, alone });
  if (out) writeResults(out, seconds(), { corpus: corpusIs, rounds, figures });
}

/**
 * The figures of a process in which there is no other keeper.
 * @param {string[]} args  of this one @param {(text: string) => void} stage @returns {Figure[]}
 */
function measuredAlone(args, stage) {
  stage('this keeper alone, in a process of its own');
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-keeper-bench-'));
  const file = path.join(folder, 'figures.json');
  try {
    execFileSync(process.execPath, [__filename, ...args, '--alone', '--out', file], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    return JSON.parse(fs.readFileSync(file, 'utf8')).figures;
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Whether what is wanted is reached. What is wanted of a figure in itself is held against this keeper alone, where it was measured so.
 * @param {Figure} figure
 */
function isReached({ wanted, ours, alone = ours, ratio }) {
  if (!wanted) return undefined;
  const { most = Number.POSITIVE_INFINITY, least = Number.NEGATIVE_INFINITY, times } = wanted;
  if (times !== undefined && ratio === undefined) return undefined;
  return alone <= most && alone >= least && (ratio ?? 0) >= (times ?? 0);
}

/** @param {Wanted} wanted */
function inWords({ most, least, times }) {
  const all = [
    most === undefined ? '' : `at most ${most}`,
    times === undefined ? '' : `${times}x`,
    least === undefined ? '' : `${least.toLocaleString('en')}`,
  ];
  return all.filter(Boolean).join(' and ');
}

/**
 * @param {Figure[]} figures @param {{ rows: number, classes: number, seed: number, meanKeyLength: number }} corpusIs
 * @param {{ quick: boolean, alone: boolean }} how
 */
function print(figures, corpusIs, how) {
  // What is to be reached is for 1M rows: a smaller run only shows that all of it runs.
  const judged = (/** @type {boolean | undefined} */ reached) =>
    how.quick || reached === undefined ? '' : reached ? 'yes' : 'NO';
  const { rows, classes, seed, meanKeyLength } = corpusIs;
  console.log(
    `\n${rows.toLocaleString('en')} rows, ${classes} classes, seed ${seed}, keys of ${meanKeyLength} characters on average\n`,
  );
  printTable([
    ['what', 'unit', 'alone', 'in turns', 'plain JS', 'ratio', 'to reach', 'reached'],
    ...figures.map(({ what, unit, ours, alone, js, ratio, wanted = {}, reached }) => [
      what,
      unit,
      short(alone),
      how.alone ? '' : short(ours),
      short(js),
      ratio === undefined ? '' : `${ratio.toFixed(1)}x`,
      inWords(wanted),
      judged(reached),
    ]),
  ]);
  console.log('');
  for (const { what, note } of figures) if (note) console.log(`- ${what}: ${note}`);
  if (rows < 1_000_000) console.log('- What is to be reached is for 1,000,000 rows.');
  console.log('');
}

const run = isMainThread ? main() : work(workerData);
run.catch((error) => {
  if (!isMainThread) throw error;
  console.error(error);
  process.exitCode = 1;
});
