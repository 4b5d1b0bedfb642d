'use strict';

/**
 * The HTTP interface of the standalone host: one request in, one JSON answer out. Whatever is wrong with a
 * request has a status and a sentence that says what to do.
 */

const { createHash, timingSafeEqual } = require('node:crypto');
const http = require('node:http');
const { createClaims } = require('../claims.js');
const { clusterAnswer } = require('../cluster.js');
const { consoleFile } = require('../console-files.js');
const { HttpError } = require('../http-error.js');
const { checkRow } = require('../row.js');
const { stateAnswer, QUESTION } = require('../state-answer.js');
const { importRows } = require('./ndjson.js');
const { checkNodes, otherOwner } = require('./nodes.js');

/**
 * @typedef {InstanceType<typeof import('./table.js').LmdbTable>} LmdbTable
 * @typedef {InstanceType<typeof import('./table.js').TableError>} TableError
 * @typedef {http.IncomingMessage} Request
 * @typedef {{ status?: number, headers?: Record<string, string>, body: unknown }} Answer  text and bytes go
 *   out as they are, anything else as JSON
 *
 * What the routes use of the keeper.
 * @typedef {Pick<import('../../index.js').QueueKeeper, 'claim' | 'confirm' | 'describe' | 'dueSummary'
 *   | 'explain' | 'giveBack' | 'metrics' | 'pause' | 'release' | 'resume' | 'state' | 'stateJson' | 'status'>} Keeper
 */

const LARGEST_BODY = 16 * 2 ** 20;
/** How long a new list of nodes may take to reach the queue before the answer says that it has not. */
const FOLLOW_MS = 5_000;
const LOOK_MS = 20;
/** How long one that asked for a proxy may stay without a word after its answer. */
const LINGER_MS = 5_000;
const SCHEDULE = '/render_schedule/';
const CONSOLE = '/console/';
const JSON_TYPES = new Set(['application/json']);
const NDJSON_TYPES = new Set([
  'application/json',
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
]);
const OPENMETRICS = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

/**
 * @param {object} parts
 * @param {Keeper} parts.keeper
 * @param {LmdbTable} parts.table
 * @param {InstanceType<typeof import('./nodes.js').Nodes>} parts.nodes
 * @param {InstanceType<typeof import('./leftover.js').Leftover>} parts.leftover
 * @param {string} parts.node  this node's name
 * @param {string} [parts.token]  asked of every request, where given
 * @param {number} parts.defaultInterval  the cadence of a row that the keeper does not keep
 * @param {(name: 'jobs' | 'stale' | 'results') => void} [parts.count]
 * @param {(paused: boolean) => void} [parts.onPause]
 * @param {(error: Error) => void} [parts.onError]  an error that is this program's own
 */
