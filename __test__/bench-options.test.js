const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { describe, it } = require('node:test');
const { readOptions } = require('../bench/support/options.js');

const BENCH = path.join(__dirname, '..', 'bench');
const HARNESSES = ['cluster', 'growth', 'reference', 'restart', 'stall'];
const OPTIONS = /** @type {const} */ ({
  rows: { what: 'how many rows', normally: 250_000, quick: 1_000 },
  hours: { what: 'for how long', normally: 0.5, fraction: true },
  only: { what: 'which arms', of: ['none', 'count', 'native'] },
  sizes: { what: 'which sizes', of: ['2', '3'], quick: ['3'] },
  nodes: { what: 'the nodes', text: 'NAME=URL,...' },
  at: { what: 'the path', text: '/PATH/', normally: '/rows/' },
  alone: { what: 'nothing beside it', flag: true },
});

/** @param {string} harness @param {...string} args @returns {Promise<{ code: number, stdout: string, stderr: string }>} */
function run(harness, ...args) {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [path.join(BENCH, `${harness}.js`), ...args],
      (error, stdout, stderr) => resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
    );
  });
}

/** @param {...string} args */
const read = (...args) => readOptions('mine', OPTIONS, { quickly: 'little', args });

describe('the options of a harness', () => {
  it('are what they are normally, and with --quick, and what is said wins', () => {
    const arms = ['none', 'count', 'native'];
    const texts = { nodes: null, at: '/rows/' };
    const all = { only: arms, sizes: ['2', '3'], hours: 0.5, alone: false, ...texts };
    const file = path.join(BENCH, 'results', 'mine.json');
    assert.deepEqual(read(), { ...all, rows: 250_000, quick: false, out: file });
    const quickly = { rows: 1_000, sizes: ['3'], quick: true, out: null };
    assert.deepEqual(read('--quick'), { ...all, ...quickly });
    const said = [
      '--rows',
      '7',
      '--hours',
      '0.25',
      '--only',
      'native,none',
      '--alone',
      '--nodes',
      'a=b',
    ];
    assert.deepEqual(read('--quick', '--out', 'x.json', ...said), {
      rows: 7,
      hours: 0.25,
      only: ['none', 'native'],
      sizes: ['3'],
      nodes: 'a=b',
      at: '/rows/',
      alone: true,
      quick: true,
      out: 'x.json',
    });
  });

  for (const harness of HARNESSES) {
    it(`${harness}: --help lists them and runs nothing; one that is not there is a sentence, and exit code 2`, async () => {
      const [help, wrong] = await Promise.all([run(harness, '--help'), run(harness, '--qick')]);
      assert.equal(help.code, 0);
      assert.match(help.stdout, new RegExp(`^node bench/${harness}.js \\[options\\]\n`));
      assert.match(help.stdout, /--quick .*\n.*--out FILE /);
      assert.deepEqual([wrong.code, wrong.stdout], [2, '']);
      assert.equal(
        wrong.stderr,
        `Unknown option '--qick'. node bench/${harness}.js --help lists the options.\n`,
      );
    });
  }

  for (const [args, sentence] of /** @type {[string[], string][]} */ ([
    [['--rows', 'many'], "--rows must be a whole number of at least 1, and is 'many'."],
    [['--rows', '0'], "--rows must be a whole number of at least 1, and is '0'."],
    [['--rows', ''], "--rows must be a whole number of at least 1, and is ''."],
    [['--rows', '1.5'], "--rows must be a whole number of at least 1, and is '1.5'."],
    [['--stall', 'Infinity'], "--stall must be a number of at least 0.001, and is 'Infinity'."],
    [['--stall=-1'], "--stall must be a number of at least 0.001, and is '-1'."],
    [['--out', BENCH], `--out must name a file, and is '${BENCH}'.`],
    [['250000'], "Unexpected argument '250000'."],
  ])) {
    it(`${args.join(' ').replace(BENCH, 'FOLDER')} is refused before anything is started`, async () => {
      const { code, stdout, stderr } = await run('stall', ...args);
      assert.deepEqual([code, stdout], [2, '']);
      assert.equal(stderr, `${sentence} node bench/stall.js --help lists the options.\n`);
    });
  }
});
