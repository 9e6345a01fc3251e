/**
 * The loudspeaker's side of the audio thread: plays items one after the other and counts every sample of each.
 *
 * Takes `{kind: "play", item, samples: Float32Array}`, `{kind: "finish", item}` (the item is complete) and
 * `{kind: "flush"}`. Posts `{kind: "position", item, played, waiting, at_s}` about 20 times a second while it plays
 * (`at_s`: the time of the context then), `{kind: "ended", item, played}` when an item is over, and
 * `{kind: "flushed", cut: [{item, played}]}`. All counts are samples at the context's rate.
 *
 * @module
 */

/** Audio buffered before an item begins, so that a late packet causes no gap; audio comes faster than it plays. */
const JITTER_BUFFER_MS = 40;

/** Each underrun adds this much to the buffer, up to the maximum. */
const MORE_BUFFER_MS = 40;
const MAX_BUFFER_MS = 200;

/** After this wait a buffer that is not full is played. */
const MAX_WAIT_MS = 120;

const REPORT_MS = 50;

/** A cut that ends on a loud sample clicks. */
const FADE_SAMPLES = 72;

/** @typedef {{item: string, chunks: Float32Array[], offset: number, waiting: number, played: number, finished: boolean}} Item */

class SpeakerProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    // Bounded by the audio of one reply: the server sends no more than it has synthesized.
    /** @type {Item[]} */
    this.items = [];
    this.flowing = false;
    this.jitterBuffer = ms(JITTER_BUFFER_MS);
    this.waited = 0;
    this.unreported = 0;
    this.last = 0;
    this.fade = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  /** @param {{kind: string, item: string, samples: Float32Array}} message */
  take(message) {
    if (message.kind === "play") this.append(message.item, message.samples);
    else if (message.kind === "finish") this.of(message.item).finished = true;
    else this.flush();
  }

  /** @param {string} name */
  of(name) {
    let item = this.items.find((known) => known.item === name);
    if (!item) {
      item = { item: name, chunks: [], offset: 0, waiting: 0, played: 0, finished: false };
      this.items.push(item);
    }
    return item;
  }

  /**
   * @param {string} name
   * @param {Float32Array} samples
   */
  append(name, samples) {
    const item = this.of(name);
    item.chunks.push(samples);
    item.waiting += samples.length;
  }

  flush() {
    const cut = this.items.map(({ item, played }) => ({ item, played }));
    this.items = [];
    this.flowing = false;
    this.fade = FADE_SAMPLES;
    this.port.postMessage({ kind: "flushed", cut });
  }

  /**
   * @param {Float32Array[][]} _
   * @param {Float32Array[][]} outputs
   */
  process(_, outputs) {
    const [output] = outputs[0];
    let at = this.fadeOut(output);
    while (at < output.length && this.mayPlay(output.length)) at = this.fill(output, at);
    for (const channel of outputs[0].slice(1)) channel.set(output);
    this.report(output.length);
    return true;
  }

  /** @param {Float32Array} output */
  fadeOut(output) {
    const length = Math.min(this.fade, output.length);
    for (let i = 0; i < length; i += 1) {
      output[i] = (this.last * this.fade) / FADE_SAMPLES;
      this.fade -= 1;
    }
    return length;
  }

  /** @param {number} quantum samples for which a buffer that is not full has waited */
  mayPlay(quantum) {
    this.dropEnded();
    const [first] = this.items;
    if (!first) return false;
    if (!this.flowing && first.waiting) {
      this.waited += quantum;
      this.flowing = first.finished || first.waiting >= this.jitterBuffer || this.waited >= ms(MAX_WAIT_MS);
    }
    if (this.flowing && !first.waiting) this.runDry();
    return this.flowing;
  }

  dropEnded() {
    while (this.items.length && this.items[0].finished && !this.items[0].waiting) {
      const { item, played } = /** @type {Item} */ (this.items.shift());
      this.port.postMessage({ kind: "ended", item, played });
    }
    if (!this.items.length) this.pause();
  }

  runDry() {
    this.jitterBuffer = Math.min(ms(MAX_BUFFER_MS), this.jitterBuffer + ms(MORE_BUFFER_MS));
    this.pause();
  }

  pause() {
    this.flowing = false;
    this.waited = 0;
  }

  /**
   * @param {Float32Array} output
   * @param {number} at
   */
  fill(output, at) {
    const [item] = this.items;
    const [chunk] = item.chunks;
    const count = Math.min(output.length - at, chunk.length - item.offset);
    output.set(chunk.subarray(item.offset, item.offset + count), at);
    this.last = output[at + count - 1];
    item.offset += count;
    item.waiting -= count;
    item.played += count;
    if (item.offset === chunk.length) {
      item.chunks.shift();
      item.offset = 0;
    }
    return at + count;
  }

  /** @param {number} quantum */
  report(quantum) {
    const [first] = this.items;
    this.unreported += quantum;
    if (!first || !this.flowing || this.unreported < ms(REPORT_MS)) return;
    this.unreported = 0;
    const { item, played, waiting } = first;
    this.port.postMessage({ kind: "position", item, played, waiting, at_s: currentTime });
  }
}

/** @param {number} duration */
function ms(duration) {
  return (duration * sampleRate) / 1000;
}

registerProcessor("voicepipe-speaker", SpeakerProcessor);
