'use strict';

/**
 * The standalone host: one process, one port, several worker threads, one queue. The main thread starts and
 * watches the others and carries connections to them; it answers no request itself.
 */

const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { createAcceptor } = require('./acceptor.js');
const { Board } = require('./board.js');
const { lockFolder } = require('./folder-lock.js');
const { startLiveLine } = require('./live-line.js');
const { readConfig, readOptions, UsageError, USAGE } = require('./options.js');
const { Nodes, otherOwner } = require('./nodes.js');
const { SAMPLE_ROUTES, writeSample } = require('./sample.js');
const { importSitemap } = require('./sitemap.js');
const { openTable, startWriter } = require('./table.js');

const KEEPER_NAME = 'render-queue';
const DEFAULT_SAMPLE = 20_000;
/** A worker that is silent for so long is ended and replaced. */
const WORKER_SILENCE_MS = 15_000;
/** One that is silent for so long gets no new connection while there are others. */
const BUSY_MS = 1_000;
const WATCH_MS = 500;
/** A worker that ends sooner than this after its start is replaced no faster. */
const RESTART_MS = 1_000;
const STOP_MS = 4_000;

/** Something that keeps the host from starting, said in a sentence. */
class StartError extends Error {}

/**
 * @typedef {object} Member  one worker thread
 * @property {number} index
 * @property {Worker} worker
 * @property {boolean} ready
 * @property {boolean} isFirst  of its index
 * @property {string} path
 * @property {number} connections
 * @property {() => boolean} responsive
 * @property {number} startedAt
 */

/** @param {string[]} args */
async function main(args) {
  const options = readOptions(args);
  if (options.help) {
    process.stdout.write(USAGE);
    return;
  }
  if (options.sitemap !== undefined && !fs.existsSync(options.sitemap)) {
    throw new UsageError(`--sitemap ${options.sitemap}: there is no such file.`);
  }
  const named = options.config === undefined ? null : readConfig(options.config);
  const lock = await lockFolder(options.data);
  /** @type {Host | null} */
  let host = null;
  const { acceptor, url } = await listen(options, () => host?.backends() ?? []).catch((error) => {
    lock.release();
    throw error;
  });
  const writer = await startWriter(options.data);
  host = new Host({ options, lock, acceptor, writer });
  try {
    await host.start({ url, named });
  } catch (error) {
    // Told to stop, it takes down what was still being done.
    const isAsked = host.stopping;
    await host.stop();
    if (!isAsked) throw error;
  }
}

/**
 * Until there are backends, it answers that there are none yet.
 *
 * @param {ReturnType<typeof readOptions>} options
 * @param {() => Iterable<Member>} backends
 */
