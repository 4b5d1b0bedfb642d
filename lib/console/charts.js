/**
 * The two charts. Each says nothing that the table below it does not say, so that where the library is not served
 * (a folder copied without it) the tables are opened in their place.
 */

import { clock } from './text.js';

const HEIGHT = 190;

/** @param {string} name */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @type {Promise<any> | null} */
let loading = null;

function library() {
  loading ??= import(new URL('./vendor/uPlot.esm.js', import.meta.url).href).then(
    (module) => module.default,
    () => null,
  );
  return loading;
}

class Chart {
  /** @type {any} */
  #plot = null;
  /** @type {any[] | null} */
  #data = null;
  #place;
  #options;

  /** @param {HTMLElement} place @param {(Plot: any) => object} options */
  constructor(place, options) {
    this.#place = place;
    this.#options = options;
  }

  /** @param {any[]} data */
  async set(data) {
    this.#data = data;
    const Plot = await library();
    if (!Plot) {
      this.#place.hidden = true;
      const table = this.#place.parentElement?.querySelector('details');
      if (table) table.open = true;
      return;
    }
    // Answers may come while the library does.
    if (!this.#plot) {
      this.#plot = new Plot({ ...this.#size(), ...this.#options(Plot) }, this.#data, this.#place);
      new ResizeObserver(() => {
        const size = this.#size();
        if (size.width > 0 && size.width !== this.#plot.width) this.#plot.setSize(size);
      }).observe(this.#place);
      matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
        this.#plot.redraw(true, true);
      });
    } else this.#plot.setData(this.#data);
  }

  #size() {
    return { width: this.#place.clientWidth, height: HEIGHT };
  }
}

/** @param {object} more */
function axis(more) {
  return {
    stroke: () => color('--muted'),
    grid: { stroke: () => color('--grid'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
    ...more,
  };
}

const counts = axis({
  size: 52,
  incrs: [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7,
  ],
  values: (/** @type {any} */ _plot, /** @type {number[]} */ values) =>
    values.map((value) => (value >= 10_000 ? `${value / 1_000}k` : String(value))),
});

const base = {
  legend: { show: false },
  cursor: { show: false },
  padding: [8, 8, 0, 0],
};

/** @param {HTMLElement} place */
export function hoursChart(place) {
  let from = 0;
  const chart = new Chart(place, (Plot) => ({
    ...base,
    scales: {
      x: { time: false, range: () => [-0.6, 23.6] },
      y: {
        range: (
          /** @type {any} */ _plot,
          /** @type {number} */ _min,
          /** @type {number} */ max,
        ) => [0, Math.max(1, max) * 1.05],
      },
    },
    axes: [
      axis({
        size: 30,
        grid: { show: false },
        splits: () => [0, 4, 8, 12, 16, 20],
        values: (/** @type {any} */ _plot, /** @type {number[]} */ hours) =>
          hours.map((hour) => clock(from + hour * 3_600_000)),
      }),
      counts,
    ],
    series: [
      {},
      {
        stroke: () => color('--s1'),
        fill: () => color('--s1'),
        width: 0,
        points: { show: false },
        paths: Plot.paths.bars({ size: [0.75, 60] }),
      },
    ],
  }));
  return {
    /** @param {number} since @param {(number | null)[]} hours */
    set(since, hours) {
      from = since;
      return chart.set([hours.map((_, hour) => hour), hours]);
    },
  };
}

/** What the flow counts, in the order in which it is listed and drawn. */
export const FLOWS = [
  { name: 'cameDue', label: 'Came due', dash: [] },
  { name: 'rescheduled', label: 'Rescheduled', dash: [8, 4] },
  { name: 'added', label: 'Added', dash: [2, 3] },
  { name: 'triggered', label: 'Triggered', dash: [10, 3, 2, 3] },
  { name: 'removed', label: 'Removed', dash: [4, 2] },
];

/** @param {HTMLElement} place */
export function flowChart(place) {
  const chart = new Chart(place, () => ({
    ...base,
    scales: {
      // The last minute is not to lie on the edge.
      x: {
        time: true,
        range: (/** @type {any} */ _plot, /** @type {number} */ min, /** @type {number} */ max) => [
          min,
          max + 60,
        ],
      },
      y: {
        range: (
          /** @type {any} */ _plot,
          /** @type {number} */ _min,
          /** @type {number} */ max,
        ) => [0, Math.max(1, max) * 1.05],
      },
    },
    axes: [
      axis({
        size: 30,
        grid: { show: false },
        space: 60,
        values: (/** @type {any} */ _plot, /** @type {number[]} */ seconds) =>
          seconds.map((second) => clock(second * 1_000)),
      }),
      counts,
    ],
    series: [
      {},
      ...FLOWS.map(({ dash }, index) => ({
        stroke: () => color(`--s${index + 1}`),
        width: 1.75,
        dash,
        // A minute between two that are not known is a point, and no line.
        points: { show: true, size: 4, width: 0, fill: () => color(`--s${index + 1}`) },
      })),
    ],
  }));
  return {
    /** @param {{ minute: number, counts: (number | null)[] }[]} minutes */
    set(minutes) {
      return chart.set([
        minutes.map(({ minute }) => minute * 60),
        ...FLOWS.map((_, index) => minutes.map(({ counts }) => counts[index])),
      ]);
    },
  };
}
