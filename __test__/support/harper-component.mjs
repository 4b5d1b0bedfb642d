// What the tests ask of a worker from inside: added to the example when it runs in a real Harper.
import { createRequire } from 'node:module';
import { threadId } from 'node:worker_threads';
import { queueKeeper } from 'prerender-queue-keeper/harper';

const require = createRequire(import.meta.url);
const { HarperTable } = require('./node_modules/prerender-queue-keeper/lib/harper/table.js');
const { HARPER, PORT, runCase } = require('./support/port-cases.js');
const { until } = require('./support/until.js');

const commit = (work, context = {}) => transaction(context, () => work(context));
const worker = () => ({ threadId, index: server.workerIndex, feeds: queueKeeper().isFeeding });

const COMMANDS = {
  worker,
  async case({ name }) {
    const one = [...PORT, ...HARPER].find((each) => each.name === name);
    const raw = databases.render_schedule[one.table ?? 'PortTest'];
    const port = new HarperTable({ table: () => raw, transaction });
    await runCase(one, { raw, port, commit, until });
  },
  async write({ rows }) {
    const table = databases.render_schedule.RenderSchedule;
    for (const [key, row] of Object.entries(rows)) {
      await commit((context) => (row ? table.put(key, row, context) : table.delete(key, context)));
    }
  },
  async read({ key }) {
    const table = databases.render_schedule.RenderSchedule;
    return (await table.get({ id: key }, { replicateFrom: false }))?.toJSON() ?? null;
  },
  nodes({ names }) {
    server.nodes = names.length > 0 ? [...names.map((name) => ({ name })), {}] : [];
    return worker();
  },
  exit() {
    if (queueKeeper().isFeeding) setTimeout(() => process.exit(1), 50);
    return worker();
  },
  block({ ms }) {
    if (queueKeeper().isFeeding) {
      setTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms), 50);
    }
    return worker();
  },
};

export class queue_test extends Resource {
  static loadAsInstance = false;

  async post(target, data) {
    try {
      const value = await COMMANDS[target.id](await data);
      return { status: 200, headers: {}, data: { value: value ?? null } };
    } catch (error) {
      return { status: 200, headers: {}, data: { error: error.stack } };
    }
  }
}
