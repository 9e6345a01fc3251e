/**
 * The views: the data that each loads, and the pieces that it draws.
 *
 * @module
 */

import { make } from "../elements.js";
import { WINDOWS, earlierSpan, exported, figures, list, spanOf, stepOf, turns } from "./address.js";
import { benches } from "./benches.js";
import { Chart } from "./chart.js";
import { heatMap } from "./heat_map.js";
import { BURNS, overview, spanName } from "./overview.js";
import { empty, link, swap } from "./components.js";
import { nodes } from "./nodes.js";
import { providers } from "./providers.js";
import { totalOf } from "./stage_bar.js";
import { SessionSound } from "./session_sound.js";
import { sessions } from "./sessions.js";
import { turnList } from "./turn_list.js";
import { turnPage } from "./turn_page.js";

/** @typedef {import("./address.js").View} View */
/** @typedef {import("./address.js").Window} Window */
/** @typedef {import("./components.js").Piece} Piece */
/** @typedef {(signal: AbortSignal, ...paths: string[]) => Promise<any[] | null>} Request null: a part could not be loaded */

/** Turns or sessions on one page of a list. */
const PAGE = 50;

/** The most that one request returns. */
const MAX_UPDATED = 200;

/** The store counts whole minutes, so the shortest window is drawn within a longer one. */
const SHORTEST_DRAWN = "15m";

/** The figures of longer spans cost more and change less. */
const LONG_MS = 172_800_000;
const LONG_STALE_MS = 60_000;

/** @type {Record<"csv" | "jsonl", string>} */
const EXPORTS = { csv: "Export CSV", jsonl: "Export JSON lines" };

/** From this many turns on, one more changes little: the figures are loaded again only after a while. */
const MANY = 1000;
const STALE_MS = 10_000;

export class Views {
  /**
   * @param {Request} request
   * @param {(changes: Partial<View>) => void} go to another view
   * @param {import("./live_turns.js").Now} now
   * @param {HTMLElement} place their container
   * @param {(path: string, name: string) => Promise<void>} download save an answer as a file
   * @param {import("./sign_in.js").OperatorKey} operator
   */
  constructor(request, go, now, place, download, operator) {
    this.sound = new SessionSound(operator);
    this.request = request;
    this.download = download;
    this.go = go;
    this.now = now;
    this.place = place;
    this.chart = new Chart();
    /** Lasts longer than a list, which is drawn anew while the operator types. */
    this.words = make("input", { id: "words", type: "search", autocomplete: "off", maxlength: "200" });
    /** The turns that are listed so far. @type {any[]} */
    this.listed = [];
    /** The `next` of the last page; null: there are no more. @type {string | null} */
    this.next = null;
    /** Figures of many turns by request; bounded by the windows of one view. */
    this.cached = /** @type {Map<string, {stats: any, at_ms: number}>} */ (new Map());
  }

  /** Drop the data of the last view, or of the last operator. */
  clearCache() {
    this.listed = [];
    this.next = null;
    this.cached.clear();
  }

  /**
   * @param {View} view
   * @param {any} about the server
   * @param {AbortSignal} signal another view was chosen
   * @returns {Promise<Piece[] | null>} null: it could not be loaded, and the page says why
   */
  pieces(view, about, signal) {
    if (view.turn) return this.turn(view, signal);
    if (view.view === "turns") return this.turns(view, signal);
    if (view.view === "providers") return this.providers(view, about, signal);
    if (view.view === "nodes") return this.nodes(view, signal);
    return view.view === "sessions" ? this.sessions(view, signal) : this.overview(view, about, signal);
  }

