/** The page: which view is shown, when it asks again, and what is said when no answer comes. */

import { ask, elapsed, isSignedIn, PATHS, signOut, useToken, useUser } from './api.js';
import {
  isSelected,
  one,
  scrollable,
  setHidden,
  setText,
  show,
  showFacts,
  showList,
} from './dom.js';
import { explainFacts, explainWords } from './explain.js';
import {
  judgeAttention,
  judgeNumbers,
  judgeServing,
  nameOf,
  nameOrHost,
  without,
} from './judge.js';
import { createSections } from './sections.js';
import { Source } from './source.js';
import { at, counted, isNumber, list, roughly, say, zone } from './text.js';

const REFRESH_MS = 5_000;
/** The host gives each node two seconds, and more than one at once. */
const CLUSTER_WITHIN_MS = 8_000;
const LONG_KEY = 300;
const SIGNS = { good: '✓', warn: '!', bad: '✕', unknown: '?' };

const sources = { node: new Source('node'), cluster: new Source('cluster') };
/** @type {boolean | null} Whether the host has a cluster route; null until it has answered. */
let hasCluster = null;
/** @type {'cluster' | 'node' | 'explain' | null} */
let view = null;
/** @type {import('./api.js').SignIn | null} */
let signIn = null;
/** @type {{ key: string, explanation: any, state: any, sent: import('./api.js').Moment, failure: string | null } | null} */
let explained = null;
/** Answers to an earlier question than the latest are dropped. */
let turn = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

const sections = createSections(() => render());
for (const place of document.querySelectorAll('.scroll')) scrollable(/** @type {any} */ (place));

function source() {
  return view === 'cluster' ? sources.cluster : sources.node;
}

// Which view

/** @returns {{ view: typeof view, key: string | null }} */
function readHash() {
  const [, name, key] = /^#\/(cluster|node|explain)(?:\/(.*))?$/s.exec(location.hash) ?? [];
  if (!name) return { view: null, key: null };
  try {
    return { view: /** @type {any} */ (name), key: key ? decodeURIComponent(key) : null };
  } catch {
    return { view: /** @type {any} */ (name), key: null };
  }
}

async function start() {
  if (location.hash !== '#main') addEventListener('hashchange', changeView);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void refresh();
  });
  setText(one('#zone'), `Times are those of this device: ${zone()}.`);
  setInterval(tick, 1_000);
  const asked = readHash();
  if (asked.view === null) {
    // One question tells whether there is more than one node to look at.
    const reply = await ask(PATHS.cluster, { withinMs: CLUSTER_WITHIN_MS });
    takeCluster(reply);
    if (signIn) view = null;
    else view = hasCluster && ring().length > 1 ? 'cluster' : 'node';
  }
  changeView();
}

function changeView() {
  const asked = readHash();
  if (location.hash === '#main') return;
  view = asked.view ?? view ?? 'node';
  if (view === 'explain' && asked.key !== null && asked.key !== explained?.key) {
    one('#key').value = asked.key;
    explained = null;
    void refresh({ key: asked.key });
  } else void refresh();
  render();
}

function ring() {
  const names = sources.cluster.latest?.document.ring;
  return Array.isArray(names) ? names : [];
}

// Asking

/** @param {Awaited<ReturnType<typeof ask>>} reply */
function takeCluster(reply) {
  if (reply.kind === 'sign-in') signIn = reply;
  else if (reply.kind === 'failure' && reply.status === 404) hasCluster = false;
  else {
    signIn = null;
    if (reply.kind === 'answer') hasCluster = true;
    sources.cluster.take(reply);
  }
}

/** @param {Awaited<ReturnType<typeof ask>>} reply */
function takeNode(reply) {
  if (reply.kind === 'sign-in') signIn = reply;
  else {
    signIn = null;
    sources.node.take(reply);
  }
}

