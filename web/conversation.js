/**
 * One conversation: joins the connection, the microphone's frames, the loudspeaker and the page's tools. Holds the items
 * of both sides, interrupts the agent when the user speaks, and reports to the millisecond what was played. No DOM.
 *
 * @module
 */

import { ANSWERING, COMMITTED, QuestionDelivery } from "./question_delivery.js";
import { Playback } from "./playback.js";
import { ToolCalls } from "./tools.js";

/** @typedef {"listening" | "user_speaking" | "thinking" | "speaking"} Scene the state of the conversation, seen from the user */
/**
 * @typedef {object} Entry an item of the conversation, as text
 * @property {string} id the item's
 * @property {"user" | "agent"} role
 * @property {string} text
 * @property {string | null} played of the agent's text that was cut: the part that was played; null: not known yet
 * @property {boolean} cut
 * @property {boolean} done
 * @property {string} failure why the text is missing; empty when it is there
 * @property {string} turn the turn's id; empty until it is known
 */
/**
 * @typedef {object} Listeners
 * @property {(entry: Entry) => void} onEntry an entry is new or has changed
 * @property {(turn: string, entry: Entry) => void} onTurn a turn has been answered; `entry` holds the answer
 * @property {(scene: Scene) => void} onScene
 * @property {(why: string) => void} onProblem the server's message about a request that failed
 */

/** The extensions that a `Conversation` and the page use; see "Extensions" in the documentation. */
export const EXTENSIONS = /** @type {const} */ (["binary_audio", "playback_reports", "turn_events", "resume", "ducking"]);

/** Shorter than this is a slip of the finger; the server refuses less than 100 ms. */
const MIN_FRAMES = 6;

const COMMIT = { type: "input_audio_buffer.commit" };

/** Errors that are no fault: the client's event and the server's crossed. */
const HARMLESS = [
  "response_cancel_not_active",
  "item_truncate_invalid_item_id",
  "item_retrieve_invalid_item_id",
  // Requested again when that answer is over.
  ANSWERING,
];

export class Conversation {
  /**
   * @param {import("./realtime.js").Realtime} line
   * @param {import("./speaker.js").Speaker} speaker
   * @param {Listeners} listeners
   * @param {readonly import("./tools.js").Tool[]} [tools] functions that the agent may call
   */
  constructor(line, speaker, listeners, tools = []) {
    this.line = line;
    this.speaker = speaker;
    this.tools = new ToolCalls(line, tools);
    this.listeners = listeners;
    this.playback = new Playback(line);
    this.delivery = new QuestionDelivery(line);
    /** @type {Map<string, Entry>} */
    this.entries = new Map();
    /** @type {Map<string, Entry>} */
    this.answers = new Map();
    /** The turns of responses that are being made. @type {Map<string, string>} */
    this.turns = new Map();
    /** Items that were cut: their later audio is not played. */
    this.cut = new Set();
    this.muted = false;
    this.holdToTalk = false;
    this.held = 0;
    this.holding = false;
    this.userSpeaks = false;
    this.responding = false;
    this.written = 0;
    /** @type {Scene} */
    this.scene = "listening";
    this.voice = "";
    this.listen();
  }

  listen() {
    const { line } = this;
    this.speaker.onPosition = (at) => this.playback.position(at);
    this.speaker.onEnded = (played) => {
      this.playback.over(played);
      this.look();
    };
    line.on("session.created", ({ session }) => this.begin(session));
    line.on("voicepipe.resumed", () => {
      // The user's choice may have been lost with the connection.
      if (this.holdToTalk === Boolean(line.session?.audio.input.turn_detection)) this.detect();
    });
    line.on("state", () => this.look());
    this.tools.on("busy", () => this.look());
    line.on("error", ({ error }) => HARMLESS.includes(error.code ?? "") || this.listeners.onProblem(error.message));
    this.listenToUser();
    this.listenToAgent();
  }

