'use strict';

/** A value in an error's words, whatever it is: nothing of it is called. @param {unknown} value */
function describe(value) {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'number' || value === null || value === undefined) return `${value}`;
  return typeof value === 'string' ? 'a string' : `of type ${typeof value}`;
}

module.exports = { describe };
