import {
  adminResource,
  claimJobs,
  finishJob,
  metricsResource,
  reply,
} from 'prerender-queue-keeper/harper';

// GET queue-state, cluster-queue-state, metrics; POST explain, pause, resume: for super-users.
export const prerender_admin = adminResource();
export const metrics = metricsResource();

/** POST claim, POST job_result: for whoever has an account, such as the renderers. */
export class render_queue extends Resource {
  static loadAsInstance = false;

  async post(target, data) {
    const route = target.id;
    if (!this.getContext().user) {
      return { status: 401, headers: { 'www-authenticate': 'Basic' }, data: { error: 'log in' } };
    }
    const body = await data;
    if (route === 'claim') return reply(() => claimJobs(body?.limit));
    if (route === 'job_result') return reply(() => finishJob(body));
    return { status: 404, headers: {}, data: { error: 'POST to claim or job_result' } };
  }
}
