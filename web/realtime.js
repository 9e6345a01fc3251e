/**
 * The connection: one conversation over the Realtime events, on a WebSocket that reconnects by itself. No DOM, no sound: runs
 * wherever `WebSocket` and `fetch` are. Nothing here throws for what a network or a server does; failures are values.
 *
 *     const line = new Realtime({ address: "wss://HOST/v1/realtime", secret: mint });
 *     line.on("sound", ({ item_id, samples }) => play(item_id, samples));
 *     line.on("state", ({ state, failure }) => show(state, failure));
 *     line.open();
 *
 * @module
 */

import { ResumeState } from "./resume.js";
import { failure, whyRefused } from "./failures.js";
import { Stream, agentFrame, userFrame, decodeSound, encodeSound } from "./frames.js";
import { Listeners } from "./listeners.js";
import { Reconnector } from "./reconnect.js";

export { decodeSound, encodeSound };

/** @typedef {import("./failures.js").Failure} Failure */
/** @typedef {{value: string, expires_at: number}} Secret an `ek_...`, and when it ends in Unix seconds */
/** @typedef {{ok: true, secret: Secret} | {ok: false, failure: Failure}} Minted */
/** @typedef {"closed" | "connecting" | "open" | "resuming" | "waiting"} LineState */
/** @typedef {{state: LineState, failure: Failure | null, wait_ms: number}} StateChange */
/** @typedef {{type: string, event_id?: string} & Record<string, any>} WireEvent */
/** @typedef {{response_id: string, item_id: string, output_index: number, content_index: number}} Place */
/** @typedef {"binary_audio" | "playback_reports" | "turn_events" | "resume" | "ducking"} Extension */
/**
 * @typedef {object} RealtimeOptions
 * @property {string | URL} address `ws:` or `wss:`, with `?agent=` or `?model=` as required
 * @property {() => Promise<Minted>} secret called before each new session
 * @property {readonly Extension[]} [extensions] requested in each session; those that the server lacks are left out
 */

/** Between two tries: doubled from the first to the last, and spread, so that a crowd does not come at once. */
const FIRST_WAIT_MS = 500;
const LAST_WAIT_MS = 8000;

/** Full means that the network is slower than the voice: sound is dropped and counted, other events never are. */
const UNSENT_BYTES = 512 * 1024;

/**
 * The close code of a server whose agent has ended the call, that goes away or has had enough of this session, and of
 * none (RFC 6455, 7.4.1).
 */
const NORMAL = 1000;
const GOING_AWAY = 1001;
const NO_GOODBYE = 1006;
const BY_POLICY = 1008;

/** The close code of a server that stops while the session can go on at another node. */
const SERVICE_RESTART = 1012;

/** The event id of the request for extensions, to recognize the server's refusal. */
const EXTENSIONS_EVENT_ID = "voicepipe_extensions";

/**
 * Emits each server event under its type, and under `*`; `sound` for the agent's audio, however it came; and `state`.
 */
export class Realtime extends Listeners {
  /** @param {RealtimeOptions} options */
  constructor({ address, secret, extensions = [] }) {
    super();
    this.address = new URL(address);
    this.secret = secret;
    this.extensions = extensions;
    /** @type {LineState} */
    this.state = "closed";
    /** What the server last said the session is; null before it did. @type {Record<string, any> | null} */
    this.session = null;
    this.droppedFrames = 0;
    /** The server's frames that no event had announced. */
    this.unexpectedFrames = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.resumeState = new ResumeState();
    /** Set while the connection is down and the session waits for the client. @type {Reconnector | null} */
    this.reconnector = null;
    /** Announced audio in binary frames: stream -> its item. @type {Map<number, Stream>} */
    this.streams = new Map();
    this.mayWait = UNSENT_BYTES;
    /** The last error that the server named before it closed. @type {Failure | null} */
    this.lastWord = null;
  }

  /** Connect, and stay connected until `close` or a failure that does not pass. Called while it waits: try now. */
  open() {
    this.reconnector?.tryNow();
    if (this.state !== "closed" && this.state !== "waiting") return;
    clearTimeout(this.timer);
    this.change("connecting");
    void this.dial();
  }