function createApi({
  keeper,
  table,
  nodes,
  leftover,
  node,
  token,
  defaultInterval,
  count,
  onPause,
  onError,
}) {
  const tokenDigest = token === undefined ? null : digest(token);
  const claims = createClaims({ keeper, table, defaultInterval: () => defaultInterval, count });
  let draining = false;

  /** @type {Record<string, Record<string, (request: Request) => Answer | Promise<Answer>>>} */
  const routes = {
    '/render_schedule': { POST: postRows },
    '/render_queue/claim': { POST: postClaim },
    '/render_queue/job_result': { POST: postResult },
    '/render_queue/pause': { POST: (request) => setPaused(request, true) },
    '/render_queue/resume': { POST: (request) => setPaused(request, false) },
    '/queue_status': { GET: getStatus },
    '/prerender_admin/queue-state': { GET: getState },
    '/prerender_admin/cluster-queue-state': { GET: getClusterState },
    '/prerender_admin/nodes': { GET: getNodes, PUT: putNodes },
    '/prerender_admin/explain': { POST: postExplain },
    // Where another host has them, so that the console finds them on both.
    '/prerender_admin/pause': { POST: (request) => setPaused(request, true) },
    '/prerender_admin/resume': { POST: (request) => setPaused(request, false) },
    '/metrics': {
      GET: () => ({
        headers: { 'content-type': OPENMETRICS, 'cache-control': 'no-store' },
        body: getMetrics(),
      }),
    },
  };
  const rowRoute = { GET: getRow, PUT: putRow, DELETE: deleteRow };

  /** @param {Request} request */
  function keyOf(request) {
    const url = String(request.url);
    if (url.includes('?')) {
      throw new HttpError(400, 'a key with ? in it must be percent-encoded: write %3F');
    }
    try {
      return decodeURIComponent(url.slice(SCHEDULE.length));
    } catch {
      throw new HttpError(
        400,
        'the key is not percent-encoded UTF-8: encodeURIComponent makes it so',
      );
    }
  }

  /** @param {Request} request */
  function getRow(request) {
    const key = keyOf(request);
    const row = table.getSync(key);
    if (!row) mustBeOurs(key);
    if (!row) throw new HttpError(404, 'there is no row of this key: PUT it to schedule the page');
    return { body: row };
  }

  /** @param {string} key */
  function isReadable(key) {
    try {
      table.getSync(key);
      return true;
    } catch (error) {
      if (/** @type {any} */ (error).code !== 'E_TABLE_READ') throw error;
      return false;
    }
  }

  /** A row of another node's would be written here and rendered nowhere. @param {string} key */
  function mustBeOurs(key) {
    const owner = otherOwner(keeper, key);
    if (owner === null) return;
    const url = nodes.urlOf(owner);
    throw new HttpError(
      421,
      `this page belongs to node ${owner}: send it to ${url ?? 'that node'}`,
      {
        fields: { owner, url },
      },
    );
  }

  /** @param {Request} request */
  async function putRow(request) {
    const key = keyOf(request);
    const row = await readJson(request);
    const wrong = checkRow(row);
    if (wrong) throw new HttpError(422, wrong);
    if (row.cacheKey !== undefined && row.cacheKey !== key) {
      throw new HttpError(
        422,
        'cacheKey is not the key in the path: leave it out, or make them equal',
      );
    }
    mustBeOurs(key);
    const written = await table.put(key, row);
    return {
      status: written?.existed ? 200 : 201,
      body: { cacheKey: key, version: written?.version },
    };
  }

  /** @param {Request} request */
  async function deleteRow(request) {
    const key = keyOf(request);
    // What cannot be read cannot be handed over either.
    if (isReadable(key)) mustBeOurs(key);
    const written = await table.delete(key);
    return { body: { cacheKey: key, existed: written?.existed, version: written?.version } };
  }

  /** @param {Request} request */
  async function postRows(request) {
    checkType(request, NDJSON_TYPES);
    const isForeign =
      ringNow().length > 1 ? (/** @type {string} */ key) => otherOwner(keeper, key) !== null : null;
    const query = new URLSearchParams(String(request.url).split('?')[1]);
    const onlyMissing = query.has('missing');
    const onlyNewer = query.has('newer');
    const report = await importRows(request, table, { isForeign, onlyMissing, onlyNewer });
    if (report.written + report.known > 0) return { body: report };
    if (report.failed > 0) {
      const error = 'no row was written: errors says of each line what to change';
      return { status: 422, body: { error, ...report } };
    }
    if (report.foreign === 0) return { body: report };
    const error = 'all rows belong to other nodes: send them to every node, each takes its own';
    return { status: 421, body: { error, ...report } };
  }

  /** @param {Request} request */
  async function postClaim(request) {
    const { limit } = await readObject(request);
    // After a thread has stood still, that a client has gone is read one turn later than what it had asked.
    for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setImmediate(resolve));
    if (draining)
      throw new HttpError(503, 'the host is stopping', { headers: { 'retry-after': '2' } });
    if (isGone(request)) throw gone();
    const claimed = await claims.claim(limit);
    if (isGone(request)) {
      for (const { token } of claimed.jobs) keeper.giveBack(token);
      throw gone();
    }
    return { body: claimed };
  }

  /** @param {Request} request */
  async function postResult(request) {
    return { body: await claims.finish(await readObject(request)) };
  }

  /**
   * @param {Request} request
   * @param {boolean} paused
   */
  async function setPaused(request, paused) {
    await readObject(request);
    await table.saveSetting('paused', paused);
    if (paused) keeper.pause();
    else keeper.resume();
    onPause?.(paused);
    return { body: { paused, status: keeper.status } };
  }

  function getStatus() {
    return {
      headers: { 'cache-control': 'no-store' },
      body: { status: keeper.status, ...keeper.dueSummary() },
    };
  }

  /** The keeper's, and what only this host knows: rows that are on their way to another node are in no node's numbers. */
  function getMetrics() {
    const handing = leftover.of(keeper.state().trust.keeper.ring) === null ? 0 : 1;
    return keeper.metrics().replace(
      /# EOF\n$/,
      `# TYPE keeper_handing_over gauge
# HELP keeper_handing_over 1 while rows of other nodes are here, or may be: no sum over the nodes is whole then.
keeper_handing_over ${handing}
# EOF
`,
    );
  }

  /** @param {Request} [request] */
  function getState(request) {
    /** @param {any} document */
    const more = ({ trust }) => {
      const handOver = leftover.of(trust.keeper.ring);
      return handOver && { handOver };
    };
    return stateAnswer(keeper, more, request?.headers[QUESTION]);
  }

  /** @param {Request} request */
  function getClusterState(request) {
    return clusterAnswer({
      node,
      nodes: nodes.all(),
      own: () => getState(),
      headers: request.headers,
    });
  }

  /** The nodes that the queue goes by. @returns {string[]} */
  function ringNow() {
    return JSON.parse(keeper.stateJson()).trust.keeper.ring;
  }

  function getNodes() {
    return {
      headers: { 'cache-control': 'no-store' },
      body: { node, nodes: nodes.all(), ring: ringNow() },
    };
  }

  /** @param {Request} request */
  async function putNodes(request) {
    const body = await readObject(request);
    let list;
    try {
      list = checkNodes(body.nodes, node);
    } catch (error) {
      throw new HttpError(422, /** @type {Error} */ (error).message);
    }
    await nodes.save(list);
    const names = JSON.stringify(list.map(({ name }) => name).sort());
    for (const until = performance.now() + FOLLOW_MS; performance.now() < until; ) {
      if (JSON.stringify(ringNow()) === names) return getNodes();
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return { ...getNodes(), status: 202 };
  }

  /** @param {Request} request */
  async function postExplain(request) {
    const { key } = await readObject(request);
    if (typeof key !== 'string') throw new HttpError(422, 'key must be the key to explain');
    return { body: keeper.explain(key) };
  }

  /**
   * A file of the console: there are no numbers in it, and the page itself asks for the token.
   *
   * @param {Request} request
   * @param {string} path
   * @returns {Answer}
   */
  function getConsole(request, path) {
    if (!['GET', 'HEAD'].includes(String(request.method))) {
      throw new HttpError(405, `${path} takes GET`, { headers: { allow: 'GET' } });
    }
    if (`${path}/` === CONSOLE) {
      const error = `the console is at ${CONSOLE}`;
      return { status: 308, headers: { location: CONSOLE }, body: { error, location: CONSOLE } };
    }
    const file = consoleFile(path.slice(CONSOLE.length));
    if (!file) throw new HttpError(404, `there is no such file: the console is at ${CONSOLE}`);
    return file;
  }

  /** @param {Request} request */
  function checkHost(request) {
    if (request.headers.host === undefined && request.httpVersion === '1.1') {
      throw new HttpError(400, 'the header host is missing: name the host that is asked');
    }
    if (!tokenDigest && !isLoopbackName(request.headers.host)) {
      // A page of any site can point its own name at this machine.
      throw new HttpError(421, 'without --token this host answers to localhost and 127.0.0.1 only');
    }
  }

  /** @param {Request} request */
  function checkToken(request) {
    if (tokenDigest) {
      const given = /^Bearer +(.+)$/i.exec(request.headers.authorization ?? '')?.[1];
      if (given === undefined || !timingSafeEqual(digest(given), tokenDigest)) {
        throw new HttpError(401, 'send the token: authorization: Bearer <token>', {
          headers: { 'www-authenticate': 'Bearer' },
        });
      }
    }
  }

  /** @param {Request} request */
  function answer(request) {
    checkHost(request);
    // A proxy may name the host in the target (RFC 9112, 3.2.2).
    const url = String(request.url).replace(/^https?:\/\/[^/]*/i, '');
    request.url = url;
    const path = url.split('?', 1)[0];
    if (`${path}/`.startsWith(CONSOLE)) return getConsole(request, path);
    checkToken(request);
    const isRow = path.startsWith(SCHEDULE) && path.length > SCHEDULE.length;
    const methods = isRow ? rowRoute : Object.hasOwn(routes, path) ? routes[path] : null;
    if (!methods) {
      throw new HttpError(404, 'there is no such route', {
        fields: { routes: [...Object.keys(routes), `${SCHEDULE}<percent-encoded key>`, CONSOLE] },
      });
    }
    const method = request.method === 'HEAD' ? 'GET' : String(request.method);
    if (!Object.hasOwn(methods, method)) {
      const allow = Object.keys(methods).join(', ');
      throw new HttpError(405, `${path} takes ${allow}`, { headers: { allow } });
    }
    return /** @type {any} */ (methods)[method](request);
  }

  /**
   * @param {Request} request
   * @param {http.ServerResponse} response
   */
  async function handle(request, response) {
    try {
      const answered = await answer(request);
      send(response, answered.status ?? 200, answered.headers ?? {}, answered.body);
    } catch (error) {
      if (request.destroyed && !request.complete) return;
      refuse(response, error);
    }
  }

  /**
   * @param {http.ServerResponse} response
   * @param {unknown} error
   */
  function refuse(response, error) {
    const { status, headers, body } = failure(error);
    if (status === 500) onError?.(/** @type {Error} */ (error));
    send(response, status, headers, body);
  }

  /**
   * @param {http.ServerResponse} response
   * @param {number} status
   * @param {Record<string, string>} headers
   * @param {unknown} body
   */
  function send(response, status, headers, body) {
    if (response.headersSent || response.destroyed) return;
    const isRaw = typeof body === 'string' || Buffer.isBuffer(body);
    const content = isRaw ? body : `${JSON.stringify(body)}\n`;
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(content),
      ...(draining ? { connection: 'close' } : {}),
      ...headers,
    });
    response.end(content);
  }

  return {
    handle,
    refuse,
    /** From now on connections are closed with their answer, and nothing is claimed. */
    drain() {
      draining = true;
    },
  };
}

