/**
 * Reconnect a session whose connection broke: try new connections until the session is resumed or has ended. No DOM.
 *
 * @module
 */

/**
 * @typedef {object} ReconnectListeners
 * @property {(socket: WebSocket, resumed: import("./realtime.js").WireEvent) => void} onBack the session was resumed on this socket
 * @property {() => void} onRefused the server no longer has the session
 */

/**
 * Between two tries: doubled from the first to the last, and spread, so that a crowd does not come at once. The first
 * again where a try has lasted longer: a node has then waited for the store, which may be back any moment.
 */
const FIRST_PAUSE_MS = 100;
const LAST_PAUSE_MS = 2000;

/** The timeout of an attempt. */
const CONNECT_TIMEOUT_MS = 4000;

export class Reconnector {
  /**
   * @param {URL} address of the session's first connection
   * @param {import("./resume.js").ResumeState} resumeState
   * @param {ReconnectListeners} listeners
   */
  constructor(address, resumeState, { onBack, onRefused }) {
    this.address = new URL(address);
    this.address.searchParams.set("resume", resumeState.sessionId);
    this.resumeState = resumeState;
    this.onBack = onBack;
    this.onRefused = onRefused;
    this.pause_ms = FIRST_PAUSE_MS / 2;
    this.triedAt_ms = Infinity;
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
    const next_ms = Math.min(LAST_PAUSE_MS, 2 * this.pause_ms);
    this.pause_ms = performance.now() - this.triedAt_ms > next_ms ? FIRST_PAUSE_MS : next_ms;
    this.socket = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.tryNow(), this.pause_ms * (0.75 + Math.random() / 2));
  }

  /** Try now instead of waiting; a running attempt goes on. */
  tryNow() {
    if (this.socket) return;
    clearTimeout(this.timer);
    this.triedAt_ms = performance.now();
    const socket = new WebSocket(this.address, ["realtime"]);
    this.socket = socket;
    // Only until the handshake: a close after it ends the session.
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
   * @param {import("./realtime.js").WireEvent} first the server's first event on it
   */
  answered(socket, first) {
    if (first.type !== "voicepipe.resumed") return this.refused();
    // It belongs to the session now.
    this.socket = null;
    this.onBack(socket, first);
  }

  refused() {
    this.stop();
    this.onRefused();
  }
}
