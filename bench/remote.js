/**
 * `node bench/remote.js`: writes rows of all owners to each node of a cluster that runs elsewhere, over HTTP alone, and looks for
 * every one of them in its owner's queue; then it watches the states. For Harper and for the standalone service; how to use it
 * is in README.md beside this file. Its rows are due in a year, and are deleted at the end.
 */

const os = require('node:os');
const { readOptions, refuse } = require('./support/options.js');
const { printTable, short, shown, startProgress, writeResults } = require('./support/report.js');
const { summary } = require('./support/statistics.js');

/** @typedef {{ name: string, url: string }} Node */
/** @typedef {{ status: number, answer: any }} Answered */

const MINUTE = 60_000;
const YEAR = 365 * 24 * 60 * MINUTE;
const WRITERS = 4;
/** Every so many-th write is looked for at once, again and again, until its owner's queue has it. */
const LOOK_EVERY = 20;
const PATIENCE_MS = 30_000;
const POLL_MS = 100;
/** After a write that got no answer. */
const RETRY_MS = 250;
const MOST_HOPS = 4;
const ADMIN = '/prerender_admin';

const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
const number = (/** @type {number} */ n) => n.toLocaleString('en');

/** @param {string} option @param {string} text @returns {Node[]} */
function nodesOf(option, text) {
  const nodes = text.split(',').map((one) => {
    const [name, ...rest] = one.split('=');
    return { name, url: rest.join('=').replace(/\/$/, '') };
  });
  for (const { name, url } of nodes) {
    if (!name || !URL.canParse(url) || !/^https?:/.test(url))
      refuse(
        'remote',
        `--${option} must be such as a=https://a.example:9926,b=https://b.example:9926, and is '${text}'`,
      );
  }
  return nodes;
}

/** @param {string | undefined} authorization */
function createClient(authorization) {
  /** @param {string} method @param {string} url @param {object} [body] @returns {Promise<Answered>} */
  return async function ask(method, url, body) {
    /** @type {Record<string, string>} */
    const headers = { accept: 'application/json' };
    if (authorization) headers.authorization = authorization;
    if (body) headers['content-type'] = 'application/json';
    const options = { method, headers, body: body && JSON.stringify(body) };
    const response = await fetch(url, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });
    const text = await response.text();
    /** @type {any} */
    let answer = text;
    try {
      answer = JSON.parse(text);
    } catch {
      // Some answers have no body, or are for people.
    }
    return { status: response.status, answer };
  };
}

/** @param {ReturnType<typeof createClient>} ask @param {Node[]} nodes @param {string} path */
function createCluster(ask, nodes, path) {
  /** @param {string} name */
  const urlOf = (name) => nodes.find((node) => node.name === name)?.url;
  const rowUrl = (/** @type {string} */ url, /** @type {string} */ key) =>
    url + path + encodeURIComponent(key);
  return {
    nodes,
    /** @param {Node} node */
    async state({ name, url }) {
      const { status, answer } = await ask('GET', `${url}${ADMIN}/queue-state`).catch((error) => {
        throw new Error(`${name} cannot be reached: ${error.cause?.message ?? error.message}`);
      });
      if (!answer?.trust)
        throw new Error(`${name} answers with ${status}: ${answer?.error ?? answer}`);
      return answer;
    },
    /** @param {string} url @param {string} key */
    async explain(url, key) {
      const { status, answer } = await ask('POST', `${url}${ADMIN}/explain`, { key });
      if (status !== 200)
        throw new Error(`${url} answers with ${status}: ${answer?.error ?? answer}`);
      return answer;
    },
    /** Where a key's owner answers. @param {string} key */
    async ownerUrl(key) {
      const { owner } = await this.explain(nodes[0].url, key);
      const url = urlOf(owner);
      if (!url) throw new Error(`${key} belongs to ${owner}, which --nodes does not name`);
      return url;
    },
    /** To the node given, and from there to whom it names. @param {'PUT' | 'DELETE'} method @param {string} home @param {string} key @param {object} [row] */
    async send(method, home, key, row) {
      let url = home;
      for (let hops = 0; ; hops++) {
        const { status, answer } = await ask(method, rowUrl(url, key), row);
        if (status === 421 && hops < MOST_HOPS && answer.url) url = answer.url;
        else return { status, answer, hops };
      }
    },
    /** @param {string} url @param {string} key */
    async row(url, key) {
      const { status, answer } = await ask('GET', rowUrl(url, key));
      return status === 200 ? answer : null;
    },
  };
}