/** @param {{ key?: string, aloud?: boolean }} [asking] */
async function refresh({ key = explained?.key, aloud = false } = {}) {
  const mine = ++turn;
  clearTimeout(timer);
  if (view === 'cluster') {
    const reply = await ask(PATHS.cluster, { withinMs: CLUSTER_WITHIN_MS });
    if (mine === turn) takeCluster(reply);
  } else {
    const asksKey = view === 'explain' && key !== undefined;
    const [reply, answer, cluster] = await Promise.all([
      ask(PATHS.node),
      asksKey ? ask(PATHS.explain, { body: { key } }) : null,
      hasCluster === null ? ask(PATHS.cluster, { withinMs: CLUSTER_WITHIN_MS }) : null,
    ]);
    if (mine === turn) {
      takeNode(reply);
      if (cluster) takeCluster(cluster);
      if (answer && key !== undefined) takeExplanation(key, answer);
    }
  }
  if (mine !== turn) return;
  render();
  if (aloud) announceExplanation();
  if (!document.hidden && !signIn) timer = setTimeout(() => void refresh(), REFRESH_MS);
}

/** @param {string} key @param {Awaited<ReturnType<typeof ask>>} answer */
function takeExplanation(key, answer) {
  if (answer.kind === 'answer') {
    const state = sources.node.failure ? null : sources.node.latest?.document;
    explained = { key, explanation: answer.document, state, sent: answer.sent, failure: null };
  } else if (answer.kind === 'failure') {
    if (explained?.key === key) explained.failure = answer.why;
    else
      explained = { key, explanation: null, state: null, sent: answer.sent, failure: answer.why };
  }
}

// Showing

function render() {
  setHidden(one('#sign-in'), !signIn);
  setHidden(one('#forget'), !isSignedIn());
  setHidden(one('#content'), Boolean(signIn) || view === null);
  showNavigation();
  if (signIn) {
    showSignIn(signIn);
    setHidden(one('#banner'), true);
    setText(one('#age'), '');
    return;
  }
  if (view === null) return;
  const known = source().view();
  const isExplain = view === 'explain';
  setHidden(one('#explain'), !isExplain);
  for (const section of sections) {
    const isOther =
      isExplain ||
      (section.root.id === 'nodes' && view !== 'cluster') ||
      (section.root.id === 'keeper' && view !== 'node');
    section.root.classList.toggle('elsewhere', isOther);
    if (!isOther) section.show(known, momentText(known));
  }
  showExplained();
  tick();
}

/** @param {import('./source.js').View} known */
function momentText({ numbers, document }) {
  const part = at((numbers ?? document)?.generatedAt)[0];
  return typeof part === 'object' && 'text' in part ? part.text : 'no moment known';
}

/** All that changes with time alone. */
function tick() {
  if (signIn || view === null) return;
  const known = source().view();
  one('#content').classList.toggle('old', known.numbers !== null && !known.isFresh);
  one('#content').classList.toggle('silent', known.document !== null && !known.isAnswering);
  one('#content').classList.toggle('none', known.numbers === null);
  showVerdict('serving', judgeServing(known));
  showVerdict('trusted', judgeNumbers(known));
  showVerdict('wrong', judgeAttention(known));
  showPause(known);
  showBanner(known);
  const age = known.ageMs === null ? '' : `numbers ${roughly(known.ageMs)} old`;
  setText(one('#age'), age);
  showExplainedAge();
  showTitle(known);
}

/** @param {string} id @param {import('./judge.js').Verdict} verdict */
function showVerdict(id, { level, headline, why }) {
  const root = one(`#${id}`);
  if (root.getAttribute('data-level') !== level) root.setAttribute('data-level', level);
  setText(one('.sign', root), SIGNS[level]);
  const strong = one('.headline strong', root);
  if (strong.textContent !== headline) {
    strong.textContent = headline;
    said.set(id, headline);
    announceVerdicts();
  }
  const reasons = one('.why', root);
  // What is being copied stands still; the headline does not.
  if (!isSelected(reasons)) showList(reasons, why);
}

/** @type {Map<string, string>} */
const said = new Map();

/** Headlines only, when one of them changes: what ticks is not read out. */
function announceVerdicts() {
  queueMicrotask(() => {
    const text = `Serving: ${said.get('serving') ?? ''}. Numbers: ${said.get('trusted') ?? ''}. Attention: ${said.get('wrong') ?? ''}.`;
    setText(one('#announce'), text);
  });
}

/** @param {string} text */
function announce(text) {
  setText(one('#announce'), text);
}

