/**
 * One turn: the reason for its latency, its waterfall, and its record.
 *
 * @module
 */

import { latencyCard, stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { clock, count, ms, share, usd, whole } from "./figures.js";
import { empty, link, row, section, table } from "./components.js";
import { ACTIONS, MARKS, why } from "./why.js";

/** The parts of stages, by name. @type {Record<string, string>} */
const PARTS = { stt_final: "final transcript", gate_wait: "end of turn", connect: "LLM connection" };

/** @typedef {import("../turns.js").TurnRecord} TurnRecord */
/** @typedef {import("./address.js").View} View */

/**
 * @param {View} view
 * @param {TurnRecord} turn
 * @param {number} now_ms
 * @param {HTMLElement[]} players of the session's audio; empty: none is stored
 */
export function turnPage(view, turn, now_ms, players) {
  return [
    make("p", {}, link(view, { turn: "" }, { class: "back" }, "← Back")),
    head(turn, now_ms),
    answer(turn),
    section("waterfall", "Waterfall", card(turn), ...marks(turn)),
    make(
      "div",
      { class: "columns" },
      section("words", "Text as played", ...words(turn)),
      section("done", "Actions and requests", ...done(turn)),
      section("speculation", "Speculative replies", ...speculation(turn)),
      section("cost", "Cost and tokens", cost(turn)),
    ),
    ...(players.length ? [section("sound", "Audio of the session", ...players)] : []),
    section("facts", "All else", facts(view, turn)),
  ];
}

/**
 * @param {TurnRecord} turn
 * @param {number} now_ms
 */
function head(turn, now_ms) {
  const facts = [clock(turn.started_at, now_ms), turn.agent, turn.outcome ?? "running", turn.reason].filter(Boolean);
  const question = turn.total_verdict === "over" ? "Why was it slow?" : "Where did its time go?";
  return make("div", { class: "head" }, make("h2", {}, question), make("p", { class: "secondary" }, facts.join(" · ")));
}

/** @param {TurnRecord} turn to explain, with the setting that would change it */
function answer(turn) {
  const bad = turn.total_verdict === "over" || turn.outcome === "failed";
  const reason = make("p", { class: bad ? "reason alarm" : "reason" }, why(turn));
  const { breach } = turn;
  if (!breach) return make("div", { class: "answer" }, reason);
  if (!breach.setting) return make("div", { class: "answer" }, reason);
  const setting = make("code", {}, breach.setting);
  return make("div", { class: "answer" }, reason, make("p", {}, `Up to ${breach.saves_ms} ms sooner with `, setting));
}

/** @param {TurnRecord} turn whose marks are listed, each with whether the user waited for its stage */
function marks(turn) {
  const { marks, projected } = turn;
  const began_ms = marks.voiced_last ?? Math.min(...Object.values(marks));
  const critical = new Map(turn.contributions.map((/** @type {any} */ part) => [part.to_mark, part]));
  const from = turn.contributions[0]?.from_mark;
  const times = /** @type {[string, number][]} */ (Object.entries(marks));
  if (!times.length) return [];
  const expected = Object.keys(projected).length > 0;
  const rows = times.map(([mark, at_ms]) => {
    const part = critical.get(mark);
    const on = part || mark === from;
    const waited = part ? `${stageName(part.stage)}, ${part.duration_ms} ms` : on ? "it begins here" : "";
    const name = make("span", {}, make("i", { class: on ? "pin on" : "pin", "aria-hidden": "true" }), markName(mark));
    const cells = [signed(at_ms - began_ms), make("td", { class: "words" }, waited)];
    if (expected) cells.push(mark in projected ? ms(projected[mark]) : "");
    return row(name, cells, on ? { class: "critical" } : {});
  });
  const until = make("th", { scope: "col", class: "words" }, "Critical until then");
  const heads = ["Mark", "ms", until, "Total expected then"];
  return [pinLegend(), table("marks", "The marks of this turn", expected ? heads : heads.slice(0, 3), rows)];
}

/** @param {string} mark */
export function markName(mark) {
  if (MARKS[mark]) return MARKS[mark];
  const numbered = /^(.*_)(\d+)$/.exec(mark);
  if (numbered && MARKS[numbered[1]]) return `${MARKS[numbered[1]]} ${numbered[2]}`;
  if (mark.startsWith("stall_began_")) return "Event loop stalled";
  return mark.startsWith("stall_ended_") ? "Event loop runs again" : mark;
}

/** @param {number} value */
function signed(value) {
  return value < 0 ? `−${-value}` : String(value);
}

/** @param {TurnRecord} turn to draw as on the talk page, with its marks on the bar of the total */
function card(turn) {
  const drawn = latencyCard({ ...turn, breach: null }, true); // the breach is shown above
  const bar = drawn.querySelector(".track.whole");
  if (!bar) return drawn;
  const began_ms = turn.marks.voiced_last ?? Math.min(.../** @type {number[]} */ (Object.values(turn.marks)));
  const length_ms = 1.05 * Math.max(turn.total_ms, turn.total_limit_ms); // as the bar is drawn
  const on = new Set(turn.contributions.flatMap((/** @type {any} */ part) => [part.from_mark, part.to_mark]));
  for (const [mark, at_ms] of /** @type {[string, number][]} */ (Object.entries(turn.marks))) {
    const left = (100 * (at_ms - began_ms)) / length_ms;
    if (left < 0 || left > 100) continue;
    const pin = make("i", {
      class: on.has(mark) ? "pin on" : "pin",
      title: `${markName(mark)}, ${at_ms - began_ms} ms`,
    });
    pin.style.left = `${left}%`;
    bar.append(pin);
  }
  return drawn;
}

function pinLegend() {
  const on = make("span", {}, make("i", { class: "pin on" }), "a mark on the way that the user waited");
  const beside = make("span", {}, make("i", { class: "pin" }), "a mark beside it");
  return make("p", { class: "legend secondary", "aria-hidden": "true" }, on, " ", beside);
}

/** @param {TurnRecord} turn */
function words(turn) {
  const { user_text, agent_text, played_text, filler, outcome } = turn;
  if (!user_text && !agent_text) {
    return [empty("The texts were not stored. ", make("code", {}, "records.text"), " is the setting for it.")];
  }
  const played = make("div", { class: "words" });
  if (filler) played.append(make("em", {}, `${filler} `), make("span", { class: "secondary" }, "(a filler) "));
  if (agent_text.startsWith(played_text) && played_text !== agent_text) {
    played.append(
      played_text,
      make("span", { class: "cut-mark" }, outcome === "interrupted" ? " ✂ the user spoke " : " ✂ "),
    );
    played.append(make("del", {}, make("span", { class: "unseen" }, "Not played: "), agent_text.slice(played_text.length)));
  } else played.append(played_text || "No audio was played.");
  return [
    make("p", { class: "role" }, "User"),
    make("div", { class: "words user" }, user_text || "(nothing was understood)"),
    make("p", { class: "role" }, "Agent"),
    played,
    ...(turn.resumed ? [make("p", { class: "secondary" }, resumed(turn))] : []),
  ];
}

/** @param {TurnRecord} turn whose user went on while the answer was audible */
export function resumed({ resumed: times, taken_back_ms }) {
  if (!times) return "";
  const often = times === 1 ? "once" : `${times} times`;
  return `The user went on ${often} after ${taken_back_ms} ms of an answer, and was answered anew.`;
}

/** @param {TurnRecord} turn */
function done(turn) {
  const took = turn.actions.map((/** @type {string} */ action) => make("li", {}, `It ${ACTIONS[action] ?? action}.`));
  const list = took.length ? make("ul", { class: "plain" }, ...took) : empty("No action was needed.");
  const route = turn.route ? [make("p", { class: "secondary" }, `LLM route: ${turn.route}`)] : [];
  const passages = (turn.knowledge?.passages ?? []).map((/** @type {any} */ each) => `${each.document} (${each.passage})`);
  const found = `Passages given to the LLM, found in ${turn.knowledge?.took_ms} ms: ${passages.join(", ")}`;
  const knowledge = passages.length ? [make("p", { class: "secondary" }, found)] : [];
  if (!turn.attempts.length) return [list, ...knowledge, ...route];
  const heads = ["LLM", "Role", "Outcome", "Start, ms", "First token, ms", "Cost"];
  const rows = turn.attempts.map((/** @type {any} */ call) =>
    row(call.provider, [
      call.role,
      call.why ? `${call.outcome}: ${call.why}` : call.outcome,
      whole(call.began_ms),
      whole(call.first_ms),
      usd(call.cost_usd),
    ]),
  );
  return [list, ...knowledge, ...route, table("attempts", "LLM requests", heads, rows)];
}

/** @param {TurnRecord} turn */
function speculation({ speculation: replies }) {
  if (!replies.starts && !replies.refused) return [empty("No reply was started before the end of turn.")];
  const wasted = replies.wasted_input_tokens + replies.wasted_output_tokens;
  return [
    definitions([
      ["Replies started before the end of turn", String(replies.starts)],
      ["Of these used", String(replies.used)],
      ["Latency saved", ms(replies.saved_ms)],
      ["Not started, for their cost", String(replies.refused)],
      ["Wasted tokens", `${wasted}${replies.estimated ? " (estimated)" : ""}`],
    ]),
  ];
}

/** @param {TurnRecord} turn */
function cost({ cost: costs, tokens, itl_ms, tokens_per_s }) {
  const unknown = costs.whole ? "" : " (not all prices are known)";
  return definitions([
    ["Answer", usd(costs.answer_usd)],
    ["Hedges and failed requests", usd(costs.hedge_usd)],
    ["Speculative replies not played", usd(costs.speculation_usd)],
    ["TTS", usd(costs.tts_usd)],
    ...(costs.stt_usd === undefined ? [] : [/** @type {[string, string]} */ (["STT", usd(costs.stt_usd)])]),
    ...(costs.embedding_usd ? [/** @type {[string, string]} */ (["Search by meaning", usd(costs.embedding_usd)])] : []),
    ["Sum", `${usd(costs.usd)}${unknown}`],
    ["Input tokens, share cached", `${tokens.input}, ${share(tokens.cached, tokens.input)}`],
    ["Output tokens", String(tokens.output)],
    ["Time between tokens", itl_ms === null || itl_ms === undefined ? "–" : `${itl_ms.toFixed(1)} ms`],
    ["Tokens a second", whole(tokens_per_s)],
  ]);
}

/**
 * @param {{name: string, ran_by: string, outcome: string, took_ms: number | null}} call
 * @returns {string}
 */
function toolText(call) {
  const time = call.took_ms === null ? "" : ` after ${call.took_ms} ms`;
  return `${call.name} (${call.ran_by}): ${call.outcome.replace("_", " ")}${time}`;
}

/**
 * @param {any} context what the LLM read of the conversation; undefined: a record of an older version
 * @returns {string} empty while nothing was left out
 */
function contextText(context) {
  if (!context?.items_dropped) return "";
  const { tokens_after, tokens_before, items_dropped } = context;
  return `about ${tokens_after} of ${tokens_before} tokens, ${count(items_dropped, "item")} left out`;
}

/**
 * @param {View} view
 * @param {TurnRecord} turn
 */
function facts(view, turn) {
  const providers = Object.entries(turn.providers).map(([stage, provider]) => `${stage} ${provider}`);
  const parts = Object.entries(turn.parts).map(([part, value]) => `${PARTS[part] ?? part} ${value} ms`);
  const session = link(
    { ...view, view: "turns", turn: "", session: turn.session, order: "newest" },
    {},
    {},
    turn.session,
  );
  /** @type {[string, Node | string][]} */
  const facts = [
    ["Turn", turn.id],
    ["Session", session],
    ["Which", `${turn.turn}${turn.revision ? `, after ${count(turn.revision, "revision")}` : ""}`],
    ["Cause", turn.cause],
    ["Providers", providers.join(", ")],
    ["Parts of stages", parts.join(", ")],
    ["Tools", (turn.tools ?? []).map(toolText).join(", ")],
    [
      "Measured",
      turn.latency_source === "reported"
        ? "by the client"
        : turn.latency_source === "estimated"
          ? "estimated by the server"
          : "not played",
    ],
    ["Unattributed time", ms(turn.unattributed_ms)],
    ["TTS connection, hidden", turn.tts_connect_hidden_ms === null ? "" : ms(turn.tts_connect_hidden_ms)],
    ["STT connection, hidden", turn.stt_connect_hidden_ms === null ? "" : ms(turn.stt_connect_hidden_ms)],
    ["Read by the LLM", contextText(turn.context)],
    ["Language", turn.language ?? ""],
    ["Pool", turn.pool ?? ""],
    ["A/B arm", turn.arm ?? ""],
    ["User", turn.user ?? ""],
    ["Project", turn.project ?? ""],
  ];
  return definitions(facts.filter(([, value]) => value !== ""));
}

/** @param {[string, Node | string][]} lines */
function definitions(lines) {
  return make(
    "dl",
    { class: "definitions" },
    ...lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}
