/**
 * The microphone's side of the audio thread: mixes to mono, resamples, cuts into frames, measures their level.
 *
 * Posts `{samples: Int16Array, peak, rms}`, 20 ms at 24 kHz each; `peak` and `rms` are parts of full scale.
 *
 * @module
 */

import { Resampler } from "./resampler.js";

export const RATE_HZ = 24000;
const FRAME_SAMPLES = RATE_HZ / 50;

class MicrophoneProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE_HZ);
    this.frame = new Float32Array(FRAME_SAMPLES);
    this.filled = 0;
  }

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    const channels = inputs[0];
    if (channels.length) this.take(this.resampler.push(mono(channels)));
    return true;
  }

  /** @param {Float32Array} samples */
  take(samples) {
    for (const sample of samples) {
      this.frame[this.filled] = sample;
      this.filled += 1;
      if (this.filled === FRAME_SAMPLES) this.post();
    }
  }

  post() {
    const samples = new Int16Array(FRAME_SAMPLES);
    let peak = 0;
    let energy = 0;
    this.frame.forEach((value, i) => {
      peak = Math.max(peak, Math.abs(value));
      energy += value * value;
      samples[i] = Math.round(Math.max(-1, Math.min(1, value)) * 32767);
    });
    this.port.postMessage({ samples, peak, rms: Math.sqrt(energy / FRAME_SAMPLES) }, [samples.buffer]);
    this.filled = 0;
  }
}

/** @param {Float32Array[]} channels */
function mono(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
}

registerProcessor("voicepipe-microphone", MicrophoneProcessor);
