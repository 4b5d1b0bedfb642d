/** @param {number[] | Float64Array} list @param {number} share */
function quantile(list, share) {
  const sorted = Float64Array.from(list).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

/** @param {number[]} list */
const median = (list) => quantile(list, 0.5);

/** @param {number[]} ms */
const summary = (ms) => ({ count: ms.length, p50: quantile(ms, 0.5), p99: quantile(ms, 0.99) });

module.exports = { quantile, median, summary };
