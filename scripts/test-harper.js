// The component's tests on a real Harper: `HARPER_DIR=<a built Harper 5> npm run test:harper`. Without one it says so.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { dependencies } = require('../package.json');
const { isolatedHarper } = require('./isolated.js');

const found = isolatedHarper();
if ('why' in found) {
  process.stderr.write(`Skipped: ${found.why}\n`);
  process.exit(0);
}
// Where Harper runs, there is no network: what the component installs must be in npm's cache by then.
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-harper-cache-'));
fs.writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ dependencies }));
const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
const { status } = spawnSync('npm', args, { cwd: folder, stdio: 'inherit' });
fs.rmSync(folder, { recursive: true, force: true });
if (status !== 0) {
  process.stderr.write('npm cannot install what the package depends on: see above.\n');
  process.exit(1);
}
process.chdir(path.join(__dirname, '..'));
process.exitCode = found.run(['--test', path.join('__test__', 'harper.test.js')], {
  QUEUE_TEST_HARPER: found.harper,
});
