'use strict';

/**
 * The queue for a component of Harper.
 *
 *     # config.yaml: starts it in every worker, with the options of this section
 *     prerender-queue-keeper:
 *       package: prerender-queue-keeper
 *
 *     // resources.js
 *     import { adminResource, claimJobs, finishJob, reply } from 'prerender-queue-keeper/harper';
 *
 * A component that has the options itself calls `startQueueKeeper({ ... })` instead.
 */

const { HttpError } = require('../http-error.js');
const { HarperQueue } = require('./queue.js');
const { adminAnswer, createAdminResource, createMetricsResource, reply } = require('./routes.js');

/** This thread's. @type {InstanceType<typeof HarperQueue> | null} */
let started = null;

/**
 * Starts the queue in this worker thread: once in each. Throws a `TypeError` for wrong options.
 *
 * @param {any} [source]  a component's scope, whose options are followed as they change; or the options
 * @param {import('./queue.js').Harper} [harper]
 */
function startQueueKeeper(source = {}, harper = /** @type {any} */ (globalThis)) {
  if (!harper.server || !harper.databases) {
    throw new TypeError('there is no Harper here: start the queue keeper in a component of Harper');
  }
  if (started) throw new Error('the queue keeper has been started in this thread: start it once');
  started = HarperQueue.start(source, harper);
  return started;
}

/** The queue of this thread. Throws a 503 where it has not been started. */
function queueKeeper() {
  if (!started) {
    throw new HttpError(503, 'the queue keeper has not been started in this worker', {
      headers: { 'retry-after': '1' },
    });
  }
  return started;
}

/** Ends what `startQueueKeeper` began in this thread. */
async function stopQueueKeeper() {
  const queue = started;
  started = null;
  await queue?.stop();
}

/** @param {number} [limit]  1 to 10,000; left out: 1 */
async function claimJobs(limit) {
  return queueKeeper().claimJobs(limit);
}

/** @param {import('../claims.js').Result} result */
async function finishJob(result) {
  return queueKeeper().finishJob(result);
}

/** @param {any} Resource */
function harpers(Resource = /** @type {any} */ (globalThis).Resource) {
  if (typeof Resource !== 'function') {
    throw new TypeError(
      'there is no Resource of Harper here: hand it over, or call this in a component of Harper',
    );
  }
  return Resource;
}

/** A resource with the admin routes, for super-users. @param {any} [Resource]  Harper's, where it is not a global */
function adminResource(Resource) {
  return createAdminResource(queueKeeper, harpers(Resource));
}

/**
 * What an admin route answers, for a component that has resources of its own: `return answerAdmin(this, 'GET', 'queue-state')`.
 *
 * @param {any} resource
 * @param {'GET' | 'POST'} method
 * @param {string} route
 * @param {unknown} [data]
 */
function answerAdmin(resource, method, route, data) {
  return adminAnswer(queueKeeper, resource, method, route, data);
}

/** A resource that answers with OpenMetrics, for super-users. @param {any} [Resource]  Harper's, where it is not a global */
function metricsResource(Resource) {
  return createMetricsResource(queueKeeper, harpers(Resource));
}

module.exports = {
  HarperQueue,
  adminResource,
  answerAdmin,
  claimJobs,
  finishJob,
  metricsResource,
  queueKeeper,
  reply,
  startQueueKeeper,
  stopQueueKeeper,
};
