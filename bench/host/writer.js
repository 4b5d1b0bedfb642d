/** The thread that writes: one write after the other, each awaited; a write is one row, or many in one transaction. */

const { quantile } = require('../support/statistics.js');
const { clock } = require('./meter.js');

/**
 * The rows in an order of their own, that touches each once before it begins again: a prime that no number of rows divides.
 */
const STRIDE = 1_000_003;
const LOAD_CHUNK = 1_000;
/** As of the corpus' rows, 2 % of those written are overdue, by up to a quarter of an hour. */
const OVERDUE_EVERY = 50;
const OVERDUE_MS = 900_007;

/** @typedef {ReturnType<typeof import('../corpus.js').corpus>} Corpus */
/** @typedef {{ key: string, row: object }} Entry */
/**
 * @typedef {object} Target
 * @property {(key: string, row: object) => Promise<unknown>} put
 * @property {(entries: Entry[]) => Promise<unknown>} putAll  in one transaction
 */

/**
 * @param {Target} target @param {Corpus} rows @param {import('./channel.js').Ask} ask
 * @returns {import('./channel.js').Commands}
 */
function writing(target, rows, ask) {
  /** Each write has a number, which its row carries. @param {number} number @param {number} now @returns {Entry} */
  function entry(number, now) {
    const i = (number * STRIDE + rows.seed) % rows.rows;
    const key = rows.key(i);
    const value = rows.reschedule(i, now, number);
    // Or soon nothing would be due.
    if (number % OVERDUE_EVERY === 0) value.nextRenderTime = now - ((number * 7_919) % OVERDUE_MS);
    return { key, row: { cacheKey: key, ...value, writeNumber: number } };
  }

  return {
    /** The whole corpus, into an empty table. */
    async load() {
      const epoch = Date.now();
      for (let from = 0; from < rows.rows; from += LOAD_CHUNK) {
        const chunk = [];
        for (let i = from; i < Math.min(rows.rows, from + LOAD_CHUNK); i++) {
          const key = rows.key(i);
          chunk.push({ key, row: { cacheKey: key, ...rows.value(i, epoch), writeNumber: 0 } });
        }
        await target.putAll(chunk);
      }
    },

    /**
     * One write of which nothing is measured; resolves once its event has come, to how many events of earlier writes came before it.
     *
     * @param {{ number: number }} args
     */
    async probe({ number }) {
      const { key, row } = entry(number, Date.now());
      await ask('listener', 'expect', { number });
      await target.put(key, row);
      return ask('listener', 'hear');
    },

    /**
     * The writes `from` to `from + count - 1`, made beforehand; measured here and, from the first to the last event, in the
     * thread that listens.
     *
     * @param {{ from: number, count: number, batch: number }} args  `batch`: rows a write
     */
    async write({ from, count, batch }) {
      const now = Date.now();
      const entries = Array.from({ length: count }, (_, i) => entry(from + i, now));
      /** By row. */
      const sent = new Float64Array(count);
      const acknowledged = new Float64Array(count);
      const latencies = new Float64Array(Math.ceil(count / batch));
      await ask('listener', 'begin', { from, count });
      const began = clock();
      for (let at = 0; at < count; at += batch) {
        const end = Math.min(count, at + batch);
        const some = batch === 1 ? entries[at] : entries.slice(at, end);
        const before = clock();
        if (Array.isArray(some)) await target.putAll(some);
        else await target.put(some.key, some.row);
        const after = clock();
        sent.fill(before, at, end);
        acknowledged.fill(after, at, end);
        latencies[Math.floor(at / batch)] = after - before;
      }
      const seconds = (clock() - began) / 1e3;
      const heard = await ask('listener', 'end', { sent, acknowledged });
      return {
        writesPerSecond: count / seconds,
        putP50Us: quantile(latencies, 0.5) * 1e3,
        putP99Us: quantile(latencies, 0.99) * 1e3,
        ...heard,
      };
    },
  };
}

module.exports = { writing };
