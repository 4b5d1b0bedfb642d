'use strict';

/**
 * One public port in front of several worker threads.
 *
 * Node 20 has no way to share a listening socket between threads (`cluster` is processes, `reusePort` came with
 * Node 23, sockets do not go through a MessagePort), so the main thread accepts and carries bytes to and from a
 * local socket of the worker that it chose, one for each connection. It reads nothing of what it carries:
 * keep-alive, streaming and half-closed connections are the worker's affair, and back-pressure passes through
 * in both directions.
 */

const net = require('node:net');

const NO_WORKER_BODY =
  '{"error":"no worker is ready yet: send the same request again in a second"}\n';
const NO_WORKER = [
  'HTTP/1.1 503 Service Unavailable',
  'content-type: application/json',
  'retry-after: 1',
  'connection: close',
  `content-length: ${NO_WORKER_BODY.length}`,
  '',
  NO_WORKER_BODY,
].join('\r\n');
/** What a worker sends first on each connection that it takes. */
const TAKEN = Buffer.of(0);
/** How long a worker may take to take one before it is offered to another, too. */
const PATIENCE_MS = 50;
/** How long a client may go on sending after it was answered, before it is cut off. */
const LINGER_MS = 5_000;

/**
 * @typedef {object} Backend  a worker's local socket
 * @property {string} path
 * @property {number} connections
 * @property {() => boolean} responsive  false for one whose event loop stands still: chosen last
 */

/**
 * @param {{ host: string, port: number, backends: () => Iterable<Backend> }} options  `backends` is asked anew for
 *   each connection
 */
function createAcceptor({ host, port, backends }) {
  /** @type {Set<net.Socket>} */
  const clients = new Set();

  /** @param {Set<Backend>} tried */
  function choose(tried) {
    /** @type {Backend | null} */
    let best = null;
    for (const backend of backends()) {
      if (tried.has(backend)) continue;
      const better =
        best === null ||
        (backend.responsive() !== best.responsive()
          ? backend.responsive()
          : backend.connections < best.connections);
      if (better) best = backend;
    }
    return best;
  }

  /**
   * Offers a client to one worker after another until one takes it: a worker says so by a first byte, so that
   * none is given to a thread that stands still.
   *
   * @param {net.Socket} client
   */
  function place(client) {
    /** @type {Set<Backend>} */
    const tried = new Set();
    /** @type {Set<net.Socket>} */
    const offers = new Set();
    let placed = false;
    /** @type {NodeJS.Timeout | undefined} */
    let timer;

    const offer = () => {
      clearTimeout(timer);
      const backend = choose(tried);
      if (!backend) {
        if (offers.size > 0) return;
        client.end(NO_WORKER);
        linger(client);
        return;
      }
      tried.add(backend);
      timer = setTimeout(offer, PATIENCE_MS);
      backend.connections += 1;
      const worker = net.connect({ path: backend.path, allowHalfOpen: true });
      offers.add(worker);
      let carries = false;
      worker.once('data', () => {
        if (placed || client.destroyed) {
          worker.destroy();
          return;
        }
        placed = true;
        carries = true;
        clearTimeout(timer);
        for (const other of offers) if (other !== worker) other.destroy();
        client.pipe(worker);
        worker.pipe(client);
      });
      worker.on('error', () => worker.destroy());
      // A thread that was ended may have its connections closed in order: then nothing else comes.
      worker.once('end', () => {
        if (!carries) worker.destroy();
      });
      worker.once('close', () => {
        backend.connections -= 1;
        offers.delete(worker);
        if (client.destroyed) return;
        if (!carries) {
          // It ended before it took anything: the next can have it.
          if (!placed) offer();
        } else if (worker.readableEnded) {
          // `pipe` has passed its end on.
          linger(client);
        } else {
          client.destroy();
        }
      });
    };
    client.once('close', () => {
      clearTimeout(timer);
      for (const worker of offers) worker.destroy();
    });
    offer();
  }

  /** Closing at once, with input unread, could take the answer away with it. @param {net.Socket} client */
  function linger(client) {
    client.resume();
    const timer = setTimeout(() => client.destroy(), LINGER_MS);
    timer.unref();
    client.once('close', () => clearTimeout(timer));
  }

  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    clients.add(client);
    client.on('error', () => client.destroy());
    client.once('close', () => clients.delete(client));
    place(client);
  });

  return {
    /** Resolves to the port listened on. @returns {Promise<number>} */
    listen() {
      return new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host, port, backlog: 1024 }, () => {
          server.removeListener('error', reject);
          // Of what can go wrong with one connection, nothing may end the process.
          server.on('error', () => {});
          resolve(/** @type {net.AddressInfo} */ (server.address()).port);
        });
      });
    },
    /** Takes no new connections; resolves when the last has gone, or was cut off after `graceMs`. */
    async close(/** @type {number} */ graceMs) {
      const closed = new Promise((resolve) => server.close(() => resolve(undefined)));
      const timer = setTimeout(() => {
        for (const client of clients) client.destroy();
      }, graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

module.exports = { createAcceptor, TAKEN };
