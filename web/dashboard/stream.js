/**
 * The live stream: `GET /v1/turns/stream`, read by `fetch`, since an `EventSource` can't send a key.
 *
 * @module
 */

/** @typedef {{kind: string, id: string, data: any}} StreamEvent */

/** The wait before the stream is opened again: doubled at each failure, up to the last. */
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 8000;

/** Cuts a text stream into events (HTML, "Server-sent events", 9.2.6). */
export class Events {
  constructor() {
    this.rest = "";
    this.lastId = "";
  }

  /**
   * @param {string} text the next piece, cut anywhere
   * @returns {StreamEvent[]} the events that it completes
   */
  push(text) {
    const blocks = (this.rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.flatMap((block) => this.read(block));
  }

  /**
   * @param {string} block
   * @returns {StreamEvent[]}
   */
  read(block) {
    let kind = "message";
    /** @type {string[]} */
    const data = [];
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      const name = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (name === "event") kind = value;
      else if (name === "data") data.push(value);
      else if (name === "id") this.lastId = value;
    }
    return data.length ? [{ kind, id: this.lastId, data: JSON.parse(data.join("\n")) }] : [];
  }
}

/**
 * Follow the stream until `signal`; it is opened again after each break, from where it broke.
 *
 * @param {import("./sign_in.js").OperatorKey} operator
 * @param {(event: StreamEvent) => void} onEvent
 * @param {(state: "connecting" | "open" | "waiting") => void} changed
 * @param {AbortSignal} signal
 */
export async function follow(operator, onEvent, changed, signal) {
  let pause_ms = FIRST_PAUSE_MS;
  let lastId = "";
  while (!signal.aborted) {
    changed("connecting");
    try {
      const headers = { ...operator.headers, Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) };
      const answer = await fetch("/v1/turns/stream", { headers, cache: "no-store", signal });
      if (answer.ok && answer.body) {
        changed("open");
        pause_ms = FIRST_PAUSE_MS;
        const events = new Events();
        for await (const text of pieces(answer.body)) {
          events.push(text).forEach(onEvent);
          lastId = events.lastId || lastId;
        }
      }
    } catch {
      // The stream broke, or the page closed it: both end below.
    }
    if (signal.aborted) return;
    changed("waiting");
    await new Promise((resolve) => setTimeout(resolve, pause_ms));
    pause_ms = Math.min(LAST_PAUSE_MS, pause_ms * 2);
  }
}

/** @param {ReadableStream<Uint8Array>} body */
async function* pieces(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}
