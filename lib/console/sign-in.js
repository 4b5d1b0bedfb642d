/** Asks who somebody is, where the host wants to know. */

import { useToken, useUser } from './api.js';
import { one, setHidden, setText } from './dom.js';

/** @param {() => void} again  called with other credentials */
export function createSignIn(again) {
  const section = one('#sign-in');
  let isShown = false;

  /** @param {string} form @param {string[]} fields @param {(...values: string[]) => void} use */
  function listen(form, fields, use) {
    one(form).addEventListener('submit', (/** @type {Event} */ event) => {
      event.preventDefault();
      use(...fields.map((field) => one(field).value));
      for (const field of fields) one(field).value = '';
      isShown = false;
      again();
    });
  }
  listen('#token-form', ['#token'], (token) => useToken(token.trim()));
  listen('#user-form', ['#user', '#password'], useUser);

  return {
    /** @param {import('./api.js').SignIn | null} wanted */
    show(wanted) {
      setHidden(section, wanted === null);
      if (wanted === null) return;
      const isToken = wanted.scheme === 'bearer';
      setHidden(one('#user-form'), isToken);
      setHidden(one('#token-form'), wanted.scheme === 'basic');
      setText(one('#sign-in-why'), whyAsked(wanted, isToken));
      if (!isShown) one(isToken ? '#token' : '#user').focus();
      isShown = true;
    },
  };
}

/** @param {import('./api.js').SignIn} wanted @param {boolean} isToken */
function whyAsked({ status, tried }, isToken) {
  if (status === 403) return 'This account may not look at the queue: sign in as a super-user.';
  if (tried) return 'That was not accepted. Try again.';
  return isToken ? 'This host asks for its token.' : 'This host asks who you are.';
}
