/**
 * The overview: the key figures, latency by stage, the worst turns, and live turns.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { GROUPS, WINDOWS } from "./address.js";
import { burn, count, ms, share, times, usd, whole } from "./figures.js";
import { choices, empty, link, row, section, table, tile } from "./components.js";
import { second, stagesOf, totalOf } from "./stage_bar.js";
import { turnList } from "./turn_list.js";

/** @typedef {import("./address.js").View} View */
/** @typedef {import("./address.js").Window} Window */
/** @typedef {Record<Window, any>} Windows the stats of each window */

/** @type {Record<Window, string>} */
export const SPANS = { "1m": "the last minute", "15m": "the last 15 minutes", "24h": "the last 24 hours" };

/** @type {Record<Window, string>} */
export const NAMES = { "1m": "1 min", "15m": "15 min", "24h": "24 h" };

const PARTIAL = "Too many turns match: only the newest were counted.";

/** @type {Record<string, string>} */
const GROUP_NAMES = {
  agent: "Agent",
  route: "Route",
  provider: "Provider",
  model: "Model",
  language: "Language",
  outcome: "Outcome",
  arm: "A/B arm",
};

/**
 * @typedef {object} OverviewData
 * @property {View} view
 * @property {any} about the server
 * @property {Windows} windows
 * @property {any[]} slowest turns
 * @property {import("./chart.js").Chart} chart
 * @property {HTMLElement} now the live turns; they draw themselves
 * @property {number} now_ms
 * @property {(changes: Partial<View>) => void} go
 */

/** @param {OverviewData} shown */
export function overview(data) {
  const { view, windows, about } = data;
  const stats = windows[view.window];
  const now = section("now", view.at_ms === null ? "Now" : "The newest turns", data.now);
  if (!stats.turns) return [nothing(data), now];
  const limit_ms = totalOf(stats)?.limit_ms ?? about.limits.total;
  return [
    ...(stats.partial ? [make("p", { class: "faint" }, PARTIAL)] : []),
    tiles(stats, windows, limit_ms, about.over_allowed),
    section("second", "Latency by stage", ...second(stats, limit_ms), data.chart.place, chartWords()),
    make("div", { class: "columns" }, slowest(data), now),
    section("stages", "Stages", stageTable(view, windows)),
    section("groups", "Side by side", ...groups(data)),
  ];
}

function chartWords() {
  const words =
    "Each bar: the mean latency by stage. ○ the slowest of 20 turns (p95). The dashed line is the limit.";
  return make("p", { class: "faint" }, words);
}

/** @param {OverviewData} shown */
function nothing({ view, windows }) {
  const filtered = Object.keys(view.filters).length > 0;
  const longer = windows["24h"].turns && view.window !== "24h";
  if (longer) {
    const more = link(view, { window: "24h" }, { class: "button" }, "Show the last 24 hours");
    return empty(
      `No turn in ${SPANS[view.window]}; ${count(windows["24h"].turns, "turn")} in the last 24 hours. `,
      more,
    );
  }
  if (filtered) {
    const all = link(view, { filters: {} }, { class: "button" }, "Leave the filters out");
    return empty(`No turn in ${SPANS[view.window]} with these filters. `, all);
  }
  const talk = make("a", { href: "/talk", class: "button" }, "Start a conversation");
  return empty("No turns yet. ", talk, " and watch it here: this page needs no reload.");
}

/**
 * @param {any} stats
 * @param {Windows} windows
 * @param {number} limit_ms
 * @param {number} allowed
 */
function tiles(stats, windows, limit_ms, allowed) {
  const total = totalOf(stats);
  const rate = burn(stats.over, stats.measured, allowed);
  const rates = Object.entries(windows).map(([name, its]) => {
    return `${NAMES[/** @type {Window} */ (name)]} ${times(burn(its.over, its.measured, allowed))}`;
  });
  const failed = stats.outcomes.failed ?? 0;
  const losers = stats.cost_usd.hedge_usd + stats.cost_usd.speculation_usd;
  return make(
    "dl",
    { class: "tiles" },
    tile("Turn latency p50", ms(total?.p50_ms), "from the user's last voiced sample", (total?.p50_ms ?? 0) > limit_ms),
    tile("Turn latency p95", ms(total?.p95_ms), `p99 ${ms(total?.p99_ms)}`, (total?.p95_ms ?? 0) > limit_ms),
    tile(
      `Over ${limit_ms} ms`,
      share(stats.over, stats.measured),
      `${stats.over} of ${count(stats.measured, "turn")}`,
      stats.over > 0 && (rate ?? 0) > 1,
    ),
    tile("Budget burn rate", times(rate), rates.join(" · "), (rate ?? 0) > 1),
    tile(
      "Failed",
      String(failed),
      `of ${count(stats.turns, "turn")}; ${stats.outcomes.interrupted ?? 0} interrupted`,
      failed > 0,
    ),
    tile("Cost", usd(stats.cost_usd.usd), `${usd(losers)} of it for replies that were never played`),
  );
}