  listenToUser() {
    const { line } = this;
    line.on("input_audio_buffer.speech_started", ({ item_id }) => {
      this.userSpeaks = true;
      this.change(this.entry(item_id, "user"));
      void this.interrupt();
    });
    line.on("input_audio_buffer.speech_stopped", () => {
      this.userSpeaks = false;
      this.look();
    });
    line.on("conversation.item.added", ({ item }) => this.added(item));
    line.on("conversation.item.input_audio_transcription.delta", ({ item_id, delta }) => {
      const entry = this.entry(item_id, "user");
      this.change(entry, { text: entry.text + delta });
    });
    line.on("conversation.item.input_audio_transcription.completed", ({ item_id, transcript }) =>
      this.change(this.entry(item_id, "user"), { text: transcript, done: true }),
    );
    line.on("conversation.item.input_audio_transcription.failed", ({ item_id, error }) =>
      this.change(this.entry(item_id, "user"), { failure: error.message ?? "", done: true }),
    );
  }

  listenToAgent() {
    const { line } = this;
    line.on("response.created", ({ response }) => {
      this.responding = true;
      this.turns.set(response.id, response.metadata?.voicepipe_turn ?? "");
      this.look();
    });
    line.on("response.output_item.added", ({ item, response_id }) => {
      if (item.type !== "message") return;
      const entry = this.entry(item.id, "agent");
      // Shown with its first text: there may be none.
      entry.turn = this.turns.get(response_id) ?? "";
      // The filler before it.
      const before = this.answers.get(response_id);
      if (before && before !== entry) this.change(before, { done: true });
      this.answers.set(response_id, entry);
    });
    /** @param {any} event */
    const grow = ({ item_id, delta }) => {
      const entry = this.entry(item_id, "agent");
      this.change(entry, { text: entry.text + delta });
    };
    line.on("response.output_audio_transcript.delta", grow);
    line.on("response.output_text.delta", grow);
    line.on("sound", ({ item_id, samples }) => {
      if (!this.cut.has(item_id)) this.speaker.play(item_id, samples);
      this.look();
    });
    line.on("voicepipe.agent.ducked", ({ item_id }) => this.speaker.open.has(item_id) && this.speaker.duck());
    line.on("voicepipe.agent.unducked", () => this.speaker.restore());
    line.on("voicepipe.agent.interrupted", () => void this.interrupt());
    line.on("response.output_audio.done", ({ item_id }) => this.speaker.finish(item_id));
    line.on("response.done", ({ response }) => this.answered(response));
    line.on("conversation.item.truncated", ({ item_id }) =>
      line.send({ type: "conversation.item.retrieve", item_id }),
    );
    line.on("conversation.item.retrieved", ({ item }) =>
      this.change(this.entry(item.id, "agent"), { played: item.content[0]?.transcript ?? "" }),
    );
  }

  // --- the user's actions -----------------------------------------------------------------

  /**
   * Take 20 ms of the microphone.
   *
   * @param {Int16Array} samples
   */
  push(samples) {
    if (this.muted || (this.holdToTalk && !this.holding)) return;
    this.held += 1;
    if (this.line.append(samples)) this.playback.sent();
  }

  /** Start a turn of push-to-talk. */
  press() {
    if (!this.holdToTalk || this.holding) return;
    void this.interrupt();
    this.cancel();
    this.line.send({ type: "input_audio_buffer.clear" });
    this.holding = true;
    this.held = 0;
    this.look();
  }

  /**
   * End a turn of push-to-talk.
   *
   * @returns {boolean} false when it was too short to send
   */
  release() {
    if (!this.holding) return true;
    this.holding = false;
    const enough = this.held >= MIN_FRAMES;
    if (enough) this.responding = this.delivery.submit(COMMITTED, () => this.line.send(COMMIT));
    this.look();
    return enough;
  }

  /** @param {string} text to send as a user message */
  write(text) {
    void this.interrupt();
    this.cancel();
    this.written += 1;
    const id = `written_${Date.now().toString(36)}_${this.written}`;
    if (!this.delivery.submit(id, () => this.line.say("user", text, id))) return false;
    this.responding = true;
    this.change(this.entry(id, "user"), { text, done: true });
    return true;
  }

  /** @param {boolean} hold whether the user holds a button to speak */
  setHoldToTalk(hold) {
    this.holdToTalk = hold;
    this.holding = false;
    this.userSpeaks = false;
    this.detect();
    this.look();
  }