async function listen({ host, port }, backends) {
  const acceptor = createAcceptor({ host, port, backends });
  const bound = await acceptor.listen().catch((error) => {
    throw new StartError(
      error.code === 'EADDRINUSE'
        ? `port ${port} is taken: stop what listens there, or choose another with --port`
        : `cannot listen on ${host}:${port}: ${error.message}`,
    );
  });
  return { acceptor, url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}` };
}

/** Whether files beside the table tell of a host before: the table may be lost. @param {string} data */
function hasTraces(data) {
  return fs.readdirSync(data).some((name) => /^(queue\.snapshot|config\.json)/.test(name));
}

class Host {
  #options;
  #lock;
  #acceptor;
  #writer;
  #table;
  #board = new Board();
  /** @type {(Member | undefined)[]} */
  #members = [];
  /** Who feeds is the workers' affair: see `arbiter.js`. @type {Member | null} */
  #feeder = null;
  #epoch = 0;
  /** @type {Promise<void> | null} */
  #stopped = null;
  #generation = 0;
  /** @type {ReturnType<typeof startLiveLine> | null} */
  #line = null;
  /** @type {Worker | null} */
  #fleet = null;
  /** @type {any} */
  #keeper = null;
  /** @type {{ keeper: Record<string, any>, verifyEveryMs?: number }} */
  #config = { keeper: {} };
  /** @type {NodeJS.Timeout | undefined} */
  #watch;
  #lookedAt = 0;
  /** Since when this thread has not stood still itself. */
  #awakeSince = 0;

  /**
   * @param {object} parts
   * @param {ReturnType<typeof readOptions>} parts.options
   * @param {Awaited<ReturnType<typeof lockFolder>>} parts.lock
   * @param {ReturnType<typeof createAcceptor>} parts.acceptor
   * @param {Awaited<ReturnType<typeof startWriter>>} parts.writer
   */
  constructor({ options, lock, acceptor, writer }) {
    this.#options = options;
    this.#lock = lock;
    this.#acceptor = acceptor;
    this.#writer = writer;
    this.#table = openTable(options.data, writer.connect());
    this.#watchWriter();
  }

  /**
   * @param {object} parts
   * @param {string} parts.url
   * @param {{ keeper: Record<string, any>, verifyEveryMs?: number } | null} parts.named  by --config
   */
  async start({ url, named }) {
    const { workers, data, sample, sitemap, fleet, node } = this.#options;
    for (const signal of /** @type {const} */ (['SIGTERM', 'SIGINT'])) {
      process.on(signal, () => void this.#stopBySignal());
    }
    // Whether a first start has come to its end: false from its sample on, and unset by versions before this one.
    const used = this.#table.setting('used');
    const isUsed = used ?? (hasTraces(data) || this.#table.count() > 0);
    // A node that joins others gets its rows from them.
    const isForShow = !isUsed && !sitemap && node === undefined;
    const rows = sample ?? (isForShow ? DEFAULT_SAMPLE : 0);
    if (rows > 0 && !isUsed) await this.#table.saveSetting('used', false);
    this.#config = named ?? this.#ownConfig(rows);
    await this.#chooseNodes();
    this.#openKeeper();
    if (rows > 0) await this.#addSample(rows, named !== null);

    await Promise.all(Array.from({ length: workers }, (_, index) => this.#startWorker(index)));
    this.#watch = setInterval(() => this.#look(), WATCH_MS);
    if (used !== true) await this.#table.saveSetting('used', true);
    this.#welcome(url, data);
    if (!sitemap && this.#table.count() === 0) {
      this.#print(
        'the table is empty: write rows into it, or start again with --sitemap FILE or --sample N',
      );
    }
    if (fleet > 0) this.#startFleet(url, fleet);
    if (sitemap) await this.#importSitemap(sitemap);
    this.#line = startLiveLine({
      state: () => this.#keeper.state(),
      jobs: () => this.#board.read('jobs'),
    });
  }

  // Rows and configuration

  /**
   * The configuration that lies in the data folder; with a first sample, that sample's routes.
   *
   * @param {number} sampleRows
   */
  #ownConfig(sampleRows) {
    const file = path.join(this.#options.data, 'config.json');
    if (!fs.existsSync(file) && sampleRows > 0) {
      fs.writeFileSync(file, `${JSON.stringify({ routes: SAMPLE_ROUTES }, null, 2)}\n`);
    }
    return fs.existsSync(file) ? readConfig(file) : { keeper: {} };
  }

  /** The list of nodes: the one given, else the one set while the host last ran, else the configuration's. */
  async #chooseNodes() {
    const { node, nodes } = this.#options;
    const { keeper } = this.#config;
    if (node !== undefined) keeper.node = node;
    const list = new Nodes({ table: this.#table, named: [] });
    if (nodes) {
      const isOther = list.isStored && JSON.stringify(list.all()) !== JSON.stringify(nodes);
      if (isOther) this.#print('--nodes replaces the nodes that were set while this host last ran');
      await list.save(nodes);
    }
    // What the configuration says, right or wrong, is the keeper's affair.
    if (list.isStored) keeper.nodes = list.names();
  }

  #openKeeper() {
    const { QueueKeeper } = require('../../index.js');
    try {
      this.#keeper = QueueKeeper.open(KEEPER_NAME, this.#config.keeper);
    } catch (error) {
      throw new UsageError(`the configuration is wrong: ${/** @type {Error} */ (error).message}`);
    }
    this.#keeper.expectFeeder();
    for (const { what } of this.#keeper.state().trust.keeper.invalidRules) {
      this.#print(`a rule of the configuration is left out: ${what}`);
    }
    if (this.#table.setting('paused') === true) {
      this.#keeper.pause();
      this.#print(
        'claims are paused, as they were when this host last ran: POST /render_queue/resume',
      );
    }
  }

  /** Which pages another node writes, where there is one. */
  #isForeign() {
    if (this.#keeper.state().trust.keeper.ring.length === 1) return null;
    return (/** @type {string} */ key) => otherOwner(this.#keeper, key) !== null;
  }

  /**
   * @param {number} rows
   * @param {boolean} carried
   */
  async #addSample(rows, carried) {
    const isForeign = this.#isForeign();
    const written = await writeSample(this.#table, rows, { now: Date.now(), carried, isForeign });
    this.#print(`${written} sample rows written to ${this.#options.data}`);
  }

  /** @param {string} file */
  async #importSitemap(file) {
    const started = Date.now();
    let shownAt = started;
    const { isTTY } = process.stderr;
    const imported = importSitemap(file, {
      table: this.#table,
      now: started,
      isForeign: this.#isForeign(),
      onProgress: ({ bytes, totalBytes, urls }) => {
        if (Date.now() - shownAt < (isTTY ? 200 : 5_000)) return;
        shownAt = Date.now();
        const share = totalBytes > 0 ? Math.min(1, bytes / totalBytes) : 1;
        const bar = `${'#'.repeat(Math.round(share * 30)).padEnd(30, '.')}`;
        const text = `sitemap [${bar}] ${Math.round(share * 100)} % · ${urls} pages`;
        if (isTTY) process.stderr.write(`\r\x1b[K${text}`);
        else this.#print(text);
      },
    });
    // The host serves already: an import that fails must not end it.
    const report = await imported.catch((error) => {
      this.#print(`the sitemap was not imported to its end: ${error.message}; import it again`);
      return null;
    });
    if (report === null) return;
    const seconds = ((Date.now() - started) / 1_000).toFixed(1);
    this.#print(
      `sitemap: ${report.urls} pages in ${report.files} files, ${report.written} written, ` +
        `${report.unchanged} known already, ${report.skipped} skipped` +
        `${report.foreign > 0 ? `, ${report.foreign} of other nodes left to them` : ''}, ${seconds} s`,
    );
    for (const { file: from, line, reason } of report.problems) {
      this.#print(`${from}${line === null ? '' : `:${line}`}: ${reason}`);
    }
    for (const url of report.notFetched) this.#print(`not fetched: ${url} (save it as a file)`);
  }

  // Threads

  #watchWriter() {
    const writer = this.#writer;
    writer.worker.on('error', (error) => this.#print(`the writing thread failed: ${error.stack}`));
    void writer.gone.then(() => {
      if (!this.stopping && !writer.stopped) return this.#replaceWriter();
    });
  }

  async #replaceWriter() {
    this.#print('the writing thread has ended: it is replaced');
    for (;;) {
      try {
        this.#writer = await startWriter(this.#options.data);
        break;
      } catch (error) {
        this.#print(`the writing thread does not start: ${/** @type {Error} */ (error).message}`);
        await new Promise((resolve) => setTimeout(resolve, RESTART_MS));
        if (this.stopping) return;
      }
    }
    this.#watchWriter();
    this.#table.attach(this.#writer.connect());
    for (const member of this.#members) {
      if (!member) continue;
      const connection = this.#writer.connect();
      member.worker.postMessage({ connection }, [connection.port]);
    }
  }

  /**
   * Resolves when the worker answers requests, rejects when it ends before.
   *
   * @param {number} index
   */
  #startWorker(index) {
    this.#generation += 1;
    const socket = path.join(this.#lock.sockets, `worker-${index}-${this.#generation}.sock`);
    const connection = this.#writer.connect();
    this.#board.beat(index);
    const worker = new Worker(path.join(__dirname, 'worker.js'), {
      workerData: {
        index,
        data: this.#options.data,
        socket,
        connection,
        board: this.#board.cells,
        keeper: this.#config.keeper,
        token: this.#options.token,
        verifyEveryMs: this.#config.verifyEveryMs,
        snapshot: path.join(this.#options.data, 'queue.snapshot'),
      },
      transferList: [connection.port],
    });
    /** @type {Member} */
    const member = {
      index,
      worker,
      ready: false,
      isFirst: this.#members[index] === undefined,
      path: socket,
      connections: 0,
      responsive: () => this.#board.silence(index) < BUSY_MS,
      startedAt: Date.now(),
    };
    this.#members[index] = member;
    return new Promise((resolve, reject) => {
      worker.on('error', (error) => {
        this.#print(`worker ${index} failed: ${error.stack ?? error}`);
        reject(error);
      });
      worker.on('exit', () => {
        reject(new StartError(`worker ${index} ended while it was starting`));
        this.#replace(member);
      });
      worker.on('message', (message) => {
        if (message.listening) {
          member.ready = true;
          resolve(undefined);
        }
        this.#hear(member, message);
      });
    });
  }

  /** @param {Member} member  which has ended */
  #replace(member) {
    fs.rmSync(member.path, { force: true });
    const started = member.ready;
    member.ready = false;
    // A first one that does not start ends the host's start.
    if (this.stopping || (member.isFirst && !started)) return;
    if (this.#feeder === member) {
      this.#feeder = null;
      this.#keeper.vacate(this.#epoch);
    }
    this.#print(`worker ${member.index} has ended: it is replaced`);
    const soonest = started ? Math.max(0, member.startedAt + RESTART_MS - Date.now()) : RESTART_MS;
    setTimeout(() => {
      // What keeps it from starting was said, and it is tried again.
      if (!this.stopping) this.#startWorker(member.index).catch(() => {});
    }, soonest);
  }

  /**
   * @param {Member} member
   * @param {any} message
   */
  #hear(member, message) {
    if (message.log) this.#print(message.log);
    if (message.paused !== undefined) this.#feeder?.worker.postMessage({ checkStatus: true });
    if (message.feeding === undefined) return;
    this.#print(`worker ${member.index} feeds${message.feeding ? '' : ' no longer'}`);
    if (message.feeding) {
      this.#feeder = member;
      this.#epoch = message.epoch;
    } else if (this.#feeder === member) this.#feeder = null;
  }

  /** Looks after threads that live but stand still, and after the queue itself. */
  #look() {
    try {
      void this.#keeper.status;
    } catch (error) {
      // Nothing in this process can bring it back; the rows are safe, and a new process loads them.
      this.#print(`the queue is lost, start again: ${/** @type {Error} */ (error).message}`);
      process.exit(1);
    }
    // While the process was asleep nobody could be heard of: see `arbiter.js`.
    const now = performance.now();
    if (now - this.#lookedAt >= 4 * WATCH_MS) this.#awakeSince = now;
    this.#lookedAt = now;
    for (const member of this.#members) {
      if (!member?.ready) continue;
      const silence = this.#board.silence(member.index);
      if (Math.min(silence, now - this.#awakeSince) > WORKER_SILENCE_MS) {
        this.#print(`worker ${member.index} has stood still for ${silence} ms: it is ended`);
        void member.worker.terminate();
      }
    }
  }

  *backends() {
    for (const member of this.#members) if (member?.ready) yield member;
  }

  // Around it

  /**
   * @param {string} url
   * @param {number} renderers
   */
  #startFleet(url, renderers) {
    const { token } = this.#options;
    this.#fleet = new Worker(path.join(__dirname, 'fleet.js'), {
      workerData: { fleet: { url, token, renderers } },
    });
    this.#fleet.on('error', (error) => this.#print(`the fleet failed: ${error.stack}`));
    this.#print(`${renderers} simulated renderers are at work`);
  }

  async #stopFleet() {
    const fleet = this.#fleet;
    if (!fleet) return;
    this.#fleet = null;
    const tally = await new Promise((resolve) => {
      fleet.once('message', resolve);
      fleet.once('exit', () => resolve(null));
      fleet.postMessage('stop');
      setTimeout(() => void fleet.terminate(), 1_500).unref();
    });
    if (tally) this.#print(`fleet: ${JSON.stringify(tally)}`);
  }

  /**
   * @param {string} url
   * @param {string} data
   */
  #welcome(url, data) {
    const { token, workers } = this.#options;
    const auth = token === undefined ? '' : ` -H 'authorization: Bearer ${'<token>'}'`;
    const json = `${auth} -H 'content-type: application/json'`;
    const at = encodeURIComponent('https://www.example.com/');
    process.stdout.write(`
The render queue listens on ${url}, with ${workers} workers, rows in ${path.resolve(data)}

  what is due          curl -s${auth} ${url}/queue_status
  claim two pages      curl -s${json} ${url}/render_queue/claim -d '{"limit": 2}'
  report one rendered  curl -s${json} ${url}/render_queue/job_result \\
                         -d '{"key": "<key>", "token": <token>, "outcome": "rendered"}'
  schedule a page      curl -s${json} -X PUT ${url}/render_schedule/${at} \\
                         -d '{"nextRenderTime": 0, "fromSitemap": true}'
  everything about it  curl -s${json} ${url}/prerender_admin/explain -d '{"key": "https://www.example.com/"}'
  a page that shows it ${url}/console/
  the whole state      curl -s${auth} ${url}/prerender_admin/queue-state
  for Prometheus       curl -s${auth} ${url}/metrics

Ctrl-C stops it.

`);
  }

  /** @param {string} text */
  #print(text) {
    if (this.#line) this.#line.print(text);
    else process.stderr.write(`${text}\n`);
  }

  async #stopBySignal() {
    await this.stop();
    process.exit(0);
  }

  get stopping() {
    return this.#stopped !== null;
  }

  /** Answers what was asked, takes nothing new, and ends within five seconds. May be called again. */
  stop() {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop() {
    clearInterval(this.#watch);
    await this.#stopFleet();
    const drained = this.#acceptor.close(STOP_MS - 1_000);
    await Promise.all(this.#members.map((member) => member && stopWorker(member)));
    await drained;
    this.#line?.stop();
    await this.#table.close();
    await this.#writer.stop();
    this.#lock.release();
  }
}

/** @param {Member} member */
async function stopWorker({ worker }) {
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  worker.postMessage({ stop: true });
  const timer = setTimeout(() => void worker.terminate(), STOP_MS - 1_000);
  // It may have ended already.
  if (worker.threadId !== -1) await ended;
  clearTimeout(timer);
}

/** Not what the system or the caller refused, but a mistake in this program. @param {Error} error */
function isOurFault(error) {
  return (
    error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError
  );
}

if (require.main === module) {
  main(process.argv.slice(2)).catch((error) => {
    process.stderr.write(`${isOurFault(error) ? error.stack : error.message}\n`);
    process.exit(error instanceof UsageError ? 2 : 1);
  });
}

module.exports = { main };
