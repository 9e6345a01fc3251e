/**
 * The overview: the key figures, latency by stage, the worst turns, and live turns.
 *
 * @module
 */

import { stageName } from "../latency_bar.js";
import { make } from "../elements.js";
import { GROUPS } from "./address.js";
import { burn, count, ms, share, times, usd, whole } from "./figures.js";
import { choices, empty, link, row, section, table, tile } from "./components.js";
import { lateCauses } from "./late.js";
import { second, stagesOf, totalOf } from "./stage_bar.js";
import { turnList } from "./turn_list.js";
import { experiments } from "./experiments.js";

/** @typedef {import("./address.js").View} View */
/** @typedef {import("./address.js").Window} Window */
/** @typedef {Partial<Record<Window, any>>} Windows the stats of each window that is loaded */

/** @type {Record<Window, string>} */
const SPANS = {
  "1m": "the last minute",
  "15m": "the last 15 minutes",
  "1h": "the last hour",
  "24h": "the last 24 hours",
  "7d": "the last 7 days",
  "30d": "the last 30 days",
};

/** @type {Record<Window, string>} */
export const NAMES = { "1m": "1 min", "15m": "15 min", "1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d" };

/** @type {Record<Exclude<View["versus"], "">, string>} */
const VERSUS = { before: "the span before", day: "a day earlier", week: "a week earlier" };

/**
 * Return the view's span in words.
 *
 * @param {View} view
 */
export function spanName(view) {
  return view.since_ms === null ? SPANS[view.window] : "the chosen span";
}

/** The windows whose burn rates are always shown. */
export const BURNS = /** @type {const} */ (["1m", "15m", "24h"]);

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
 * @property {any} stats of the view's span
 * @property {any} earlier stats of the span that it is compared with; null: none
 * @property {Windows} windows
 * @property {any[]} experiments compared by arm; empty unless the page compares by arm
 * @property {HTMLElement} heat
 * @property {any[]} slowest turns
 * @property {import("./chart.js").Chart} chart
 * @property {HTMLElement} now the live turns; they draw themselves
 * @property {number} now_ms
 * @property {(changes: Partial<View>) => void} go
 */

/** @param {OverviewData} data */
export function overview(data) {
  const { view, stats, windows, about } = data;
  const now = section("now", view.at_ms === null ? "Now" : "The newest turns", data.now);
  if (!stats.turns) return [nothing(data), now];
  const limit_ms = totalOf(stats)?.limit_ms ?? about.limits.total;
  return [
    ...(stats.partial ? [make("p", { class: "secondary" }, PARTIAL)] : []),
    tiles(data, limit_ms, about.over_allowed),
    make(
      "div",
      { class: "columns" },
      section("late", "Late turns: whose they are", lateCauses(stats)),
      section("heat", "Turns by latency, ms", data.heat),
    ),
    section("second", "Latency by stage", ...second(stats, limit_ms), data.chart.place, chartWords()),
    make("div", { class: "columns" }, slowest(data), now),
    section("stages", "Stages", ...stageTable(data)),
    section("groups", "Side by side", ...groups(data)),
    ...experiments(data.experiments),
  ];
}

function chartWords() {
  const words =
    "Each bar: the mean latency by stage. ○ the slowest of 20 turns (p95). The dashed line is the limit.";
  return make("p", { class: "secondary" }, words);
}

/** @param {OverviewData} data */
function nothing({ view, windows }) {
  const filtered = Object.keys(view.filters).length > 0;
  const longer = windows["24h"].turns && view.window !== "24h";
  if (longer) {
    const more = link(view, { window: "24h", since_ms: null }, { class: "button" }, "Show the last 24 hours");
    return empty(
      `No turn in ${spanName(view)}; ${count(windows["24h"].turns, "turn")} in the last 24 hours. `,
      more,
    );
  }
  if (filtered) {
    const all = link(view, { filters: {} }, { class: "button" }, "Leave the filters out");
    return empty(`No turn in ${spanName(view)} with these filters. `, all);
  }
  const talk = make("a", { href: "/talk", class: "button" }, "Start a conversation");
  return empty("No turns yet. ", talk, " and watch it here: this page needs no reload.");
}

/**
 * @param {OverviewData} data
 * @param {number} limit_ms
 * @param {number} allowed
 */
