/**
 * Report to the server what the loudspeaker has played, so that the server need not estimate it.
 *
 * @module
 */

/** Positions come 20 times a second: every fourth is reported. */
const POSITIONS = 4;

const FRAME_MS = 20;

/** Without a frame for this long the microphone is muted: it is no late frame. */
const GAP_MS = 500;

/** Most that the device's clock runs behind the page's, as a share. */
const DRIFT = 0.0002;

/** The reports of one session. Without the server's consent it sends none. */
export class Playback {
  /** @param {import("./realtime.js").Realtime} line */
  constructor(line) {
    this.line = line;
    this.sent_ms = 0;
    this.sentAt_ms = 0;
    /** Captured audio less the page's time, by the most punctual frame: a frame may be late, and is never early. */
    this.ahead_ms = 0;
    this.begin();
  }

  /** A session is new: its microphone's time begins at 0. */
  begin() {
    this.sent_ms = 0;
    this.sentAt_ms = 0;
    this.ahead_ms = 0;
    this.item = "";
    this.unreported = 0;
  }

  /** A frame of the microphone has been sent. */
  sent() {
    this.sent_ms += FRAME_MS;
    const now_ms = performance.now();
    const [passed_ms, ahead_ms] = [now_ms - this.sentAt_ms, this.sent_ms - now_ms];
    const isFirst = this.sent_ms === FRAME_MS || passed_ms > GAP_MS;
    this.ahead_ms = isFirst ? ahead_ms : Math.max(ahead_ms, this.ahead_ms - DRIFT * passed_ms);
    this.sentAt_ms = now_ms;
  }

  /** How much the microphone has captured, muted time included. */
  get input_ms() {
    return this.sent_ms ? Math.round(performance.now() + this.ahead_ms) : 0;
  }

  /** @param {{item: string, played_ms: number, waiting_ms: number, age_ms: number}} at */
  position({ item, played_ms, waiting_ms, age_ms }) {
    this.unreported = item === this.item ? this.unreported + 1 : POSITIONS;
    this.item = item;
    if (this.unreported < POSITIONS) return;
    this.unreported = 0;
    this.report(item, played_ms, waiting_ms, age_ms);
  }

  /**
   * Report at once that an item was played to its end, or cut.
   *
   * @param {{item: string, played_ms: number}} played
   */
  over({ item, played_ms }) {
    this.report(item, played_ms, 0);
  }

  /**
   * @param {string} item_id
   * @param {number} played_ms
   * @param {number} buffered_ms
   * @param {number} age_ms how long ago that was: the microphone's position must be of the same instant
   */
  report(item_id, played_ms, buffered_ms, age_ms = 0) {
    if (!this.line.has("playback_reports")) return;
    const input_ms = Math.max(0, this.input_ms - age_ms);
    this.line.send({ type: "voicepipe.playback", item_id, played_ms, buffered_ms, input_ms });
  }
}
