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

module.exports = { addonFile };
