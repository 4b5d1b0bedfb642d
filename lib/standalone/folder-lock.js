'use strict';

/**
 * One process per data folder: two would each have a queue of their own over the same rows. The lock is a
 * socket, which the system lets go of however the process ends. The sockets of the workers lie beside it.
 */

const { createHash, randomBytes } = require('node:crypto');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

/** A socket's path has some 100 bytes on every system. */
const LONGEST_FOLDER = 70;
/** So long the first of those that begin at once waits for the others to give way. */
const GIVE_WAY_MS = 2_000;
const LOOK_MS = 20;
/** Nobody listens. */
const NOBODY = new Set(['ECONNREFUSED', 'ENOENT', 'ENOTSOCK']);
/** Somebody does: a process that stands still gives EAGAIN once no more can wait for it. Other errors do not tell. */
const SOMEBODY = new Set(['', 'EAGAIN']);

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
 * Each process listens on a socket of its own first, and then looks for others that live: of two, one at least sees the
 * other, so no two hold the folder, and nobody takes away what another has just made.
 *
 * @param {string} data
 * @returns {Promise<{ sockets: string, release(): void }>}
 */
async function lockFolder(data) {
  const sockets = usable(data);
  // In the order of time: of those that begin at once the first stays.
  const name = `lock-${Date.now().toString(36)}-${randomBytes(3).toString('hex')}.sock`;
  const server = net.createServer((socket) => socket.destroy());
  await listen(server, path.join(sockets, name)).catch((error) => refuse(data, error));
  for (const until = performance.now() + GIVE_WAY_MS; ; ) {
    const { own, others, left, doubts } = await look(sockets, name);
    if (own && others.length === 0) {
      for (const file of left) fs.rmSync(file, { force: true });
      break;
    }
    const isFirst = others.every((other) => name < other);
    if (!own || !isFirst || performance.now() > until) {
      server.close();
      throw new Error(
        doubts.length > 0 && doubts.length === others.length
          ? `it cannot be told whether another process serves ${data} (${doubts[0]}): ` +
              'look who has that file, and remove it when nobody does'
          : `another process serves ${data}: stop it, or name another folder with --data`,
      );
    }
    await sleep(LOOK_MS);
  }
  server.unref();
  return {
    sockets,
    release() {
      server.close();
    },
  };
}

/**
 * `own`: our socket is still there. `others`: the locks of processes that live, or may. `left`: what processes that have
 * ended left. `doubts`: of the others, what does not tell whether they live.
 *
 * @param {string} sockets
 * @param {string} name
 */
async function look(sockets, name) {
  const names = fs.readdirSync(sockets);
  const others = [];
  const left = [];
  const doubts = [];
  for (const other of names) {
    if (other === name || !/^(lock|worker-).*\.sock$/.test(other)) continue;
    const file = path.join(sockets, other);
    // The workers' go with their process.
    const code = other.startsWith('lock') ? await knock(file) : null;
    if (code === null || NOBODY.has(code)) {
      left.push(file);
      continue;
    }
    others.push(other);
    if (!SOMEBODY.has(code)) doubts.push(`${code} at ${file}`);
  }
  return { own: names.includes(name), others, left, doubts };
}

/**
 * @param {net.Server} server
 * @param {string} file
 * @returns {Promise<void>}
 */
function listen(server, file) {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(file, () => {
      server.removeListener('error', reject);
      resolve();
    });
  });
}

/**
 * Whether a process listens: '' when it answers, else the error's code.
 *
 * @param {string} file
 * @returns {Promise<string>}
 */
function knock(file) {
  return new Promise((resolve) => {
    const socket = net.connect(file);
    socket.once('connect', () => {
      socket.destroy();
      resolve('');
    });
    socket.once('error', (error) => {
      const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
      resolve(code ?? message);
    });
  });
}

module.exports = { lockFolder };
