/**
 * Writers on each node of a ring that write rows of all owners, as clients that know one node only: what that node refuses
 * with 421 goes to the node it names. And what became of the writes: at the listener of each owner, and in the tables.
 */

const http = require('node:http');
const { request, sleep } = require('./load.js');
const { ownerOf } = require('./ring.js');
const { quantile } = require('./statistics.js');

/** @typedef {import('./ring.js').Member} Member */
/** @typedef {import('./ring.js').Corpus} Corpus */
/** @typedef {import('./listening.js').Seen} Seen */
/**
 * `start`, `end`: as `load.js` has them; `sentAt`, `hadAnswerAt`: the same in ns of the clock that `listening.js` goes by;
 * `value`: the due time, of which no two writes have the same.
 * @typedef {import('./load.js').Write & { sentAt: number, hadAnswerAt: number }} OwnWrite
 */

/** A ring that is being changed may send one to and fro for a while. */
const MOST_HOPS = 8;
const RETRY_MS = 50;

const ns = () => Number(process.hrtime.bigint());

/** What is written is due on another day, each a ms after the one before. */
const firstDue = Date.now() + 48 * 3_600_000;
let written = 0;

/**
 * @param {Member[]} members @param {Corpus} rows
 * @param {{ perNode: number, writes?: number }} options  writers on each node, and how many writes of all of them, if not until `stop`
 */
function startWriters(members, rows, { perNode, writes = Number.POSITIVE_INFINITY }) {
  const tally = {
    sent: 0,
    acknowledged: 0,
    direct: 0,
    redirected: 0,
    refused: 0,
    unready: 0,
    unanswered: 0,
  };
  /** @type {Map<string, OwnWrite[]>} */
  const history = new Map();
  const began = performance.now();
  let ending = false;

  /** @param {string} home */
  async function writer(home) {
    const agent = new http.Agent({ keepAlive: true });
    while (!ending && tally.sent < writes) {
      tally.sent += 1;
      if (!(await write(agent, home, written++))) await sleep(RETRY_MS);
    }
    agent.destroy();
  }

  /** @param {http.Agent} agent @param {string} home @param {number} n  the n-th write of all */
  async function write(agent, home, n) {
    const i = rows.nth(n);
    const key = rows.key(i);
    const row = { ...rows.value(i, Date.now()), nextRenderTime: firstDue + n };
    /** @type {OwnWrite} */
    const made = {
      value: row.nextRenderTime,
      start: performance.now(),
      end: Number.POSITIVE_INFINITY,
      sentAt: ns(),
      hadAnswerAt: Number.POSITIVE_INFINITY,
    };
    const of = history.get(key) ?? [];
    history.set(key, of);
    of.push(made);
    const path = `/render_schedule/${encodeURIComponent(key)}`;
    let url = home;
    for (let hop = 0; hop < MOST_HOPS; hop++) {
      let answered;
      try {
        answered = await request(url + path, 'PUT', row, agent);
      } catch {
        // It may have been written all the same.
        tally.unanswered += 1;
        return false;
      }
      if (answered.status < 300) {
        made.hadAnswerAt = ns();
        made.end = performance.now();
        tally.acknowledged += 1;
        tally[hop === 0 ? 'direct' : 'redirected'] += 1;
        return true;
      }
      if (answered.status === 503) {
        // It is starting: nothing was written.
        tally.unready += 1;
        of.splice(of.indexOf(made), 1);
        return false;
      }
      if (answered.status !== 421) break;
      url = answered.answer.url ?? home;
      if (hop > 0) await sleep(RETRY_MS);
    }
    tally.refused += 1;
    of.splice(of.indexOf(made), 1);
    return false;
  }

  const running = Promise.all(
    members.flatMap(({ host }) => Array.from({ length: perNode }, () => writer(host.url))),
  );
  return {
    tally,
    history,
    /** When all writes have been answered. */
    done: running.then(() => performance.now() - began),
    async stop() {
      ending = true;
      await running;
    },
  };
}

/**
 * What the listeners were told of the acknowledged writes: of each distinct row the owner's must have been told, the last
 * time what the table has now, and no other node's anything.
 *
 * @param {Map<string, OwnWrite[]>} history @param {{ name: string, seen: Seen }[]} nodes @param {(key: string) => any} get
 */
function followWrites(history, nodes, get) {
  const names = nodes.map(({ name }) => name);
  /** When an owner's queue had the write with this due time. @type {Map<number, number>} */
  const hadAt = new Map();
  /** The due time that an owner's listener was told last. @type {Map<string, number | null>} */
  const last = new Map();
  let foreign = 0;
  for (const { name, seen } of nodes) {
    for (const [i, key] of seen.keys.entries()) {
      if (ownerOf(key, names) !== name) {
        foreign += 1;
        continue;
      }
      const due = seen.dues[i];
      last.set(key, due);
      if (due !== null && !hadAt.has(due)) hadAt.set(due, seen.hadAt[i]);
    }
  }
  /** From the answer, and from the sending, to the queue's having it, in ms. */
  const [fromAnswer, fromSending] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
  const uncovered = [];
  let distinct = 0;
  let superseded = 0;
  for (const [key, writes] of history) {
    const answered = writes.filter(({ end }) => end !== Number.POSITIVE_INFINITY);
    if (answered.length === 0) continue;
    distinct += 1;
    if (!last.has(key) || last.get(key) !== get(key)?.nextRenderTime) uncovered.push(key);
    for (const { value, sentAt, hadAnswerAt } of answered) {
      const at = hadAt.get(value);
      if (at === undefined) {
        superseded += 1;
        continue;
      }
      fromAnswer.push((at - hadAnswerAt) / 1e6);
      fromSending.push((at - sentAt) / 1e6);
    }
  }
  const lag = (/** @type {number[]} */ ms) => ({
    p50: quantile(ms, 0.5),
    p99: quantile(ms, 0.99),
    longest: quantile(ms, 1),
  });
  return {
    distinct,
    uncovered,
    superseded,
    foreign,
    lagMs: lag(fromAnswer),
    fromSendingMs: lag(fromSending),
    beforeAnswer: fromAnswer.filter((ms) => ms <= 0).length / fromAnswer.length,
  };
}

module.exports = { startWriters, followWrites };
