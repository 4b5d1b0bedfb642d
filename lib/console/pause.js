/** Pauses and resumes the claims of one node, after a question. */

import { ask, PATHS } from './api.js';
import { one, setHidden, setText, show } from './dom.js';
import { nameOf } from './serving.js';
import { counted, isNumber, say } from './text.js';

/** @param {() => import('./source.js').View} viewOf @param {(done: string) => void} after */
export function createPause(viewOf, after) {
  const dialog = one('#confirm');
  const button = one('#pause');
  const yes = one('#confirm-yes');
  /** @type {'pause' | 'resume'} */
  let action = 'pause';

  button.addEventListener('click', () => {
    const view = viewOf();
    action = view.document.now.paused ? 'resume' : 'pause';
    const { title, text } = action === 'pause' ? pausing(view) : resuming(view);
    show(one('#confirm-title'), title);
    setText(one('#confirm-text'), text);
    setText(one('#confirm-error'), '');
    setText(yes, action === 'pause' ? 'Pause claims' : 'Resume claims');
    dialog.showModal();
    one('#confirm-no').focus();
  });
  one('#confirm-no').addEventListener('click', () => dialog.close());
  yes.addEventListener('click', async () => {
    yes.disabled = true;
    const reply = await ask(PATHS[action], { body: {} });
    yes.disabled = false;
    if (reply.kind === 'answer') {
      dialog.close();
      after(action === 'pause' ? 'Claims are paused.' : 'Claims are resumed.');
      return;
    }
    const why = reply.kind === 'failure' ? reply.why : 'this host asks for another sign-in';
    show(one('#confirm-error'), say`Nothing was changed, as far as is known: ${why}.`);
  });

  return {
    /** @param {import('./source.js').View} view */
    show({ scope, document, isAnswering }) {
      const paused = document?.now?.paused;
      setHidden(button, scope !== 'node' || typeof paused !== 'boolean' || !isAnswering);
      setText(button, paused ? 'Resume claims …' : 'Pause claims …');
    },
  };
}

/** @param {import('./source.js').View} view */
function pausing(view) {
  const { inFlight } = view.document.now;
  const flying =
    inFlight > 0 ? `${counted(inFlight, 'page')} in flight can still be finished. ` : '';
  return {
    title: say`Pause claims on ${nameOf(view)}?`,
    text: `No renderer gets a page from this node until somebody resumes. ${flying}Counting goes on.`,
  };
}

/** @param {import('./source.js').View} view */
function resuming(view) {
  const { due } = view.document.now;
  return {
    title: say`Resume claims on ${nameOf(view)}?`,
    text: `Renderers get pages from this node again at once${isNumber(due) ? `: ${counted(due, 'page')} due` : ''}.`,
  };
}