/** @param {OverviewData} shown */
function slowest({ view, slowest, now_ms }) {
  const all = link(view, { view: "turns", order: "slowest" }, {}, "All of them");
  const list = slowest.length ? turnList(view, slowest, now_ms) : empty("No turn has been measured yet.");
  return section("slowest", "Slowest turns", list, make("p", {}, all));
}

/**
 * @param {View} view
 * @param {Windows} windows
 */
function stageTable(view, windows) {
  const names = /** @type {Window[]} */ (Object.keys(WINDOWS));
  const all = new Map();
  for (const name of names) {
    const total = totalOf(windows[name]);
    for (const each of [...(total ? [total] : []), ...stagesOf(windows[name])]) {
      all.set(each.stage, { ...all.get(each.stage), [name]: each });
    }
  }
  const look = (/** @type {Window} */ name) => (name === view.window ? "of-window chosen" : "of-window");
  const heads = [
    "Stage",
    "Limit, ms",
    ...names.flatMap((name) =>
      ["p50", "p95", "p99", "over"].map((what) =>
        make(
          "th",
          { scope: "col", class: `${look(name)} ${what === "p50" ? "first" : ""}` },
          make("small", {}, `${NAMES[name]} `),
          what,
        ),
      ),
    ),
  ];
  const rows = [...all].map(([stage, by]) => {
    const limit_ms = Math.max(...Object.values(by).map(({ limit_ms }) => limit_ms));
    const cells = names.flatMap((name) => figuresOf(by[name], look(name)));
    const key = make("i", { class: `key stage-${stage}`, "aria-hidden": "true" });
    const head = stage === "total" ? make("b", {}, "Turn latency") : make("span", {}, key, stageName(stage));
    return row(head, [whole(limit_ms), ...cells], stage === "total" ? { class: "whole" } : {});
  });
  return table("stage-table", "Each stage over the last minute, 15 minutes and 24 hours", heads, rows);
}

/**
 * @param {any} stats of one stage; undefined where it did not run
 * @param {string} look
 */
function figuresOf(stats, look) {
  const late = (/** @type {string} */ words, /** @type {boolean} */ over, first = "") =>
    make("td", { class: `${look} ${over ? "alarm" : ""} ${first}` }, over ? `▲ ${words}` : words);
  if (!stats) return [late("–", false, "first"), late("–", false), late("–", false), late("–", false)];
  const { p50_ms, p95_ms, p99_ms, limit_ms, over, count } = stats;
  return [
    late(whole(p50_ms), p50_ms > limit_ms, "first"),
    late(whole(p95_ms), p95_ms > limit_ms),
    late(whole(p99_ms), p99_ms > limit_ms),
    late(share(over, count), false),
  ];
}

/** @param {OverviewData} shown */
function groups({ view, windows, go }) {
  const buttons = choices("by", Object.fromEntries(GROUPS.map((by) => [by, GROUP_NAMES[by]])), view.by, (by) =>
    go({ by }),
  );
  const by = make("fieldset", { class: "choice" }, make("legend", { class: "unseen" }, "Compare by"), ...buttons);
  const found = windows[view.window].groups;
  const heads = [GROUP_NAMES[view.by], "Turns", "p50, ms", "p95, ms", "p99, ms", "Over", "Failed", "Cost"];
  const rows = found.map((/** @type {any} */ group) => {
    const filters = { ...view.filters, [view.by]: group.name };
    const name = group.name ? link(view, { filters }, {}, group.name) : "none";
    const figures = [group.turns, whole(group.p50_ms), whole(group.p95_ms), whole(group.p99_ms)].map(String);
    return row(name, [...figures, share(group.over, group.turns), String(group.failed), usd(group.cost_usd)]);
  });
  return [by, table("group-table", `Turns by ${GROUP_NAMES[view.by]}`, heads, rows)];
}
