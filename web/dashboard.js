/**
 * The dashboard: signs in, asks for what the address names, draws it, and draws it anew when the server tells of more.
 *
 * @module
 */

import { VIEWS, WINDOWS, figures, read, turns, write } from "./dashboard/address.js";
import { Chart } from "./dashboard/chart.js";
import { Door } from "./dashboard/door.js";
import { ms } from "./dashboard/figures.js";
import { Filters } from "./dashboard/filters.js";
import { Now } from "./dashboard/now.js";
import { SPANS, overview } from "./dashboard/overview.js";
import { empty, link, swap } from "./dashboard/pieces.js";
import { providers } from "./dashboard/providers.js";
import { sessions } from "./dashboard/sessions.js";
import { follow } from "./dashboard/stream.js";
import { turnList } from "./dashboard/turn_list.js";
import { turnPage } from "./dashboard/turn_page.js";
import { make, part } from "./elements.js";

/** @typedef {import("./dashboard/address.js").View} View */
/** @typedef {import("./dashboard/address.js").Window} Window */

/** After a turn the figures are asked for again, at most so often. */
const AGAIN_MS = 1000;

/** Without one too: windows move on. */
const ANYWAY_MS = 10_000;

/** So many turns, or sessions, are listed at once. */
const PAGE = 50;

/** The chart's steps; the store counts whole minutes, so the shortest window is drawn within a longer one. */
const STEPS = /** @type {Record<Window, [Window, number]>} */ ({
  "1m": ["15m", 60_000],
  "15m": ["15m", 60_000],
  "24h": ["24h", 1_800_000],
});

const LINES = { connecting: "Connecting …", open: "Live", waiting: "Connecting again …", held: "Held still" };

const show = {
  door: part("door", HTMLFormElement),
  key: part("key", HTMLInputElement),
  refusal: part("refusal", HTMLElement),
  bar: part("bar", HTMLElement),
  views: part("views", HTMLElement),
  vitals: part("vitals", HTMLElement),
  status: part("status", HTMLElement),
  trouble: part("trouble", HTMLElement),
  view: part("view", HTMLElement),
  main: part("main", HTMLElement),
  signOut: part("sign-out", HTMLButtonElement),
};

class Dashboard {
  constructor() {
    this.door = new Door(() => this.signedOut(""));
    this.view = read(location.search);
    this.chart = new Chart();
    this.now = new Now(() => this.view);
    this.filters = new Filters(this.door, () => this.view, (changes) => this.go(changes));
    /** @type {any} what the server says of itself; null: not signed in */
    this.about = null;
    this.vitals = new Map();
    this.line = new AbortController();
    this.asking = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.due_ms = Infinity;
    /** Of the list of turns: those of the pages so far. @type {any[]} */
    this.listed = [];
    this.listen();
  }

  listen() {
    show.door.onsubmit = (event) => {
      event.preventDefault();
      this.door.take(show.key.value.trim());
      show.key.value = "";
      void this.enter();
    };
    show.signOut.onclick = () => {
      this.door.signOut();
      this.signedOut("");
    };
    document.onclick = (event) => this.followLink(event);
    window.onpopstate = ({ state }) => void this.changed(state?.top ?? 0);
    document.onvisibilitychange = () => document.hidden || this.load();
  }

  // --- signing in and out -------------------------------------------------------------------

  async enter() {
    let answer = await this.door.ask("/dashboard/about");
    if (!answer.ok && answer.status === 401 && !this.door.key && (await this.door.askTabs())) {
      answer = await this.door.ask("/dashboard/about");
    }
    if (!answer.ok) return this.signedOut(answer.status === 401 && !this.door.key ? "" : answer.words);
    this.about = answer.data;
    this.filters.seesAll = answer.data.sees_all;
    show.door.hidden = true;
    show.bar.hidden = show.views.hidden = show.vitals.hidden = false;
    show.signOut.hidden = !this.door.key;
    this.line = new AbortController();
    void follow(this.door, (told) => this.told(told), (state) => this.lineChanged(state), this.line.signal);
    await this.changed(0);
  }

