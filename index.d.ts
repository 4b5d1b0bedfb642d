/**
 * The render queue of a prerender component, held in native memory for all worker threads of one Node process.
 *
 * Every method is synchronous unless it returns a promise, runs on the calling thread, and takes the queue's lock for as long as
 * its work takes; long work (walks, `configure`, snapshots) is cut in slices, of 64 rows where they are changed, and lets others in between. Wrong arguments throw a
 * `TypeError` at the call; what the data contains never throws. All times are ms since the epoch, all sizes are bytes.
 */

/** What is on `err.code` of every error that is not a `TypeError`. The list is closed. */
export type ErrorCode =
  /** The addon cannot be loaded, or is of another version than the package. */
  | 'E_ADDON'
  /** Another copy of the addon is loaded in this process: it would be a second queue. */
  | 'E_SECOND_COPY'
  /** The handle has been closed. */
  | 'E_CLOSED'
  /** A fault inside this queue was caught, and the queue given up. Other queues, and the process, go on. */
  | 'E_POISONED'
  /** Another feeder has taken over; what this handle still feeds is refused. */
  | 'E_DEPOSED'
  /** The queue of this name was opened with other options. */
  | 'E_OPTIONS'
  /** The walk has ended, or another has begun. */
  | 'E_WALK'
  /** A snapshot of this queue is being written already. */
  | 'E_BUSY'
  /** A snapshot file cannot be read or written. */
  | 'E_IO'
  /** A snapshot file is damaged; nothing of it was kept. */
  | 'E_SNAPSHOT_DAMAGED'
  /** A snapshot file is of another format version; nothing of it was kept. */
  | 'E_SNAPSHOT_VERSION'
  /** A snapshot file is of another node; nothing of it was kept. */
  | 'E_SNAPSHOT_FOREIGN'
  /** `setNow` on a keeper that runs on the real clocks. */
  | 'E_CLOCK'
  /** An argument reached the addon that the package should have refused: a fault of the package. */
  | 'E_ARGUMENT';

export interface KeeperError extends Error {
  code: ErrorCode;
}

/** A rule of the route list; the first that matches a URL's pathname wins. A wrong rule is left out and reported in the state. */
export interface RouteRule {
  match: 'exact' | 'prefix' | 'contains';
  /** Compared with the WHATWG pathname; `exact` and `prefix` begin with `/`. */
  path: string;
  mode?: 'prerender' | 'passthrough';
  /** ms between renders of rows that carry no `effectiveInterval`. Finite and above 0. */
  renderInterval?: number;
}

export interface Priority {
  /** Factor on the score of rows listed in a sitemap. 0 or more; default 2. */
  sitemapBoost?: number;
  /** Added to changed rows, in cadences, times the sitemap boost where that is above 1, whether listed or not. Nothing is added unless finite and above 0. Default 1. */
  changedHeadStart?: number;
  /** The same for urgent rows that are not changed. Default 0.5. */
  urgentHeadStart?: number;
  /** Measure changed rows against `demandPeriod`, where they have one. Default true. */
  changedDemand?: boolean;
}

export interface LeaseOptions {
  /** How long a claim is granted for, ms. Above 0; default 120,000. */
  leaseMs?: number;
  /** How many leases may be live at once. Default 8,192. */
  maxLeases?: number;
  /** How long a released key cannot be granted, ms. Default 5,000. */
  releaseGraceMs?: number;
  /** How many misses in a row a key may have before it is held. Default 3. */
  missLimit?: number;
}

/** What a host's own classifier says of a row: `null` means not kept. A `cadenceMs` that is not above 0 is allowed. */
export type Classify = (
  key: string,
  row: any,
) => { route: string; cadenceMs: number; carried?: boolean } | null;

export interface KeeperOptions {
  /** This node's name. Default `localhost`. */
  node?: string;
  /** Its peers; this node may be among them. With none, this node owns every key. */
  nodes?: string[];
  routes?: RouteRule[];
  /** Pathnames that contain one of these are not prerendered. */
  excludePathPatterns?: string[];
  /** ms between renders where neither row nor route says. Default 86,400,000. */
  defaultInterval?: number;
  /** Between the URL and the device type in a key. Default `|`. */
  delimiter?: string;
  /** Default `['desktop', 'mobile']`. */
  deviceTypes?: string[];
  priority?: Priority;
  leases?: LeaseOptions;
  /** Minutes that the flow remembers, 1 to 10,080. Default 60. */
  flowMinutes?: number;
  /** The longest list in the state, and of held keys in a claim. Default 200. */
  maxListed?: number;
  /** Instead of `nodes`, `routes`, `excludePathPatterns` and `defaultInterval`. Called on the calling thread, without any lock. */
  classify?: Classify;
  /** A manual clock that begins here, moved by `setNow`; without it, the real clocks. */
  now?: number;
}

