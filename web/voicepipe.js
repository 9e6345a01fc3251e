/**
 * A voice call from a page: the microphone, the loudspeaker, the connection, and what both sides say. Nothing here throws
 * for what a user, a device, a network or a server does; failures are values of the call's state.
 *
 *     const call = new VoicepipeCall({ server: "https://voice.example", token: "/voice-token" });
 *     call.on("state", ({ state }) => show(state));
 *     call.on("entry", ({ role, text }) => write(role, text));
 *     button.onclick = () => call.start();
 *
 * Types: voicepipe.d.ts.
 *
 * @module
 */

import { secretFrom } from "./client_secret.js";
import { Conversation, EXTENSIONS } from "./conversation.js";
import { devices } from "./devices.js";
import { failure } from "./failures.js";
import { Listeners } from "./listeners.js";
import { Microphone } from "./microphone.js";
import { Realtime } from "./realtime.js";
import { Speaker } from "./speaker.js";

export { devices };

/** @typedef {import("./failures.js").Failure} Failure */
/** @typedef {import("./conversation.js").Scene} Scene */
/** @typedef {import("./conversation.js").Entry} Entry */
/** @typedef {import("./tools.js").Tool} Tool */
/** @typedef {"idle" | "requesting" | "connecting" | Scene | "reconnecting" | "ended" | "failed"} CallState */
/** @typedef {"closed" | "requesting" | "open" | "silent" | "gone" | import("./microphone.js").MicrophoneError} MicrophoneState */
/**
 * @typedef {object} CallChange what a user may want to know of a call; it comes whenever one of these has changed
 * @property {CallState} state
 * @property {Scene} scene what goes on in the conversation, also while the connection is replaced
 * @property {import("./realtime.js").LineState} connection
 * @property {MicrophoneState} microphone
 * @property {boolean} muted
 * @property {Failure | null} failure why the call is not connected, or has ended
 * @property {number} wait_ms until the next try to connect; 0 unless the connection waits for it
 */
/**
 * @typedef {object} CallOptions
 * @property {import("./client_secret.js").TokenSource} token where a client secret comes from: an address of your
 *   backend, or a function; before each session
 * @property {string | URL} [server] the voicepipe server; the one that this module came from, if it is left out
 * @property {string} [agent] the server's choice, if it is left out
 * @property {string} [voice] the agent's own, if it is left out
 * @property {string} [microphone] a device's id; the system's choice, if it is left out
 * @property {string} [loudspeaker] likewise
 * @property {boolean} [microphoneRequired] whether a call without a microphone fails, before it connects; true
 * @property {readonly Tool[]} [tools] functions of the page that the agent may call
 */

/** The events of a `Conversation`, `ToolCalls` and this module. A server event of the same name is not passed on. */
const OWN_EVENTS = ["state", "entry", "turn", "problem", "level", "tool"];

export class VoicepipeCall extends Listeners {
  /** @param {CallOptions} options */
  constructor({ token, server, agent = "", voice = "", microphone = "", loudspeaker = "", microphoneRequired = true, tools = [] }) {
    super();
    this.secret = secretFrom(token);
    this.server = server === undefined ? new URL("..", import.meta.url) : folder(server);
    /** Where the worklets are: a bundler leaves them out. */
    this.worklets = server === undefined ? new URL(".", import.meta.url) : new URL("web/", this.server);
    this.agent = agent;
    this.voice = voice;
    this.microphoneId = microphone;
    this.loudspeakerId = loudspeaker;
    this.microphoneRequired = microphoneRequired;
    this.tools = tools;
    this.muted = false;
    this.holdToTalk = false;
    /** The connection, for its raw events; null while no call runs. @type {Realtime | null} */
    this.line = null;
    /** @type {Conversation | null} */
    this.conversation = null;
    /** @type {Speaker | null} */
    this.speaker = null;
    /** @type {Microphone | null} */
    this.microphone = null;
    /** Identifies one start of the call; null while no call runs. @type {object | null} */
    this.run = null;
    /** The state while there is no connection. @type {"idle" | "requesting" | "connecting" | "ended" | "failed"} */
    this.phase = "idle";
    this.connected = false;
    /** @type {MicrophoneState} */
    this.microphoneState = "closed";
    /** @type {Failure | null} */
    this.failure = null;
    this.wait_ms = 0;
    /** What listeners know. @type {CallChange} */
    this.known = this.now;
    this.tryNow = () => this.retry();
  }

