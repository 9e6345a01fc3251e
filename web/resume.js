/**
 * What it takes to come back to a session whose line broke: its name, the secret, what came last, what the microphone
 * gave lately, and what was said while the line was down. No DOM, no socket.
 *
 * @module
 */

/** @typedef {import("./realtime.js").WireEvent} WireEvent */

const RATE_HZ = 24000;

/** Of the microphone: the 15 s that a server waits, and the time to notice that the line is down. */
const BUFFERED_SAMPLES = 30 * RATE_HZ;

/** Sent again in pieces of this at most. */
const PIECE_SAMPLES = RATE_HZ;

/** Full: what the user does is refused, as it is without a line. A minute of playback reports is less. */
const HELD_EVENTS = 512;

export class ResumeState {
  constructor() {
    this.sessionId = "";
    this.secret = "";
    this.window_ms = 0;
    this.lastEventId = "";
    /** How much of the microphone was given to the line, in samples; what is sent twice counts once. */
    this.given = 0;
    /** Full: the oldest goes; the server has it long since. @type {Int16Array[]} */
    this.buffered = [];
    this.bufferedSamples = 0;
    /** What was to be sent while the line was down, and after how much of the microphone. @type {{at: number, event: WireEvent}[]} */
    this.held = [];
  }

  /** Whether the server lets us come back. */
  get possible() {
    return this.secret !== "";
  }

  /** @param {Record<string, any>} session as the server says it is: the secret comes with the answer to the wish, once */
  allow({ id, providerData }) {
    const { resume, resume_secret, resume_window_ms } = providerData?.voicepipe ?? {};
    if (!resume) this.secret = "";
    if (!resume_secret) return;
    this.sessionId = id;
    this.secret = resume_secret;
    this.window_ms = resume_window_ms;
  }

  /** @param {WireEvent} event that came: whatever follows it is missed if the line breaks now */
  note({ event_id }) {
    if (event_id) this.lastEventId = event_id;
  }

  /** @param {number} number of a binary frame that came: it counts as an event */
  noteFrame(number) {
    const prefix = this.lastEventId.slice(0, this.lastEventId.lastIndexOf("_") + 1);
    this.lastEventId = prefix + number.toString(16);
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
   * @param {WireEvent} event to send once the line is back
   * @returns {boolean} whether there was room
   */
  hold(event) {
    if (this.held.length >= HELD_EVENTS) return false;
    this.held.push({ at: this.given, event });
    return true;
  }

  /** The first word on the new line. */
  request() {
    const last = this.lastEventId ? { last_event_id: this.lastEventId } : {};
    return { type: "voicepipe.resume", session_id: this.sessionId, secret: this.secret, ...last };
  }

  /**
   * The line is back: everything that the server lacks, in the order in which it was given.
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

  /** Everything that is kept of the microphone. */
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
