/**
 * Why a turn was slow, in one plain sentence. No DOM.
 *
 * @module
 */

import { stageName } from "../bars.js";

/** @typedef {import("../turns.js").TurnRecord} TurnRecord */

/** @type {Record<string, string>} */
const DID = {
  endpoint: "it waited for the caller's turn to be over",
  llm_ttft: "the model let its first words be waited for",
  first_clause: "the model was slow to finish its first clause",
  tts_ttfb: "the voice let its first sound be waited for",
  overhead: "the server itself held it up",
  playback: "the sound was slow to reach the caller",
};

/** What the marks are, in words. */
export const MARKS = /** @type {Record<string, string>} */ ({
  voiced_last: "Last sound of the caller, or their request",
  flushed: "Ear asked for its text",
  transcribed: "Text final",
  ended: "Turn judged to be over",
  requested: "Reply asked for",
  asked: "Question sent to the model",
  connected: "Model's provider connected",
  first_delta: "First words of the model",
  first_clause: "First clause given to the voice",
  first_sound: "First sound of the voice",
  gate_opened: "Gate opened: the answer may leave",
  first_sent: "First sound sent",
  heard: "Heard by the caller",
  filler_sent: "Filler sent",
  filler_heard: "Filler heard",
});

/** @type {Record<string, string>} */
export const ACTIONS = {
  hedge: "asked a second model too",
  fallback: "went over to another provider",
  continuation: "let another model finish the answer",
  short_clause: "spoke a shorter first clause",
  filler: "said a filler",
  apology: "apologised",
};

/**
 * The stage that took most beyond its limit while the caller waited; without one, the longest wait.
 *
 * @param {TurnRecord} turn
 * @returns {any} of `turn.stages`, with `waited_ms`; null when nothing was waited for
 */
export function culprit(turn) {
  const waited = (/** @type {any} */ stage) =>
    turn.contributions
      .filter((/** @type {any} */ part) => part.stage === stage.stage)
      .reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + part.duration_ms, 0);
  const stages = turn.stages.map((/** @type {any} */ stage) => ({ ...stage, waited_ms: waited(stage) }));
  const beyond = (/** @type {any} */ stage) => stage.waited_ms - stage.limit_ms;
  const worst = stages.toSorted((/** @type {any} */ a, /** @type {any} */ b) => beyond(b) - beyond(a))[0];
  if (worst && beyond(worst) > 0) return worst;
  return stages.toSorted((/** @type {any} */ a, /** @type {any} */ b) => b.waited_ms - a.waited_ms)[0] ?? null;
}

/**
 * One sentence, and the setting that would move it.
 *
 * @param {TurnRecord} turn
 * @returns {{words: string, setting: string}} `setting` is empty when nothing needs moving
 */
export function why(turn) {
  if (turn.outcome === null) return { words: "This turn is still being spoken.", setting: "" };
  if (turn.total_ms === null) return { words: unheard(turn), setting: "" };
  const stage = culprit(turn);
  if (turn.total_verdict !== "over") return { words: within(turn, stage), setting: "" };
  const words = `${turn.total_ms - turn.total_limit_ms} ms too late`;
  if (!stage) return { words: `${words}.`, setting: turn.breach?.setting ?? "" };
  return { words: `${words}: ${blame(turn, stage)}.`, setting: turn.breach?.setting ?? "" };
}

/**
 * @param {TurnRecord} turn
 * @param {any} stage
 */
function blame(turn, stage) {
  const limit = stage.waited_ms > stage.limit_ms ? `, of ${stage.limit_ms} allowed` : ", the longest wait of all";
  return `${DID[stage.stage] ?? stageName(stage.stage)} for ${stage.waited_ms} ms${limit}${whose(stage.owner)}`;
}

/** @param {string} owner */
function whose(owner) {
  if (owner === "settings") return " (how long silence must last is a setting)";
  if (owner === "client") return " (up to the caller's side)";
  return owner === "server" ? "" : ` (${owner})`;
}

/**
 * @param {TurnRecord} turn
 * @param {any} stage
 */
function within(turn, stage) {
  const words = `In time, ${turn.total_limit_ms - turn.total_ms} ms to spare`;
  return stage ? `${words}. Longest wait: ${stageName(stage.stage)}, ${stage.waited_ms} ms.` : `${words}.`;
}

/** @param {TurnRecord} turn */
function unheard(turn) {
  const reason = turn.reason ? ` (${turn.reason})` : "";
  if (turn.outcome === "failed") return `It failed before anything was heard${reason}.`;
  return `Nothing of it was heard: ${turn.outcome}${reason}.`;
}