  // --- a call's beginning and end -----------------------------------------------------------

  /** Whether a call runs, connected or not. */
  get running() {
    return this.run !== null;
  }

  /** Start the call, from a click or a key press: browsers play no audio otherwise. */
  async start() {
    if (this.run) return;
    const run = {};
    this.run = run;
    this.connected = this.muted = false;
    this.failure = null;
    this.set({ phase: this.microphoneRequired ? "requesting" : "connecting" });
    const speaker = await this.openSpeaker();
    if (this.run !== run) return void speaker?.close();
    if (!speaker) return this.finish("failed", failure("no_audio", "", ""));
    this.speaker = speaker;
    if (this.microphoneRequired && !(await this.openMicrophone())) {
      if (this.run === run) this.finish("failed", null);
      return;
    }
    this.connect(speaker);
    if (!this.microphoneRequired) await this.openMicrophone();
  }

  /** End the call. */
  stop() {
    if (this.run) this.finish("ended", null);
  }

  /** Try to connect now, where the call waits for its next try. */
  retry() {
    if (this.line?.state === "waiting" || this.line?.state === "resuming") this.line.open();
  }

  /** @param {Speaker} speaker */
  connect(speaker) {
    const line = new Realtime({ address: this.address, secret: this.secret, extensions: EXTENSIONS });
    /** @type {import("./conversation.js").Listeners} */
    const on = {
      onEntry: (entry) => this.emit("entry", entry),
      onTurn: (turn, entry) => this.emit("turn", { turn, entry }),
      onScene: () => this.changed(),
      onProblem: (message) => this.emit("problem", { message }),
    };
    this.line = line;
    this.conversation = new Conversation(line, speaker, on, this.tools);
    this.conversation.voice = this.voice;
    this.conversation.muted = this.muted;
    this.conversation.setHoldToTalk(this.holdToTalk);
    this.conversation.tools.on("tool", (result) => this.emit("tool", result));
    line.on("state", (change) => this.lineChanged(line, change));
    line.on("*", (event) => OWN_EVENTS.includes(event.type) || this.emit(event.type, event));
    window.addEventListener("online", this.tryNow);
    line.open();
  }

  get address() {
    const url = new URL("v1/realtime", this.server);
    url.protocol = url.protocol.replace("http", "ws");
    if (this.agent) url.searchParams.set("agent", this.agent);
    return url;
  }

  /**
   * @param {Realtime} line
   * @param {import("./realtime.js").StateChange} change
   */
  lineChanged(line, { state, failure: why, wait_ms }) {
    if (line !== this.line) return;
    if (state === "open") this.connected = true;
    if (state === "open" || why) this.failure = why;
    this.wait_ms = wait_ms;
    if (state === "closed") this.finish(why?.kind === "ended" ? "ended" : "failed", why);
    else this.changed();
  }

  /**
   * Close everything.
   *
   * @param {"ended" | "failed"} phase
   * @param {Failure | null} why
   */
  finish(phase, why) {
    const { line, microphone, speaker, conversation } = this;
    this.run = this.line = this.microphone = this.speaker = this.conversation = null;
    this.failure = why;
    this.wait_ms = 0;
    window.removeEventListener("online", this.tryNow);
    conversation?.tools.giveUp();
    line?.close();
    void microphone?.close();
    void speaker?.close();
    // A microphone that the user refused is why the call failed.
    const lost = phase === "failed" && !line ? this.microphoneState : "closed";
    this.set({ phase, microphoneState: lost });
  }

  // --- the user's actions -------------------------------------------------------------------

  /**
   * Send text as the user's message; an answer that plays is interrupted.
   *
   * @param {string} text
   * @returns {boolean} whether it was sent, or will be when the connection is back
   */
  say(text) {
    return this.conversation?.write(text) ?? false;
  }

  /** Stop the agent. */
  interrupt() {
    void this.conversation?.interrupt();
    this.conversation?.cancel();
  }

  /** @param {boolean} muted whether no audio of the microphone is sent */
  mute(muted = true) {
    this.muted = muted;
    if (this.conversation) this.conversation.muted = muted;
    this.microphone?.mute(muted);
    this.changed();
  }

