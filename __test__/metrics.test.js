'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { describe, test } = require('node:test');
const { DUE, HOUR, MINUTE, START, gone, manual, put } = require('./support/keepers.js');
const { install, parse, valuesOf } = require('./support/openmetrics.js');

/** @param {any} keeper */
const read = (keeper) => valuesOf(parse(keeper.metrics()));

/** A keeper with something in every number. */
function busy() {
  const keeper = manual({
    leases: { leaseMs: 10 * MINUTE, maxLeases: 50, missLimit: 0 },
    routes: [{ match: 'prefix', path: '/p/', renderInterval: HOUR }],
  });
  for (let i = 0; i < 300; i++) {
    keeper.apply(
      put(`https://shop.example/${i % 2 ? 'p' : 'x'}/${i}`, {
        nextRenderTime: START + (i - 200) * 5 * MINUTE,
        fromSitemap: i % 3 === 0,
        changedAt: i % 5 === 0 ? START : null,
        urgentAt: i % 7 === 0 ? START : null,
        effectiveInterval: i % 100 === 1 ? HOUR : null,
      }),
    );
  }
  keeper.apply(put('outdated', DUE, 2));
  keeper.apply(put('outdated', DUE, 1));
  keeper.apply({ type: 'message' });
  keeper.apply({ type: 'patch', id: 'flagged' });
  keeper.apply({ type: 'put', id: 5, value: DUE });
  const { jobs } = keeper.claim(60);
  for (const { key, token } of jobs.slice(0, 10)) {
    keeper.apply(put(key, { nextRenderTime: START + HOUR }));
    keeper.release(key, token);
  }
  for (const { token } of jobs.slice(10, 13)) keeper.confirm(token, null);
  keeper.pause();
  keeper.claim(1);
  keeper.resume();
  keeper.setNow(START + 11 * MINUTE);
  keeper.claim(5);
  keeper.claim(5);
  return keeper;
}