/**
 * @param {unknown} error
 * @returns {{ status: number, headers: Record<string, string>, body: object }}
 */
function failure(error) {
  if (error instanceof HttpError) {
    return {
      status: error.status,
      headers: error.headers,
      body: { error: error.message, ...error.fields },
    };
  }
  const { code, message } = /** @type {TableError} */ (error);
  const body = { error: message, code };
  if (code === 'E_TABLE_WRITE' || code === 'E_TABLE_CLOSED') {
    return { status: 503, headers: { 'retry-after': '1' }, body };
  }
  if (code === 'E_TABLE_READ') return { status: 500, headers: {}, body };
  return {
    status: 500,
    headers: {},
    body: { error: `the host failed at this request: ${message}`, code },
  };
}

/** @param {string} text */
function digest(text) {
  return createHash('sha256').update(text).digest();
}

/** @param {string | undefined} host  as in the host header */
function isLoopbackName(host) {
  if (host === undefined) return false;
  const name = host.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);
}

/**
 * Whether there is nobody to answer any more. A client that has only closed its own half cannot be told from one that has gone.
 *
 * @param {Request} request
 */
function isGone({ socket }) {
  return !socket.writable;
}

/** For nobody to read. */
function gone() {
  return new HttpError(400, 'the client went away');
}

