'use strict';

/** A real Chromium, found on this machine, and pages in it that note whatever goes wrong on them. */

const { execFileSync } = require('node:child_process');
const { chromium } = require('playwright-core');

/** Said by a machine where a missing browser must not go unnoticed. */
const MUST = process.env.NEED_CHROMIUM === '1';

/** @returns {string | null} */
function findChromium() {
  const { CHROMIUM } = process.env;
  if (CHROMIUM) return CHROMIUM;
  for (const name of ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
    } catch {
      // The next one.
    }
  }
  return null;
}

const executablePath = findChromium();

/** Why tests that need a browser are left out, or false. */
const skip =
  executablePath || MUST
    ? false
    : 'there is no Chromium: install it (Debian: apt-get install chromium) or name it in CHROMIUM';

/** With a user-data folder of its own, which goes with it. */
function launch() {
  if (!executablePath) throw new Error('NEED_CHROMIUM is set and there is no Chromium');
  return chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
}

/**
 * @typedef {import('playwright-core').Page} Page
 * @typedef {import('playwright-core').BrowserContextOptions} ContextOptions
 *
 * @param {import('playwright-core').Browser} browser
 * @param {ContextOptions & { expected?: RegExp }} [options]  `expected`: what the console of the browser may say
 */
async function openPage(browser, { expected, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    timezoneId: 'Europe/Berlin',
    ...options,
  });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  page.on('pageerror', (error) => faults.push(`thrown: ${error.stack ?? error}`));
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    if (!expected?.test(message.text())) faults.push(`${message.type()}: ${message.text()}`);
  });
  page.on('request', (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol !== 'data:' && hostname !== '127.0.0.1') faults.push(`asked: ${request.url()}`);
  });
  await page.exposeFunction('noteViolation', (/** @type {string} */ text) => faults.push(text));
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      const { effectiveDirective, blockedURI, sample } = event;
      /** @type {any} */ (window).noteViolation(
        `against the policy: ${effectiveDirective} ${blockedURI} ${sample}`,
      );
    });
  });
  return { page, faults, close: () => context.close() };
}

module.exports = { launch, openPage, skip };
