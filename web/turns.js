/**
 * A turn's record from `GET /v1/turns/{id}`, and its milliseconds laid out in time.
 *
 * @module
 */

/** @typedef {Record<string, any>} TurnRecord the fields of `GET /v1/turns/{id}` */
/** @typedef {{start_ms: number, end_ms: number}} Span since t0, the user's last voiced sample */
/** @typedef {Span & {stage: string}} Wait a part of the critical path */
/**
 * @typedef {object} Row one stage: when it ran, and when the user waited for it
 * @property {string} stage
 * @property {Span} span
 * @property {Span[]} critical the parts that the user waited for; the stage ran hidden during the rest
 * @property {Span[]} held time after its end in which the release gate was still closed
 * @property {number} duration_ms how long it took: less than its span where the server's event loop stalled
 * @property {number} limit_ms
 * @property {boolean} over
 * @property {string} owner
 */
/** @typedef {{rows: Row[], waits: Wait[], end_ms: number}} Waterfall */

/** The mark that ends each stage; it began `duration_ms` before, or with the first piece that the user waited for. */
const ENDS = /** @type {Record<string, string>} */ ({
  silence: "end_due",
  endpoint: "llm_requested",
  llm_ttft: "first_delta",
  first_clause: "first_clause",
  tts_ttfb: "first_sound",
  speech_to_speech: "first_sound",
  overhead: "first_sent",
  earlier_audio: "earlier_audio_ended",
  playback: "first_audible",
});

/** The waits between requests for a record until the turn is over: short at first, then 2 s, for up to 10 minutes. */
const FIRST_PAUSE_MS = 250;
const LAST_PAUSE_MS = 2000;
const TRIES = 300;

/**
 * Request a turn's record until the turn is over.
 *
 * @param {(id: string) => Promise<TurnRecord | null | false>} fetchRecord null: not there yet; false: there will be none
 * @param {string} id
 * @param {(record: TurnRecord) => void} show called with each record that comes, the last one when the turn is over
 * @param {AbortSignal} signal
 */
export async function follow(fetchRecord, id, show, signal) {
  let pause_ms = FIRST_PAUSE_MS;
  for (let tries = 0; tries < TRIES && !signal.aborted; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, pause_ms));
    pause_ms = Math.min(LAST_PAUSE_MS, pause_ms * 1.3);
    const record = await fetchRecord(id);
    if (signal.aborted || record === false) return;
    if (record) show(record);
    if (record?.outcome) return;
  }
}

/**
 * Lay a turn out in time. A stage whose mark is missing has no row: its time is not known.
 *
 * @param {TurnRecord} record
 * @returns {Waterfall}
 */
export function waterfall(record) {
  const { marks } = record;
  const began_ms = marks.voiced_last ?? Math.min(...Object.values(marks));
  /** @type {Wait[]} */
  const waits = record.contributions
    .filter((/** @type {any} */ part) => part.from_mark in marks && part.to_mark in marks)
    .map((/** @type {any} */ part) => ({
      stage: part.stage,
      start_ms: marks[part.from_mark] - began_ms,
      end_ms: marks[part.to_mark] - began_ms,
    }));
  const ended = { ...ENDS, ...laterEnds(record) };
  const rows = record.stages
    .filter((/** @type {any} */ stage) => ended[stage.stage] in marks)
    .map((/** @type {any} */ stage) => row(stage, marks[ended[stage.stage]] - began_ms, waits));
  const ends = [...waits, ...rows.map((/** @type {Row} */ { span }) => span)].map(({ end_ms }) => end_ms);
  return { rows, waits, end_ms: Math.max(0, ...ends) };
}

/**
 * Return the marks that end these stages in this turn: where the user waited for them, the last one of that wait. A
 * record without the end of its silence keeps the LLM request as the end of `endpoint`.
 *
 * @param {TurnRecord} record
 * @returns {Record<string, string>}
 */
function laterEnds({ contributions }) {
  const moved = contributions.some((/** @type {any} */ { stage }) => ["silence", "speech_to_speech"].includes(stage));
  const own = contributions.filter(
    (/** @type {any} */ { stage }) => ["tool", "speech_to_speech"].includes(stage) || (stage === "endpoint" && moved),
  );
  return Object.fromEntries(own.map((/** @type {any} */ part) => [part.stage, part.to_mark]));
}

/**
 * @param {Record<string, any>} stage
 * @param {number} end_ms
 * @param {Wait[]} waits
 * @returns {Row}
 */
function row(stage, end_ms, waits) {
  const own = waits.filter((wait) => wait.stage === stage.stage);
  // A stall of the event loop splits the stage's own time, and the server's.
  const starts = own.map((wait) => wait.start_ms);
  const span = { start_ms: Math.min(end_ms - stage.duration_ms, end_ms, ...starts), end_ms };
  return {
    stage: stage.stage,
    span,
    critical: lasting(own.map((wait) => overlap(wait, span))),
    held: lasting(own.map((wait) => ({ start_ms: Math.max(wait.start_ms, end_ms), end_ms: wait.end_ms }))),
    duration_ms: stage.duration_ms,
    limit_ms: stage.limit_ms,
    over: stage.verdict === "over",
    owner: stage.owner,
  };
}

/**
 * @param {Span} a
 * @param {Span} b
 */
function overlap(a, b) {
  return { start_ms: Math.max(a.start_ms, b.start_ms), end_ms: Math.min(a.end_ms, b.end_ms) };
}

/** @param {Span[]} spans */
function lasting(spans) {
  return spans.filter((span) => span.end_ms > span.start_ms);
}
