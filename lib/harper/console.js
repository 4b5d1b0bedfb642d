'use strict';

const { consoleFile } = require('../console-files.js');

/**
 * A layer of Harper's HTTP server that answers with the files of the console, ahead of the log-in: there are no numbers in them.
 *
 * @param {string} mount  such as `/prerender_console`
 */
function serveConsole(mount) {
  /** @param {any} request @param {(request: any) => any} next */
  return (request, next) => {
    const { method, pathname } = request;
    if (request.isWebSocket || (method !== 'GET' && method !== 'HEAD')) return next(request);
    if (pathname === mount) return { status: 308, headers: { location: `${mount}/` }, body: '' };
    if (!pathname.startsWith(`${mount}/`)) return next(request);
    const file = consoleFile(pathname.slice(mount.length + 1));
    return file ?? next(request);
  };
}

module.exports = { serveConsole };
