/**
 * The view, as the page's address has it: a link to any view reproduces it. No DOM.
 *
 * @module
 */

/** The filters, by their names in the address and in the API, with their names on the page. */
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

/** The windows, in ms. */
export const WINDOWS = /** @type {const} */ ({ "1m": 60_000, "15m": 900_000, "24h": 86_400_000 });

/** @typedef {keyof typeof WINDOWS} Window */

export const VIEWS = /** @type {const} */ ({
  overview: "Overview",
  turns: "Turns",
  providers: "Providers",
  sessions: "Sessions",
});

/** The fields by which turns can be compared. */
export const GROUPS = /** @type {const} */ (["agent", "route", "provider", "model", "language", "outcome", "arm"]);

/** @typedef {typeof GROUPS[number]} Group */

/**
 * @typedef {object} View
 * @property {keyof typeof VIEWS} view
 * @property {string} turn of one turn's page; empty: none
 * @property {string} session of one session's turns; empty: of all
 * @property {Window} window
 * @property {number | null} at_ms the end of the window, Unix ms; null: now, and it moves
 * @property {"slowest" | "newest"} order of turns
 * @property {boolean} over only turns that were over their limit
 * @property {Group} the field to compare by
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
 * @returns {View} unknown parameters are left out
 */
export function read(search) {
  const params = new URLSearchParams(search);
  const at_ms = Date.parse(params.get("at") ?? "");
  const names = /** @type {Filter[]} */ (Object.keys(FILTERS));
  const filters = names.map((name) => [name, params.get(name) ?? ""]).filter(([, value]) => value);
  return {
    view: oneOf(VIEWS, params.get("view"), "overview"),
    turn: params.get("turn") ?? "",
    session: params.get("session") ?? "",
    window: oneOf(WINDOWS, params.get("window"), "15m"),
    at_ms: Number.isNaN(at_ms) ? null : at_ms,
    order: params.get("order") === "newest" ? "newest" : "slowest",
    over: params.get("over") === "true",
    by: oneOf(GROUPS, params.get("by"), "agent"),
    filters: Object.fromEntries(filters),
  };
}

/**
 * Return the address of a view, without default values.
 *
 * @param {View} view
 */
export function write(view) {
  const params = new URLSearchParams();
  if (view.view !== "overview") params.set("view", view.view);
  if (view.turn) params.set("turn", view.turn);
  if (view.session) params.set("session", view.session);
  if (view.window !== "15m") params.set("window", view.window);
  if (view.at_ms !== null) params.set("at", new Date(view.at_ms).toISOString());
  if (view.order !== "slowest") params.set("order", view.order);
  if (view.over) params.set("over", "true");
  if (view.by !== "agent") params.set("by", view.by);
  for (const [name, value] of Object.entries(view.filters)) params.set(name, value);
  const text = params.toString();
  return text ? `?${text}` : "";
}

/**
 * Return the API's parameters for a window.
 *
 * @param {View} view
 * @param {Window} window
 * @param {Record<string, string | number>} [more]
 */
export function figures(view, window, more = {}) {
  const params = new URLSearchParams();
  if (view.at_ms === null) params.set("window", window);
  else {
    params.set("since", String(view.at_ms - WINDOWS[window]));
    params.set("until", String(view.at_ms));
  }
  return `/v1/stats?${filtered(params, view, more)}`;
}

/**
 * @param {View} view
 * @param {Record<string, string | number>} more
 * @param {number} now_ms Unix
 */
export function turns(view, more, now_ms) {
  const end_ms = view.at_ms ?? now_ms;
  const params = new URLSearchParams();
  if (view.session) params.set("session", view.session);
  else params.set("since", String(end_ms - WINDOWS[view.window]));
  if (view.at_ms !== null) params.set("until", String(end_ms));
  if (view.over) params.set("over", "true");
  return `/v1/turns?${filtered(params, view, more)}`;
}

/**
 * @param {URLSearchParams} params
 * @param {View} view
 * @param {Record<string, string | number>} more
 */
function filtered(params, view, more) {
  for (const [name, value] of Object.entries({ ...view.filters, ...more })) params.set(name, String(value));
  return params.toString();
}
