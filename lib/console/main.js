/** The page: which view is shown, when it asks again, and what is said when no answer comes. */

import { ask, elapsed, isSignedIn, moment, PATHS, signOut } from './api.js';
import { judgeAttention } from './attention.js';
import { one, scrollable, setHidden, setText, show } from './dom.js';
import { createKeyForm } from './key-form.js';
import { createPause } from './pause.js';
import { createSections } from './sections.js';
import { judgeServing, nameOf, nameOrHost } from './serving.js';
import { createSignIn } from './sign-in.js';
import { Source } from './source.js';
import { at, counted, isNumber, list, roughly, say, zone } from './text.js';
import { judgeNumbers, without } from './trust.js';
import { announce, restVerdict, showVerdict } from './verdicts.js';

const REFRESH_MS = 5_000;
/** The host gives each node two seconds, and more than one at once. */
const CLUSTER_WITHIN_MS = 8_000;
const SOON_MS = 3_000;

const sources = { node: new Source('node'), cluster: new Source('cluster') };
/** @type {boolean | null} Whether the host has a cluster route; null until it has answered. */
let hasCluster = null;
/** @type {'cluster' | 'node' | 'explain' | null} */
let view = null;
/** @type {import('./api.js').SignIn | null} What the host wants before it answers. */
let wanted = null;
const begun = moment();
/** Answers to an earlier question than the latest are dropped. */
let turn = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** Visible again, and not answered since. */
let isReturning = false;

const sections = createSections(() => render());
const signIn = createSignIn(() => {
  wanted = null;
  void begin();
});
const pause = createPause(
  () => sources.node.view(),
  (done) => {
    announce(done);
    void refresh();
  },
);
const keyForm = createKeyForm((key) => {
  try {
    // So that the answer can be bookmarked; a lone surrogate cannot be in an address.
    history.replaceState(null, '', `#/explain/${encodeURIComponent(key)}`);
  } catch {
    history.replaceState(null, '', '#/explain');
  }
  void refresh({ key, isAwaited: true });
});

function source() {
  return view === 'cluster' ? sources.cluster : sources.node;
}

// Which view

/** @returns {{ named: typeof view, key: string | null }} */
function readHash() {
  const [, name, key] = /^#\/(cluster|node|explain)(?:\/(.*))?$/s.exec(location.hash) ?? [];
  const named = /** @type {typeof view} */ (name ?? null);
  try {
    return { named, key: key ? decodeURIComponent(key) : null };
  } catch {
    return { named, key: null };
  }
}

/** Where the address names no view, one question tells whether there is more than one node to look at. */
async function begin() {
  if (view === null && readHash().named === null) {
    showAsking();
    takeCluster(await askCluster());
    if (wanted) {
      render();
      return;
    }
    view = ring().length > 1 ? 'cluster' : 'node';
  }
  changeView();
}

function changeView() {
  const { named, key } = readHash();
  view = named ?? view ?? 'node';
  // What is selected would stand still, and be another view's.
  getSelection()?.removeAllRanges();
  if (view === 'explain' && key !== null && key !== keyForm.key) {
    keyForm.fill(key);
    void refresh({ key });
  } else void refresh();
  render();
}

/** @returns {unknown[]} */
function ring() {
  const names = sources.cluster.latest?.document.ring;
  return Array.isArray(names) ? names : [];
}

// Asking

function askCluster() {
  return ask(PATHS.cluster, { withinMs: CLUSTER_WITHIN_MS, not: 503 });
}

/** @param {Awaited<ReturnType<typeof ask>>} reply */
function takeCluster(reply) {
  if (reply.kind === 'sign-in') wanted = reply;
  else if (reply.kind === 'failure' && reply.status === 404) hasCluster = false;
  else {
    if (reply.kind === 'answer') hasCluster = true;
    sources.cluster.take(reply);
  }
}

/** @param {Awaited<ReturnType<typeof ask>>} reply */
function takeNode(reply) {
  if (reply.kind === 'sign-in') wanted = reply;
  else sources.node.take(reply);
}

/** @param {{ key?: string, isAwaited?: boolean }} [asking]  `isAwaited`: the answer about a key, by somebody */
async function refresh({ key = keyForm.key, isAwaited = false } = {}) {
  const mine = ++turn;
  clearTimeout(timer);
  const asksKey = view === 'explain' && key !== undefined;
  const [cluster, node, explanation] = await Promise.all([
    view === 'cluster' || hasCluster === null ? askCluster() : null,
    view === 'cluster' ? null : ask(PATHS.node, { not: 503 }),
    asksKey ? ask(PATHS.explain, { body: { key } }) : null,
  ]);
  if (mine !== turn) return;
  isReturning = false;
  wanted = null;
  if (cluster) takeCluster(cluster);
  if (node) takeNode(node);
  if (explanation && key !== undefined) {
    const { failure, latest } = sources.node;
    keyForm.take(key, explanation, failure ? null : latest?.document);
  }
  render();
  if (isAwaited && !wanted) announce(keyForm.headline());
  if (!document.hidden && !wanted) timer = setTimeout(() => void refresh(), REFRESH_MS);
}

// Showing

