'use strict';

// SPEC.md section 8 under a table that does everything wrong, on clocks moved by hand: see support/simulator.js.
// SEED=n runs one life alone, SEEDS=n so many of them, from 1 on.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const os = require('node:os');
const path = require('node:path');
const { describe, test } = require('node:test');
const { Broken, Simulation, simulate } = require('./support/simulator.js');

const SEEDS = Number(process.env.SEEDS ?? 200);
const A_PROCESS = 250;
/** A mistake that is not caught in so many lives is not caught. */
const CANARY_SEEDS = 60;

describe('a life of faults', { skip: process.env.SEED !== undefined }, () => {
  test(`${SEEDS} of them: nothing that must not happen does, and then the keeper equals the table`, async (t) => {
    const processes = Math.min(os.availableParallelism(), 8);
    const each = Math.max(1, Math.min(A_PROCESS, Math.ceil(SEEDS / processes)));
    /** @type {string[]} */
    const broken = [];
    /** @type {Record<string, number>} */
    const sum = {};
    let next = 1;
    const work = async () => {
      while (next <= SEEDS) {
        const from = next;
        next += each;
        const outcome = await inProcess(from, Math.min(each, SEEDS + 1 - from));
        broken.push(...outcome.broken);
        for (const [name, number] of Object.entries(outcome.sum)) {
          sum[name] = (sum[name] ?? 0) + number;
        }
      }
    };
    await Promise.all(Array.from({ length: processes }, work));
    t.diagnostic(JSON.stringify(sum));
    assert.equal(broken.length, 0, broken.slice(0, 5).join('\n\n'));
    assert.equal(sum.seeds, SEEDS);
    // Lives in which nothing happens would all be good.
    assert.ok(sum.given > 20 * SEEDS && sum.verifications > 5 * SEEDS, JSON.stringify(sum));
  });

  test('the same seed is the same life', async () => {
    const first = await new Simulation(7).run();
    assert.deepEqual(await new Simulation(7).run(), first);
  });
});

describe('one life', {
  skip: process.env.SEED === undefined ? 'SEED=n asks for one' : false,
}, () => {
  test(`seed ${process.env.SEED}`, async (t) => {
    const { broken, sum } = await simulate(Number(process.env.SEED), 1);
    assert.equal(broken.length, 0, broken.join());
    t.diagnostic(JSON.stringify(sum));
  });
});

/** @param {number} from @param {number} count @returns {Promise<any>} */
function inProcess(from, count) {
  const args = [path.join(__dirname, 'support', 'simulator.js'), String(from), String(count)];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { maxBuffer: 1 << 28 }, (error, stdout) => {
      if (error) reject(error);
      else resolve(JSON.parse(stdout));
    });
  });
}

/** @type {Record<string, import('./support/simulator.js').Variant>} */
const CANARIES = {
  'a feeder that walks before it subscribes': {
    port: (port) => {
      /** @type {(() => void) | null} */
      let open = null;
      return {
        ...port,
        async subscribe(/** @type {any} */ listener, /** @type {any} */ onClose) {
          /** @type {any} */
          let subscription = null;
          let ended = false;
          open = () => {
            port.subscribe(listener, onClose).then(
              (/** @type {any} */ opened) => {
                subscription = opened;
                if (ended) opened.end();
              },
              (/** @type {Error} */ error) => onClose(error),
            );
          };
          return {
            end() {
              ended = true;
              subscription?.end();
            },
          };
        },
        async walk(/** @type {any} */ range) {
          const rows = await port.walk(range);
          if (rows.length === 0) {
            open?.();
            open = null;
          }
          return rows;
        },
      };
    },
  },
  'a walk whose rows overwrite newer events': {
    keeper: (keeper) =>
      but(keeper, {
        async beginWalkAsync(/** @type {'load' | 'verify'} */ kind) {
          const walk = await keeper.beginWalkAsync(kind);
          /** @type {any[]} */
          const all = [];
          return {
            ...walk,
            rows(/** @type {any[]} */ rows) {
              walk.rows(rows);
              all.push(...rows);
            },
            endAsync(/** @type {any} */ how) {
              keeper.applyAll(
                all.map(({ version, ...value }) => ({ type: 'put', id: value.cacheKey, value })),
              );
              return walk.endAsync(how);
            },
          };
        },
      }),
  },
  'a repair that does not ask whether an event came in between': {
    keeper: (keeper) =>
      but(keeper, {
        repair(/** @type {string} */ key, /** @type {any} */ row) {
          const { version, ...value } = row ?? {};
          keeper.applyAll([{ type: row ? 'put' : 'delete', id: key, value }]);
          return keeper.repair(key, row);
        },
      }),
  },
  'a feeder that drops unread what a walk did not see': {
    keeper: (keeper) =>
      but(keeper, {
        async beginWalkAsync(/** @type {'load' | 'verify'} */ kind) {
          const walk = await keeper.beginWalkAsync(kind);
          return {
            ...walk,
            async endAsync(/** @type {any} */ how) {
              const report = await walk.endAsync(how);
              for (const key of walk.nextSuspects(1e9)) keeper.repair(key, null);
              return report;
            },
          };
        },
      }),
  },
  'a host that gives jobs out without reading their rows': { confirmsUnread: true },
};

/** The keeper with some methods of another. @param {any} keeper @param {object} methods */
function but(keeper, methods) {
  return Object.assign(Object.create(keeper), methods);
}

describe('what is done wrong is caught', { skip: process.env.SEED !== undefined }, () => {
  for (const [name, variant] of Object.entries(CANARIES)) {
    test(name, async (t) => {
      for (let seed = 1; seed <= CANARY_SEEDS; seed++) {
        try {
          await new Simulation(seed, { variant }).run();
        } catch (error) {
          assert.ok(error instanceof Broken, String(error));
          t.diagnostic(`by seed ${seed}: ${error.message.split('\n')[0].slice(0, 200)}`);
          return;
        }
      }
      assert.fail(`not in ${CANARY_SEEDS} lives`);
    });
  }
});
