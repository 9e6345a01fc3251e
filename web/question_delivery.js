/**
 * Sees to it that what the user asks arrives once, also when the line breaks right behind it. The microphone's sound
 * is sent again from where the server lacks it; of events nobody says which have come, but each of the user's
 * questions is confirmed by two of the server's, of its words and of its answer, and those come again after a break.
 * No DOM.
 *
 * @module
 */

/** The sign of a question that was spoken. */
export const COMMITTED = "committed";

/** Of a server that is at another answer. */
export const ANSWERING = "conversation_already_has_active_response";

export class QuestionDelivery {
  /** @param {import("./realtime.js").Realtime} line */
  constructor(line) {
    this.line = line;
    /**
     * What was asked last, until its answer is begun. `there`: the server has its words; `waits`: for another answer's
     * end, since that one was begun before.
     *
     * @type {{sign: string, put: () => boolean, there: boolean, waits: boolean} | null}
     */
    this.open = null;
    this.requests = 0;
    this.probes = 0;
    line.on("conversation.item.added", ({ item }) => this.confirm(item.id));
    line.on("input_audio_buffer.committed", () => this.confirm(COMMITTED));
    line.on("response.created", () => {
      if (this.open?.there) this.open = null;
    });
    line.on("response.done", () => {
      if (this.open?.waits) this.send();
    });
    line.on("voicepipe.resumed", () => this.probe());
    line.on("error", ({ error }) => this.refused(error));
  }

  /**
   * @param {string} sign the id of an item that this adds, or `COMMITTED`
   * @param {() => boolean} put sends the words; false: there was no line
   */
  submit(sign, put) {
    this.open = { sign, put, there: false, waits: false };
    if (!this.send()) this.open = null;
    return this.open !== null;
  }

  /** Send what the server lacks of the question: its words and the wish for an answer are two events. */
  send() {
    if (!this.open?.there && !this.open?.put()) return false;
    this.open.waits = false;
    this.requests += 1;
    return this.line.send({ type: "response.create", event_id: this.requestId });
  }

  /** @param {string} sign of words that the server has */
  confirm(sign) {
    if (this.open?.sign === sign) this.open.there = true;
  }

  /**
   * The session is gone.
   *
   * @returns {boolean} whether a written question was lost with it
   */
  giveUp() {
    const { open } = this;
    this.open = null;
    return open !== null && open.sign !== COMMITTED;
  }

  get requestId() {
    return `request_${this.requests}`;
  }

  get probeId() {
    return `probe_${this.probes}`;
  }

  /** Ask for what is not there: the refusal comes behind everything that was missed. */
  probe() {
    if (!this.open) return;
    this.probes += 1;
    this.line.send({ type: "conversation.item.retrieve", event_id: this.probeId, item_id: this.probeId });
  }

  /** @param {{event_id?: string | null, code?: string | null}} error */
  refused({ event_id, code }) {
    if (!this.open) return;
    if (event_id === this.probeId) this.send(); // all that was missed has come, and no confirmation with it
    if (event_id === this.requestId && code === ANSWERING) this.open.waits = true;
    else if (event_id === this.requestId) this.open = null; // said to the user, who may ask again
  }
}
