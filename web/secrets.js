/**
 * The source of the page's client secret: the server's mint for pages on its own machine, or a secret in the page's
 * address after `#`, or a pasted one.
 *
 * @module
 */

import { failure, refusalOf, unreachable } from "./failures.js";

/** @typedef {import("./realtime.js").Minted} Minted */
/** @typedef {{name: string, voices: string[] | null}} Agent `voices` is null where any name is allowed */

/** A secret that ends this soon is not used for a new session. */
const MARGIN_MS = 15000;

export class Secrets {
  /** @param {string | URL} mint the address to post to */
  constructor(mint) {
    this.mint = mint;
    /** @type {import("./realtime.js").Secret | null} */
    this.stored = null;
    this.handed = false;
    /** The server's agents; empty before the first mint. @type {Agent[]} */
    this.agents = [];
  }

  /** @param {string} value a secret from elsewhere; empty to go back to the server's own mint */
  hand(value) {
    this.handed = value !== "";
    this.stored = value ? { value, expires_at: endOf(value) } : null;
  }

  /**
   * Return a secret that has not expired.
   *
   * @returns {Promise<Minted>}
   */
  async fresh() {
    if (this.stored && this.stored.expires_at * 1000 - Date.now() > (this.handed ? 0 : MARGIN_MS)) {
      return { ok: true, secret: this.stored };
    }
    return this.handed ? { ok: false, failure: failure("expired", "token_expired", "") } : this.minted();
  }

  /** @returns {Promise<Minted>} */
  async minted() {
    try {
      const answer = await fetch(this.mint, { method: "POST", cache: "no-store" });
      if (!answer.ok) return { ok: false, failure: await refusalOf(answer) };
      const { value, expires_at, voicepipe } = await answer.json();
      this.agents = voicepipe?.agents ?? [];
      this.stored = { value, expires_at };
      return { ok: true, secret: this.stored };
    } catch {
      return { ok: false, failure: unreachable() };
    }
  }
}

/**
 * Return when a secret ends, in Unix seconds: the `exp` of its claims (RFC 7519, 4.1.4), or never without one.
 *
 * @param {string} value `ek_` and a JWT
 */
function endOf(value) {
  try {
    const claims = value.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return Number(JSON.parse(atob(claims)).exp) || Infinity;
  } catch {
    return Infinity;
  }
}
