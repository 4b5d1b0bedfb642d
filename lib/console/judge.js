/**
 * The three answers an operator wants first, in words, from what is known: is it serving, can the numbers be trusted,
 * what needs attention.
 */

import { at, counted, duration, isNumber, list, roughly, say } from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 * @typedef {'good' | 'warn' | 'bad' | 'unknown'} Level
 * @typedef {{ level: Level, headline: string, why: Parts[] }} Verdict
 */

/** Verification is hourly unless configured: later than this it is late under any sensible setting. */
const VERIFY_LATE_MS = 2 * 3_600_000;
const CLOCKS_APART_MS = 30_000;
const RECENT_MS = 15 * 60_000;
const YOUNG_MS = 2 * 60_000;

/** @type {Record<string, string>} */
const PHASES = {
  starting: 'is starting',
  'waiting-for-peers': 'waits to see another node, as it cannot know its share before',
  loading: 'is loading the table',
  live: 'is live',
  failed: 'failed to load the table, and tries again',
  stopped: 'is stopped',
};

/** What a node does, after its name. @param {unknown} phase @returns {Parts} */
export function phaseWords(phase) {
  const text = String(phase);
  return Object.hasOwn(PHASES, text) ? [PHASES[text]] : say`is in the phase ${text}`;
}

/** @param {View} view @returns {Parts} */
export function nameOf({ document, scope }) {
  if (scope === 'cluster') return ['the cluster'];
  return typeof document?.node === 'string' ? [{ outside: document.node }] : ['this node'];
}

/** @param {View} view @returns {Verdict} */
export function judgeServing(view) {
  const { document, failure } = view;
  if (!document) return { level: 'unknown', headline: 'Not known', why: [noAnswer(view)] };
  if (failure) {
    const before = view.scope === 'cluster' ? clusterServing(document) : nodeServing(document);
    const then = say`When it last answered, ${[roughly(view.answerAgeMs ?? 0)]} ago: ${lower(before.headline)}.`;
    return { level: 'unknown', headline: 'Not known', why: [noAnswer(view), then] };
  }
  return view.scope === 'cluster' ? clusterServing(document) : nodeServing(document);
}

/** @param {string} text */
function lower(text) {
  return { strong: text[0].toLowerCase() + text.slice(1) };
}

/** @param {View} view @returns {Parts} */
function noAnswer(view) {
  if (!view.failure) return ['No answer yet.'];
  return say`${nameOrHost(view)} does not answer: ${view.failure.why}.`;
}

/** @param {View} view @returns {Parts} */
export function nameOrHost(view) {
  const { node } = view.document ?? {};
  return typeof node === 'string' ? [{ outside: node }] : ['The host of this page'];
}

/**
 * @param {{ now: any, phase: unknown }} known
 * @returns {{ level: Level, headline: string, why: Parts }}
 */
export function servingOf({ now, phase }) {
  if (phase === 'starting' || phase === 'stopped') {
    return {
      level: 'bad',
      headline: 'No',
      why: say`The queue ${phaseWords(phase)}: claims are refused.`,
    };
  }
  if (now?.paused === true) {
    return {
      level: 'warn',
      headline: 'Paused',
      why: ['Claims grant nothing until somebody resumes.'],
    };
  }
  const partly = phase === 'live' ? null : say`The queue ${phaseWords(phase)}`;
  switch (now?.status) {
    case 'queued':
      return partly
        ? {
            level: 'warn',
            headline: 'Yes, in part',
            why: [...partly, ': claims get what is kept so far.'],
          }
        : { level: 'good', headline: 'Yes', why: ['Claims get pages.'] };
    case 'empty':
      return {
        level: 'good',
        headline: 'Yes, nothing is due',
        why: ['Claims find no page that is due.'],
      };
    case 'unready':
      return {
        level: 'warn',
        headline: 'Not yet',
        why: partly
          ? [...partly, ', and nothing of what is kept so far is due.']
          : ['Not the whole table is kept, and nothing of what is kept is due.'],
      };
    default:
      return { level: 'unknown', headline: 'Not known', why: ['The answer does not say.'] };
  }
}

/** @param {any} document @returns {Verdict} */
function nodeServing(document) {
  const { level, headline, why } = servingOf({ now: document.now, phase: document.trust?.phase });
  /** @type {Parts[]} */
  const reasons = [why];
  const { due, inFlight, unclaimed, paused } = document.now;
  if (!paused && isNumber(due) && due > 0 && isNumber(unclaimed)) {
    reasons.push([
      `${counted(inFlight, 'page')} being rendered, ${counted(unclaimed, 'page')} waiting.`,
    ]);
  }
  return { level, headline, why: reasons };
}

/** @param {any} summary  of one node in the cluster's answer */
export function summaryServing(summary) {
  if (summary.phase === null || summary.phase === undefined || !summary.now) {
    const why = typeof summary.error === 'string' ? say`${summary.error}` : ['It does not answer.'];
    return { level: /** @type {Level} */ ('unknown'), headline: 'Not known', why };
  }
  return servingOf(summary);
}

