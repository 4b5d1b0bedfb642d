// Everything that must hold, one after the other: `npm test`. With names, only those: `npm test -- types node`.
const { spawnSync } = require('node:child_process');
const { readdirSync } = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');
const bin = (/** @type {string} */ name) => path.join(root, 'node_modules', '.bin', name);
const tests = readdirSync(path.join(root, '__test__'))
  .filter((file) => file.endsWith('.test.js'))
  .map((file) => path.join('__test__', file));

/** @type {Record<string, [string, ...string[]][]>} */
const LEGS = {
  format: [
    ['cargo', 'fmt', '--check'],
    [bin('biome'), 'check', '--error-on-warnings', '.'],
  ],
  lint: [['cargo', 'clippy', '--all-targets', '--locked', '--', '-D', 'warnings']],
  types: ['.', 'lib/console', '__test__/tsconfig.browser.json'].map((project) => [
    bin('tsc'),
    '-p',
    project,
  ]),
  rust: [
    ['cargo', 'test', '--locked', '--no-default-features'],
    ['cargo', 'test', '--locked', '--lib'],
  ],
  node: [[process.execPath, '--test', ...tests]],
};

const asked = process.argv.slice(2);
const unknown = asked.filter((name) => !Object.hasOwn(LEGS, name));
if (unknown.length > 0) {
  process.stderr.write(
    `There is no ${unknown.join(', ')}: choose from ${Object.keys(LEGS).join(', ')}.\n`,
  );
  process.exit(2);
}

/** @type {string[]} */
const failed = [];
const legs = asked.length > 0 ? asked : Object.keys(LEGS);
for (const leg of legs) {
  const start = Date.now();
  process.stderr.write(`\n== ${leg}\n`);
  for (const [command, ...args] of LEGS[leg]) {
    const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
    if (error) process.stderr.write(`${command}: ${error.message}\n`);
    if (status !== 0)
      failed.push(`${leg}: ${path.basename(command)} ${args.slice(0, 3).join(' ')}`);
  }
  process.stderr.write(`== ${leg}: ${((Date.now() - start) / 1000).toFixed(0)} s\n`);
}
if (failed.length > 0) {
  process.stderr.write(`\nFailed:\n${failed.map((what) => `  ${what}\n`).join('')}`);
  process.exit(1);
}
process.stderr.write(`\nAll of it holds: ${legs.join(', ')}.\n`);
