// Makes a bare clone ready: dependencies, then the addon. Does nothing where nothing is to do. With `--dev`, what tests need, too.
const { execFileSync } = require('node:child_process');
const { existsSync, readdirSync, readFileSync, statSync } = require('node:fs');
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

/** @param {string} file @returns {Record<string, {version: string, dev?: boolean, optional?: boolean, devOptional?: boolean}>} */
const packagesOf = (file) => JSON.parse(readFileSync(path.join(root, file), 'utf8')).packages;

/** Whether npm has installed what is wanted, by its own note of what there is. */
function isInstalled() {
  const note = 'node_modules/.package-lock.json';
  if (!existsSync(path.join(root, note))) return false;
  const there = packagesOf(note);
  return Object.entries(packagesOf('package-lock.json')).every(([at, wanted]) => {
    const needed = at !== '' && !wanted.optional && (dev || !(wanted.dev || wanted.devOptional));
    return !needed || there[at]?.version === wanted.version;
  });
}

if (!isInstalled()) {
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
}

const sources = Math.max(
  newestIn('src'),
  changedAt('Cargo.toml'),
  changedAt('Cargo.lock'),
  changedAt('build.rs'),
);
if (changedAt(addonFile()) < sources) require('./build.js');
