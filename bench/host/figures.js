/** What is shown of the rounds: a line a figure, a column an arm, of each the median and the least and the most. */

const { short } = require('../support/report.js');
const { median } = require('../support/statistics.js');
const { ARMS } = require('./rounds.js');

/** @typedef {import('./rounds.js').Round} Round */
/** @typedef {{ median: number, least: number, most: number }} Spread */

const MB = 2 ** 20;

/** The CPU that Harper itself spends on an event that it delivers, of the first measurement and of a later one: us. */
const HARPER_EVENT_US = [26, 46];

/** By name, with its unit. @type {[string, string, (round: Round) => number | undefined][]} */
const FIGURES = [
  ['put p50, of a write', 'us', (round) => round.putP50Us],
  ['put p99, of a write', 'us', (round) => round.putP99Us],
  ['rows written', '1/s', (round) => round.writesPerSecond],
  ['process CPU a row', 'us', (round) => round.processUs],
  ['listening thread on the CPU, a row', 'us', (round) => round.threadUs],
  ['inside the listener, an event', 'us', (round) => round.insideUs],
  ['events a row', '', (round) => round.events],
  ['lag p50, from the acknowledgement', 'ms', (round) => round.lagAcknowledged?.p50],
  ['lag p99, from the acknowledgement', 'ms', (round) => round.lagAcknowledged?.p99],
  ['lag p50, from the call', 'ms', (round) => round.lagSent?.p50],
  ['lag p99, from the call', 'ms', (round) => round.lagSent?.p99],
  ['GC pauses of the listening thread', '', (round) => round.gc.count],
  ['all of them', 'ms', (round) => round.gc.totalMs],
  ['the longest', 'ms', (round) => round.gc.longestMs],
  ['JS heap of what is kept', 'MB', (round) => round.compared && round.heapBytes / MB],
  ['outside the heap', 'MB', (round) => round.compared && round.keeperBytes / MB],
  ['RSS of the process', 'MB', (round) => round.rss / MB],
  ['events replayed to a new subscription', '', (round) => round.replayedBefore],
  ['events of earlier writes, while measured', '', (round) => round.replayed],
  ['rows kept otherwise than in the table', '', (round) => round.compared?.different],
];

/** @param {number[]} values @returns {Spread | null} */
function spreadOf(values) {
  if (values.length === 0) return null;
  return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
}

/** @param {Round[]} rounds */
function figuresOf(rounds) {
  return FIGURES.map(([what, unit, of]) => {
    const values = ARMS.map((arm) => {
      const ofArm = rounds.filter((round) => round.arm === arm).map(of);
      return spreadOf(ofArm.filter((value) => typeof value === 'number'));
    });
    return { what, unit, .../** @type {Record<string, Spread | null>} */ (named(values)) };
  });
}

/** @template T @param {T[]} values */
const named = (values) => Object.fromEntries(ARMS.map((arm, i) => [arm, values[i]]));

/**
 * What feeding a queue costs the listening thread, an event: against the same round's `count`, whose events go nowhere, and what share
 * that is of it and of Harper's own.
 *
 * @param {Round[]} rounds @param {'js' | 'native'} arm
 */
function costOf(rounds, arm) {
  const pairs = rounds
    .filter((round) => round.arm === arm)
    .map(({ round, threadUs }) => {
      const count = rounds.find((one) => one.arm === 'count' && one.round === round)?.threadUs;
      return { us: threadUs - count, percent: (100 * (threadUs - count)) / count };
    });
  const us = spreadOf(pairs.map((pair) => pair.us));
  const middle = us?.median ?? Number.NaN;
  return {
    arm,
    us,
    percentOfCount: spreadOf(pairs.map(({ percent }) => percent)),
    percentOfHarpers: HARPER_EVENT_US.map((harper) => (100 * middle) / harper),
  };
}

/** @param {ReturnType<typeof costOf>} cost */
function costInWords({ arm, us, percentOfCount, percentOfHarpers }) {
  const [of26, of46] = percentOfHarpers.map(signed);
  return (
    `${arm}: ${shown(us)} us an event on the listening thread more than \`count\` in the same round, ${shown(percentOfCount)} % of that; ` +
    `of the ${HARPER_EVENT_US.join(' to ')} us that Harper was measured to spend itself, ${of26} to ${of46} %`
  );
}

/** @param {Spread | null} spread */
function shown(spread) {
  if (!spread) return '';
  const { median: middle, least, most } = spread;
  const texts = [least, most].map(signed);
  return texts[0] === texts[1] ? signed(middle) : `${signed(middle)} (${texts.join(' to ')})`;
}

/** @param {number} value */
const signed = (value) => (value < 0 ? `-${short(-value)}` : short(value));

/** @param {ReturnType<typeof figuresOf>} figures */
function tableOf(figures) {
  const lines = figures.filter((figure) => ARMS.some((arm) => /** @type {any} */ (figure)[arm]));
  return [
    ['what', 'unit', ...ARMS],
    ...lines.map((figure) => [
      figure.what,
      figure.unit,
      ...ARMS.map((arm) => shown(/** @type {any} */ (figure)[arm])),
    ]),
  ];
}

module.exports = { figuresOf, tableOf, costOf, costInWords };
