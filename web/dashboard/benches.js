/**
 * The scheduled benches: the latest run of each model, what has changed since the runs before it, and the cost.
 *
 * @module
 */

import { make } from "../elements.js";
import { row, section, table } from "./components.js";
import { clock, usd, whole } from "./figures.js";

/** @type {Record<string, string>} the result of a run on the page */
const RESULTS = { measured: "● measured", began: "◐ running", failed: "▲ failed", over_cap: "▲ left out: cost" };

/**
 * @param {any} state of `GET /v1/benches`
 * @returns {Node[]} nothing without scheduled benches
 */
export function benches({ data, day_usd, usd_per_day, month_usd, usd_per_month }) {
  if (!data.length) return [];
  const words = (/** @type {string} */ text) => make("th", { scope: "col", class: "words" }, text);
  const heads = ["Bench, model", words("Latest run"), "Answers", "p50, ms", "p95, ms", words("Changed"), words("Next")];
  const cost = `Today ${usd(day_usd)} of ${usd(usd_per_day)}, this month ${usd(month_usd)} of ${usd(usd_per_month)}.`;
  const body = table("bench-table", "Scheduled benches", heads, data.map(line));
  return [section("benches", "Scheduled benches", body, make("p", { class: "secondary" }, cost))];
}

/** @param {any} bench */
function line({ bench, stage, id, at_ms, result, why, answers, p50_ms, p95_ms, changes, next_at_ms }) {
  const drifted = changes.filter((/** @type {any} */ each) => each.drifted).map(change);
  const ran = result ? `${RESULTS[result] ?? result}, ${clock(at_ms, Date.now())}` : "–";
  const state = make("td", { class: result === "failed" || result === "over_cap" ? "alarm words" : "words" }, ran);
  if (why) state.append(make("span", { class: "failure" }, ` ${why}`));
  return row(`${bench}: ${stage.toUpperCase()} ${id}`, [
    state,
    String(answers),
    whole(p50_ms),
    whole(p95_ms),
    make("td", { class: drifted.length ? "alarm words" : "words" }, drifted.length ? `▲ ${drifted.join(", ")}` : "–"),
    make("td", { class: "words" }, clock(next_at_ms, Date.now())),
  ]);
}

/** @param {any} each a figure that has drifted */
function change({ figure, change_ms: { value, low, high } }) {
  const signed = (/** @type {number} */ ms) => (ms > 0 ? "+" : "") + whole(ms);
  return `${figure} ${signed(value)} ms (${signed(low)} to ${signed(high)})`;
}
