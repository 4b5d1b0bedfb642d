'use strict';

/** The name of the addon's file on this platform. */
function addonFile() {
  const libc =
    process.platform === 'linux'
      ? /** @type {any} */ (process.report?.getReport())?.header?.glibcVersionRuntime
        ? '-gnu'
        : '-musl'
      : '';
  return `queue_keeper.${process.platform}-${process.arch}${libc}.node`;
}

/** What is called of the addon: one that was built earlier may lack some of it, and be of the same version. */
const ADDON_CALLS = [
  'abandonWalk',
  'applyBatch',
  'beat',
  'beginWalk',
  'beginWalkAsync',
  'bytes',
  'claim',
  'classCount',
  'classified',
  'close',
  'configure',
  'configureAsync',
  'confirm',
  'create',
  'describe',
  'dueMinuteOf',
  'dueSummary',
  'endWalk',
  'endWalkAsync',
  'expectFeeder',
  'explain',
  'extend',
  'feederSilence',
  'giveBack',
  'headCheck',
  'keys',
  'learnKeys',
  'leasedKey',
  'loadSnapshot',
  'malformed',
  'maxListed',
  'metrics',
  'nextChange',
  'open',
  'readFailed',
  'release',
  'repair',
  'reportMemory',
  'saveSnapshot',
  'seizeFeeder',
  'setNow',
  'setPaused',
  'setPhase',
  'size',
  'stateJson',
  'status',
  'takeFeeder',
  'top',
  'vacate',
  'validate',
  'version',
  'walkRows',
];

/** To be raised, here and in `addon_interface`, with whatever a call of the addon takes or returns: it tells an addon of other sources. */
const INTERFACE = 1;

module.exports = { ADDON_CALLS, INTERFACE, addonFile };
