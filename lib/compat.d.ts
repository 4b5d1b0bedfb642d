import type { ClassFields, Classify, State } from '../index.js';

/** How `topK` ranks: as options of the call, with other defaults than the keeper's own. */
export interface Ranking {
  /** Here and below a `Date` or a decimal number as text will do, too; what is no time, null included, throws a `TypeError`. */
  nowMs?: number;
  /** Default 1. */
  sitemapBoost?: number;
  /** Default 0. */
  changedHeadStart?: number;
  /** Default 0. */
  urgentHeadStart?: number;
  /** Default false. */
  changedDemand?: boolean;
}

export interface CompatDescribed extends ClassFields {
  minute: number;
}

export interface CompatKeeper {
  /**
   * Takes a row, or `null` where there is none, as which anything else counts. Returns whether the key is kept; one that is no string
   * never is. `quiet`: counts nothing in the flow. Throws what `classify` throws, or a `TypeError` where it gives no route and cadence.
   */
  apply(key: string, value: any, options?: { quiet?: boolean }): boolean;
  tick(nowMs?: number): void;
  /** `skip` is asked at most once a key, and never while the queue is locked. */
  topK(
    k: number,
    ranking?: Ranking & { skip?: (key: string) => boolean },
  ): {
    rows: { entry: { cacheKey: string; dueAt: number; fromSitemap: boolean }; score: number }[];
    skipped: number;
    complete: boolean;
  };
  dueSummary(nowMs?: number): {
    rows: number;
    due: number;
    firstDueMinute: number | null;
    earliestNotYetDueMinute: number | null;
  };
  state(nowMs?: number): {
    rows: number;
    due: number;
    dueSitemap: number;
    dueDiscovered: number;
    dueChanged: number;
    oldestChangedDueAt: number | null;
    dueUrgent: number;
    oldestUrgentDueAt: number | null;
    changedByDemand: State['now']['changedByDemand'];
    oldestDueAt: number | null;
    nextDueAt: number | null;
    coming: State['coming'];
    lateness: Pick<State['lateness'], 'edges' | 'sitemap' | 'discovered'>;
    byRoute: State['lateness']['byRoute'];
    classes: State['lateness']['classes'];
    flow: State['flow'];
  };
  has(key: string): boolean;
  describe(key: string): CompatDescribed | null;
  /** The row that would hold a key just so. */
  heldValue(key: string): {
    nextRenderTime: number;
    fromSitemap: boolean;
    effectiveInterval: number | null;
    changedAt: number | null;
    urgentAt: number | null;
    demandPeriod: number | null;
  } | null;
  keys(): IterableIterator<string>;
  /** Minutes since the epoch; null where the key is not kept. */
  dueMinuteOf(key: string): number | null;
  readonly version: number;
  readonly size: number;
  readonly classCount: number;
}

/** The component's JS keeper, on the native queue. */
export declare function createQueueKeeper(options: {
  classify: Classify;
  now?: () => number;
  flowMinutes?: number;
}): CompatKeeper;

export declare function scoreOf(
  row: {
    dueAt: number;
    fromSitemap?: boolean;
    changed?: boolean;
    urgent?: boolean;
    demandPeriodMs?: number | null;
  },
  ranking: Ranking & { nowMs: number; intervalMs: number },
): number;

export declare const LATENESS_EDGES: readonly number[];
