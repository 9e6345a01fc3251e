/**
 * The arms of experiments side by side: latency, cost and quality, each with its interval, and the winner if there is one.
 *
 * @module
 */

import { make } from "../elements.js";
import { row, section, table } from "./components.js";
import { percent, share, usd, whole } from "./figures.js";

const SOURCES = { user: "Users: good", judge: "Judge: good" };

const WORDS =
  "In brackets: the interval that holds the true figure in 95 of 100 experiments. An arm has won when its share of good " +
  "answers lies above the intervals of all others.";

/**
 * @param {any[]} found of `GET /v1/experiments`
 * @returns {Node[]} one section for each experiment
 */
export function experiments(found) {
  return found.map(({ name, arms, winner }) => {
    const heads = ["Arm", "Turns", "Failed", "Turn latency, median ms", "Cost of a turn", ...Object.values(SOURCES)];
    const rows = arms.map((/** @type {any} */ arm) => line(arm, winner));
    const verdict = winner === null ? "No arm has won yet. " : `${named(winner)} has won. `;
    const body = table(`experiment-${name}`, `The arms of ${name}`, heads, rows);
    return section(`of-experiment-${name}`, `Experiment ${name}`, body, make("p", { class: "secondary" }, verdict, WORDS));
  });
}

/**
 * @param {any} arm
 * @param {string | null} winner
 */
function line(arm, winner) {
  const { pool, turns, failed, latency_ms, usd: cost, quality } = arm;
  const scores = Object.keys(SOURCES).map((source) => good(quality[source]));
  const latency = latency_ms ? `${whole(latency_ms.value)} (${whole(latency_ms.low)} to ${whole(latency_ms.high)})` : "–";
  const money = `${usd(cost.value)} (${usd(cost.low)} to ${usd(cost.high)})`;
  const cells = [String(turns), `${failed} (${share(failed, turns)})`, latency, money, ...scores];
  return row(pool === winner ? `★ ${named(pool)}` : named(pool), cells);
}

/** @param {any} quality of one source; undefined: it gave no score */
function good(quality) {
  if (!quality) return "–";
  const { value, low, high } = quality.share;
  return `${quality.good} of ${quality.scores}, ${percent(value)} (${percent(low)} to ${percent(high)})`;
}

/** @param {string} pool empty: the turns in no arm */
function named(pool) {
  return pool || "no arm";
}
