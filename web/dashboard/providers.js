/**
 * The providers: figures measured in this server's turns, beside published ones.
 *
 * @module
 */

import { make } from "../elements.js";
import { percent, rate, share, usd, whole } from "./figures.js";
import { empty, link, row, section, table } from "./components.js";

/** @typedef {import("./address.js").View} View */

/** @type {Record<string, [string, string, string]>} stage -> its title, its first output, and the limit for that */
const STAGES = {
  speech_to_speech: ["Speech to speech", "first audio", "speech_to_speech"],
  stt: ["STT", "final transcript", "endpoint"],
  llm: ["LLM", "first token", "llm_ttft"],
  tts: ["TTS", "first byte", "tts_ttfb"],
};

/** @type {Record<string, string>} the circuit breaker's states on the page */
const STATES = { closed: "● in use", open: "▲ circuit breaker open", half_open: "◐ circuit breaker half open" };

/**
 * @param {View} view
 * @param {any} stats
 * @param {any[]} healths of `GET /v1/providers`
 * @param {any} replies counts of the response cache; null while it is off
 * @param {{published: Record<string, any>, limits: Record<string, number>}} about published figures by model, and the
 *   limits of the stages in ms
 */
export function providers(view, stats, healths, replies, { published, limits }) {
  return [...used(view, stats, healths, { published, limits }), ...responseCache(replies)];
}

/**
 * @param {any} replies
 * @returns {Node[]} nothing while the cache is off
 */
function responseCache(replies) {
  if (!replies) return [];
  const { hit, miss, excluded, entries, saved_usd } = replies;
  const figures = [share(hit, hit + miss), `${hit} of ${hit + miss}`, String(excluded), usd(saved_usd), String(entries)];
  const heads = ["Answers over REST", "From the cache", "Requests", "Not for the cache", "Saved", "Stored now"];
  const rows = [row("since the server started", figures)];
  return [section("response-cache", "Response cache", table("response-cache-table", "The response cache", heads, rows))];
}

/**
 * @param {View} view
 * @param {any} stats
 * @param {any[]} healths
 * @param {{published: Record<string, any>, limits: Record<string, number>}} about
 */
function used(view, stats, healths, { published, limits }) {
  const known = new Map(healths.map((each) => [`${each.stage} ${each.id}`, each]));
  const measured = new Map(stats.providers.map((/** @type {any} */ each) => [`${each.stage} ${each.provider}`, each]));
  if (!known.size && !measured.size) {
    const talk = make("a", { href: "/talk", class: "button" }, "Start a conversation");
    return [empty("No provider was used yet. ", talk, " and see how fast each answers.")];
  }
  return Object.entries(STAGES).map(([stage, [title, what, limited]]) => {
    const keys = [...new Set([...known.keys(), ...measured.keys()])].filter((key) => key.startsWith(`${stage} `));
    const rows = keys.map((key) => line(view, key.slice(4), known.get(key), measured.get(key), published, limits[limited]));
    const state = make("th", { scope: "col", class: "words" }, "State");
    const heads = ["Provider", state, "Calls", "Errors", `ms to ${what}, p50 (limit ${limits[limited]})`, "p95", "p99"];
    const more =
      stage === "llm" ? ["published p50", "ms between tokens", "Tokens a second", "published tokens a second", "Cached"] : [];
    const body = rows.length
      ? table(
          `providers-${stage}`,
          `${title}: measured and published`,
          [...heads, ...more, "Cost"],
          rows.map((cells) => trim(cells, stage)),
        )
      : empty("None was used yet.");
    return section(`of-${stage}`, title, body);
  });
}

/**
 * @param {HTMLTableRowElement} line
 * @param {string} stage
 */
function trim(line, stage) {
  if (stage !== "llm") line.querySelectorAll(".of-models").forEach((cell) => cell.remove());
  return line;
}

/**
 * @param {View} view
 * @param {string} spec
 * @param {any} health
 * @param {any} figures
 * @param {Record<string, any>} published
 * @param {number} limit_ms
 */
function line(view, spec, health, figures, published, limit_ms) {
  const quantile = (/** @type {number | null | undefined} */ value) => {
    const isOver = (value ?? 0) > limit_ms;
    return make("td", { class: isOver ? "alarm" : "" }, isOver ? `▲ ${whole(value)}` : whole(value));
  };
  const claims = published[spec];
  const state = health ? (STATES[health.state] ?? health.state) : "–";
  const words = make(
    "span",
    {},
    health?.retry_in_ms ? `${state}, ${Math.ceil(health.retry_in_ms / 1000)} s more` : state,
  );
  if (health?.alert) words.append(make("span", { class: "failure" }, ` ${health.alert}`));
  const errors = figures ? `${figures.errors} (${share(figures.errors, figures.calls)})` : "–";
  const ofModels = (/** @type {string} */ text) => make("td", { class: "of-models" }, text);
  return row(link(view, { filters: { ...view.filters, model: spec }, view: "turns" }, {}, spec), [
    make("td", { class: health && health.state !== "closed" ? "alarm words" : "words" }, words),
    figures ? String(figures.calls) : "–",
    make("td", { class: figures?.errors ? "alarm" : "" }, figures?.errors ? `▲ ${errors}` : errors),
    quantile(figures?.p50_ms),
    quantile(figures?.p95_ms),
    quantile(figures?.p99_ms),
    ofModels(whole(claims?.ttft_p50_ms)),
    ofModels(rate(figures?.itl_ms)),
    ofModels(rate(figures?.tokens_per_s)),
    ofModels(rate(claims?.tokens_per_s)),
    ofModels(percent(figures?.cached_share)),
    usd(figures?.cost_usd),
  ]);
}
