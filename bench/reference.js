/**
 * What an engineer would try first, on the same corpus and with the same questions as this keeper: an indexed SQLite table, and
 * sorted sets in Redis (README.md beside this file).
 *
 *     npm ci --prefix bench/reference     builds SQLite; without it its figures are left out
 *     node bench/reference.js
 */

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { createClassifier, scoreOf } = require('./baseline/js-keeper.js');
const { corpus, PRIORITY } = require('./corpus.js');
const { openKeeper } = require('./reference/keeper.js');
const { hasRedis, openRedis } = require('./reference/redis.js');
const { loadSqlite, openSqlite } = require('./reference/sqlite.js');
const { readOptions } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { median } = require('./support/statistics.js');

/** @typedef {ReturnType<typeof corpus>} Corpus */
/** A row as it is to be; its minute and class are known beforehand, which costs the other designs nothing. @typedef {{ key: string, value: ReturnType<Corpus['value']>, minute: number, class: number }} Change */
/** @typedef {ReturnType<typeof createClasses>} Classes */
/**
 * @typedef {{ name: string, load: (rows: Change[]) => unknown, reschedule: (changes: Change[]) => unknown,
 *   rescheduleOne: (change: Change) => unknown, next: (now: number) => unknown, counts: (now: number) => unknown,
 *   bytes: () => unknown, close: () => unknown, ping?: () => unknown }} Design
 */

const MINUTE = 60_000;
const BATCH = 64;
const QUESTIONS = {
  load: 'load, a row',
  reschedule: `reschedule, in batches of ${BATCH}`,
  one: 'reschedule, one at a time',
  next: 'the next 20, in the order of scores',
  counts: 'counts by class',
};

/** The classes of the corpus, numbered, with what a score takes of them. @param {Corpus} rows */
function createClasses(rows) {
  const classify = createClassifier(rows);
  /** @type {Map<string, number>} */
  const ids = new Map();
  /** @type {{ id: number, divisor: number, boost: number, head: number, fromSitemap: boolean, changed: boolean }[]} */
  const list = [];
  return {
    all: () => list,
    /** @param {string} key @param {ReturnType<Corpus['value']>} value */
    of(key, value) {
      const { route, cadenceMs, carried } = classify(key, value);
      const { fromSitemap, changedAt, urgentAt, demandPeriod } = value;
      const [changed, urgent] = [changedAt !== null, urgentAt !== null];
      const name = [route, cadenceMs, carried, fromSitemap, changed, urgent, demandPeriod].join();
      const known = ids.get(name);
      if (known !== undefined) return known;
      const id = list.length;
      ids.set(name, id);
      const ranking = { nowMs: 0, intervalMs: cadenceMs, ...PRIORITY };
      const row = { fromSitemap, changed, urgent, demandPeriodMs: demandPeriod };
      const head = scoreOf({ dueAt: 0, ...row }, ranking);
      const divisor = changed && demandPeriod ? demandPeriod : cadenceMs;
      list.push({ id, divisor, boost: fromSitemap ? PRIORITY.sitemapBoost : 1, head, ...row });
      return id;
    },
    /** The best n of the heads of all classes. @param {number} n @param {number} now @param {(id: number) => { key: string, due: number }[]} headsOf */
    merge(n, now, headsOf) {
      return list
        .flatMap(({ id, divisor, boost, head }) =>
          headsOf(id).map(({ key, due }) => ({
            key,
            due,
            score: ((now - due * MINUTE) / divisor) * boost + head,
          })),
        )
        .sort((a, b) => b.score - a.score || a.due - b.due)
        .slice(0, n)
        .map(({ key, score }) => ({ key, score }));
    },
  };
}

/** Us an operation. @param {number} times @param {(n: number) => unknown} operation */
async function timed(times, operation) {
  const began = performance.now();
  for (let n = 0; n < times; n++) {
    const answer = operation(n);
    if (answer instanceof Promise) await answer;
  }
  return ((performance.now() - began) / times) * 1000;
}