/** @param {import('./source.js').View} known */
function showBanner(known) {
  const banner = one('#banner');
  const { failure, numbers, ageMs, isFresh, document } = known;
  if (!document && !failure) {
    banner.className = 'banner';
    show(banner, ['Asking …']);
    setHidden(banner, false);
    return;
  }
  if (isFresh) {
    setHidden(banner, true);
    return;
  }
  const what = failure
    ? say`${nameOrHost(known)} cannot be reached: ${failure.why}. `
    : numbers === document
      ? ['No answer has come in time. ']
      : known.scope === 'cluster'
        ? ['There is no total now, for want of ', ...list(without(document)), '. ']
        : ['There are no numbers now. '];
  const last = numbers
    ? say`The numbers below, in grey, are ${{ strong: `${roughly(ageMs ?? 0)} old` }}.`
    : ['There are no earlier numbers to show.'];
  banner.className = 'banner bad';
  show(banner, [...what, ...last, ' Asked again every 5 s.']);
  setHidden(banner, false);
}

/** @param {import('./source.js').View} known */
function showTitle(known) {
  const name = known.document?.node;
  const who = view === 'cluster' ? ['cluster of ', counted(ring().length, 'node')] : nameOf(known);
  show(one('#who'), known.document ? who : []);
  const due = known.numbers?.now.due;
  const start = known.failure
    ? 'No answer'
    : !known.isFresh
      ? 'No numbers'
      : known.document.now.paused
        ? 'Paused'
        : isNumber(due)
          ? `${due} due`
          : '';
  const of = view === 'cluster' ? 'cluster' : typeof name === 'string' ? name : '';
  setTitle([start, of, 'Render queue'].filter(Boolean).join(' · '));
}

/** @param {string} title */
function setTitle(title) {
  if (document.title !== title) document.title = title;
}

function showNavigation() {
  setHidden(one('#to-cluster'), hasCluster !== true);
  for (const name of ['cluster', 'node', 'explain']) {
    const link = one(`#to-${name}`);
    if (view === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

// Sign in

/** @param {import('./api.js').SignIn} wanted */
function showSignIn({ scheme, refused }) {
  const isToken = scheme === 'bearer';
  const was = one('#sign-in').getAttribute('data-shown');
  setHidden(one('#user-form'), isToken);
  setHidden(one('#token-form'), scheme === 'basic');
  setText(
    one('#sign-in-why'),
    refused
      ? 'That was not accepted. Try again.'
      : isToken
        ? 'This host asks for its token.'
        : 'This host asks who you are.',
  );
  if (was === null) {
    one('#sign-in').setAttribute('data-shown', '');
    one(isToken ? '#token' : '#user').focus();
  }
}

/** @param {() => void} use @param {string[]} fields */
function trySignIn(use, fields) {
  use();
  for (const field of fields) one(field).value = '';
  signIn = null;
  one('#sign-in').removeAttribute('data-shown');
  void start2();
}

/** After a sign-in the first question is asked again. */
async function start2() {
  if (view === null) {
    const reply = await ask(PATHS.cluster, { withinMs: CLUSTER_WITHIN_MS });
    takeCluster(reply);
    if (!signIn) view = readHash().view ?? (hasCluster && ring().length > 1 ? 'cluster' : 'node');
  }
  if (signIn) render();
  else changeView();
}

one('#token-form').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  trySignIn(() => useToken(one('#token').value.trim()), ['#token']);
});
one('#user-form').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  trySignIn(() => useUser(one('#user').value, one('#password').value), ['#user', '#password']);
});
one('#forget').addEventListener('click', () => {
  signOut();
  location.reload();
});
one('#refresh').addEventListener('click', () => void refresh());

// Explain

one('#explain-form').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  const key = one('#key').value;
  explained = null;
  try {
    // So that the answer can be bookmarked; a lone surrogate cannot be in an address.
    history.replaceState(null, '', `#/explain/${encodeURIComponent(key)}`);
  } catch {
    history.replaceState(null, '', '#/explain');
  }
  void refresh({ key, aloud: true });
});

let isWholeKey = false;
one('#whole-key').addEventListener('click', () => {
  isWholeKey = !isWholeKey;
  showExplained();
});

