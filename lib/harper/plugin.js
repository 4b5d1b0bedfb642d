'use strict';

/** What Harper loads where a component names this package in its `config.yaml`. */

const { startQueueKeeper } = require('./index.js');

/** @param {any} scope */
function handleApplication(scope) {
  startQueueKeeper(scope);
}

exports.handleApplication = handleApplication;
exports.suppressHandleApplicationWarning = true;
