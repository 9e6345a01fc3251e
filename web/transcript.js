/**
 * The conversation on the page: its items, where the agent was cut, and the latency below each answer.
 *
 * @module
 */

import { make } from "./elements.js";

/** @typedef {import("./conversation.js").Entry} Entry */

const NAMES = { user: "You", agent: "Agent" };

export class Transcript {
  /** @param {HTMLElement} list an `ol` */
  constructor(list) {
    this.list = list;
    /** @type {Map<string, HTMLElement>} */
    this.items = new Map();
    /** The latencies: turn -> the card, and the answer that it belongs to. @type {Map<string, HTMLElement>} */
    this.cards = new Map();
    /** @type {Map<string, string>} */
    this.answers = new Map();
  }

  get empty() {
    return this.list.childElementCount === 0;
  }

  clear() {
    this.list.replaceChildren();
    this.items.clear();
    this.cards.clear();
    this.answers.clear();
  }

  /** @param {Entry} entry */
  show(entry) {
    const follow = this.atEnd();
    const item = this.items.get(entry.id) ?? this.added(entry);
    item.classList.toggle("cut", entry.cut);
    item.classList.toggle("failed", entry.failure !== "");
    item.querySelector(".words")?.replaceChildren(...words(entry));
    if (entry.turn && this.answers.get(entry.turn) !== entry.id) {
      this.answers.set(entry.turn, entry.id);
      if (this.cards.has(entry.turn)) this.place(entry.turn);
    }
    if (follow) this.toEnd();
  }

  /**
   * Show a turn's latency below its answer, once there is one, in place of its earlier card.
   *
   * @param {string} turn
   * @param {HTMLElement} card
   */
  measure(turn, card) {
    const follow = this.atEnd();
    const old = this.cards.get(turn);
    this.cards.set(turn, card);
    if (old?.isConnected) old.replaceWith(card);
    this.place(turn);
    if (follow) this.toEnd();
  }

  /** @param {string} turn whose card is removed */
  unmeasure(turn) {
    remove(this.cards.get(turn));
    this.cards.delete(turn);
  }

  /** @param {string} turn whether the user has unfolded its stages; null: there was nothing to unfold */
  unfolded(turn) {
    return this.cards.get(turn)?.querySelector("details")?.open ?? null;
  }

  /** @param {string} turn whose card goes below its answer; while it runs and has none, to the end */
  place(turn) {
    const card = /** @type {HTMLElement} */ (this.cards.get(turn));
    const answer = this.items.get(this.answers.get(turn) ?? "");
    const runs = card.classList.contains("live");
    if (answer?.contains(card) || (!answer && runs && card.isConnected)) return;
    remove(card);
    if (answer) answer.append(card);
    else if (runs) this.list.append(make("li", { class: "waiting" }, card));
  }

  /** @param {string} text a notice, no item of the conversation */
  note(text) {
    const follow = this.atEnd();
    this.list.append(make("li", { class: "note" }, text));
    if (follow) this.toEnd();
  }

  /** @param {Entry} entry */
  added(entry) {
    const role = make("h2", { class: "role" }, NAMES[entry.role]);
    const item = make("li", { class: `entry ${entry.role}`, "data-item": entry.id }, role, make("p", { class: "words" }));
    this.list.append(item);
    this.items.set(entry.id, item);
    return item;
  }

  /** Return whether the end is visible: a user who reads further up is not scrolled away. */
  atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = document.documentElement;
    return scrollHeight - scrollTop - clientHeight < 160;
  }

  toEnd() {
    window.scrollTo({ top: document.documentElement.scrollHeight });
  }
}

/** @param {HTMLElement | undefined} card and its container */
function remove(card) {
  const item = card?.closest(".waiting");
  card?.remove();
  item?.remove();
}

/**
 * @param {Entry} entry
 * @returns {(Node | string)[]}
 */
function words(entry) {
  if (entry.failure) return [entry.text, make("span", { class: "failure" }, ` ${failure(entry)}`)];
  if (entry.cut) return cut(entry);
  if (entry.text) return [entry.text];
  return [make("span", { class: "secondary" }, entry.done ? "(nothing understood)" : "…")];
}

/** @param {Entry} entry */
function failure(entry) {
  return entry.role === "user"
    ? `(what you said could not be understood: ${entry.failure})`
    : `(no answer: ${entry.failure})`;
}

/**
 * Return the text that was played, the cut, and the rest.
 *
 * @param {Entry} entry
 */
function cut({ text, played }) {
  const mark = make("span", { class: "cut-mark" }, " — you interrupted here ");
  if (played === null) return [text, mark];
  const rest = text.startsWith(played.trimEnd()) ? text.slice(played.trimEnd().length) : "";
  const unplayed = make("del", {}, make("span", { class: "unseen" }, "Not played: "), rest);
  return [played, mark, ...(rest.trim() ? [unplayed] : [])];
}
