/** The rounds of one plan on one host: each arm in each round, the order of the arms turned by one from round to round. */

const ARMS = /** @type {const} */ (['none', 'count', 'js', 'native']);

/** @typedef {(typeof ARMS)[number]} ArmName */
/** @typedef {{ arm: ArmName, round: number } & Record<string, any>} Round */
/**
 * `batch`: rows a write. `stay`: the subscription is opened once, and what changes is who gets the events.
 * @typedef {{ name: string, words: string, batch: number, stay: boolean, rounds: number, writes: number }} Plan
 */

/**
 * A thread of Harper's that has had a subscription reads on in the log after its end: `bare` is a host that never had one.
 *
 * @param {{ host: import('../host.js').Host, bare: import('../host.js').Host }} hosts @param {Plan} plan
 * @param {{ next: number }} numbers  of the writes
 * @param {(text: string) => void} stage
 * @returns {Promise<Round[]>}
 */
async function measure({ host, bare }, { words, batch, stay, rounds, writes }, numbers, stage) {
  /** @type {Round[]} */
  const measured = [];
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < ARMS.length; turn++) {
      const arm = ARMS[(round + turn) % ARMS.length];
      const { ask } = arm === 'none' && !stay ? bare : host;
      await ask('listener', 'arm', { arm, stay });
      const replayedBefore = await ask('writer', 'probe', { number: numbers.next++ });
      const written = await ask('writer', 'write', { from: numbers.next, count: writes, batch });
      numbers.next += writes;
      const held = await ask('listener', 'disarm');
      measured.push({ arm, round, replayedBefore, ...written, ...held });
      stage(`${words}, round ${round + 1} of ${rounds}, ${arm}: ${inWords(written, held)}`);
      for (const example of held.compared?.examples ?? []) stage(`  differs: ${example}`);
    }
  }
  if (stay) await host.ask('listener', 'close');
  return measured;
}

/** @param {Record<string, any>} written @param {Record<string, any>} held */
function inWords(written, { compared }) {
  const { putP50Us, processUs, missing } = written;
  const parts = [
    `put p50 ${putP50Us.toFixed(0)} us, ${processUs.toFixed(0)} us of CPU a row`,
    ...(missing > 0 ? [`${missing} EVENTS MISSING`] : []),
    ...(compared
      ? [
          `${compared.rows} rows and the best ${compared.best.compared} compared, ${compared.different + compared.best.different} differ`,
        ]
      : []),
  ];
  return parts.join('; ');
}

/** What must not be: events that did not come, rows kept otherwise than in the table. @param {Round[]} measured */
function faultsOf(measured) {
  return measured.flatMap(({ arm, round, missing, twice = 0, compared }) => {
    const where = `${arm}, round ${round + 1}`;
    return [
      ...(missing > 0 ? [`${where}: ${missing} events are missing`] : []),
      ...(twice > 0 ? [`${where}: ${twice} events came twice`] : []),
      ...(compared && compared.different > 0
        ? [`${where}: ${compared.different} rows kept otherwise than in the table`]
        : []),
      ...(compared && compared.best.compared === 0
        ? [`${where}: no row was due, no score compared`]
        : []),
      ...(compared && compared.best.different > 0
        ? [`${where}: ${compared.best.different} of the best rows have another score`]
        : []),
    ];
  });
}

module.exports = { ARMS, measure, faultsOf };
