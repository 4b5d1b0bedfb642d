/**
 * Loaded into every thread of the host that is measured (`node -r`): each second, how long its event loop stood still at most is
 * added to a file of its own in `TURNS`. Read with `readTurns`.
 */

const fs = require('node:fs');
const path = require('node:path');
const { isMainThread, workerData } = require('node:worker_threads');

const EVERY_MS = 10;
const { TURNS } = process.env;

/** How long each second's longest turn of one worker was, by the wall clock. @param {string} folder @param {number} worker */
function readTurns(folder, worker) {
  const file = path.join(folder, String(worker));
  if (!fs.existsSync(file)) return [];
  const lines = fs.readFileSync(file, 'utf8').trim().split('\n');
  return lines.map((line) => {
    const [at, ms] = line.split(' ').map(Number);
    return { at, ms };
  });
}

if (!isMainThread && TURNS && workerData?.index !== undefined) {
  const file = path.join(TURNS, String(workerData.index));
  let last = performance.now();
  let longest = 0;
  let second = Math.floor(Date.now() / 1000);
  setInterval(() => {
    const now = performance.now();
    // What of it was waiting for the timer anyway is no standing still.
    longest = Math.max(longest, now - last - EVERY_MS);
    last = now;
    const at = Math.floor(Date.now() / 1000);
    if (at === second) return;
    fs.appendFile(file, `${second * 1000} ${longest.toFixed(1)}\n`, () => {});
    second = at;
    longest = 0;
  }, EVERY_MS).unref();
}

module.exports = { readTurns };
