'use strict';

const { describe, test } = require('node:test');
const { HarperTable } = require('../lib/harper/table.js');
const { TableDouble, transaction } = require('./support/harper-double.js');
const { HARPER, PORT, runCase } = require('./support/port-cases.js');
const { until } = require('./support/until.js');

/** @param {import('./support/port-cases.js').Case} one */
async function onDouble(one) {
  const raw = new TableDouble();
  const port = new HarperTable({ table: () => raw, transaction });
  const commit = (/** @type {(context: any) => any} */ work, context = {}) =>
    transaction(context, () => work(context));
  await runCase(one, { raw, port, commit, until });
}

describe('the port on a table of Harper', () => {
  for (const one of PORT) test(one.name, () => onDouble(one));
});

describe('a table of Harper, as it is', () => {
  for (const one of HARPER) test(one.name, () => onDouble(one));
});
