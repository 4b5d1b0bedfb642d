// Where a real Harper may run: it opens ports on every interface, and is given one where there is none but loopback.
const { spawnSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const path = require('node:path');

const UNSHARE = ['-rn', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

/**
 * The Harper that HARPER_DIR names, and how to run Node where it can do no harm; or why there is none, in a sentence.
 *
 * @returns {{ why: string } | { harper: string, run: (args: string[], env: NodeJS.ProcessEnv) => number }}
 */
function isolatedHarper() {
  const folder = process.env.HARPER_DIR;
  if (!folder) {
    return {
      why: 'HARPER_DIR must name a folder with an open-source Harper 5, installed and built (dist/).',
    };
  }
  const harper = path.resolve(folder);
  if (!existsSync(path.join(harper, 'dist/bin/harperdb.js')))
    return { why: `${harper} has no dist/bin/harperdb.js: build that Harper first.` };
  if (spawnSync('unshare', [...UNSHARE, 'true'], { stdio: 'ignore' }).status !== 0) {
    return {
      why: 'it takes Linux with `unshare` and `ip`, and the right to use them, to keep Harper off the network.',
    };
  }
  return {
    harper,
    run(args, env) {
      const { status } = spawnSync('unshare', [...UNSHARE, process.execPath, ...args], {
        stdio: 'inherit',
        env: { ...process.env, ...env },
      });
      return status ?? 1;
    },
  };
}

module.exports = { isolatedHarper };
