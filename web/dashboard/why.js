/**
 * Why a turn was slow, in one plain sentence. No DOM.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";

/** @typedef {import("../turns.js").TurnRecord} TurnRecord */

/** The end of the turn, where no ear is to blame. @type {Record<string, (ms: number) => string>} */
const ENDED = {
  settings: (ms) => `it took ${ms} ms to be sure that the user had finished`,
  client: (ms) => `it took ${ms} ms until the client wanted an answer`,
  server: (ms) => `the server took ${ms} ms to ask the model`,
};

/** What a stage did, with whom and for how long put in. @type {Record<string, (who: string, ms: number) => string>} */
const DID = {
  endpoint: (who, ms) => `the STT ${who} was late with its text, ${ms} ms until the LLM request`,
  llm_ttft: (who, ms) => `the model${who && ` ${who}`} took ${ms} ms to its first words`,
  first_clause: (who, ms) => `the model${who && ` ${who}`} took ${ms} ms to finish its first clause`,
  tts_ttfb: (who, ms) => `the voice${who && ` ${who}`} took ${ms} ms to its first sound`,
  overhead: (_, ms) => `the server itself held it up for ${ms} ms`,
  playback: (_, ms) => `the sound took ${ms} ms to reach the user`,
};

/** What the marks are, in words. */
export const MARKS = /** @type {Record<string, string>} */ ({
  voiced_last: "Last sound of the user, or their request",
  flushed: "Final transcript requested",
  transcribed: "Text final",
  ended: "Turn judged to be over",
  requested: "Reply requested",
  llm_requested: "Question sent to the model",
  connected: "Model's provider connected",
  first_delta: "First words of the model",
  first_clause: "First clause given to the voice",
  first_sound: "First sound of the voice",
  gate_opened: "Gate opened: the answer may leave",
  first_sent: "First sound sent",
  first_audible: "Heard by the user",
  last_delta: "Last words of the model",
  filler_sent: "Filler sent",
  filler_audible: "Filler audible",
});

/** @type {Record<string, string>} */
export const ACTIONS = {
  hedge: "started a second model",
  fallback: "went over to another provider",
  continuation: "let another model finish the answer",
  short_clause: "spoke a shorter first clause",
  filler: "said a filler",
  apology: "apologised",
};

/**
 * The stage that took most beyond its limit while the user waited; without one, the longest wait.
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
 * One sentence.
 *
 * @param {TurnRecord} turn
 */
export function why(turn) {
  if (turn.outcome === null) return "This turn is still being spoken.";
  if (turn.total_ms === null) return unplayed(turn);
  const stage = culprit(turn);
  if (turn.total_verdict !== "over") return within(turn, stage);
  return `${turn.total_ms - turn.total_limit_ms} ms too late${stage ? `: ${blame(stage)}` : ""}.`;
}

/** @param {any} stage the worst one */
function blame(stage) {
  const did = deed(stage);
  if (stage.waited_ms > stage.limit_ms) return `${did}, of ${stage.limit_ms} allowed`;
  return `no stage broke its limit, but all together did. Longest: ${did}`;
}

/** @param {any} stage */
function deed({ stage, owner, waited_ms }) {
  if (stage === "endpoint" && ENDED[owner]) return ENDED[owner](waited_ms);
  const who = ENDED[owner] ? "" : owner;
  return DID[stage]?.(who, waited_ms) ?? `${stageName(stage)} took ${waited_ms} ms`;
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
function unplayed(turn) {
  const reason = turn.reason ? ` (${turn.reason})` : "";
  if (turn.outcome === "failed") return `It failed before anything was played${reason}.`;
  return `Nothing of it was played: ${turn.outcome}${reason}.`;
}
