/**
 * Turns as a list: a line with the latency, its stages and the reason; each links to the turn's page.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { waterfall } from "../turns.js";
import { clock, ms, short } from "./figures.js";
import { link } from "./components.js";
import { ACTIONS, why } from "./why.js";

/** @typedef {import("../turns.js").TurnRecord} TurnRecord */
/** @typedef {import("./address.js").View} View */

/**
 * @param {View} view
 * @param {TurnRecord[]} turns
 * @param {number} now_ms
 */
export function turnList(view, turns, now_ms) {
  const longest_ms = Math.max(1, ...turns.map((turn) => Math.max(turn.total_ms ?? 0, turn.total_limit_ms)));
  return make("ol", { class: "turns" }, ...turns.map((turn) => line(view, turn, longest_ms, now_ms)));
}

/**
 * @param {View} view
 * @param {TurnRecord} turn
 * @param {number} longest_ms the scale of all the list's bars
 * @param {number} now_ms
 */
function line(view, turn, longest_ms, now_ms) {
  const over = turn.total_verdict === "over";
  const figure = make("span", { class: over ? "figure alarm" : "figure" }, over ? "▲ " : "", ms(turn.total_ms));
  const words = why(turn);
  const facts = [
    clock(turn.started_at, now_ms),
    turn.agent,
    turn.outcome ?? "running",
    ...turn.actions.map((/** @type {string} */ action) => ACTIONS[action] ?? action),
    short(turn.session),
  ];
  const more = make("span", { class: "secondary facts" }, facts.join(" · "));
  const what = make("span", { class: "what" }, waits(turn, longest_ms), make("span", { class: "reason" }, words), more);
  return make("li", {}, link(view, { turn: turn.id }, { class: "turn" }, figure, what));
}

/**
 * @param {TurnRecord} turn
 * @param {number} longest_ms
 */
function waits(turn, longest_ms) {
  const track = make("span", { class: "track", "aria-hidden": "true" });
  const percent = (/** @type {number} */ value) => `${(100 * value) / (1.02 * longest_ms)}%`;
  for (const { stage, start_ms, end_ms } of waterfall(turn).waits) {
    const title = `${stageName(stage)} ${end_ms - start_ms} ms`;
    const part = make("i", { class: `segment waited stage-${stage}`, title });
    part.style.left = percent(start_ms);
    part.style.width = percent(end_ms - start_ms);
    track.append(part);
  }
  const limit = make("i", { class: "limit whole", title: `limit ${turn.total_limit_ms} ms` });
  limit.style.left = percent(turn.total_limit_ms);
  track.append(limit);
  return track;
}
