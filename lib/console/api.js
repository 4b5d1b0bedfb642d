/**
 * Requests to the host that serves this page, and to no other. Whatever comes back, or does not, is a value: nothing
 * here throws for what a network or a host does.
 */

const SESSION_KEY = 'queue-console-authorization';
/** While a browser itself asks for a name and a password, the question waits; a deadline would close its dialog. */
const SIGN_IN_WITHIN_MS = 60_000;
const base = new URL(
  document.querySelector('meta[name="queue-api"]')?.getAttribute('content') ?? '../',
  document.baseURI,
);

export const PATHS = {
  node: 'prerender_admin/queue-state',
  cluster: 'prerender_admin/cluster-queue-state',
  explain: 'prerender_admin/explain',
  pause: 'prerender_admin/pause',
  resume: 'prerender_admin/resume',
};

/**
 * A moment on both clocks of the device: one of them stands still while it sleeps, the other may be set.
 *
 * @typedef {{ steady: number, wall: number }} Moment
 */

/** @returns {Moment} */
export function moment() {
  return { steady: performance.now(), wall: Date.now() };
}

/** Never too little. @param {Moment} since */
export function elapsed(since) {
  return Math.max(0, performance.now() - since.steady, Date.now() - since.wall);
}

/** Whether the host has answered to these credentials, or to none. */
let isKnown = false;

/**
 * @typedef {{ kind: 'answer', status: number, document: any, sent: Moment }} Answered
 * @typedef {{ kind: 'sign-in', scheme: string, status: number, tried: boolean, sent: Moment }} SignIn
 * @typedef {{ kind: 'failure', status: number | null, why: string, sent: Moment }} Failed  `why` is from outside
 *
 * @param {string} path
 * @param {{ body?: object, withinMs?: number, not?: number }} [options]  `not`: the status of an answer that says why there is none
 * @returns {Promise<Answered | SignIn | Failed>}
 */
export async function ask(path, { body, withinMs = 4_000, not } = {}) {
  // From when the question goes out: the answer may be as old as that, and never older.
  const sent = moment();
  const authorization = credentials();
  const limit = isKnown ? withinMs : SIGN_IN_WITHIN_MS;
  /** @type {Record<string, string>} */
  const headers = { accept: 'application/json' };
  if (authorization !== null) headers.authorization = authorization;
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response;
  let text;
  try {
    response = await fetch(new URL(path, base), {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      credentials: 'same-origin',
      redirect: 'error',
      signal: AbortSignal.timeout(limit),
    });
    text = await response.text();
  } catch (error) {
    const late = /** @type {Error} */ (error).name === 'TimeoutError';
    const why = late ? `no answer within ${limit / 1_000} s` : 'the connection failed';
    return { kind: 'failure', status: null, why, sent };
  }
  const { status } = response;
  isKnown = status !== 401 && status !== 403;
  if (!isKnown) {
    const scheme = (response.headers.get('www-authenticate') ?? '').split(/[\s,]/, 1)[0];
    const tried = authorization !== null;
    return { kind: 'sign-in', scheme: scheme.toLowerCase(), status, tried, sent };
  }
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    return { kind: 'failure', status, why: `status ${status}, and no JSON`, sent };
  }
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    return { kind: 'failure', status, why: `status ${status}, and no JSON object`, sent };
  }
  const { error } = document;
  if (!response.ok && status !== not) {
    const why = `status ${status}${typeof error === 'string' ? `: ${error}` : ''}`;
    return { kind: 'failure', status, why, sent };
  }
  return { kind: 'answer', status, document, sent };
}

/** Where a browser keeps nothing: until the page is left. @type {string | null} */
let kept = null;

function credentials() {
  try {
    return sessionStorage.getItem(SESSION_KEY);
  } catch {
    return kept;
  }
}

/** @param {string | null} authorization */
function keep(authorization) {
  kept = authorization;
  isKnown = false;
  try {
    if (authorization === null) sessionStorage.removeItem(SESSION_KEY);
    else sessionStorage.setItem(SESSION_KEY, authorization);
  } catch {
    // It is kept for this page.
  }
}

/** @param {string} token */
export function useToken(token) {
  keep(`Bearer ${token}`);
}

/** @param {string} user @param {string} password */
export function useUser(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  keep(`Basic ${btoa(String.fromCharCode(...bytes))}`);
}

export function signOut() {
  keep(null);
}

export function isSignedIn() {
  return credentials() !== null;
}
