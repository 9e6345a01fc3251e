/**
 * The microphone: opened with the user's permission, resampled to 24 kHz in an audio worklet, delivered in frames of 20 ms.
 *
 * @module
 */

/** @typedef {{samples: Int16Array, peak: number, rms: number}} Frame 20 ms at 24 kHz, mono; parts of full scale */
/** @typedef {"refused" | "absent" | "busy" | "insecure" | "broken"} MicrophoneError */
/** @typedef {{deviceId?: string, worklets?: URL, onFrame: (frame: Frame) => void, onEnd: () => void}} MicrophoneOptions */
/** @typedef {{ok: true, microphone: Microphone} | {ok: false, error: MicrophoneError}} Opened */

/** How long a microphone may be silent from its first sample on, before the page warns. */
export const SILENT_FRAMES = 200;

/** Below this a frame is silent: two steps of 16 bits. The quietest room is louder. */
const NOTHING = 2 / 32768;

/** @type {Record<string, MicrophoneError>} */
const ERRORS = {
  NotAllowedError: "refused",
  SecurityError: "refused",
  NotFoundError: "absent",
  OverconstrainedError: "absent",
  NotReadableError: "busy",
  AbortError: "busy",
};

/** An open microphone. Delivers frames until it is closed, or its device is gone. */
export class Microphone {
  /**
   * Request a microphone and open it. Call from a click or a key press: browsers block audio otherwise.
   *
   * @param {MicrophoneOptions} options `onEnd` is called when the device is unplugged or taken away; `worklets` is the
   *   folder of the worklet, if it is not beside this module
   * @returns {Promise<Opened>}
   */
  static async open(options) {
    if (!navigator.mediaDevices) return { ok: false, error: "insecure" };
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: constraints(options.deviceId) });
      return { ok: true, microphone: await started(stream, options) };
    } catch (error) {
      return { ok: false, error: ERRORS[error instanceof Error ? error.name : ""] ?? "broken" };
    }
  }

  /**
   * @param {MediaStream} stream
   * @param {AudioContext} context
   * @param {AudioWorkletNode} node
   * @param {MicrophoneOptions} options
   */
  constructor(stream, context, node, { onFrame, onEnd }) {
    this.stream = stream;
    this.context = context;
    this.quietFrames = 0;
    this.hasSound = false;
    const [track] = stream.getAudioTracks();
    this.track = track;
    track.addEventListener("ended", onEnd);
    node.port.onmessage = ({ data }) => {
      this.watch(data);
      onFrame(data);
    };
  }

  /** The device's id; empty when the browser hides it. */
  get deviceId() {
    return this.track.getSettings().deviceId ?? "";
  }

  /** Whether it has been silent since it was opened: it is muted elsewhere, or the wrong device. */
  get silent() {
    return !this.hasSound && this.quietFrames >= SILENT_FRAMES;
  }

  /** @param {boolean} muted whether the device sends silence; the browser shows it to the user */
  mute(muted) {
    this.track.enabled = !muted;
  }

  /** Close the device. */
  async close() {
    for (const track of this.stream.getTracks()) track.stop();
    await this.context.close();
  }

  /** @param {Frame} frame */
  watch(frame) {
    if (!this.track.enabled) return;
    this.hasSound ||= frame.peak > NOTHING;
    this.quietFrames += 1;
  }
}

/**
 * @param {string | undefined} deviceId
 * @returns {MediaTrackConstraints}
 */
function constraints(deviceId) {
  return {
    // Without echo cancellation the agent's voice comes back from the loudspeaker, and the agent interrupts itself.
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    channelCount: 1,
    ...(deviceId ? { deviceId: { exact: deviceId } } : {}),
  };
}

/**
 * @param {MediaStream} stream
 * @param {MicrophoneOptions} options
 */
async function started(stream, options) {
  // At the device's own rate: Firefox can't connect a microphone to a context of another rate.
  const context = new AudioContext({ latencyHint: "interactive" });
  try {
    await context.audioWorklet.addModule(new URL("microphone.worklet.js", options.worklets ?? import.meta.url));
    const node = new AudioWorkletNode(context, "voicepipe-microphone", { numberOfOutputs: 0 });
    context.createMediaStreamSource(stream).connect(node);
    await context.resume();
    return new Microphone(stream, context, node, options);
  } catch (error) {
    for (const track of stream.getTracks()) track.stop();
    await context.close();
    throw error;
  }
}
