/**
 * Sorted sets: in Redis, on a Unix socket, nothing written to disk, one set a class (due minute by key) and a hash that says
 * which class a key is in. A reschedule is a script in the server, so that a row that changes its class is never in two.
 */

const { spawn, spawnSync } = require('node:child_process');
const path = require('node:path');
const { createClient } = require('@redis/client');

/** @typedef {import('../reference.js').Change} Change */
/** @typedef {import('../reference.js').Classes} Classes */

const MINUTE = 60_000;
const NEXT = 20;
const LOAD = 1000;
const RESCHEDULE = `
  local old = redis.call('hget', 'class', ARGV[1])
  if old ~= ARGV[3] then
    if old then redis.call('zrem', 'due:' .. old, ARGV[1]) end
    redis.call('hset', 'class', ARGV[1], ARGV[3])
  end
  redis.call('zadd', 'due:' .. ARGV[3], ARGV[2], ARGV[1])`;

const hasRedis = () => spawnSync('redis-server', ['--version']).status === 0;

/** @param {string} folder @param {Classes} classes */
async function openRedis(folder, classes) {
  const socket = path.join(folder, 'redis.sock');
  const options = ['--port', '0', '--unixsocket', socket, '--save', '', '--appendonly', 'no'];
  const server = spawn('redis-server', [...options, '--dir', folder], { stdio: 'ignore' });
  const endWithUs = () => server.kill('SIGKILL');
  process.prependOnceListener('exit', endWithUs);
  const client = createClient({
    RESP: 2,
    socket: { path: socket, tls: false, reconnectStrategy: (tries) => tries < 100 && 50 },
  });
  client.on('error', () => {}); // Until it listens; a command that fails rejects.
  await client.connect();
  const script = await client.scriptLoad(RESCHEDULE);

  /** @param {Change} change */
  const one = ({ key, minute, class: cls }) =>
    client.sendCommand(['EVALSHA', script, '0', key, String(minute), String(cls)]);
  const memory = async () =>
    Number(/used_memory:(\d+)/.exec(String(await client.sendCommand(['INFO', 'memory'])))?.[1]);
  const empty = await memory();

  return {
    name: 'Redis, a sorted set a class',
    /** @param {Change[]} rows */
    async load(rows) {
      for (let i = 0; i < rows.length; i += LOAD) {
        await Promise.all(rows.slice(i, i + LOAD).map(one));
      }
    },
    /** Sent at once, so that they share their round trip. @param {Change[]} changes */
    reschedule: (changes) => Promise.all(changes.map(one)),
    rescheduleOne: one,
    /** @param {number} now */
    async next(now) {
      const minute = String(Math.floor(now / MINUTE));
      const limit = ['LIMIT', '0', String(NEXT), 'WITHSCORES'];
      const replies = await Promise.all(
        classes
          .all()
          .map(({ id }) =>
            client.sendCommand(['ZRANGEBYSCORE', `due:${id}`, '-inf', minute, ...limit]),
          ),
      );
      return classes.merge(NEXT, now, (id) => {
        const flat = /** @type {any} */ (replies[id]);
        const rows = [];
        for (let i = 0; i < flat.length; i += 2) {
          rows.push({ key: String(flat[i]), due: Number(flat[i + 1]) });
        }
        return rows;
      });
    },
    /** @param {number} now */
    async counts(now) {
      const minute = String(Math.floor(now / MINUTE));
      return Promise.all(
        classes.all().map(async ({ id }) => {
          const [rows, due] = await Promise.all([
            client.sendCommand(['ZCARD', `due:${id}`]),
            client.sendCommand(['ZCOUNT', `due:${id}`, '-inf', minute]),
          ]);
          return { class: id, rows: Number(rows), due: Number(due) };
        }),
      );
    },
    ping: () => client.sendCommand(['PING']),
    bytes: async () => (await memory()) - empty,
    async close() {
      client.destroy();
      server.kill('SIGTERM');
      await new Promise((resolve) => server.once('exit', resolve));
      process.off('exit', endWithUs);
    },
  };
}

module.exports = { hasRedis, openRedis };