  /** @param {string} words why; empty: nobody tried */
  signedOut(words) {
    this.about = null;
    this.line.abort();
    this.asking.abort();
    clearTimeout(this.timer);
    this.door.forget();
    this.now.clear();
    show.bar.hidden = show.views.hidden = show.vitals.hidden = show.signOut.hidden = true;
    show.view.replaceChildren();
    show.trouble.hidden = true;
    show.refusal.textContent = words;
    show.door.hidden = false;
    show.key.focus();
    this.say("closed", "Signed out");
  }

  // --- where one is -------------------------------------------------------------------------

  /** @param {Partial<View>} changes */
  go(changes) {
    this.visit(write({ ...this.view, ...changes }));
  }

  /** @param {string} search the address from `?` on */
  visit(search) {
    history.replaceState({ top: scrollY }, "");
    history.pushState({ top: 0 }, "", `/dashboard${search}`);
    void this.changed(null);
  }

  /** @param {MouseEvent} event */
  followLink(event) {
    const anchor = event.target instanceof Element ? event.target.closest("a") : null;
    if (!anchor || anchor.origin !== location.origin || anchor.pathname !== "/dashboard" || anchor.hash) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    this.visit(anchor.search);
  }

  /** @param {number | null} top where to scroll to; null: the place of a new view */
  async changed(top) {
    const before = this.view;
    this.view = read(location.search);
    if (!this.about) return;
    const moved = ["view", "turn", "session"].some((each) => Reflect.get(before, each) !== Reflect.get(this.view, each));
    if (before !== this.view) this.now.clear();
    this.listed = [];
    this.showViews();
    this.filters.show();
    this.lineChanged(null);
    await this.load();
    if (moved && top === null) {
      scrollTo(0, 0);
      show.main.focus({ preventScroll: true });
    } else if (top !== null) scrollTo(0, top);
  }

  showViews() {
    const { view, turn } = this.view;
    const links = Object.entries(VIEWS).map(([name, words]) => {
      const to = /** @type {keyof typeof VIEWS} */ (name);
      const here = name === view && !turn ? { "aria-current": "page" } : {};
      return link(this.view, { view: to, turn: "", session: "" }, /** @type {Record<string, string>} */ (here), words);
    });
    swap(show.views, ...links);
    document.title = `${turn ? "A turn" : VIEWS[view]} · voicepipe`;
  }

  // --- what is seen -------------------------------------------------------------------------

  /** Ask for what is looked at and draw it. */
  async load() {
    if (!this.about) return;
    clearTimeout(this.timer);
    this.due_ms = Infinity;
    this.asking.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    show.view.dataset.busy = "true";
    const pieces = await this.pieces(signal);
    if (signal.aborted) return;
    if (pieces) swap(show.view, ...pieces);
    show.view.dataset.busy = "false";
    if (this.view.at_ms === null) this.again(ANYWAY_MS);
  }