/** What `configure` may change. */
export type KeeperPatch = Pick<
  KeeperOptions,
  'node' | 'nodes' | 'routes' | 'excludePathPatterns' | 'defaultInterval' | 'priority' | 'leases'
>;

/** A row of the schedule table, as it is read. See the README for what each field accepts. */
export interface ScheduleRow {
  cacheKey?: string;
  nextRenderTime?: number | bigint | Date | string | null;
  fromSitemap?: unknown;
  effectiveInterval?: number | bigint | null;
  changedAt?: number | bigint | null;
  urgentAt?: number | bigint | null;
  demandPeriod?: number | bigint | null;
  /** Grows with each write of the row. */
  version?: number | bigint | null;
}

/** An event of the table's subscription. `id` is the key; `value.cacheKey` is not looked at. */
export interface ScheduleEvent {
  type: string;
  id: unknown;
  value?: ScheduleRow | null;
  version?: number | bigint | null;
}

export interface DueRow {
  key: string;
  dueAt: number;
  fromSitemap: boolean;
  changed: boolean;
  urgent: boolean;
  score: number;
}

export interface Job extends DueRow {
  /** Names this grant and no other, across restarts of the process. A safe integer. */
  token: number;
  expiresAt: number;
}

export interface HeldKey {
  key: string;
  misses: number;
  until: number;
}

export type Status = 'unready' | 'queued' | 'empty' | 'paused';
export type Phase = 'starting' | 'waiting-for-peers' | 'loading' | 'live' | 'failed' | 'stopped';

export interface Claim {
  jobs: Job[];
  status: Status;
  /** Rows due, in flight included. */
  due: number;
  /** Every due row was examined. */
  complete: boolean;
  /** Rows passed over that are leased, or in the grace after a release. */
  skippedLeased: number;
  /** Held keys passed over, the first `maxListed` of them. */
  held: HeldKey[];
  /** Why there are fewer jobs than asked for although more could be granted. */
  refused: null | 'limit' | 'paused' | 'unready';
}

export interface WalkReport {
  at: number;
  scanned: number;
  owned: number;
  unowned: number;
  missing: number;
  mismatched: number;
  phantoms: number;
  gained: number;
  lost: number;
  unreadableRows: number;
  malformed: number;
  partial: boolean;
  repaired: number;
  /** Writes put right whose event came afterwards: they are no longer among those above. */
  late: number;
  ms: number;
}

/** A walk over the table. A handle has one at a time: beginning another ends this one (`E_WALK`). */
export interface Walk {
  /**
   * Takes a chunk of rows as they were read, in any order. A row is not applied where an event has touched its key since the
   * walk began. Throws `E_WALK`, `E_DEPOSED`.
   */
  rows(rows: ScheduleRow[]): void;
  /**
   * Ends the walk. `suspects` are the keys that are kept although the walk did not see them: read each and hand it to
   * `repair`; none where the walk was partial.
   */
  end(end?: { partial?: boolean; unreadable?: number }): WalkReport & { suspects: string[] };
  /**
   * `end`, off this thread: where rows have gone by the hundred thousand, it would hold the event loop up. The suspects are then
   * handed out by `nextSuspects`. Rejects with `E_WALK`, `E_DEPOSED`.
   */
  endAsync(end?: { partial?: boolean; unreadable?: number }): Promise<WalkReport>;
  /** The next `n` suspects of a walk that `endAsync` has ended; none once all have been handed out. */
  nextSuspects(n: number): string[];
  /** Gives the walk up. */
  abandon(): void;
}

/** What tells classes apart. */
export interface ClassFields {
  route: string;
  /** null where a classifier gave a number that JSON cannot say. */
  cadenceMs: number | null;
  carried: boolean;
  fromSitemap: boolean;
  changed: boolean;
  urgent: boolean;
  demandPeriodMs: number | null;
}

export interface Described extends ClassFields {
  dueAt: number;
  /** Minutes since the epoch. */
  minute: number;
}

