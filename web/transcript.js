/**
 * The conversation on the page: who said what, where the agent was cut, and under each answer how long it took.
 *
 * @module
 */

import { latencyCard } from "./bars.js";
import { make } from "./elements.js";

/** @typedef {import("./call.js").Entry} Entry */

const NAMES = { caller: "You", agent: "Agent" };

export class Transcript {
  /** @param {HTMLElement} list an `ol` */
  constructor(list) {
    this.list = list;
    /** @type {Map<string, HTMLElement>} */
    this.shown = new Map();
  }

  get empty() {
    return this.list.childElementCount === 0;
  }

  clear() {
    this.list.replaceChildren();
    this.shown.clear();
  }

  /** @param {Entry} entry */
  show(entry) {
    const follow = this.atEnd();
    const item = this.shown.get(entry.id) ?? this.added(entry);
    item.classList.toggle("cut", entry.cut);
    item.classList.toggle("failed", entry.failure !== "");
    item.querySelector(".words")?.replaceChildren(...words(entry));
    if (follow) this.toEnd();
  }

  /**
   * @param {Entry} entry
   * @param {import("./turns.js").TurnRecord} record
   */
  measure(entry, record) {
    const item = this.shown.get(entry.id);
    if (!item) return;
    const follow = this.atEnd();
    const old = item.querySelector(".latency");
    const unfolded = old?.querySelector("details")?.open ?? null;
    const card = latencyCard(record, unfolded);
    card.dataset.outcome = record.outcome ?? "";
    if (old) old.replaceWith(card);
    else item.append(card);
    if (follow) this.toEnd();
  }

  /** @param {string} text something that is nobody's words */
  note(text) {
    const follow = this.atEnd();
    this.list.append(make("li", { class: "note" }, text));
    if (follow) this.toEnd();
  }

  /** @param {Entry} entry */
  added(entry) {
    const who = make("h2", { class: "who" }, NAMES[entry.who]);
    const item = make("li", { class: `entry ${entry.who}`, "data-item": entry.id }, who, make("p", { class: "words" }));
    this.list.append(item);
    this.shown.set(entry.id, item);
    return item;
  }

  /** Whether the end is in sight: whoever reads further up is left there. */
  atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = document.documentElement;
    return scrollHeight - scrollTop - clientHeight < 160;
  }

  toEnd() {
    window.scrollTo({ top: document.documentElement.scrollHeight });
  }
}

/**
 * @param {Entry} entry
 * @returns {(Node | string)[]}
 */
function words(entry) {
  if (entry.failure) return [entry.text, make("span", { class: "failure" }, ` ${failure(entry)}`)];
  if (entry.cut) return cut(entry);
  if (entry.text) return [entry.text];
  return [make("span", { class: "faint" }, entry.done ? "(nothing understood)" : "…")];
}

/** @param {Entry} entry */
function failure(entry) {
  return entry.who === "caller"
    ? `(what you said could not be understood: ${entry.failure})`
    : `(no answer: ${entry.failure})`;
}

/**
 * The words that were heard, the cut, and those that were not.
 *
 * @param {Entry} entry
 */
function cut({ text, heard }) {
  const mark = make("span", { class: "cut-mark" }, " — you interrupted here ");
  if (heard === null) return [text, mark];
  const rest = text.startsWith(heard.trimEnd()) ? text.slice(heard.trimEnd().length) : "";
  const unheard = make("del", {}, make("span", { class: "unseen" }, "Not heard: "), rest);
  return [heard, mark, ...(rest.trim() ? [unheard] : [])];
}
