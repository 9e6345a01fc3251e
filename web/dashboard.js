/**
 * The dashboard: signs in, loads the view that the address names, draws it, and draws it again on the server's events.
 *
 * @module
 */

import { VIEWS, read, write } from "./dashboard/address.js";
import { OperatorKey } from "./dashboard/sign_in.js";
import { ms } from "./dashboard/figures.js";
import { Filters } from "./dashboard/filters.js";
import { LiveTurnsPanel } from "./dashboard/live_turns.js";
import { link, swap } from "./dashboard/components.js";
import { storageNotice } from "./dashboard/storage.js";
import { follow } from "./dashboard/stream.js";
import { Views } from "./dashboard/views.js";
import { make, part } from "./elements.js";

/** @typedef {import("./dashboard/address.js").View} View */

/** The shortest time between two loads of the figures after turns. */
const AGAIN_MS = 1000;

/** The longest time between two loads: windows move on. */
const ANYWAY_MS = 10_000;

const LINES = { connecting: "Connecting …", open: "Live", waiting: "Connecting again …", held: "Paused" };

const show = {
  signIn: part("sign-in", HTMLFormElement),
  key: part("key", HTMLInputElement),
  refusal: part("refusal", HTMLElement),
  bar: part("bar", HTMLElement),
  views: part("views", HTMLElement),
  serverStatus: part("server-status", HTMLElement),
  status: part("status", HTMLElement),
  error: part("error", HTMLElement),
  view: part("view", HTMLElement),
  main: part("main", HTMLElement),
  signOut: part("sign-out", HTMLButtonElement),
  storage: part("storage", HTMLElement),
};

class Dashboard {
  constructor() {
    this.operator = new OperatorKey(() => this.signedOut(""));
    this.view = read(location.search);
    this.now = new LiveTurnsPanel(() => this.view);
    this.views = new Views(
      (signal, ...paths) => this.request(signal, ...paths),
      (changes) => this.go(changes),
      this.now,
      show.view,
      (path, name) => this.download(path, name),
      this.operator,
    );
    this.filters = new Filters(
      this.operator,
      () => this.view,
      (changes) => this.go(changes),
    );
    /** @type {any} the server's description of itself; null: not signed in */
    this.about = null;
    /** @type {keyof typeof LINES} */
    this.lineState = "connecting";
    /** At the head of the page, in this order. */
    this.statusValues = new Map([
      ["Sessions", "–"],
      ["Loop lag", "–"],
      ["Dropped", "–"],
    ]);
    this.line = new AbortController();
    this.loading = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.due_ms = Infinity;
    this.listen();
  }

  listen() {
    show.signIn.onsubmit = (event) => {
      event.preventDefault();
      this.operator.take(show.key.value.trim());
      show.key.value = "";
      void this.enter();
    };
    show.signOut.onclick = () => {
      this.operator.signOut();
      this.signedOut("");
    };
    document.onclick = (event) => this.followLink(event);
    window.onpopstate = ({ state }) => void this.changed(state?.top ?? 0);
    document.onvisibilitychange = () => document.hidden || this.load();
  }

  // --- signing in and out -------------------------------------------------------------------

  async enter() {
    let answer = await this.operator.fetch("/dashboard/about");
    if (!answer.ok && answer.status === 401 && !this.operator.key && (await this.operator.requestFromTabs())) {
      answer = await this.operator.fetch("/dashboard/about");
    }
    if (!answer.ok) return this.signedOut(answer.status === 401 && !this.operator.key ? "" : answer.words);
    this.about = answer.data;
    this.filters.seesAll = answer.data.sees_all;
    show.signIn.hidden = true;
    show.bar.hidden = show.views.hidden = show.serverStatus.hidden = false;
    show.signOut.hidden = !this.operator.key;
    this.line = new AbortController();
    void follow(
      this.operator,
      (event) => this.received(event),
      (state) => this.lineChanged(state),
      this.line.signal,
    );
    await this.changed(0);
  }

  /** @param {string} words why; empty: no key was tried */
  signedOut(words) {
    this.about = null;
    this.line.abort();
    this.loading.abort();
    clearTimeout(this.timer);
    this.operator.clear();
    this.now.clear();
    show.bar.hidden = show.views.hidden = show.serverStatus.hidden = show.signOut.hidden = true;
    show.view.replaceChildren();
    show.storage.replaceChildren();
    show.error.hidden = true;
    show.refusal.textContent = words;
    show.signIn.hidden = false;
    show.key.focus();
    this.showState("closed", "Signed out");
  }