/** @param {any} document @returns {Verdict} */
function clusterServing({ nodes }) {
  /** @type {Map<string, { level: Level, nodes: Parts[] }>} */
  const groups = new Map();
  for (const summary of nodes) {
    const { level, headline } = summaryServing(summary);
    const group = groups.get(headline) ?? { level, nodes: [] };
    group.nodes.push([{ outside: String(summary.node) }]);
    groups.set(headline, group);
  }
  const why = [...groups].map(([headline, group]) => [
    ...list(group.nodes),
    `: ${headline.toLowerCase()}.`,
  ]);
  const all = nodes.length;
  const serving = nodes.filter((/** @type {any} */ summary) => serves(summaryServing(summary)));
  const levels = [...groups.values()].map((group) => group.level);
  if (groups.size === 1 && (all === 1 || serving.length === 0)) {
    const [headline] = groups.keys();
    return { level: levels[0], headline, why };
  }
  if (serving.length === all && levels.every((level) => level === 'good')) {
    const headline = groups.has('Yes') ? 'Yes' : 'Yes, nothing is due';
    return { level: 'good', headline: `${headline}, on all ${all} nodes`, why };
  }
  const level = levels.includes('bad') || levels.includes('unknown') ? 'bad' : 'warn';
  return { level, headline: `On ${serving.length || 'none'} of ${all} nodes`, why };
}

/** @param {{ level: Level, headline: string }} verdict  of a node */
function serves({ level, headline }) {
  return level === 'good' || headline === 'Yes, in part';
}

