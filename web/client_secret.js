/**
 * Get a client secret: from an address that mints one for this page's user, or from a function of the page. No DOM.
 *
 * @module
 */

import { failure, refusalOf, unreachable } from "./failures.js";

/** @typedef {import("./realtime.js").Minted} Minted */
/** @typedef {string | {value: string, expires_at?: number}} Given a secret as a page has it */
/** @typedef {string | URL | (() => Promise<Given | Minted>)} TokenSource */

/** The codes of failures to get a secret from the address that mints, which need not be at the voicepipe server. */
const TOKEN_UNREACHABLE = "token_unreachable";
const TOKEN_REFUSED = "token_refused";
const TOKEN_UNREADABLE = "token_unreadable";
const TOKEN_INVALID = "token_invalid";

/** What a proxy answers for a server that is away, and a backend for a voicepipe server that is away: it may pass. */
const GATEWAY_STATUSES = [502, 504];

/**
 * Return the function that gets a secret before each new session.
 *
 * @param {TokenSource} source
 * @returns {() => Promise<Minted>}
 */
export function secretFrom(source) {
  return typeof source === "function" ? () => given(source) : async () => (await mint(source)).minted;
}

/**
 * Post to an address that answers as `POST /v1/realtime/client_secrets` does.
 *
 * @param {string | URL} address
 * @returns {Promise<{minted: Minted, body: Record<string, any>}>} `body` is the answer; empty when it failed
 */
export async function mint(address) {
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(address, { method: "POST", cache: "no-store" });
  } catch {
    return { minted: { ok: false, failure: await whyUnread(address) }, body: {} };
  }
  if (!answer.ok) return { minted: { ok: false, failure: await tokenRefusal(answer) }, body: {} };
  try {
    const body = await answer.json();
    return { minted: { ok: true, secret: secretOf(body) }, body };
  } catch {
    return { minted: { ok: false, failure: failure("refused", TOKEN_INVALID, "") }, body: {} };
  }
}

/**
 * Return why no answer came: a browser reports the same when an address is away, and when it answers a page of another
 * origin without `Access-Control-Allow-Origin`. A request whose answer no page can read tells the two apart.
 *
 * @param {string | URL} address
 * @returns {Promise<import("./failures.js").Failure>}
 */
async function whyUnread(address) {
  const away = unreachable("", TOKEN_UNREACHABLE);
  const { location } = globalThis;
  if (!location || new URL(address, location.href).origin === location.origin) return away;
  try {
    await fetch(address, { mode: "no-cors", cache: "no-store" });
    return failure("refused", TOKEN_UNREADABLE, location.origin);
  } catch {
    return away;
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<import("./failures.js").Failure>} with a code also where the answer is not the voicepipe server's
 */
async function tokenRefusal(answer) {
  const why = await refusalOf(answer);
  const named = why.code ? why : { ...why, code: TOKEN_REFUSED, message: `HTTP ${answer.status}` };
  if (named.kind !== "broken") return named;
  const kind = GATEWAY_STATUSES.includes(answer.status) ? "unreachable" : "refused";
  return failure(kind, named.code, named.message, named.wait_ms);
}

/**
 * @param {() => Promise<Given | Minted>} source
 * @returns {Promise<Minted>}
 */
async function given(source) {
  try {
    const found = await source();
    return typeof found === "object" && "ok" in found ? found : { ok: true, secret: secretOf(found) };
  } catch (error) {
    return { ok: false, failure: failure("refused", "token_failed", error instanceof Error ? error.message : "") };
  }
}

/** @param {Given} found */
function secretOf(found) {
  const { value, expires_at = Infinity } = typeof found === "object" ? found : { value: found };
  if (typeof value !== "string" || !value) throw new Error("expected a client secret, or an object with it as `value`");
  return { value, expires_at };
}
