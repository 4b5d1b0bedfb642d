/**
 * `node bench/fragmentation.js`: one keeper, without a host, after tens of millions of reschedules, deletes and re-creations,
 * against a fresh keeper of the same rows: memory, time of an event, state and order. How it is taken is in README.md
 * beside this file.
 */

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const v8 = require('node:v8');
const vm = require('node:vm');
const { isDeepStrictEqual } = require('node:util');
const { corpus, MINUTE } = require('./corpus.js');
const { temporaryFolder } = require('./support/host.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { median, quantile } = require('./support/statistics.js');
const { QueueKeeper } = require('..');

const CLASSES = 40;
/** Made at once, untimed, then applied: as many as a listener has in a busy moment. */
const PORTION = 1_000;
/** How long the deleted stay so, as a share of the rows: their room is for others meanwhile. */
const DEAD_SHARE = 0.05;
/** What is appended to a page's address when it comes back: none, or that many characters. */
const TAILS = [0, 0, 8, 24, 60, 140];
/** Events, out of a hundred. */
const MIX = { reschedules: 80, deletes: 10, recreations: 10 };
/** One minute passes in so many events, for a row that is as old as its schedule. */
const EVENTS_A_MINUTE = 1_000_000;
/** Deletions are remembered for up to twenty minutes. */
const FORGOTTEN_MS = 21 * MINUTE;
/** Of 2026, whole minutes: nothing here goes by the real clock. */
const EPOCH = 29_600_000 * MINUTE;

/** Numbers from a seed, 0 to 2^32: mulberry32 is small and fast, and good enough for a shuffle. @param {number} seed */
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/**
 * The rows as they should be: what the keepers are held against. A row is due at `due[i]`, NaN where it is deleted; `tail[i]` is
 * the last address it had.
 *
 * @param {ReturnType<typeof corpus>} rows
 */
function makeTable(rows) {
  const count = rows.rows;
  const due = new Float64Array(count);
  const tail = new Uint8Array(count);
  for (let i = 0; i < count; i++) due[i] = rows.value(i, EPOCH).nextRenderTime;
  /** @param {number} i */
  const key = (i) => {
    const key = rows.key(i);
    const extra = TAILS[tail[i]];
    if (extra === 0) return key;
    const [url, device] = key.split('|');
    const text = `${url.includes('?') ? '&' : '?'}variant=${(i * 2_654_435_761).toString(36).repeat(16)}`;
    return `${url}${text.slice(0, extra)}|${device}`;
  };
  /** @param {number} i */
  const value = (i) => ({ ...rows.value(i, EPOCH), nextRenderTime: due[i] });
  return { count, due, tail, key, value, cadence: rows.cadence };
}
/** @typedef {ReturnType<typeof makeTable>} Table */

/** @param {ReturnType<typeof corpus>} rows @param {number} now */
function newKeeper({ routes, defaultInterval }, now) {
  return new QueueKeeper({ routes, defaultInterval, now });
}

/** As a subscription delivers them: a string of its own, not one that was hashed. @param {string} text */
const flat = (text) => Buffer.from(text, 'latin1').toString('latin1');

/** @param {QueueKeeper} keeper @param {Table} table @param {Uint32Array} [order]  of the rows */
function load(keeper, table, order = inOrder(table)) {
  const walk = keeper.beginWalk('load');
  for (let at = 0; at < order.length; at += PORTION) {
    const chunk = Array.from(order.subarray(at, at + PORTION), (i) => ({
      cacheKey: flat(table.key(i)),
      ...table.value(i),
    }));
    walk.rows(chunk);
  }
  walk.end({});
}

/** The rows that are there, as they were made: their keys are scattered. @param {Table} table */
const inOrder = ({ count, due }) =>
  Uint32Array.from({ length: count }, (_, i) => i).filter((i) => !Number.isNaN(due[i]));

/** As a walk over a table reads them. @param {Table} table */
function byKey(table) {
  const keys = Array.from({ length: table.count }, (_, i) => table.key(i));
  return inOrder(table).sort((a, b) => (keys[a] < keys[b] ? -1 : 1));
}

v8.setFlagsFromString('--expose-gc');
const collect = vm.runInNewContext('gc');

/** RSS less what V8 has: what is native, with what is not given back. */
function nativeRss() {
  for (let i = 0; i < 3; i++) collect();
  const { rss, heapTotal, external } = process.memoryUsage();
  // The keeper reports its own to V8, as external.
  void external;
  return { rss, native: rss - heapTotal };
}

/** @param {QueueKeeper} keeper */
function memoryOf(keeper) {
  const { rss, native } = nativeRss();
  return { rows: keeper.size, bytes: keeper.bytes, rss, native };
}

/**
 * Changes the table, at random by the mix, and makes the events that say so.
 *
 * @param {Table} table @param {number} seed
 */
function makeChurn(table, seed) {
  const random = numbers(seed);
  const { count, due, tail } = table;
  /** Oldest first, in a ring. */
  const dead = new Int32Array(Math.max(2, Math.ceil(count * DEAD_SHARE)));
  let [first, deads] = [0, 0];
  let version = 1_000_000_000_000;
  const tally = { reschedules: 0, deletes: 0, recreations: 0 };
  const live = () => {
    for (;;) {
      const i = random() % count;
      if (!Number.isNaN(due[i])) return i;
    }
  };
  /** @param {number} i @param {number} now */
  const schedule = (i, now) => {
    // 2 % of them overdue, as in the corpus.
    due[i] = Math.floor(now + (random() / 2 ** 32 - 0.02) * table.cadence(i));
  };
  /** @param {number} now @param {number} i */
  const put = (now, i) => {
    schedule(i, now);
    return event('put', i, table.value(i));
  };
  /** @param {string} type @param {number} i @param {object | null} row */
  const event = (type, i, row) => {
    const id = flat(table.key(i));
    version += 1;
    return { id, localTime: version, value: row && { cacheKey: id, ...row }, version, type };
  };
  /** @param {number} now @returns {import('..').ScheduleEvent} */
  const next = (now) => {
    const at = random() % 100;
    const { length } = dead;
    if (at < MIX.deletes && deads < length) {
      const i = live();
      const deleted = event('delete', i, null);
      due[i] = Number.NaN;
      dead[(first + deads) % length] = i;
      deads += 1;
      tally.deletes += 1;
      return deleted;
    }
    // Not before there are enough of them: what comes back at once would find its own room.
    if (at < MIX.deletes + MIX.recreations && at >= MIX.deletes && deads >= length * 0.9) {
      const i = dead[first];
      first = (first + 1) % length;
      deads -= 1;
      tail[i] = random() % TAILS.length;
      tally.recreations += 1;
      return put(now, i);
    }
    tally.reschedules += 1;
    return put(now, live());
  };
  return {
    tally,
    /** @param {number} n @param {number} now */
    events: (n, now) => Array.from({ length: n }, () => next(now)),
  };
}

/** The time of one event, ns, the hand-over included. @param {QueueKeeper} keeper @param {import('..').ScheduleEvent[]} events */
function timeOf(keeper, events) {
  const began = performance.now();
  for (const event of events) keeper.apply(event);
  // Hands over what is buffered.
  void keeper.size;
  return ((performance.now() - began) * 1e6) / events.length;
}

/**
 * Two keepers of the same rows must say the same. The order is that of scores, and of due minutes at the same score; of
 * what is alike in both, who came first is not known to a fresh keeper.
 *
 * @param {QueueKeeper} churned @param {QueueKeeper} fresh
 */
function differences(churned, fresh) {
  /** @type {string[]} */
  const found = [];
  /** @param {string} what @param {(keeper: QueueKeeper) => unknown} of */
  const same = (what, of) => {
    if (!isDeepStrictEqual(of(churned), of(fresh))) found.push(what);
  };
  const { due } = churned.dueSummary();
  const states = new Map([churned, fresh].map((keeper) => [keeper, keeper.state()]));
  const state = (/** @type {QueueKeeper} */ keeper) => /** @type {any} */ (states.get(keeper));
  same('dueSummary', (keeper) => keeper.dueSummary());
  same('classCount', (keeper) => keeper.classCount);
  for (const part of ['now', 'coming', 'lateness']) same(part, (keeper) => state(keeper)[part]);
  const heads = new Map([churned, fresh].map((keeper) => [keeper, keeper.topK(due + 1)]));
  const head = (/** @type {QueueKeeper} */ keeper) => /** @type {any} */ (heads.get(keeper));
  same('the scores of the head, in order', (keeper) =>
    head(keeper).rows.map((/** @type {any} */ { score }) => score),
  );
  same('the head', (keeper) =>
    head(keeper)
      .rows.map((/** @type {any} */ row) => JSON.stringify([row.score, row.dueAt, row.key, row]))
      .sort(),
  );
  same('all of the head', ({ size }) => size > 0 && head(churned).complete && head(fresh).complete);
  return { due, found };
}

/** Every row of the table as the keeper describes it. @param {QueueKeeper} keeper @param {Table} table */
function wrongRows(keeper, table) {
  let wrong = 0;
  let rows = 0;
  for (let i = 0; i < table.count; i++) {
    const described = keeper.describe(table.key(i));
    if (Number.isNaN(table.due[i])) {
      if (described) wrong += 1;
      continue;
    }
    rows += 1;
    if (described?.minute !== Math.floor(table.due[i] / MINUTE)) wrong += 1;
  }
  return wrong + Math.abs(keeper.size - rows);
}

/** In a process of its own: what a keeper takes that was only just loaded. @param {string} file @param {number} now */
function measureFresh(file, now) {
  const { count, seed } = JSON.parse(fs.readFileSync(`${file}.json`, 'utf8'));
  const rows = corpus({ rows: count, classes: CLASSES, seed });
  const table = makeTable(rows);
  const bytes = fs.readFileSync(file);
  table.due.set(new Float64Array(bytes.buffer, bytes.byteOffset, count));
  table.tail.set(bytes.subarray(count * 8));
  const before = nativeRss();
  const keeper = newKeeper(rows, now);
  load(keeper, table);
  const after = memoryOf(keeper);
  console.log(JSON.stringify({ ...after, grown: after.native - before.native }));
}

function main() {
  const options = readOptions(
    'fragmentation',
    {
      rows: { what: 'how many schedule rows', normally: 1_000_000, quick: 20_000 },
      events: { what: 'reschedules, deletes, re-creations', normally: 50_000_000, quick: 400_000 },
      seed: { what: 'of the corpus and the events', normally: 1 },
    },
    { quickly: '20,000 rows, 400,000 events, a few seconds' },
  );
  const { rows: count, events, seed, quick, out } = options;
  console.log(
    `Applies ${events.toLocaleString('en')} events to a keeper of ${count.toLocaleString('en')} rows (${Object.entries(
      MIX,
    )
      .map(([name, share]) => `${share} % ${name}`)
      .join(', ')}; seed ${seed}), and holds it against a fresh one. Takes ` +
      `${quick ? 'a few seconds' : `about ${Math.ceil(events / 12_000_000)} minutes`}${out ? `, and writes ${shown(out)}` : ''}.`,
  );
  const loadAverageBefore = os.loadavg();
  const { stage, seconds } = startProgress();
  const rows = corpus({ rows: count, classes: CLASSES, seed });
  const table = makeTable(rows);
  const folder = temporaryFolder('fragmentation');
  const file = path.join(folder, 'rows');
  let now = EPOCH;
  const empty = nativeRss();
  const keeper = newKeeper(rows, now);
  stage('loading');
  load(keeper, table);
  const loaded = memoryOf(keeper);

  const churn = makeChurn(table, seed);
  /** Ten parts, each with the median of its portions. @type {{ ns: number, p99: number, bytes: number, rss: number, rows: number }[]} */
  const parts = [];
  for (let part = 1, done = 0; part <= 10; part++) {
    /** @type {number[]} */
    const times = [];
    for (const until = Math.round((events * part) / 10); done < until; ) {
      const made = churn.events(Math.min(PORTION, until - done), now);
      done += made.length;
      times.push(timeOf(keeper, made));
      if (Math.floor(done / EVENTS_A_MINUTE) > Math.floor((done - made.length) / EVENTS_A_MINUTE)) {
        now += MINUTE;
        keeper.setNow(now);
      }
    }
    const { rss, bytes, rows: kept } = memoryOf(keeper);
    parts.push({ ns: median(times), p99: quantile(times, 0.99), bytes, rss, rows: kept });
    stage(
      `${done.toLocaleString('en')} events: ${short(median(times))} ns each, ${short(bytes / kept)} B/row, RSS ${short(rss / 2 ** 20)} MB`,
    );
  }
  keeper.validate();
  const churned = memoryOf(keeper);
  stage('twenty-one minutes on: deletions are forgotten');
  for (const until = now + FORGOTTEN_MS; now < until; ) {
    now += MINUTE;
    keeper.setNow(now);
    for (const event of churn.events(PORTION, now)) keeper.apply(event);
  }
  const forgotten = memoryOf(keeper);

  stage('a fresh keeper of the same rows, in a process of its own');
  fs.writeFileSync(file, Buffer.concat([Buffer.from(table.due.buffer), Buffer.from(table.tail)]));
  fs.writeFileSync(`${file}.json`, JSON.stringify({ count, seed }));
  const fresh = JSON.parse(
    execFileSync(process.execPath, [__filename, '--fresh', file, String(now)]).toString(),
  );
  stage('a fresh keeper here, and the two held against each other');
  const other = newKeeper(rows, now);
  load(other, table);
  const sorted = newKeeper(rows, now);
  load(sorted, table, byKey(table));
  const bytesByKey = sorted.bytes / sorted.size;
  sorted.close();
  const compared = differences(keeper, other);
  const wrong = wrongRows(keeper, table);
  stage('the same events to both, in turns');
  /** @type {{ churned: number[], fresh: number[] }} */
  const turns = { churned: [], fresh: [] };
  for (let n = 0; n < (quick ? 20 : 1_000); n++) {
    const made = churn.events(PORTION, now);
    // Strings of their own: neither sees one that the other has hashed.
    const again = made.map((event) => {
      const id = flat(String(event.id));
      return { ...event, id, value: event.value && { ...event.value, cacheKey: id } };
    });
    const [first, second] = n % 2 ? [other, keeper] : [keeper, other];
    const [a, b] = [timeOf(first, made), timeOf(second, again)];
    turns.churned.push(n % 2 ? b : a);
    turns.fresh.push(n % 2 ? a : b);
  }
  const after = differences(keeper, other);
  keeper.validate();
  other.validate();
  stage('done');

  const perRow = (/** @type {{ bytes: number, rows: number }} */ { bytes, rows: kept }) =>
    bytes / kept;
  const mb = (/** @type {number} */ bytes) => bytes / 2 ** 20;
  const figures = [
    { what: 'keeper.bytes a row, just loaded', unit: 'B', value: perRow(loaded) },
    { what: 'after the events', unit: 'B', value: perRow(churned) },
    { what: 'twenty-one minutes later', unit: 'B', value: perRow(forgotten) },
    { what: 'a fresh keeper of the same rows', unit: 'B', value: perRow(fresh) },
    { what: 'a fresh keeper, loaded in the order of the keys', unit: 'B', value: bytesByKey },
    { what: 'churned against fresh', unit: 'x', value: perRow(forgotten) / perRow(fresh) },
    {
      what: 'RSS without the JS heap, just loaded',
      unit: 'MB',
      value: mb(loaded.native - empty.native),
    },
    { what: 'after the events', unit: 'MB', value: mb(churned.native - empty.native) },
    { what: 'twenty-one minutes later', unit: 'MB', value: mb(forgotten.native - empty.native) },
    { what: 'a fresh keeper, in a process of its own', unit: 'MB', value: mb(fresh.grown) },
    { what: 'apply, the first tenth of the events', unit: 'ns', value: parts[0].ns },
    { what: 'the last tenth', unit: 'ns', value: parts[9].ns },
    { what: 'last against first', unit: 'x', value: parts[9].ns / parts[0].ns },
    { what: 'the same events to the churned keeper', unit: 'ns', value: median(turns.churned) },
    { what: 'and to the fresh one, in turns', unit: 'ns', value: median(turns.fresh) },
    {
      what: 'churned against fresh, in turns',
      unit: 'x',
      value: median(turns.churned) / median(turns.fresh),
    },
    { what: 'rows kept otherwise than in the table', unit: '', value: wrong },
    {
      what: 'differences in state and order against the fresh keeper',
      unit: '',
      value: compared.found.length + after.found.length,
    },
  ];
  console.log('');
  printTable([
    ['what', 'unit', 'value'],
    ...figures.map(({ what, unit, value }) => [what, unit, short(value)]),
  ]);
  console.log(
    `\n- ${JSON.stringify(churn.tally)}; ${keeper.size.toLocaleString('en')} rows kept, ${compared.due.toLocaleString('en')} of them due and compared in order.` +
      `\n- Load average of the machine: ${loadAverageBefore[0].toFixed(1)} before, ${os.loadavg()[0].toFixed(1)} after.\n`,
  );
  const found = [...compared.found, ...after.found];
  for (const what of found) console.log(`- differs from the fresh keeper: ${what}`);
  if (out) {
    writeResults(out, seconds(), {
      corpus: { rows: count, classes: CLASSES, seed },
      events,
      mix: MIX,
      tally: churn.tally,
      loadAverageBefore,
      figures,
      memory: { empty, loaded, churned, forgotten, fresh },
      parts,
      differences: found,
    });
  }
  if (wrong + found.length > 0) process.exitCode = 1;
}

if (process.argv[2] === '--fresh') measureFresh(process.argv[3], Number(process.argv[4]));
else main();
