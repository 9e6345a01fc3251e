/**
 * The views: the data that each loads, and the pieces that it draws.
 *
 * @module
 */

import { make } from "../elements.js";
import { WINDOWS, figures, turns } from "./address.js";
import { Chart } from "./chart.js";
import { SPANS, overview } from "./overview.js";
import { empty, link, swap } from "./components.js";
import { providers } from "./providers.js";
import { totalOf } from "./stage_bar.js";
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
const MOST = 200;

/** The chart's steps; the store counts whole minutes, so the shortest window is drawn within a longer one. */
const STEPS = /** @type {Record<Window, [Window, number]>} */ ({
  "1m": ["15m", 60_000],
  "15m": ["15m", 60_000],
  "24h": ["24h", 1_800_000],
});

/** From this many turns on, one more changes little: the figures are loaded again only after a while. */
const MANY = 1000;
const STALE_MS = 10_000;

export class Views {
  /**
   * @param {Request} request
   * @param {(changes: Partial<View>) => void} go to another view
   * @param {import("./live_turns.js").Now} now
   * @param {HTMLElement} place their container
   */
  constructor(request, go, now, place) {
    this.request = request;
    this.go = go;
    this.now = now;
    this.place = place;
    this.chart = new Chart();
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
    return view.view === "sessions" ? this.sessions(view, signal) : this.overview(view, about, signal);
  }

  /**
   * @param {View} view
   * @param {any} about
   * @param {AbortSignal} signal
   */
  async overview(view, about, signal) {
    const now_ms = Date.now();
    const end_ms = view.at_ms ?? now_ms;
    const [long, step_ms] = STEPS[view.window];
    const names = /** @type {Window[]} */ (Object.keys(WINDOWS));
    const paths = names.map((name) =>
      figures(view, name, { ...(name === view.window && { by: view.by }), ...(name === long && { step: step_ms }) }),
    );
    const slow = turns({ ...view, session: "" }, { order: "slowest", limit: 5 }, now_ms);
    const newest = turns({ ...view, session: "", window: "24h" }, { order: "newest", limit: 6 }, now_ms);
    const stale = paths.filter((path) => now_ms - (this.cached.get(path)?.at_ms ?? -Infinity) > STALE_MS);
    const got = await this.request(signal, slow, newest, ...stale);
    if (!got) return null;
    const [worst, latest, ...figured] = got;
    const fresh = new Map(stale.map((path, i) => [path, figured[i]]));
    for (const [path, stats] of fresh) if (stats.turns >= MANY) this.cached.set(path, { stats, at_ms: now_ms });
    const all = paths.map((path, i) => [names[i], fresh.get(path) ?? this.cached.get(path)?.stats]);
    const windows = /** @type {Record<Window, any>} */ (Object.fromEntries(all));
    const limit_ms = totalOf(windows["24h"])?.limit_ms ?? about.limits.total;
    this.now.limit_ms = limit_ms;
    this.now.begin(latest.data);
    this.chart.show(windows[long].series, { since_ms: end_ms - WINDOWS[long], until_ms: end_ms, step_ms, limit_ms });
    const { chart, now, go } = this;
    return overview({ view, about, windows, slowest: worst.data, chart, now: now.place, now_ms: end_ms, go });
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async turns(view, signal) {
    if (this.listed.length > MOST) return this.list(view, signal); // a list of this length is not updated
    const limit = Math.max(PAGE, this.listed.length);
    const got = await this.request(signal, turns(view, { order: view.order, limit }, Date.now()));
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
    const head = make("h2", {}, view.session ? `Turns of ${view.session}` : `Turns of ${SPANS[view.window]}`);
    const tabs = make("p", { class: "tabs" }, ...links, late);
    if (!this.listed.length) return [head, tabs, none(view)];
    const more = make("button", { type: "button", id: "more" }, "More");
    more.onclick = () => void this.more(view, signal);
    return [head, tabs, turnList(view, this.listed, Date.now()), ...(this.next ? [more] : [])];
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async more(view, signal) {
    const before = this.next ?? "";
    const got = await this.request(signal, turns(view, { order: view.order, limit: PAGE, before }, Date.now()));
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
    return got && turnPage(view, got[0], Date.now());
  }

  /**
   * @param {View} view
   * @param {any} about
   * @param {AbortSignal} signal
   */
  async providers(view, about, signal) {
    const got = await this.request(signal, figures(view, view.window), "/v1/providers");
    return got && providers(view, got[0], got[1].data, about.published);
  }

  /**
   * @param {View} view
   * @param {AbortSignal} signal
   */
  async sessions(view, signal) {
    const { agent, text, project } = view.filters;
    const chosen = { ...(agent && { agent }), ...(text && { text }), ...(project && { project }) };
    const open = new URLSearchParams({ ...chosen, live: "true" });
    const past = new URLSearchParams({ ...chosen, limit: String(PAGE) });
    const got = await this.request(signal, `/v1/sessions?${open}`, `/v1/sessions?${past}`);
    return got && sessions(view, got[0].data, got[1].data, Date.now());
  }
}

/** @param {View} view */
function none(view) {
  if (view.window === "24h" || view.session) return empty("No turn matches.");
  const longer = link(view, { window: "24h" }, { class: "button" }, "Show the last 24 hours");
  return empty(`No turn in ${SPANS[view.window]} matches. `, longer);
}
