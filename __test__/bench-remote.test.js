const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { ask, startHost } = require('./support/host.js');
const { until } = require('./support/until.js');

const REMOTE = path.join(__dirname, '..', 'bench', 'remote.js');
const AUTHORIZATION = 'Bearer a token';

/** @param {string[]} args @param {Record<string, string>} [environment] @returns {Promise<{ code: number, stdout: string, stderr: string }>} */
function run(args, environment = { AUTHORIZATION }) {
  const env = { ...process.env, ...environment };
  return new Promise((resolve) => {
    execFile(process.execPath, [REMOTE, '--quick', ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
    );
  });
}

describe('writers of rows of all owners on a ring that runs elsewhere', () => {
  /** @type {Awaited<ReturnType<typeof startHost>>[]} */
  let hosts;
  /** @param {string[]} names */
  const named = (names) => names.map((name, i) => `${name}=${hosts[i].url}`).join();
  before(async () => {
    const options = ['--workers', '1', '--sample', '100', '--token', 'a token', '--node'];
    hosts = await Promise.all(['a', 'b'].map((name) => startHost([...options, name])));
    const nodes = ['a', 'b'].map((name, i) => ({ name, url: hosts[i].url }));
    const headers = { authorization: AUTHORIZATION, 'content-type': 'application/json' };
    for (const { url } of hosts) {
      await ask(`${url}/prerender_admin/nodes`, 'PUT', { nodes }, headers);
    }
    const cluster = `${hosts[0].url}/prerender_admin/cluster-queue-state`;
    await until('an exact total', async () => {
      const { answer } = await ask(cluster, 'GET', undefined, headers);
      return answer.trust?.exact;
    });
  });
  after(() => Promise.all(hosts.map((host) => host.stop())));

  it('finds each row in its owner’s queue, whichever node it was sent to, and takes all of them back', async () => {
    const { code, stdout, stderr } = await run(['--nodes', named(['a', 'b'])]);
    assert.equal(code, 0, stdout + stderr);
    assert.match(stderr, /right: 200 of 200 writes were acknowledged/);
    assert.match(stderr, /right: 50 distinct rows: 0 not in their owner's queue/);
    assert.match(stderr, /right: 50 rows deleted, 0 more are kept than before/);
    const [, taken, sentOn] = /(\d+) taken by .*, (\d+) sent on after 421/.exec(stdout) ?? [];
    assert.equal(Number(taken) + Number(sentOn), 200);
    assert.ok(Number(taken) > 0 && Number(sentOn) > 0);
  });

  it('writes nothing to a node of another name or ring, or without credentials', async () => {
    const renamed = await run(['--nodes', named(['a', 'c'])]);
    assert.equal(renamed.code, 2);
    assert.match(renamed.stderr, /is node a of the ring \["a","b"\], and --nodes says a of/);
    const alone = await run(['--nodes', named(['a'])]);
    assert.equal(alone.code, 2);
    const nobody = await run(['--nodes', named(['a', 'b'])], { AUTHORIZATION: '' });
    assert.equal(nobody.code, 1);
    assert.match(nobody.stderr, /^[ab] answers with 401: /m);
  });
});
