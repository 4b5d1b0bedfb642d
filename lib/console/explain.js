/** Why a page is not being rendered, in words. */

import { AT_LIMIT, servingOf } from './serving.js';
import {
  at,
  count,
  counted,
  decimal,
  duration,
  grouped,
  isNumber,
  roughly,
  routeName,
  say,
} from './text.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./serving.js').Level} Level
 * @typedef {{ level: Level, headline: string, why: Parts[] }} Answer
 */

/** What a due page waits for, by the headline of serving. */
const STOPPED = new Map([
  ['No', 'Due, but claims are refused'],
  ['Paused', 'Due, but claims are paused'],
  [AT_LIMIT, 'Due, but claims are at the limit of leases'],
]);

/**
 * @param {any} explanation
 * @param {any} state  the node's state of the same moment; null where it is not known
 * @param {number} now  the host's clock
 * @returns {Answer}
 */
export function explainWords(explanation, state, now) {
  const { reason, kept, due, lease, hold } = explanation;
  const serving = state ? servingOf({ now: state.now, phase: state.trust.phase }) : null;
  if (reason === 'not-owned') return notOwned(explanation, state);
  if (!kept) return unknown(state);
  const why = missesWords(explanation);
  if (!due) {
    return {
      level: 'good',
      headline: `Not due yet: due in ${duration(explanation.dueAt - now)}`,
      why: [
        say`Due at ${at(explanation.dueAt)}, to the minute. Until then it is not to be rendered.`,
        ...holdWords(hold, now),
        ...why,
      ],
    };
  }
  const lateness = lateWords(explanation, now);
  if (lease) {
    return {
      level: 'good',
      headline: 'It is being rendered',
      why: [
        say`Given out at ${at(lease.grantedAt)}, ${[roughly(now - lease.grantedAt)]} ago.`,
        say`If no result comes by ${at(lease.expiresAt)} (in ${[duration(lease.expiresAt - now)]}), that is a miss, and it can be given out again.`,
        ['It stays due until its result writes the row again.'],
        lateness,
        ...why,
      ],
    };
  }
  if (hold && hold.until > now) {
    return {
      level: 'warn',
      headline: `Held back for another ${duration(hold.until - now)}`,
      why: [
        [
          `${counted(hold.misses, 'attempt')} in a row ended without a result that moved it on: look at the renderers' log for this page.`,
        ],
        say`It is not given out before ${at(hold.until)}. The attempt after that is certain; if it fails too, the next hold is twice as long. A result ends it.`,
        lateness,
      ],
    };
  }
  const stopped = serving && STOPPED.get(serving.headline);
  const waiting = waitWords(explanation);
  if (stopped) {
    return {
      level: serving.level,
      headline: stopped,
      why: [serving.why, ...waiting, lateness, ...why],
    };
  }
  return {
    level: 'good',
    headline: isNumber(explanation.rank)
      ? `Due, and number ${grouped(explanation.rank)} in the queue`
      : 'Due, and waiting',
    why: [...waiting, lateness, ...why],
  };
}

/** @param {any} explanation @param {any} state @returns {Answer} */
function notOwned({ owner }, state) {
  return {
    level: 'warn',
    headline: 'It belongs to another node',
    why: [
      say`${String(owner)} owns this page: only there it is kept and given out. Ask the console of ${String(owner)}.`,
      ...(state ? [say`This answer is from ${String(state.node)}.`] : []),
    ],
  };
}

/** @param {any} state @returns {Answer} */
function unknown(state) {
  const why = [
    ['No page of exactly this key is in the schedule here, so it is never given out.'],
    ['Either it has no row, or its row has no valid next render time.'],
    [
      'Check the spelling: scheme, host, a slash at the end, upper and lower case, and the device behind the | count.',
    ],
  ];
  const phase = state?.trust.phase;
  if (phase && phase !== 'live') {
    why.unshift(['The table is not loaded to its end: it may come yet.']);
  }
  return { level: 'warn', headline: 'This key is not known', why };
}

/** @param {any} explanation @returns {Parts[]} */
function waitWords({ rank, waitMs }) {
  if (!isNumber(rank)) return [];
  const place =
    rank === 1
      ? 'It is the next to be given out.'
      : `${counted(rank - 1, 'due page')} ahead of it, those being rendered included.`;
  return [
    [place],
    isNumber(waitMs)
      ? [`At the rate of the last minutes it is given out in about ${duration(waitMs)}.`]
      : [
          'No page has been given out in the last minutes, so there is no telling when: is the fleet running?',
        ],
  ];
}

/** @param {any} explanation @param {number} now @returns {Parts} */
function lateWords({ dueAt, cadenceMs }, now) {
  const late = now - dueAt;
  const cadences = isNumber(cadenceMs) && cadenceMs > 0 ? late / cadenceMs : null;
  const share = cadences === null ? [] : [' (', ...decimal(cadences), ' of its cadence)'];
  return [...say`Due since ${at(dueAt)}: late by ${[roughly(late)]}`, ...share, '.'];
}

/** @param {any} explanation @returns {Parts[]} */
function missesWords({ misses, hold }) {
  if (!(misses > 0) || hold) return [];
  return [[`${counted(misses, 'attempt')} in a row ended without a result that moved it on.`]];
}

/** @param {any} hold @param {number} now @returns {Parts[]} */
function holdWords(hold, now) {
  if (!hold || hold.until <= now) return [];
  return [
    say`It is held back as well, until ${at(hold.until)}, after ${[counted(hold.misses, 'miss', 'misses')]}.`,
  ];
}

/**
 * Everything the answer says.
 *
 * @param {any} explanation
 * @returns {{ term: string, is: Parts, more?: Parts }[]}
 */
export function explainFacts(explanation) {
  const { kept, owner, route, cadenceMs, carried, demandPeriodMs } = explanation;
  /** @param {unknown} value @param {string} [otherwise] */
  const number = (value, otherwise) => (kept ? decimal(value, otherwise) : notKept);
  /** @param {unknown} value */
  const yes = (value) => (kept ? [value === true ? 'yes' : 'no'] : notKept);
  /** @type {Parts} */
  const notKept = [{ none: 'it is not kept here' }];
  const bots = isNumber(demandPeriodMs)
    ? [`a bot comes every ${duration(demandPeriodMs)}`]
    : undefined;
  return [
    { term: 'Owner', is: say`${String(owner)}` },
    { term: 'Route', is: routeName(route) },
    {
      term: 'Cadence',
      is: isNumber(cadenceMs) ? [duration(cadenceMs)] : [{ none: 'it has none' }],
      more: [carried ? 'carried by the row' : 'by its route, or the default'],
    },
    { term: 'Due', is: kept ? at(explanation.dueAt) : notKept },
    {
      term: 'Place among due pages',
      is: kept ? count(explanation.rank, 'it is not due') : notKept,
    },
    { term: 'Score', is: number(explanation.score, 'it is not due') },
    { term: 'From the sitemap', is: yes(explanation.fromSitemap) },
    { term: 'Changed', is: yes(explanation.changed), more: bots },
    { term: 'Urgent', is: yes(explanation.urgent) },
    { term: 'Misses in a row', is: number(explanation.misses) },
  ];
}
