/**
 * The loudspeaker: plays the agent's audio, and counts to the sample how much of each item was played. Audio in the
 * device's buffer is not played yet, where the browser knows its length (`AudioContext.outputLatency`; Web Audio API,
 * 1.2). A cut item counts as played up to the audio that the device already has.
 *
 * @module
 */

export const RATE_HZ = 24000;

/** The volume while ducked: a quarter is 12 dB less, and still intelligible. */
const DUCKED = 0.25;

/** Volume that jumps clicks. */
const RAMP_S = 0.06;

/** @typedef {{item: string, played_ms: number}} Played */

/** A queue of spoken items, each of them audio at 24 kHz in pieces. */
export class Speaker {
  /**
   * Open the loudspeaker. Call from a click or a key press: browsers block audio otherwise.
   *
   * @param {URL | string} [worklets] the folder of the worklet, if it is not beside this module
   */
  static async open(worklets = import.meta.url) {
    const context = new AudioContext({ sampleRate: RATE_HZ, latencyHint: "interactive" });
    await context.audioWorklet.addModule(new URL("speaker.worklet.js", worklets));
    const node = new AudioWorkletNode(context, "voicepipe-speaker", { numberOfInputs: 0, outputChannelCount: [1] });
    const volume = new GainNode(context);
    node.connect(volume).connect(context.destination);
    await context.resume();
    return new Speaker(context, node, volume);
  }

  /**
   * @param {AudioContext} context
   * @param {AudioWorkletNode} node
   * @param {GainNode} volume
   */
  constructor(context, node, volume) {
    this.context = context;
    this.volume = volume.gain;
    this.port = node.port;
    /**
     * Called about 20 times a second while it plays; `age_ms`: how long the message waited for a busy page.
     *
     * @type {((at: Played & {waiting_ms: number, age_ms: number}) => void) | undefined}
     */
    this.onPosition = undefined;
    /** Called when an item has been played to its end. @type {((item: Played) => void) | undefined} */
    this.onEnded = undefined;
    /** Items that are not played to their end. */
    this.open = new Set();
    /** Those items whose audio is complete and still playing. */
    this.ending = new Map();
    /** @type {((cut: Played[]) => void)[]} */
    this.flushes = [];
    this.port.onmessage = ({ data }) => {
      if (data.kind === "position") this.reportPosition(data);
      else if (data.kind === "ended") this.ending.set(data, setTimeout(() => this.end(data), this.latency_ms));
      else this.flushes.shift()?.(data.cut.map(playedOf));
    };
  }

  /** The device's delay from a sample to its sound; 0 where the browser hides it. */
  get latency_ms() {
    return Math.round(1000 * (this.context.outputLatency || 0));
  }

  /** @param {{item: string, played: number, waiting: number, at_s: number}} count */
  reportPosition({ item, played, waiting, at_s }) {
    const held_ms = this.latency_ms;
    const played_ms = duration(played) - held_ms;
    const age_ms = Math.max(0, Math.round(1000 * (this.context.currentTime - at_s)));
    if (played_ms > 0) this.onPosition?.({ item, played_ms, waiting_ms: duration(waiting) + held_ms, age_ms });
  }

  /** @param {{item: string, played: number}} count of an item whose last sample is played now */
  end(count) {
    clearTimeout(this.ending.get(count));
    this.ending.delete(count);
    this.open.delete(count.item);
    this.onEnded?.(playedOf(count));
  }

  /** Whether an item is playing or queued. */
  get busy() {
    return this.open.size > 0;
  }

  /**
   * Queue more of an item.
   *
   * @param {string} item its id
   * @param {Int16Array} samples mono, 24 kHz
   */
  play(item, samples) {
    this.open.add(item);
    const sound = Float32Array.from(samples, (sample) => sample / 32768);
    this.port.postMessage({ kind: "play", item, samples: sound }, [sound.buffer]);
  }

  /** @param {string} item that is complete */
  finish(item) {
    if (this.open.has(item)) this.port.postMessage({ kind: "finish", item });
  }

  /**
   * Stop the playback at once, and drop the queue.
   *
   * @returns {Promise<Played[]>} the items that were not over, and how much of each has been played
   */
  flush() {
    for (const count of this.ending.keys()) this.end(count);
    this.open.clear();
    return new Promise((resolve) => {
      this.flushes.push(resolve);
      this.port.postMessage({ kind: "flush" });
    });
  }

  /** Play on, at a lower volume. */
  duck() {
    this.turnTo(DUCKED);
  }

  /** Play at full volume. */
  restore() {
    this.turnTo(1);
  }

  /** @param {number} level */
  turnTo(level) {
    const now_s = this.context.currentTime;
    this.volume.cancelScheduledValues(now_s);
    this.volume.setValueAtTime(this.volume.value, now_s);
    this.volume.linearRampToValueAtTime(level, now_s + RAMP_S);
  }

  /**
   * Play through another device.
   *
   * @param {string} deviceId empty: the system's choice
   * @returns {Promise<boolean>} false where the browser refuses, or lets no page choose
   */
  async use(deviceId) {
    /** @type {AudioContext & {setSinkId?: (id: string) => Promise<void>}} */
    const context = this.context;
    try {
      await context.setSinkId?.(deviceId);
      return context.setSinkId !== undefined;
    } catch {
      return false;
    }
  }

  /** Close the device. */
  async close() {
    for (const timer of this.ending.values()) clearTimeout(timer);
    this.ending.clear();
    this.open.clear();
    await this.context.close();
  }
}

/** @param {{item: string, played: number}} count */
function playedOf({ item, played }) {
  return { item, played_ms: duration(played) };
}

/** @param {number} samples */
function duration(samples) {
  return Math.floor((samples * 1000) / RATE_HZ);
}
