/**
 * Draws `results/growth.json` as SVG: one file of four small plots for the rows, one for the classes. Both axes are
 * logarithmic, so that sizes far apart fit one plot: what does not grow is level.
 *
 *     node bench/plot.js
 */

const fs = require('node:fs');
const path = require('node:path');

const RESULTS = path.join(__dirname, 'results');
const PLOTS = [
  { what: 'apply(event) as the listener calls it', title: 'apply(event), ns' },
  { what: 'claim(20) p50', title: 'claim(20), median, us' },
  { what: 'stateJson()', title: 'stateJson(), ms' },
  { what: 'load, walk.rows in chunks of 1,000', title: 'load, rows/s' },
];
const LINES = [
  { of: /** @type {const} */ ('ours'), name: 'this keeper', css: 'ours' },
  { of: /** @type {const} */ ('js'), name: 'plain JS', css: 'js' },
];
/** Both kinds of page: seen by the reader's system, or by nothing where it does not say. */
const STYLE = `
  text { font: 11px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 12px; }
  .grid { stroke: #24292f; stroke-opacity: .15; }
  .ours { stroke: #0a63c9; fill: #0a63c9; } .js { stroke: #b35900; fill: #b35900; }
  polyline { fill: none !important; stroke-width: 2; } .js polyline { stroke-dasharray: 5 3; }
  .key { stroke: none; }
  .paper { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } text { fill: #e6edf3; } .grid { stroke: #e6edf3; }
    .ours { stroke: #6cb6ff; fill: #6cb6ff; } .js { stroke: #f0a35e; fill: #f0a35e; }
  }`;
const [WIDTH, HEIGHT] = [380, 240];
const BOX = { left: 58, right: 14, top: 30, bottom: 42 };

/** @typedef {import('./growth.js').Point} Point */
/** @typedef {{ x: number, y: number }} Dot */

/** As an axis says it: 1, 10k, 1M, 0.01. @param {number} value */
function said(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  if (value >= 1e3) return `${value / 1e3}k`;
  return String(Number(value.toPrecision(1)));
}

/** The powers of ten around the values, and where between them each lies (0 to 1). @param {number[]} values */
function scale(values) {
  const first = Math.floor(Math.log10(Math.min(...values)) + 1e-9);
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(...values)) - 1e-9));
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  return {
    ticks,
    at: (/** @type {number} */ value) => (Math.log10(value) - first) / (last - first),
  };
}

/**
 * @param {Point[]} points @param {'rows' | 'classes'} along
 * @param {{ what: string, title: string }} plot @param {string} move
 */
function small(points, along, { what, title }, move) {
  const lines = LINES.map(({ of, name, css }) => ({
    name,
    css,
    dots: points.flatMap((point) => {
      const value = point.figures.find((figure) => figure.what === what)?.[of];
      return value === undefined ? [] : [{ x: point[along], y: value }];
    }),
  })).filter(({ dots }) => dots.length > 0);
  const all = lines.flatMap(({ dots }) => dots);
  const x = scale(all.map((dot) => dot.x));
  const y = scale(all.map((dot) => dot.y));
  const px = (/** @type {number} */ value) =>
    (BOX.left + x.at(value) * (WIDTH - BOX.left - BOX.right)).toFixed(1);
  const py = (/** @type {number} */ value) =>
    (HEIGHT - BOX.bottom - y.at(value) * (HEIGHT - BOX.top - BOX.bottom)).toFixed(1);
  const [bottom, right] = [HEIGHT - BOX.bottom, WIDTH - BOX.right];
  const axes = [
    ...x.ticks.map(
      (tick) =>
        `<line class="grid" x1="${px(tick)}" x2="${px(tick)}" y1="${BOX.top}" y2="${bottom}"/>` +
        `<text x="${px(tick)}" y="${bottom + 15}" text-anchor="middle">${said(tick)}</text>`,
    ),
    ...y.ticks.map(
      (tick) =>
        `<line class="grid" x1="${BOX.left}" x2="${right}" y1="${py(tick)}" y2="${py(tick)}"/>` +
        `<text x="${BOX.left - 6}" y="${Number(py(tick)) + 4}" text-anchor="end">${said(tick)}</text>`,
    ),
  ];
  const drawn = lines.map(({ css, dots }) => {
    const path = dots.map((dot) => `${px(dot.x)},${py(dot.y)}`).join(' ');
    const marks = dots.map((dot) => `<circle cx="${px(dot.x)}" cy="${py(dot.y)}" r="3"/>`);
    return `<g class="${css}"><polyline points="${path}"/>${marks.join('')}</g>`;
  });
  return `<g transform="translate(${move})">
<text class="title" x="${BOX.left}" y="18">${title}</text>
${axes.join('\n')}
${drawn.join('\n')}
<text x="${(BOX.left + right) / 2}" y="${HEIGHT - 8}" text-anchor="middle">${along}</text>
</g>`;
}

/** @param {Point[]} points @param {'rows' | 'classes'} along */
function sheet(points, along) {
  // Not each size has each figure, but these it must have.
  const whole = PLOTS.every(({ what }) =>
    points.every(({ figures }) => figures.some((figure) => figure.what === what)),
  );
  if (!whole || points.length === 0) throw new Error('results/growth.json is not of a whole run');
  const plots = PLOTS.map((plot, i) =>
    small(points, along, plot, `${(i % 2) * WIDTH} ${24 + Math.floor(i / 2) * HEIGHT}`),
  );
  const keys = LINES.map(
    ({ name, css }, i) =>
      `<rect class="${css} key" x="${BOX.left + i * 110}" y="9" width="14" height="10"/>` +
      `<text x="${BOX.left + 20 + i * 110}" y="18">${name}</text>`,
  );
  const [width, height] = [2 * WIDTH, 24 + Math.ceil(PLOTS.length / 2) * HEIGHT];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="How the figures grow with the ${along}">
<style>${STYLE}
</style>
<rect class="paper" width="${width}" height="${height}"/>
${keys.join('\n')}
${plots.join('\n')}
</svg>
`;
}

function main() {
  const grown = JSON.parse(fs.readFileSync(path.join(RESULTS, 'growth.json'), 'utf8'));
  for (const [along, points] of /** @type {const} */ ([
    ['rows', grown.byRows],
    ['classes', grown.byClasses],
  ])) {
    const file = path.join(RESULTS, `growth-${along}.svg`);
    fs.writeFileSync(file, sheet(points, along));
    console.log(`Written: ${path.relative(process.cwd(), file)}`);
  }
}

main();