describe('metrics', { skip: install() }, () => {
  test('are well-formed OpenMetrics: types, help, one EOF at the end', () => {
    for (const keeper of [manual(), busy()]) {
      const text = keeper.metrics();
      const families = parse(text);
      assert.ok(families.length > 30);
      for (const { name, type, help } of families) {
        assert.match(name, /^keeper_[a-z_0-9]+$/);
        assert.ok(['gauge', 'counter'].includes(type), `${name}: ${type}`);
        assert.ok(help.length > 5, name);
      }
      assert.ok(text.endsWith('\n# EOF\n'));
      assert.equal(text.split('# EOF').length, 2);
    }
  });

  test('would be refused by the parser if they were not', () => {
    const text = manual().metrics();
    for (const broken of [
      text.replace('# EOF\n', ''),
      `${text}keeper_rows 1\n`,
      text.replace('keeper_rows 0', 'keeper_rows zero'),
      text.replace('# TYPE keeper_rows gauge\n', '# TYPE keeper_rows gauge\n'.repeat(2)),
      text.replace('keeper_malformed_total', 'keeper_malformed'),
      text.replace('reason=""', 'reason="'),
    ]) {
      assert.throws(() => parse(broken), /not OpenMetrics/);
    }
  });

  test('have each number that the specification names, and they equal the state', () => {
    const keeper = busy();
    const values = read(keeper);
    const { now, lateness, trust } = keeper.state();
    const worst = Math.max(
      ...lateness.classes.map((/** @type {any} */ each) => each.oldestLatenessCadences),
    );
    const expected = {
      'keeper_due{source="sitemap"}': now.dueSitemap,
      'keeper_due{source="discovered"}': now.dueDiscovered,
      keeper_due_rows: now.due,
      keeper_due_changed: now.dueChanged,
      keeper_due_urgent: now.dueUrgent,
      keeper_unclaimed: now.unclaimed,
      keeper_in_flight: now.inFlight,
      keeper_held_keys: now.heldKeys,
      keeper_oldest_due_age_seconds: (START + 11 * MINUTE - lateness.oldestDueAt) / 1000,
      keeper_worst_lateness_cadences: worst,
      keeper_events_applied_total: trust.keeper.eventsApplied,
      keeper_malformed_total: trust.keeper.malformed,
      'keeper_repaired_total{cause="missed"}': trust.keeper.repairedTotal,
      'keeper_repaired_total{cause="gained"}': trust.keeper.gainedTotal,
      keeper_rows: keeper.size,
      keeper_carried_rows: 3,
      keeper_ring_nodes: 1,
      keeper_last_event_timestamp_seconds: trust.keeper.lastEventAt / 1000,
      keeper_classes: keeper.classCount,
      keeper_memory_bytes: keeper.bytes,
      keeper_unverified_rows: 0,
      'keeper_live{reason=""}': 1,
      'keeper_phase{phase="live"}': 1,
      'keeper_phase{phase="loading"}': 0,
      keeper_exact: Number(trust.exact),
      keeper_paused: 0,
      keeper_resyncing: 0,
      keeper_feeder_epoch: 0,
    };
    for (const [name, value] of Object.entries(expected)) assert.equal(values[name], value, name);
    const eta = values.keeper_drain_eta_seconds;
    if (now.drainEtaMs === null) assert.ok(Number.isNaN(eta));
    else assert.equal(eta, now.drainEtaMs / 1000);
  });

  test('count what happened: claims granted, stale, refused by cause, holds, misses, events', () => {
    const values = read(busy());
    const expected = {
      keeper_claims_granted_total: 50,
      keeper_claims_stale_total: 3,
      'keeper_claims_refused_total{cause="limit"}': 1,
      'keeper_claims_refused_total{cause="paused"}': 1,
      'keeper_claims_refused_total{cause="unready"}': 0,
      keeper_leases_released_total: 10,
      keeper_leases_expired_total: 37,
      keeper_events_outdated_total: 1,
      keeper_events_flagged_total: 1,
      keeper_malformed_total: 1,
      'keeper_repaired_total{cause="missed"}': 3,
    };
    const granted = values.keeper_claims_granted_total;
    assert.ok(granted >= 50);
    for (const [name, value] of Object.entries(expected).slice(1))
      assert.equal(values[name], value, name);
    assert.ok(values.keeper_holds_total >= 37);
    assert.ok(values.keeper_holds_total >= values.keeper_held_keys);
  });

  test('tell rates a minute over the last ten whole minutes or as many as there were, and when the backlog will be gone', () => {
    const keeper = manual({ defaultInterval: MINUTE });
    const load = keeper.beginWalk('load');
    load.rows(
      Array.from({ length: 100 }, (_, i) => ({
        cacheKey: `late ${i}`,
        nextRenderTime: START - HOUR,
      })),
    );
    load.end();
    for (let i = 0; i < 20; i++)
      keeper.apply(put(`coming ${i}`, { nextRenderTime: START + MINUTE }));
    for (const { key, token } of keeper.claim(60).jobs) {
      keeper.apply(put(key, { nextRenderTime: START + 24 * HOUR }));
      keeper.release(key, token);
    }
    assert.ok(Number.isNaN(read(keeper).keeper_claimed_rate), 'none is over yet');
    for (const minutes of [2, 10]) {
      keeper.setNow(START + minutes * MINUTE);
      const values = read(keeper);
      assert.equal(values.keeper_claimed_rate, 60 / minutes);
      assert.equal(values.keeper_came_due_rate, 20 / minutes);
      assert.equal(values.keeper_finished_rate, 60 / minutes);
      // Rows later than their cadence, by the net rate.
      const eta = 60 / (60 / minutes - 20 / minutes);
      assert.equal(values.keeper_drain_eta_seconds, eta * 60);
      assert.equal(keeper.state().now.drainEtaMs, eta * MINUTE);
    }
  });

  test('say in every phase whether and why not the numbers can be vouched for, and show no wrong one', () => {
    const reasons = new Set();
    for (const phase of ['starting', 'waiting-for-peers', 'loading', 'live', 'failed', 'stopped']) {
      const keeper = busy();
      keeper.setPhase(phase);
      const families = parse(keeper.metrics());
      const values = valuesOf(families);
      const live = families.find(({ name }) => name === 'keeper_live')?.samples[0];
      assert.equal(Number(live?.value), Number(phase === 'live'), phase);
      const reason = live?.labels.reason ?? '';
      assert.equal(reason === '', phase === 'live');
      reasons.add(reason);
      assert.equal(values[`keeper_phase{phase="${phase}"}`], 1);
      assert.equal(
        families
          .find(({ name }) => name === 'keeper_phase')
          ?.samples.filter(({ value }) => Number(value) === 1).length,
        1,
      );
      assert.equal('keeper_due{source="sitemap"}' in values, phase === 'live');
      assert.equal('keeper_drain_eta_seconds' in values, phase === 'live');
    }
    assert.equal(reasons.size, 6, 'each with its own reason');
  });

  test('of one queue tell at each look how it is then', () => {
    const keeper = busy();
    const liveOf = () => {
      const families = parse(keeper.metrics());
      const samples = families.find(({ name }) => name === 'keeper_live')?.samples ?? [];
      return samples.map(({ value, labels }) => [Number(value), labels.reason]);
    };
    for (const [phase, expected] of /** @type {const} */ ([
      ['live', [1, '']],
      ['failed', [0, 'failed']],
      ['loading', [0, 'loading']],
      ['live', [1, '']],
    ])) {
      keeper.setPhase(phase);
      assert.deepEqual(liveOf(), [expected]);
    }
    keeper.setPhase('live', { resyncing: true });
    const values = read(keeper);
    assert.deepEqual([values.keeper_resyncing, values.keeper_exact], [1, 0]);
    keeper.pause();
    assert.equal(read(keeper).keeper_paused, 1);
    const rows = keeper.size;
    keeper.apply(put('one more', { nextRenderTime: START, effectiveInterval: HOUR }));
    const { keeper_rows, keeper_carried_rows } = read(keeper);
    assert.deepEqual(
      [keeper_rows, keeper_carried_rows, keeper.state().trust.keeper.carriedRows],
      [rows + 1, 4, 4],
    );
    keeper.apply(gone('one more'));
    assert.equal(keeper.state().trust.keeper.carriedRows, 3);
  });

  test('are well-formed for the oddest numbers: cadences near 0 and infinite, an empty queue, no lists', () => {
    const odd = manual();
    odd.apply(put('a', { nextRenderTime: 0, effectiveInterval: 5e-324 }));
    odd.apply(put('b', { nextRenderTime: 0, effectiveInterval: 1.7e308 }));
    odd.apply(put('c', { nextRenderTime: 0, changedAt: 1, demandPeriod: 5e-324 }));
    assert.equal(read(odd).keeper_worst_lateness_cadences, Infinity);
    const classified = manual({ classify: () => ({ route: 'a "b"\\\n', cadenceMs: Number.NaN }) });
    classified.apply(put('a'));
    assert.equal(read(classified)['keeper_due{source="discovered"}'], 1);
    const unlisted = manual({ maxListed: 0 });
    unlisted.apply(put('a', { nextRenderTime: START - HOUR, effectiveInterval: HOUR }));
    assert.equal(read(unlisted).keeper_worst_lateness_cadences, 1, 'it is not a list');
  });

  test('tell how long loads, verifications and snapshots took, once there was one', async () => {
    const keeper = manual();
    const before = read(keeper);
    for (const name of ['load', 'verify', 'publish'])
      assert.ok(Number.isNaN(before[`keeper_${name}_seconds`]), name);
    const load = keeper.beginWalk('load');
    keeper.setNow(START + 1_500);
    load.end();
    const verify = keeper.beginWalk('verify');
    keeper.setNow(START + 4_000);
    verify.end();
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-metrics-'));
    try {
      const { ms } = await keeper.saveSnapshot(path.join(folder, 'snapshot'));
      const values = read(keeper);
      assert.equal(values.keeper_load_seconds, 1.5);
      assert.equal(values.keeper_verify_seconds, 2.5);
      assert.ok(Math.abs(values.keeper_publish_seconds - ms / 1000) < 1e-6);
    } finally {
      fs.rmSync(folder, { recursive: true, force: true });
    }
  });

  test('count rows gained and lost through a change of nodes apart from missed writes', () => {
    const keeper = manual({ node: 'alpha', nodes: ['beta'] });
    const keys = Array.from({ length: 100 }, (_, i) => `https://shop.example/${i}`);
    keeper.applyAll(keys.map((key) => put(key)));
    keeper.configure({ nodes: ['gamma'] });
    const walk = keeper.beginWalk('verify');
    walk.rows(keys.map((cacheKey) => ({ cacheKey, ...DUE })));
    const { gained, lost } = walk.end();
    keeper.apply(gone('nobody'));
    const values = read(keeper);
    assert.ok(gained > 0 && lost > 0);
    assert.equal(values['keeper_repaired_total{cause="gained"}'], gained);
    assert.equal(values['keeper_repaired_total{cause="missed"}'], 0);
    assert.equal(values.keeper_lost_total, lost);
    assert.equal(values.keeper_ring_nodes, 2);
    assert.equal(values.keeper_verified_timestamp_seconds, START / 1000);
  });
});