function render() {
  signIn.show(wanted);
  setHidden(one('#forget'), !isSignedIn());
  setHidden(one('#content'), wanted !== null || view === null);
  showNavigation();
  if (wanted || view === null) {
    setHidden(one('#banner'), true);
    setText(one('#age'), '');
    return;
  }
  try {
    showView();
  } catch (error) {
    // Not to be taken for what is now: what was known before cannot be shown either.
    source().forget(
      `an answer that this console cannot show: ${/** @type {Error} */ (error).message}`,
    );
    showView();
  }
}

function showView() {
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
  keyForm.show();
  tick();
}

/** @param {import('./source.js').View} known */
function momentText({ numbers, document }) {
  const part = at((numbers ?? document)?.generatedAt)[0];
  return typeof part === 'object' && 'text' in part ? part.text : 'no moment known';
}

/** All that changes with time alone. */
function tick() {
  if (wanted) return;
  if (view === null) {
    showAsking();
    return;
  }
  const known = source().view();
  one('#content').classList.toggle('old', known.numbers !== null && !known.isFresh);
  one('#content').classList.toggle('silent', known.document !== null && !known.isAnswering);
  one('#content').classList.toggle('none', known.numbers === null);
  if (isUnasked(known)) {
    for (const id of /** @type {const} */ (['serving', 'trusted', 'wrong'])) restVerdict(id);
  } else {
    showVerdict('serving', judgeServing(known));
    showVerdict('trusted', judgeNumbers(known));
    showVerdict('wrong', judgeAttention(known));
  }
  pause.show(known);
  showBanner(known);
  const age = known.ageMs === null ? '' : `numbers ${roughly(known.ageMs)} old`;
  setText(one('#age'), age);
  keyForm.tick();
  showTitle(known);
}

/**
 * In the background nobody asks: what has grown old by that says nothing about the host. Until the first answer
 * after that, too.
 *
 * @param {import('./source.js').View} known
 */
function isUnasked({ failure, document: answer, isAnswering }) {
  return (document.hidden || isReturning) && answer !== null && failure === null && !isAnswering;
}

/** Before the first answer. */
function showAsking() {
  const banner = one('#banner');
  const ms = elapsed(begun);
  banner.className = 'banner';
  show(banner, [ms < SOON_MS ? 'Asking …' : `Asking … no answer for ${roughly(ms)} yet.`]);
  setHidden(banner, false);
}

/** @param {import('./source.js').View} known */
function showBanner(known) {
  const banner = one('#banner');
  const { failure, numbers, ageMs, isFresh, isAnswering, document } = known;
  if (!document && !failure) {
    showAsking();
    return;
  }
  if (isFresh) {
    setHidden(banner, true);
    return;
  }
  /** @type {import('./text.js').Parts} */
  let what = ['There are no numbers now. '];
  const unasked = isUnasked(known);
  if (unasked) {
    what = isReturning ? ['Asking again … '] : ['Not asked while this page is in the background. '];
  } else if (failure) what = say`${nameOrHost(known)} cannot be reached: ${failure.why}. `;
  else if (!isAnswering || numbers === document) what = ['No answer has come in time. '];
  else if (known.scope === 'cluster') {
    what = say`There is no total now, for want of ${list(without(document))}. `;
  }
  const last = numbers
    ? say`The numbers below, in grey, are ${{ strong: `${roughly(ageMs ?? 0)} old` }}.`
    : ['There are no earlier numbers to show.'];
  banner.className = unasked ? 'banner' : 'banner bad';
  show(banner, [...what, ...last, unasked ? '' : ' Asked again every 5 s.']);
  setHidden(banner, false);
}

/** @param {import('./source.js').View} known */
function showTitle(known) {
  const name = known.document?.node;
  const who = view === 'cluster' ? ['cluster of ', counted(ring().length, 'node')] : nameOf(known);
  show(one('#who'), known.document ? who : []);
  const due = known.numbers?.now.due;
  const start = isUnasked(known)
    ? 'In the background'
    : !known.isAnswering
      ? 'No answer'
      : !known.isFresh
        ? 'No numbers'
        : isPaused(known.document)
          ? 'Paused'
          : isNumber(due)
            ? `${due} due`
            : '';
  const of = view === 'cluster' ? 'cluster' : typeof name === 'string' ? name : '';
  setTitle([start, of, 'Render queue'].filter(Boolean).join(' · '));
}

/** Of a cluster: all of it. @param {any} document */
function isPaused({ nodes, now }) {
  return nodes ? nodes.every((/** @type {any} */ node) => node.now?.paused === true) : now.paused;
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

one('#forget').addEventListener('click', () => {
  signOut();
  location.reload();
});
one('#refresh').addEventListener('click', () => void refresh());
one('.skip').addEventListener('click', (/** @type {Event} */ event) => {
  // The address names the view.
  event.preventDefault();
  one('#main').focus();
});
addEventListener('hashchange', changeView);
document.addEventListener('visibilitychange', () => {
  clearTimeout(timer);
  if (document.hidden || view === null) return;
  isReturning = true;
  void refresh();
});
for (const place of document.querySelectorAll('.scroll')) scrollable(/** @type {any} */ (place));
setText(one('#zone'), `Times are those of this device: ${zone()}.`);
setInterval(tick, 1_000);

void begin();