  // --- the view -------------------------------------------------------------------------

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
    const moved = ["view", "turn", "session"].some(
      (each) => Reflect.get(before, each) !== Reflect.get(this.view, each),
    );
    if (before !== this.view) this.now.clear();
    this.views.clearCache();
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
    const listed = Object.entries(VIEWS).filter(([name]) => name !== "nodes" || this.about.sees_all);
    const links = listed.map(([name, words]) => {
      const to = /** @type {keyof typeof VIEWS} */ (name);
      const here = name === view && !turn ? { "aria-current": "page" } : {};
      return link(this.view, { view: to, turn: "", session: "" }, /** @type {Record<string, string>} */ (here), words);
    });
    swap(show.views, ...links);
    document.title = `${turn ? "A turn" : VIEWS[view]} · voicepipe`;
  }

  // --- load and draw -------------------------------------------------------------------------

  /** Load the view and draw it. */
  async load() {
    if (!this.about) return;
    clearTimeout(this.timer);
    this.due_ms = Infinity;
    this.loading.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    show.view.dataset.busy = "true";
    const pieces = await this.views.pieces(this.view, this.about, signal);
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
   * @param {string[]} paths
   * @returns {Promise<any[] | null>} all of them or nothing
   */
  async request(signal, ...paths) {
    const answers = await Promise.all(paths.map((path) => this.operator.fetch(path, signal)));
    if (signal.aborted) return null;
    const refused = answers.find((answer) => !answer.ok);
    show.error.hidden = !refused;
    if (refused && !refused.ok) {
      if (refused.status === 401) this.signedOut(refused.words);
      else show.error.textContent = refused.words;
      this.again(ANYWAY_MS);
      return null;
    }
    return answers.map((answer) => (answer.ok ? answer.data : null));
  }

  /**
   * Save an answer as a file. The key is in a header, so a plain link would be refused.
   *
   * @param {string} path
   * @param {string} name
   */
  async download(path, name) {
    const answer = await this.operator.fetchFile(path);
    show.error.hidden = answer.ok;
    if (!answer.ok) {
      if (answer.status === 401) this.signedOut(answer.words);
      else show.error.textContent = answer.words;
      return;
    }
    const href = URL.createObjectURL(answer.data);
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href));
  }

  // --- the server's events ----------------------------------------------------------------

  /** @param {import("./dashboard/stream.js").StreamEvent} event */
  received({ kind, data }) {
    if (kind === "turn") {
      if (matches(this.view, data)) this.now.closed(data);
      if (this.view.at_ms === null && !this.view.turn) this.again(AGAIN_MS);
    } else if (kind === "live") {
      if (concerns(this.view, data)) this.now.runs(data);
    } else if (kind === "storage") swap(show.storage, ...storageNotice(data.failing_stores));
    this.updateStatus(kind, data);
  }

  /**
   * @param {string} kind
   * @param {any} data
   */
  updateStatus(kind, data) {
    if (kind === "sessions") {
      this.statusValues.set("Sessions", String(data.open));
      if (this.view.view === "sessions") this.again(AGAIN_MS);
    } else if (kind === "loop") this.statusValues.set("Loop lag", ms(data.lag_p99_ms));
    else if (kind === "dropped") {
      this.statusValues.set("Dropped", String(data.records + data.events));
      if (data.gap) this.again(AGAIN_MS);
    }
    const late = (/** @type {string} */ name) => name === "Dropped" && Number(this.statusValues.get(name)) > 0;
    const lines = [...this.statusValues].map(([name, value]) =>
      make(
        "div",
        {},
        make("dt", {}, name),
        make("dd", late(name) ? { class: "alarm" } : {}, late(name) ? `▲ ${value}` : value),
      ),
    );
    show.serverStatus.replaceChildren(...lines);
  }

  /** @param {"connecting" | "open" | "waiting" | null} state null: as it was */
  lineChanged(state) {
    if (state && state !== "open") this.now.dropRunning();
    if (state === "open" && this.lineState === "waiting") this.again(0);
    if (state === "open") swap(show.storage); // the stores that still fail are reported next
    this.lineState = state ?? this.lineState;
    const seen = this.view.at_ms !== null && this.lineState === "open" ? "held" : this.lineState;
    this.showState(this.lineState, LINES[seen]);
  }

  /**
   * @param {string} state
   * @param {string} words
   */
  showState(state, words) {
    show.status.dataset.state = state;
    if (show.status.textContent !== words) show.status.textContent = words;
  }
}

/**
 * Return whether a running turn may belong to the view; its outcome is not known yet.
 *
 * @param {View} view
 * @param {any} turn
 */
function concerns({ filters, at_ms, node: chosen }, { agent, project, session, node }) {
  return (
    at_ms === null &&
    (!chosen || chosen === node) &&
    [undefined, agent].includes(filters.agent) &&
    [undefined, project].includes(filters.project) &&
    session.toLowerCase().includes((filters.text ?? "").toLowerCase())
  );
}

/**
 * Return whether a turn belongs to the view.
 *
 * @param {View} view
 * @param {any} turn
 */
function matches(view, turn) {
  const { filters } = view;
  const specs = /** @type {string[]} */ (Object.values(turn.providers));
  return (
    concerns(view, turn) &&
    [undefined, turn.pool].includes(filters.route) &&
    [undefined, turn.language].includes(filters.language) &&
    [undefined, turn.outcome].includes(filters.outcome) &&
    [undefined, turn.arm].includes(filters.arm) &&
    (!filters.model || specs.includes(filters.model)) &&
    (!filters.provider || specs.some((spec) => spec.startsWith(`${filters.provider}/`)))
  );
}

void new Dashboard().enter();