describe('what is made of the metrics', () => {
  const docs = path.join(__dirname, '../docs');
  const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
  const skip = hasPromtool ? undefined : 'promtool is not on the PATH (Debian: package prometheus)';
  /** @param {string[]} args @param {string} [input] */
  const promtool = (args, input) => {
    const { status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' });
    return { status, said: `${stdout}${stderr}` };
  };

  test('the rules and the scaler of docs/ name numbers that there are', () => {
    const text = ['prometheus-rules.yaml', 'keda.yaml']
      .map((file) => fs.readFileSync(path.join(docs, file), 'utf8'))
      .join('\n');
    const metrics = busy().metrics();
    const names = new Set(text.match(/\bkeeper_[a-z_]+/g));
    // Of the standalone service alone: cluster.test.js looks at it.
    names.delete('keeper_handing_over');
    assert.ok(names.size > 5);
    for (const name of names) assert.match(metrics, new RegExp(`^${name}[ {]`, 'm'), name);
    assert.match(text, /valueLocation: now\.due\n/);
    assert.equal(typeof busy().state().now.due, 'number');
    // While nothing is known, a busy fleet is not cut.
    assert.match(text, /\n {2}fallback:\n(?: {4}.*\n)* {4}behavior: currentReplicasIfHigher\n/);
  });

  test('the rules are right, and fire when they should', { skip }, () => {
    const checked = promtool(['check', 'rules', path.join(docs, 'prometheus-rules.yaml')]);
    assert.equal(checked.status, 0, checked.said);
    const tests = path.join(__dirname, 'support/prometheus-rules.test.yaml');
    const tested = promtool(['test', 'rules', tests]);
    assert.equal(tested.status, 0, tested.said);
  });

  test('the parser of the older text format can read them, too', { skip }, () => {
    // Its linter would have counters named otherwise, which is no fault of the text.
    const { said } = promtool(['check', 'metrics'], busy().metrics());
    assert.doesNotMatch(said, /pars/, said);
    assert.match(promtool(['check', 'metrics'], 'a b\n').said, /pars/);
  });
});