export interface Explanation extends ClassFields {
  key: string;
  kept: boolean;
  reason: null | 'not-owned' | 'unknown';
  owner: string;
  /** What the cadence would be if the row carried none; null with a `classify`. */
  routeCadenceMs: number | null;
  dueAt: number | null;
  due: boolean;
  score: number | null;
  /** Its place among the due rows, leased ones included; 1 is the best. */
  rank: number | null;
  /** `rank` divided by the rate at which jobs were given out in the last ten whole minutes, or as many as there have been; null where there is none. */
  waitMs: number | null;
  /** `version`: of the row that the lease was confirmed with; null where it was not, or the row has none. */
  lease: { grantedAt: number; expiresAt: number; version: number | null } | null;
  misses: number;
  hold: { misses: number; until: number } | null;
}

export type LatenessBins = [number, number, number, number, number];

/** One consistent moment of the queue: counts add up however busy other threads are. */
export interface State {
  schema: 1;
  node: string;
  generatedAt: number;
  now: {
    due: number;
    dueSitemap: number;
    dueDiscovered: number;
    dueChanged: number;
    /** When the longest overdue changed row was due. */
    oldestChangedAt: number | null;
    dueUrgent: number;
    /** When the longest overdue urgent row was due. */
    oldestUrgentAt: number | null;
    changedByDemand: { periodMs: number | null; due: number; oldestDueAt: number }[];
    inFlight: number;
    /** Keys held back from claims, whether their rows are due now or not. */
    heldKeys: number;
    /** Of these, those whose rows are due now. */
    heldDue: number;
    unclaimed: number;
    /** How many more leases can be granted; at 0 claims are refused for `limit`. */
    leasesLeft: number;
    paused: boolean;
    status: Status;
    /**
     * ms until no row is later than its cadence: rows later than that, divided by how many more rows a minute were finished than came
     * due in the last ten whole minutes, or as many as there have been. 0 where none is, null where the backlog does not shrink.
     */
    drainEtaMs: number | null;
  };
  coming: {
    /** By minutes from the current one, 15 and 60 included. */
    next15m: number;
    next60m: number;
    next24h: number;
    /** Hour `h` is minutes 60h to 60h + 59 from the current one. */
    byHour: number[];
  };
  lateness: {
    edges: [0.25, 1, 2, 4];
    sitemap: LatenessBins;
    discovered: LatenessBins;
    oldestDueAt: number | null;
    nextDueAt: number | null;
    byRoute: { route: string; due: number; sitemap: LatenessBins; discovered: LatenessBins }[];
    classes: (ClassFields & {
      rows: number;
      due: number;
      oldestDueAt: number;
      oldestLatenessCadences: number | null;
    })[];
    listsTruncated: boolean;
  };
  flow: {
    minute: number;
    cameDue: number;
    added: number;
    triggered: number;
    rescheduled: number;
    removed: number;
  }[];
  trust: {
    source: 'keeper';
    live: boolean;
    phase: Phase;
    exact: boolean;
    stateAt: number;
    stateAgeMs: number;
    maxAgeMs: number;
    keeper: {
      phase: Phase;
      rows: number;
      /** Of these, rows that carry their own cadence. */
      carriedRows: number;
      classes: number;
      resyncing: boolean;
      exact: boolean;
      loadStartedAt: number | null;
      loadedAt: number | null;
      loadMs: number | null;
      loadRows: number;
      unreadableRows: number;
      partialLoad: boolean;
      eventsApplied: number;
      eventsIgnored: number;
      eventsOutdated: number;
      eventsFlagged: number;
      malformed: number;
      lastEventAt: number | null;
      verify: WalkReport | null;
      /** When the last verification ended that read the whole table. */
      verifiedAt: number | null;
      lastResync: WalkReport | null;
      topCheck: { at: number | null; checked: number; repaired: number };
      /** Writes put right before their event had come, by a walk, a check of the head or a claim, since the start. What a snapshot had is none, nor what an event had flagged or the load could not read. */
      repairedTotal: number;
      /** Of these, writes whose event came afterwards: late, not missed. */
      lateTotal: number;
      gainedTotal: number;
      lostTotal: number;
      lastError: string | null;
      snapshotMs: number | null;
      epoch: number;
      epochAt: number | null;
      /** ms since the feeder last said that it lives (`beat`); null where none does. `exact` is false after 2,000, and where it has gone. */
      feederSilentMs: number | null;
      unverifiedRows: number;
      /** Keys that must be read from the table: suspects of a walk, and keys flagged by an event. One that could not be read counts until it is read again, a minute later. */
      awaitingRead: number;
      invalidRules: { index: number; what: string }[];
      /** The nodes that keys are shared among, this one included, in order. */
      ring: string[];
      /** How many minutes `flow` tells of, the current one included. */
      flowMinutes: number;
      bytes: number;
    };
  };
}

