import type { EventEmitter } from 'node:events';
import type { Claim, KeeperOptions, QueueKeeper, Status } from '../../index.js';

/** The section of this package in a component's `config.yaml`, or what `startQueueKeeper` is given. */
export interface HarperOptions extends Omit<KeeperOptions, 'node' | 'nodes' | 'now'> {
  /** The schedule table. Defaults `render_schedule`, `RenderSchedule`. */
  database?: string;
  table?: string;
  /** A table of `id` and `value` in the same database, for what must outlive Harper: whether claims are paused. Default `RenderQueueSetting`. */
  settings?: string;
  /** ms between verifications, 1,000 or more. Default an hour. */
  verifyEveryMs?: number;
  /** The file of the snapshot; `false` for none. Default in Harper's root folder. Where its folder cannot be made, that is logged, and there is none. */
  snapshot?: string | false;
  /** Where the other nodes answer, for the cluster's state. Default this node's own protocol and port, `https://{host}:9926`. */
  peerUrl?: string;
  /** The path under which the console is served. Default: it is not. */
  console?: string;
}

export interface ClaimedJobs extends Claim {
  /** Rows that the table had differently: repaired, and others given out in their place. */
  skippedStale: number;
  /** Rows that could not be read, where there were any: each a miss, so that one that stays so is held back. */
  skippedUnreadable?: number;
}

export interface JobResult {
  key: string;
  token: number;
  /** `rendered` clears `changedAt` and `urgentAt`, unless they were set while the page was being rendered; `gone` deletes the row. */
  outcome: 'rendered' | 'failed' | 'gone';
  /** When the row is due again, ms since the epoch; null: never. Left out: a cadence from now. */
  nextRenderTime?: number | string | null;
  fromSitemap?: boolean | null;
  effectiveInterval?: number | null;
}

export interface FinishedJob {
  release: 'released';
  /** False where the row is no longer there. */
  written: boolean;
  gone?: true;
  nextRenderTime?: number | string | null;
}

/** What a resource of Harper may return. */
export interface HarperAnswer {
  status: number;
  headers: Record<string, string>;
  body?: string;
}

/** The queue in one worker thread. Emits `'status'`, with the new one, in the thread that feeds. */
export declare class HarperQueue extends EventEmitter {
  /** For all that is not feeding. */
  readonly keeper: QueueKeeper;
  readonly isFeeding: boolean;
  /** This node's name. */
  readonly node: string;
  readonly addresses: { name: string; url: string | null }[];
  claimJobs(limit?: number): Promise<ClaimedJobs>;
  finishJob(result: JobResult): Promise<FinishedJob>;
  /** `kept`: it holds when Harper is started again. False where there is no table for settings. */
  setPaused(paused: boolean): Promise<{ paused: boolean; status: Status; kept: boolean }>;
  /** Takes the options as they are now. Wrong ones are logged, and those before stay. */
  reload(): void;
  stop(): Promise<void>;
}

/**
 * Starts the queue in this worker thread, once. A component's scope is followed: options that change in its file hold without a restart.
 * Throws a `TypeError` for wrong options.
 */
export declare function startQueueKeeper(scopeOrOptions?: HarperOptions | object): HarperQueue;
export declare function stopQueueKeeper(): Promise<void>;

/** The queue of this thread. Throws where it has not been started. */
export declare function queueKeeper(): HarperQueue;

/**
 * The best jobs, each leased and held against its row, which is read from the local table. `limit`: 1 to 10,000, default 1; rejects with
 * `status` 422 for another, and 503 where the table as a whole cannot be read; where some jobs were held against their rows before that,
 * these are given, with `complete` false. No page is held back for it. Lets the event loop go round every 5 ms.
 */
export declare function claimJobs(limit?: number): Promise<ClaimedJobs>;

/**
 * Ends a job's lease and writes its row, in a transaction of its own, never over what was written since it was read. Rejects with `status` 409
 * for a lease that has ended, 422 for a wrong result, 503 where the row could not be written.
 */
export declare function finishJob(result: JobResult): Promise<FinishedJob>;

/** A resource with `GET queue-state`, `cluster-queue-state`, `metrics` and `POST explain`, `pause`, `resume`, for super-users. */
export declare function adminResource(Resource?: any): any;

/** A resource whose `GET` is OpenMetrics, for super-users. */
export declare function metricsResource(Resource?: any): any;

/** The answer of one admin route, for a component with a resource of its own: the check of the caller included. Never rejects. */
export declare function answerAdmin(
  resource: any,
  method: 'GET' | 'POST',
  route: string,
  data?: unknown,
): Promise<HarperAnswer>;

/** What `work` resolves to as an answer, or what is wrong with its status. Never rejects. */
export declare function reply(work: () => unknown): Promise<HarperAnswer>;
