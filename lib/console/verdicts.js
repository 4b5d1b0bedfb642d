/** The three answers at the top, and what is read out when one of them changes. */

import { isSelected, one, setText, showList } from './dom.js';

export const SIGNS = { good: '✓', warn: '!', bad: '✕', unknown: '?' };

/** @type {Map<string, string>} */
const said = new Map();

/** @param {'serving' | 'trusted' | 'wrong'} id @param {import('./serving.js').Verdict} verdict */
export function showVerdict(id, { level, headline, why }) {
  const root = one(`#${id}`);
  if (root.getAttribute('data-level') !== level) root.setAttribute('data-level', level);
  setText(one('.sign', root), SIGNS[level]);
  setText(one('.headline strong', root), headline);
  if (said.get(id) !== headline) {
    said.set(id, headline);
    // After the other two of this moment.
    queueMicrotask(announceVerdicts);
  }
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
