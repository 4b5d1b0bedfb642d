/** Can the numbers be trusted, and if not, why? */

import { noAnswer } from './serving.js';
import { at, counted, duration, isNumber, list, roughly, say } from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 * @typedef {import('./serving.js').Verdict} Verdict
 */

const YOUNG_MS = 2 * 60_000;
/** After so long a silence of the feeder the numbers are not exact. */
const SILENT_MS = 2_000;

/** @param {View} view @returns {Verdict} */
export function judgeNumbers(view) {
  const { document, numbers, failure, ageMs } = view;
  const last = numbers
    ? say`The last ones are from ${at(momentOf(numbers))}, ${[roughly(ageMs ?? 0)]} ago, and shown in grey.`
    : ['There are none from before either.'];
  if (!document) return { level: 'unknown', headline: 'Not known', why: [noAnswer(view)] };
  if (failure || (!numbers && !view.isAnswering)) {
    const headline = numbers ? 'No, they are old' : 'No numbers';
    return { level: 'bad', headline, why: [noAnswer(view), last] };
  }
  if (numbers !== document && view.isAnswering) {
    const headline = view.scope === 'cluster' ? 'No total' : 'No numbers now';
    return { level: 'bad', headline, why: [...whyNone(view), last] };
  }
  if (!view.isFresh) {
    const why = view.isOldAtHome
      ? say`What the node answers with is ${[duration(Number(document.trust.stateAgeMs))]} old.`
      : noAnswer(view);
    return { level: 'bad', headline: 'No, they are old', why: [why, last] };
  }
  const asOf = say`As of ${at(momentOf(numbers))}.`;
  if (document.trust.exact === true) {
    return { level: 'good', headline: 'Yes, exact', why: [asOf, ...verifiedWords(view)] };
  }
  return {
    level: 'warn',
    headline: 'Live, but not proven exact',
    why: [...whyInexact(view), asOf],
  };
}

/** @param {any} document */
function momentOf(document) {
  return isNumber(document.trust?.stateAt) ? document.trust.stateAt : document.generatedAt;
}

/** @param {View} view @returns {Parts[]} */
function whyNone({ document, scope }) {
  if (scope === 'cluster') {
    const none = without(document);
    const gives = none.length === 1 ? 'gives' : 'give';
    return none.length > 0
      ? [[...list(none), ` ${gives} no numbers that can be counted, and a part is no total.`]]
      : [say`${String(document.error)}.`];
  }
  return [
    typeof document.error === 'string' ? say`${document.error}.` : ['The answer does not say why.'],
  ];
}

/** The nodes that keep a cluster from having a total. @param {any} document @returns {Parts[]} */
export function without({ nodes }) {
  return nodes
    .filter((/** @type {any} */ summary) => summary.ok !== true)
    .map((/** @type {any} */ summary) => [{ outside: String(summary.node) }]);
}

/** @param {View} view @returns {Parts[]} */
function verifiedWords({ document, scope, now }) {
  if (scope === 'node') {
    const { verify, verifiedAt, loadedAt } = document.trust.keeper;
    if (verify) {
      const found = counted(verify.repaired, 'missed write');
      const read = say`${[counted(verify.scanned, 'row')]} read, ${[found]} found`;
      if (!verify.partial)
        return [[...say`Verified ${[roughly(now - verify.at)]} ago: `, ...read, '.']];
      const whole = verifiedAt ?? loadedAt;
      return [
        [
          ...say`The last verification, ${[roughly(now - verify.at)]} ago, stopped short: `,
          ...read,
          '.',
        ],
        isNumber(whole)
          ? say`The whole table was read ${[roughly(now - whole)]} ago.`
          : ['The whole table has not been read yet.'],
      ];
    }
    return isNumber(loadedAt)
      ? [
          say`The whole table was loaded ${[roughly(now - loadedAt)]} ago; the first verification is to come.`,
        ]
      : [['There is no table behind it.']];
  }
  /** @type {{ at: number, node: string } | null} */
  let oldest = null;
  for (const { node, keeper } of document.nodes) {
    const at = keeper?.verifiedAt ?? keeper?.loadedAt;
    if (isNumber(at) && (oldest === null || at < oldest.at)) oldest = { at, node: String(node) };
  }
  if (oldest === null) return [];
  return [
    say`Every node has read its whole table, ${oldest.node} the longest ago: ${[roughly(now - oldest.at)]}.`,
  ];
}

/** @param {View} view @returns {Parts[]} */
function whyInexact(view) {
  const { document, scope, now } = view;
  if (scope === 'node') return inexactKeeper(document.trust.keeper, now);
  return document.nodes
    .filter((/** @type {any} */ node) => node.exact !== true)
    .flatMap((/** @type {any} */ node) =>
      inexactKeeper(node.keeper, now).map((why) => [...say`${String(node.node)}: `, ...why]),
    );
}

/**
 * Each thing that keeps the numbers of a keeper from being exact.
 *
 * @param {any} keeper
 * @param {number} now
 * @returns {Parts[]}
 */
function inexactKeeper(keeper, now) {
  /** @type {Parts[]} */
  const why = [];
  if (!keeper) return [['the answer does not say why.']];
  if (keeper.feederSilentMs > SILENT_MS) {
    why.push(
      say`the worker that feeds the queue has not been heard of for ${[duration(keeper.feederSilentMs)]}: events may be on their way.`,
    );
  }
  if (keeper.resyncing)
    why.push(['the subscription was interrupted, and the table is being walked again.']);
  if (keeper.unverifiedRows > 0) {
    why.push([
      `${counted(keeper.unverifiedRows, 'row')} from a snapshot not compared with the table yet.`,
    ]);
  }
  if (keeper.awaitingRead > 0) {
    why.push([
      `${counted(keeper.awaitingRead, 'row')} known to differ wait to be read from the table.`,
    ]);
  }
  if (keeper.partialLoad)
    why.push(['the load stopped short: some rows of the table are not kept.']);
  if (keeper.unreadableRows > 0) {
    why.push([`${counted(keeper.unreadableRows, 'row')} of the table cannot be read.`]);
  }
  const { verify } = keeper;
  if (verify?.repaired > 0) {
    const times = counted(verify.repaired, 'missed write');
    why.push(
      say`the last verification, ${[roughly(now - verify.at)]} ago, put right ${[times]}; exact again after one that finds none.`,
    );
  } else if (verify?.partial) {
    why.push(['the last verification did not reach the whole table.']);
  }
  if (why.length === 0) {
    why.push([
      'a verification is to come: not every row has been compared since the feeder changed, or since an event was lost.',
    ]);
  }
  return why;
}

/**
 * Whether there is no minute yet over which a node's rates could be taken: a drain time that is null then says nothing.
 *
 * @param {any} keeper
 * @param {number} generatedAt
 */
export function isYoung(keeper, generatedAt) {
  return isNumber(keeper?.loadStartedAt) && generatedAt - keeper.loadStartedAt < YOUNG_MS;
}
