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
export const WINDOWS = /** @type {const} */ ({
  "1m": 60_000,
  "15m": 900_000,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 604_800_000,
  "30d": 2_592_000_000,
});

/** @typedef {keyof typeof WINDOWS} Window */

export const VIEWS = /** @type {const} */ ({
  overview: "Overview",
  turns: "Turns",
  providers: "Providers",
  sessions: "Sessions",
  nodes: "Nodes",
});

/** The fields by which turns can be compared. */
export const GROUPS = /** @type {const} */ (["agent", "route", "provider", "model", "language", "outcome", "arm"]);

/** @typedef {typeof GROUPS[number]} Group */

/** What the figures are compared with: the same span earlier, by ms; 0: the span right before. */
export const EARLIER = /** @type {const} */ ({ before: 0, day: 86_400_000, week: 604_800_000 });

/** The steps of a series, in ms, the shortest first. */
const STEPS = [60_000, 300_000, 900_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000];

/** The most steps of a series: more would not fit on a phone. */
const MAX_STEPS = 60;

/**
 * @typedef {object} View
 * @property {keyof typeof VIEWS} view
 * @property {string} turn of one turn's page; empty: none
 * @property {string} session of one session's turns; empty: of all
 * @property {string} node of which open sessions and running turns are shown; empty: all
 * @property {Window} window
 * @property {number | null} at_ms the end of the window, Unix ms; null: now, and it moves
 * @property {number | null} since_ms the beginning of a free span, which ends at `at_ms`; null: the window's own
 * @property {keyof typeof EARLIER | ""} versus the span to compare with; empty: none
 * @property {"slowest" | "newest"} order of turns
 * @property {boolean} over only turns that were over their limit
 * @property {string} words of the list of turns: only those in which this was said; empty: all
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
  const since_ms = Date.parse(params.get("since") ?? "");
  const isFree = since_ms < at_ms; // false for a time that can't be read
  const versus = params.get("versus") ?? "";
  const filters = names.map((name) => [name, params.get(name) ?? ""]).filter(([, value]) => value);
  return {
    view: oneOf(VIEWS, params.get("view"), "overview"),
    turn: params.get("turn") ?? "",
    session: params.get("session") ?? "",
    node: params.get("node") ?? "",
    window: oneOf(WINDOWS, params.get("window"), "15m"),
    at_ms: Number.isNaN(at_ms) ? null : at_ms,
    since_ms: isFree ? since_ms : null,
    versus: versus ? oneOf(EARLIER, versus, "before") : "",
    order: params.get("order") === "newest" ? "newest" : "slowest",
    over: params.get("over") === "true",
    words: params.get("words") ?? "",
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
  if (view.node) params.set("node", view.node);
  if (view.window !== "15m") params.set("window", view.window);
  if (view.at_ms !== null) params.set("at", new Date(view.at_ms).toISOString());
  if (view.since_ms !== null) params.set("since", new Date(view.since_ms).toISOString());
  if (view.versus) params.set("versus", view.versus);
  if (view.order !== "slowest") params.set("order", view.order);
  if (view.over) params.set("over", "true");
  if (view.words) params.set("words", view.words);
  if (view.by !== "agent") params.set("by", view.by);
  for (const [name, value] of Object.entries(view.filters)) params.set(name, value);
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** @typedef {{since_ms: number, until_ms: number}} Span Unix ms */

/**
 * @param {View} view
 * @param {number} now_ms Unix
 * @returns {Span} which the view shows
 */
export function spanOf(view, now_ms) {
  const until_ms = view.at_ms ?? now_ms;
  return { since_ms: view.since_ms ?? until_ms - WINDOWS[view.window], until_ms };
}

/**
 * @param {View} view
 * @param {number} now_ms Unix
 * @returns {Span | null} the earlier span that it is compared with; null: none
 */
export function earlierSpan(view, now_ms) {
  if (!view.versus) return null;
  const { since_ms, until_ms } = spanOf(view, now_ms);
  const earlier_ms = EARLIER[view.versus] || until_ms - since_ms;
  return { since_ms: since_ms - earlier_ms, until_ms: until_ms - earlier_ms };
}

/** @param {number} span_ms */
export function stepOf(span_ms) {
  return STEPS.find((step_ms) => span_ms / step_ms <= MAX_STEPS) ?? STEPS[STEPS.length - 1];
}

/**
 * Return the API's address of figures.
 *
 * @param {View} view
 * @param {Window | Span} range
 * @param {Record<string, string | number>} [more]
 * @param {"/v1/stats" | "/v1/experiments"} [path]
 */
export function figures(view, range, more = {}, path = "/v1/stats") {
  const params = new URLSearchParams();
  if (typeof range === "string" && view.at_ms === null) params.set("window", range);
  else {
    const span =
      typeof range === "string" ? { since_ms: (view.at_ms ?? 0) - WINDOWS[range], until_ms: view.at_ms } : range;
    params.set("since", String(span.since_ms));
    params.set("until", String(span.until_ms));
  }
  return `${path}?${filtered(params, view, more)}`;
}

/**
 * @param {View} view
 * @param {Record<string, string | number>} more
 * @param {number} now_ms Unix
 */
export function turns(view, more, now_ms) {
  return `/v1/turns?${filtered(listed(view, now_ms), view, more)}`;
}

/**
 * Return the API's address of the view's list of turns: as `turns`, and those with its words.
 *
 * @param {View} view
 * @param {Record<string, string | number>} more
 * @param {number} now_ms Unix
 */
export function list(view, more, now_ms) {
  return turns(view, view.words ? { ...more, words: view.words } : more, now_ms);
}

/**
 * Return the API's address of the view's turns as a file.
 *
 * @param {View} view
 * @param {"csv" | "jsonl"} format
 * @param {number} now_ms Unix
 */
export function exported(view, format, now_ms) {
  return `/v1/turns/export?${filtered(listed(view, now_ms), view, { format, ...(view.words && { words: view.words }) })}`;
}

/**
 * @param {View} view
 * @param {number} now_ms Unix
 */
function listed(view, now_ms) {
  const { since_ms, until_ms } = spanOf(view, now_ms);
  const params = new URLSearchParams();
  if (view.session) params.set("session", view.session);
  else params.set("since", String(since_ms));
  if (view.at_ms !== null) params.set("until", String(until_ms));
  if (view.over) params.set("over", "true");
  return params;
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