  /** Close the session. */
  close() {
    this.unplug()?.close(NORMAL);
    this.change("closed");
  }

  /**
   * Whether the session has an extension.
   *
   * @param {Extension} extension
   */
  has(extension) {
    return this.session?.providerData?.voicepipe?.[extension] === true;
  }

  /**
   * Send any client event. While the connection is down and may be resumed, the event is queued.
   *
   * @param {WireEvent} event
   * @returns {boolean} whether it was sent or queued
   */
  send(event) {
    if (this.state === "resuming") return this.resumeState.hold(event);
    const put = this.put(JSON.stringify(event));
    if (put) this.resumeState.noteSent(event);
    return put;
  }

  /** @param {Record<string, any>} session the fields to change */
  update(session) {
    return this.send({ type: "session.update", session: { type: "realtime", ...session } });
  }

  /**
   * Send the user's audio.
   *
   * @param {Int16Array} samples mono, 24 kHz
   */
  append(samples) {
    if (this.socket && this.socket.bufferedAmount > this.mayWait) {
      this.droppedFrames += 1;
      return false;
    }
    if (this.state !== "open" && this.state !== "resuming") return false;
    if (this.extensions.includes("resume")) this.resumeState.buffer(samples);
    return this.state === "resuming" || this.putSound(samples);
  }

  /** Commit the user's audio, and request the answer. */
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
   * Report how much of a reply was played before it was cut.
   *
   * @param {string} itemId
   * @param {number} playedMs
   */
  truncate(itemId, playedMs) {
    const place = { item_id: itemId, content_index: 0, audio_end_ms: playedMs };
    return this.send({ type: "conversation.item.truncate", ...place });
  }

  // --- a session's first connection ---------------------------------------------------------------

  async dial() {
    const minted = await this.secret();
    if (this.state !== "connecting") return;
    if (!minted.ok) return this.lost(minted.failure);
    const { value } = minted.secret;
    const socket = new WebSocket(this.address, ["realtime", `openai-insecure-api-key.${value}`]);
    this.plug(socket);
    socket.onclose = async ({ code, reason }) => {
      if (this.socket !== socket) return;
      if (this.state === "open") return this.broken(code, reason);
      const why = await whyRefused(this.address, value);
      if (this.socket === socket) this.lost(why);
    };
  }

  /** @param {WebSocket} socket */
  plug(socket) {
    this.socket = socket;
    this.lastWord = null;
    this.mayWait = UNSENT_BYTES;
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.socket === socket && this.take(data);
  }

  /** Drop the socket, and all retries. */
  unplug() {
    const { socket } = this;
    this.socket = null;
    clearTimeout(this.timer);
    this.reconnector?.stop();
    this.reconnector = null;
    return socket;
  }

  /** @param {string | ArrayBuffer} data one of the server's messages */
  take(data) {
    if (typeof data !== "string") return this.takeFrame(data);
    /** @type {WireEvent} */
    const event = JSON.parse(data);
    // A server may refuse the extensions; the session goes on without them.
    const accepted = event.type !== "error" || event.error.event_id !== EXTENSIONS_EVENT_ID;
    if (accepted) this.follow(event);
    this.resumeState.note(event);
    if (accepted) this.emit(event.type, event);
    if (event.type === "response.output_audio.delta") {
      this.sound(placeOf(event), decodeSound(event.delta));
    }
    this.emit("*", event);
  }

  /** @param {WireEvent} event */
  follow(event) {
    switch (event.type) {
      case "session.created":
        return this.begin(event.session);
      case "session.updated":
        this.session = event.session;
        return this.resumeState.allow(event.session);
      case "voicepipe.output_audio.started":
        return this.streams.set(event.stream, new Stream(placeOf(event)));
      case "response.output_audio.done":
        for (const [number, { place }] of this.streams) if (place.item_id === event.item_id) this.streams.delete(number);
        return;
      case "voicepipe.output_audio.words":
        return this.resumeState.noteWords(event);
      case "response.output_item.done":
        return this.resumeState.noteItem(event.item);
      case "response.created":
        // Until the call is closed the agent need not greet again.
        this.address.searchParams.set("continues", "true");
        return this.resumeState.requestOver();
      case "voicepipe.going_away":
        return this.leave();
      case "error":
        this.resumeState.refused(event.error);
        this.lastWord = failure("ended", event.error.code ?? "", event.error.message);
    }
  }

