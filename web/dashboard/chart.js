/**
 * Latency over time: a bar for each step, stacked from the stages' means, and the 95th percentile. Drawn by uPlot, which
 * is unmodified in web/vendor/uplot.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { whole } from "./figures.js";
import { STAGES } from "./stage_bar.js";

/** The published file has no types. */
const Plot = /** @type {any} */ (uPlot);

const HEIGHT_PX = 220;

/** The share of a step's width that its bar takes. */
const BAR = 0.72;

/** @typedef {{from_ms: number, turns: number, over: number, p95_ms: number | null, critical: Record<string, number>}} Point */

/** Draws one series; lives as long as the page does. */
export class Chart {
  constructor() {
    this.place = make("div", { class: "chart", role: "img" });
    /** @type {any} */
    this.plot = null;
    this.drawn = "";
    /** @type {() => void} */
    this.again = () => {};
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.again());
    new ResizeObserver(() => this.plot?.setSize({ width: this.width, height: HEIGHT_PX })).observe(this.place);
  }

  get width() {
    return Math.max(240, this.place.clientWidth);
  }

  /**
   * @param {Point[]} points steps without turns are left out
   * @param {{since_ms: number, until_ms: number, step_ms: number, limit_ms: number}} range
   */
  show(points, range) {
    this.again = () => {
      this.plot?.destroy();
      this.plot = new Plot(options(range, this.width), data(points, range), this.place);
    };
    const what = JSON.stringify([points, range]);
    if (what === this.drawn) return;
    this.drawn = what;
    this.place.setAttribute("aria-label", words(points, range));
    this.again();
  }
}

/**
 * Return uPlot's columns: times, then each stage stacked on those before it, the top first so that the lower are drawn
 * over it, then the percentile.
 *
 * @param {Point[]} points
 * @param {{since_ms: number, until_ms: number, step_ms: number}} range
 */
function data(points, { since_ms, until_ms, step_ms }) {
  const known = new Map(points.map((point) => [point.from_ms, point]));
  /** @type {number[]} */
  const times = [];
  for (let at = since_ms - (since_ms % step_ms); at < until_ms; at += step_ms) times.push(at);
  const heaps = STAGES.map((_, top) =>
    times.map((at) => {
      const point = known.get(at);
      if (!point?.turns) return null;
      return STAGES.slice(0, top + 1).reduce((sum, stage) => sum + (point.critical[stage] ?? 0), 0);
    }),
  );
  const late = times.map((at) => known.get(at)?.p95_ms ?? null);
  return [times.map((at) => (at + step_ms / 2) / 1000), ...heaps.toReversed(), late];
}

/**
 * @param {{since_ms: number, until_ms: number, step_ms: number, limit_ms: number}} range
 * @param {number} width
 */
function options({ since_ms, until_ms, step_ms, limit_ms }, width) {
  const colour = (/** @type {string} */ name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  const axis = { stroke: colour("secondary"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
  const bars = Plot.paths.bars({ size: [BAR, 48] });
  const stages = STAGES.toReversed().map((stage) => ({
    label: stageName(stage),
    fill: colour(stage),
    width: 0,
    paths: bars,
    points: { show: false },
  }));
  const start_ms = since_ms - (since_ms % step_ms);
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { range: [start_ms / 1000, (start_ms + Math.ceil((until_ms - start_ms) / step_ms) * step_ms) / 1000] },
      y: {
        range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [
          0,
          1.08 * Math.max(most || 0, limit_ms),
        ],
      },
    },
    axes: [
      { ...axis, grid: { show: false }, values: clocks, space: 70, size: 30 },
      { ...axis, size: 52, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map(whole) },
    ],
    series: [
      {},
      ...stages,
      {
        label: "p95",
        stroke: colour("ink"),
        width: 0,
        paths: () => null,
        points: { show: true, size: 9, fill: colour("paper"), stroke: colour("ink"), width: 2 },
      },
    ],
    hooks: { draw: [(/** @type {any} */ plot) => drawLimit(plot, limit_ms, colour("alarm"))] },
  };
}

/**
 * @param {any} _
 * @param {number[]} splits seconds
 */
function clocks(_, splits) {
  return splits.map((at_s) =>
    new Date(at_s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  );
}

/**
 * @param {any} plot
 * @param {number} limit_ms
 * @param {string} colour
 */
function drawLimit(plot, limit_ms, colour) {
  const { ctx, bbox } = plot;
  const y = Math.round(plot.valToPos(limit_ms, "y", true));
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/**
 * @param {Point[]} points
 * @param {{limit_ms: number}} range
 */
function words(points, { limit_ms }) {
  const late = points.filter(({ p95_ms }) => p95_ms !== null && p95_ms > limit_ms).length;
  const worst = Math.max(0, ...points.map(({ p95_ms }) => p95_ms ?? 0));
  return (
    `Mean turn latency over time, by stage: ${points.length} steps with turns; ` +
    `the 95th percentile was over the limit of ${limit_ms} ms in ${late} of them, ${whole(worst)} ms at most.`
  );
}
