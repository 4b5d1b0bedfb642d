/**
 * Calls between the threads of one process, wherever they were started: Harper's workers know each other no other way.
 *
 *     const ask = joinThreads('listener', (ask) => ({ begin: async ({ count }) => ... }));
 *     const written = await ask('writer', 'write', { count: 100 });
 */

const { BroadcastChannel } = require('node:worker_threads');

const NAME = 'queue-keeper bench';

/** @typedef {Record<string, (args: any) => unknown>} Commands */
/** @typedef {((to: string, command: string, args?: object) => Promise<any>) & { close: () => void }} Ask */

/** @param {string} role  of this thread @param {(ask: Ask) => Commands} [make]  what it does when asked @returns {Ask} */
function joinThreads(role, make = () => ({})) {
  const channel = new BroadcastChannel(NAME);
  /** @type {Map<string, { resolve: (value: any) => void, reject: (error: Error) => void }>} */
  const waiting = new Map();
  const self = `${role} ${Math.random()}`;
  let asked = 0;

  /** @param {{ to: string, from: string, id: string, command: string, args: any }} question */
  async function answer({ from, id, command, args }) {
    try {
      channel.postMessage({ to: from, id, value: await commands[command](args) });
    } catch (error) {
      channel.postMessage({ to: from, id, error: String(/** @type {Error} */ (error).stack) });
    }
  }

  channel.onmessage = (/** @type {any} */ { data }) => {
    if (data.command !== undefined) {
      if (data.to === role) void answer(data);
      return;
    }
    if (data.to !== self) return;
    const one = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error !== undefined) one?.reject(new Error(data.error));
    else one?.resolve(data.value);
  };

  /** @type {any} */
  const ask = (/** @type {string} */ to, /** @type {string} */ command, args = {}) => {
    // A channel does not hear itself.
    if (to === role) return Promise.resolve(commands[command](args));
    return new Promise((resolve, reject) => {
      const id = `${self} ${asked++}`;
      waiting.set(id, { resolve, reject });
      channel.postMessage({ to, from: self, id, command, args });
    });
  };
  ask.close = () => channel.close();
  const commands = make(ask);
  return ask;
}

module.exports = { joinThreads };