  /** @param {number} wait_ms load again by then */
  again(wait_ms) {
    const due_ms = performance.now() + wait_ms;
    if (due_ms >= this.due_ms || document.hidden) return;
    this.due_ms = due_ms;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.load(), wait_ms);
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<(Node | string)[] | null>} null: it could not be had, and the page says why
   */
  pieces(signal) {
    if (this.view.turn) return this.turn(signal);
    return { overview: this.overview, turns: this.turns, providers: this.providers, sessions: this.sessions }[this.view.view].call(this, signal);
  }

  /**
   * @param {AbortSignal} signal
   * @param {string[]} paths
   * @returns {Promise<any[] | null>} all of them or nothing
   */
  async ask(signal, ...paths) {
    const answers = await Promise.all(paths.map((path) => this.door.ask(path, signal)));
    if (signal.aborted) return null;
    const refused = answers.find((answer) => !answer.ok);
    show.trouble.hidden = !refused;
    if (refused && !refused.ok) {
      if (refused.status === 401) this.signedOut(refused.words);
      else show.trouble.textContent = refused.words;
      this.again(ANYWAY_MS);
      return null;
    }
    return answers.map((answer) => (answer.ok ? answer.data : null));
  }

  /** @param {AbortSignal} signal */
  async overview(signal) {
    const { view } = this;
    const now_ms = Date.now();
    const [long, step_ms] = STEPS[view.window];
    const names = /** @type {Window[]} */ (Object.keys(WINDOWS));
    const asked = names.map((name) =>
      figures(view, name, { ...(name === view.window && { by: view.by }), ...(name === long && { step: step_ms }) }),
    );
    const slow = turns({ ...view, session: "" }, { order: "slowest", limit: 5 }, now_ms);
    const newest = turns({ ...view, session: "", window: "24h" }, { order: "newest", limit: 6 }, now_ms);
    const got = await this.ask(signal, ...asked, slow, newest);
    if (!got) return null;
    const windows = /** @type {Record<Window, any>} */ (Object.fromEntries(names.map((name, i) => [name, got[i]])));
    const end_ms = view.at_ms ?? now_ms;
    const limit_ms = windows["24h"].stages.find((/** @type {any} */ { stage }) => stage === "total")?.limit_ms ?? this.about.limits.total;
    this.now.limit_ms = limit_ms;
    this.now.begin(got[4].data);
    const range = { since_ms: end_ms - WINDOWS[long], until_ms: end_ms, step_ms, limit_ms };
    queueMicrotask(() => this.chart.show(windows[long].series, range)); // once it has a place and thus a width
    const { about, chart, now } = this;
    return overview({ view, about, windows, slowest: got[3].data, chart, now: now.place, now_ms: end_ms, go: (changes) => this.go(changes) });
  }

  /** @param {AbortSignal} signal */
  async turns(signal) {
    const { view } = this;
    const now_ms = Date.now();
    const limit = Math.max(PAGE, Math.min(200, this.listed.length));
    const got = await this.ask(signal, turns(view, { order: view.order, limit }, now_ms));
    if (!got) return null;
    this.listed = got[0].data;
    return this.list(got[0].next, now_ms);
  }

  /**
   * @param {string | null} next
   * @param {number} now_ms
   */
  list(next, now_ms) {
    const { view } = this;
    const orders = /** @type {const} */ ({ slowest: "Slowest first", newest: "Newest first" });
    const links = Object.entries(orders).map(([name, words]) => {
      const order = /** @type {keyof typeof orders} */ (name);
      return link(view, { order }, order === view.order ? { "aria-current": "true" } : {}, words);
    });
    const late = link(view, { over: !view.over }, view.over ? { "aria-current": "true" } : {}, "Only over the limit");
    const head = make("h2", {}, view.session ? `Turns of ${view.session}` : `Turns of ${SPANS[view.window]}`);
    const tabs = make("p", { class: "tabs" }, ...links, late);
    if (!this.listed.length) return [head, tabs, this.none()];
    const more = make("button", { type: "button", id: "more" }, "More");
    more.onclick = () => void this.more(next);
    return [head, tabs, turnList(view, this.listed, now_ms), ...(next ? [more] : [])];
  }

  none() {
    if (this.view.window === "24h" || this.view.session) return empty("No turn is like that.");
    return empty(`No turn in ${SPANS[this.view.window]} is like that. `, link(this.view, { window: "24h" }, { class: "button" }, "Show the last 24 hours"));
  }

  /** @param {string | null} next where the list so far ends */
  async more(next) {
    const { view } = this;
    const got = await this.ask(this.asking.signal, turns(view, { order: view.order, limit: PAGE, before: next ?? "" }, Date.now()));
    if (!got || view !== this.view) return;
    this.listed = [...this.listed, ...got[0].data];
    swap(show.view, ...this.list(got[0].next, Date.now()));
  }

  /** @param {AbortSignal} signal */
  async turn(signal) {
    const got = await this.ask(signal, `/v1/turns/${encodeURIComponent(this.view.turn)}`);
    return got && turnPage(this.view, got[0], Date.now());
  }

  /** @param {AbortSignal} signal */
  async providers(signal) {
    const got = await this.ask(signal, figures(this.view, this.view.window), "/v1/providers");
    return got && providers(this.view, got[0], got[1].data, this.about.published);
  }

  /** @param {AbortSignal} signal */
  async sessions(signal) {
    const { agent, text, project } = this.view.filters;
    const chosen = Object.entries({ agent, text, project }).filter(([, value]) => value);
    const asked = [["live", "true"], ["limit", String(PAGE)]].map((first) => new URLSearchParams([first, ...chosen]));
    const got = await this.ask(signal, ...asked.map((each) => `/v1/sessions?${each}`));
    return got && sessions(this.view, got[0].data, got[1].data, Date.now());
  }

  // --- what the server tells ----------------------------------------------------------------

  /** @param {import("./dashboard/stream.js").Told} told */
  told({ kind, data }) {
    if (kind === "turn") {
      if (matches(this.view, data)) this.now.closed(data);
      if (this.view.at_ms === null && !this.view.turn) this.again(AGAIN_MS);
    } else if (kind === "live") this.now.runs(data);
    else this.vital(kind, data);
  }

  /**
   * @param {string} kind
   * @param {any} data
   */
  vital(kind, data) {
    if (kind === "sessions") {
      this.vitals.set("Sessions", String(data.open));
      if (this.view.view === "sessions") this.again(AGAIN_MS);
    } else if (kind === "loop") this.vitals.set("Loop lag", ms(data.lag_p99_ms));
    else if (kind === "dropped") {
      this.vitals.set("Dropped", String(data.records + data.events));
      if (data.gap) this.again(AGAIN_MS);
    }
    const late = (/** @type {string} */ name) => name === "Dropped" && this.vitals.get(name) !== "0";
    const lines = [...this.vitals].map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", late(name) ? { class: "alarm" } : {}, late(name) ? `▲ ${value}` : value)),
    );
    show.vitals.replaceChildren(...lines);
  }

  /** @param {"connecting" | "open" | "waiting" | null} state null: as it was */
  lineChanged(state) {
    if (state && state !== "open") this.now.forget();
    if (state === "open" && this.lineState === "waiting") this.again(0);
    this.lineState = state ?? this.lineState ?? "connecting";
    const seen = this.view.at_ms !== null && this.lineState === "open" ? "held" : this.lineState;
    this.say(this.lineState, LINES[seen]);
  }

  /**
   * @param {string} state
   * @param {string} words
   */
  say(state, words) {
    show.status.dataset.state = state;
    if (show.status.textContent !== words) show.status.textContent = words;
  }
}

/**
 * Whether a turn is among those that are looked at.
 *
 * @param {View} view
 * @param {any} turn
 */
function matches({ filters, at_ms }, turn) {
  const specs = /** @type {string[]} */ (Object.values(turn.providers));
  const same = { agent: turn.agent, route: turn.pool, language: turn.language, outcome: turn.outcome, arm: turn.arm, project: turn.project };
  return (
    at_ms === null &&
    Object.entries(same).every(([name, value]) => [undefined, value].includes(Reflect.get(filters, name))) &&
    (!filters.model || specs.includes(filters.model)) &&
    (!filters.provider || specs.some((spec) => spec.startsWith(`${filters.provider}/`))) &&
    (!filters.text || turn.session.toLowerCase().includes(filters.text.toLowerCase()))
  );
}

void new Dashboard().enter();