  /** @param {boolean} hold whether the user's turn lasts from `press` to `release`, instead of by turn detection */
  setHoldToTalk(hold) {
    this.holdToTalk = hold;
    this.conversation?.setHoldToTalk(hold);
  }

  /** Start a turn of push-to-talk. */
  press() {
    this.conversation?.press();
  }

  /**
   * End a turn of push-to-talk.
   *
   * @returns {boolean} false when it was too short to send
   */
  release() {
    return this.conversation?.release() ?? true;
  }

  // --- devices ------------------------------------------------------------------------------

  /**
   * Use another microphone, in this call and the next ones.
   *
   * @param {string} deviceId empty: the system's choice
   * @returns {Promise<boolean>} whether it is open, or no call runs
   */
  async useMicrophone(deviceId) {
    this.microphoneId = deviceId;
    return !this.speaker || this.openMicrophone();
  }

  /**
   * Use another loudspeaker, in this call and the next ones.
   *
   * @param {string} deviceId empty: the system's choice
   * @returns {Promise<boolean>} false where the browser refuses, or lets no page choose
   */
  async useLoudspeaker(deviceId) {
    this.loudspeakerId = deviceId;
    return this.speaker?.use(deviceId) ?? true;
  }

  /**
   * Open the microphone, again if it could not be opened or is gone.
   *
   * @returns {Promise<boolean>} whether it is open
   */
  async openMicrophone() {
    const { run } = this;
    if (!run) return false;
    const last = this.microphone;
    this.microphone = null;
    await last?.close();
    this.set({ microphoneState: "requesting" });
    const opened = await Microphone.open({
      deviceId: this.microphoneId,
      worklets: this.worklets,
      onFrame: (frame) => this.captured(frame),
      onEnd: () => this.set({ microphoneState: "gone" }),
    });
    const current = this.run === run && !this.microphone;
    if (!current) {
      // The call ended while the browser asked, or another one was chosen.
      if (opened.ok) void opened.microphone.close();
      return false;
    }
    if (opened.ok) {
      this.microphone = opened.microphone;
      opened.microphone.mute(this.muted);
    }
    this.set({ microphoneState: opened.ok ? "open" : opened.error });
    return opened.ok;
  }

  async openSpeaker() {
    try {
      const speaker = await Speaker.open(this.worklets);
      if (this.loudspeakerId) await speaker.use(this.loudspeakerId);
      return speaker;
    } catch {
      return null;
    }
  }

  /** @param {import("./microphone.js").Frame} frame */
  captured({ samples, peak, rms }) {
    if (!this.microphone) return;
    this.conversation?.push(samples);
    this.emit("level", { peak, rms });
    // Its silence goes on.
    if (this.microphoneState === "gone") return;
    this.set({ microphoneState: this.microphone.silent ? "silent" : "open" });
  }

  // --- state --------------------------------------------------------------------------------

  /** @returns {CallState} */
  get state() {
    if (!this.line) return this.phase;
    if (this.line.state === "open") return this.scene;
    return this.line.state === "connecting" && !this.connected ? "connecting" : "reconnecting";
  }

  /** @returns {Scene} */
  get scene() {
    return this.conversation?.scene ?? "listening";
  }

  /** @returns {CallChange} */
  get now() {
    const { state, scene, muted, failure: why, wait_ms } = this;
    const connection = this.line?.state ?? "closed";
    return { state, scene, connection, microphone: this.microphoneState, muted, failure: why, wait_ms };
  }

  /** @param {Partial<Pick<VoicepipeCall, "phase" | "microphoneState">>} changes */
  set(changes) {
    Object.assign(this, changes);
    this.changed();
  }

  /** Report what has changed. */
  changed() {
    const { now, known } = this;
    const same = /** @type {(keyof CallChange)[]} */ (Object.keys(now)).every((name) => now[name] === known[name]);
    if (same) return;
    this.known = now;
    this.emit("state", now);
  }
}

/** @param {string | URL} server an address with or without a slash at its end */
function folder(server) {
  const url = new URL(server, document.baseURI);
  url.protocol = url.protocol.replace(/^ws/, "http");
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}