/**
 * Asked of every request with a body, one without a body included: no page of another site can send it without
 * being asked first.
 *
 * @param {Request} request
 * @param {Set<string>} types
 */
function checkType(request, types) {
  const type = String(request.headers['content-type'] ?? '')
    .split(';', 1)[0]
    .trim()
    .toLowerCase();
  if (!types.has(type)) {
    const wanted = [...types].slice(0, 2).join(' or ');
    throw new HttpError(415, `send the body with the header content-type: ${wanted}`);
  }
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') throw new HttpError(415, 'send the body without content-encoding');
}

/** @param {Request} request */
async function readBody(request) {
  const tooLarge = () => new HttpError(413, `a body may have ${LARGEST_BODY} bytes at most`);
  if (Number(request.headers['content-length'] ?? 0) > LARGEST_BODY) throw tooLarge();
  /** @type {Buffer[]} */
  const chunks = [];
  let length = 0;
  // Not `for await`: leaving that loop early destroys the request, and the answer with it.
  await new Promise((resolve, reject) => {
    request.on('data', (/** @type {Buffer} */ chunk) => {
      length += chunk.length;
      if (length <= LARGEST_BODY) chunks.push(chunk);
      else reject(tooLarge());
    });
    request.once('end', resolve);
    request.once('error', reject);
    request.once('close', () => reject(new Error('the client went away')));
  });
  return Buffer.concat(chunks);
}

