/** The three answers at the top, and what is read out when one of them changes. */

import { isSelected, one, setText, showList } from './dom.js';

export const SIGNS = { good: '✓', warn: '!', bad: '✕', unknown: '?' };

/** @type {Map<string, string>} */
const said = new Map();

/** @param {'serving' | 'trusted' | 'wrong'} id @param {import('./serving.js').Verdict} verdict */
export function showVerdict(id, verdict) {
  const { headline } = verdict;
  put(id, verdict);
  if (said.get(id) === headline) return;
  said.set(id, headline);
  // After the other two of this moment.
  queueMicrotask(announceVerdicts);
}

/** While nobody asks; it is not read out. @param {'serving' | 'trusted' | 'wrong'} id */
export function restVerdict(id) {
  const why = [['Nobody has asked while this page was in the background.']];
  put(id, { level: 'unknown', headline: 'Not known', why });
}

/** @param {'serving' | 'trusted' | 'wrong'} id @param {import('./serving.js').Verdict} verdict */
function put(id, { level, headline, why }) {
  const root = one(`#${id}`);
  if (root.getAttribute('data-level') !== level) root.setAttribute('data-level', level);
  setText(one('.sign', root), SIGNS[level]);
  setText(one('.headline strong', root), headline);
  const reasons = one('.why', root);
  // What is being copied stands still; the headline does not.
  if (!isSelected(reasons)) showList(reasons, why);
}

/** Headlines only: what ticks is not read out. */
function announceVerdicts() {
  const [serving, trusted, wrong] = ['serving', 'trusted', 'wrong'].map((id) => said.get(id) ?? '');
  announce(`Serving: ${serving}. Numbers: ${trusted}. Attention: ${wrong}.`);
}

/** @param {string} text */
export function announce(text) {
  setText(one('#announce'), text);
}
