/**
 * The parts of the views: links, tables, tiles; and updates of the page that keep focus and scroll position.
 *
 * @module
 */

import { make } from "../elements.js";
import { write } from "./address.js";

/** @typedef {import("./address.js").View} View */
/** @typedef {Node | string} Piece */

/**
 * Return a link to another view.
 *
 * @param {View} view
 * @param {Partial<View>} changes
 * @param {Record<string, string>} attributes
 * @param {Piece[]} children
 */
export function link(view, changes, attributes, ...children) {
  return make("a", { href: `/dashboard${write({ ...view, ...changes })}`, ...attributes }, ...children);
}

/** Updates that wait until the pointer is up: a link that is replaced while pressed gets no click. */
const postponed = /** @type {Map<HTMLElement, Piece[]>} */ (new Map());

let pressed = false;

addEventListener("pointerdown", () => (pressed = true), true);
for (const kind of ["pointerup", "pointercancel"]) {
  addEventListener(kind, () => {
    pressed = false;
    setTimeout(() => {
      for (const [place, pieces] of postponed) put(place, pieces);
      postponed.clear();
    }); // after the click
  });
}

/**
 * Replace the pieces. The element with the focus gets it again, and unfolded parts stay unfolded.
 *
 * @param {HTMLElement} place
 * @param {Piece[]} pieces
 */
export function swap(place, ...pieces) {
  if (pressed) postponed.set(place, pieces);
  else put(place, pieces);
}

/**
 * @param {HTMLElement} place
 * @param {Piece[]} pieces
 */
function put(place, pieces) {
  const focused = place.contains(document.activeElement) ? selector(document.activeElement) : "";
  const open = [...place.querySelectorAll("details[open][id]")].map(({ id }) => id);
  const scrolled = [...place.querySelectorAll(".wide[id]")].map((each) => ({ id: each.id, left: each.scrollLeft }));
  place.replaceChildren(...pieces);
  for (const id of open) place.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  for (const { id, left } of scrolled) place.querySelector(`#${CSS.escape(id)}`)?.scrollTo({ left });
  if (!focused) return;
  const again = place.querySelector(focused);
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** @param {Element | null} element that may take the focus */
function selector(element) {
  if (!element) return "";
  if (element.id) return `#${CSS.escape(element.id)}`;
  const href = element.getAttribute("href");
  if (href) return `a[href="${CSS.escape(href)}"]`;
  return element.localName === "summary" ? `#${CSS.escape(element.parentElement?.id ?? "")} > summary` : "";
}

/**
 * @param {string} id
 * @param {string} title
 * @param {Piece[]} children
 */
export function section(id, title, ...children) {
  const heading = make("h2", { id: `${id}-title` }, title);
  return make("section", { id, class: "panel", "aria-labelledby": `${id}-title` }, heading, ...children);
}

/**
 * Return a table that scrolls by itself where it is wider than the page.
 *
 * @param {string} id
 * @param {string} caption for screen readers
 * @param {Piece[]} heads cells of its head, or their texts
 * @param {HTMLTableRowElement[]} rows
 */
export function table(id, caption, heads, rows) {
  const cells = heads.map((head) => (typeof head === "string" ? make("th", { scope: "col" }, head) : head));
  const names = cells.map((cell) => cell.textContent ?? "");
  // A phone shows each row as a card: its cells then have their columns' names beside them.
  for (const line of rows) [...line.cells].forEach((cell, i) => i && cell.setAttribute("data-head", names[i] ?? ""));
  const all = make(
    "table",
    {},
    make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...cells)),
    make("tbody", {}, ...rows),
  );
  return make("div", { id, class: "wide", role: "region", "aria-label": caption, tabindex: "0" }, all);
}

/**
 * @param {Piece} head
 * @param {Piece[]} cells each becomes a cell, unless it is one
 * @param {Record<string, string>} [attributes]
 */
export function row(head, cells, attributes = {}) {
  const made = cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : make("td", {}, cell)));
  return make("tr", attributes, make("th", { scope: "row" }, head), ...made);
}

/**
 * @param {string} name
 * @param {string} value
 * @param {string} text below it
 * @param {boolean} [alarm]
 */
export function tile(name, value, words, alarm = false) {
  const figure = make("dd", { class: alarm ? "figure alarm" : "figure" }, alarm ? `▲ ${value}` : value);
  return make("div", { class: "tile" }, make("dt", {}, name), figure, make("dd", { class: "secondary" }, words));
}

/**
 * Return the notice for an empty place, and what to do about it.
 *
 * @param {Piece[]} children
 */
export function empty(...children) {
  return make("p", { class: "empty" }, ...children);
}

/**
 * Return buttons of which one is pressed, as radio buttons are.
 *
 * @param {string} name
 * @param {Record<string, string>} choices value -> text
 * @param {string} chosen
 * @param {(value: any) => void} choose
 */
export function choices(name, choices, chosen, choose) {
  return Object.entries(choices).map(([value, words]) => {
    const radio = make("input", { type: "radio", name, value, id: `${name}-${value}` });
    radio.checked = value === chosen;
    radio.onchange = () => choose(value);
    return make("label", {}, radio, make("span", {}, words));
  });
}
