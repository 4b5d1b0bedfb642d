'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { pathToFileURL } = require('node:url');
const zlib = require('node:zlib');
const { importSitemap } = require('../lib/standalone/sitemap.js');
const { openTable, startWriter } = require('../lib/standalone/table.js');

const HOUR = 3_600_000;
const NOW = 1_760_000_000_000;

/** @type {string} */
let folder;
/** @type {Awaited<ReturnType<typeof startWriter>>} */
let writer;
/** @type {ReturnType<typeof openTable>} */
let table;
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'queue-sitemap-'));
  writer = await startWriter(path.join(folder, 'data'));
  table = openTable(path.join(folder, 'data'), writer.connect());
});
after(async () => {
  await table.close();
  await writer.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

let files = 0;
/**
 * @param {string | Buffer} content
 * @param {string} [name]
 */
function file(content, name = `${files++}.xml`) {
  const full = path.join(folder, name);
  fs.mkdirSync(path.dirname(full), { recursive: true });
  fs.writeFileSync(full, content);
  return full;
}

/** @param {string} inner */
function urlset(inner) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">\n${inner}\n</urlset>`;
}

/** @param {string} name */
function read(name) {
  return importSitemap(name, { table, now: NOW });
}

/** @param {string} page */
function at(page) {
  return `https://shop.example/${page}`;
}

describe('a sitemap', () => {
  test('changefreq is the cadence, priority brings the first due time forward', async () => {
    const report = await read(
      file(
        urlset(`
      <url><loc>${at('top')}</loc><changefreq>hourly</changefreq><priority>1.0</priority></url>
      <url><loc> ${at('plain')} </loc></url>
      <url><loc>${at('low?a=1&amp;b=2')}</loc><lastmod>2025-01-01</lastmod><changefreq>Weekly</changefreq><priority>0</priority></url>
      <url><loc><![CDATA[${at('cdata')}]]></loc><image:image><image:loc>${at('no-page.png')}</image:loc></image:image></url>`),
      ),
    );
    assert.deepEqual(
      { ...report },
      {
        files: 1,
        urls: 4,
        written: 4,
        unchanged: 0,
        skipped: 0,
        foreign: 0,
        problems: [],
        notFetched: [],
      },
    );
    const top = await table.get(at('top'));
    assert.equal(top?.nextRenderTime, NOW);
    assert.equal(top?.effectiveInterval, HOUR);
    assert.equal(top?.fromSitemap, true);
    const plain = await table.get(at('plain'));
    assert.equal(plain?.effectiveInterval, null);
    assert.ok(
      Number(plain?.nextRenderTime) >= NOW && Number(plain?.nextRenderTime) <= NOW + 3 * HOUR,
    );
    const low = await table.get(at('low?a=1&b=2'));
    assert.equal(low?.effectiveInterval, 7 * 24 * HOUR);
    assert.ok(Number(low?.nextRenderTime) <= NOW + 6 * HOUR);
    assert.ok(await table.get(at('cdata')));
    assert.equal(await table.get(at('no-page.png')), null);
  });

  test('pages of one priority are spread, those of a higher one come sooner on average', async () => {
    const pages = (/** @type {number} */ priority) =>
      Array.from(
        { length: 400 },
        (_, i) =>
          `<url><loc>${at(`spread/${priority}/${i}`)}</loc><priority>${priority}</priority></url>`,
      ).join('\n');
    await read(file(urlset([0, 0.5, 0.9].map(pages).join('\n'))));
    const means = await Promise.all(
      [0, 0.5, 0.9].map(async (priority) => {
        let sum = 0;
        for (let i = 0; i < 400; i++) {
          sum += Number((await table.get(at(`spread/${priority}/${i}`)))?.nextRenderTime) - NOW;
        }
        return sum / 400 / HOUR;
      }),
    );
    assert.ok(Math.abs(means[0] - 3) < 0.5, String(means));
    assert.ok(Math.abs(means[1] - 1.5) < 0.3, String(means));
    assert.ok(Math.abs(means[2] - 0.3) < 0.1, String(means));
  });

  test('imported again, a page keeps its due time, and a changed cadence is taken over', async () => {
    const once = file(urlset(`<url><loc>${at('again')}</loc><changefreq>daily</changefreq></url>`));
    await read(once);
    await table.put(at('again'), { ...(await table.get(at('again'))), nextRenderTime: NOW + 99 });
    const second = await read(once);
    assert.deepEqual([second.written, second.unchanged], [0, 1]);
    await read(file(urlset(`<url><loc>${at('again')}</loc><changefreq>hourly</changefreq></url>`)));
    const row = await table.get(at('again'));
    assert.deepEqual([row?.nextRenderTime, row?.effectiveInterval], [NOW + 99, HOUR]);
  });

  test('a page that was only discovered is from the sitemap from now on', async () => {
    await table.put(at('found'), { nextRenderTime: 5, fromSitemap: false });
    await read(file(urlset(`<url><loc>${at('found')}</loc></url>`)));
    const row = await table.get(at('found'));
    assert.deepEqual([row?.nextRenderTime, row?.fromSitemap], [5, true]);
  });

  test('a row that is written between its reading and its writing stays, and is from the sitemap; a damaged one is written anew', async () => {
    const known = at('raced-known');
    const fresh = at('raced');
    await table.put(known, { nextRenderTime: 5 });
    await table.put(at('damaged'), { nextRenderTime: 5 });
    let writes = 0;
    const raced = /** @type {typeof table} */ ({
      getSync(key) {
        if (key === at('damaged')) throw new Error('it is cut off');
        return table.getSync(key);
      },
      async write(rows) {
        writes += 1;
        if (writes === 1) {
          for (const key of [known, fresh]) {
            await table.put(key, { nextRenderTime: 7, urgentAt: 8, changedAt: 9 });
          }
        }
        return table.write(rows);
      },
    });
    const pages = [known, fresh, at('damaged')].map((loc) => `<url><loc>${loc}</loc></url>`);
    const report = await importSitemap(file(urlset(pages.join('\n'))), { table: raced, now: NOW });
    assert.deepEqual([report.written, report.unchanged, writes], [3, 0, 2]);
    for (const key of [known, fresh]) {
      const { version: _, ...row } = (await table.get(key)) ?? {};
      assert.deepEqual(row, {
        cacheKey: key,
        nextRenderTime: 7,
        urgentAt: 8,
        changedAt: 9,
        fromSitemap: true,
        effectiveInterval: null,
      });
    }
    assert.ok(Number((await table.get(at('damaged')))?.nextRenderTime) >= NOW);
  });

  test('gzip, a byte order mark, UTF-16 and a prefix are read', async () => {
    const text = (/** @type {string} */ page) => urlset(`<url><loc>${at(page)}</loc></url>`);
    const prefixed = `<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><s:url><s:loc>${at('prefixed')}</s:loc></s:url></s:urlset>`;
    for (const [page, content] of /** @type {[string, string | Buffer][]} */ ([
      ['gzip-é', zlib.gzipSync(text('gzip-é'))],
      [
        'two-gzip-members',
        Buffer.concat([
          zlib.gzipSync(text('two-gzip-members').slice(0, 150)),
          zlib.gzipSync(text('two-gzip-members').slice(150)),
        ]),
      ],
      ['bom', `\ufeff${text('bom')}`],
      ['utf16', Buffer.from(`\ufeff${text('utf16').replace('UTF-8', 'UTF-16')}`, 'utf16le')],
      ['prefixed', prefixed],
    ])) {
      const report = await read(file(content));
      assert.deepEqual(report.problems, [], page);
      assert.ok(await table.get(at(page)), page);
    }
    const latin = Buffer.from(
      urlset(`<url><loc>${at('café')}</loc></url>`).replace('UTF-8', 'ISO-8859-1'),
      'latin1',
    );
    assert.deepEqual((await read(file(latin))).problems, []);
    assert.ok(await table.get(at('café')));
  });

  test('fifty thousand pages are read in a stream, with progress', async () => {
    const many = Array.from(
      { length: 50_000 },
      (_, i) => `<url><loc>${at(`many/${i}`)}</loc></url>`,
    );
    const name = file(urlset(many.join('\n')));
    /** @type {number[]} */
    const shares = [];
    const report = await importSitemap(name, {
      table,
      now: NOW,
      onProgress: ({ bytes, totalBytes }) => shares.push(bytes / totalBytes),
    });
    assert.equal(report.written, 50_000);
    assert.ok(shares.length >= 10);
    assert.equal(shares[shares.length - 1], 1);
  });
});

describe('what is wrong', () => {
  /** @type {Record<string, [content: string | Buffer, line: number, reason: RegExp]>} */
  const broken = {
    'a tag left open': [
      urlset(`<url><loc>${at('kept-a')}</loc></url>\n<url><loc>x</url>`),
      4,
      /tag/,
    ],
    'cut off': [urlset(`<url><loc>${at('kept-b')}</loc></url>`).slice(0, -5), 4, /unclosed|end/i],
    'gzip cut off': [
      zlib
        .gzipSync(urlset(`<url><loc>${at('kept-c')}</loc></url>\n${'<!-- filler -->\n'.repeat(9)}`))
        .subarray(0, -12),
      13,
      /gzip file is cut off/,
    ],
    'not UTF-8': [
      Buffer.concat([
        Buffer.from(urlset(`<url><loc>${at('kept-d')}</loc></url>${' '.repeat(70_000)}`)),
        Buffer.from([0xff, 0xfe]),
      ]),
      3,
      /encoding/,
    ],
    'an entity of its own': [
      `<!DOCTYPE urlset [<!ENTITY a "b">]>\n${urlset(`<url><loc>${at('&a;')}</loc></url>`).slice(39)}`,
      3,
      /entity/i,
    ],
    HTML: ['<html><body>Not found</body></html>', 1, /root element is <html>/],
    empty: ['', 1, /empty/],
  };
  for (const [name, [content, line, reason]] of Object.entries(broken)) {
    test(`a file that is ${name}: line and reason are told, what was read before is kept`, async () => {
      const report = await read(file(content));
      assert.equal(report.problems.length, 1, JSON.stringify(report.problems));
      assert.match(report.problems[0].reason, reason);
      assert.ok(
        Math.abs(Number(report.problems[0].line) - line) <= 1,
        JSON.stringify(report.problems),
      );
      const kept = /kept-[ab]/.exec(content.toString())?.[0];
      if (kept) assert.ok(await table.get(at(kept)));
      if (name === 'not UTF-8') assert.ok(await table.get(at('kept-d')));
    });
  }

  test('an entry that names no page is skipped by line, one with a senseless hint is taken without it', async () => {
    const report = await read(
      file(
        urlset(`<url><loc>/relative</loc></url>
<url></url>
<url><loc>${at('fine')}</loc></url>
<url><loc>${at('odd')}</loc><changefreq>sometimes</changefreq></url>
<url><loc>${at('odder')}</loc><priority>7</priority></url>
<url><loc>javascript:alert(1)</loc></url>`),
      ),
    );
    assert.deepEqual([report.written, report.skipped], [3, 3]);
    assert.deepEqual(
      report.problems.map((problem) => problem.line),
      [3, 4, 6, 7, 8],
    );
    assert.ok(await table.get(at('fine')));
  });

  test('a page that is listed twice is written once, as it is listed first; what contradicts that is told by line', async () => {
    const twice = (/** @type {string} */ frequency, /** @type {string} */ between = '') =>
      urlset(`<url><loc>${at('twice')}</loc><changefreq>daily</changefreq></url>${between}
<url><loc>${at('twice')}</loc><changefreq>${frequency}</changefreq></url>`);
    const same = await read(file(twice('daily')));
    assert.deepEqual([same.urls, same.written, same.unchanged, same.problems.length], [2, 1, 1, 0]);
    const many = Array.from({ length: 3_000 }, (_, i) => `<url><loc>${at(`m${i}`)}</loc></url>`);
    for (const between of ['', many.join('\n')]) {
      const name = file(twice('weekly', between));
      for (const before of [between ? 3_000 : 0, 0]) {
        const report = await read(name);
        assert.deepEqual([report.written, report.problems.length], [before, 1]);
        assert.match(report.problems[0].reason, /listed before, with another <changefreq>/);
        assert.equal((await table.get(at('twice')))?.effectiveInterval, 24 * HOUR);
      }
    }
  });

  test('no such file', async () => {
    const report = await read(path.join(folder, 'missing.xml'));
    assert.match(report.problems[0].reason, /no such file/);
  });
});

describe('an index', () => {
  test('local files are read relative to its folder, remote ones named as not fetched, a missing one told', async () => {
    file(urlset(`<url><loc>${at('part-1')}</loc></url>`), 'parts/1.xml');
    file(zlib.gzipSync(urlset(`<url><loc>${at('part-2')}</loc></url>`)), 'parts/deeper/2.xml.gz');
    const third = file(urlset(`<url><loc>${at('part-3')}</loc></url>`), 'parts/3.xml');
    const outside = file(urlset(`<url><loc>${at('outside')}</loc></url>`), 'elsewhere/4.xml');
    file(urlset(`<url><loc>${at('outside')}</loc></url>`), 'parts-too/5.xml');
    file(urlset(`<url><loc>${at('part-6')}</loc></url>`), 'parts/..6.xml');
    const index = file(
      `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
      <sitemap><loc>1.xml</loc></sitemap>
      <sitemap><loc>./deeper/2.xml.gz</loc></sitemap>
      <sitemap><loc>${pathToFileURL(third)}</loc></sitemap>
      <sitemap><loc>gone.xml</loc></sitemap>
      <sitemap><loc>file://host/x</loc></sitemap>
      <sitemap><loc>file:///a%2Fb</loc></sitemap>
      <sitemap><loc>https://shop.example/sitemap-9.xml</loc></sitemap>
      <sitemap><loc>index.xml</loc></sitemap>
      <sitemap><loc>..6.xml</loc></sitemap>
      <sitemap><loc>${'long'.repeat(1_000)}</loc></sitemap>
      <sitemap><loc>../elsewhere/4.xml</loc></sitemap>
      <sitemap><loc>deeper/../../elsewhere/4.xml</loc></sitemap>
      <sitemap><loc>${outside}</loc></sitemap>
      <sitemap><loc>${pathToFileURL(outside)}</loc></sitemap>
      <sitemap><loc>../parts-too/5.xml</loc></sitemap>
      <sitemap><loc>..</loc></sitemap>
      </sitemapindex>`,
      'parts/index.xml',
    );
    const report = await read(index);
    for (const part of ['part-1', 'part-2', 'part-3', 'part-6'])
      assert.ok(await table.get(at(part)), part);
    assert.deepEqual(report.notFetched, ['https://shop.example/sitemap-9.xml']);
    assert.equal(report.problems.length, 10);
    assert.match(report.problems[0].file, /gone\.xml$/);
    assert.match(report.problems[0].reason, /no such file/);
    for (const { reason } of report.problems.slice(1, 3)) assert.match(reason, /not a file's URL/);
    assert.match(report.problems[3].reason, /name is too long/);
    for (const { file: from, line, reason } of report.problems.slice(4)) {
      assert.match(reason, /outside the index's folder: move the file into it/);
      assert.equal(from, index);
      assert.ok(line);
    }
    assert.equal(await table.get(at('outside')), null);
  });
});
