/**
 * Signing in: the operator's key, stored in this tab alone, and the server's answers to it.
 *
 * The key is in no address and no cookie (browsers send cookies to other ports of the same host, too). A new tab
 * requests it from the other tabs of this dashboard, so that a link opens its view.
 *
 * @module
 */

const STORAGE_NAME = "voicepipe-operator-key";

/** How long other tabs have to answer. */
const TABS_MS = 250;

/**
 * @typedef {object} Refusal
 * @property {number} status 0: the server could not be reached
 * @property {string} words the message for the operator
 */
/** @typedef {{ok: true, data: any} | ({ok: false} & Refusal)} Answer */

export class OperatorKey {
  /** @param {() => void} onSignedOut called when another tab signs out */
  constructor(onSignedOut) {
    this.key = sessionStorage.getItem(STORAGE_NAME) ?? "";
    this.tabs = new BroadcastChannel(STORAGE_NAME);
    /** @type {((key: string) => void) | null} */
    this.waiting = null;
    this.tabs.onmessage = ({ data }) => {
      if (data === "key?" && this.key) this.tabs.postMessage({ key: this.key });
      else if (data === "out" && this.key) {
        this.clear();
        onSignedOut();
      } else if (data.key) this.waiting?.(data.key);
    };
  }

  /**
   * Take the key of another tab of this dashboard; return whether there was one.
   *
   * @returns {Promise<boolean>}
   */
  async requestFromTabs() {
    const key = await new Promise((/** @type {(key: string) => void} */ resolve) => {
      this.waiting = resolve;
      this.tabs.postMessage("key?");
      setTimeout(() => resolve(""), TABS_MS);
    });
    this.waiting = null;
    if (key) this.take(key);
    return key !== "";
  }

  /** @param {string} key */
  take(key) {
    this.key = key;
    sessionStorage.setItem(STORAGE_NAME, key);
  }

  /** Delete the key, in every tab. */
  signOut() {
    this.clear();
    this.tabs.postMessage("out");
  }

  clear() {
    this.key = "";
    sessionStorage.removeItem(STORAGE_NAME);
  }

  /** @returns {Record<string, string>} */
  get headers() {
    return this.key ? { Authorization: `Bearer ${this.key}` } : {};
  }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<Answer>}
   */
  fetch(path, signal) {
    return this.answered(path, (answer) => answer.json(), signal);
  }

  /**
   * @param {string} path
   * @returns {Promise<Answer>} whose data is a Blob
   */
  fetchFile(path) {
    return this.answered(path, (answer) => answer.blob());
  }

  /**
   * @param {string} path
   * @param {(answer: Response) => Promise<any>} body
   * @param {AbortSignal} [signal]
   * @returns {Promise<Answer>}
   */
  async answered(path, body, signal) {
    try {
      const answer = await fetch(path, { headers: this.headers, cache: "no-store", signal });
      if (answer.ok) return { ok: true, data: await body(answer) };
      return { ok: false, ...(await refusal(answer)) };
    } catch {
      return { ok: false, status: 0, words: "The server can't be reached. This page retries automatically." };
    }
  }
}

/**
 * @param {Response} answer
 * @returns {Promise<Refusal>}
 */
async function refusal(answer) {
  const body = await answer.json().catch(() => null);
  return { status: answer.status, words: body?.error?.message ?? `The server answered ${answer.status}.` };
}
