/**
 * The state to resume a session whose connection broke: its id, the secret, the last event, the latest audio of the
 * microphone, and the events that were queued meanwhile. No DOM, no socket.
 *
 * @module
 */

import { ANSWERING } from "./question_delivery.js";

/** @typedef {import("./realtime.js").WireEvent} WireEvent */

const RATE_HZ = 24000;

/** Buffered audio: the 15 s that a server waits, and the time to detect a broken connection. */
const BUFFERED_SAMPLES = 30 * RATE_HZ;

/** Audio is sent again in pieces of at most this. */
const PIECE_SAMPLES = RATE_HZ;

/** Full: events are refused, as without a session. A minute of playback reports is less. */
const HELD_EVENTS = 512;

/** The latest items and sent events are named to another node: theirs has written each within some ms. */
const NAMED = 8;

const ITEM = "conversation.item.create";

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
    /** The items before it that came as a whole. Full: the oldest is dropped. @type {{item_id: string, text: string, ms?: number}[]} */
    this.receivedItems = [];
    /** Items, and the last request, unless its answer has begun: the node has written that. @type {WireEvent[]} */
    this.sent = [];
    /** The id of the request that was named to the node that goes on. @type {string | undefined} */
    this.taken = "";
    /** Whether the last question is audio: it is sent again from the server's position, and its request after it. */
    this.spoken = false;
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
    for (const [i, word] of words.entries()) this.receivedWords.push({ word, start_ms: starts_ms[i] });
  }

  /** @param {{id: string, type: string, status: string, content?: any[]}} item of a response, which is over */
  noteItem({ id, type, status, content }) {
    if (type !== "message" || status !== "completed") return;
    this.beginItem(id);
    const texts = (content ?? []).map((part) => part.transcript ?? part.text ?? "");
    this.receivedText = texts.filter(Boolean).join(" ");
  }

  /** @param {string} itemId */
  beginItem(itemId) {
    if (itemId === this.receivedItem) return;
    if (this.receivedText !== null) {
      const ms = this.receivedSamples ? { ms: this.receivedMs } : {};
      const whole = { item_id: this.receivedItem, text: this.receivedText, ...ms };
      this.receivedItems = [...this.receivedItems.slice(1 - NAMED), whole];
    }
    this.receivedItem = itemId;
    this.receivedSamples = 0;
    this.receivedWords = [];
    this.receivedText = null;
  }

  get receivedMs() {
    return Math.floor((this.receivedSamples * 1000) / RATE_HZ);
  }

  /** Return how far the last item has come, for the node that goes on. */
  received() {
    if (!this.receivedItem) return {};
    const received_ms = this.receivedSamples ? this.receivedMs : undefined;
    const where = { received_item_id: this.receivedItem, received_items: this.receivedItems, received_ms };
    if (this.receivedText !== null) return { ...where, received_text: this.receivedText, received_done: true };
    if (!this.receivedWords.length) return where;
    const begun = this.receivedWords.filter(({ start_ms }) => start_ms < this.receivedMs);
    return { ...where, received_text: begun.map(({ word }) => word).join(" ") };
  }

  /** @param {WireEvent} event that is sent; of items and requests the latest are named to another node */
  noteSent(event) {
    const { type, event_id } = event;
    const request = type === "response.create";
    if (type === ITEM || type === "input_audio_buffer.commit") this.spoken = type !== ITEM;
    // The answer to this one is that to an earlier one that waits, too.
    if (request) this.requestOver();
    if (type === ITEM || (request && event_id && !this.spoken)) this.sent = [...this.sent.slice(1 - NAMED), event];
  }

  /** The last request has its answer, or gets none. */
  requestOver() {
    this.sent = this.sent.filter(({ type }) => type === ITEM);
  }

  /** @param {Record<string, any>} error of an event, which the server has refused */
  refused({ event_id, code }) {
    if (code !== ANSWERING) this.sent = this.sent.filter((each) => each.type === ITEM || each.event_id !== event_id);
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
    const { sessionId: session_id, secret, sent } = this;
    // Without a value the field is left out of the JSON.
    const last_event_id = this.lastEventId || undefined;
    return { type: "voicepipe.resume", session_id, secret, sent, last_event_id, ...this.received() };
  }

  /**
   * Return all that the server lacks, in its original order.
   *
   * @param {Record<string, any>} resumed the server's answer to the request
   * @returns {Generator<Int16Array | WireEvent>}
   */
  *rest({ secret, window_ms, input_received_ms, moved }) {
    if (moved) {
      this.taken = this.sent.find(({ type }) => type !== ITEM)?.event_id;
      this.requestOver();
    }
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
