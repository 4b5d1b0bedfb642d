'use strict';
// Just enough of Rust's grammar to ask of a source file what runs inside the unwind boundary.

/** What runs its argument where a panic is caught. */
const GUARDS = /(?<![\w.])(?:call|with|feeding|boundary|off_thread)\(/g;
/** What may be called outside of it: none of these can panic. */
const HARMLESS = new Set([
  'Ok',
  'Some',
  'map_err',
  'rejected',
  'scratch',
  'unwrap_or',
  'null_mut',
  'transpose',
  'from',
  'store',
  'clone',
]);

/**
 * The source with comments, and what is in strings and characters, blanked: everything stays in its place.
 *
 * @param {string} source
 */
function bare(source) {
  const parts =
    /\/\/[^\n]*|\/\*[\s\S]*?\*\/|\bb?r(#*)"[\s\S]*?"\1|b?"(?:[^"\\]|\\[\s\S])*"|b?'(?:[^'\\\n]|\\[^\n]{1,10}?)'/g;
  return source.replace(parts, (part) => part.replace(/[^\n]/g, ' '));
}

/** The place behind what closes the bracket at `open`. @param {string} code @param {number} open */
function behind(code, open) {
  let depth = 0;
  for (let at = open; at < code.length; at++) {
    if ('([{'.includes(code[at])) depth++;
    if (')]}'.includes(code[at]) && --depth === 0) return at + 1;
  }
  throw new Error(`nothing closes the bracket at ${open}`);
}

/**
 * The functions that Node can call: those under `#[napi]`, those without napi's wrapper and what calls them, and what napi calls
 * when an object goes.
 *
 * @param {string} source
 * @returns {{ name: string, line: number, body: string }[]}
 */
function exportsOf(source) {
  const code = bare(source);
  const found = [];
  const starts =
    /#\[napi\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*pub (?:async )?fn (\w+)|\bfn (finalize)\b|\bfn (\w+)(?=\(\w+: &Arguments<'_>\) -> Result<(?:f64|Value)>)|\bextern\s+fn (\w+)/g;
  for (const start of code.matchAll(starts)) {
    const at = /** @type {number} */ (start.index);
    const parameters = behind(code, code.indexOf('(', at + start[0].length));
    const open = code.indexOf('{', parameters);
    found.push({
      name: start.slice(1).find((name) => name !== undefined) ?? '',
      line: code.slice(0, at).split('\n').length,
      body: code.slice(open + 1, behind(code, open) - 1),
    });
  }
  return found;
}

/**
 * What is wrong with the exports of a source file, in words.
 *
 * @param {string} source
 * @returns {string[]}
 */
function unguarded(source) {
  const wrong = [];
  for (const { name, line, body } of exportsOf(source)) {
    let outside = '';
    let at = 0;
    let guards = 0;
    for (const guard of body.matchAll(GUARDS)) {
      const start = /** @type {number} */ (guard.index);
      if (start < at) continue;
      guards++;
      outside += `${body.slice(at, start)}GUARDED`;
      at = behind(body, start + guard[0].length - 1);
    }
    outside = (outside + body.slice(at)).replace(/#\[[^\]]*\]/g, '');
    if (guards === 0) {
      wrong.push(`${name} (line ${line}) runs outside of the boundary`);
      continue;
    }
    // Macros, indexing and every call but the harmless may panic.
    for (const [, called] of outside.matchAll(/([\w]+!?)\s*(?:::<[^>]*>)?\s*[([]/g)) {
      if (!HARMLESS.has(called) && !/^(?:move|let|if|in|match|return)$/.test(called)) {
        wrong.push(`${name} (line ${line}) does ${called} outside of the boundary`);
      }
    }
  }
  return wrong;
}

/**
 * Where unsafe code does not say why it is sound.
 *
 * @param {string} source
 * @returns {string[]}
 */
function undocumentedUnsafe(source) {
  const lines = source.split('\n');
  const code = bare(source).split('\n');
  const wrong = [];
  for (const [i, line] of code.entries()) {
    if (!/\bunsafe\b/.test(line) || /unsafe_code/.test(line)) continue;
    let above = i - 1;
    while (above >= 0 && /^\s*(?:\/\/|#\[)/.test(lines[above])) above--;
    const said = lines.slice(above + 1, i).join('\n');
    const documented = /\bunsafe fn\b/.test(line) ? /\/\/\/ # Safety/ : /\/\/ SAFETY: \S/;
    if (!documented.test(said)) wrong.push(`line ${i + 1}: ${line.trim()}`);
  }
  return wrong;
}

module.exports = { GUARDS, bare, exportsOf, unguarded, undocumentedUnsafe };
