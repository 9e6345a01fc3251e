/**
 * Streaming conversion of the sample rate, for the microphone's worklet. Pure: no DOM, no audio API.
 *
 * @module
 */

/** Zero crossings of the sinc on each side, at the lower of the two rates. More is steeper and later. */
const CROSSINGS = 32;

/** Positions between two input samples for which the filter is tabled; the rest is interpolated. */
const PHASES = 256;

/** Of the Kaiser window: about 80 dB of stopband (Kaiser and Schafer 1980, beta = 0.1102 (A - 8.7)). */
const BETA = 7.86;

/** Where the pass band ends, as a part of the lower rate's half. What is above would fold back into the speech. */
const PASS = 0.9;

/**
 * Band-limited interpolation with a windowed sinc (Smith, "Digital Audio Resampling", 2002). Delays the sound by
 * `CROSSINGS` samples of the lower rate: 1.3 ms at 24 kHz.
 */
export class Resampler {
  /**
   * @param {number} fromHz the rate of the input
   * @param {number} toHz the rate of the output
   */
  constructor(fromHz, toHz) {
    this.step = fromHz / toHz;
    const cutoff = PASS * Math.min(1, toHz / fromHz);
    this.reach = Math.ceil(CROSSINGS / Math.min(1, toHz / fromHz));
    this.table = kernel(this.reach, cutoff);
    /** Input that later output still needs. It begins with silence, so that the first sample has a past. */
    this.held = new Float32Array(this.reach);
    /** Where in `held` the next output sample lies. */
    this.position = this.reach;
  }

  /**
   * Add input samples, and return the output samples that are complete.
   *
   * @param {Float32Array} samples mono, full scale +-1
   * @returns {Float32Array}
   */
  push(samples) {
    const input = new Float32Array(this.held.length + samples.length);
    input.set(this.held);
    input.set(samples, this.held.length);
    const last = input.length - this.reach - 1;
    const count = Math.max(0, Math.floor((last - this.position) / this.step) + 1);
    const output = new Float32Array(count);
    for (let i = 0; i < count; i += 1) output[i] = this.sample(input, this.position + i * this.step);
    this.position += count * this.step;
    const done = Math.max(0, Math.floor(this.position) - this.reach);
    this.held = input.slice(done);
    this.position -= done;
    return output;
  }

  /**
   * @param {Float32Array} input
   * @param {number} at a position between two samples
   */
  sample(input, at) {
    const whole = Math.floor(at);
    const phase = (at - whole) * PHASES;
    const row = Math.floor(phase);
    const part = phase - row;
    const width = 2 * this.reach;
    const near = row * width;
    let sum = 0;
    for (let tap = 0; tap < width; tap += 1) {
      const low = this.table[near + tap];
      sum += input[whole - this.reach + 1 + tap] * (low + part * (this.table[near + width + tap] - low));
    }
    return sum;
  }
}

/**
 * Return the filter's coefficients: one row of `2 * reach` for each phase, and one more to interpolate towards.
 *
 * @param {number} reach samples on each side
 * @param {number} cutoff as a part of half the input's rate
 */
function kernel(reach, cutoff) {
  const width = 2 * reach;
  const table = new Float32Array((PHASES + 1) * width);
  for (let row = 0; row <= PHASES; row += 1) {
    let sum = 0;
    for (let tap = 0; tap < width; tap += 1) {
      const distance = tap - reach + 1 - row / PHASES;
      const value = cutoff * sinc(cutoff * distance) * kaiser(distance / reach);
      table[row * width + tap] = value;
      sum += value;
    }
    // Each phase passes a constant unchanged; without this the rounding of the window is audible as a faint tone.
    for (let tap = 0; tap < width; tap += 1) table[row * width + tap] /= sum;
  }
  return table;
}

/** @param {number} x */
function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/** @param {number} x -1 to 1 */
function kaiser(x) {
  return Math.abs(x) > 1 ? 0 : bessel(BETA * Math.sqrt(1 - x * x)) / bessel(BETA);
}

/**
 * The modified Bessel function of the first kind and order zero, by its power series.
 *
 * @param {number} x
 */
function bessel(x) {
  let sum = 1;
  let term = 1;
  for (let k = 1; term > sum * 1e-9; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}
