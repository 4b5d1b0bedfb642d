'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { consoleFile, consolePaths } = require('../lib/console-files.js');
const { launch, openPage, skip } = require('./support/browser.js');
const hosts = require('./support/host.js');
const { until } = require('./support/until.js');

const { ask, at, newData, newFolder, run } = hosts;

/** @typedef {import('./support/browser.js').Page} Page */
/** @typedef {import('node:test').TestContext} Test */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DUE = { nextRenderTime: 1 };
const FOLDER = path.join(__dirname, '../lib/console');
const AXE = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
/** What the browser itself says of an answer that is no success. */
const NO_SUCCESS = /^Failed to load resource/;

/** A configuration whose routes have what nobody should write into one. @param {object} config */
function configFile(config) {
  const file = path.join(newFolder(), `config-${Math.random().toString(36).slice(2)}.json`);
  fs.writeFileSync(file, JSON.stringify(config));
  return file;
}

/**
 * @param {string} url
 * @param {string} path
 * @param {object} body
 */
async function post(url, path, body) {
  const { status, answer } = await ask(url + path, 'POST', body);
  assert.equal(status, 200, JSON.stringify(answer));
  return answer;
}

/** @param {string} url @param {string} key @param {object} row */
async function put(url, key, row) {
  const { status, answer } = await ask(url + at(key), 'PUT', row);
  assert.ok(status === 200 || status === 201, JSON.stringify(answer));
  await until('the row to be kept', async () => {
    return (await post(url, '/prerender_admin/explain', { key })).kept;
  });
}

/** @param {string} url */
async function stateOf(url) {
  return (await ask(`${url}/prerender_admin/queue-state`, 'GET')).answer;
}

/** @type {import('playwright-core').Browser} */
let browser;

/** A host whose pages are closed before it stops: else one may ask it once more, and say that it cannot. @type {typeof hosts.startHost} */
async function startHost(...given) {
  const started = await hosts.startHost(...given);
  return {
    ...started,
    async stop() {
      const pages = (browser?.contexts() ?? []).flatMap((context) => context.pages());
      const own = pages.filter((page) => page.url().startsWith(`${started.url}/`));
      await Promise.all(own.map((page) => page.context().close()));
      return started.stop();
    },
  };
}

/**
 * Closes a page with its test, and fails the test for whatever went wrong on the page.
 *
 * @param {Test} t
 * @param {Awaited<ReturnType<typeof openPage>>} one
 */
function watch(t, one) {
  t.after(async () => {
    await one.close();
    assert.deepEqual(one.faults, []);
  });
  return one.page;
}

/**
 * @param {Test} t
 * @param {string} url
 * @param {string} [hash]
 * @param {Parameters<typeof openPage>[1]} [options]
 */
async function open(t, url, hash = '', options = {}) {
  const page = watch(t, await openPage(browser, options));
  await page.goto(`${url}/console/${hash}`);
  return page;
}

/** What a selector shows, as a reader gets it. @param {Page} page @param {string} selector */
function textOf(page, selector) {
  // biome-ignore lint/performance/useDomNodeTextContent: what is hidden is not to be in it
  return page.locator(selector).innerText();
}

/** @param {Page} page @param {string} selector @param {RegExp} pattern */
function untilText(page, selector, pattern) {
  return until(`${selector} to say ${pattern}`, async () => {
    const text = await textOf(page, selector);
    if (!pattern.test(text)) throw new Error(text);
    return true;
  });
}

/** The numbers of the tiles by their names, as text. @param {Page} page @returns {Promise<Record<string, string>>} */
function tilesOf(page) {
  return page.evaluate(() => {
    const groups = [...document.querySelectorAll('#due .tiles > div')];
    return Object.fromEntries(
      groups.map((group) => [group.children[0].textContent, group.children[1].textContent]),
    );
  });
}

/** The cells of a table's body, without what is in small letters. @param {Page} page @param {string} selector */
function cellsOf(page, selector) {
  return page.evaluate((within) => {
    const rows = [...document.querySelectorAll(`${within} tbody tr`)];
    return rows.map((row) =>
      [...row.children].map((cell) => cell.querySelector('.is')?.textContent ?? ''),
    );
  }, selector);
}

/** What an automated check finds. @param {Page} page @returns {Promise<any[]>} */
async function barriersOn(page) {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations } = await /** @type {any} */ (window).axe.run();
    return violations.map((/** @type {any} */ one) => [
      one.impact,
      one.id,
      one.nodes.map((/** @type {any} */ node) => node.html),
    ]);
  });
}

/** @param {number} count */
function written(count) {
  return count.toLocaleString('en-GB');
}

describe('the files of the console', () => {
  const POLICY = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  /** @type {Awaited<ReturnType<typeof startHost>>} */
  let host;
  before(async () => {
    host = await startHost(['--sample', '0', '--token', 'a token', '--workers', '1']);
  });
  after(() => host.stop());

  test('are served without the token, as nothing of the queue is in them', async () => {
    assert.equal((await fetch(`${host.url}/prerender_admin/queue-state`)).status, 401);
    for (const name of ['', ...consolePaths()]) {
      const response = await fetch(`${host.url}/console/${name}`);
      assert.equal(response.status, 200, name);
      assert.deepEqual(Buffer.from(await response.arrayBuffer()), consoleFile(name)?.body);
    }
  });

  test('come with a strict policy, and with types that browsers need not guess', async () => {
    for (const name of ['', ...consolePaths()]) {
      const { headers } = await fetch(`${host.url}/console/${name}`);
      assert.equal(headers.get('content-security-policy'), POLICY.join('; '));
      assert.equal(headers.get('x-content-type-options'), 'nosniff');
      assert.equal(headers.get('referrer-policy'), 'no-referrer');
      assert.equal(headers.get('cache-control'), 'no-cache');
      const type = /\.js$/.test(name) ? 'text/javascript' : /\.css$/.test(name) ? 'text/css' : '';
      assert.ok(headers.get('content-type')?.startsWith(type), name);
    }
  });

  test('the page says the policy itself, for a mount that sends no headers', () => {
    const page = String(consoleFile('')?.body);
    const said = /<meta http-equiv="content-security-policy" content="([^"]+)">/.exec(page)?.[1];
    // Which a page cannot say of itself.
    assert.equal(said, POLICY.filter((rule) => !rule.startsWith('frame-ancestors')).join('; '));
  });

  test('there is a file for all that they name, the chart library and its licence included', () => {
    const page = String(consoleFile('')?.body);
    const named = [...page.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name);
    assert.ok(named.length >= 4);
    for (const file of fs.readdirSync(FOLDER).filter((name) => name.endsWith('.js'))) {
      const text = fs.readFileSync(path.join(FOLDER, file), 'utf8');
      named.push(...[...text.matchAll(/'\.\/([\w./]+\.js)'/g)].map(([, name]) => name));
    }
    for (const name of named) assert.ok(consoleFile(name), name);
    assert.match(String(consoleFile('vendor/LICENSE')?.body), /MIT/);
  });

  test('no other file is served: not the package, not what lies beside it', async () => {
    for (const name of [
      'package.json',
      'tsconfig.json',
      '..%2fstate-answer.js',
      'vendor/',
      'constructor',
      '__proto__',
    ]) {
      assert.equal((await fetch(`${host.url}/console/${name}`)).status, 404, name);
    }
  });

  test('are read only, by GET and HEAD; without the slash the page is elsewhere', async () => {
    assert.equal((await fetch(`${host.url}/console/`, { method: 'HEAD' })).status, 200);
    const posted = await fetch(`${host.url}/console/`, { method: 'POST' });
    assert.deepEqual([posted.status, posted.headers.get('allow')], [405, 'GET']);
    const moved = await fetch(`${host.url}/console`, { redirect: 'manual' });
    assert.deepEqual([moved.status, moved.headers.get('location')], [308, '/console/']);
  });

  test('make no markup of text anywhere', () => {
    for (const file of fs.readdirSync(FOLDER)) {
      const text = fs.readFileSync(path.join(FOLDER, file), 'utf8');
      const markup =
        /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc|\beval\b|new Function/;
      assert.doesNotMatch(text, markup, file);
    }
  });
});

