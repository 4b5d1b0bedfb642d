'use strict';

/**
 * One process per data folder: two would each have a queue of their own over the same rows. The lock is a
 * socket, which the system lets go of however the process ends. The sockets of the workers lie beside it.
 */

const { createHash } = require('node:crypto');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

/** A socket's path has some 100 bytes on every system. */
const LONGEST_FOLDER = 70;

/** @param {string} data  an existing folder */
function socketFolder(data) {
  const real = fs.realpathSync(data);
  const inside = path.join(real, 'run');
  if (Buffer.byteLength(inside) <= LONGEST_FOLDER) return inside;
  const name = createHash('sha256').update(real).digest('hex').slice(0, 16);
  return path.join(os.tmpdir(), `prerender-queue-${name}`);
}

/** @param {string} data @param {unknown} error @returns {never} */
function refuse(data, error) {
  const { message } = /** @type {Error} */ (error);
  throw new Error(`${data} cannot hold the rows (${message}): name another folder with --data`);
}

/** Makes the folder and that of the sockets. @param {string} data */
function usable(data) {
  try {
    fs.mkdirSync(data, { recursive: true });
    const sockets = socketFolder(data);
    fs.mkdirSync(sockets, { recursive: true, mode: 0o700 });
    return sockets;
  } catch (error) {
    return refuse(data, error);
  }
}

/**
 * @param {string} data
 * @returns {Promise<{ sockets: string, release(): void }>}
 */
async function lockFolder(data) {
  const sockets = usable(data);
  const file = path.join(sockets, 'lock.sock');
  const server = net.createServer((socket) => socket.destroy());
  const locked = await listens(server, file).catch((error) => refuse(data, error));
  if (!locked) {
    if (await answers(file)) {
      throw new Error(
        `another process serves ${data}: stop it, or name another folder with --data`,
      );
    }
    fs.rmSync(file, { force: true });
    if (!(await listens(server, file))) throw new Error(`${data} cannot be locked`);
  }
  server.unref();
  for (const name of fs.readdirSync(sockets)) {
    if (/^worker-.*\.sock$/.test(name)) fs.rmSync(path.join(sockets, name), { force: true });
  }
  return {
    sockets,
    release() {
      server.close();
    },
  };
}

/**
 * @param {net.Server} server
 * @param {string} file
 * @returns {Promise<boolean>}
 */
function listens(server, file) {
  return new Promise((resolve, reject) => {
    server.once('error', (/** @type {NodeJS.ErrnoException} */ error) => {
      if (error.code === 'EADDRINUSE') resolve(false);
      else reject(error);
    });
    server.listen(file, () => {
      server.removeAllListeners('error');
      resolve(true);
    });
  });
}

/**
 * @param {string} file
 * @returns {Promise<boolean>}
 */
function answers(file) {
  return new Promise((resolve) => {
    const socket = net.connect(file);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

module.exports = { lockFolder };