/** @param {ReturnType<typeof createCluster>} cluster @param {{ homes: Node[], total: number, keys: string[] }} plan */
async function write(cluster, { homes, total, keys }) {
  const tally = { sent: 0, acknowledged: 0, direct: 0, redirected: 0, refused: 0, unanswered: 0 };
  /** The due times that were written, by key. @type {Map<string, Set<number>>} */
  const written = new Map();
  /** @type {Set<string>} */
  const acknowledged = new Set();
  const [lag, look] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
  const firstDue = Math.floor((Date.now() + YEAR) / MINUTE) * MINUTE;
  /** Why some were refused. @type {Set<string>} */
  const why = new Set();

  /** From the answer until the owner's queue says so, by one look after the other. @param {string} url @param {string} key @param {number} due */
  async function measure(url, key, due) {
    const began = performance.now();
    for (;;) {
      const asked = performance.now();
      const { dueAt } = await cluster.explain(url, key);
      look.push(performance.now() - asked);
      // A later write of the key will do.
      if (dueAt >= due) return void lag.push(performance.now() - began);
      if (performance.now() - began > PATIENCE_MS) return;
    }
  }

  /** @param {Node} home */
  async function writer(home) {
    while (tally.sent < total) {
      const n = tally.sent++;
      const key = keys[n % keys.length];
      // Each its own minute: the queue keeps no seconds.
      const due = firstDue + n * MINUTE;
      const of = written.get(key) ?? new Set();
      written.set(key, of.add(due));
      try {
        const row = { cacheKey: key, nextRenderTime: due, fromSitemap: true };
        const owner = n % LOOK_EVERY === 0 ? await cluster.ownerUrl(key) : null;
        const { status, answer, hops } = await cluster.send('PUT', home.url, key, row);
        if (status >= 300) {
          tally.refused += 1;
          why.add(`${home.name}: ${status} ${answer?.error ?? String(answer).slice(0, 200)}`);
          continue;
        }
        tally.acknowledged += 1;
        acknowledged.add(key);
        tally[hops === 0 ? 'direct' : 'redirected'] += 1;
        if (owner) await measure(owner, key, due);
      } catch (error) {
        // It may have been written all the same.
        tally.unanswered += 1;
        const { message, cause } = /** @type {any} */ (error);
        why.add(`${home.name}: ${cause?.message ?? message}`);
        await sleep(RETRY_MS);
      }
    }
  }

  const began = performance.now();
  await Promise.all(homes.flatMap((node) => Array.from({ length: WRITERS }, () => writer(node))));
  const ms = performance.now() - began;
  for (const key of [...written.keys()].filter((one) => !acknowledged.has(one)))
    written.delete(key);
  return { tally, written, ms, lag: summary(lag), look: summary(look), why: [...why] };
}

/**
 * Each distinct row at its owner: kept as the table there has it, and at no other node.
 *
 * @param {ReturnType<typeof createCluster>} cluster @param {Map<string, Set<number>>} written
 */
async function check(cluster, written) {
  const found = { distinct: written.size, uncovered: 0, elsewhere: 0 };
  const examples = [];
  for (const [key, dues] of written) {
    const deadline = performance.now() + PATIENCE_MS;
    let said = '';
    let url = '';
    for (;;) {
      url = await cluster.ownerUrl(key);
      const row = await cluster.row(url, key);
      const { kept, dueAt } = await cluster.explain(url, key);
      const due = Number(row?.nextRenderTime);
      if (row && kept && dues.has(due) && dueAt === due) break;
      said = `${key}: kept ${kept}, due ${dueAt}, and ${row ? due : 'not there'} in the table`;
      if (performance.now() > deadline) {
        found.uncovered += 1;
        examples.push(said);
        break;
      }
      await sleep(POLL_MS);
    }
    for (const node of cluster.nodes.filter((one) => one.url !== url)) {
      if ((await cluster.explain(node.url, key)).kept) {
        found.elsewhere += 1;
        examples.push(`${key} is kept at ${node.name}, too`);
      }
    }
  }
  return { ...found, examples: examples.slice(0, 3) };
}

