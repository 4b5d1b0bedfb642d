/** This keeper, asked as the other designs are. */

const { QueueKeeper } = require('../..');

/** @typedef {import('../reference.js').Design} Design */
/** @typedef {import('../reference.js').Change} Change */

/** @param {import('../..').KeeperOptions} options */
function openKeeper(options) {
  const keeper = new QueueKeeper(options);
  let version = 1;
  /** @param {Change} change */
  const eventOf = ({ key, value }) => ({ type: 'put', id: key, value, version: version++ });
  return {
    name: 'this keeper',
    keeper,
    /** @param {Change[]} rows */
    load(rows) {
      const walk = keeper.beginWalk('load');
      for (let i = 0; i < rows.length; i += 1000) {
        walk.rows(rows.slice(i, i + 1000).map(({ key, value }) => ({ cacheKey: key, ...value })));
      }
      walk.end({});
    },
    /** @param {Change[]} changes */
    reschedule(changes) {
      for (const change of changes) keeper.apply(eventOf(change));
      keeper.size; // Flushed: nothing is left for the next question.
    },
    /** @param {Change} change */
    rescheduleOne: (change) => void keeper.applyAll([eventOf(change)]),
    next: () => keeper.topK(20).rows.map(({ key, score }) => ({ key, score })),
    counts: () => keeper.state(),
    bytes: () => keeper.bytes,
    close: () => keeper.close(),
  };
}

module.exports = { openKeeper };