function tiles({ stats, earlier, windows }, limit_ms, allowed) {
  const total = totalOf(stats);
  const then = earlier && totalOf(earlier);
  const rate = burn(stats.over, stats.measured, allowed);
  const rates = BURNS.map((name) => {
    const burned = windows[name];
    return `${NAMES[name]} ${times(burn(burned.over, burned.measured, allowed))}`;
  });
  const failed = stats.outcomes.failed ?? 0;
  const losers = stats.cost_usd.hedge_usd + stats.cost_usd.speculation_usd;
  return make(
    "dl",
    { class: "tiles" },
    tile(
      "Turn latency p50",
      ms(total?.p50_ms),
      earlier ? `${ms(then?.p50_ms)} then` : "from the user's last voiced sample",
      (total?.p50_ms ?? 0) > limit_ms,
    ),
    tile(
      "Turn latency p95",
      ms(total?.p95_ms),
      earlier ? `${ms(then?.p95_ms)} then` : `p99 ${ms(total?.p99_ms)}`,
      (total?.p95_ms ?? 0) > limit_ms,
    ),
    tile(
      `Over ${limit_ms} ms`,
      share(stats.over, stats.measured),
      earlier ? `${share(earlier.over, earlier.measured)} then` : `${stats.over} of ${count(stats.measured, "turn")}`,
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

/** @param {OverviewData} data */
function slowest({ view, slowest, now_ms }) {
  const all = link(view, { view: "turns", order: "slowest" }, {}, "All of them");
  const list = slowest.length ? turnList(view, slowest, now_ms) : empty("No turn has been measured yet.");
  return section("slowest", "Slowest turns", list, make("p", {}, all));
}

/**
 * Return the stages of the span, and of the earlier one if there is one. "Waited" is what the bar and the chart show;
 * the quantiles are of the stage's own duration, hidden or not.
 *
 * @param {OverviewData} data
 */
function stageTable({ view, stats, earlier, go }) {
  const buttons = choices("versus", { none: "Only this span", ...VERSUS }, view.versus || "none", (versus) =>
    go({ versus: versus === "none" ? "" : versus }),
  );
  const by = make("fieldset", { class: "choice" }, make("legend", { class: "unseen" }, "Compare with"), ...buttons);
  const then = new Map(earlier ? earlier.stages.map((/** @type {any} */ each) => [each.stage, each]) : []);
  const measured = totalOf(stats)?.count ?? 0;
  const heads = ["Stage", "Limit, ms", "Waited, mean ms", "p50, ms", "p95, ms", "p99, ms", "Over"];
  const more = earlier ? ["Waited then", "p50 then", "p95 then", "Over then"] : [];
  const total = totalOf(stats);
  const rows = [...(total ? [total] : []), ...stagesOf(stats)].map((each) => {
    const key = make("i", { class: `key stage-${each.stage}`, "aria-hidden": "true" });
    const isTotal = each.stage === "total";
    const head = isTotal ? make("b", {}, "Turn latency") : make("span", {}, key, stageName(each.stage));
    const before = then.get(each.stage);
    const cells = [...figuresOf(each, measured), ...(earlier ? pastOf(before, totalOf(earlier)?.count ?? 0) : [])];
    return row(head, [whole(each.limit_ms), ...cells], isTotal ? { class: "whole" } : {});
  });
  const name = `Each stage in ${spanName(view)}${view.versus ? `, and ${VERSUS[view.versus]}` : ""}`;
  return [by, table("stage-table", name, [...heads, ...more], rows)];
}

/**
 * @param {any} stats of one stage
 * @param {number} measured turns with audible output
 */
function figuresOf({ p50_ms, p95_ms, p99_ms, limit_ms, over, count, critical_ms }, measured) {
  const late = (/** @type {number} */ value) => {
    const text = whole(value);
    const isLate = over > 0 && value > limit_ms; // what ran hidden, or was chosen in a turn in time, is over no limit
    return make("td", { class: isLate ? "alarm" : "" }, isLate ? `▲ ${text}` : text);
  };
  const waited_ms = measured ? (critical_ms * count) / measured : 0;
  return [whole(waited_ms), late(p50_ms), late(p95_ms), late(p99_ms), share(over, count)];
}

/**
 * @param {any} stats of one stage in the earlier span; undefined where it did not run
 * @param {number} measured
 */
function pastOf(stats, measured) {
  if (!stats) return ["–", "–", "–", "–"];
  const { p50_ms, p95_ms, over, count, critical_ms } = stats;
  return [whole(measured ? (critical_ms * count) / measured : 0), whole(p50_ms), whole(p95_ms), share(over, count)];
}

/** @param {OverviewData} data */
function groups({ view, stats, go }) {
  const buttons = choices("by", Object.fromEntries(GROUPS.map((by) => [by, GROUP_NAMES[by]])), view.by, (by) =>
    go({ by }),
  );
  const by = make("fieldset", { class: "choice" }, make("legend", { class: "unseen" }, "Compare by"), ...buttons);
  const found = stats.groups;
  const heads = [GROUP_NAMES[view.by], "Turns", "p50, ms", "p95, ms", "p99, ms", "Over", "Failed", "Cost"];
  const rows = found.map((/** @type {any} */ group) => {
    const filters = { ...view.filters, [view.by]: group.name };
    const name = group.name ? link(view, { filters }, {}, group.name) : "none";
    const figures = [group.turns, whole(group.p50_ms), whole(group.p95_ms), whole(group.p99_ms)].map(String);
    return row(name, [...figures, share(group.over, group.turns), String(group.failed), usd(group.cost_usd)]);
  });
  return [by, table("group-table", `Turns by ${GROUP_NAMES[view.by]}`, heads, rows)];
}