export declare class QueueKeeper {
  /** A queue of its own, which ends with `close`. Throws a `TypeError` for wrong options. */
  constructor(options?: KeeperOptions);

  /**
   * The queue of this name in this process: the same from every worker thread, for as long as the process lives, whichever
   * threads end. The first to open sets the options; a later one that gives options which differ from those gets `E_OPTIONS`, one that
   * gives none gets the queue as it is. `classify` is each thread's own.
   */
  static open(name: string, options?: KeeperOptions): QueueKeeper;

  /**
   * Takes one event. It may wait in this handle, with others, until 128 are there, the turn of the event loop ends, or any
   * other method is called. What a thread has not handed over when it is terminated is lost, for the next verification to find. A fault of a
   * hand-over that nobody called for (`E_DEPOSED`, `E_POISONED`) is thrown by the next call.
   */
  apply(event: ScheduleEvent): void;

  /**
   * From now on `listener`, or nobody, is told after a turn's events that `apply` took have reached the queue, by the end of the turn of the event
   * loop at the latest: the status that they have left when they did; undefined where they were refused, which the next call says why, if none has.
   * It must not throw: nobody is there to catch it. There is one listener, and a `Feeder` on this handle is it.
   */
  onApplied(listener: ((status: Status | undefined) => void) | null): void;

  /**
   * Takes several events at once. `applied`: events about rows of this node that were taken, whether or not they changed anything. `ignored`:
   * other types, rows of other nodes, events older than one that had come, puts without a value, patches. `malformed`: events that cannot be read.
   */
  applyAll(events: ScheduleEvent[]): { applied: number; ignored: number; malformed: number };

  /**
   * The best `n` due rows that are neither leased nor in the grace after a release; held keys are among them. The order is the same on every
   * run. `complete` is false where `n` was filled, even exactly. Costs a string a row.
   */
  topK(n: number): { rows: DueRow[]; skippedLeased: number; complete: boolean };

  /** Leases the best `n` rows that can be granted; at most 100,000 in one call. No key is ever leased twice at once. */
  claim(n: number): Claim;

  /**
   * Says what the table has for a claimed row: `null` where there is none. True: render it. False: it was stale and the lease has been given
   * back without a miss, or that lease is no longer live; or it cannot be read, and the lease runs out. What the queue kept is put right, unless an event touched the key since the claim.
   */
  confirm(token: number, row: ScheduleRow | null): boolean;

  /**
   * Ends a lease. `expired`: that lease had run out. `superseded`: the key has been granted again since. `unknown`: no such lease (any
   * more). Without a token: whatever lease of the key is live.
   */
  release(key: string, token?: number): 'released' | 'expired' | 'superseded' | 'unknown';

  /**
   * Ends a lease as if it had not been granted, without a miss: whoever claimed has gone and did not get the key. False where it is no
   * longer live.
   */
  giveBack(token: number): boolean;

  /** Lets a lease last `ms` from now (default: `leaseMs`), never less long than it would have. The new end, or null where it is not live. */
  extend(token: number, ms?: number): number | null;

  /** Claims grant nothing until `resume`; counts go on. */
  pause(): void;
  resume(): void;

  readonly status: Status;

  /** When a row comes due or a lease or hold ends next, if no event comes in between: when `status` may change by itself. */
  readonly nextChange: number | null;

  /** The due minute of a kept key, since the epoch; null where it is not kept. */
  dueMinuteOf(key: string): number | null;

  dueSummary(): {
    rows: number;
    due: number;
    firstDueMinute: number | null;
    earliestNotYetDueMinute: number | null;
  };

  state(): State;
  /** The same, as JSON text. */
  stateJson(): string;

  describe(key: string): Described | null;
  explain(key: string): Explanation;

  /**
   * Changes options while the queue runs. Rows are put in the classes where they now belong, and dropped where another node owns them
   * now, in slices that let others in; the call returns when all rows have been gone through (seconds for a million). An empty `nodes` never replaces one
   * that had peers. A wrong patch changes nothing and throws a `TypeError`.
   */
  configure(patch: KeeperPatch): { moved: number; dropped: number };
  /**
   * The same, the rows gone through by another thread: this one is not held up. The new options hold from the call on. Of several
   * under way at once, one tells of all the rows moved and dropped. A wrong patch throws at the call.
   */
  configureAsync(patch: KeeperPatch): Promise<{ moved: number; dropped: number }>;

