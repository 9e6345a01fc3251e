/**
 * Whose the late turns are: a bar for each stage and owner that broke its limit, by its share of the late turns.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { empty } from "./components.js";
import { count, share } from "./figures.js";

/** The owners that are no provider. @type {Record<string, string>} */
const OWNERS = { settings: "settings", client: "client", server: "this server" };

/** Causes beyond these are summed up in one line. */
const MAX_CAUSES = 6;

/** @typedef {{stage: string, owner: string, turns: number}} Cause */

/**
 * @param {{over: number, late_causes: Cause[]}} stats
 * @returns {HTMLElement}
 */
export function lateCauses({ over, late_causes }) {
  if (!over) return empty("No turn was over the limit.");
  const listed = late_causes.slice(0, MAX_CAUSES);
  const rest = over - listed.reduce((sum, { turns }) => sum + turns, 0);
  const lines = listed.map(({ stage, owner, turns }) => line(stage, nameOf(stage, owner), turns, over));
  if (rest > 0) lines.push(line("", "other causes", rest, over));
  return make("ol", { class: "causes" }, ...lines);
}

/**
 * @param {string} stage
 * @param {string} owner
 */
function nameOf(stage, owner) {
  const what = stage === "total" ? "All stages together, most of it" : stageName(stage);
  return owner ? `${what}: ${OWNERS[owner] ?? owner}` : what;
}

/**
 * @param {string} stage
 * @param {string} name
 * @param {number} turns
 * @param {number} over
 */
function line(stage, name, turns, over) {
  const track = make("span", { class: "track", "aria-hidden": "true" });
  const part = make("i", { class: `segment waited stage-${stage || "other"}` });
  part.style.left = "0";
  part.style.width = `${(100 * turns) / over}%`;
  track.append(part);
  const figure = make("span", { class: "figure" }, share(turns, over));
  const words = make("span", { class: "secondary" }, `${count(turns, "late turn")}`);
  return make("li", {}, make("span", { class: "name" }, name), figure, track, words);
}