function showExplained() {
  setHidden(one('#explained'), explained === null);
  if (!explained) {
    isWholeKey = false;
    return;
  }
  const { key } = explained;
  const cut = key.length > LONG_KEY && !isWholeKey;
  show(one('#explained .key'), [
    { outside: cut ? key.slice(0, LONG_KEY) : key },
    ...(cut ? [' …'] : []),
  ]);
  const button = one('#whole-key');
  setHidden(button, key.length <= LONG_KEY);
  setText(
    button,
    isWholeKey ? 'Show its beginning only' : `Show all ${counted(key.length, 'character')}`,
  );
  button.setAttribute('aria-expanded', String(isWholeKey));
  showExplainedAge();
}

function showExplainedAge() {
  if (!explained) return;
  const { explanation, state, sent, failure } = explained;
  const root = one('#explained');
  const ageMs = elapsed(sent);
  root.classList.toggle('old', failure !== null);
  /** @type {import('./explain.js').Answer} */
  const answer = explanation
    ? explainWords(explanation, state, hostNow(state, ageMs))
    : { level: 'bad', headline: 'No answer', why: [say`${failure ?? ''}`] };
  root.setAttribute('data-level', answer.level);
  setText(one('.sign', root), SIGNS[answer.level]);
  setText(one('.headline strong', root), answer.headline);
  showList(one('.why', root), answer.why);
  showFacts(one('.facts', root), explanation ? explainFacts(explanation) : []);
  const age = failure === null ? [] : say`Not answered since: ${failure}. `;
  show(one('#explained-age'), explanation ? [...age, `This answer is ${roughly(ageMs)} old.`] : []);
}

/** @param {any} state @param {number} ageMs */
function hostNow(state, ageMs) {
  return isNumber(state?.generatedAt) ? state.generatedAt + ageMs : Date.now();
}

function announceExplanation() {
  if (!explained) return;
  announce(`${one('#explained .headline strong').textContent}.`);
  one('#explained-title').focus();
}

// Pause and resume

const dialog = one('#confirm');
/** @type {'pause' | 'resume'} */
let action = 'pause';

/** @param {import('./source.js').View} known */
function showPause({ scope, document, failure }) {
  const button = one('#pause');
  const paused = document?.now?.paused;
  setHidden(button, scope !== 'node' || typeof paused !== 'boolean' || failure !== null);
  setText(button, paused ? 'Resume claims …' : 'Pause claims …');
}

one('#pause').addEventListener('click', () => {
  const known = sources.node.view();
  const name = nameOf(known);
  const { now } = known.document;
  action = now.paused ? 'resume' : 'pause';
  setText(one('#confirm-error'), '');
  if (action === 'pause') {
    show(one('#confirm-title'), say`Pause claims on ${name}?`);
    const flying =
      now.inFlight > 0
        ? `The ${counted(now.inFlight, 'page')} in flight can still be finished. `
        : '';
    show(one('#confirm-text'), [
      `No renderer gets a page from this node until somebody resumes. ${flying}Counting goes on.`,
    ]);
    setText(one('#confirm-yes'), 'Pause claims');
  } else {
    show(one('#confirm-title'), say`Resume claims on ${name}?`);
    const due = isNumber(now.due) ? `: ${counted(now.due, 'page')} due` : '';
    show(one('#confirm-text'), [`Renderers get pages from this node again at once${due}.`]);
    setText(one('#confirm-yes'), 'Resume claims');
  }
  dialog.showModal();
  one('#confirm-no').focus();
});
one('#confirm-no').addEventListener('click', () => dialog.close());
one('#confirm-yes').addEventListener('click', async () => {
  const button = one('#confirm-yes');
  button.disabled = true;
  const reply = await ask(PATHS[action], { body: {} });
  button.disabled = false;
  if (reply.kind !== 'answer') {
    const why = reply.kind === 'failure' ? reply.why : 'this host asks for another sign-in';
    show(one('#confirm-error'), say`Nothing was changed, as far as is known: ${why}.`);
    return;
  }
  dialog.close();
  announce(action === 'pause' ? 'Claims are paused.' : 'Claims are resumed.');
  await refresh();
});

void start();
