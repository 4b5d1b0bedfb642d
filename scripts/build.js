'use strict';
// Builds the addon and puts it where index.js looks for it.
const { execFileSync, spawnSync } = require('node:child_process');
const { copyFileSync, renameSync } = require('node:fs');
const path = require('node:path');

const { addonFile } = require('../lib/addon-file.js');

const root = path.join(__dirname, '..');
const LIBRARY = { darwin: 'libqueue_keeper.dylib', win32: 'queue_keeper.dll' };

/** @param {string} message @returns {never} */
function stop(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** @param {string} command @param {string[]} args */
function works(command, args) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

if (!works('cargo', ['--version'])) {
  stop(
    'Rust is missing: install it (https://rustup.rs, or the packages `cargo` and `rustc` at 1.95 or newer).',
  );
}
if (process.platform !== 'win32' && !works('cc', ['--version'])) {
  stop(
    'A C linker is missing: install one (Debian: apt-get install gcc libc6-dev; macOS: xcode-select --install).',
  );
}
process.stderr.write('Building the addon (some minutes the first time) ...\n');
try {
  execFileSync('cargo', ['build', '--release', '--locked'], { cwd: root, stdio: 'inherit' });
} catch {
  stop(
    'The build failed: the messages above say where. Rust 1.95 or newer is needed (`rustc --version`).',
  );
}
const metadata = execFileSync('cargo', ['metadata', '--format-version=1', '--no-deps'], {
  cwd: root,
});
const target = JSON.parse(metadata.toString()).target_directory;
const library = LIBRARY[/** @type {'darwin'} */ (process.platform)] ?? 'libqueue_keeper.so';
// Renamed into place: a process that has the old one loaded keeps it.
const built = path.join(root, addonFile());
copyFileSync(path.join(target, 'release', library), `${built}.new`);
renameSync(`${built}.new`, built);
