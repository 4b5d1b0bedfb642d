'use strict';
// Keys from all over a table that can be read only in key order. A walk begins with keys that have much in common, and how
// keys are compressed cannot be learnt from these.

/** How many keys from the middle the one lies that is taken. */
const AWAY = 64;
/** Ranges halved side by side. */
const SIDE_BY_SIDE = 8;
/** What stands in for the character that is not there: below and above what most keys are made of. */
const LOW = 0x1f;
const HIGH = 0x7f;

/**
 * A text between two others, about in the middle; null where none is found. Never half a character.
 *
 * @param {string} low @param {string} high
 */
function between(low, high) {
  let at = 0;
  while (at < low.length && low[at] === high[at]) at += 1;
  let bound = at < high.length ? high.charCodeAt(at) : HIGH;
  for (; ; at += 1) {
    const code = at < low.length ? low.charCodeAt(at) : LOW;
    const middle = (code + bound) >> 1;
    if (middle > code) {
      const text = low.slice(0, at) + String.fromCharCode(middle);
      const isWhole = !/\p{Surrogate}/u.test(text);
      return isWhole && low < text && text < high ? text : null;
    }
    if (at >= low.length) return null;
    // They are neighbours here: whatever follows the lower one in this place is below the higher one.
    bound = HIGH;
  }
}

/**
 * Halves the range of the keys, and the halves, and so on, those that are larger first. Each half takes in a key that lies well
 * behind the middle: the first one there begins as few others do.
 *
 * @param {(range: import('./schedule-table.js').WalkRange) => Promise<{ cacheKey: string }[]>} walk
 * @param {number} most  how many keys are wanted
 * @returns {Promise<string[]>} no key twice; few where there are few. At most two walks for each
 */
async function sampleKeys(walk, most) {
  /** @param {import('./schedule-table.js').WalkRange} range */
  const keysIn = async (range) =>
    (await walk({ ...range, keysOnly: true })).map(({ cacheKey }) => cacheKey);
  const [low] = await keysIn({ limit: 1 });
  const [high] = await keysIn({ limit: 1, reverse: true });
  if (low === undefined || high === undefined) return [];
  const sample = new Set([low, high]);
  /**
   * Whether these go on in a range that is to be halved. It is not where nothing new is found: the order of the keys may be
   * another than that of strings, and the half the whole.
   * @param {string[]} keys
   */
  const takes = (keys) => {
    const end = keys[keys.length - 1];
    if (end === undefined || sample.has(end)) return false;
    sample.add(end);
    return keys.length === AWAY;
  };
  let ranges = [{ low, high }];
  while (ranges.length > 0 && sample.size < most) {
    const [now, later] = [ranges.slice(0, SIDE_BY_SIDE), ranges.slice(SIDE_BY_SIDE)];
    const halves = await Promise.all(
      now.map(async ({ low, high }) => {
        const middle = between(low, high);
        if (middle === null) return [];
        const above = await keysIn({ after: middle, before: high, limit: AWAY });
        const below = await keysIn({ after: low, before: middle, limit: AWAY, reverse: true });
        const half = [];
        if (takes(below)) half.push({ low, high: below[AWAY - 1] });
        if (takes(above)) half.push({ low: above[AWAY - 1], high });
        return half;
      }),
    );
    ranges = [...later, ...halves.flat()];
  }
  return [...sample].slice(0, most);
}

module.exports = { between, sampleKeys };
