/**
 * Explain in one sentence why a turn was slow. No DOM.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";

/** @typedef {import("../turns.js").TurnRecord} TurnRecord */

/** The stage `endpoint` by its owner, where that is not the STT. @type {Record<string, (ms: number) => string>} */
const ENDED = {
  client: (ms) => `it took ${ms} ms until the client requested an answer`,
  server: (ms) => `the server took ${ms} ms to send the LLM request`,
};

/** The other stages, each by its owner and duration. @type {Record<string, (owner: string, ms: number) => string>} */
const DID = {
  silence: (_, ms) => `${ms} ms of silence were chosen to end the turn`,
  endpoint: (owner, ms) => `the STT ${owner} was late with its text, ${ms} ms until the LLM request`,
  llm_ttft: (owner, ms) => `the LLM${owner && ` ${owner}`} took ${ms} ms to its first token`,
  first_clause: (owner, ms) => `the LLM${owner && ` ${owner}`} took ${ms} ms to finish its first clause`,
  tts_ttfb: (owner, ms) => `the TTS${owner && ` ${owner}`} took ${ms} ms to its first audio`,
  speech_to_speech: (owner, ms) => `the speech-to-speech model${owner && ` ${owner}`} took ${ms} ms to its first audio`,
  overhead: (_, ms) => `the server itself took ${ms} ms`,
  earlier_audio: (_, ms) => `the answer waited ${ms} ms for other audio of the agent to be played`,
  playback: (_, ms) => `playback took ${ms} ms`,
};

/** What the provider of a stage is that another one may end in its place. @type {Record<string, string>} */
const KINDS = { endpoint: "stt", llm_ttft: "llm", tts_ttfb: "tts" };

/** The names of the marks on the page. */
export const MARKS = /** @type {Record<string, string>} */ ({
  voiced_last: "User's last voiced sample (t0), or request",
  start_due: "Silence long enough to begin a reply",
  end_due: "Chosen silence over",
  flushed: "Final transcript requested",
  transcribed: "Final transcript",
  ended: "End of turn",
  requested: "Reply requested",
  speech_requested: "Speech-to-speech request sent",
  llm_requested: "LLM request sent",
  connected: "LLM connected",
  first_delta: "LLM first token",
  first_clause: "First clause sent to TTS",
  first_sound: "TTS first byte",
  gate_opened: "Release gate opened",
  first_sent: "First audio sent",
  earlier_audio_ended: "Audio before the answer played",
  first_audible: "First audible sample at the client",
  last_delta: "LLM last token",
  call_written_: "Function call written, held back, round",
  tool_called_: "Function call sent to the client, round",
  tool_returned_: "Reply with the result requested, round",
  speech_requested_: "Speech-to-speech request sent, of the reply that called, round",
  llm_requested_: "LLM request sent, of the reply that called, round",
  first_audible_: "First audible sample before the call, round",
  filler_sent: "Filler sent",
  filler_audible: "Filler audible",
});

/** @type {Record<string, string>} */
export const ACTIONS = {
  hedge: "started a second LLM",
  fallback: "fell back to another provider",
  continuation: "let another LLM continue the answer",
  short_clause: "spoke a shorter first clause",
  filler: "said a filler",
  apology: "apologised",
};

/**
 * The stage of the breach; without one, the longest wait.
 *
 * @param {TurnRecord} turn
 * @returns {any} of `turn.stages`, with `waited_ms`; null when nothing was waited for
 */
function breachStage(turn) {
  const waited = (/** @type {any} */ stage) =>
    turn.contributions
      .filter((/** @type {any} */ part) => part.stage === stage.stage)
      .reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + part.duration_ms, 0);
  const stages = turn.stages.map((/** @type {any} */ stage) => ({ ...stage, waited_ms: waited(stage) }));
  const worst = stages.find((/** @type {any} */ { stage }) => stage === turn.breach?.stage);
  if (worst) return worst;
  return stages.toSorted((/** @type {any} */ a, /** @type {any} */ b) => b.waited_ms - a.waited_ms)[0] ?? null;
}

/**
 * Return the sentence.
 *
 * @param {TurnRecord} turn
 */
export function why(turn) {
  if (turn.outcome === null) return "This turn is still being spoken.";
  if (turn.total_ms === null) return unplayed(turn);
  const stage = breachStage(turn);
  if (turn.total_verdict !== "over") return within(turn, stage);
  return `${turn.total_ms - turn.total_limit_ms} ms too late${stage ? `: ${breachOf(stage, turn)}` : ""}.`;
}

/**
 * @param {any} stage the worst one
 * @param {TurnRecord} turn
 */
function breachOf(stage, turn) {
  const did = stage.stage === "tool" ? toolCause(stage, turn.tools) : cause(stage, turn);
  if (stage.waited_ms > stage.limit_ms) return `${did}, of ${stage.limit_ms} allowed`;
  return `no stage broke its limit, but all together did. Longest: ${did}`;
}

/**
 * @param {any} stage of the tools
 * @param {{name: string, ran_by: string}[]} tools
 */
function toolCause({ waited_ms }, tools) {
  const names = [...new Set(tools.map(({ name }) => name))];
  const sides = [...new Set(tools.map(({ ran_by }) => ran_by))];
  const named = `the tool${names.length > 1 ? "s" : ""} ${names.join(" and ")}`;
  return `${named} (run by the ${sides.join(" and the ")}) took ${waited_ms} ms`;
}

/**
 * @param {any} stage
 * @param {TurnRecord} turn
 */
function cause({ stage, owner, waited_ms }, { providers, actions }) {
  if (stage === "endpoint" && ENDED[owner]) return ENDED[owner](waited_ms);
  const kind = KINDS[stage];
  const other = kind && !ENDED[owner] && !actions.includes("continuation") ? providers[kind] : "";
  if (other && other !== owner) {
    return `the ${kind.toUpperCase()} ${owner} was waited for, and ${other} served in its place after ${waited_ms} ms`;
  }
  const named = ENDED[owner] ? "" : owner;
  return DID[stage]?.(named, waited_ms) ?? `${stageName(stage)} took ${waited_ms} ms`;
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
  if (turn.outcome === "failed") return `The turn failed before any audio was played${reason}.`;
  return `No audio was played: ${turn.outcome}${reason}.`;
}
