/**
 * The wire: one conversation over the Realtime events, on a WebSocket that mends itself. No DOM, no sound: runs
 * wherever `WebSocket` and `fetch` are. Nothing here throws for what a network or a server does; failures are values.
 *
 *     const line = new Realtime({ address: "wss://HOST/v1/realtime", secret: mint });
 *     line.on("response.output_audio.delta", (event) => play(decodeSound(event.delta)));
 *     line.on("state", ({ state, failure }) => show(state, failure));
 *     line.open();
 *
 * @module
 */

import { failure, whyRefused } from "./failures.js";

/** @typedef {import("./failures.js").Failure} Failure */
/** @typedef {{value: string, expires_at: number}} Secret an `ek_...`, and when it ends in Unix seconds */
/** @typedef {{ok: true, secret: Secret} | {ok: false, failure: Failure}} Minted */
/** @typedef {"closed" | "connecting" | "open" | "waiting"} LineState */
/** @typedef {{state: LineState, failure: Failure | null, wait_ms: number}} StateChange */
/** @typedef {{type: string, event_id?: string} & Record<string, any>} WireEvent */
/**
 * @typedef {object} RealtimeOptions
 * @property {string | URL} address `ws:` or `wss:`, with `?agent=` or `?model=` as wanted
 * @property {() => Promise<Minted>} secret asked before each connection
 */

/** Between two tries: doubled from the first to the last, and spread, so that a crowd does not come at once. */
const FIRST_WAIT_MS = 500;
const LAST_WAIT_MS = 8000;

/** Full means that the network is slower than the voice: sound is dropped and counted, other events never are. */
const UNSENT_BYTES = 512 * 1024;

/** The close code of a server that goes away or has had enough of this session (RFC 6455, 7.4.1). */
const GOING_AWAY = 1001;
const BY_POLICY = 1008;

export class Realtime {
  /** @param {RealtimeOptions} options */
  constructor({ address, secret }) {
    this.address = new URL(address);
    this.secret = secret;
    /** @type {LineState} */
    this.state = "closed";
    /** What the server last said the session is; null before it did. @type {Record<string, any> | null} */
    this.session = null;
    this.droppedFrames = 0;
    /** @type {Map<string, Set<(event: any) => void>>} */
    this.listeners = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** The last error that the server named before it closed. @type {Failure | null} */
    this.lastWord = null;
  }

  /**
   * Listen to a server event's type, to `*` (every server event), or to `state`.
   *
   * @param {string} type
   * @param {(event: any) => void} listener
   * @returns {() => void} stops listening
   */
  on(type, listener) {
    const known = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, known.add(listener));
    return () => known.delete(listener);
  }

  /** Connect, and stay connected until `close` or a failure that does not pass. */
  open() {
    if (this.state !== "closed" && this.state !== "waiting") return;
    clearTimeout(this.timer);
    this.change("connecting");
    void this.dial();
  }

  /** Hang up. */
  close() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close(1000);
    this.change("closed");
  }

  /**
   * Send any client event.
   *
   * @param {WireEvent} event
   * @returns {boolean} whether there was a line to send it on
   */
  send(event) {
    if (this.state !== "open" || !this.socket) return false;
    this.socket.send(JSON.stringify(event));
    return true;
  }

  /** @param {Record<string, any>} session the fields to change */
  update(session) {
    return this.send({ type: "session.update", session: { type: "realtime", ...session } });
  }

  /**
   * Send sound of the caller.
   *
   * @param {Int16Array} samples mono, 24 kHz
   */
  append(samples) {
    if (this.socket && this.socket.bufferedAmount > UNSENT_BYTES) {
      this.droppedFrames += 1;
      return false;
    }
    return this.send({ type: "input_audio_buffer.append", audio: encodeSound(samples) });
  }

  /** Say that the caller is done, and ask for the answer. */
  commit() {
    return this.send({ type: "input_audio_buffer.commit" }) && this.send({ type: "response.create" });
  }

  /**
   * Add a written message to the conversation.
   *
   * @param {"user" | "assistant"} role
   * @param {string} text
   * @param {string} [id] of the item; the server names it otherwise
   */
  say(role, text, id) {
    const content = [{ type: role === "user" ? "input_text" : "output_text", text }];
    return this.send({ type: "conversation.item.create", item: { id, type: "message", role, content } });
  }

  /**
   * Tell how much of a reply was heard before it was cut.
   *
   * @param {string} itemId
   * @param {number} playedMs
   */
  truncate(itemId, playedMs) {
    const place = { item_id: itemId, content_index: 0, audio_end_ms: playedMs };
    return this.send({ type: "conversation.item.truncate", ...place });
  }

  async dial() {
    const minted = await this.secret();
    if (this.state !== "connecting") return;
    if (!minted.ok) return this.lost(minted.failure);
    const { value } = minted.secret;
    const socket = new WebSocket(this.address, ["realtime", `openai-insecure-api-key.${value}`]);
    this.socket = socket;
    this.lastWord = null;
    socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    socket.onclose = async ({ code, reason }) => {
      if (this.socket !== socket) return;
      const why = this.state === "open" ? this.endOf(code, reason) : await whyRefused(this.address, value);
      if (this.socket === socket) this.lost(why);
    };
  }

  /** @param {WireEvent} event */
  take(event) {
    if (event.type === "session.created" || event.type === "session.updated") this.session = event.session;
    if (event.type === "session.created") {
      this.tries = 0;
      this.change("open");
    }
    if (event.type === "error") this.lastWord = failure("ended", event.error.code ?? "", event.error.message);
    this.tell(event.type, event);
    this.tell("*", event);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  endOf(code, reason) {
    // A session that was ended for a reason is over: the next one is the caller's to start.
    const ended = this.lastWord && (code === BY_POLICY || code >= 4000 || this.lastWord.code === "session_expired");
    if (ended && this.lastWord) return this.lastWord;
    if (code === BY_POLICY || code >= 4000) return failure("ended", String(code), reason);
    return failure(code === GOING_AWAY ? "unreachable" : "broken", String(code), reason);
  }

  /** @param {Failure} why */
  lost(why) {
    this.socket = null;
    if (!why.passing) return this.change("closed", why);
    const wait_ms = Math.max(why.wait_ms, Math.min(LAST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.tries));
    const spread_ms = Math.round(wait_ms * (0.75 + Math.random() / 2));
    this.tries += 1;
    this.timer = setTimeout(() => this.open(), spread_ms);
    this.change("waiting", why, spread_ms);
  }

  /**
   * @param {LineState} state
   * @param {Failure | null} [why]
   * @param {number} [wait_ms]
   */
  change(state, why = null, wait_ms = 0) {
    this.state = state;
    this.tell("state", { state, failure: why, wait_ms });
  }

  /**
   * @param {string} type
   * @param {unknown} event
   */
  tell(type, event) {
    for (const listener of this.listeners.get(type) ?? []) listener(event);
  }
}

/**
 * @param {Int16Array} samples
 * @returns {string} base64 of little-endian int16
 */
export function encodeSound(samples) {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, i) => view.setInt16(i * 2, sample, true));
  return btoa(Array.from(new Uint8Array(view.buffer), (byte) => String.fromCharCode(byte)).join(""));
}

/**
 * @param {string} base64 of little-endian int16
 * @returns {Int16Array}
 */
export function decodeSound(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Int16Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(i * 2, true));
}
