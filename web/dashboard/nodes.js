/**
 * The nodes that share a store: their load, and whether they take sessions; and the pages of the other regions.
 *
 * @module
 */

import { make } from "../elements.js";
import { clock, count, ms, percent } from "./figures.js";
import { link, row, section, table } from "./components.js";

/** @typedef {import("./address.js").View} View */

/**
 * @param {View} view
 * @param {{data: any[], complete: boolean}} found of `GET /v1/nodes`
 * @param {{region: string, data: {name: string, url: string}[]}} regions of `GET /v1/regions`
 * @param {number} now_ms
 */
export function nodes(view, { data, complete }, regions, now_ms) {
  const words = (/** @type {string} */ name) => make("th", { scope: "col", class: "words" }, name);
  const heads = ["Node", words("State"), "Sessions", "Limit", "Event loop's lag", "CPU", "Processes", "Since", words("Version")];
  const rows = data.map((each) =>
    row(link(view, { view: "sessions", node: each.node }, {}, each.node), [
      make("td", { class: "words" }, each.draining ? "◐ draining" : "● takes sessions"),
      String(each.sessions),
      String(each.max_sessions),
      ms(each.loop_lag_ms),
      percent(each.cpu_share),
      String(each.processes),
      clock(each.started_at, now_ms),
      make("td", { class: "words" }, each.versions.join(", ")),
    ]),
  );
  const away = make("p", { class: "failure" }, "The shared store is away: only this process is known.");
  const others = regions.data.filter(({ name }) => name !== regions.region);
  const elsewhere = others.flatMap(({ name, url }) => [" ", make("a", { href: `${url}/dashboard?view=nodes` }, name)]);
  const region = make("p", { id: "regions" }, `Region: ${regions.region}.`, ...(others.length ? [" Others:", ...elsewhere] : []));
  return [
    section(
      "nodes",
      `Now: ${count(data.length, "node")}`,
      ...(complete ? [] : [away]),
      ...(regions.region ? [region] : []),
      table("node-table", "Nodes", heads, rows),
    ),
  ];
}