  /** @param {Record<string, any>} session */
  begin(session) {
    this.session = session;
    this.resumeState = new ResumeState();
    this.streams.clear();
    this.tries = 0;
    this.change("open");
    if (!this.extensions.length) return;
    // In its own event: a server that refuses it still applies the other settings.
    const voicepipe = Object.fromEntries(this.extensions.map((name) => [name, true]));
    this.send({ type: "session.update", event_id: EXTENSIONS_EVENT_ID, session: { type: "realtime", providerData: { voicepipe } } });
  }

  /** @param {ArrayBuffer} data */
  takeFrame(data) {
    const frame = agentFrame(data);
    if (frame) this.resumeState.noteFrame(frame.number);
    const stream = frame && this.streams.get(frame.stream);
    if (!stream) this.unexpectedFrames += 1;
    else this.sound(stream.place, stream.take(frame.sound));
  }

  /**
   * @param {Place} place
   * @param {Int16Array} samples
   */
  sound(place, samples) {
    this.resumeState.noteSound(place.item_id, samples.length);
    this.emit("sound", { ...place, samples });
  }

  /** @param {string | ArrayBuffer} message */
  put(message) {
    if (this.state !== "open" || !this.socket) return false;
    // A closing socket would drop it. It counts as sent all the same: what was sent before a close is sent again after it.
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(message);
    return true;
  }

  /** @param {Int16Array} samples */
  putSound(samples) {
    if (this.has("binary_audio")) return this.put(userFrame(samples));
    return this.put(JSON.stringify({ type: "input_audio_buffer.append", audio: encodeSound(samples) }));
  }

  // --- a connection that broke --------------------------------------------------------------------

  /**
   * @param {number} code
   * @param {string} reason
   */
  broken(code, reason) {
    // With another close frame the server ended the session.
    if ((code !== NO_GOODBYE && code !== SERVICE_RESTART) || !this.resumeState.possible) return this.lost(this.endOf(code, reason));
    this.unplug();
    this.reconnector = new Reconnector(this.address, this.resumeState, {
      onBack: (socket, resumed) => this.back(socket, resumed),
      onRefused: () => this.startAnew(),
    });
    this.change("resuming");
  }

  /** The node is about to stop: go on with the session at another one. */
  leave() {
    if (this.state !== "open" || !this.resumeState.possible) return;
    const { socket } = this;
    this.broken(NO_GOODBYE, "");
    socket?.close();
  }

  /**
   * @param {WebSocket} socket
   * @param {WireEvent} resumed
   */
  back(socket, resumed) {
    this.unplug();
    this.plug(socket);
    socket.onclose = ({ code, reason }) => this.socket === socket && this.broken(code, reason);
    this.state = "open";
    for (const each of this.resumeState.rest(resumed)) {
      if (each instanceof Int16Array) this.putSound(each);
      else this.send(each);
    }
    // Audio that is sent again is no sign of a slow network.
    this.mayWait = UNSENT_BYTES + socket.bufferedAmount;
    this.change("open");
    this.emit(resumed.type, resumed);
    this.emit("*", resumed);
  }

  /** The session has ended: start another one. */
  startAnew() {
    this.unplug()?.close();
    this.change("connecting");
    void this.dial();
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  endOf(code, reason) {
    // The server ended the session for a reason: the user starts the next one.
    const byRule = code === BY_POLICY || code >= 4000;
    if (this.lastWord && (byRule || this.lastWord.code === "session_expired")) return this.lastWord;
    if (code === NORMAL || byRule) return failure("ended", String(code), reason);
    return failure(code === GOING_AWAY ? "unreachable" : "broken", String(code), reason);
  }

  /** @param {Failure} why */
  lost(why) {
    this.unplug();
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
    if (state === "closed") this.address.searchParams.delete("continues");
    this.emit("state", { state, failure: why, wait_ms });
  }
}

/**
 * @param {WireEvent} event
 * @returns {Place}
 */
function placeOf({ response_id, item_id, output_index, content_index }) {
  return { response_id, item_id, output_index, content_index };
}
