/**
 * Text as parts. What comes from outside (keys, routes, node names, messages) is never mixed into a string: it is a
 * part of its own, which `dom.js` isolates and shows character by character.
 *
 * - a string: our own words
 * - `outside`: text from outside
 * - `at`: a moment
 * - `none`: not known, and why
 *
 * @typedef {string | { outside: string } | { at: number, text: string, full: string } | { none: string }
 *   | { strong: string }} Part
 * @typedef {Part[]} Parts
 */

const COUNT = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });
const DECIMAL = new Intl.NumberFormat('en-GB', { maximumSignificantDigits: 3 });

/** No page has room for the figures of more than this. */
const MOST_FIGURES = 1e15;
const POWER = new Intl.NumberFormat('en-GB', {
  notation: 'scientific',
  maximumSignificantDigits: 3,
});

/** @param {number} value @param {Intl.NumberFormat} [format] */
function figures(value, format = COUNT) {
  return (Math.abs(value) < MOST_FIGURES ? format : POWER).format(value);
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/**
 * say`node ${name} was silent for ${[duration(ms)]}`: what is interpolated as a string is from outside; parts, our own
 * words among them, are not.
 *
 * @param {TemplateStringsArray} words
 * @param {...(string | Part | Parts)} values
 * @returns {Parts}
 */
export function say(words, ...values) {
  /** @type {Parts} */
  const parts = [];
  words.forEach((word, index) => {
    if (word !== '') parts.push(word);
    if (index >= values.length) return;
    const value = values[index];
    if (Array.isArray(value)) parts.push(...value);
    else parts.push(typeof value === 'string' ? { outside: value } : value);
  });
  return parts;
}

/** @param {unknown} value @returns {value is number} */
export function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

/**
 * @param {unknown} value
 * @param {string} [why]  said where it is no number
 * @returns {Parts}
 */
export function count(value, why = 'the answer does not say') {
  return isNumber(value) ? [figures(value)] : [{ none: why }];
}

/** @param {number} value */
export function grouped(value) {
  return figures(value);
}

/**
 * "1 page", "2 pages": `noun` is ours.
 *
 * @param {number} value
 * @param {string} noun
 * @param {string} [nouns]
 */
export function counted(value, noun, nouns = `${noun}s`) {
  return `${isNumber(value) ? figures(value) : '–'} ${value === 1 ? noun : nouns}`;
}

/**
 * @param {unknown} value
 * @param {string} [why]
 * @returns {Parts}
 */
export function decimal(value, why = 'the answer does not say') {
  return isNumber(value) ? [figures(value, DECIMAL)] : [{ none: why }];
}

/** @param {number} ms @returns {string} */
export function duration(ms) {
  if (!isNumber(ms)) return 'an unknown time';
  const rest = Math.max(0, ms);
  if (rest < SECOND) return `${Math.round(rest)} ms`;
  if (rest < MINUTE) return `${Math.floor(rest / SECOND)} s`;
  if (rest < HOUR) return two(rest, MINUTE, 'min', SECOND, 's');
  if (rest < DAY) return two(rest, HOUR, 'h', MINUTE, 'min');
  return two(rest, DAY, 'd', HOUR, 'h');
}

/**
 * @param {number} ms
 * @param {number} large
 * @param {string} largeName
 * @param {number} small
 * @param {string} smallName
 */
function two(ms, large, largeName, small, smallName) {
  const whole = Math.floor(ms / large);
  const rest = Math.floor((ms - whole * large) / small);
  const first = `${figures(whole)} ${largeName}`;
  return rest === 0 || whole >= MOST_FIGURES ? first : `${first} ${rest} ${smallName}`;
}

/** To the second below a minute, to the minute below an hour, so that what ticks is quiet. @param {number} ms */
export function roughly(ms) {
  if (!isNumber(ms)) return 'an unknown time';
  if (ms < MINUTE) return `${Math.floor(Math.max(0, ms) / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  return duration(ms);
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const CLOCK_SHORT = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' });
const DAY_CLOCK = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
});
const YEAR_CLOCK = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
});
const FULL = new Intl.DateTimeFormat('en-GB', { dateStyle: 'full', timeStyle: 'long' });
/** Further than this a Date cannot say. */
const LAST_DATE = 8_640_000_000_000_000;

/**
 * A moment on the viewer's clock: the time today, with the date on other days.
 *
 * @param {unknown} ms
 * @param {string} [why]  said where it is none
 * @returns {Parts}
 */
export function at(ms, why = 'the answer does not say') {
  if (!isNumber(ms)) return [{ none: why }];
  if (Math.abs(ms) > LAST_DATE) return ['after the year 275760'];
  const date = new Date(ms);
  const today = new Date();
  const isToday = date.toDateString() === today.toDateString();
  const isThisYear = date.getFullYear() === today.getFullYear();
  const format = isToday ? CLOCK : isThisYear ? DAY_CLOCK : YEAR_CLOCK;
  return [{ at: ms, text: format.format(date), full: FULL.format(date) }];
}

/** "14:05", of the viewer's clock. @param {number} ms */
export function clock(ms) {
  return CLOCK_SHORT.format(new Date(ms));
}

/** The viewer's zone, with its name and its distance from UTC now. */
export function zone() {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const minutes = -new Date().getTimezoneOffset();
  const sign = minutes < 0 ? '-' : '+';
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const shift = `UTC${sign}${hours}${rest ? `:${String(rest).padStart(2, '0')}` : ''}`;
  return minutes === 0 && timeZone === 'UTC' ? 'UTC' : `${timeZone} (${shift})`;
}

/** @param {unknown} bytes @returns {Parts} */
export function size(bytes) {
  if (!isNumber(bytes)) return [{ none: 'the answer does not say' }];
  if (bytes < 2 ** 20) return [`${DECIMAL.format(bytes / 2 ** 10)} KiB`];
  if (bytes < 2 ** 30) return [`${DECIMAL.format(bytes / 2 ** 20)} MiB`];
  return [`${figures(bytes / 2 ** 30, DECIMAL)} GiB`];
}

/** "a", "a and b", "a, b and c". @param {Parts[]} items @returns {Parts} */
export function list(items) {
  return items.flatMap((item, index) => {
    if (index === 0) return item;
    return [index === items.length - 1 ? ' and ' : ', ', ...item];
  });
}

/** A route as the rule that made it; any other name as it is. @param {unknown} route @returns {Parts} */
export function routeName(route) {
  const text = typeof route === 'string' ? route : String(route);
  const rule = /^route:(exact|prefix|contains):(.*)$/s.exec(text);
  return rule ? [`${rule[1]} `, { outside: rule[2] }] : [{ outside: text }];
}

/** Characters that show nothing, or change how their neighbours are shown. */
const ODD = /(?! )[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Z}\p{DI}\u2800]/gu;

/**
 * The text in pieces: as it is, or the code points of characters that would deceive the eye.
 *
 * @param {string} text
 * @returns {{ text: string, odd: boolean }[]}
 */
export function pieces(text) {
  /** @type {{ text: string, odd: boolean }[]} */
  const found = [];
  let from = 0;
  for (const match of text.matchAll(ODD)) {
    if (match.index > from) found.push({ text: text.slice(from, match.index), odd: false });
    const code = /** @type {number} */ (match[0].codePointAt(0));
    found.push({ text: `U+${code.toString(16).toUpperCase().padStart(4, '0')}`, odd: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), odd: false });
  return found;
}
