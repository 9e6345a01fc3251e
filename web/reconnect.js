/**
 * The way back to a session whose line broke: one new line after the other, until the session is on one of them, or is
 * gone. No DOM.
 *
 * @module
 */

/**
 * @typedef {object} ReconnectListeners
 * @property {(socket: WebSocket, resumed: import("./realtime.js").WireEvent) => void} onBack the session is on this line
 * @property {() => void} onRefused the server does not have it any more, or has waited long enough
 */

/** Between two tries: doubled from the first to the last, and spread, so that a crowd does not come at once. */
const FIRST_PAUSE_MS = 100;
const LAST_PAUSE_MS = 2000;

/** A new line that does not stand after so long never will: another one is tried. */
const CONNECT_TIMEOUT_MS = 4000;

export class Reconnector {
  /**
   * @param {URL} address of the session's first line
   * @param {import("./resume.js").ResumeState} resumeState
   * @param {ReconnectListeners} listeners
   */
  constructor(address, resumeState, { onBack, onRefused }) {
    this.address = new URL(address);
    this.address.searchParams.set("resume", resumeState.sessionId);
    this.resumeState = resumeState;
    this.onBack = onBack;
    this.onRefused = onRefused;
    this.tries = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.window = setTimeout(() => this.refused(), resumeState.window_ms);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.pause();
  }

  /** Give up. */
  stop() {
    clearTimeout(this.timer);
    clearTimeout(this.window);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  pause() {
    const pause_ms = Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.socket = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.tryNow(), pause_ms);
  }

  /** Do not wait for the next try; a try that runs goes on. */
  tryNow() {
    if (this.socket) return;
    clearTimeout(this.timer);
    const socket = new WebSocket(this.address, ["realtime"]);
    this.socket = socket;
    // Only until it stands: who has been let in and then says goodbye ends the session.
    this.timer = setTimeout(() => socket.close(), CONNECT_TIMEOUT_MS);
    socket.onopen = () => {
      clearTimeout(this.timer);
      socket.send(JSON.stringify(this.resumeState.request()));
    };
    socket.onmessage = ({ data }) => this.socket === socket && this.answered(socket, JSON.parse(data));
    socket.onclose = () => this.socket === socket && this.pause();
  }

  /**
   * @param {WebSocket} socket
   * @param {import("./realtime.js").WireEvent} first what the server said on it first
   */
  answered(socket, first) {
    if (first.type !== "voicepipe.resumed") return this.refused();
    this.socket = null; // another one's now
    this.onBack(socket, first);
  }

  refused() {
    this.stop();
    this.onRefused();
  }
}
