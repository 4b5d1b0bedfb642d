// Makes a bare clone ready: dependencies, then the addon. Does nothing where nothing is to do. With `--dev`, what tests need, too.
const { execFileSync } = require('node:child_process');
const { existsSync, readdirSync, statSync, readFileSync, writeFileSync } = require('node:fs');
const path = require('node:path');

const { addonFile } = require('../lib/addon-file.js');

const root = path.join(__dirname, '..');
const dev = process.argv.includes('--dev');

if (Number(process.versions.node.split('.')[0]) < 20) {
  process.stderr.write(
    `Node ${process.versions.node} is too old: install Node 20 or newer (https://nodejs.org).\n`,
  );
  process.exit(1);
}

/** @param {string} file */
const changedAt = (file) =>
  statSync(path.join(root, file), { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** @param {string} folder @returns {number} */
function newestIn(folder) {
  const files = readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' });
  return Math.max(...files.map((file) => changedAt(path.join(folder, file))));
}

const mark = path.join(root, 'node_modules', '.installed');
const lock = readFileSync(path.join(root, 'package-lock.json'), 'utf8');
const kind = dev ? 'dev' : 'run';
const installed = existsSync(mark) ? readFileSync(mark, 'utf8') : '';
if (installed !== `dev\n${lock}` && installed !== `${kind}\n${lock}`) {
  process.stderr.write('Installing dependencies ...\n');
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  try {
    execFileSync(
      npm,
      ['ci', '--ignore-scripts', '--no-fund', '--no-audit', ...(dev ? [] : ['--omit=dev'])],
      {
        cwd: root,
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    );
  } catch {
    process.stderr.write(
      'The dependencies could not be installed: check that npm reaches its registry (`npm ping`), and try again.\n',
    );
    process.exit(1);
  }
  writeFileSync(mark, `${kind}\n${lock}`);
}

const sources = Math.max(
  newestIn('src'),
  changedAt('Cargo.toml'),
  changedAt('Cargo.lock'),
  changedAt('build.rs'),
);
if (changedAt(addonFile()) < sources) require('./build.js');
