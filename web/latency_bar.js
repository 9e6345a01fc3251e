/**
 * A turn's latency, drawn: the total large, one bar of what the user waited for, and each stage in time.
 *
 * @module
 */

import { make } from "./elements.js";
import { soFar } from "./live.js";
import { waterfall } from "./turns.js";

/** @typedef {import("./turns.js").TurnRecord} TurnRecord */
/** @typedef {import("./turns.js").Span} Span */
/** @typedef {import("./turns.js").Wait} Wait */

/** @type {Record<string, string>} */
const NAMES = {
  silence: "Silence",
  endpoint: "End of turn",
  llm_ttft: "LLM first token",
  first_clause: "First clause",
  tts_ttfb: "TTS first byte",
  speech_to_speech: "Speech to speech",
  tool: "Tool",
  overhead: "Server",
  earlier_audio: "Earlier audio",
  playback: "Playback",
};

/** @type {Record<string, string>} */
const SOURCES = { reported: "as the client reported", estimated: "estimated by the server" };

/** The scale of a bar before any figure is known: the second that an answer may take. */
const SCALE_MS = 1000;

/** On wide screens there is room for every stage at once. */
const WIDE = "(min-width: 60rem)";

/**
 * Return the card of one turn's latency.
 *
 * @param {TurnRecord} record
 * @param {boolean | null} open whether the stages are unfolded; null: where the page is wide enough
 * @returns {HTMLElement}
 */
export function latencyCard(record, open = null) {
  const card = make("section", { class: "latency", "aria-label": "Latency of this turn", "data-turn": record.id });
  card.dataset.outcome = record.outcome ?? "";
  if (record.total_ms === null) {
    card.append(make("p", { class: "secondary" }, record.outcome === null ? "Measuring …" : "No answer was played."));
    return card;
  }
  card.classList.toggle("over", record.total_verdict === "over");
  card.append(total(record), bar(record), names(waterfall(record).waits), stages(record, open));
  if (record.breach) card.append(advice(record.breach));
  return card;
}

/**
 * Return the card of a running turn.
 *
 * @param {import("./live.js").Running} turn
 * @param {number} now_ms of this page's clock
 * @param {number | null} limit_ms the total limit, where it is known
 */
export function liveCard(turn, now_ms, limit_ms) {
  const { waits, total_ms, growing } = soFar(turn, now_ms);
  const card = make("section", { class: "latency live", "aria-label": "Latency of this turn", "data-turn": turn.id });
  card.classList.toggle("over", limit_ms !== null && total_ms > limit_ms);
  const words = growing ? "so far" : "to the first audible sample";
  const figure = make("strong", {}, String(total_ms));
  const unit = make("span", { class: "unit" }, " ms ");
  card.append(make("p", { class: "total" }, figure, unit, make("span", { class: "secondary" }, words)));
  card.append(track(waits, [], total_ms, limit_ms), names(waits, turn.verdicts));
  if (growing) [...card.querySelectorAll(".segment")].at(-1)?.classList.add("growing");
  if (turn.actions.length) {
    card.append(make("p", { class: "advice" }, `Actions to keep the budget: ${turn.actions.join(", ")}.`));
  }
  return card;
}

/** @param {TurnRecord} record */
function total(record) {
  const { total_ms, total_limit_ms, total_verdict, latency_source } = record;
  const over = total_verdict === "over";
  const verdict = over ? `${total_ms - total_limit_ms} ms over` : "within";
  return make(
    "p",
    { class: "total" },
    make("strong", {}, String(total_ms)),
    make("span", { class: "unit" }, " ms "),
    make("span", { class: "verdict" }, `${over ? "▲ " : ""}${verdict} the limit of ${total_limit_ms} ms`),
    " ",
    make("span", { class: "secondary" }, SOURCES[latency_source] ?? ""),
  );
}

/** @param {TurnRecord} record its critical path against the total limit */
function bar(record) {
  const { waits } = waterfall(record);
  const rest = record.unattributed_ms ? [`without a name ${record.unattributed_ms} ms`] : [];
  return track(waits, rest, record.total_ms, record.total_limit_ms);
}

/**
 * @param {Wait[]} waits
 * @param {string[]} more text for screen readers
 * @param {number} total_ms
 * @param {number | null} limit_ms
 */
function track(waits, more, total_ms, limit_ms) {
  const length_ms = 1.05 * Math.max(total_ms, limit_ms ?? SCALE_MS);
  const words = [...waits.map((wait) => `${stageName(wait.stage)} ${length(wait)} ms`), ...more].join(", ");
  const label = `Waited for: ${words}${limit_ms === null ? "" : `; limit ${limit_ms} ms`}`;
  const line = make("div", { class: "track whole", role: "img", "aria-label": label });
  for (const wait of waits) line.append(segment(wait, length_ms, `waited stage-${wait.stage}`, wait.stage));
  if (limit_ms !== null) line.append(limit(limit_ms, length_ms, "of the whole"));
  return line;
}

/**
 * Return the legend of the bar's colours, shown while the stages are folded.
 *
 * @param {Wait[]} waits
 * @param {import("./live.js").Running["verdicts"]} [verdicts] of stages that broke their limit, of a running turn
 */
