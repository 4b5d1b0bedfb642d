'use strict';

/**
 * The admin routes as resources of Harper, with its conventions: nothing is checked for a resource with
 * `loadAsInstance = false`, so it is done here; a status needs `headers` beside it, or it becomes a 200.
 */

const { clusterAnswer } = require('../cluster.js');
const { HttpError } = require('../http-error.js');
const { stateAnswer, QUESTION } = require('../state-answer.js');

/**
 * @typedef {InstanceType<typeof import('./queue.js').HarperQueue>} HarperQueue
 * @typedef {{ status: number, headers: Record<string, string>, body?: string, data?: unknown }} Answer
 * @typedef {{ queue: HarperQueue, body: any, headers: any }} Call
 */

const OPENMETRICS = 'application/openmetrics-text; version=1.0.0; charset=utf-8';
/** A caller's own, by which Harper knows a user: a name and password, or the session of somebody who has logged in. */
const CREDENTIALS = ['authorization', 'cookie'];
const NO_STORE = { 'cache-control': 'no-store' };

/** @type {Record<string, Record<string, (call: Call) => Answer | Promise<Answer>>>} */
const ADMIN = {
  'queue-state': {
    GET: ({ queue, headers }) => stateAnswer(queue.keeper, undefined, headers[QUESTION]),
  },
  'cluster-queue-state': {
    GET: ({ queue, headers }) =>
      clusterAnswer({
        node: queue.node,
        nodes: queue.addresses,
        own: () => stateAnswer(queue.keeper),
        headers,
        forward: CREDENTIALS,
      }),
  },
  explain: {
    POST: ({ queue, body }) => {
      const key = body?.key;
      if (typeof key !== 'string') throw new HttpError(422, 'key must be the key to explain');
      return json(200, queue.keeper.explain(key));
    },
  },
  pause: { POST: async ({ queue }) => json(200, await queue.setPaused(true)) },
  resume: { POST: async ({ queue }) => json(200, await queue.setPaused(false)) },
  metrics: {
    GET: ({ queue }) => ({
      status: 200,
      headers: { 'content-type': OPENMETRICS, ...NO_STORE },
      body: queue.keeper.metrics(),
    }),
  },
};

/** @param {number} status @param {unknown} body @param {Record<string, string>} [headers] @returns {Answer} */
function json(status, body, headers = {}) {
  return {
    status,
    headers: { 'content-type': 'application/json', ...NO_STORE, ...headers },
    body: JSON.stringify(body),
  };
}

/** What became of `work`, or what is wrong, as an answer of Harper. @param {() => unknown} work */
async function reply(work) {
  try {
    return json(200, await work());
  } catch (error) {
    return failure(error);
  }
}

/** @param {unknown} error */
function failure(error) {
  if (error instanceof HttpError) {
    return json(error.status, { error: error.message, ...error.fields }, error.headers);
  }
  const { code, message } = /** @type {any} */ (error);
  const body = { error: `the host failed at this request: ${message}`, code };
  return json(503, body, { 'retry-after': '1' });
}

/**
 * What an admin route answers to the caller of a resource: to super-users only.
 *
 * @param {() => HarperQueue} queue
 * @param {any} resource
 * @param {'GET' | 'POST'} method
 * @param {unknown} route
 * @param {unknown} [data]
 */
async function adminAnswer(queue, resource, method, route, data) {
  try {
    const { user, headers } = resource.getContext() ?? {};
    if (!user) {
      throw new HttpError(401, 'log in as a super-user', {
        headers: { 'www-authenticate': 'Basic' },
      });
    }
    if (user.role?.permission?.super_user !== true) {
      throw new HttpError(403, 'this is for super-users only');
    }
    if (typeof route !== 'string' || !Object.hasOwn(ADMIN, route)) {
      throw new HttpError(404, 'there is no such route', {
        fields: { routes: Object.keys(ADMIN) },
      });
    }
    const handler = ADMIN[route][method];
    if (!handler) {
      const allow = Object.keys(ADMIN[route]).join(', ');
      throw new HttpError(405, `${route} takes ${allow}`, { headers: { allow } });
    }
    const sent = headers?.asObject ?? headers ?? {};
    // A page of another site can post anything else with the operator's own session.
    if (method === 'POST' && !/^application\/json\b/i.test(sent['content-type'] ?? '')) {
      throw new HttpError(415, 'send the body with the header content-type: application/json');
    }
    return await handler({ queue: queue(), body: await data, headers: sent });
  } catch (error) {
    return failure(error);
  }
}

/**
 * @param {any} Resource
 * @param {() => HarperQueue} queue
 * @param {(target: any) => unknown} routeOf
 */
function createResource(Resource, queue, routeOf) {
  return class extends Resource {
    static loadAsInstance = false;

    /** @param {any} target */
    get(target) {
      return adminAnswer(queue, this, 'GET', routeOf(target));
    }

    /** @param {any} target @param {any} data */
    post(target, data) {
      return adminAnswer(queue, this, 'POST', routeOf(target), data);
    }
  };
}

/**
 * `GET queue-state`, `GET cluster-queue-state`, `POST explain`, `POST pause`, `POST resume`, `GET metrics`: what follows
 * the name under which the component exports it.
 *
 * @param {() => HarperQueue} queue
 * @param {any} Resource
 */
function createAdminResource(queue, Resource) {
  return createResource(Resource, queue, (target) => target?.id);
}

/** @param {() => HarperQueue} queue @param {any} Resource */
function createMetricsResource(queue, Resource) {
  return createResource(Resource, queue, () => 'metrics');
}

module.exports = { adminAnswer, createAdminResource, createMetricsResource, reply };
