/**
 * Running turns: the server's events of each while the user waits, laid out as far as they are known. No DOM.
 *
 * @module
 */

/** @typedef {import("./turns.js").Wait} Wait */
/**
 * @typedef {object} Running a turn that is not over
 * @property {string} id
 * @property {number} revision higher when the user went on speaking: earlier events no longer count
 * @property {Record<string, number>} marks session ms
 * @property {Map<string, {limit_ms: number, verdict: string}>} verdicts of stages
 * @property {string[]} actions that were taken to save the budget
 * @property {number} latest_ms the latest mark, session ms
 * @property {number} seen_ms when it came, on this page's clock
 */
/** @typedef {{waits: Wait[], total_ms: number, growing: boolean}} SoFar the critical path so far */

/** The stages before a spoken answer, each with the mark that begins it and the mark that ends it. */
const SPOKEN = [
  ["endpoint", "voiced_last", "llm_requested"],
  ["llm_ttft", "llm_requested", "first_delta"],
  ["first_clause", "first_delta", "first_clause"],
  ["tts_ttfb", "first_clause", "first_sound"],
  ["overhead", "first_sound", "first_sent"],
  ["playback", "first_sent", "first_audible"],
];

/** The stages of an answer that a speech-to-speech model makes. */
const UPSTREAM = [
  ["endpoint", "voiced_last", "speech_requested"],
  ["speech_to_speech", "speech_requested", "first_sound"],
  ...SPOKEN.slice(4),
];

const WRITTEN = [
  ["endpoint", "voiced_last", "llm_requested"],
  ["llm_ttft", "llm_requested", "first_delta"],
  ["overhead", "first_delta", "first_sent"],
];

/** The stages when the answer was ready before the end of turn: the user waited for the release gate alone. */
const HELD = [
  ["endpoint", "voiced_last", "gate_opened"],
  ["overhead", "gate_opened", "first_sent"],
  ["playback", "first_sent", "first_audible"],
];

/** The end of a spoken answer whose audio waits for other audio of the agent: a filler, a greeting. */
const BEHIND = [
  ["earlier_audio", "first_sent", "earlier_audio_ended"],
  ["playback", "earlier_audio_ended", "first_audible"],
];

/** The running turns of one session. */
export class LiveTurns {
  constructor() {
    /** Bounded by the running turns: each ends by a deadline of the server. @type {Map<string, Running>} */
    this.running = new Map();
  }

  /**
   * @param {{turn_id: string, revision: number, mark: string, at_ms: number}} event
   * @param {number} now_ms of this page's clock
   */
  mark({ turn_id, revision, mark, at_ms }, now_ms) {
    const turn = this.of(turn_id, revision);
    turn.marks[mark] = at_ms;
    if (at_ms < turn.latest_ms) return;
    turn.latest_ms = at_ms;
    turn.seen_ms = now_ms;
  }

  /** @param {{turn_id: string, revision: number, stage: string, limit_ms: number, verdict: string}} event */
  verdict({ turn_id, revision, stage, limit_ms, verdict }) {
    this.of(turn_id, revision).verdicts.set(stage, { limit_ms, verdict });
  }

  /** @param {{turn_id: string, revision: number, action: string}} event */
  action({ turn_id, revision, action }) {
    this.of(turn_id, revision).actions.push(action);
  }

  /** @param {string} id of a turn that is over */
  over(id) {
    this.running.delete(id);
  }

  /** Whether a latency is still growing. */
  get busy() {
    return [...this.running.values()].some((turn) => isDisplayed(turn) && !isPlaying(turn));
  }

  /**
   * @param {string} id
   * @param {number} revision
   * @returns {Running}
   */
  of(id, revision) {
    const known = this.running.get(id);
    if (known && known.revision >= revision) return known;
    /** @type {Running} */
    const turn = { id, revision, marks: {}, verdicts: new Map(), actions: [], latest_ms: 0, seen_ms: 0 };
    this.running.set(id, turn);
    return turn;
  }
}

/**
 * Return whether the user is waiting. Before that the user may go on speaking, which starts a new revision.
 *
 * @param {Running} turn
 */
export function isDisplayed({ marks }) {
  return "ended" in marks && "voiced_last" in marks;
}

/** @param {Running} turn */
function isPlaying({ marks }) {
  return "first_audible" in marks || ("first_sent" in marks && !("first_sound" in marks));
}

/**
 * Return the critical path so far; the last wait grows.
 *
 * @param {Running} turn
 * @param {number} now_ms of this page's clock
 * @returns {SoFar}
 */
export function soFar(turn, now_ms) {
  const { marks, latest_ms, seen_ms } = turn;
  const began_ms = marks.voiced_last;
  const session_ms = Math.round(latest_ms + Math.max(0, now_ms - seen_ms));
  /** @type {Wait[]} */
  const waits = [];
  for (const [stage, from, to] of path(turn)) {
    if (!(from in marks)) break;
    const start_ms = waits.at(-1)?.end_ms ?? 0;
    const end_ms = Math.max(start_ms, (marks[to] ?? session_ms) - began_ms);
    waits.push({ stage, start_ms, end_ms });
    if (!(to in marks)) break;
  }
  return { waits, total_ms: waits.at(-1)?.end_ms ?? 0, growing: !isPlaying(turn) };
}

/** @param {Running} turn */
function path({ marks }) {
  const written = "first_sent" in marks && !("first_sound" in marks);
  const held = !written && marks.gate_opened > marks.first_sound;
  const stages = written ? WRITTEN : held ? HELD : "speech_requested" in marks ? upstream(marks) : SPOKEN;
  const due = "start_due" in marks && !held ? "start_due" : "end_due";
  const behind = "earlier_audio_ended" in marks ? [...stages.slice(0, -1), ...BEHIND] : stages;
  if (!(due in marks)) return behind;
  const [[stage, began, end], ...rest] = behind;
  return [["silence", began, due], [stage, due, end], ...rest];
}

/**
 * Return the path of an answer that was requested of a speech-to-speech model; LLM and TTS answer where it has failed.
 *
 * @param {Record<string, number>} marks
 */
function upstream(marks) {
  if (!(marks.llm_requested <= (marks.first_sound ?? Infinity))) return UPSTREAM;
  return [UPSTREAM[0], ["speech_to_speech", "speech_requested", "llm_requested"], ...SPOKEN.slice(1)];
}
