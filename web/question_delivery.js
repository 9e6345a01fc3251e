/**
 * Deliver each question exactly once, also when the connection breaks right after it: what the user said or wrote, or
 * the results of a response's function calls. The microphone's audio
 * is sent again from the server's position. Events have no such position; but the server confirms each question with two
 * events, for its text and for its answer, and sends these again after a break. No DOM.
 *
 * @module
 */

/** The id that stands for a spoken question. */
export const COMMITTED = "committed";

/** The error code of a server that is at another answer. */
export const ANSWERING = "conversation_already_has_active_response";

export class QuestionDelivery {
  /**
   * @param {import("./realtime.js").Realtime} line
   * @param {string} [name] of its requests: each delivery of a line needs its own
   */
  constructor(line, name = "request") {
    this.line = line;
    this.name = name;
    /**
     * The last question, until its answer begins. `there`: the server has its text; `waits`: for the end of another
     * answer, which began before.
     *
     * @type {{sign: string, put: () => boolean, there: boolean, waits: boolean} | null}
     */
    this.open = null;
    /** The question whose answer has begun, until it is over: a node that goes on may not know it. @type {QuestionDelivery["open"]} */
    this.answering = null;
    this.requests = 0;
    this.probes = 0;
    line.on("conversation.item.added", ({ item }) => this.confirm(item.id));
    line.on("input_audio_buffer.committed", () => this.confirm(COMMITTED));
    line.on("response.created", () => {
      if (!this.open?.there) return;
      this.answering = this.open;
      this.open = null;
    });
    line.on("response.output_item.done", () => (this.answering = null));
    line.on("response.done", () => {
      this.answering = null;
      if (this.open?.waits) this.send();
    });
    line.on("voicepipe.resumed", (event) => {
      // More answers follow than the one that had begun: the node has the request whose confirmation was lost. It has
      // those that were named, too.
      const more = event.answers > (this.answering ? 1 : 0) && !this.open?.waits;
      if (event.moved && (more || line.resumeState.taken === this.requestId)) this.open = null;
      if (event.moved && !event.answer_follows) this.open ??= this.answering;
      this.answering = null;
      this.probe();
    });
    line.on("error", ({ error }) => this.refused(error));
  }

  /**
   * @param {string} sign the id of an item that this adds, or `COMMITTED`
   * @param {() => boolean} put sends the question; false: there was no connection
   */
  submit(sign, put) {
    this.open = { sign, put, there: false, waits: false };
    this.requests += 1;
    if (!this.send()) this.open = null;
    return this.open !== null;
  }

  /** Send the events of the question that the server lacks: its text, and the request for an answer. */
  send() {
    if (!this.open?.there && !this.open?.put()) return false;
    this.open.waits = false;
    return this.line.send({ type: "response.create", event_id: this.requestId });
  }

  /** @param {string} sign of a question whose text the server has */
  confirm(sign) {
    if (this.open?.sign === sign) this.open.there = true;
  }

  /**
   * Drop the question of a session that has ended.
   *
   * @returns {boolean} whether a written question was lost with it
   */
  giveUp() {
    const { open } = this;
    this.open = null;
    return open !== null && open.sign !== COMMITTED;
  }

  get requestId() {
    return `${this.name}_${this.requests}`;
  }

  get probeId() {
    return `${this.name}_probe_${this.probes}`;
  }

  /** Request an item that does not exist: the error comes after all events that were missed. */
  probe() {
    if (!this.open) return;
    this.probes += 1;
    this.line.send({ type: "conversation.item.retrieve", event_id: this.probeId, item_id: this.probeId });
  }

  /** @param {{event_id?: string | null, code?: string | null}} error */
  refused({ event_id, code }) {
    if (!this.open) return;
    // All that was missed has come, and no confirmation with it.
    if (event_id === this.probeId) this.send();
    if (event_id === this.requestId && code === ANSWERING) this.open.waits = true;
    // The page reports it; the user may ask again.
    else if (event_id === this.requestId) this.open = null;
  }
}
