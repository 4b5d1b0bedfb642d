/** The form that asks about one key, and its answer, which is asked for again as long as it is shown. */

import { elapsed } from './api.js';
import { one, setHidden, setText, show, showFacts, showList } from './dom.js';
import { explainFacts, explainWords } from './explain.js';
import { FRESH_MS } from './source.js';
import { counted, isNumber, roughly, say } from './text.js';
import { SIGNS } from './verdicts.js';

const LONG_KEY = 300;

/**
 * @typedef {object} Explained
 * @property {string} key
 * @property {any} explanation  null where none has come yet
 * @property {any} state  the node's state of the same moment; null where it is not known
 * @property {import('./api.js').Moment} sent
 * @property {string | null} failure  why the latest question has no answer
 */

/** @param {(key: string) => void} ask  called when somebody asks */
export function createKeyForm(ask) {
  const root = one('#explained');
  /** @type {Explained | null} */
  let explained = null;
  let isWhole = false;

  one('#explain-form').addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    explained = null;
    isWhole = false;
    ask(one('#key').value);
  });
  one('#whole-key').addEventListener('click', () => {
    isWhole = !isWhole;
    showKey();
  });

  function showKey() {
    if (!explained) return;
    const { key } = explained;
    const isLong = key.length > LONG_KEY;
    const isCut = isLong && !isWhole;
    const text = { outside: isCut ? key.slice(0, LONG_KEY) : key };
    show(one('.key', root), [text, ...(isCut ? [' …'] : [])]);
    const button = one('#whole-key');
    setHidden(button, !isLong);
    const all = `Show all ${counted(key.length, 'character')}`;
    setText(button, isWhole ? 'Show its beginning only' : all);
    button.setAttribute('aria-expanded', String(isWhole));
  }

  return {
    get key() {
      return explained?.key;
    },

    /** A key that is asked about by the page's address. @param {string} key */
    fill(key) {
      one('#key').value = key;
      explained = null;
      isWhole = false;
    },

    /**
     * @param {string} key
     * @param {Awaited<ReturnType<typeof import('./api.js').ask>>} reply
     * @param {any} state
     */
    take(key, reply, state) {
      if (reply.kind === 'sign-in') return;
      const { sent } = reply;
      const why = reply.kind === 'failure' ? reply.why : whatIsWrong(reply.document);
      if (why === null && reply.kind === 'answer') {
        explained = { key, explanation: reply.document, state, sent, failure: null };
      } else if (explained?.key === key) explained.failure = why;
      else explained = { key, explanation: null, state: null, sent, failure: why };
    },

    show() {
      setHidden(root, explained === null);
      showKey();
      this.tick();
    },

    /** All that changes with time alone. */
    tick() {
      if (!explained) return;
      const { explanation, state, sent, failure } = explained;
      const ageMs = elapsed(sent);
      const isFresh = failure === null && ageMs <= FRESH_MS;
      root.classList.toggle('old', !isFresh);
      // In an old answer no time goes on.
      const now = (state?.generatedAt ?? sent.wall) + (isFresh ? ageMs : 0);
      /** @type {import('./explain.js').Answer} */
      const answer = explanation
        ? explainWords(explanation, state, now)
        : { level: 'bad', headline: 'No answer', why: [say`${failure ?? ''}`] };
      root.setAttribute('data-level', answer.level);
      setText(one('.sign', root), SIGNS[answer.level]);
      setText(one('.headline strong', root), answer.headline);
      showList(one('.why', root), answer.why);
      showFacts(one('.facts', root), explanation ? explainFacts(explanation) : []);
      const since = failure === null ? [] : say`Not answered since: ${failure}. `;
      const age = explanation ? [`This answer is ${roughly(ageMs)} old.`] : [];
      show(one('#explained-age'), [...since, ...age]);
    },

    /** The answer in a few words, where somebody waits for it. */
    headline() {
      one('#explained-title').focus();
      return `${one('.headline strong', root).textContent}.`;
    },
  };
}

/** @param {any} document */
function whatIsWrong({ key, kept, owner, dueAt }) {
  const isWhole = typeof key === 'string' && typeof kept === 'boolean' && typeof owner === 'string';
  return isWhole && (!kept || isNumber(dueAt)) ? null : 'an answer that this console cannot read';
}
