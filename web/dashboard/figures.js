/**
 * Format figures: milliseconds, shares, money, times of day. No DOM.
 *
 * @module
 */

const NONE = "–";

/** @param {number | null | undefined} value ms */
export function ms(value) {
  if (value === null || value === undefined) return NONE;
  return value < 10_000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

/** @param {number | null | undefined} value a figure of a column with its unit in the head */
export function whole(value) {
  return value === null || value === undefined ? NONE : String(Math.round(value));
}

/**
 * @param {number} part
 * @param {number} of
 */
export function share(part, of) {
  return of ? percent(part / of) : NONE;
}

/** @param {number | null | undefined} value 0 to 1 */
export function percent(value) {
  if (value === null || value === undefined) return NONE;
  const percents = 100 * value;
  return `${percents > 0 && percents < 10 ? percents.toFixed(1) : Math.round(percents)} %`;
}

/** @param {number | null | undefined} value */
export function usd(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "$0";
  return `$${value < 0.01 ? value.toPrecision(2) : value.toFixed(value < 1 ? 3 : 2)}`;
}

/** @param {number | null | undefined} value tokens a second, or the like */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value < 10 ? value.toFixed(1) : String(Math.round(value));
}

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function count(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}

/**
 * @param {string | number} at ISO 8601 or Unix ms
 * @param {number} now_ms
 */
export function clock(at, now_ms) {
  const then = new Date(at);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  if (then.toDateString() === new Date(now_ms).toDateString()) return time;
  return `${then.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

/** @param {string} id a session's or a turn's, to shorten */
export function short(id) {
  return id.length > 18 ? `${id.slice(0, 9)}…${id.slice(-6)}` : id;
}

/**
 * Return the burn rate of the error budget: 1 spends exactly the budget.
 *
 * @param {number} over turns over their limit
 * @param {number} turns
 * @param {number} allowed the share that may be over
 */
export function burn(over, turns, allowed) {
  return turns ? over / turns / allowed : null;
}

/** @param {number | null} value */
export function times(value) {
  if (value === null) return NONE;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)}×`;
}
