/**
 * Latency by stage: the mean critical path on one bar; hidden time is shown apart.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { whole } from "./figures.js";

/** @typedef {Record<string, any>} StageStats */

/** The stages in the order of a turn; others come after. */
export const STAGES = [
  "silence",
  "endpoint",
  "speech_to_speech",
  "llm_ttft",
  "tool",
  "first_clause",
  "tts_ttfb",
  "overhead",
  "earlier_audio",
  "playback",
];

/** A narrower part of the bar has no figure in it. */
const MIN_LABELLED_SHARE = 0.06;

/**
 * Return the stages without the total, in order.
 *
 * @param {{stages: StageStats[]}} stats
 */
export function stagesOf({ stages }) {
  const place = (/** @type {StageStats} */ { stage }) => (STAGES.includes(stage) ? STAGES.indexOf(stage) : STAGES.length);
  return stages.filter(({ stage }) => stage !== "total").toSorted((a, b) => place(a) - place(b));
}

/** @param {{stages: StageStats[]}} stats */
export function totalOf({ stages }) {
  return stages.find(({ stage }) => stage === "total") ?? null;
}

/**
 * @param {any} stats
 * @param {number} limit_ms the total limit
 */
export function second(stats, limit_ms) {
  const measured = totalOf(stats)?.count ?? 0;
  const stages = stagesOf(stats);
  // A stage that a turn lacks counts as 0 ms, so that the parts sum to the mean of the total.
  const waits = stages.map((each) => ({ ...each, ms: measured ? (each.critical_ms * each.count) / measured : 0 }));
  const hidden = stages.map((each) => ({ ...each, ms: measured ? (each.hidden_ms * each.count) / measured : 0 }));
  const sum_ms = sum(waits);
  const length_ms = 1.05 * Math.max(sum_ms, limit_ms, sum(hidden));
  return [
    make("p", { class: "reason" }, sentence(waits, sum_ms)),
    bar("waited", "Mean critical path", waits, length_ms, limit_ms),
    ...(sum(hidden) < 0.5 ? [] : [bar("hidden", "Hidden meanwhile", hidden, length_ms, null)]),
    legend(waits, hidden, limit_ms),
  ];
}

/** @param {{ms: number}[]} parts */
function sum(parts) {
  return parts.reduce((all, { ms }) => all + ms, 0);
}

/**
 * @param {StageStats[]} waits
 * @param {number} sum_ms
 */
function sentence(waits, sum_ms) {
  const longest = waits.toSorted((a, b) => b.ms - a.ms)[0];
  if (!longest || sum_ms <= 0) return "There was no wait.";
  const words = `Users waited longest for “${stageName(longest.stage)}”: `;
  return `${words}${whole(longest.ms)} of ${whole(sum_ms)} ms on average.`;
}

/**
 * @param {"waited" | "hidden"} look
 * @param {string} words
 * @param {StageStats[]} parts
 * @param {number} length_ms
 * @param {number | null} limit_ms
 */
function bar(look, words, parts, length_ms, limit_ms) {
  const visible = parts.filter(({ ms }) => ms >= 0.5);
  const description = visible.map(({ stage, ms }) => `${stageName(stage)} ${whole(ms)} ms`).join(", ") || "nothing";
  const label = `${words}: ${description}${limit_ms === null ? "" : `; limit ${limit_ms} ms`}`;
  const track = make("div", { class: `track stacked ${look}`, role: "img", "aria-label": label });
  let start_ms = 0;
  for (const { stage, ms } of visible) {
    const part = make("i", { class: `segment ${look} stage-${stage}`, title: `${stageName(stage)} ${whole(ms)} ms` });
    part.style.left = `${(100 * start_ms) / length_ms}%`;
    part.style.width = `${(100 * ms) / length_ms}%`;
    if (look === "waited" && ms / length_ms > MIN_LABELLED_SHARE) part.append(make("b", {}, whole(ms)));
    track.append(part);
    start_ms += ms;
  }
  if (limit_ms !== null) {
    const line = make("i", { class: "limit whole", title: `limit ${limit_ms} ms` });
    line.style.left = `${(100 * limit_ms) / length_ms}%`;
    track.append(line);
  }
  return make("div", { class: "stack" }, make("span", { class: "secondary", "aria-hidden": "true" }, words), track);
}

/**
 * @param {StageStats[]} waits
 * @param {StageStats[]} hidden
 * @param {number} limit_ms
 */
function legend(waits, hidden, limit_ms) {
  const keys = waits.map(({ stage, ms }, i) => {
    const behind = hidden[i].ms >= 0.5 ? `, ${whole(hidden[i].ms)} hidden` : "";
    return make("span", {}, make("i", { class: `key stage-${stage}` }), `${stageName(stage)} ${whole(ms)}${behind}`);
  });
  const limit = make("span", {}, make("i", { class: "key line" }), `limit ${limit_ms} ms`);
  return make("p", { class: "legend secondary", "aria-hidden": "true" }, ...keys.flatMap((key) => [key, " "]), limit);
}
