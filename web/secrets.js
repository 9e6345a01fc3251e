/**
 * The source of the page's client secret: the server's mint for pages on its own machine, or a secret in the page's
 * address after `#`, or a pasted one.
 *
 * @module
 */

import { mint } from "./client_secret.js";
import { failure } from "./failures.js";

/** @typedef {import("./realtime.js").Minted} Minted */
/** @typedef {{name: string, voices: string[] | null}} Agent `voices` is null where any name is allowed */

/** A secret that ends this soon is not used for a new session. */
const MARGIN_MS = 15000;

export class Secrets {
  /** @param {string | URL} address that mints */
  constructor(address) {
    this.address = address;
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
    const { minted, body } = await mint(this.address);
    if (!minted.ok) return minted;
    this.agents = body.voicepipe?.agents ?? [];
    this.stored = minted.secret;
    return minted;
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
