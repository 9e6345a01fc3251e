/**
 * Show each turn's latency below its answer: live, where the session sends turn events, and final, once the turn is
 * over. Without turn events the figures come from `GET /v1/turns/{id}`.
 *
 * @module
 */

import { latencyCard, liveCard } from "./latency_bar.js";
import { LiveTurns, isDisplayed } from "./live.js";
import { follow } from "./turns.js";

/** @typedef {import("./turns.js").TurnRecord} TurnRecord */

/** The interval at which a live latency is drawn. */
const TICK_MS = 100;

export class Latencies {
  /**
   * @param {import("./realtime.js").Realtime} line
   * @param {import("./transcript.js").Transcript} transcript
   * @param {(turn: string) => Promise<TurnRecord | null | false>} fetchRecord; null: not there yet; false: never
   * @param {import("./feedback.js").Feedback} feedback
   */
  constructor(line, transcript, fetchRecord, feedback) {
    this.feedback = feedback;
    this.line = line;
    this.transcript = transcript;
    this.fetchRecord = fetchRecord;
    this.turns = new LiveTurns();
    this.over = new AbortController();
    /** The total limit in ms, of the newest record; null before the first record. @type {number | null} */
    this.limit_ms = null;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.clock = undefined;
    line.on("session.created", () => this.clearRunning());
    line.on("voicepipe.turn.mark", (event) => this.changed(() => this.turns.mark(event, performance.now())));
    line.on("voicepipe.turn.stage", (event) => this.changed(() => this.turns.verdict(event)));
    line.on("voicepipe.turn.action", (event) => this.changed(() => this.turns.action(event)));
    line.on("voicepipe.turn.record", ({ record }) => this.show(record));
  }

  /** @param {string} turn that has been answered */
  answered(turn) {
    if (this.line.has("turn_events")) return;
    void follow(this.fetchRecord, turn, (record) => this.show(record), this.over.signal);
  }

  /** Stop showing latencies. */
  stop() {
    this.over.abort();
    this.clearRunning();
  }

  /** Drop the running turns of an earlier session. */
  clearRunning() {
    for (const id of this.turns.running.keys()) this.transcript.unmeasure(id);
    this.turns.running.clear();
    this.tick();
  }

  /** @param {() => void} change the update of a running turn */
  changed(change) {
    change();
    this.tick();
  }

  /** Draw the live latencies, as long as there are any. */
  tick() {
    for (const turn of this.turns.running.values()) {
      if (isDisplayed(turn)) this.transcript.measure(turn.id, liveCard(turn, performance.now(), this.limit_ms));
    }
    if (!this.turns.busy) {
      clearInterval(this.clock);
      this.clock = undefined;
    } else this.clock ??= setInterval(() => this.tick(), TICK_MS);
  }

  /** @param {TurnRecord} record */
  show(record) {
    if (record.outcome) this.turns.over(record.id);
    this.limit_ms = record.total_limit_ms;
    const card = latencyCard(record, this.transcript.unfolded(record.id));
    if (record.outcome) card.append(this.feedback.buttons(record.id));
    this.transcript.measure(record.id, card);
    this.tick();
  }
}