// Each host waits most of the time: side by side they wait at once.
describe('the console in a browser', { skip, concurrency: 4 }, () => {
  before(async () => {
    browser = await launch();
  });
  after(() => browser.close());

  describe("one node's view", { concurrency: 1 }, () => {
    /** @type {Awaited<ReturnType<typeof startHost>>} */
    let host;
    before(async () => {
      host = await startHost(['--sample', '3000']);
      const now = Date.now();
      const product = 'https://www.example.com/product/';
      await put(host.url, `${product}carried`, {
        nextRenderTime: now - 9 * HOUR,
        effectiveInterval: HOUR,
      });
      await put(host.url, `${product}changed`, {
        nextRenderTime: now - HOUR,
        changedAt: 1,
        demandPeriod: 3 * HOUR,
      });
      await put(host.url, `${product}urgent`, {
        nextRenderTime: now - 2 * HOUR,
        urgentAt: 1,
        fromSitemap: true,
      });
      await post(host.url, '/render_queue/claim', { limit: 7 });
    });
    after(() => host.stop());

    /** Until page and state say the same; pages come due meanwhile. @param {Page} page @param {(state: any) => Promise<void>} check */
    async function untilEqual(page, check) {
      await until('the page to show the state', async () => {
        const state = await stateOf(host.url);
        await page.locator('#refresh').click();
        await page.waitForFunction((since) => {
          const time = document.querySelector('#trusted time')?.getAttribute('datetime');
          return time && Date.parse(time) >= since;
        }, state.generatedAt);
        await check(state);
        return true;
      });
    }

    test('says whether it serves, whether its numbers hold, and what needs attention', async (t) => {
      const page = await open(t, host.url);
      await untilText(page, '#serving .headline', /Yes/);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      await untilText(page, '#wrong .why', /late by 4 cadences or more/);
      assert.match(await textOf(page, '#zone'), /Europe\/Berlin \(UTC\+[12]\)/);
      await until('the title', async () => /^\d+ due · localhost/.test(await page.title()));
    });

    test('shows every count of the state as it is', async (t) => {
      const page = await open(t, host.url);
      await untilEqual(page, async ({ now, coming }) => {
        const tiles = await tilesOf(page);
        assert.deepEqual(
          {
            Due: now.due,
            'From the sitemap': now.dueSitemap,
            Discovered: now.dueDiscovered,
            Changed: now.dueChanged,
            Urgent: now.dueUrgent,
            'In flight': now.inFlight,
            Unclaimed: now.unclaimed,
            'Held back': now.heldKeys,
            'Next 15 minutes': coming.next15m,
            'Next 60 minutes': coming.next60m,
            'Next 24 hours': coming.next24h,
          },
          Object.fromEntries(
            Object.entries(tiles)
              .filter(([name]) => name !== 'Drained in')
              .map(([name, text]) => [name, Number(text.replaceAll(',', ''))]),
          ),
        );
        assert.equal(now.drainEtaMs, null);
        // In the first minutes nobody knows.
        assert.match(tiles['Drained in'], /^never|^–it began too short a time ago/);
      });
      assert.ok(Number((await tilesOf(page))['In flight']) === 7);
    });

    test('shows lateness by route, of all pages and of the two kinds apart', async (t) => {
      const page = await open(t, host.url);
      await untilEqual(page, async ({ lateness }) => {
        const { sitemap, discovered, byRoute } = lateness;
        const both = (/** @type {any} */ one) =>
          one.sitemap.map((/** @type {number} */ bin, /** @type {number} */ index) => {
            return bin + one.discovered[index];
          });
        for (const [choice, binsOf] of /** @type {const} */ ([
          ['all', both],
          ['sitemap', (/** @type {any} */ one) => one.sitemap],
          ['discovered', (/** @type {any} */ one) => one.discovered],
        ])) {
          await page.locator(`input[name=of][value=${choice}]`).check();
          const rows = [{ route: null, sitemap, discovered }, ...byRoute.slice(0, 8)];
          const expected = rows.map((row) => {
            const bins = binsOf(row);
            const sum = bins.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b);
            const name =
              row.route === null ? 'All routes' : row.route.replace(/^route:(\w+):/, '$1 ');
            return [name, ...[sum, ...bins].map(written)];
          });
          assert.deepEqual(await cellsOf(page, '#lateness'), expected);
        }
      });
    });

    test('tells classes apart by all that makes them differ', async (t) => {
      const page = await open(t, host.url);
      const row = page.locator('#classes tbody tr').first();
      await row.waitFor();
      const more = page.locator('#classes .more button');
      if (await more.isVisible()) await more.click();
      const found = await page.evaluate(() =>
        [...document.querySelectorAll('#classes tbody tr')].map((row) => row.textContent ?? ''),
      );
      assert.ok(
        found.some((row) => /every 1 h, carried by the row · discovered/.test(row)),
        String(found),
      );
      assert.ok(
        found.some((row) => /discovered · changed · a bot every 3 h/.test(row)),
        String(found),
      );
      assert.ok(
        found.some((row) => /by route or default · from the sitemap · urgent/.test(row)),
        String(found),
      );
      await untilEqual(page, async ({ lateness }) => {
        const cells = await cellsOf(page, '#classes');
        assert.deepEqual(
          cells.map((row) => row.slice(3)),
          lateness.classes.map((/** @type {any} */ each) => [
            written(each.due),
            written(each.rows),
          ]),
        );
      });
    });

    test('draws the next 24 hours and the last hour, and has each as a table', async (t) => {
      const page = await open(t, host.url);
      await until('both charts', async () => {
        return page.evaluate(() => {
          const canvases = [...document.querySelectorAll('canvas')];
          return (
            canvases.length === 2 &&
            canvases.every((canvas) => {
              const image = canvas
                .getContext('2d')
                ?.getImageData(0, 0, canvas.width, canvas.height);
              return image?.data.some((value) => value > 0);
            })
          );
        });
      });
      for (const name of ['coming', 'flow']) await page.locator(`#${name} summary`).click();
      await untilEqual(page, async ({ coming, flow, generatedAt }) => {
        const hours = (await cellsOf(page, '#coming')).map((row) => row[1]);
        assert.deepEqual(hours, coming.byHour.map(written));
        const minutes = await cellsOf(page, '#flow');
        assert.equal(minutes.length, 60);
        const last = Math.floor(generatedAt / MINUTE);
        for (const { minute, cameDue, rescheduled, added, triggered, removed } of flow) {
          assert.deepEqual(
            minutes[last - minute].slice(1),
            [cameDue, rescheduled, added, triggered, removed].map(written),
          );
        }
        // Before the process was there nothing was counted, which is not 0.
        assert.equal(minutes[59][1].startsWith('–'), true);
      });
    });

    test('is refreshed in place: neither rows nor selected text nor focus are lost', async (t) => {
      const page = await open(t, host.url);
      await until('rows', async () => (await cellsOf(page, '#classes')).length > 2);
      await page.evaluate(() => {
        for (const row of document.querySelectorAll('tr, dt, dd, canvas')) {
          /** @type {any} */ (row).mine = true;
        }
        const cell = document.querySelector('#due dd');
        if (cell) getSelection()?.selectAllChildren(cell);
        /** @type {HTMLElement} */ (document.querySelector('#coming summary')).focus();
      });
      const selected = await page.evaluate(() => String(getSelection()));
      await put(host.url, 'https://www.example.com/product/one-more', { nextRenderTime: 1 });
      // How many are due then only the state says: some more came due where a minute has begun.
      await until('the page to have that one, too', async () => {
        const { due } = (await stateOf(host.url)).now;
        const [all] = await cellsOf(page, '#lateness');
        return all[1] === written(due);
      });
      assert.equal(await page.evaluate(() => String(getSelection())), selected);
      await untilText(page, '#due .standing', /Not refreshed while text in it is selected/);
      assert.equal(
        await page.evaluate(() => document.activeElement?.textContent),
        'By hour, as a table',
      );
      const lost = await page.evaluate(
        () =>
          [...document.querySelectorAll('#due dd, #lateness tr, #coming canvas')].filter(
            (node) => !(/** @type {any} */ (node).mine),
          ).length,
      );
      assert.equal(lost, 0);
      await page.evaluate(() => getSelection()?.removeAllRanges());
      await until('the tile', async () => {
        const { due } = (await stateOf(host.url)).now;
        return (await tilesOf(page)).Due === written(due);
      });
      assert.equal(await page.locator('#due .standing').isVisible(), false);
    });

    test('claims are paused and resumed by a dialog that asks first', async (t) => {
      const page = await open(t, host.url);
      const isPaused = async () => (await stateOf(host.url)).now.paused;
      const pause = page.locator('#pause');
      const dialog = page.locator('dialog#confirm');
      await until('the button', async () => (await pause.textContent()) === 'Pause claims …');

      await pause.click();
      assert.equal(await dialog.getByRole('heading').textContent(), 'Pause claims on localhost?');
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Cancel');
      await page.keyboard.press('Escape');
      assert.equal(await dialog.isVisible(), false);
      assert.equal(await page.evaluate(() => document.activeElement?.id), 'pause');
      await pause.click();
      await page.getByRole('button', { name: 'Cancel' }).click();
      assert.equal(await isPaused(), false);

      await pause.click();
      await dialog.getByRole('button', { name: 'Pause claims' }).click();
      await untilText(page, '#serving .headline', /Paused/);
      assert.equal(await isPaused(), true);
      assert.equal((await post(host.url, '/render_queue/claim', { limit: 1 })).refused, 'paused');
      await until('the title', async () => /^Paused/.test(await page.title()));

      await pause.click();
      assert.equal(await dialog.getByRole('heading').textContent(), 'Resume claims on localhost?');
      await dialog.getByRole('button', { name: 'Resume claims' }).click();
      await untilText(page, '#serving .headline', /Yes/);
      assert.equal(await isPaused(), false);
    });
  });

  describe('the explanation of a key', { concurrency: 1 }, () => {
    const routes = [{ match: 'prefix', path: '/p/', renderInterval: 24 * HOUR }];
    /** @type {Awaited<ReturnType<typeof startHost>>} */
    let host;
    before(async () => {
      const config = configFile({
        routes,
        node: 'node-a',
        nodes: ['node-a', 'node-b'],
        leases: { leaseMs: 400, missLimit: 1, releaseGraceMs: 1 },
      });
      host = await startHost(['--sample', '0', '--config', config]);
    });
    after(() => host.stop());

    /** A key that this node owns, or that it does not. @param {string} name @param {boolean} [own] */
    async function keyOf(name, own = true) {
      for (let number = 0; ; number++) {
        const key = `https://www.example.com/p/${name}-${number}`;
        const { reason } = await post(host.url, '/prerender_admin/explain', { key });
        if ((reason !== 'not-owned') === own) return key;
      }
    }

    /** @param {Test} t @param {string} key */
    async function explain(t, key) {
      // There is no node-b to answer for the cluster.
      const page = await open(t, host.url, '#/explain', { expected: NO_SUCCESS });
      await page.getByLabel('Key of the page').fill(key);
      await page.keyboard.press('Enter');
      await page.locator('#explained').waitFor();
      return page;
    }

    test('not due: when it will be', async (t) => {
      const key = await keyOf('later');
      await put(host.url, key, { nextRenderTime: Date.now() + 3 * HOUR });
      const page = await explain(t, key);
      await untilText(page, '#explained .headline', /Not due yet: due in 2 h 5\d min/);
      assert.match(await textOf(page, '#explained .key'), new RegExp(key));
      assert.equal(await page.evaluate(() => document.activeElement?.id), 'explained-title');
      // The answer can be asked for again by its address.
      const again = await open(t, host.url, new URL(page.url()).hash, { expected: NO_SUCCESS });
      await untilText(again, '#explained .headline', /Not due yet/);
      assert.equal(await again.getByLabel('Key of the page').inputValue(), key);
    });

    test('not kept here: whose it is, or that nobody knows it', async (t) => {
      const foreign = await explain(t, await keyOf('foreign', false));
      await untilText(foreign, '#explained .headline', /belongs to another node/);
      assert.match(await textOf(foreign, '#explained .why'), /node-b owns this page/);
      const unknown = await explain(t, await keyOf('unknown'));
      await untilText(unknown, '#explained .headline', /not known/);
      assert.match(await textOf(unknown, '#explained .why'), /Check the spelling/);
      assert.match(await textOf(unknown, '#explained .facts'), /Owner\s+node-a/);
    });

    test('due: its place, and that nothing is being claimed; paused: so', async (t) => {
      const first = await keyOf('first');
      const second = await keyOf('second');
      await put(host.url, first, { nextRenderTime: Date.now() - 30 * HOUR });
      await put(host.url, second, { nextRenderTime: Date.now() - 2 * HOUR });
      const page = await explain(t, second);
      await untilText(page, '#explained .headline', /Due, and number 2 in the queue/);
      assert.match(await textOf(page, '#explained .why'), /1 due page ahead of it/);
      assert.match(await textOf(page, '#explained .why'), /No page has been given out/);
      await post(host.url, '/render_queue/pause', {});
      await page.locator('#refresh').click();
      await untilText(page, '#explained .headline', /Due, but claims are paused/);
      await post(host.url, '/render_queue/resume', {});
      for (const key of [first, second]) await ask(host.url + at(key), 'DELETE');
    });

    test('leased: since when and until when; held back: after how many attempts, and until when', async (t) => {
      const key = await keyOf('missed');
      await put(host.url, key, { nextRenderTime: Date.now() - HOUR });
      const page = await explain(t, key);
      await untilText(page, '#explained .headline', /Due, and number 1/);
      // Given out to nobody who answers, until it is held back; each hold is twice as long as the one before.
      await until('the hold on the page', async () => {
        await post(host.url, '/render_queue/claim', { limit: 1 });
        await page.locator('#refresh').click();
        // In one look: what the page is asked next may say that the hold is over.
        return /Held back for another.*\d+ attempts in a row ended without a result/s.test(
          await textOf(page, '#explained'),
        );
      });
      await ask(host.url + at(key), 'DELETE');
    });

    test('a page in flight is being rendered', async (t) => {
      const other = await startHost(['--sample', '0', '--workers', '1']);
      const key = 'https://www.example.com/in-flight';
      await put(other.url, key, { nextRenderTime: Date.now() - HOUR });
      await post(other.url, '/render_queue/claim', { limit: 1 });
      const page = await open(t, other.url, `#/explain/${encodeURIComponent(key)}`);
      await untilText(page, '#explained .headline', /It is being rendered/);
      assert.match(
        await textOf(page, '#explained .why'),
        /If no result comes by .* that is a miss/,
      );
      assert.equal(await other.stop(), 0);
    });
  });

  describe('what comes from outside', { concurrency: 1 }, () => {
    const MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    const REVERSED = 'https://www.example.com/\u202egnp.exe\u2066';
    /** @type {Awaited<ReturnType<typeof startHost>>} */
    let host;
    before(async () => {
      const config = configFile({
        node: `<b>node</b>\u202e`,
        routes: [
          { match: 'contains', path: MARKUP },
          { match: 'contains', path: '/', renderInterval: HOUR },
          { match: 'wrong <i>rule</i>', path: '/' },
        ],
      });
      host = await startHost(['--sample', '0', '--workers', '1', '--config', config]);
    });
    after(() => host.stop());

    /** No element but those that the page is made of. @param {Page} page */
    function strangers(page) {
      return page.evaluate(() => document.querySelectorAll('img, i, b, script:not([src])').length);
    }

    test('markup in names and messages is text', async (t) => {
      const page = await open(t, host.url);
      await untilText(page, 'h1', /<b>node<\/b>U\+202E/);
      await untilText(page, '#wrong .why', /wrong <i>rule<\/i>/);
      assert.equal(await strangers(page), 0);
      assert.match(await page.title(), /Render queue$/);
      await page.locator('#pause').click();
      assert.match(await textOf(page, '#confirm-title'), /<b>node<\/b>U\+202E/);
      assert.equal(await strangers(page), 0);
    });

    test('a key with markup, with controls of direction, or of 5 kB, is text that stays in its place', async (t) => {
      const page = await open(t, host.url, '#/explain', { viewport: { width: 360, height: 700 } });
      const long = `https://www.example.com/${'long/'.repeat(1_000)}`;
      for (const [key, shown] of [
        [`https://www.example.com/${MARKUP}`, `https://www.example.com/${MARKUP}`],
        [REVERSED, 'https://www.example.com/U+202Egnp.exeU+2066'],
        ['a\u0000b\u200bc\u00a0d\u2028e', 'aU+0000bU+200BcU+00A0dU+2028e'],
        ['a half \ud83d', 'a half U+D83D'],
        [long, `${long.slice(0, 300)} …`],
      ]) {
        await page.evaluate((value) => {
          const input = /** @type {HTMLInputElement} */ (document.querySelector('#key'));
          input.value = value;
        }, key);
        await page.getByRole('button', { name: 'Explain' }).click();
        await until('the key', async () => {
          return (await page.locator('#explained .key').textContent()) === shown;
        });
        assert.match(await textOf(page, '#explained .headline'), /not known/);
        assert.equal(await strangers(page), 0);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360), shown);
      }
      await page.getByRole('button', { name: /Show all 5,0\d\d characters/ }).click();
      assert.equal(await page.locator('#explained .key').textContent(), long);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360));
    });
  });

  describe('a host that does not answer', { concurrency: 1 }, () => {
    test('is named at once, its last numbers stay, grey and ageing, and are replaced when it is back', async (t) => {
      const data = newData();
      const host = await startHost(['--sample', '0', '--workers', '1'], { data });
      // None of them comes due while the test runs.
      for (const name of ['a', 'b']) await put(host.url, `https://shop.example/${name}`, DUE);
      const page = await open(t, host.url, '', { expected: NO_SUCCESS });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      const due = (await tilesOf(page)).Due;
      assert.match(due, /^2/);
      host.child.kill('SIGKILL');
      await host.ended;
      await untilText(page, '#banner', /localhost cannot be reached: the connection failed/);
      await untilText(page, '#trusted .headline', /No, they are old/);
      await untilText(page, '#serving .headline', /Not known/);
      assert.match(
        await textOf(page, '#serving .why'),
        /When it last answered, \d+ (s|min) ago: yes/,
      );
      assert.equal(await page.locator('#pause').isVisible(), false);
      assert.equal((await tilesOf(page)).Due, due);
      const colorOf = () =>
        page.evaluate(() => {
          const tile = document.querySelector('#due .tiles dd');
          return tile && getComputedStyle(tile).color;
        });
      const grey = await colorOf();
      assert.deepEqual(await barriersOn(page), []);
      assert.match(await page.title(), /^No answer/);
      // From a minute on it is told in minutes.
      const ageOf = async () => {
        const [, count, unit] = /(\d+) (s|min) old/.exec(await textOf(page, '#banner')) ?? [];
        return Number(count) * (unit === 'min' ? MINUTE : 1_000);
      };
      const age = await ageOf();
      assert.ok(age >= 0, `${age}`);
      await until('the age to grow', async () => (await ageOf()) > age, { withinMs: 2 * MINUTE });

      const back = await startHost(['--workers', '1', '--port', new URL(host.url).port], { data });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      assert.equal(await page.locator('#banner').isVisible(), false);
      assert.notEqual(await colorOf(), grey);
      assert.equal(await back.stop(), 0);
    });

    test('one that takes the question and says nothing is noticed, too', async (t) => {
      const host = await startHost(['--sample', '500', '--workers', '1']);
      const page = await open(t, host.url, '', { expected: NO_SUCCESS });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      host.child.kill('SIGSTOP');
      try {
        await untilText(page, '#banner', /cannot be reached: no answer within 4 s/);
        await untilText(page, '#trusted .headline', /No, they are old/);
      } finally {
        host.child.kill('SIGCONT');
      }
      await untilText(page, '#trusted .headline', /Yes, exact/);
      assert.equal(await host.stop(), 0);
    });

    test('after a sleep of the device what was known before is old at once, until the next answer', async (t) => {
      const host = await startHost(['--sample', '500', '--workers', '1']);
      const page = watch(t, await openPage(browser, { expected: NO_SUCCESS }));
      await page.clock.install();
      await page.goto(`${host.url}/console/`);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      host.child.kill('SIGSTOP');
      try {
        await page.clock.fastForward(10 * MINUTE);
        assert.equal(await textOf(page, '#serving .headline strong'), 'Not known');
        assert.equal(await textOf(page, '#trusted .headline strong'), 'No, they are old');
        assert.match(await textOf(page, '#banner'), /10 min old/);
        assert.equal(await page.locator('#pause').isVisible(), false);
      } finally {
        host.child.kill('SIGCONT');
      }
      await until('an answer', async () => {
        await page.clock.runFor(1_000);
        return /Yes, exact/.test(await textOf(page, '#trusted .headline'));
      });
      assert.equal(await host.stop(), 0);
    });

    test('is not said of one that nobody has asked, in a tab in the background; back in front it is asked at once', async (t) => {
      const host = await startHost(['--sample', '500', '--workers', '1']);
      const page = watch(t, await openPage(browser, { expected: NO_SUCCESS }));
      await page.clock.install();
      // A headless browser has every page in front.
      await page.addInitScript(() => {
        let hidden = false;
        Object.defineProperty(document, 'hidden', { get: () => hidden });
        /** @type {any} */ (window).hide = (/** @type {boolean} */ value) => {
          hidden = value;
          document.dispatchEvent(new Event('visibilitychange'));
        };
      });
      const hide = (/** @type {boolean} */ value) =>
        page.evaluate((is) => /** @type {any} */ (window).hide(is), value);
      let asked = 0;
      page.on('request', () => {
        asked += 1;
      });
      await page.goto(`${host.url}/console/`);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      const spoken = await textOf(page, '#announce');
      await hide(true);
      await page.clock.runFor(2 * MINUTE);
      assert.match(await page.title(), /^In the background/);
      assert.match(await textOf(page, '#banner'), /^Not asked while.*background.*[12] min old/);
      assert.equal(await textOf(page, '#trusted .headline strong'), 'Not known');
      assert.equal(await textOf(page, '#announce'), spoken);
      assert.match(await textOf(page, '#age'), /[12] min old/);
      assert.ok(await page.evaluate(() => document.querySelector('#content.old')));
      const before = asked;
      await page.clock.runFor(10 * MINUTE);
      assert.equal(asked, before, 'nobody asks meanwhile');

      host.child.kill('SIGSTOP');
      try {
        await hide(false);
        await page.clock.runFor(1_000);
        await until('it to be asked at once', () => asked > before);
        assert.match(await textOf(page, '#banner'), /^Asking again/);
        assert.doesNotMatch(await page.title(), /No answer/);
        // Now it does not answer, indeed.
        await until('a failure', async () => {
          await page.clock.runFor(1_000);
          return /^No answer/.test(await page.title());
        });
        await hide(true);
        await page.clock.runFor(MINUTE);
        assert.match(await page.title(), /^No answer/, 'which stays true in the background');
      } finally {
        host.child.kill('SIGCONT');
      }
      await hide(false);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      await hide(true);
      await page.clock.runFor(2 * MINUTE);
      await hide(false);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      assert.equal(await page.locator('#banner').isVisible(), false);
      assert.equal(await host.stop(), 0);
    });

    test('before the first answer there are no numbers, and no 0 in their place', async (t) => {
      const host = await startHost(['--sample', '0', '--workers', '1']);
      const page = await open(t, host.url, '', { expected: NO_SUCCESS });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      // The files are kept by the browser; the host is gone when the page starts anew.
      await page.route(/prerender_admin/, (route) => route.abort());
      await page.reload();
      await untilText(page, '#banner', /cannot be reached.*no earlier numbers to show/s);
      await untilText(page, '#trusted .headline', /Not known/);
      for (const [name, text] of Object.entries(await tilesOf(page))) {
        assert.match(text, /^–/, name);
      }
      assert.equal(await host.stop(), 0);
    });
  });

  test('an answer that it cannot read is said to be one, whatever it is, and the next good one is shown', async (t) => {
    const host = await startHost(['--sample', '100', '--workers', '1']);
    const state = await stateOf(host.url);
    // Of a hundred sample pages it may be that none is due.
    state.now.due = 7;
    const good = JSON.stringify(state);
    const page = await open(t, host.url, '#/node', { expected: NO_SUCCESS });
    await untilText(page, '#trusted .headline', /Yes, exact/);
    /** @type {string | null} */
    let body = null;
    await page.route(/\/prerender_admin\/queue-state$/, (route) => {
      return body === null ? route.continue() : route.fulfill({ status: 200, body });
    });
    /** What a path of the document is set to. @param {string} path @param {unknown} value */
    const changed = (path, value) => {
      const document = JSON.parse(good);
      const names = path.split('.');
      const last = /** @type {string} */ (names.pop());
      names.reduce((part, name) => part[name], document)[last] = value;
      return JSON.stringify(document);
    };
    for (const [wrong, said] of /** @type {[string, RegExp][]} */ ([
      ['<html>', /no JSON/],
      ['[]', /no JSON object/],
      ['{}', /another schema/],
      [changed('schema', 2), /another schema/],
      [changed('generatedAt', null), /does not say when/],
      [changed('now', 5), /without trust or now/],
      [changed('lateness.classes', {}), /without lateness.classes/],
      [changed('lateness.classes', [null]), /cannot show/],
      [changed('trust.keeper', null), /cannot show/],
      [changed('flow', [null]), /cannot show/],
    ])) {
      body = wrong;
      await page.locator('#refresh').click();
      await untilText(page, '#banner', said);
      await untilText(page, '#trusted .headline', /No, they are old|Not known/);
      body = null;
      await page.locator('#refresh').click();
      await untilText(page, '#trusted .headline', /Yes, exact/);
    }
    // No number, however large, makes the page wider.
    for (const [place, value, shown] of /** @type {[string, number, RegExp][]} */ ([
      ['now.due', 1e300, /^Due1E300/],
      ['now.drainEtaMs', 1e300, /^Drained in[\d.]+E292 d/],
      ['lateness.oldestDueAt', -1e300, /^Due7oldest due [\d.]+E292 d ago/],
    ])) {
      body = changed(place, value);
      await page.locator('#refresh').click();
      await until(`${place} of ${value}`, async () => {
        const tiles = await page.locator('#due .tiles > div').allTextContents();
        return tiles.some((text) => shown.test(text));
      });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 1280), place);
    }
    // A number that is none is a dash.
    for (const value of [null, '7', {}, true]) {
      body = changed('now.due', value);
      await page.locator('#refresh').click();
      await until('the dash', async () =>
        /^–the answer does not say/.test((await tilesOf(page)).Due),
      );
      body = null;
      await page.locator('#refresh').click();
      await until('the number', async () => /^\d/.test((await tilesOf(page)).Due));
    }
    assert.equal(await host.stop(), 0);
  });

  test('what needs attention is wrong now: an error of long ago is among the details, as the last there was', async (t) => {
    const host = await startHost(['--sample', '0', '--workers', '1']);
    const state = await stateOf(host.url);
    state.trust.keeper.lastError = 'a key is not a string';
    const page = watch(t, await openPage(browser, { expected: NO_SUCCESS }));
    let answer = { status: 200, body: JSON.stringify(state) };
    await page.route(/\/prerender_admin\/queue-state$/, (route) => route.fulfill(answer));
    await page.goto(`${host.url}/console/#/node`);
    await untilText(page, '#trusted .headline', /Yes, exact/);
    assert.match(await textOf(page, '#wrong .headline'), /Nothing/);
    assert.match(
      await textOf(page, '#keeper'),
      /Last error\s+a key is not a string\s+the last there was; it may be long over/,
    );
    state.trust.live = false;
    state.trust.phase = 'failed';
    const error = 'the queue keeper failed to load, and tries again: no disk';
    answer = { status: 503, body: JSON.stringify({ ...state, error }) };
    await page.locator('#refresh').click();
    await untilText(page, '#wrong .why', /^the queue keeper failed to load.*: no disk\.$/);
    assert.equal(await host.stop(), 0);
  });

  test('a verification that stopped short is told as one, and since when the whole table has not been read', async (t) => {
    const host = await startHost(['--sample', '10', '--workers', '1']);
    const state = await until('an exact state', async () => {
      const state = await stateOf(host.url);
      return state.trust?.exact && state;
    });
    const { keeper } = state.trust;
    const page = watch(t, await openPage(browser));
    await page.route(/\/prerender_admin\/queue-state$/, (route) =>
      route.fulfill({ status: 200, body: JSON.stringify(state) }),
    );
    const verify = { at: state.generatedAt - 10 * MINUTE, scanned: 7, repaired: 0, partial: true };
    Object.assign(keeper, { verify, verifiedAt: state.generatedAt - 3 * HOUR });
    await page.goto(`${host.url}/console/#/node`);
    await untilText(page, '#trusted .headline', /Yes, exact/);
    assert.match(
      await textOf(page, '#trusted .why'),
      /The last verification, 10 min ago, stopped short: 7 rows read, 0 missed writes found\.\s*The whole table was read 3 h ago\./,
    );
    const wrong = await textOf(page, '#wrong .why');
    assert.match(wrong, /The last verification stopped short, and is tried again\./);
    assert.match(wrong, /No verification for 3 h\./);
    keeper.verifiedAt = verify.at;
    keeper.verify = { ...verify, partial: false };
    await page.locator('#refresh').click();
    await untilText(
      page,
      '#trusted .why',
      /Verified 10 min ago: 7 rows read, 0 missed writes found/,
    );
    assert.doesNotMatch(await textOf(page, '#wrong .why'), /verification/i);
    assert.equal(await host.stop(), 0);
  });

  test('where claims are refused at the limit of leases it does not serve, and it is said what to do', async (t) => {
    const config = configFile({ leases: { maxLeases: 50 } });
    const host = await startHost(['--sample', '0', '--workers', '1', '--config', config]);
    for (let number = 0; number < 60; number++) {
      await put(host.url, `https://shop.example/${number}`, {
        nextRenderTime: Date.now() - 10 * MINUTE - number * MINUTE,
      });
    }
    const { jobs } = await post(host.url, '/render_queue/claim', { limit: 100 });
    assert.equal(jobs.length, 50);
    assert.equal((await post(host.url, '/render_queue/claim', { limit: 100 })).refused, 'limit');
    const page = await open(t, host.url, '#/node', { expected: NO_SUCCESS });
    await untilText(page, '#serving .headline', /!\s+At the limit of leases/);
    assert.match(
      await textOf(page, '#serving .why'),
      /^50 leases given out, and leases\.maxLeases allows no more: claims get nothing until one ends\.\s+50 pages being rendered, 10 pages waiting\.$/,
    );
    assert.match(
      await textOf(page, '#wrong .why'),
      /^Claims get nothing, at the limit of leases: raise leases\.maxLeases, or see why renderers do not finish\.$/,
    );
    assert.match(
      await textOf(page, '#due .tiles'),
      /In flight\s+50\s+being rendered, 0 leases left/,
    );
    const waiting = await open(t, host.url, '#/explain/https%3A%2F%2Fshop.example%2F0');
    await untilText(waiting, '#explained .headline', /!\s+Due, but claims are at the limit/);

    const state = await stateOf(host.url);
    await page.route(/\/prerender_admin\/queue-state$/, (route) =>
      route.fulfill({ status: 200, body: JSON.stringify(state) }),
    );
    const shown = async () => {
      await page.locator('#refresh').click();
      return [await textOf(page, '#serving .headline'), await textOf(page, '#wrong .why')].join();
    };
    // None is given out at all: nobody's fleet is at fault.
    Object.assign(state.now, { inFlight: 0, unclaimed: 60 });
    await until('the limit of 0', async () => {
      const text = await shown();
      return /limit.*Pages are due and none.*leases\.maxLeases is 0/s.test(text);
    });
    assert.doesNotMatch(await textOf(page, '#wrong .why'), /fleet|do not finish/);
    // A node of an older version does not say.
    Object.assign(state.now, { inFlight: 50, unclaimed: 10 });
    delete state.now.leasesLeft;
    await until('what was said before', async () => /^✓\s+Yes,No trouble/.test(await shown()));
    assert.doesNotMatch(await textOf(page, '#due .tiles'), /left/);
    // Nothing waits: no claim is refused.
    Object.assign(state.now, { due: 50, unclaimed: 0, leasesLeft: 0 });
    await until('the tile', async () => {
      await page.locator('#refresh').click();
      return /0 leases left/.test(await textOf(page, '#due .tiles'));
    });
    assert.match(await shown(), /^✓\s+Yes,No trouble/);
    assert.equal(await host.stop(), 0);
  });

  test('where all that waits is held back nobody is asked whether the fleet runs', async (t) => {
    const host = await startHost(['--sample', '0', '--workers', '1']);
    for (const name of ['a', 'b', 'c']) await put(host.url, `https://shop.example/${name}`, DUE);
    const state = await until('an exact state', async () => {
      const state = await stateOf(host.url);
      return state.trust?.exact && state.now.due === 3 && state;
    });
    const page = watch(t, await openPage(browser));
    await page.route(/\/prerender_admin\/queue-state$/, (route) =>
      route.fulfill({ status: 200, body: JSON.stringify(state) }),
    );
    // At the limit, too: what is held back would not be given out below it either.
    Object.assign(state.now, { heldKeys: 3, heldDue: 3, leasesLeft: 0 });
    await page.goto(`${host.url}/console/#/node`);
    await untilText(page, '#serving .headline', /!\s+Yes, but all is held back/);
    assert.match(
      await textOf(page, '#serving .why'),
      /^Claims get none of the pages that wait: they are held back.*\s0 pages being rendered, 3 pages waiting\.$/s,
    );
    const wrong = await textOf(page, '#wrong .why');
    assert.match(wrong, /3 pages held back: rendered again and again/);
    assert.doesNotMatch(wrong, /fleet|limit/);
    assert.equal(await page.locator('#wrong').getAttribute('data-level'), 'warn');
    Object.assign(state.now, { heldKeys: 3, heldDue: 2, leasesLeft: 7 });
    await page.locator('#refresh').click();
    await untilText(page, '#wrong .why', /Pages are due.*is the fleet running\?/);
    await untilText(page, '#serving .headline', /✓\s+Yes$/);
    assert.equal(await host.stop(), 0);
  });

  test('how long ago something was is counted from one moment, that of the answer, in every part of the page', async (t) => {
    const host = await startHost(['--sample', '10', '--workers', '1']);
    const state = await until('an exact state', async () => {
      const state = await stateOf(host.url);
      return state.trust?.exact && state;
    });
    Object.assign(state.trust.keeper, { verify: null, loadedAt: state.generatedAt - 20_000 });
    const page = watch(t, await openPage(browser));
    await page.clock.install();
    await page.route(/\/prerender_admin\/queue-state$/, (route) =>
      route.fulfill({ status: 200, body: JSON.stringify(state) }),
    );
    await page.goto(`${host.url}/console/#/node`);
    await untilText(page, '#trusted .headline', /Yes, exact/);
    const [, why, kept] = await until('numbers that are some seconds old', async () => {
      await page.clock.runFor(1_000);
      const texts = await page.locator('#age, #trusted .why, #keeper').allInnerTexts();
      return /^numbers ([2-9]|[1-9]\d) s old$/.test(texts[0]) ? texts : null;
    });
    assert.match(why, /loaded 20 s ago/);
    assert.match(kept, /Loaded\s.*\(20 s ago\)/);
    assert.equal(await host.stop(), 0);
  });

  test('of the last hour only what is remembered is shown: what is forgotten is no 0', async (t) => {
    const host = await startHost(['--sample', '0', '--workers', '1']);
    const state = await stateOf(host.url);
    state.trust.keeper.loadStartedAt = state.generatedAt - 3 * HOUR;
    const last = Math.floor(state.generatedAt / MINUTE);
    const minute = { cameDue: 2, added: 0, triggered: 0, rescheduled: 1, removed: 0 };
    const page = watch(t, await openPage(browser));
    await page.route(/\/prerender_admin\/queue-state$/, (route) =>
      route.fulfill({ status: 200, body: JSON.stringify(state) }),
    );
    const cameDue = async () => (await cellsOf(page, '#flow')).map((row) => row[1]);
    const dashes = (/** @type {number} */ count) =>
      Array(count).fill('–nothing is remembered of it');
    state.trust.keeper.flowMinutes = 4;
    state.flow = [
      { ...minute, minute: last - 2 },
      { ...minute, minute: last - 1 },
    ];
    await page.goto(`${host.url}/console/#/node`);
    await untilText(page, '#flow .since', /^Only the minutes from \d\d:\d\d on are remembered: /);
    assert.deepEqual(await cameDue(), ['0', '2', '2', '0', ...dashes(56)]);
    assert.match(await textOf(page, '#flow .legend'), /Came due 4\s+Rescheduled 2\s+Added 0/);
    state.trust.keeper.flowMinutes = 60;
    state.flow = [];
    await page.locator('#refresh').click();
    await until('nothing', async () => !(await cameDue()).includes('2'));
    assert.deepEqual(await cameDue(), Array(60).fill('0'));
    // A whole hour of it: nothing to be said.
    state.flow = [{ ...minute, minute: last - 59 }];
    await page.locator('#refresh').click();
    await until('the first minute', async () => (await cameDue())[59] === '2');
    assert.deepEqual(await cameDue(), [...Array(59).fill('0'), '2']);
    assert.equal(await page.locator('#flow .since').isVisible(), false);
    assert.equal(await host.stop(), 0);
  });

  test('while the table is loaded there are no numbers, and it is said that claims are served in part', async (t) => {
    const page = watch(t, await openPage(browser, { expected: NO_SUCCESS }));
    const data = newData();
    assert.equal(await (await startHost(['--sample', '5000'], { data })).stop(), 0);
    fs.rmSync(path.join(data, 'queue.snapshot'), { force: true });
    const faults = fs.mkdtempSync(path.join(newFolder(), 'faults-'));
    fs.writeFileSync(path.join(faults, 'walk'), '');
    const host = run(['--port', '0', '--data', data, '--workers', '2'], faults);
    const url = await until('the URL', () => /listens on (http:\S+),/.exec(host.output())?.[1]);
    await page.goto(`${url}/console/`);
    await untilText(page, '#trusted .headline', /No numbers now/);
    await untilText(page, '#trusted .why', /the queue keeper is loading/);
    await untilText(page, '#serving', /Yes, in part/);
    for (const [name, text] of Object.entries(await tilesOf(page))) assert.match(text, /^–/, name);
    fs.rmSync(path.join(faults, 'walk'));
    await untilText(page, '#trusted .headline', /Yes, exact/);
    host.child.kill('SIGTERM');
    assert.equal(await host.ended, 0);
  });

  describe('the view of a cluster', { concurrency: 1 }, () => {
    /** @type {Awaited<ReturnType<typeof startHost>>[]} */
    let nodes;
    /** @type {{ name: string, url: string }[]} */
    let ring;
    before(async () => {
      const names = ['node-a', 'node-b', 'node-c'];
      const args = ['--workers', '1', '--sample', '0', '--node'];
      nodes = await Promise.all(names.map((name) => startHost([...args, name])));
      ring = nodes.map(({ url }, index) => ({ name: names[index], url }));
      for (const { url } of ring) {
        const { status } = await ask(`${url}/prerender_admin/nodes`, 'PUT', { nodes: ring });
        assert.equal(status, 200);
      }
      const now = Date.now();
      const rows = Array.from({ length: 300 }, (_, number) => ({
        cacheKey: `https://www.example.com/${number}`,
        // The next comes due in five minutes: not while the page and the nodes are compared.
        nextRenderTime: now + (number - 100) * 10 * MINUTE + 5 * MINUTE,
        fromSitemap: number % 3 === 0,
      }));
      const body = rows.map((row) => JSON.stringify(row)).join('\n');
      for (const { url } of ring) {
        const headers = { 'content-type': 'application/x-ndjson' };
        const { answer } = await ask(`${url}/render_schedule`, 'POST', body, headers);
        assert.equal(answer.failed, 0);
      }
      // There is no total while a node may still have rows of the others.
      await until('all rows in the ring', async () => {
        const { status, answer } = await ask(
          `${ring[0].url}/prerender_admin/cluster-queue-state`,
          'GET',
        );
        if (status !== 200) return false;
        const kept = answer.nodes.map((/** @type {any} */ node) => node.keeper.rows);
        return kept.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b) === 300;
      });
    });
    after(() => Promise.all(nodes.map((node) => node.stop())));

    /** @param {Page} page */
    async function nodesOf(page) {
      return Object.fromEntries(
        (await cellsOf(page, '#nodes')).map((row) => [row[0], row.slice(1)]),
      );
    }

    test('is what one sees first, with the total and each node', async (t) => {
      const page = await open(t, ring[1].url);
      await untilText(page, '#serving .headline', /Yes, on all 3 nodes/);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      assert.match(await textOf(page, 'h1'), /cluster of 3 nodes/);
      const { answer } = await ask(`${ring[1].url}/prerender_admin/cluster-queue-state`, 'GET');
      const shown = await nodesOf(page);
      let due = 0;
      for (const node of answer.nodes) {
        const [serving, numbers, ...rest] = shown[node.node];
        assert.deepEqual([serving, numbers], ['Yes', 'Exact']);
        assert.equal(rest[5], written(node.keeper.rows));
        due += Number(rest[0]);
      }
      assert.equal((await tilesOf(page)).Due, written(due));
      assert.equal(await page.locator('#keeper').isVisible(), false);
      await page.getByRole('link', { name: 'This node' }).click();
      await untilText(page, 'h1', /node-b/);
      await until('its own numbers', async () => (await tilesOf(page)).Due === shown['node-b'][2]);
      await untilText(page, '#keeper', /Ring of nodes\s+node-a, node-b and node-c/);
    });

    test('a node that is paused is named', async (t) => {
      await post(ring[2].url, '/render_queue/pause', {});
      const page = await open(t, ring[0].url);
      await untilText(page, '#serving .headline', /On 2 of 3 nodes/);
      assert.match(await textOf(page, '#serving .why'), /node-c: paused/);
      assert.match(await textOf(page, '#wrong .why'), /Claims are paused on node-c\./);
      assert.match(await page.title(), /^\d+ due · cluster/);
      for (const { url } of ring) await post(url, '/render_queue/pause', {});
      await page.locator('#refresh').click();
      await untilText(page, '#wrong .why', /Claims are paused on node-a, node-b and node-c\./);
      await until('the title', async () => /^Paused · cluster/.test(await page.title()));
      for (const { url } of ring) await post(url, '/render_queue/resume', {});
      await page.locator('#refresh').click();
      await untilText(page, '#serving .headline', /Yes, on all 3 nodes/);
    });

    test('what is wrong with the claims of one node is said of that node, whatever the others do', async (t) => {
      const { answer } = await ask(`${ring[0].url}/prerender_admin/cluster-queue-state`, 'GET');
      const [a, b, c] = answer.nodes;
      const LATE = { due: 5_000, unclaimed: 5_000, drainEtaMs: null };
      for (const { keeper } of answer.nodes) keeper.loadStartedAt = answer.generatedAt - HOUR;
      Object.assign(a.now, LATE, { inFlight: 0 });
      Object.assign(b.now, LATE, { inFlight: 1 });
      Object.assign(c.now, LATE, { inFlight: 0, paused: true, status: 'paused' });
      Object.assign(answer.now, LATE, { due: 15_000, inFlight: 1, paused: true });
      const page = watch(t, await openPage(browser));
      await page.route(/\/prerender_admin\/cluster-queue-state$/, (route) =>
        route.fulfill({ status: 200, body: JSON.stringify(answer) }),
      );
      const why = () => page.locator('#wrong .why li').allTextContents();
      await page.goto(`${ring[0].url}/console/#/cluster`);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      const said = (await why()).filter((one) => /node-/.test(one));
      assert.deepEqual(said, [
        'Pages are due on node-a and none of them is being rendered: does the fleet claim there?',
        'Claims are paused on node-c.',
        'The backlog of late pages on node-b does not shrink at the recent rates.',
      ]);
      // Due for a minute: the fleet may not have asked yet.
      a.oldestDueAt = answer.generatedAt - MINUTE;
      await page.locator('#refresh').click();
      await until('one less', async () => !(await why()).some((one) => /being rendered/.test(one)));
      a.oldestDueAt = answer.generatedAt - HOUR;
      await page.locator('#refresh').click();
      await until('it again', async () => (await why()).some((one) => /being rendered/.test(one)));
      assert.match(
        await textOf(page, '#due .tiles'),
        /never\s+on 3 of 3 nodes the late pages do not/,
      );
      // One that has only just begun does not hide another.
      a.keeper.loadStartedAt = answer.generatedAt;
      c.now.inFlight = 1;
      Object.assign(c.now, { paused: false, status: 'queued' });
      await page.locator('#refresh').click();
      await untilText(page, '#wrong .why', /late pages on node-b and node-c does not shrink/);
    });

    test('a node whose claims get nothing is named with the reason: the limit of leases, or holds', async (t) => {
      const { answer } = await ask(`${ring[0].url}/prerender_admin/cluster-queue-state`, 'GET');
      const [a, b, c] = answer.nodes;
      const quiet = {
        due: 9,
        inFlight: 5,
        unclaimed: 4,
        heldKeys: 0,
        heldDue: 0,
        leasesLeft: 7,
        drainEtaMs: 0,
      };
      for (const node of answer.nodes) {
        Object.assign(node.now, quiet);
        node.oldestDueAt = answer.generatedAt - HOUR;
      }
      a.now.leasesLeft = 0;
      Object.assign(b.now, { inFlight: 0, heldKeys: 4, heldDue: 4 });
      const page = watch(t, await openPage(browser));
      await page.route(/\/prerender_admin\/cluster-queue-state$/, (route) =>
        route.fulfill({ status: 200, body: JSON.stringify(answer) }),
      );
      await page.goto(`${ring[0].url}/console/#/cluster`);
      await untilText(page, '#serving .headline', /!\s+On 2 of 3 nodes/);
      assert.match(
        await textOf(page, '#serving .why'),
        /node-a: at the limit of leases\.\s+node-b: yes, but all is held back\.\s+node-c: yes\./,
      );
      const why = await textOf(page, '#wrong .why');
      assert.match(why, /Claims get nothing on node-a, at the limit of leases: raise/);
      assert.doesNotMatch(why, /fleet/);
      for (const { now } of [a, b, c]) Object.assign(now, { inFlight: 0, heldKeys: 4, heldDue: 4 });
      await page.locator('#refresh').click();
      await untilText(page, '#serving .headline', /!\s+Yes, but all is held back, on all 3 nodes/);
    });

    test('without one of them there is no total: it is named, the others are shown, and the last total is grey', async (t) => {
      const page = await open(t, ring[0].url, '', { expected: NO_SUCCESS });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      const { Due: due } = await tilesOf(page);
      const node = nodes[1];
      node.child.kill('SIGKILL');
      await node.ended;
      await untilText(page, '#trusted .headline', /No total/);
      assert.match(await textOf(page, '#trusted .why'), /node-b gives no numbers/);
      assert.match(
        await textOf(page, '#banner'),
        /no total now, for want of node-b.*\d+ (s|min) old/s,
      );
      assert.match(await textOf(page, '#wrong .why'), /node-b cannot be reached/);
      assert.match(await textOf(page, '#serving'), /On 2 of 3 nodes.*node-b: not known/s);
      assert.equal((await tilesOf(page)).Due, due);
      const shown = await nodesOf(page);
      assert.deepEqual(shown['node-b'].slice(0, 2), ['Not known', 'None']);
      // Dashes, with the reason for those who cannot see them.
      for (const text of shown['node-b'].slice(2)) assert.match(text, /^–not known now/);
      assert.equal(shown['node-a'][1], 'Exact');
      // The total is grey, what the others say now is not.
      const colors = await page.evaluate(() =>
        ['#due dd', '#nodes tbody th .is', '#coming .sum'].map((selector) => {
          const node = document.querySelector(selector);
          return node && getComputedStyle(node).color;
        }),
      );
      assert.equal(colors[0], colors[2]);
      assert.notEqual(colors[0], colors[1]);

      // Whoever opens the page now sees dashes, and never a part of the sum.
      const late = await open(t, ring[2].url, '#/cluster', { expected: NO_SUCCESS });
      await untilText(late, '#banner', /no total now, for want of node-b.*no earlier numbers/s);
      for (const [name, text] of Object.entries(await tilesOf(late))) {
        assert.match(text, /^–/, name);
      }
      assert.equal(await late.locator('#lateness').isVisible(), false);

      const port = new URL(node.url).port;
      const args = ['--workers', '1', '--sample', '0', '--node', 'node-b', '--port', port];
      nodes[1] = await startHost(args, { data: node.data });
      await untilText(page, '#trusted .headline', /Yes, exact/);
      await untilText(late, '#serving .headline', /Yes, on all 3 nodes/);
    });

    test('has no barrier, in light and dark, wide and narrow', async (t) => {
      for (const options of /** @type {const} */ ([
        { colorScheme: 'light' },
        { colorScheme: 'dark', viewport: { width: 360, height: 740 } },
      ])) {
        const page = await open(t, ring[0].url, '#/cluster', options);
        await untilText(page, '#trusted .headline', /Yes, exact/);
        await page.locator('#nodes tbody tr').first().waitFor();
        assert.deepEqual(await barriersOn(page), []);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
      }
    });
  });

  describe('a host with a token', { concurrency: 1 }, () => {
    test('is asked with the token that the page asks for, kept in the tab alone', async (t) => {
      const host = await startHost(['--sample', '10', '--token', 'the token', '--workers', '1']);
      const page = await open(t, host.url, '', { expected: NO_SUCCESS });
      const token = page.getByLabel('Token');
      await token.waitFor();
      assert.equal(await page.evaluate(() => document.activeElement?.id), 'token');
      assert.equal(await page.locator('#content').isVisible(), false);
      await token.fill('another');
      await page.keyboard.press('Enter');
      await untilText(page, '#sign-in-why', /not accepted/);
      await token.fill('the token');
      await page.keyboard.press('Enter');
      await untilText(page, '#trusted .headline', /Yes, exact/);
      const kept = await page.evaluate(() => [localStorage.length, document.cookie, location.href]);
      assert.deepEqual(kept.slice(0, 2), [0, '']);
      assert.doesNotMatch(String(kept[2]), /token/);
      await page.reload();
      await untilText(page, '#trusted .headline', /Yes, exact/);
      await page.getByRole('button', { name: 'Sign out' }).click();
      await token.waitFor();
      assert.equal(await page.evaluate(() => sessionStorage.length), 0);
      assert.equal(await host.stop(), 0);
    });

    test('one that wants a name and a password gets them; an account that may not look is told so', async (t) => {
      const host = await startHost(['--sample', '10', '--workers', '1']);
      const server = http.createServer(async (request, response) => {
        const given = String(request.headers.authorization).replace(/^Basic /, '');
        const who = Buffer.from(given, 'base64').toString();
        const isFile = /^\/console\//.test(String(request.url));
        const status = isFile || who === 'admin:pässword' ? 200 : who === 'guest:guest' ? 403 : 401;
        if (status === 200) {
          const answered = await fetch(host.url + request.url);
          const type = answered.headers.get('content-type') ?? '';
          response.writeHead(answered.status, { 'content-type': type });
          response.end(await answered.text());
        } else {
          // With a challenge the browser would ask by a dialog of its own.
          response.writeHead(status).end('{}');
        }
      });
      await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
      try {
        const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
        const page = await open(t, `http://127.0.0.1:${port}`, '', { expected: NO_SUCCESS });
        for (const [user, password, said] of /** @type {[string, string, RegExp][]} */ ([
          ['admin', 'wrong', /not accepted/],
          ['guest', 'guest', /may not look at the queue/],
        ])) {
          await page.getByLabel('User name').fill(user);
          await page.getByLabel('Password').fill(password);
          await page.keyboard.press('Enter');
          await untilText(page, '#sign-in-why', said);
        }
        assert.equal(await page.getByLabel('Token').isVisible(), true);
        await page.getByLabel('User name').fill('admin');
        await page.getByLabel('Password').fill('pässword');
        await page.keyboard.press('Enter');
        await untilText(page, '#trusted .headline', /Yes, exact/);
      } finally {
        server.close();
        server.closeAllConnections();
      }
      assert.equal(await host.stop(), 0);
    });
  });

  test('as plain files in a folder, below another path and without headers, it finds its routes and keeps its policy', async (t) => {
    const host = await startHost(['--sample', '100', '--workers', '1']);
    const mount = fs.mkdtempSync(path.join(newFolder(), 'mount-'));
    fs.cpSync(FOLDER, mount, { recursive: true });
    const types = /** @type {Record<string, string>} */ ({
      '.html': 'text/html',
      '.css': 'text/css',
      '.js': 'text/javascript',
      '.svg': 'image/svg+xml',
    });
    // A host as another one would be: files below one path, the queue's routes beside it.
    const server = http.createServer(async (request, response) => {
      const [, name] = /^\/prerender_console\/(.*)$/.exec(String(request.url)) ?? [];
      if (name === undefined) {
        const answered = await fetch(host.url + request.url);
        response.writeHead(answered.status, { 'content-type': 'application/json' });
        response.end(await answered.text());
        return;
      }
      const file = path.join(mount, name);
      if (!fs.existsSync(file)) response.writeHead(404).end();
      else {
        response.writeHead(200, { 'content-type': types[path.extname(name)] });
        response.end(fs.readFileSync(file));
      }
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    const at = `http://127.0.0.1:${port}/prerender_console/index.html`;
    try {
      // Without the chart library there are the tables, open.
      const bare = await openPage(browser, { expected: NO_SUCCESS });
      watch(t, bare);
      await bare.page.goto(at);
      await untilText(bare.page, '#trusted .headline', /Yes, exact/);
      await until('the tables', async () => {
        const open = await bare.page.locator('#coming details, #flow details').all();
        return (await Promise.all(open.map((one) => one.getAttribute('open')))).every(
          (is) => is !== null,
        );
      });
      assert.equal(await bare.page.locator('#coming .chart').isVisible(), false);

      fs.mkdirSync(path.join(mount, 'vendor'));
      for (const name of ['uPlot.esm.js', 'uPlot.min.css']) {
        fs.writeFileSync(
          path.join(mount, 'vendor', name),
          consoleFile(`vendor/${name}`)?.body ?? '',
        );
      }
      const whole = await openPage(browser);
      watch(t, whole);
      await whole.page.goto(at);
      await untilText(whole.page, '#trusted .headline', /Yes, exact/);
      await until('the charts', async () => (await whole.page.locator('canvas').count()) === 2);
      // The policy of the page itself holds.
      const refused = await whole.page.evaluate(() => {
        try {
          document.body.innerHTML = '<b>markup</b>';
          return 'not refused';
        } catch (error) {
          return String(error);
        }
      });
      assert.match(refused, /Trusted/);
      // Noted as it is on every page here: by the browser, and by the policy.
      await until('the report', () => whole.faults.length === 2);
      assert.match(
        whole.faults.splice(0).sort()[0],
        /against the policy: require-trusted-types-for/,
      );
    } finally {
      server.close();
      server.closeAllConnections();
    }
    assert.equal(await host.stop(), 0);
  });

  describe('for everybody', { concurrency: 1 }, () => {
    /** @type {Awaited<ReturnType<typeof startHost>>} */
    let host;
    before(async () => {
      host = await startHost(['--sample', '3000']);
      await post(host.url, '/render_queue/claim', { limit: 5 });
    });
    after(() => host.stop());

    const VIEWS = {
      node: '#/node',
      explain: `#/explain/${encodeURIComponent('https://www.example.com/|mobile')}`,
    };

    /** @param {Page} page */
    async function untilShown(page) {
      await untilText(page, '#trusted .headline', /Yes, exact/);
      if (page.url().includes('#/explain')) await page.locator('#explained').waitFor();
      else await page.locator('#classes tbody tr').first().waitFor();
    }

    for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
      for (const [name, hash] of Object.entries(VIEWS)) {
        test(`an automated check finds no barrier: ${name}, ${colorScheme}`, async (t) => {
          const page = await open(t, host.url, hash, { colorScheme });
          await untilShown(page);
          for (const summary of await page.locator('summary:visible').all()) await summary.click();
          assert.deepEqual(await barriersOn(page), []);
        });
      }
    }

    test('the dialog has no barrier either', async (t) => {
      const page = await open(t, host.url, VIEWS.node);
      await untilShown(page);
      await page.locator('#pause').click();
      assert.deepEqual(await barriersOn(page), []);
    });

    test('it follows the colour scheme', async (t) => {
      const page = await open(t, host.url, VIEWS.node, { colorScheme: 'light' });
      await untilShown(page);
      const brightness = () =>
        page.evaluate(() => {
          const rgb = getComputedStyle(document.body).backgroundColor.match(/\d+/g) ?? [];
          return rgb.slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
        });
      assert.ok((await brightness()) > 200);
      await page.emulateMedia({ colorScheme: 'dark' });
      assert.ok((await brightness()) < 60);
    });

    for (const [name, hash] of Object.entries(VIEWS)) {
      test(`at 360 pixels nothing makes the page scroll sideways: ${name}`, async (t) => {
        const page = await open(t, host.url, hash, { viewport: { width: 360, height: 740 } });
        await untilShown(page);
        for (const summary of await page.locator('summary:visible').all()) await summary.click();
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= 360, String(wide));
        // What is wider scrolls in its own place, by keyboard, too.
        const stuck = await page.evaluate(
          () =>
            [...document.querySelectorAll('.scroll')].filter(
              (place) => place.scrollWidth > place.clientWidth && !place.hasAttribute('tabindex'),
            ).length,
        );
        assert.equal(stuck, 0);
      });
    }

    test('how late pages are is seen whole, the latest included, however narrow the page and large the numbers', async (t) => {
      const state = await stateOf(host.url);
      const { lateness } = state;
      for (const one of [lateness, ...lateness.byRoute]) one.sitemap.fill(1_234_567);
      const page = watch(t, await openPage(browser));
      await page.route(/\/prerender_admin\/queue-state$/, (route) =>
        route.fulfill({ status: 200, body: JSON.stringify(state) }),
      );
      await page.goto(`${host.url}/console/#/node`);
      await untilShown(page);
      for (const width of [360, 375, 640, 768, 769, 1280]) {
        await page.setViewportSize({ width, height: 740 });
        const hidden = await page.evaluate(() => {
          const place = document.querySelector('#lateness .scroll');
          const right = place?.getBoundingClientRect().right ?? 0;
          return [...document.querySelectorAll('#lateness tbody td')]
            .flatMap((cell) => [...cell.children])
            .filter((part) => part.getBoundingClientRect().right > right + 0.5)
            .map(
              (part) => `${part.parentElement?.getAttribute('data-label')}: ${part.textContent}`,
            );
        });
        assert.deepEqual(hidden, [], `at ${width} pixels`);
      }
      await page.setViewportSize({ width: 375, height: 740 });
      const latest = page.locator('#lateness tbody tr').first().locator('td').last();
      const name = await latest.evaluate((cell) => getComputedStyle(cell, '::before').content);
      assert.equal(name, '"4 or more"');
    });

    test('all of it can be reached and used by keyboard, and one sees where one is', async (t) => {
      const page = await open(t, host.url, VIEWS.node);
      await untilShown(page);
      /** @type {string[]} */
      const stops = [];
      for (let presses = 0; presses < 60; presses++) {
        await page.keyboard.press('Tab');
        const stop = await page.evaluate(() => {
          const on = document.activeElement;
          if (!on || on === document.body) return null;
          const { outlineStyle, outlineWidth } = getComputedStyle(on);
          const seen = outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2;
          return { name: on.textContent || on.id, seen, again: on.hasAttribute('data-stop') };
        });
        if (stop === null || stop.again) break;
        assert.ok(stop.seen, stop.name);
        await page.evaluate(() => document.activeElement?.setAttribute('data-stop', ''));
        stops.push(stop.name);
      }
      assert.equal(stops[0], 'Skip to the content');
      for (const name of [
        'Explain a page',
        'Refresh now',
        'Pause claims …',
        'By hour, as a table',
      ]) {
        assert.ok(stops.includes(name), `${name} in ${stops}`);
      }
      await page.locator('.skip').focus();
      await page.keyboard.press('Enter');
      assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
      // Through the dialog and back, without a pointer.
      await page.locator('#pause').focus();
      await page.keyboard.press('Enter');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await untilText(page, '#serving .headline', /Paused/);
      await page.keyboard.press('Enter');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await untilText(page, '#serving .headline', /Yes/);
      // To the explanation.
      await page.locator('#to-explain').focus();
      await page.keyboard.press('Enter');
      await page.locator('#key').waitFor();
      await page.keyboard.press('Tab');
    });

    test('the live region speaks of what changes, not of what ticks', async (t) => {
      const quiet = await startHost(['--sample', '0', '--workers', '1']);
      const page = await open(t, quiet.url, VIEWS.node);
      await untilText(page, '#trusted .headline', /Yes, exact/);
      await page.evaluate(() => {
        /** @type {any} */ (window).spoken = [];
        new MutationObserver(() => {
          /** @type {any} */ (window).spoken.push(document.querySelector('#announce')?.textContent);
        }).observe(/** @type {Node} */ (document.querySelector('#announce')), {
          childList: true,
          characterData: true,
          subtree: true,
        });
      });
      const asOf = await textOf(page, '#trusted time');
      await until('two refreshes', async () => (await textOf(page, '#trusted time')) !== asOf);
      assert.deepEqual(await page.evaluate(() => /** @type {any} */ (window).spoken), []);
      await post(quiet.url, '/render_queue/pause', {});
      await until('the word', async () => {
        const spoken = await page.evaluate(() => /** @type {any} */ (window).spoken);
        return /Serving: Paused/.test(String(spoken));
      });
      assert.equal(await quiet.stop(), 0);
    });
  });
});
