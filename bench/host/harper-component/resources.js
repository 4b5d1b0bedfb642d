// In each of Harper's two workers: one listens, one writes, either hands on what the harness asks.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const { root, corpus: options } = JSON.parse(
  readFileSync(new URL('./bench.json', import.meta.url), 'utf8'),
);
const require = createRequire(root);
const { HarperTable } = require('./lib/harper/table.js');
const { corpus } = require('./bench/corpus.js');
const { joinThreads } = require('./bench/host/channel.js');
const { listening } = require('./bench/host/listener.js');
const { writing } = require('./bench/host/writer.js');

const raw = () => databases.render_schedule.RenderSchedule;
const table = new HarperTable({ table: raw, transaction });
const rows = corpus(options);
const target = {
  put: (key, row) => table.put(key, row),
  putAll(entries) {
    const context = {};
    return transaction(context, () =>
      Promise.all(entries.map(({ key, row }) => raw().put(key, row, context))),
    );
  },
};

const role = server.workerIndex === 0 ? 'listener' : 'writer';
const ask = joinThreads(role, (ask) =>
  role === 'listener' ? listening(table, rows) : writing(target, rows, ask),
);

export class bench extends Resource {
  static loadAsInstance = false;

  async post(target, data) {
    const { to, command, args } = await data;
    if (target.id === 'who') return { status: 200, headers: {}, data: { value: role } };
    try {
      const value = await ask(to, command, args);
      return { status: 200, headers: {}, data: { value: value ?? null } };
    } catch (error) {
      return { status: 200, headers: {}, data: { error: error.stack } };
    }
  }
}
