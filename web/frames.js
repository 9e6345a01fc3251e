/**
 * Audio on the wire: as base64, and in binary frames: eight bytes of header (version, kind, stream, number; integers little-endian), then the sound. The
 * README's "Extensions" has the table. No DOM.
 *
 * @module
 */

/** @typedef {{stream: number, number: number, sound: Uint8Array}} AgentFrame */

const VERSION = 1;
const USER = 1;
const AGENT = 2;
const HEADER_BYTES = 8;

/**
 * Return the user's audio as a frame.
 *
 * @param {Int16Array} samples
 * @returns {ArrayBuffer}
 */
export function userFrame(samples) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + samples.length * 2));
  view.setUint8(0, VERSION);
  view.setUint8(1, USER);
  samples.forEach((sample, i) => view.setInt16(HEADER_BYTES + i * 2, sample, true));
  return view.buffer;
}

/**
 * Parse a server's frame.
 *
 * @param {ArrayBuffer} data
 * @returns {AgentFrame | null} null when it is no frame of the agent's audio
 */
export function agentFrame(data) {
  if (data.byteLength < HEADER_BYTES) return null;
  const view = new DataView(data);
  if (view.getUint8(0) !== VERSION || view.getUint8(1) !== AGENT) return null;
  const sound = new Uint8Array(data, HEADER_BYTES);
  return { stream: view.getUint16(2, true), number: view.getUint32(4, true), sound };
}

/** One item's audio in frames, which may end in the middle of a sample. */
export class Stream {
  /** @param {import("./realtime.js").Place} place the item of the audio */
  constructor(place) {
    this.place = place;
    this.half = new Uint8Array(0);
  }

  /**
   * @param {Uint8Array} sound
   * @returns {Int16Array} the samples that are complete now
   */
  take(sound) {
    const bytes = new Uint8Array(this.half.length + sound.length);
    bytes.set(this.half);
    bytes.set(sound, this.half.length);
    this.half = bytes.slice(bytes.length - (bytes.length % 2));
    return samplesOf(bytes);
  }
}

/**
 * @param {Int16Array} samples
 * @returns {string} base64 of little-endian int16
 */
export function encodeSound(samples) {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, i) => view.setInt16(i * 2, sample, true));
  return btoa(Array.from(new Uint8Array(view.buffer), (byte) => String.fromCharCode(byte)).join(""));
}

/**
 * @param {string} base64 of little-endian int16
 * @returns {Int16Array}
 */
export function decodeSound(base64) {
  return samplesOf(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
}

/**
 * @param {Uint8Array} bytes little-endian int16; half a sample at the end does not count
 * @returns {Int16Array}
 */
function samplesOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Int16Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(i * 2, true));
}