/** All must give the same answers, or the times say nothing. @param {ReturnType<typeof openKeeper>} ours @param {Design[]} others @param {Classes} classes */
async function agree(ours, others, classes) {
  for (const design of others) {
    for (let tries = 1; ; tries++) {
      const now = Date.now();
      const mine = ours.next();
      const state = ours.counts();
      const theirs = /** @type {{ key: string, score: number }[]} */ (await design.next(now));
      const counts = /** @type {{ class: number, rows: number, due: number }[]} */ (
        await design.counts(now)
      );
      const sum = (/** @type {(cls: any) => boolean} */ among) =>
        counts.reduce((all, one) => all + (among(classes.all()[one.class]) ? one.due : 0), 0);
      const { due, dueSitemap, dueChanged } = state.now;
      const same =
        mine.length === theirs.length &&
        mine.every(({ score }, i) => Math.abs(score / Number(theirs[i]?.score) - 1) < 1e-4) &&
        counts.reduce((all, { rows }) => all + rows, 0) === ours.keeper.size &&
        sum(() => true) === due &&
        sum(({ fromSitemap }) => fromSitemap) === dueSitemap &&
        sum(({ changed }) => changed) === dueChanged;
      if (same) break;
      // Asked in two different minutes, perhaps; not three times.
      if (tries === 3) {
        throw new Error(
          `${design.name} answers otherwise than the keeper: ${JSON.stringify({ mine, theirs, due, dueSitemap, dueChanged, counts })}`,
        );
      }
    }
  }
}