/** Looks at all states until the time is over: where events come in a burst, it is told how many, and how fast. @param {ReturnType<typeof createCluster>} cluster @param {number} seconds */
async function watch(cluster, seconds) {
  const seen = cluster.nodes.map(({ name }) => ({
    name,
    ...{ asked: 0, live: 0, exact: 0, unanswered: 0 },
    burst: { events: 0, ms: 0 },
  }));
  const end = performance.now() + seconds * 1000;
  await Promise.all(
    cluster.nodes.map(async (node, i) => {
      let run = { events: 0, ms: 0 };
      let before = { at: performance.now(), events: Number.NaN };
      while (performance.now() < end) {
        await sleep(POLL_MS);
        try {
          const { trust } = await cluster.state(node);
          const at = performance.now();
          seen[i].asked += 1;
          if (trust.live) seen[i].live += 1;
          if (trust.exact) seen[i].exact += 1;
          const came = trust.keeper.eventsApplied - before.events;
          // As long as some come between one look and the next.
          run =
            came > 0
              ? { events: run.events + came, ms: run.ms + at - before.at }
              : { events: 0, ms: 0 };
          if (run.events > seen[i].burst.events) seen[i].burst = { ...run };
          before = { at, events: trust.keeper.eventsApplied };
        } catch {
          seen[i].unanswered += 1;
        }
      }
    }),
  );
  return seen;
}

