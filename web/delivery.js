/**
 * Sees to it that what the caller asks arrives once, also when the line breaks right behind it. The microphone's sound
 * is sent again from where the server lacks it; of events nobody says which have come, but each of the caller's
 * questions is confirmed by one of the server's, and those come again after a break. No DOM.
 *
 * @module
 */

/** The sign of a question that was spoken. */
export const COMMITTED = "committed";

export class Delivery {
  /** @param {import("./realtime.js").Realtime} line */
  constructor(line) {
    this.line = line;
    /** What was asked last, until it is confirmed by its sign. @type {{sign: string, ask: () => boolean} | null} */
    this.open = null;
    this.probes = 0;
    line.on("conversation.item.added", ({ item }) => this.confirm(item.id));
    line.on("input_audio_buffer.committed", () => this.confirm(COMMITTED));
    line.on("voicepipe.resumed", () => this.probe());
    line.on("error", ({ error }) => error.event_id === this.probeId && this.askAgain());
  }

  /**
   * @param {string} sign the id of an item that this adds, or `COMMITTED`
   * @param {() => boolean} ask sends it; false: there was no line
   */
  ask(sign, ask) {
    this.open = ask() ? { sign, ask } : null;
    return this.open !== null;
  }

  /** @param {string} sign */
  confirm(sign) {
    if (this.open?.sign === sign) this.open = null;
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

  get probeId() {
    return `probe_${this.probes}`;
  }

  /** Ask for what is not there: the refusal comes behind everything that was missed. */
  probe() {
    if (!this.open) return;
    this.probes += 1;
    this.line.send({ type: "conversation.item.retrieve", event_id: this.probeId, item_id: this.probeId });
  }

  /** All that was missed has come, and no confirmation with it. */
  askAgain() {
    this.open?.ask();
  }
}
