/** What the sections of numbers have in common. */

import { isSelected, one, setHidden, setText } from './dom.js';

/**
 * @typedef {import('./text.js').Parts} Parts
 * @typedef {import('./source.js').View} View
 */

/** A section that stands still while somebody has text of it selected, and says so. */
export class Section {
  #note;
  /** @type {string | null} What it shows is of this moment. */
  #shownAt = null;

  /** @param {string} id @param {(view: View) => void} update */
  constructor(id, update) {
    this.root = /** @type {HTMLElement} */ (one(`#${id}`));
    this.update = update;
    this.#note = document.createElement('p');
    this.#note.className = 'note standing';
    this.#note.hidden = true;
    this.root.append(this.#note);
  }

  /** @param {View} view @param {string} moment */
  show(view, moment) {
    const stands = this.#shownAt !== null && isSelected(this.root);
    if (stands) {
      if (this.#shownAt !== moment) {
        setText(this.#note, `Not refreshed while text in it is selected. As of ${this.#shownAt}.`);
        setHidden(this.#note, false);
      }
      return;
    }
    setHidden(this.#note, true);
    this.#shownAt = moment;
    this.update(view);
  }
}

/** Why a count is not there. @param {View} view */
export function whyNone({ document, failure, numbers }) {
  if (numbers) return 'the answer does not say';
  if (failure) return `no answer: ${failure.status ?? 'not reached'}`;
  return typeof document?.error === 'string' ? 'the host gives no numbers now' : 'no answer yet';
}

/** A node cut its list before this: there may be more of it. @param {any} entry @param {Parts} parts @returns {Parts} */
export function least(entry, parts) {
  return entry.atLeast === true ? ['at least ', ...parts] : parts;
}

/** @param {HTMLElement} button @param {number} total @param {number} few @param {boolean} all @param {string} nouns */
export function showMore(button, total, few, all, nouns) {
  setHidden(button, total <= few);
  setText(button, all ? `Show the first ${few} only` : `Show all ${total} ${nouns}`);
  button.setAttribute('aria-expanded', String(all));
}