/** @param {Request} request */
async function readJson(request) {
  checkType(request, JSON_TYPES);
  const bytes = await readBody(request);
  if (bytes.length === 0) return undefined;
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new HttpError(400, 'the body is not UTF-8: encode it as UTF-8');
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new HttpError(400, `the body is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/**
 * @param {Request} request
 * @returns {Promise<Record<string, any>>}
 */
async function readObject(request) {
  const body = (await readJson(request)) ?? {};
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new HttpError(422, 'the body must be a JSON object');
  }
  return body;
}

/**
 * @param {ReturnType<typeof createApi>} api
 * @returns {http.Server}
 */
function createServer(api) {
  const server = http.createServer(
    {
      // An import may take hours; a connection on which nothing moves does not (below).
      requestTimeout: 0,
      headersTimeout: 30_000,
      keepAliveTimeout: 65_000,
      maxHeaderSize: 64 * 1024,
      noDelay: true,
      // Refused by `checkHost`: Node would do it without a word.
      requireHostHeader: false,
    },
    (request, response) => {
      expectErrors(request, response);
      void api.handle(request, response);
    },
  );
  server.timeout = 120_000;
  server.on('checkExpectation', (request, response) => {
    expectErrors(request, response);
    api.refuse(response, new HttpError(417, 'leave the header expect out, or send 100-continue'));
  });
  server.on('connect', (_, /** @type {any} */ socket) => {
    // Node looks after it no longer.
    socket.on('error', () => socket.destroy());
    socket.setTimeout(LINGER_MS, () => socket.destroy());
    socket.resume();
    const more = ['allow: GET, POST, PUT, DELETE'];
    endRaw(socket, '405 Method Not Allowed', 'this is no proxy: ask the host itself', more);
  });
  server.on('clientError', (error, socket) => {
    if (socket.destroyed || !socket.writable) return;
    const tooLong = /** @type {any} */ (error).code === 'HPE_HEADER_OVERFLOW';
    const [status, sentence] = tooLong
      ? ['431 Request Header Fields Too Large', 'the key is too long for a path: POST it as NDJSON']
      : ['400 Bad Request', 'this is not HTTP'];
    endRaw(socket, status, sentence);
  });
  return server;
}

/**
 * Emitted again when the client goes away; what there is to do about it is done where it is read.
 *
 * @param {Request} request
 * @param {http.ServerResponse} response
 */
function expectErrors(request, response) {
  request.on('error', () => {});
  response.on('error', () => {});
}

/**
 * An answer where Node has none.
 *
 * @param {import('node:stream').Duplex} socket
 * @param {string} status
 * @param {string} sentence
 * @param {string[]} [headers]
 */
function endRaw(socket, status, sentence, headers = []) {
  const body = `${JSON.stringify({ error: sentence })}\n`;
  const head = [
    `HTTP/1.1 ${status}`,
    'content-type: application/json',
    'connection: close',
    `content-length: ${Buffer.byteLength(body)}`,
    ...headers,
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

module.exports = { createApi, createServer, LARGEST_BODY };
