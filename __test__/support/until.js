/**
 * Waits for a condition, not for a time: asks again until the answer is truthy, and fails with what was waited
 * for once the deadline has passed.
 *
 * @template T
 * @param {string} what
 * @param {() => T | Promise<T>} condition
 * @param {{ withinMs?: number, everyMs?: number }} [limits]
 * @returns {Promise<NonNullable<T>>}
 */
async function until(what, condition, { withinMs = 60_000, everyMs = 10 } = {}) {
  const deadline = performance.now() + withinMs;
  /** @type {unknown} */
  let last;
  for (;;) {
    try {
      const answer = await condition();
      if (answer) return /** @type {NonNullable<T>} */ (answer);
      last = answer;
    } catch (error) {
      last = error;
    }
    if (performance.now() > deadline) {
      throw new Error(`waited ${withinMs} ms in vain for: ${what} (at last: ${String(last)})`);
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}

module.exports = { until };