function names(waits, verdicts) {
  const keys = waits
    .filter((wait) => length(wait) > 0)
    .flatMap((wait) => {
      const over = verdicts?.get(wait.stage)?.verdict === "over" ? ` ▲ over ${verdicts.get(wait.stage)?.limit_ms}` : "";
      return [key(`stage-${wait.stage}`, `${stageName(wait.stage)} ${length(wait)}${over}`), " "];
    });
  return make("p", { class: "legend waits secondary", "aria-hidden": "true" }, ...keys);
}

/**
 * @param {string} look
 * @param {string} words
 */
function key(look, words) {
  return make("span", {}, make("i", { class: `key ${look}` }), words);
}

/**
 * @param {TurnRecord} record
 * @param {boolean | null} open
 */
function stages(record, open) {
  const { rows, end_ms } = waterfall(record);
  const length_ms = 1.05 * Math.max(end_ms, record.total_limit_ms);
  const body = make("tbody");
  for (const row of rows) {
    const track = make("div", { class: "track", "aria-hidden": "true" });
    const behind = hiddenPart(row);
    if (behind) track.append(segment(behind, length_ms, `hidden stage-${row.stage}`, row.stage));
    for (const span of row.critical) track.append(segment(span, length_ms, `waited stage-${row.stage}`, row.stage));
    for (const span of row.held) track.append(segment(span, length_ms, `held stage-${row.stage}`, row.stage));
    track.append(limit(row.span.start_ms + row.limit_ms, length_ms, "of this stage"));
    track.append(limit(record.total_limit_ms, length_ms, "of the whole"));
    const figures = make("td", { class: "figures" }, `${row.duration_ms} ms`, make("small", {}, ` of ${row.limit_ms}`));
    if (row.over) figures.append(make("small", { class: "mark" }, " over"));
    const head = make("th", { scope: "row", title: `owner: ${row.owner}` }, stageName(row.stage));
    const line = make("tr", { "data-stage": row.stage }, head, make("td", {}, track), figures);
    line.classList.toggle("over", row.over);
    body.append(line);
  }
  return unfolded(make("table", {}, heading(), body), open, rows);
}

/**
 * Return the part of a row behind those that were waited for, or null. A stage that ran in pieces, as the server does
 * around a stall of its event loop, is drawn as long as it took, not from its first piece to its last.
 *
 * @param {import("./turns.js").Row} row
 * @returns {Span | null}
 */
function hiddenPart({ span, critical, duration_ms }) {
  if (length(span) <= duration_ms) return span;
  const rest_ms = duration_ms - critical.reduce((sum, part) => sum + length(part), 0);
  return rest_ms > 0 ? { start_ms: span.end_ms - rest_ms, end_ms: span.end_ms } : null;
}

function heading() {
  const cells = ["Stage", "When it ran", "Took, of its limit"].map((text) => make("th", { scope: "col" }, text));
  return make("thead", { class: "unseen" }, make("tr", {}, ...cells));
}

/**
 * @param {HTMLElement} table
 * @param {boolean | null} open
 * @param {import("./turns.js").Row[]} rows
 */
function unfolded(table, open, rows) {
  const hidden = rows.some((row) => {
    const behind = hiddenPart(row);
    return behind !== null && length(behind) > row.critical.reduce((sum, part) => sum + length(part), 0);
  });
  const legend = make("p", { class: "legend secondary" }, key("waited", "waited for"), " ");
  if (rows.some((row) => row.held.length)) legend.append(key("held", "waited for the turn to be over"), " ");
  if (hidden) legend.append(key("hidden", "hidden behind another stage"), " ");
  legend.append(key("line", "limit"));
  const details = make("details", {}, make("summary", {}, "Latency by stage"), table, legend);
  details.open = open ?? matchMedia(WIDE).matches;
  return details;
}

/** @param {{stage: string, over_ms: number, owner: string, setting: string | null, saves_ms: number}} breach */
function advice({ stage, over_ms, owner, setting, saves_ms }) {
  const what = stage === "total" ? "The total" : `“${stageName(stage)}”`;
  const text = `${what} was ${over_ms} ms over its limit. Owner: ${owner}.`;
  if (!setting) return make("p", { class: "advice" }, text);
  return make("p", { class: "advice" }, `${text} Up to ${saves_ms} ms sooner with `, make("code", {}, setting), ".");
}

/**
 * @param {Span} span
 * @param {number} length_ms
 * @param {string} look
 * @param {string} stage
 */
function segment(span, length_ms, look, stage) {
  const element = make("i", { class: `segment ${look}`, title: `${stageName(stage)} ${length(span)} ms` });
  element.style.left = `${(100 * span.start_ms) / length_ms}%`;
  element.style.width = `${(100 * length(span)) / length_ms}%`;
  return element;
}

/**
 * @param {number} at_ms
 * @param {number} length_ms
 * @param {"of the whole" | "of this stage"} whose
 */
function limit(at_ms, length_ms, whose) {
  const look = whose === "of the whole" ? "limit whole" : "limit";
  const line = make("i", { class: look, title: `limit ${whose}` });
  line.style.left = `${Math.min(100, (100 * at_ms) / length_ms)}%`;
  return line;
}

/** @param {Span} span */
function length({ start_ms, end_ms }) {
  return end_ms - start_ms;
}

/**
 * Return the name of a stage on the pages.
 *
 * @param {string} stage
 */
export function stageName(stage) {
  return NAMES[stage] ?? stage;
}
