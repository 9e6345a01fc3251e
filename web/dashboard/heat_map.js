/**
 * Turn latencies over time as a heat map: a column for each step, a row for each band of latency, darker with more turns.
 *
 * @module
 */

import { make } from "../elements.js";
import { count } from "./figures.js";

/** @typedef {{from_ms: number, bands: number[]}} Point */
/** @typedef {{since_ms: number, until_ms: number, step_ms: number, limit_ms: number}} Range */

/** The faintest cell that has turns, as a share of the darkest. */
const FAINTEST = 0.18;

/**
 * @param {Point[]} points
 * @param {Range} range
 * @param {number[]} bounds_ms the upper bounds of the bands; the last band has none
 * @returns {HTMLElement}
 */
export function heatMap(points, range, bounds_ms) {
  const known = new Map(points.map((point) => [point.from_ms, point.bands]));
  /** @type {number[]} */
  const steps = [];
  for (let at = range.since_ms - (range.since_ms % range.step_ms); at < range.until_ms; at += range.step_ms) steps.push(at);
  const most = Math.max(1, ...points.flatMap(({ bands }) => bands));
  const map = make("div", { class: "heat", role: "img", "aria-label": words(points, bounds_ms) });
  map.style.setProperty("--steps", String(steps.length));
  for (let band = bounds_ms.length; band >= 0; band -= 1) {
    map.append(make("span", { class: "band" }, nameOf(band, bounds_ms)));
    const low_ms = band ? bounds_ms[band - 1] : 0;
    for (const at of steps) map.append(cell(known.get(at)?.[band] ?? 0, most, low_ms >= range.limit_ms, at, nameOf(band, bounds_ms)));
  }
  return map;
}

/**
 * @param {number} turns
 * @param {number} most
 * @param {boolean} isLate
 * @param {number} at_ms
 * @param {string} band
 */
function cell(turns, most, isLate, at_ms, band) {
  if (!turns) return make("i", {});
  const time = new Date(at_ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const element = make("i", { class: isLate ? "late" : "timely", title: `${time}, ${band} ms: ${count(turns, "turn")}` });
  element.style.opacity = String(FAINTEST + (1 - FAINTEST) * Math.sqrt(turns / most));
  return element;
}

/**
 * @param {number} band
 * @param {number[]} bounds_ms
 */
function nameOf(band, bounds_ms) {
  if (band === bounds_ms.length) return `> ${bounds_ms[band - 1]}`;
  return `≤ ${bounds_ms[band]}`;
}

/**
 * @param {Point[]} points
 * @param {number[]} bounds_ms
 */
function words(points, bounds_ms) {
  const sums = [...bounds_ms, 0].map((_, band) => points.reduce((sum, { bands }) => sum + bands[band], 0));
  const filled = sums.map((turns, band) => [turns, band]).filter(([turns]) => turns);
  const list = filled.map(([turns, band]) => `${nameOf(band, bounds_ms)} ms ${count(turns, "turn")}`).join(", ");
  return `Turns by their latency: ${list || "none"}.`;
}
