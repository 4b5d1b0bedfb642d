'use strict';

/** What is wrong with a request: a status, and a sentence that says what to do. Every host answers it as JSON. */
class HttpError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {{ headers?: Record<string, string>, fields?: Record<string, unknown> }} [more]
   */
  constructor(status, message, { headers = {}, fields = {} } = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
    this.fields = fields;
  }
}

module.exports = { HttpError };
