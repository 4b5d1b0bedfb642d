/**
 * What was written to each row and when it was sent and answered, so that a lost write is found: also after hours, as what
 * can no longer be the row's value is forgotten.
 *
 * A write is begun, and then answered, refused (it was not done), or neither: then nobody knows. A row may hold a value
 * that was written where no write was answered that was sent after that one's answer.
 */

/** A row that is not there. */
const GONE = -1;

/** @typedef {{ value: number, start: number, end: number }} Write  `end` is Infinity where no answer came */

/** @param {(row: number) => number} initial  what each row held at first: its due time, or `GONE` */
function createLedger(initial) {
  /** Rows of which it is not plain what they hold. @type {Map<number, Write[]>} */
  const open = new Map();
  /** Of all others, what they do. @type {Map<number, number>} */
  const settled = new Map();
  let acknowledged = 0;

  /** @param {number} row */
  const settledValue = (row) => settled.get(row) ?? initial(row);

  /** @param {number} row @param {Write[]} writes */
  function keep(row, writes) {
    const [only] = writes;
    if (writes.length === 1 && only.end !== Number.POSITIVE_INFINITY) {
      settled.set(row, only.value);
      open.delete(row);
    } else open.set(row, writes);
  }

  return {
    /** @param {number} row @param {number} value @returns {Write} */
    begin(row, value) {
      const write = { value, start: performance.now(), end: Number.POSITIVE_INFINITY };
      const before = open.get(row) ?? [{ value: settledValue(row), start: 0, end: 0 }];
      open.set(row, [...before, write]);
      return write;
    },
    /** @param {number} row @param {Write} write */
    answered(row, write) {
      write.end = performance.now();
      acknowledged += 1;
      const writes = open.get(row) ?? [];
      // An answer to an earlier one may come later: it says nothing of what was sent after it.
      keep(
        row,
        writes.filter(({ end }) => end >= write.start),
      );
    },
    /** @param {number} row @param {Write} write */
    refused(row, write) {
      keep(
        row,
        (open.get(row) ?? []).filter((one) => one !== write),
      );
    },
    /** What the row holds, as far as is known: of several, what was written last. @param {number} row */
    current: (row) => open.get(row)?.at(-1)?.value ?? settledValue(row),
    /** Whether the row may hold this. @param {number} row @param {number} value */
    allows: (row, value) => {
      const writes = open.get(row);
      return writes ? writes.some((write) => write.value === value) : settledValue(row) === value;
    },
    get acknowledged() {
      return acknowledged;
    },
    /** Rows of which an answer is missing, or two were under way at once. */
    get unknown() {
      return open.size;
    },
  };
}

/**
 * The rows of which an acknowledged write is lost, up to `rows`.
 *
 * @param {ReturnType<typeof createLedger>} ledger @param {number} rows
 * @param {(row: number) => { nextRenderTime?: unknown } | null} get  of the table
 */
function lostRows(ledger, rows, get) {
  const lost = [];
  for (let row = 0; row < rows; row++) {
    const value = get(row);
    if (!ledger.allows(row, value ? Number(value.nextRenderTime) : GONE)) lost.push(row);
  }
  return lost;
}

module.exports = { createLedger, lostRows, GONE };