  /** Stop the playback, and report to the server how much of each item was played. */
  async interrupt() {
    for (const item of this.speaker.open) this.cut.add(item);
    const cut = this.speaker.busy ? await this.speaker.flush() : [];
    // For what comes next.
    this.speaker.restore();
    for (const { item, played_ms } of cut) {
      this.playback.over({ item, played_ms });
      this.line.truncate(item, played_ms);
      this.change(this.entry(item, "agent"), { cut: true });
    }
    this.look();
  }

  cancel() {
    if (this.responding) this.line.send({ type: "response.cancel" });
  }

  // --- the server's events -----------------------------------------------------------------

  /** @param {Record<string, any>} session */
  begin(session) {
    this.playback.begin();
    this.speaker.restore();
    this.userSpeaks = false;
    this.responding = false;
    const output = this.voice ? { output: { voice: this.voice } } : {};
    const transcription = session.audio.input.transcription ?? {};
    // The agent's own turn detection is left alone: what a client sets is exact, and no answer begins softly then.
    const input = this.holdToTalk ? { transcription, turn_detection: null } : { transcription };
    const tools = this.tools.tools.length ? { tools: this.tools.definitions(session.tools) } : {};
    this.line.update({ audio: { input, ...output }, ...tools });
    // An answer that was running when the session before broke gets no more audio.
    for (const item of this.speaker.open) this.speaker.finish(item);
    // After a break the server has a new session: the items are added to it, under the same ids.
    for (const { id, role, text, played } of this.entries.values()) {
      if (text && !id.startsWith("filler_")) this.line.say(role === "agent" ? "assistant" : "user", played ?? text, id);
    }
    const [question, results] = [this.delivery.giveUp(), this.tools.giveUp()];
    if (question || results) this.responding = this.line.send({ type: "response.create", event_id: "request_0" });
  }

  /** Turn the server's turn detection on or off. */
  detect() {
    this.line.update({ audio: { input: { turn_detection: this.holdToTalk ? null : { type: "semantic_vad" } } } });
  }

  /** @param {Record<string, any>} item */
  added(item) {
    const { id, role, content } = item;
    // An assistant's message comes with its response; before its first text there is nothing to show.
    if (role !== "user" || this.entries.has(id)) return;
    this.change(this.entry(id, "user"), { text: content[0]?.text ?? "" });
  }

  /** @param {{id: string, status: string, status_details?: any, metadata?: any, output?: readonly any[]}} response */
  answered({ id, status, status_details, metadata, output }) {
    this.responding = false;
    this.turns.delete(id);
    const turn = metadata?.voicepipe_turn ?? "";
    const entry = this.answers.get(id) ?? this.entry(`answer of ${id}`, "agent");
    const failure = status === "failed" ? (status_details?.error?.message ?? "The agent could not answer.") : "";
    // Here or on the server.
    const called = (output ?? []).some((item) => item.type !== "message");
    const silent = !entry.text && (status === "cancelled" || (called && !failure));
    if (silent) this.entries.delete(entry.id);
    else this.change(entry, { done: true, failure, turn, cut: entry.cut || status === "cancelled" });
    if (turn && !silent) this.listeners.onTurn(turn, entry);
    this.look();
  }

  // --- items and state -----------------------------------------------------------------------

  /**
   * @param {string} id
   * @param {"user" | "agent"} role
   * @returns {Entry}
   */
  entry(id, role) {
    const known = this.entries.get(id);
    if (known) return known;
    const entry = { id, role, text: "", played: null, cut: false, done: false, failure: "", turn: "" };
    this.entries.set(id, entry);
    return entry;
  }

  /**
   * @param {Entry} entry
   * @param {Partial<Entry>} [changes]
   */
  change(entry, changes = {}) {
    Object.assign(entry, changes);
    this.listeners.onEntry(entry);
    this.look();
  }

  /** Update the state, and report a change. */
  look() {
    const scene = this.userSpeaks || this.holding ? "user_speaking" : this.speaker.busy ? "speaking" : this.waiting();
    if (scene === this.scene) return;
    this.scene = scene;
    this.listeners.onScene(scene);
  }

  /** @returns {Scene} */
  waiting() {
    const stands = this.line.state === "open" || this.line.state === "resuming";
    return (this.responding || this.tools.busy) && stands ? "thinking" : "listening";
  }
}