  /**
   * Learns from a sample how keys are best kept small; before many come in key order, of which the first have too much in common.
   * The sample should be from all over them: a few hundred keys, no neighbours; of more than 4,096 the first are taken, of each key the
   * first 512 code units. Another thread does it, some 0.01 to 0.1 s. Keys that come later are kept so, those kept already stay as they
   * are. Resolves to false, and changes nothing, where there are fewer than 64 keys, and where the queue has so learnt before or was
   * read from a snapshot.
   */
  learnKeys(keys: string[]): Promise<boolean>;

  /** Begins a walk over the table; one under way ends (`E_WALK` for it). Throws `E_DEPOSED`. */
  beginWalk(kind: 'load' | 'verify'): Walk;
  /**
   * The same, off this thread: after a walk that was given up, every row is gone through before the next begins (0.2 s for a
   * million). Rejects with `E_DEPOSED`.
   */
  beginWalkAsync(kind: 'load' | 'verify'): Promise<Walk>;

  /**
   * Keys to read from the table now and hand to `repair`: up to `n` that events have flagged, then those of the best `n` due rows that have not
   * been handed out for a minute. Throws `E_DEPOSED`.
   */
  headCheck(n?: number): string[];

  /**
   * Says what the table has for a key: the truth, unless an event came in since the key was handed out. True where what was kept was
   * wrong, and is right now. Throws `E_DEPOSED`.
   */
  repair(key: string, row: ScheduleRow | null): boolean;

  /**
   * A key that was handed out, by `headCheck` or as a suspect, could not be read. Where an event or a walk has said that it must be, it
   * is handed out again by a head check a minute from now, and `exact` is false until then. Throws `E_DEPOSED`.
   */
  readFailed(key: string): void;
  /** Says where the feeder is. A keeper without a feeder is live from the start. Throws `E_DEPOSED`. */
  setPhase(phase: Phase, detail?: { resyncing?: boolean; error?: string }): void;

  /** Makes this handle the feeder; the one before gets `E_DEPOSED` from now on, and its walk ends. Returns the new epoch, from 1. */
  takeFeeder(): number;

  /**
   * Says that there will be a feeder: until the first has loaded, the queue is not live (`starting`) and refuses claims. Without it, one that is
   * fed by hand is live from the start. Nothing once there has been a feeder.
   */
  expectFeeder(): void;

  /** Says that the feeder lives. Nothing where this handle does not feed, or no longer. */
  beat(): void;

  /**
   * Says that the feeder of this epoch (left out: this handle) is gone, or will be: whoever stands by may take over at once. What it feeds until
   * then still counts. Nothing where another has taken over since.
   */
  vacate(epoch?: number): void;

  /** ms since the feeder last said that it lives, by a clock that only goes forward; Infinity where nobody feeds. */
  readonly feederSilenceMs: number;

  /**
   * True where the feeder has been silent for more than `silenceMs` (0 or more): to one caller only, in whichever thread, who is expected to call
   * `takeFeeder` and `beat` within as long. Decides who begins to feed; who may, the epoch does.
   */
  seizeFeeder(silenceMs: number): boolean;

  /** OpenMetrics 1.0 text, of gauges and counters only; what cannot be vouched for while the queue is not live is left out. */
  metrics(): string;

  /**
   * Writes the queue to a file, as it is at one moment soon after the call, with all that was applied before it: beside the file, synced, then
   * renamed over it. Off the JavaScript thread. Takes as much memory again as the queue, while it runs. Rejects with `E_IO`, `E_BUSY`.
   */
  saveSnapshot(path: string): Promise<{ rows: number; bytes: number; ms: number }>;

  /**
   * Keeps the rows of a snapshot, unverified, in their order; what an event has said meanwhile stays. The whole file is checked before
   * any of it is kept. Rejects with `E_DEPOSED`, `E_IO`, `E_SNAPSHOT_DAMAGED`, `E_SNAPSHOT_VERSION`, `E_SNAPSHOT_FOREIGN`.
   */
  loadSnapshot(path: string): Promise<{ rows: number; savedAt: number; ms: number }>;

  /** Moves a manual clock. Leases see only the way forward. Throws `E_CLOCK` on real clocks. */
  setNow(ms: number): void;

  /** Rows kept. */
  readonly size: number;
  /** Grows with every change of what is kept. */
  readonly version: number;
  readonly classCount: number;
  /** Native memory, everything counted. */
  readonly bytes: number;

  /** Every kept key, in no order that means anything. Costs a string a row. */
  keys(): string[];

  /** Checks every invariant of the queue, which takes as long as it takes: for tests. A fault poisons the queue. */
  validate(): void;

  /** Ends this handle; every later call throws `E_CLOSED`. May be called again. The queue of a name stays. */
  close(): void;
}