  /**
   * @param {View} view
   * @param {any} about
   * @param {AbortSignal} signal
   */
  async overview(view, about, signal) {
    const now_ms = Date.now();
    const span = spanOf(view, now_ms);
    const isShortest = view.since_ms === null && view.window === "1m";
    const drawn = isShortest ? { ...span, since_ms: span.until_ms - WINDOWS[SHORTEST_DRAWN] } : span;
    const step_ms = stepOf(drawn.until_ms - drawn.since_ms);
    const range = view.since_ms === null ? view.window : span;
    const paths = new Map([["span", figures(view, range, { by: view.by, ...(!isShortest && { step: step_ms }) })]]);
    for (const name of BURNS) {
      const isDrawn = isShortest && name === SHORTEST_DRAWN;
      if (name !== range) paths.set(name, figures(view, name, isDrawn ? { step: step_ms } : {}));
    }
    const slow = turns({ ...view, session: "" }, { order: "slowest", limit: 5 }, now_ms);
    const newest = turns({ ...view, session: "", window: "24h", since_ms: null }, { order: "newest", limit: 6 }, now_ms);
    const past = earlierSpan(view, now_ms - (now_ms % LONG_STALE_MS)); // so that the address stays for a while
    if (past) paths.set("earlier", figures(view, past));
    const stale_ms = span.until_ms - span.since_ms > LONG_MS ? LONG_STALE_MS : STALE_MS;
    const stale = [...paths.values()].filter((path) => now_ms - (this.cached.get(path)?.at_ms ?? -Infinity) > stale_ms);
    const compared = view.by === "arm" ? [figures(view, range, {}, "/v1/experiments")] : [];
    const got = await this.request(signal, slow, newest, ...compared, ...stale);
    if (!got) return null;
    const [worst, latest, ...rest] = got;
    const [experiments, figured] = [rest.slice(0, compared.length), rest.slice(compared.length)];
    const fresh = new Map(stale.map((path, i) => [path, figured[i]]));
    for (const [path, stats] of fresh) if (stats.turns >= MANY) this.cached.set(path, { stats, at_ms: now_ms });
    const all = [...paths].map(([name, path]) => [name, fresh.get(path) ?? this.cached.get(path)?.stats]);
    const { span: stats, earlier = null, ...others } = Object.fromEntries(all);
    const windows = typeof range === "string" ? { ...others, [range]: stats } : others;
    const limit_ms = totalOf(windows["24h"])?.limit_ms ?? about.limits.total;
    this.now.limit_ms = limit_ms;
    this.now.begin(latest.data);
    const { series } = isShortest ? windows[SHORTEST_DRAWN] : stats;
    const within = { ...drawn, step_ms, limit_ms };
    this.chart.show(series, within);
    const { chart, now, go } = this;
    const heat = heatMap(series, within, about.latency_bands_ms);
    const end_ms = span.until_ms;
    const data = { view, about, stats, earlier, windows, heat, slowest: worst.data, chart, now: now.place };
    return overview({ ...data, experiments: experiments[0]?.data ?? [], now_ms: end_ms, go });
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async turns(view, signal) {
    if (this.listed.length > MAX_UPDATED) return this.list(view, signal); // a list of this length is not updated
    const limit = Math.max(PAGE, this.listed.length);
    const got = await this.request(signal, list(view, { order: view.order, limit }, Date.now()));
    if (!got) return null;
    this.listed = got[0].data;
    this.next = got[0].next;
    return this.list(view, signal);
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  list(view, signal) {
    const orders = /** @type {const} */ ({ slowest: "Slowest first", newest: "Newest first" });
    const links = Object.entries(orders).map(([name, words]) => {
      const order = /** @type {keyof typeof orders} */ (name);
      return link(view, { order }, order === view.order ? { "aria-current": "true" } : {}, words);
    });
    const late = link(view, { over: !view.over }, view.over ? { "aria-current": "true" } : {}, "Only over the limit");
    const head = make("h2", {}, view.session ? `Turns of ${view.session}` : `Turns of ${spanName(view)}`);
    const tabs = make("p", { class: "tabs" }, ...links, late, ...this.exports(view));
    const found = this.listed.length ? turnList(view, this.listed, Date.now()) : none(view, this.next !== null);
    const more = make("button", { type: "button", id: "more" }, view.words ? "Search older turns" : "More");
    more.onclick = () => void this.more(view, signal);
    return [head, tabs, this.search(view), found, ...(this.next ? [more] : [])];
  }

  /** @param {View} view */
  search(view) {
    if (document.activeElement !== this.words) this.words.value = view.words;
    const set = () => {
      const words = this.words.value.trim();
      if (words !== view.words) this.go({ words });
    };
    this.words.onchange = set;
    this.words.onsearch = set; // also when it is emptied
    const label = make("label", { for: "words" }, "Words of the user or the agent");
    return make("div", { role: "search", class: "words-search" }, label, this.words);
  }

  /** @param {View} view */
  exports(view) {
    return /** @type {const} */ (["csv", "jsonl"]).map((format) => {
      const button = make("button", { type: "button", id: `export-${format}`, class: "quiet" }, EXPORTS[format]);
      button.onclick = () => void this.download(exported(view, format, Date.now()), `turns.${format}`);
      return button;
    });
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async more(view, signal) {
    const before = this.next ?? "";
    const got = await this.request(signal, list(view, { order: view.order, limit: PAGE, before }, Date.now()));
    if (!got) return;
    this.listed = [...this.listed, ...got[0].data];
    this.next = got[0].next;
    swap(this.place, ...this.list(view, signal));
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async turn(view, signal) {
    const got = await this.request(signal, `/v1/turns/${encodeURIComponent(view.turn)}`);
    return got && turnPage(view, got[0], Date.now(), await this.sound.players(got[0].session, signal));
  }

  /**
   * @param {View} view
   * @param {any} about
   * @param {AbortSignal} signal
   */
  async providers(view, about, signal) {
    const range = view.since_ms === null ? view.window : spanOf(view, 0);
    const got = await this.request(signal, figures(view, range), "/v1/providers", "/v1/benches");
    return got && [...providers(view, got[0], got[1].data, got[1].response_cache, about), ...benches(got[2])];
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async sessions(view, signal) {
    const { agent, text, project } = view.filters;
    const chosen = { ...(agent && { agent }), ...(text && { text }), ...(project && { project }) };
    const open = new URLSearchParams({ ...chosen, ...(view.node && { node: view.node }), live: "true" });
    const past = new URLSearchParams({ ...chosen, limit: String(PAGE) });
    const got = await this.request(signal, `/v1/sessions?${open}`, `/v1/sessions?${past}`);
    return got && sessions(view, got[0].data, got[1].data, Date.now());
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async nodes(view, signal) {
    const got = await this.request(signal, "/v1/nodes", "/v1/regions");
    return got && nodes(view, got[0], got[1], Date.now());
  }
}

/**
 * @param {View} view
 * @param {boolean} goesOn there are older turns that were not searched
 */
function none(view, goesOn) {
  if (goesOn) return empty(`No turn with “${view.words}” among the first that were searched.`);
  if (view.window === "24h" || view.session) return empty("No turn matches.");
  const longer = link(view, { window: "24h", since_ms: null }, { class: "button" }, "Show the last 24 hours");
  return empty(`No turn in ${spanName(view)} matches. `, longer);
}
