/**
 * Failures between this page and the server, as values. A browser does not learn why a WebSocket was refused, so the
 * page requests the reason again over plain HTTP.
 *
 * @module
 */

/** @typedef {"unreachable" | "expired" | "refused" | "full" | "starting" | "busy" | "ended" | "broken" | "no_audio"} FailureKind */
/**
 * @typedef {object} Failure
 * @property {FailureKind} kind
 * @property {string} code the server's own code; empty when it sent none
 * @property {string} message the server's message; empty when it sent none
 * @property {boolean} passing whether a retry without any change may succeed
 * @property {number} wait_ms the wait that the server requested; 0: none
 */

/** @type {Record<number, FailureKind>} */
const KINDS = { 401: "refused", 403: "refused", 404: "refused", 429: "busy", 503: "full" };

/** @type {readonly FailureKind[]} */
const PASSING = ["unreachable", "full", "starting", "busy", "broken"];

/**
 * @param {string} [message]
 * @param {string} [code]
 */
export function unreachable(message = "", code = "") {
  return failure("unreachable", code, message);
}

/**
 * @param {FailureKind} kind
 * @param {string} code
 * @param {string} message
 * @param {number} [wait_ms]
 * @returns {Failure}
 */
export function failure(kind, code, message, wait_ms = 0) {
  return { kind, code, message, wait_ms, passing: PASSING.includes(kind) };
}

/**
 * Return the failure for an HTTP answer that is not a success.
 *
 * @param {Response} answer
 * @returns {Promise<Failure>}
 */
export async function refusalOf(answer) {
  const { message = "", code = "" } = await errorOf(answer);
  const wait_ms = 1000 * (Number(answer.headers.get("Retry-After")) || 0);
  if (code === "token_expired") return failure("expired", code, message);
  if (answer.status === 503 && /starting/i.test(message)) return failure("starting", code, message, wait_ms);
  return failure(KINDS[answer.status] ?? "broken", code ?? "", message, wait_ms);
}

/**
 * Request the reason why a WebSocket was refused.
 *
 * @param {URL} address of the WebSocket
 * @param {string} secret
 * @returns {Promise<Failure>}
 */
export async function whyRefused(address, secret) {
  const url = new URL(address);
  url.protocol = url.protocol.replace("ws", "http");
  try {
    const answer = await fetch(url, { headers: { Authorization: `Bearer ${secret}` }, cache: "no-store" });
    // 426 means only that this is no WebSocket: the failure has passed.
    return answer.status === 426 ? failure("broken", "", "") : await refusalOf(answer);
  } catch {
    return unreachable();
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<{message?: string, code?: string}>}
 */
async function errorOf(answer) {
  try {
    return (await answer.json()).error ?? {};
  } catch {
    return {};
  }
}
