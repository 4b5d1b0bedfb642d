// The component's tests on a real Harper: `HARPER_DIR=<a built Harper 5> npm run test:harper`. Without one it says so.
const { spawnSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');
const folder = process.env.HARPER_DIR;

/** @param {string} why @returns {never} */
function skip(why) {
  process.stderr.write(`Skipped: ${why}\n`);
  process.exit(0);
}

if (!folder) {
  skip('HARPER_DIR must name a folder with an open-source Harper 5, installed and built (dist/).');
}
const harper = path.resolve(folder);
if (!existsSync(path.join(harper, 'dist/bin/harperdb.js'))) {
  skip(`${harper} has no dist/bin/harperdb.js: build that Harper first.`);
}
// Harper opens ports on every interface: here there is none but loopback.
const isolated = ['-rn', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
if (spawnSync('unshare', [...isolated, 'true'], { stdio: 'ignore' }).status !== 0) {
  skip(
    'it takes Linux with `unshare` and `ip`, and the right to use them, to keep Harper off the network.',
  );
}
const { status } = spawnSync(
  'unshare',
  [...isolated, process.execPath, '--test', path.join(root, '__test__/harper.test.js')],
  { cwd: root, stdio: 'inherit', env: { ...process.env, QUEUE_TEST_HARPER: harper } },
);
process.exit(status ?? 1);
