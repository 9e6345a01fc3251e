/**
 * Sessions: the open ones and the ended ones.
 *
 * @module
 */

import { make } from "../elements.js";
import { clock, ms, share, short, usd } from "./figures.js";
import { empty, link, row, section, table } from "./components.js";

/** @typedef {import("./address.js").View} View */

/**
 * @param {View} view
 * @param {any[]} open
 * @param {any[]} past
 * @param {number} now_ms
 */
export function sessions(view, open, past, now_ms) {
  const talk = make("a", { href: "/talk", class: "button" }, "Start a conversation");
  return [
    section(
      "open",
      "Open now",
      open.length ? list(view, "open-table", "Open sessions", open, now_ms) : empty("No session is open. ", talk),
    ),
    section(
      "past",
      "Of the past",
      past.length ? list(view, "past-table", "Ended sessions", past, now_ms) : empty("None is stored yet."),
    ),
  ];
}

/**
 * @param {View} view
 * @param {string} id
 * @param {string} caption
 * @param {any[]} found
 * @param {number} now_ms
 */
function list(view, id, caption, found, now_ms) {
  const [agent, user] = ["Agent", "User"].map((name) => make("th", { scope: "col", class: "words" }, name));
  const isOpen = found.some(({ node }) => node);
  const nodes = isOpen ? [make("th", { scope: "col", class: "words" }, "Node")] : [];
  const heads = ["Session", "Began", ...nodes, agent, user, "Turns", "Over", "Failed", "Slowest", "Cost"];
  const rows = found.map((each) =>
    row(link(view, { view: "turns", session: each.id, order: "newest" }, { title: each.id }, short(each.id)), [
      clock(each.started_at ?? each.started_at_ms, now_ms),
      ...(isOpen ? [make("td", { class: "words" }, link(view, { node: each.node }, {}, each.node))] : []),
      make("td", { class: "words" }, each.agent),
      make("td", { class: "words" }, each.user || "–"),
      String(each.turns ?? 0),
      share(each.over ?? 0, each.turns ?? 0),
      String(each.failed ?? 0),
      ms(each.slowest_ms),
      usd(each.cost_usd),
    ]),
  );
  return table(id, caption, heads, rows);
}