/** @param {View} view @returns {Verdict} */
export function judgeNumbers(view) {
  const { document, numbers, failure, ageMs } = view;
  const last = numbers
    ? say`The last ones are from ${at(momentOf(numbers))}, ${[roughly(ageMs ?? 0)]} ago, and shown in grey.`
    : ['There are none from before either.'];
  if (!document) return { level: 'unknown', headline: 'Not known', why: [noAnswer(view)] };
  if (failure) return { level: 'bad', headline: 'No, they are old', why: [noAnswer(view), last] };
  if (numbers !== document) {
    const headline = view.scope === 'cluster' ? 'No total' : 'No numbers now';
    return { level: 'bad', headline, why: [...whyNone(view), last] };
  }
  if (!view.isFresh) {
    const why = view.isOldAtHome
      ? say`What the node answers with is ${[duration(Number(document.trust.stateAgeMs))]} old.`
      : ['No answer has come since.'];
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

/** @param {any} summary @returns {Parts} */
function nodeTrouble(summary) {
  const { node, error, reason } = summary;
  const why = typeof error === 'string' ? error : String(reason);
  return why.startsWith(String(node)) ? say`${why}.` : say`${String(node)}: ${why}.`;
}

/** @param {View} view @returns {Parts[]} */
function verifiedWords({ document, scope, now }) {
  if (scope === 'node') {
    const { verify, loadedAt } = document.trust.keeper;
    if (verify) {
      const found = counted(verify.repaired, 'missed write');
      return [
        say`Verified ${[roughly(now - verify.at)]} ago: ${[counted(verify.scanned, 'row')]} read, ${[found]} found.`,
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
    const at = keeper?.verify?.at ?? keeper?.loadedAt;
    if (isNumber(at) && (oldest === null || at < oldest.at)) oldest = { at, node: String(node) };
  }
  if (oldest === null) return [];
  return [
    say`Every node has compared all its rows with its table, ${oldest.node} the longest ago: ${[roughly(now - oldest.at)]}.`,
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
  if (keeper.resyncing)
    why.push(['the subscription was interrupted, and the table is being walked again.']);
  if (keeper.unverifiedRows > 0) {
    why.push([
      `${counted(keeper.unverifiedRows, 'row')} from a snapshot not compared with the table yet.`,
    ]);
  }
  if (keeper.awaitingRead > 0) {
    why.push([
      `${counted(keeper.awaitingRead, 'row')} changed in a way that the event did not tell, and wait to be read.`,
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

/** @param {View} view @returns {Verdict} */
export function judgeAttention(view) {
  const { document } = view;
  if (!document) return { level: 'unknown', headline: 'Not known', why: [] };
  /** @type {Trouble[]} */
  let items;
  // What was wrong before may be so no longer.
  if (view.failure) items = [{ level: 'bad', is: noAnswer(view) }];
  else items = view.scope === 'cluster' ? clusterTroubles(view) : nodeTroubles(view);
  if (Math.abs(view.aheadMs) > CLOCKS_APART_MS) {
    const side = view.aheadMs > 0 ? 'ahead of' : 'behind';
    items.push({
      level: 'warn',
      is: [
        `This device's clock is ${duration(Math.abs(view.aheadMs))} ${side} the host's. Ages are counted on the host's.`,
      ],
    });
  }
  const bad = items.filter((item) => item.level === 'bad').length;
  const warn = items.length - bad;
  if (items.length === 0) {
    return { level: 'good', headline: 'Nothing', why: [['No trouble that the queue knows of.']] };
  }
  items.sort((one, other) => Number(other.level === 'bad') - Number(one.level === 'bad'));
  return {
    level: bad > 0 ? 'bad' : 'warn',
    headline: `${counted(bad + warn, 'thing')} to look at`,
    why: items.map((item) => item.is),
  };
}

/**
 * Whether there is no minute yet over which rates could be taken: a drain time that is null then says nothing.
 *
 * @param {any} document
 */
export function isYoung({ generatedAt, nodes, trust }) {
  const keepers = nodes ? nodes.map((/** @type {any} */ node) => node.keeper) : [trust?.keeper];
  return keepers.some(
    (/** @type {any} */ keeper) =>
      isNumber(keeper?.loadStartedAt) && generatedAt - keeper.loadStartedAt < YOUNG_MS,
  );
}

/** @typedef {{ level: 'warn' | 'bad', is: Parts }} Trouble */

/** @param {View} view @returns {Trouble[]} */
function nodeTroubles({ document, now }) {
  return [...queueTroubles(document), ...keeperTroubles(document.trust?.keeper, now)];
}

/** @param {View} view @returns {Trouble[]} */
function clusterTroubles({ document, now }) {
  const found = queueTroubles(document);
  for (const summary of document.nodes) {
    if (summary.ok !== true) found.push({ level: 'bad', is: nodeTrouble(summary) });
    for (const trouble of keeperTroubles(summary.keeper, now)) {
      found.push({ ...trouble, is: [...say`${String(summary.node)}: `, ...trouble.is] });
    }
  }
  return found;
}

/** What the counts tell, where there are counts. @param {any} document @returns {Trouble[]} */
function queueTroubles(document) {
  const { now, lateness, coming } = document;
  /** @type {Trouble[]} */
  const found = [];
  if (now?.paused === true) found.push({ level: 'warn', is: ['Claims are paused.'] });
  if (!isNumber(now?.due) || !lateness || !coming) return found;
  if (now.due > 0 && now.inFlight === 0 && now.paused !== true) {
    found.push({
      level: 'bad',
      is: ['Pages are due and none is being rendered: is the fleet running?'],
    });
  }
  const last = lateness.edges.length;
  const latest = (lateness.sitemap[last] ?? 0) + (lateness.discovered[last] ?? 0);
  if (latest > 0) {
    found.push({
      level: 'warn',
      is: [`${counted(latest, 'page')} late by ${lateness.edges[last - 1]} cadences or more.`],
    });
  }
  if (now.heldKeys > 0) {
    found.push({
      level: 'warn',
      is: [
        `${counted(now.heldKeys, 'page')} held back: rendered again and again without coming to an end.`,
      ],
    });
  }
  if (now.drainEtaMs === null && now.inFlight > 0 && !isYoung(document)) {
    found.push({
      level: 'warn',
      is: ['The backlog of late pages does not shrink at the recent rates.'],
    });
  }
  return found;
}

/** @param {any} keeper @param {number} now @returns {Trouble[]} */
function keeperTroubles(keeper, now) {
  /** @type {Trouble[]} */
  const found = [];
  if (!keeper) return found;
  const { verify, lastError, unreadableRows, partialLoad, epoch, epochAt, invalidRules, loadedAt } =
    keeper;
  if (typeof lastError === 'string' && lastError !== '') {
    found.push({ level: 'warn', is: say`The last error: ${lastError}` });
  }
  if (partialLoad)
    found.push({ level: 'bad', is: ['The load stopped short: some rows are not kept.'] });
  if (unreadableRows > 0) {
    found.push({
      level: 'warn',
      is: [`${counted(unreadableRows, 'row')} of the table cannot be read.`],
    });
  }
  if (verify?.repaired > 0) {
    found.push({
      level: 'warn',
      is: [`The last verification put right ${counted(verify.repaired, 'missed write')}.`],
    });
  }
  const verifiedAt = verify?.at ?? loadedAt;
  if (isNumber(verifiedAt) && now - verifiedAt > VERIFY_LATE_MS) {
    found.push({ level: 'warn', is: [`No verification for ${roughly(now - verifiedAt)}.`] });
  }
  if (epoch > 1 && isNumber(epochAt) && now - epochAt < RECENT_MS) {
    found.push({
      level: 'warn',
      is: say`Another worker took over the feeding ${[roughly(now - epochAt)]} ago.`,
    });
  }
  if (Array.isArray(invalidRules)) {
    for (const { what } of invalidRules) {
      found.push({ level: 'warn', is: say`A rule of the routes is left out: ${String(what)}` });
    }
  }
  return found;
}
