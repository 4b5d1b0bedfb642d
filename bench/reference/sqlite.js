/**
 * "Just query it": a table with its key as primary key, and one index, in a file with a write-ahead log. What better-sqlite3
 * allows in speed is used: prepared statements, one transaction a batch, no fsync (`synchronous = off`).
 */

const path = require('node:path');

/** @typedef {import('../reference.js').Change} Change */
/** @typedef {import('../reference.js').Classes} Classes */

const MINUTE = 60_000;
const NEXT = 20;
/** Not a literal in the call: the types are checked where it is not installed. */
const PACKAGE = 'better-sqlite3';

/** Null where it is not installed, or not built (bench/README.md). */
function loadSqlite() {
  try {
    const Sqlite = require(PACKAGE);
    new Sqlite(':memory:').close();
    return Sqlite;
  } catch {
    return null;
  }
}

/**
 * `byClass`: with the index on (class, due), the next are merged over the classes' heads, as the keeper does; with the one
 * on (due, class) every due row is scored.
 *
 * @param {any} Sqlite @param {string} folder @param {Classes} classes @param {boolean} byClass
 */
function openSqlite(Sqlite, folder, classes, byClass) {
  const db = new Sqlite(path.join(folder, byClass ? 'by-class.db' : 'by-due.db'));
  db.pragma('journal_mode = wal');
  db.pragma('synchronous = off');
  db.pragma('cache_size = -512000');
  db.exec(`
    create table class (id integer primary key, divisor real, boost real, head real);
    create table page (key text primary key, due integer, class integer) without rowid;
    create index head on page (${byClass ? 'class, due' : 'due, class'});
  `);
  const insert = db.prepare('insert into page values (?, ?, ?)');
  const update = db.prepare('update page set due = ?, class = ? where key = ?');
  const score = '(@now - due * 60000) / divisor * boost + head';
  const best = db.prepare(`
    select key, ${score} as score from page join class on class.id = page.class
    where due <= @minute order by score desc, due limit ${NEXT}`);
  const heads = db.prepare(`
    select key, due from page where class = ? and due <= ? order by due limit ${NEXT}`);
  const count = db.prepare(
    'select class, count(*) as rows, sum(due <= ?) as due from page group by class',
  );
  const begin = db.prepare('begin');
  const commit = db.prepare('commit');
  /** @param {Change} change */
  const one = ({ key, minute, class: cls }) => void update.run(minute, cls, key);

  return {
    name: `SQLite, index on ${byClass ? 'class and due' : 'due'}`,
    /** @param {Change[]} rows */
    load(rows) {
      const add = db.prepare('insert into class values (?, ?, ?, ?)');
      begin.run();
      for (const { id, divisor, boost, head } of classes.all()) add.run(id, divisor, boost, head);
      for (const { key, minute, class: cls } of rows) insert.run(key, minute, cls);
      commit.run();
      db.exec('analyze');
    },
    /** @param {Change[]} changes */
    reschedule(changes) {
      begin.run();
      for (const change of changes) one(change);
      commit.run();
    },
    rescheduleOne: one,
    /** @param {number} now @returns {{ key: string, score: number }[]} */
    next(now) {
      const minute = Math.floor(now / MINUTE);
      if (!byClass) return best.all({ now, minute });
      return classes.merge(NEXT, now, (id) => heads.all(id, minute));
    },
    /** @param {number} now */
    counts: (now) => count.all(Math.floor(now / MINUTE)),
    bytes() {
      db.pragma('wal_checkpoint(truncate)');
      return db.pragma('page_count', { simple: true }) * db.pragma('page_size', { simple: true });
    },
    close: () => db.close(),
  };
}

module.exports = { loadSqlite, openSqlite };
