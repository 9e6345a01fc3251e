/**
 * Live turns: those whose users wait now, and those that were answered last.
 *
 * @module
 */

import { liveCard } from "../latency_bar.js";
import { make } from "../elements.js";
import { LiveTurns, isDisplayed } from "../live.js";
import { empty, swap } from "./components.js";
import { turnList } from "./turn_list.js";

/** The interval at which a live latency is drawn. */
const TICK_MS = 100;

/** The most running turns that are drawn; the rest are counted. */
const DRAWN = 4;

/** The most running turns that are followed; the oldest are dropped, since an end may be missed. */
const FOLLOWED = 100;

/** The most answered turns that are shown. */
const MAX_ANSWERED = 6;

export class LiveTurnsPanel {
  /** @param {() => import("./address.js").View} view */
  constructor(view) {
    this.view = view;
    this.place = make("div", { class: "now" });
    this.running = make("div", { class: "running" });
    this.answered = make("div");
    this.place.append(this.running, this.answered);
    this.live = new LiveTurns();
    /** Turn -> its node, of several that share a store; bounded as the running turns. @type {Map<string, string>} */
    this.nodes = new Map();
    /** Newest first; bounded by MAX_ANSWERED. @type {any[]} */
    this.turns = [];
    /** The total limit in ms. @type {number | null} */
    this.limit_ms = null;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.clock = undefined;
  }

  /** @param {any[]} turns the newest, from the store */
  begin(turns) {
    const known = new Set(turns.map(({ id }) => id));
    this.turns = [...this.turns.filter(({ id }) => !known.has(id)), ...turns]
      .toSorted((a, b) => Date.parse(b.started_at) - Date.parse(a.started_at))
      .slice(0, MAX_ANSWERED);
    this.draw();
  }

  /** @param {any} event of a running turn: a mark, a stage's verdict, or an action */
  runs(event) {
    if (event.type === "voicepipe.turn.stage") this.live.verdict(event);
    else if (event.type === "voicepipe.turn.action") this.live.action(event);
    else this.live.mark(event, performance.now());
    if (event.node) this.nodes.set(event.turn_id, event.node);
    const [oldest] = this.live.running.keys();
    if (this.live.running.size > FOLLOWED) this.over(oldest);
    this.tick();
  }

  /** @param {any} turn that has ended, or whose record has changed */
  closed(turn) {
    this.over(turn.id);
    this.begin([turn]);
    this.tick();
  }

  /** @param {string} id of a turn that is over */
  over(id) {
    this.live.over(id);
    this.nodes.delete(id);
  }

  /** @param {import("../live.js").Running} turn */
  card(turn) {
    const card = liveCard(turn, performance.now(), this.limit_ms);
    const node = this.nodes.get(turn.id);
    if (node) card.append(make("p", { class: "secondary" }, `Node ${node}`));
    return card;
  }

  /** Drop the running turns after a break of the stream: their state is unknown. */
  dropRunning() {
    this.live.running.clear();
    this.nodes.clear();
    this.tick();
  }

  /** Drop all turns for a new view: they may not belong to it. */
  clear() {
    this.turns = [];
  }

  tick() {
    const displayed = [...this.live.running.values()].filter(isDisplayed);
    const cards = displayed.slice(0, DRAWN).map((turn) => this.card(turn));
    const rest = displayed.length > DRAWN ? [make("p", { class: "secondary" }, `and ${displayed.length - DRAWN} more`)] : [];
    this.running.replaceChildren(...cards, ...rest);
    if (!this.live.busy) {
      clearInterval(this.clock);
      this.clock = undefined;
    } else this.clock ??= setInterval(() => this.tick(), TICK_MS);
  }

  draw() {
    const none = empty("No turn was answered so far.");
    swap(this.answered, this.turns.length ? turnList(this.view(), this.turns, Date.now()) : none);
  }
}