async function main() {
  const options = readOptions(
    'remote',
    {
      nodes: {
        what: 'all nodes of the ring, named as their states name them',
        text: 'NAME=URL,...',
      },
      joining: { what: 'nodes that join the ring meanwhile', text: 'NAME=URL,...' },
      at: {
        what: 'where a row is PUT, its key behind it',
        text: '/PATH/',
        normally: '/render_schedule/',
      },
      prefix: {
        what: 'of the keys, of which there is nothing yet',
        text: 'URL',
        normally: 'https://bench.invalid/',
      },
      writes: {
        what: 'of rows of all owners, from each node',
        normally: 2_000,
        quick: 100,
        least: 0,
      },
      watch: { what: 'seconds that the states are watched after them', normally: 0, least: 0 },
      keep: { what: 'leaves the rows where they are', flag: true },
    },
    { quickly: 'few writes' },
  );
  const { writes, quick, out } = options;
  const homes = nodesOf('nodes', options.nodes ?? '');
  const joining = options.joining === null ? [] : nodesOf('joining', options.joining);
  const nodes = [...homes, ...joining];
  const { AUTHORIZATION } = process.env;
  const cluster = createCluster(createClient(AUTHORIZATION), nodes, options.at);
  const total = writes * homes.length;
  // Each is written four times, from different nodes.
  const keys = Array.from({ length: Math.ceil(total / 4) }, (_, i) => `${options.prefix}${i}`);
  console.log(
    `${homes.length} nodes, ${number(total)} writes of ${number(keys.length)} rows below ${options.prefix} at ${options.at}; each row is looked for at its owner` +
      `${options.watch > 0 ? `, then the states are watched for ${options.watch} s` : ''}${options.keep ? '' : ', and deleted'}. ` +
      `${AUTHORIZATION ? '' : 'Without credentials: AUTHORIZATION in the environment is sent as that header. '}${out ? `Writes ${shown(out)}.` : ''}`,
  );
  const { stage, seconds } = startProgress();
  const loadAverageBefore = os.loadavg();
  /** @type {string[]} */
  const wrong = [];
  const must = (/** @type {boolean} */ isRight, /** @type {string} */ what) => {
    if (!isRight) wrong.push(what);
    stage(`${isRight ? 'right' : 'WRONG'}: ${what}`);
  };
  const statesOf = () => Promise.all(nodes.map((node) => cluster.state(node)));

  const before = await statesOf();
  const names = JSON.stringify(homes.map(({ name }) => name).sort());
  for (const [i, { node, trust }] of before.entries()) {
    const ring = JSON.stringify(trust.keeper.ring);
    const isMeant = node === nodes[i].name && (i >= homes.length || ring === names);
    if (!isMeant)
      refuse(
        'remote',
        `${nodes[i].url} is node ${node} of the ring ${ring}, and --nodes says ${nodes[i].name} of ${names}`,
      );
  }
  must(
    before.every(({ trust }) => trust.exact),
    'before: every state is exact',
  );

  stage(`${number(total)} writes`);
  const made = await write(cluster, { homes, total, keys });
  const { tally, lag, look } = made;
  for (const why of made.why.slice(0, 5)) stage(`  ${why}`);
  must(
    tally.acknowledged === total,
    `${number(tally.acknowledged)} of ${number(total)} writes were acknowledged`,
  );
  const found = await check(cluster, made.written);
  for (const example of found.examples) stage(`  ${example}`);
  must(
    found.uncovered + found.elsewhere === 0,
    `${number(found.distinct)} distinct rows: ${found.uncovered} not in their owner's queue as its table has them, ${found.elsewhere} in another's, too`,
  );
  const after = await statesOf();
  const grown = (/** @type {number} */ i, /** @type {string} */ field) =>
    after[i].trust.keeper[field] - before[i].trust.keeper[field];
  const all = (/** @type {string} */ field) =>
    nodes.reduce((sum, _, i) => sum + grown(i, field), 0);
  must(
    after.every(({ trust }) => trust.exact),
    `after: every state is exact, ${all('repairedTotal')} rows put right, ${all('rows')} rows more`,
  );
  const watched = options.watch > 0 ? await watch(cluster, options.watch) : [];
  for (const { name, asked, live, exact, unanswered, burst } of watched) {
    stage(
      `${name}: ${asked} looks, ${live} live, ${exact} exact, ${unanswered} not answered; at most ${number(burst.events)} events on end, in ${burst.ms.toFixed(0)} ms`,
    );
  }
  must(
    watched.every(({ asked, exact }) => asked === exact),
    'every state watched is exact',
  );
  if (!options.keep && keys.length > 0) {
    stage('deleting the rows');
    for (const key of keys) await cluster.send('DELETE', await cluster.ownerUrl(key), key);
    const deadline = performance.now() + PATIENCE_MS;
    let left = Number.NaN;
    for (; left !== 0 && performance.now() < deadline; await sleep(POLL_MS)) {
      left = (await statesOf()).reduce(
        (sum, { trust }, i) => sum + trust.keeper.rows - before[i].trust.keeper.rows,
        0,
      );
    }
    must(left === 0, `${number(found.distinct)} rows deleted, ${left} more are kept than before`);
  }
  stage('done');

  console.log('');
  printTable([
    ['node', 'events', 'put right', 'rows now', 'exact'],
    ...nodes.map(({ name }, i) => [
      name,
      number(grown(i, 'eventsApplied')),
      String(grown(i, 'repairedTotal')),
      number(after[i].trust.keeper.rows),
      after[i].trust.exact ? 'yes' : 'no',
    ]),
  ]);
  console.log(`
- ${(tally.acknowledged / (made.ms / 1000)).toFixed(0)} writes/s, ${number(tally.direct)} taken by the node they were sent to, ${number(tally.redirected)} sent on after 421.
- From the answer until the owner's queue was seen to have it: p50 ${short(lag.p50)} ms, p99 ${short(lag.p99)} ms, of ${lag.count} looked for; one look takes ${short(look.p50)} ms (p50).
- ${wrong.length === 0 ? 'All of it was right.' : `WRONG: ${wrong.join('; ')}`}
`);
  if (out && !quick) {
    const { written: _, ...figures } = made;
    writeResults(out, seconds(), {
      nodes: nodes.length,
      loadAverageBefore,
      wrong,
      ...figures,
      found,
      watched,
    });
  }
  if (wrong.length > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
