// The component's tests on a real Harper: `HARPER_DIR=<a built Harper 5> npm run test:harper`. Without one it says so.
const path = require('node:path');
const { isolatedHarper } = require('./isolated.js');

const found = isolatedHarper();
if ('why' in found) {
  process.stderr.write(`Skipped: ${found.why}\n`);
  process.exit(0);
}
process.chdir(path.join(__dirname, '..'));
process.exitCode = found.run(['--test', path.join('__test__', 'harper.test.js')], {
  QUEUE_TEST_HARPER: found.harper,
});