async function main() {
  const {
    rows: count,
    classes: classCount,
    seed,
    rounds,
    quick,
    out,
  } = readOptions(
    'reference',
    {
      rows: { what: 'how many schedule rows', normally: 250_000, quick: 10_000 },
      classes: { what: 'about how many classes', normally: 40 },
      seed: { what: 'of the corpus', normally: 1 },
      rounds: { what: 'rounds in turns, of which the median is shown', normally: 7, quick: 2 },
    },
    { quickly: '10,000 rows, a few seconds' },
  );
  console.log(
    `Measures this keeper, SQLite and Redis in turns: ${count.toLocaleString('en')} rows, about ${classCount} classes, seed ${seed}, ` +
      `${rounds} rounds. Takes ${quick ? 'a few seconds' : 'one to two minutes'}${out ? `, and writes ${shown(out)}` : ''}.`,
  );
  const Sqlite = loadSqlite();
  if (!Sqlite)
    console.log(
      'SQLite is left out: npm ci --prefix bench/reference builds it (a C++ compiler, a minute).',
    );
  const withRedis = hasRedis();
  if (!withRedis)
    console.log(
      'Redis is left out: redis-server is missing (Debian: apt-get install redis-server).',
    );

  const { stage, seconds } = startProgress();
  const rows = corpus({ rows: count, classes: classCount, seed });
  const classes = createClasses(rows);
  const epoch = Date.now();
  /** @param {number} i @param {ReturnType<Corpus['value']>} value @returns {Change} */
  const changeOf = (i, value) => {
    // As a decoder makes it: flat, and hashed by nobody yet.
    const key = Buffer.from(rows.key(i), 'latin1').toString('latin1');
    const minute = Math.floor(value.nextRenderTime / MINUTE);
    return { key, value, minute, class: classes.of(key, value) };
  };
  const all = Array.from({ length: count }, (_, i) => changeOf(i, rows.value(i, epoch)));
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-keeper-reference-'));
  process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

  const ours = openKeeper({
    routes: rows.routes,
    defaultInterval: rows.defaultInterval,
    priority: PRIORITY,
  });
  /** @type {Design[]} */
  const others = [];
  if (Sqlite) {
    for (const byClass of [false, true]) others.push(openSqlite(Sqlite, folder, classes, byClass));
  }
  if (withRedis) others.push(await openRedis(folder, classes));
  /** @type {Design[]} */
  const designs = [ours, ...others];
  /** @type {Record<string, Record<string, number[]>>} */
  const samples = Object.fromEntries(designs.map(({ name }) => [name, {}]));
  /** @param {Design} design @param {string} what @param {number} us */
  const keep = ({ name }, what, us) => {
    const of = /** @type {Record<string, number[]>} */ (samples[name]);
    of[what] = [...(of[what] ?? []), us];
  };

  for (const design of designs) {
    stage(`load: ${design.name}`);
    keep(design, 'load', (await timed(1, () => design.load(all))) / count);
  }
  all.length = 0;
  await agree(ours, others, classes);
  let touched = 0;
  const [batches, singles, asks] = quick ? [20, 200, 10] : [100, 1000, 30];
  for (let round = 0; round <= rounds; round++) {
    stage(round ? `round ${round} of ${rounds}` : 'warm-up');
    const changes = Array.from({ length: batches * BATCH + singles + 2 * asks }, () => {
      const i = rows.nth(touched++);
      return { i, value: rows.reschedule(i, epoch, round) };
    });
    for (const design of round % 2 ? designs : [...designs].reverse()) {
      const fresh = changes.map(({ i, value }) => changeOf(i, { ...value }));
      const batch = () => fresh.splice(-BATCH);
      const next = () => /** @type {Change} */ (fresh.pop());
      const cut = Array.from({ length: batches }, batch);
      /** @type {Record<string, number>} */
      const us = {};
      us.reschedule =
        (await timed(batches, (n) => design.reschedule(/** @type {Change[]} */ (cut[n])))) / BATCH;
      us.one = await timed(singles, () => design.rescheduleOne(next()));
      // Each after a change, so that nothing is handed out twice; the change is not in the time.
      for (const what of /** @type {const} */ (['next', 'counts'])) {
        us[what] = 0;
        for (let n = 0; n < asks; n++) {
          await design.rescheduleOne(next());
          us[what] += (await timed(1, () => design[what](Date.now()))) / asks;
        }
      }
      if (design.ping) us.ping = await timed(singles, design.ping);
      if (round) for (const [what, one] of Object.entries(us)) keep(design, what, one);
    }
  }
  await agree(ours, others, classes);
  /** @type {Record<string, number>} */
  const bytes = {};
  for (const design of designs) bytes[design.name] = Number(await design.bytes()) / count;
  const state = ours.counts();
  const due = state.now.due;
  for (const design of designs) await design.close();
  stage('done');

  const medianOf = (/** @type {Design} */ { name }, /** @type {string} */ what) =>
    median(samples[name]?.[what] ?? []);
  const cell = (/** @type {Design} */ design, /** @type {string} */ what) => {
    const us = medianOf(design, what);
    if (design === ours) return short(us);
    return `${short(us / medianOf(ours, what))}x (${short(us)})`;
  };
  console.log(
    `\n${count.toLocaleString('en')} rows, ${classes.all().length} classes, ${due.toLocaleString('en')} due; us, medians of ${rounds} rounds; how many times this keeper's\n`,
  );
  printTable([
    ['what', ...designs.map(({ name }) => name)],
    ...Object.entries(QUESTIONS).map(([what, text]) => [
      text,
      ...designs.map((d) => cell(d, what)),
    ]),
    ['memory or file, B a row', ...designs.map(({ name }) => short(bytes[name]))],
  ]);
  const redis = others.find(({ ping }) => ping);
  if (redis)
    console.log(`\nA round trip to Redis that does nothing: ${short(medianOf(redis, 'ping'))} us.`);
  if (out) {
    const corpusIs = { rows: count, classes: classes.all().length, due, seed };
    const medians = Object.fromEntries(
      designs.map(({ name }) => [
        name,
        Object.fromEntries(
          Object.entries(samples[name] ?? {}).map(([what, list]) => [what, median(list)]),
        ),
      ]),
    );
    writeResults(out, seconds(), { corpus: corpusIs, rounds, unit: 'us', medians, bytes, samples });
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
