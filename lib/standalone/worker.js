'use strict';

/**
 * One worker thread: answers requests on a local socket that the main thread carries connections to, and feeds
 * the keeper when nobody else does.
 */

const { parentPort, workerData } = require('node:worker_threads');
const { QueueKeeper } = require('../../index.js');
const { standBy } = require('../arbiter.js');
const { Feeder } = require('../feeder.js');
const { TAKEN } = require('./acceptor.js');
const { Board, PULSE_MS } = require('./board.js');
const { startHandOver } = require('./hand-over.js');
const { Leftover } = require('./leftover.js');
const { createApi, createServer } = require('./http.js');
const { Nodes } = require('./nodes.js');
const { openTable } = require('./table.js');

/**
 * @typedef {object} WorkerData
 * @property {number} index
 * @property {string} data
 * @property {string} socket
 * @property {import('./table.js').Connection} connection
 * @property {Int32Array} board
 * @property {Record<string, any>} keeper
 * @property {string} [token]
 * @property {number} [verifyEveryMs]
 * @property {string} [snapshot]
 */

const KEEPER_NAME = 'render-queue';
const DEFAULT_NODE = 'localhost';
const DEFAULT_INTERVAL = 86_400_000;
const DRAIN_MS = 1_500;

/** @param {WorkerData} data */
function run(data) {
  /** @param {object} message */
  const tell = (message) => parentPort?.postMessage(message);
  const board = new Board(data.board);
  board.beat(data.index);
  const beating = setInterval(() => board.beat(data.index), PULSE_MS);
  const table = openTable(data.data, data.connection);
  const keeper = QueueKeeper.open(KEEPER_NAME, data.keeper);
  const { node = DEFAULT_NODE, nodes: named = [] } = data.keeper;
  const nodes = new Nodes({ table, named });
  const leftover = new Leftover({ node, table, board });
  const api = createApi({
    keeper,
    table,
    nodes,
    leftover,
    node,
    token: data.token,
    defaultInterval: data.keeper.defaultInterval ?? DEFAULT_INTERVAL,
    count: (counter) => board.count(counter),
    onPause: (paused) => tell({ paused }),
    onError: (error) => tell({ log: `a request failed: ${error.stack ?? error}` }),
  });
  const server = createServer(api);
  server.on('connection', (socket) => socket.write(TAKEN));
  /** @type {InstanceType<typeof Feeder> | null} */
  let feeder = null;
  let endHandOver = () => {};

  /** @param {number} silenceMs  of the feeder before; infinite where there is none */
  function feed(silenceMs) {
    if (feeder) return;
    if (Number.isFinite(silenceMs)) {
      const ms = Math.round(silenceMs);
      tell({ log: `the feeder has stood still for ${ms} ms: another one feeds` });
    }
    // A handle of its own: what the next feeder has refused of this one is no affair of the requests.
    const handle = QueueKeeper.open(KEEPER_NAME, data.keeper);
    const mine = new Feeder({
      keeper: handle,
      table,
      peers: () => nodes.names(),
      snapshot: data.snapshot,
      verifyEveryMs: data.verifyEveryMs,
      pulse: handle,
      log: (level, message) => tell({ log: message, level }),
    });
    feeder = mine;
    const end = startHandOver({
      table,
      keeper,
      nodes,
      leftover,
      token: data.token,
      log: (message) => tell({ log: message }),
    });
    endHandOver = end;
    const gone = () => {
      end();
      if (feeder === mine) feeder = null;
      handle.close();
      tell({ feeding: false });
    };
    mine.on('deposed', gone);
    mine.on('failed', gone);
    mine.on('status', (status) => tell({ status }));
    mine.start();
    tell({ feeding: true, epoch: handle.state().trust.keeper.epoch });
  }

  const leave = standBy({
    keeper,
    takeOver: feed,
    onError: (error) => tell({ log: `no feeder is looked for here any more: ${error}` }),
  });

  async function stop() {
    leave();
    endHandOver();
    api.drain();
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeIdleConnections();
    // The results under way belong into the last snapshot, but must not cost it.
    await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, DRAIN_MS).unref())]);
    await feeder?.stop({ phase: 'stopped' });
    await closed;
    clearInterval(beating);
    await table.close();
    tell({ stopped: true });
    parentPort?.close();
  }

  parentPort?.on('message', (message) => {
    if (message.checkStatus) feeder?.checkStatus();
    else if (message.connection) table.attach(message.connection);
    else if (message.stop) void stop();
  });
  server.listen(data.socket, () => tell({ listening: true }));
}

run(workerData);
