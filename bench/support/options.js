/**
 * The options of a harness, from its command line: one table says what each is, what it is normally and with --quick, and
 * makes the text of --help. A wrong value ends the process with a sentence and exit code 2.
 */

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');

/**
 * - A number: whole, unless `fraction`, and at least `least` (1, or 0 with `fraction`).
 * - A choice of some of the words in `of`, separated by commas; normally, and with `--quick` if nothing else is said, all of them.
 * - Any text, shown in --help as `text` says; normally none, which is null.
 * - A flag.
 *
 * @typedef {{ what: string, normally: number, quick?: number, least?: number, fraction?: boolean }} NumberOption
 * @typedef {{ what: string, of: readonly string[], quick?: readonly string[] }} ChoiceOption
 * @typedef {{ what: string, flag: true }} FlagOption
 * @typedef {{ what: string, text: string, normally?: string }} TextOption
 * @typedef {NumberOption | ChoiceOption | TextOption | FlagOption} Option
 */
/**
 * @template {Option} O
 * @typedef {O extends { normally: number } ? number : O extends { of: readonly string[] } ? string[]
 *   : O extends { text: string, normally: string } ? string : O extends { text: string } ? string | null : boolean} ValueOf
 */

const RESULTS = path.join(__dirname, '..', 'results');

/** What is wrong with the command line, in one sentence. */
class UsageError extends Error {}

/**
 * Reads the command line of `bench/<name>.js`. Every harness has `--quick`, `--out` and `--help` besides the given options.
 * `out` is null where nothing is to be written: with `--quick`, unless a file is named.
 *
 *     const { rows, seed, quick, out } = readOptions('restart', {
 *       rows: { what: 'how many schedule rows', normally: 250_000, quick: 10_000 },
 *       seed: { what: 'of the corpus', normally: 1 },
 *     }, { quickly: '10,000 rows, under 20 seconds' });
 *
 * @template {Record<string, Option>} T
 * @param {string} name  also of the file of results
 * @param {T} options
 * @param {{ quickly: string, args?: string[] }} more  `quickly`: what `--quick` makes of it
 * @returns {{ [K in keyof T]: ValueOf<T[K]> } & { quick: boolean, out: string | null }}
 */
function readOptions(name, options, { quickly, args = process.argv.slice(2) }) {
  try {
    const { help, ...values } = parse(name, options, args);
    if (!help) return /** @type {any} */ (values);
    console.log(helpOf(name, options, quickly));
    process.exit(0);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return refuse(name, error.message);
  }
}

/** Ends the process. @param {string} name  of the harness @param {string} why  a sentence, without its end @returns {never} */
function refuse(name, why) {
  console.error(`${why}. node bench/${name}.js --help lists the options.`);
  process.exit(2);
}

/** @param {string} name @param {Record<string, Option>} options @param {string[]} args */
function parse(name, options, args) {
  const given = split(options, args);
  const quick = given.quick === true;
  /** @type {Record<string, unknown>} */
  const values = { quick, help: given.help === true, out: outOf(name, quick, given.out) };
  for (const [option, meaning] of Object.entries(options)) {
    const text = given[option];
    if ('flag' in meaning) values[option] = text === true;
    else if ('text' in meaning) values[option] = text ?? meaning.normally ?? null;
    else if ('of' in meaning) values[option] = choiceOf(option, meaning, text, quick);
    else values[option] = numberOf(option, meaning, text, quick);
  }
  return values;
}

/** @param {Record<string, Option>} options @param {string[]} args @returns {Record<string, string | boolean | undefined>} */
function split(options, args) {
  /** @type {Record<string, { type: 'string' | 'boolean' }>} */
  const known = { out: { type: 'string' }, quick: { type: 'boolean' }, help: { type: 'boolean' } };
  for (const [option, meaning] of Object.entries(options)) {
    known[option] = { type: 'flag' in meaning ? 'boolean' : 'string' };
  }
  try {
    return parseArgs({ args, options: known }).values;
  } catch (error) {
    // The first sentence says what; those after it are of Node's own options.
    throw new UsageError(/** @type {Error} */ (error).message.split(/\.\s/)[0].replace(/\.$/, ''));
  }
}

/** @param {string} option @param {NumberOption} meaning @param {unknown} text @param {boolean} quick */
function numberOf(option, { normally, quick: quickly = normally, least, fraction }, text, quick) {
  if (text === undefined) return quick ? quickly : normally;
  const lowest = least ?? (fraction ? 0 : 1);
  const value = Number(text);
  // Number('') is 0.
  const isNumber = String(text).trim() !== '' && Number.isFinite(value);
  if (!isNumber || value < lowest || !(fraction || Number.isSafeInteger(value)))
    throw new UsageError(
      `--${option} must be a ${fraction ? '' : 'whole '}number of at least ${lowest}, and is '${text}'`,
    );
  return value;
}

/** @param {string} option @param {ChoiceOption} meaning @param {unknown} text @param {boolean} quick */
function choiceOf(option, { of, quick: quickly = of }, text, quick) {
  if (text === undefined) return [...(quick ? quickly : of)];
  const chosen = String(text).split(',');
  const unknown = chosen.filter((word) => !of.includes(word));
  if (unknown.length > 0)
    throw new UsageError(`--${option} has no '${unknown.join(', ')}', but ${of.join(', ')}`);
  return of.filter((word) => chosen.includes(word));
}

/** @param {string} name @param {boolean} quick @param {unknown} file */
function outOf(name, quick, file) {
  if (file === undefined) return quick ? null : path.join(RESULTS, `${name}.json`);
  // Found out now, and not when all has been measured.
  if (file === '' || fs.statSync(String(file), { throwIfNoEntry: false })?.isDirectory())
    throw new UsageError(`--out must name a file, and is '${file}'`);
  return String(file);
}

/** @param {string} name @param {Record<string, Option>} options @param {string} quickly */
function helpOf(name, options, quickly) {
  const lines = Object.entries(options).map(([option, meaning]) => {
    const { what } = meaning;
    if ('flag' in meaning) return [`--${option}`, what];
    if ('of' in meaning)
      return [`--${option} ${meaning.of.slice(0, 2)}`, `${what}: some of ${meaning.of.join(', ')}`];
    if ('text' in meaning)
      return [
        `--${option} ${meaning.text}`,
        what + (meaning.normally ? ` (${meaning.normally})` : ''),
      ];
    const { normally, quick = normally } = meaning;
    const less = quick === normally ? '' : ` (${quick.toLocaleString('en')} with --quick)`;
    return [`--${option} ${normally}`, what + less];
  });
  lines.push(
    ['--quick', `${quickly}: shows that all of it runs, writes nothing`],
    ['--out FILE', `where the figures go (default results/${name}.json)`],
  );
  const width = Math.max(...lines.map(([left]) => left.length));
  return [
    `node bench/${name}.js [options]`,
    ...lines.map(([left, right]) => `  ${left.padEnd(width)}   ${right}`),
  ].join('\n');
}

module.exports = { readOptions, refuse };
