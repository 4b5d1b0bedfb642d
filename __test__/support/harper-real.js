'use strict';

/**
 * A real Harper with the example component, which has installed this package from its tarball.
 */

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const {
  componentFolder,
  startHarper,
  OPERATIONS,
  PORT,
  START_MS,
  WORKERS,
} = require('./harper-process.js');
const { until } = require('./until.js');

const ROOT = path.join(__dirname, '../..');
const EXAMPLE = path.join(ROOT, 'lib/harper/example');
const USERS = { admin: 'admin:admin', renderer: 'renderer:renderer' };
const YAML_INDENT = '  ';
/** Harper was seen not to look at what is written so soon after it has looked. */
const PASSED_OVER_MS = 20;
const TABLES = ['PortTest', 'PortTestEmpty'];

/** @param {string} command @param {string[]} args @param {string} cwd */
function run(command, args, cwd) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}`);
  return stdout.trim();
}

class RealHarper {
  #harper;
  #root;
  #component;
  #log = '';
  /** @type {ReturnType<typeof startHarper> | null} */
  #process = null;
  /** @type {Record<string, any>} */
  #options;

  /** @param {string} harper  its folder, built @param {Record<string, any>} options  of the component */
  constructor(harper, options) {
    this.#harper = harper;
    this.#options = options;
    this.#root = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-harper-'));
    this.#component = componentFolder(this.#root, 'prerender');
  }

  async start() {
    await this.#install();
    await this.#run();
    await this.#operation({
      operation: 'add_role',
      role: 'renderer',
      permission: { super_user: false },
    });
    await this.#operation({
      operation: 'add_user',
      role: 'renderer',
      username: 'renderer',
      password: 'renderer',
      active: true,
    });
  }

  /** The component, with what the tests need beside it. */
  #install() {
    fs.cpSync(EXAMPLE, this.#component, { recursive: true });
    const tarball = run(
      'npm',
      ['pack', '--silent', '--ignore-scripts', '--pack-destination', this.#root],
      ROOT,
    );
    const manifest = path.join(this.#component, 'package.json');
    const { dependencies, ...rest } = JSON.parse(fs.readFileSync(manifest, 'utf8'));
    const [name] = Object.keys(dependencies);
    const file = `file:${path.join(this.#root, path.basename(tarball))}`;
    fs.writeFileSync(manifest, JSON.stringify({ ...rest, dependencies: { [name]: file } }));
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    run('npm', ['install', '--prefer-offline', ...quiet], this.#component);

    const schema = path.join(this.#component, 'schema.graphql');
    const text = fs.readFileSync(schema, 'utf8');
    const type = /type RenderSchedule [\s\S]*?\n}/.exec(text)?.[0] ?? '';
    const tables = TABLES.map((table) => type.replace('RenderSchedule', table));
    fs.writeFileSync(schema, [text, ...tables].join('\n'));
    fs.copyFileSync(
      path.join(__dirname, 'harper-component.mjs'),
      path.join(this.#component, 'queue_test.js'),
    );
    const support = path.join(this.#component, 'support');
    fs.mkdirSync(support);
    fs.writeFileSync(path.join(support, 'package.json'), '{"type": "commonjs"}');
    for (const one of ['port-cases.js', 'until.js']) {
      fs.copyFileSync(path.join(__dirname, one), path.join(support, one));
    }
    // A component's plugins are loaded in the order of the file.
    fs.writeFileSync(
      path.join(this.#component, 'resources.js'),
      `${fs.readFileSync(path.join(EXAMPLE, 'resources.js'), 'utf8')}\nexport { queue_test } from './queue_test.js';\n`,
    );
    return this.#writeConfig();
  }

  /** @param {'renamed' | 'in place' | 'in two parts' | 'slowly'} [how] */
  async #writeConfig(how = 'renamed') {
    const section = JSON.stringify(this.#options, null, 2).replaceAll('\n', `\n${YAML_INDENT}`);
    // JSON is YAML.
    const text = `rest: true
graphqlSchema:
  files: schema.graphql
prerender-queue-keeper: ${section}
jsResource:
  files: resources.js
`;
    const file = path.join(this.#component, 'config.yaml');
    if (how === 'renamed') {
      // Harper never sees a part of it.
      fs.writeFileSync(`${file}.new`, text);
      fs.renameSync(`${file}.new`, file);
      return;
    }
    if (how === 'in two parts') {
      fs.writeFileSync(file, '');
      await new Promise((resolve) => setTimeout(resolve, PASSED_OVER_MS));
    } else if (how === 'slowly') {
      const before = this.#log.length;
      fs.writeFileSync(file, '');
      const isSeen = () => this.#log.slice(before).includes('options are gone');
      await until('Harper to see the file half written', isSeen, { withinMs: START_MS });
    }
    fs.writeFileSync(file, text);
  }

  async #run() {
    this.#process = startHarper({
      harper: this.#harper,
      root: this.#root,
      print: (text) => {
        this.#log += text;
      },
    });
    await until('Harper to answer', () => this.#workers(), {
      withinMs: START_MS,
      everyMs: 300,
    }).catch((error) => {
      throw new Error(`${error.message}\n${this.#log.slice(-3_000)}`);
    });
  }

  /** All workers, each asked. */
  async #workers() {
    /** @type {Map<number, any>} */
    const seen = new Map();
    for (let i = 0; i < 40 && seen.size < WORKERS; i++) {
      const worker = await this.#command('worker');
      seen.set(worker.index, worker);
    }
    return seen.size === WORKERS ? seen : null;
  }

  log() {
    return this.#log;
  }

  /**
   * @param {string} method @param {string} url
   * @param {{ user?: 'admin' | 'renderer' | null, body?: unknown, type?: string, port?: number }} [options]
   * @returns {Promise<import('./host-cases.js').Answer>}
   */
  request(method, url, { user = 'admin', body, type = 'application/json', port = PORT } = {}) {
    const text =
      body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    /** @type {Record<string, string | number>} */
    const headers = { accept: 'application/json' };
    if (text !== undefined) {
      headers['content-type'] = type;
      headers['content-length'] = Buffer.byteLength(text);
    }
    return new Promise((resolve, reject) => {
      const request = http.request(
        // Without an agent each request is a connection, and any worker's.
        {
          method,
          path: url,
          port,
          host: '127.0.0.1',
          headers,
          agent: false,
          auth: user ? USERS[user] : undefined,
          timeout: 60_000,
        },
        (response) => {
          let answer = '';
          response.setEncoding('utf8');
          response.on('data', (chunk) => {
            answer += chunk;
          });
          response.on('error', reject);
          response.on('end', () => {
            const { headers, statusCode = 0 } = /** @type {any} */ (response);
            const isJson = /json/.test(headers['content-type'] ?? '');
            try {
              const content = isJson && answer ? JSON.parse(answer) : answer;
              resolve({ status: statusCode, headers, body: content });
            } catch (error) {
              reject(error);
            }
          });
        },
      );
      request.on('error', reject);
      request.on('timeout', () => request.destroy(new Error('no answer')));
      request.end(text);
    });
  }

  /** @param {any} operation */
  async #operation(operation) {
    const answer = await this.request('POST', '/', { body: operation, port: OPERATIONS });
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
    return answer.body;
  }

  /** @param {string} name @param {object} [body] */
  async #command(name, body = {}) {
    const { status, body: answer } = await this.request('POST', `/queue_test/${name}`, { body });
    if (status !== 200 || !answer || answer.error)
      throw new Error(answer?.error ?? `${status} ${answer}`);
    return answer.value;
  }

  /** A case of the port, in a worker. @param {string} name */
  runCase(name) {
    return this.#command('case', { name });
  }

  /** @param {Record<string, object | null>} rows */
  write(rows) {
    return this.#command('write', { rows });
  }

  /** @param {string} key */
  read(key) {
    return this.#command('read', { key });
  }

  /** @param {Record<string, any>} changes @param {'renamed' | 'in place' | 'in two parts' | 'slowly'} [how] */
  async setOptions(changes, how) {
    this.#change(changes);
    await this.#writeConfig(how);
  }

  /** @param {Record<string, any>} changes */
  #change(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) delete this.#options[name];
      else this.#options[name] = value;
    }
  }

  /** @param {string[]} names */
  async setNodes(names) {
    const told = new Set();
    while (told.size < WORKERS) told.add((await this.#command('nodes', { names })).index);
  }

  async restartWorkers() {
    const before = await this.#threads();
    await this.#operation({ operation: 'restart_service', service: 'http_workers' });
    await until(
      'new workers only',
      async () => [...(await this.#threads())].every((id) => !before.has(id)),
      { withinMs: START_MS, everyMs: 200 },
    );
  }

  async #threads() {
    const workers = await until('all workers', () => this.#workers(), { withinMs: START_MS });
    return new Set([...workers.values()].map(({ threadId }) => threadId));
  }

  /** Until the one that feeds has been asked. @param {string} command @param {object} [body] */
  #askFeeder(command, body) {
    return until(`${command} of the worker that feeds`, async () => {
      return (await this.#command(command, body)).feeds;
    });
  }

  async endFeeder() {
    await this.#askFeeder('exit');
  }

  /** @param {number} ms */
  async stallFeeder(ms) {
    await this.#askFeeder('block', { ms });
  }

  /** @param {Record<string, any>} [changes] */
  async restart(changes = {}) {
    await this.#end();
    this.#change(changes);
    await this.#writeConfig();
    await this.#run();
  }

  async #end() {
    await this.#process?.stop();
    this.#process = null;
  }

  async stop() {
    await this.#end();
    fs.rmSync(this.#root, { recursive: true, force: true });
  }
}

module.exports = { RealHarper };
