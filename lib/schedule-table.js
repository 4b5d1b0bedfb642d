'use strict';

/**
 * The port between the feeder and the durable side of the queue. A host implements it once, over Harper's
 * `RenderSchedule` or over embedded LMDB, and the feeder knows nothing else of either.
 *
 * What an implementation promises:
 *
 * - **subscribe**: from the moment its promise resolves, every commit of every thread (and, where there are
 *   any, every node) reaches `listener`, each key's in commit order as far as the store can say. Live only:
 *   nothing is replayed. What the store cannot deliver it says by calling `onClose` once; the feeder then
 *   subscribes again and walks. It may deliver an event twice, or a value newer than the commit it tells of.
 * - **walk**: one chunk of the table in key order, at most `limit` rows, strictly after `after` and strictly
 *   before `before`; with `reverse`, from the top of that range down. Only a chunk of no rows means the end of
 *   the range: one may be shorter than `limit` before. Key order is any total order that stays the same; a
 *   cursor may name a key that is gone. It must not block the event loop for more than some milliseconds for a
 *   chunk of 1,000.
 * - **An unreadable row** shows itself in one of two ways, and the feeder handles both:
 *   1. where its key is known, as `{ cacheKey, unreadable: '<why>' }` in its place in the chunk;
 *   2. where the store's cursor dies on it, as a rejection of the chunk. The feeder then closes in on it with
 *      smaller chunks, reads the rest from the top down, and asks for what lies between with `keysOnly`
 *      (rows of `{ cacheKey }` alone, no value decoded), to read each by `get`. A store that cannot list keys
 *      without values rejects `keysOnly` too, and the load is `partial`.
 * - **get** rejects for a row that is there and cannot be read: null would say that the row is gone.
 * - **version**: where the store has one, a number that grows with each write of a row, deletions and
 *   restarts included. Rows and events carry the same.
 *
 * A row: the fields that the keeper reads, `unreadable` (why) where only its key could be read, and whatever
 * else the table has, which nobody here looks at.
 * @typedef {import('../index.js').ScheduleRow & { cacheKey: string, version?: number, unreadable?: string }
 *   & Record<string, unknown>} ScheduleRow
 *
 * @typedef {object} ScheduleEvent
 * @property {string} id  the key
 * @property {string} type  'put', 'delete', or another of the store's, which changes nothing
 * @property {object | null} [value]  the whole row after a put
 * @property {number} [version]
 * @property {number} [localTime]
 *
 * @typedef {object} WalkRange
 * @property {string | null} [after]  rows strictly after this key
 * @property {string | null} [before]  rows strictly before this key
 * @property {number} limit
 * @property {boolean} [reverse]
 * @property {boolean} [keysOnly]
 *
 * @typedef {object} Subscription
 * @property {() => void} end  may be called twice, and after the subscription closed
 *
 * @typedef {object} ScheduleTable
 * @property {(listener: (event: ScheduleEvent) => void, onClose: (why: Error) => void) => Promise<Subscription>} subscribe
 * @property {(range: WalkRange) => Promise<ScheduleRow[]>} walk
 * @property {(key: string) => Promise<ScheduleRow | null>} get
 * @property {(key: string, row: object) => Promise<unknown>} put
 * @property {(key: string) => Promise<unknown>} delete
 */

module.exports = {};
