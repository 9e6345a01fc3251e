/**
 * Get a client secret: from an address that mints one for this page's user, or from a function of the page. No DOM.
 *
 * @module
 */

import { failure, refusalOf, unreachable } from "./failures.js";

/** @typedef {import("./realtime.js").Minted} Minted */
/** @typedef {string | {value: string, expires_at?: number}} Given a secret as a page has it */
/** @typedef {string | URL | (() => Promise<Given | Minted>)} TokenSource */

/** The code of a failure to reach the address that mints, which need not be at the voicepipe server. */
const TOKEN_UNREACHABLE = "token_unreachable";

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
  try {
    const answer = await fetch(address, { method: "POST", cache: "no-store" });
    if (!answer.ok) return { minted: { ok: false, failure: await tokenRefusal(answer) }, body: {} };
    const body = await answer.json();
    return { minted: { ok: true, secret: secretOf(body) }, body };
  } catch {
    return { minted: { ok: false, failure: unreachable("", TOKEN_UNREACHABLE) }, body: {} };
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<import("./failures.js").Failure>} with a code also where the answer is not the voicepipe server's
 */
async function tokenRefusal(answer) {
  const why = await refusalOf(answer);
  return why.code ? why : { ...why, code: "token_refused", message: `HTTP ${answer.status}` };
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
  const { value, expires_at = Infinity } = typeof found === "string" ? { value: found } : found;
  return { value, expires_at };
}
