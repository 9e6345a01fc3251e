/**
 * The state to resume a session whose connection broke: its id, the secret, the last event, the latest audio of the
 * microphone, and the events that were queued meanwhile. No DOM, no socket.
 *
 * @module
 */

/** @typedef {import("./realtime.js").WireEvent} WireEvent */

const RATE_HZ = 24000;

/** Buffered audio: the 15 s that a server waits, and the time to detect a broken connection. */
const BUFFERED_SAMPLES = 30 * RATE_HZ;

/** Audio is sent again in pieces of at most this. */
const PIECE_SAMPLES = RATE_HZ;

/** Full: events are refused, as without a session. A minute of playback reports is less. */
const HELD_EVENTS = 512;

export class ResumeState {
  constructor() {
    this.sessionId = "";
    this.secret = "";
    this.window_ms = 0;
    this.lastEventId = "";
    /** The last item of the agent's that came, as far as it came: if the node dies, the agent goes on there. */
    this.receivedItem = "";
    this.receivedSamples = 0;
    /** Its words, each with where it begins in its audio. @type {{word: string, start_ms: number}[]} */
    this.receivedWords = [];
    /** All of its text, once it is complete. @type {string | null} */
    this.receivedText = null;
    /** Samples of the microphone that were sent; those sent twice count once. */
    this.given = 0;
    /** Full: the oldest is dropped; the server has it. @type {Int16Array[]} */
    this.buffered = [];
    this.bufferedSamples = 0;
    /** Events queued while the connection was down, each with its position in the microphone's samples. @type {{at: number, event: WireEvent}[]} */
    this.held = [];
  }

  /** Whether the server allows resumption. */
  get possible() {
    return this.secret !== "";
  }

  /** @param {Record<string, any>} session as the server describes it: the secret comes once, with the extensions */
  allow({ id, providerData }) {
    const { resume, resume_secret, resume_window_ms } = providerData?.voicepipe ?? {};
    if (!resume) this.secret = "";
    if (!resume_secret) return;
    this.sessionId = id;
    this.secret = resume_secret;
    this.window_ms = resume_window_ms;
  }

  /** @param {WireEvent} event the latest one: later ones are missed if the connection breaks now */
  note({ event_id }) {
    if (event_id) this.lastEventId = event_id;
  }

  /** @param {number} number of a binary frame; it counts as an event */
  noteFrame(number) {
    const prefix = this.lastEventId.slice(0, this.lastEventId.lastIndexOf("_") + 1);
    this.lastEventId = prefix + number.toString(16);
  }

  /**
   * Note audio of the agent's that came.
   *
   * @param {string} itemId
   * @param {number} samples
   */
  noteSound(itemId, samples) {
    this.beginItem(itemId);
    this.receivedSamples += samples;
  }

  /** @param {WireEvent} event words of the agent's audio */
  noteWords({ item_id, words, starts_ms }) {
    this.beginItem(item_id);
    words.forEach((/** @type {string} */ word, /** @type {number} */ i) => {
      this.receivedWords.push({ word, start_ms: starts_ms[i] });
    });
  }

  /** @param {Record<string, any>} item of a response, which is over */
  noteItem({ id, type, status, content }) {
    if (type !== "message" || status !== "completed") return;
    this.beginItem(id);
    const texts = (content ?? []).map((/** @type {any} */ part) => part.transcript ?? part.text ?? "");
    this.receivedText = texts.filter(Boolean).join(" ");
  }

  /** @param {string} itemId */
  beginItem(itemId) {
    if (itemId === this.receivedItem) return;
    this.receivedItem = itemId;
    this.receivedSamples = 0;
    this.receivedWords = [];
    this.receivedText = null;
  }

  /** Return how far the last item has come, for the node that goes on. */
  received() {
    if (!this.receivedItem) return {};
    const received_ms = Math.floor((this.receivedSamples * 1000) / RATE_HZ);
    const sound = this.receivedSamples ? { received_ms } : {};
    const where = { received_item_id: this.receivedItem, ...sound };
    if (this.receivedText !== null) return { ...where, received_text: this.receivedText, received_done: true };
    if (!this.receivedWords.length) return where;
    const begun = this.receivedWords.filter(({ start_ms }) => start_ms < received_ms);
    return { ...where, received_text: begun.map(({ word }) => word).join(" ") };
  }

  /** @param {Int16Array} samples of the microphone, sent or not */
  buffer(samples) {
    this.given += samples.length;
    this.buffered.push(samples);
    this.bufferedSamples += samples.length;
    while (this.bufferedSamples - this.buffered[0].length >= BUFFERED_SAMPLES) {
      this.bufferedSamples -= /** @type {Int16Array} */ (this.buffered.shift()).length;
    }
  }

  /**
   * @param {WireEvent} event to send after the resumption
   * @returns {boolean} whether there was room
   */
  hold(event) {
    if (this.held.length >= HELD_EVENTS) return false;
    this.held.push({ at: this.given, event });
    return true;
  }

  /** Return the first event on the new connection. */
  request() {
    const last = this.lastEventId ? { last_event_id: this.lastEventId } : {};
    return { type: "voicepipe.resume", session_id: this.sessionId, secret: this.secret, ...last, ...this.received() };
  }

  /**
   * Return all that the server lacks, in its original order.
   *
   * @param {{secret: string, window_ms: number, input_received_ms: number}} resumed
   * @returns {Generator<Int16Array | WireEvent>}
   */
  *rest({ secret, window_ms, input_received_ms }) {
    this.secret = secret;
    this.window_ms = window_ms;
    const all = this.sound();
    const first = this.given - this.bufferedSamples;
    let at = Math.max((input_received_ms * RATE_HZ) / 1000 - first, 0);
    for (const { at: until, event } of this.held.splice(0)) {
      yield* pieces(all.subarray(at, until - first));
      at = Math.max(at, until - first);
      yield event;
    }
    yield* pieces(all.subarray(at));
  }

  /** Return all buffered audio of the microphone. */
  sound() {
    const all = new Int16Array(this.bufferedSamples);
    let at = 0;
    for (const samples of this.buffered) {
      all.set(samples, at);
      at += samples.length;
    }
    return all;
  }
}

/**
 * @param {Int16Array} samples
 * @returns {Generator<Int16Array>}
 */
function* pieces(samples) {
  for (let at = 0; at < samples.length; at += PIECE_SAMPLES) yield samples.subarray(at, at + PIECE_SAMPLES);
}
