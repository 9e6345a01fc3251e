/**
 * What is looked at, as the page's address has it: a link to any view reproduces it. No DOM.
 *
 * @module
 */

/** The filters, by their names in the address and in the API, and what people call them. */
export const FILTERS = /** @type {const} */ ({
  agent: "Agent",
  route: "Route",
  provider: "Provider",
  model: "Model",
  language: "Language",
  outcome: "Outcome",
  arm: "A/B arm",
  project: "Project",
  text: "Session",
});

/** @typedef {keyof typeof FILTERS} Filter */

/** How far back one may look, in ms. */
export const WINDOWS = /** @type {const} */ ({ "1m": 60_000, "15m": 900_000, "24h": 86_400_000 });

/** @typedef {keyof typeof WINDOWS} Window */

export const VIEWS = /** @type {const} */ ({
  overview: "Overview",
  turns: "Turns",
  providers: "Providers",
  sessions: "Sessions",
});

/** By what turns can be put side by side. */
export const GROUPS = /** @type {const} */ (["agent", "route", "provider", "model", "language", "outcome", "arm"]);

/** @typedef {typeof GROUPS[number]} Group */

/**
 * @typedef {object} View
 * @property {keyof typeof VIEWS} view
 * @property {string} turn of one turn's page; empty: none
 * @property {string} session of one session's turns; empty: of all
 * @property {Window} window
 * @property {number | null} at_ms when what is looked at ends, Unix ms; null: now, and it moves
 * @property {"slowest" | "newest"} order of turns
 * @property {boolean} over only turns that were over their limit
 * @property {Group} by what is compared
 * @property {Partial<Record<Filter, string>>} filters
 */

/**
 * @template {string} Key
 * @param {Record<Key, unknown> | readonly Key[]} known
 * @param {string | null} value
 * @param {Key} otherwise
 * @returns {Key}
 */
function oneOf(known, value, otherwise) {
  const keys = Array.isArray(known) ? known : Object.keys(known);
  return keys.includes(value) ? /** @type {Key} */ (value) : otherwise;
}

/**
 * @param {string} search the address's part from `?` on
 * @returns {View} what nobody knows is left out
 */
export function read(search) {
  const asked = new URLSearchParams(search);
  const at_ms = Date.parse(asked.get("at") ?? "");
  const names = /** @type {Filter[]} */ (Object.keys(FILTERS));
  const filters = names.map((name) => [name, asked.get(name) ?? ""]).filter(([, value]) => value);
  return {
    view: oneOf(VIEWS, asked.get("view"), "overview"),
    turn: asked.get("turn") ?? "",
    session: asked.get("session") ?? "",
    window: oneOf(WINDOWS, asked.get("window"), "15m"),
    at_ms: Number.isNaN(at_ms) ? null : at_ms,
    order: asked.get("order") === "newest" ? "newest" : "slowest",
    over: asked.get("over") === "true",
    by: oneOf(GROUPS, asked.get("by"), "agent"),
    filters: Object.fromEntries(filters),
  };
}

/**
 * The address of a view; what is usual is left out of it.
 *
 * @param {View} view
 */
export function write(view) {
  const asked = new URLSearchParams();
  if (view.view !== "overview") asked.set("view", view.view);
  if (view.turn) asked.set("turn", view.turn);
  if (view.session) asked.set("session", view.session);
  if (view.window !== "15m") asked.set("window", view.window);
  if (view.at_ms !== null) asked.set("at", new Date(view.at_ms).toISOString());
  if (view.order !== "slowest") asked.set("order", view.order);
  if (view.over) asked.set("over", "true");
  if (view.by !== "agent") asked.set("by", view.by);
  for (const [name, value] of Object.entries(view.filters)) asked.set(name, value);
  const text = asked.toString();
  return text ? `?${text}` : "";
}

/**
 * What to ask the API for so much of the past.
 *
 * @param {View} view
 * @param {Window} window
 * @param {Record<string, string | number>} [more]
 */
export function figures(view, window, more = {}) {
  const asked = new URLSearchParams();
  if (view.at_ms === null) asked.set("window", window);
  else {
    asked.set("since", String(view.at_ms - WINDOWS[window]));
    asked.set("until", String(view.at_ms));
  }
  return `/v1/stats?${filtered(asked, view, more)}`;
}

/**
 * @param {View} view
 * @param {Record<string, string | number>} more
 * @param {number} now_ms Unix
 */
export function turns(view, more, now_ms) {
  const end_ms = view.at_ms ?? now_ms;
  const asked = new URLSearchParams();
  if (view.session) asked.set("session", view.session);
  else asked.set("since", String(end_ms - WINDOWS[view.window]));
  if (view.at_ms !== null) asked.set("until", String(end_ms));
  if (view.over) asked.set("over", "true");
  return `/v1/turns?${filtered(asked, view, more)}`;
}

/**
 * @param {URLSearchParams} asked
 * @param {View} view
 * @param {Record<string, string | number>} more
 */
function filtered(asked, view, more) {
  for (const [name, value] of Object.entries({ ...view.filters, ...more })) asked.set(name, String(value));
  return asked.toString();
}
