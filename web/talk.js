/**
 * The talk page: its buttons, its messages, and the conversation.
 *
 * @module
 */

import { part } from "./elements.js";
import { Feedback } from "./feedback.js";
import { Latencies } from "./latency.js";
import { Secrets } from "./secrets.js";
import { Settings } from "./settings.js";
import { Transcript } from "./transcript.js";
import { SCENES, ofFailure, ofMicrophone } from "./messages.js";
import { VoicepipeCall } from "./voicepipe.js";

const TOO_SHORT = "That was too short. Hold the button, or the space bar, for as long as you speak.";

/** @typedef {import("./voicepipe.js").CallChange} CallChange */
/** @typedef {"line" | "microphone" | "hint" | "records" | "feedback"} Topic */

/** @type {Record<import("./realtime.js").LineState, string>} */
const STATES = {
  closed: "Not connected",
  connecting: "Connecting …",
  open: "Connected",
  resuming: "Reconnecting …",
  waiting: "Reconnecting …",
};

/** How long the page shows that the connection is back. */
const BACK_MS = 4000;

/** The level of an empty meter, in dB below full scale. */
const QUIETEST_DB = 60;

/** Frames per change of the meter's value for assistive technology. */
const METER_FRAMES = 25;

const show = {
  status: part("status", HTMLElement),
  problems: part("problems", HTMLElement),
  problemsText: part("problems-text", HTMLElement),
  welcome: part("welcome", HTMLElement),
  live: part("live", HTMLElement),
  scene: part("scene", HTMLElement),
  level: part("level", HTMLElement),
  levelBar: part("level-bar", HTMLElement),
};
const press = {
  start: part("start", HTMLButtonElement),
  stop: part("stop", HTMLButtonElement),
  mute: part("mute", HTMLButtonElement),
  hold: part("hold", HTMLButtonElement),
  retry: part("retry", HTMLButtonElement),
  retryMicrophone: part("retry-microphone", HTMLButtonElement),
};
const write = part("write", HTMLFormElement);
const text = part("text", HTMLInputElement);

class TalkPage {
  constructor() {
    this.secrets = new Secrets(new URL("/talk/token", location.href));
    this.transcript = new Transcript(part("transcript", HTMLElement));
    this.settings = new Settings(this.secrets, () => void this.call.useMicrophone(this.settings.microphone));
    /** @type {Map<Topic, string>} */
    this.problems = new Map();
    this.call = new VoicepipeCall({ token: () => this.secrets.fresh(), microphoneRequired: false });
    this.running = false;
    /** What is displayed of the call. */
    this.last = this.call.now;
    this.feedback = new Feedback((turn, score) => this.score(turn, score));
    /** @type {Latencies | null} */
    this.latencies = null;
    this.frames = 0;
    this.takeSecretFromAddress();
    this.listen();
  }

  takeSecretFromAddress() {
    const value = decodeURIComponent(location.hash.slice(1));
    if (!value.startsWith("ek_")) return;
    this.secrets.hand(value);
    // Removed from the address: histories, bookmarks and screenshots must not have it.
    history.replaceState(null, "", location.pathname + location.search);
  }

  listen() {
    press.start.onclick = () => void this.start();
    press.stop.onclick = () => this.call.stop();
    press.mute.onclick = () => this.call.mute(!this.call.muted);
    press.retry.onclick = () => this.call.retry();
    press.retryMicrophone.onclick = () => void this.call.openMicrophone();
    for (const radio of document.getElementsByName("mode")) radio.onchange = () => this.takeMode();
    write.onsubmit = (event) => {
      event.preventDefault();
      const words = text.value.trim();
      if (words && this.call.say(words)) text.value = "";
    };
    this.listenToHolding();
    this.listenToCall();
  }

  listenToCall() {
    const { call } = this;
    call.on("state", (change) => this.callChanged(change));
    call.on("level", ({ rms }) => this.showLevel(rms));
    call.on("entry", (entry) => this.transcript.show(entry));
    call.on("turn", ({ turn }) => this.latencies?.answered(turn));
    call.on("problem", ({ message }) => this.transcript.note(message));
    call.on("voicepipe.resumed", () => this.showBack());
  }

  listenToHolding() {
    const { hold } = press;
    hold.onpointerdown = (event) => {
      hold.setPointerCapture(event.pointerId);
      this.press();
    };
    hold.onlostpointercapture = () => this.release();
    hold.oncontextmenu = (event) => event.preventDefault();
    window.onblur = () => this.release();
    document.onkeydown = (event) => {
      if (!this.isHoldKey(event)) return;
      event.preventDefault();
      if (!event.repeat) this.press();
    };
    document.onkeyup = (event) => {
      if (!this.isHoldKey(event)) return;
      event.preventDefault();
      this.release();
    };
  }

  /** @param {KeyboardEvent} event */
  isHoldKey({ key, target }) {
    if (!this.running || !this.call.holdToTalk || !(target instanceof Element)) return false;
    if (target === press.hold) return key === " " || key === "Enter";
    return key === " " && !target.closest("button, input, select, dialog, summary");
  }

  // --- the conversation's beginning and end -------------------------------------------------

  async start() {
    press.start.disabled = true;
    this.problems.clear();
    this.showProblems();
    this.transcript.clear();
    const { call, settings } = this;
    call.agent = settings.agent || (new URL(location.href).searchParams.get("agent") ?? "");
    call.voice = settings.voice;
    call.microphoneId = settings.microphone;
    await call.start();
  }

  /** @param {CallChange} change */
  callChanged(change) {
    const { connection, microphone, failure } = change;
    const [connected, opened] = [connection !== this.last.connection, microphone !== this.last.microphone];
    this.last = change;
    if (this.call.running !== this.running) this.showRunning(this.call.running);
    if (this.call.line !== (this.latencies?.line ?? null)) this.followLine();
    if (connected) show.status.textContent = STATES[connection];
    show.status.dataset.state = connection;
    press.retry.hidden = connection !== "waiting";
    if (failure || connection === "open") this.setProblem("line", failure ? ofFailure(failure) : "");
    this.setProblem("microphone", this.running ? ofMicrophone(microphone, true) : "");
    if (opened && microphone === "open") void this.settings.showMicrophones(this.call.microphone?.deviceId ?? "");
    this.showMute();
    this.showScene();
  }

  /** Show the latencies of the call's connection, or of none. */
  followLine() {
    this.latencies?.stop();
    const { line } = this.call;
    this.latencies = line && new Latencies(line, this.transcript, (turn) => this.record(turn), this.feedback);
  }

  /** Report that the connection broke and was resumed. */
  showBack() {
    show.status.textContent = "Reconnected: nothing was lost";
    setTimeout(() => {
      if (show.status.dataset.state === "open") show.status.textContent = STATES.open;
    }, BACK_MS);
  }

  // --- the user's turn ------------------------------------------------------------------------

  takeMode() {
    const chosen = document.querySelector("input[name=mode]:checked");
    const hold = chosen instanceof HTMLInputElement && chosen.value === "hold";
    this.call.setHoldToTalk(hold);
    press.hold.hidden = !hold || !this.running;
    this.showScene();
  }

  press() {
    this.setProblem("hint", "");
    press.hold.classList.add("held");
    this.call.press();
  }

  release() {
    press.hold.classList.remove("held");
    if (!this.call.release()) this.setProblem("hint", TOO_SHORT);
  }

  // --- display ------------------------------------------------------------------------

  /** @param {boolean} running */
  showRunning(running) {
    this.running = running;
    press.start.disabled = false;
    press.start.hidden = running;
    for (const element of [press.stop, press.mute, show.live, write]) element.hidden = !running;
    show.welcome.hidden = running || !this.transcript.empty;
    this.takeMode();
    if (running) (press.hold.hidden ? press.mute : press.hold).focus();
    else press.start.focus();
    press.retryMicrophone.hidden = true;
  }

  showMute() {
    press.mute.setAttribute("aria-pressed", String(this.call.muted));
    press.mute.textContent = this.call.muted ? "Unmute" : "Mute";
  }

  showScene() {
    const { scene, muted, holdToTalk } = this.call;
    const off = muted && (scene === "listening" || scene === "user_speaking");
    const waiting = holdToTalk && scene === "listening";
    show.scene.textContent = off ? "Muted" : waiting ? "Hold and speak" : SCENES[scene];
    show.scene.dataset.scene = off ? "muted" : scene;
  }

  /** @param {number} rms a part of full scale */
  showLevel(rms) {
    const db = 20 * Math.log10(Math.max(rms, 1e-6));
    const part = Math.max(0, Math.min(1, 1 + db / QUIETEST_DB));
    show.levelBar.style.transform = `scaleX(${part.toFixed(3)})`;
    this.frames += 1;
    if (this.frames % METER_FRAMES === 0) show.level.setAttribute("aria-valuenow", String(Math.round(part * 100)));
  }

  /**
   * @param {Topic} topic
   * @param {string} words empty: the problem is over
   */
  setProblem(topic, words) {
    if ((this.problems.get(topic) ?? "") === words) return;
    if (words) this.problems.set(topic, words);
    else this.problems.delete(topic);
    this.showProblems();
  }

  showProblems() {
    const lines = [...this.problems].map(([topic, words]) => {
      const line = document.createElement("p");
      line.dataset.topic = topic;
      line.textContent = words;
      return line;
    });
    show.problemsText.replaceChildren(...lines);
    show.problems.hidden = lines.length === 0;
    press.retryMicrophone.hidden = !this.running || !this.problems.has("microphone");
  }

  // --- feedback -----------------------------------------------------------------

  /**
   * @param {string} turn
   * @param {number} score from 0 to 1
   */
  async score(turn, score) {
    const minted = await this.secrets.fresh();
    if (!minted.ok) return false;
    const headers = { Authorization: `Bearer ${minted.secret.value}`, "Content-Type": "application/json" };
    const body = JSON.stringify({ score });
    try {
      const answer = await fetch(`/v1/turns/${encodeURIComponent(turn)}/feedback`, { method: "POST", headers, body });
      this.setProblem("feedback", answer.ok ? "" : "The server did not take your feedback on this answer.");
      return answer.ok;
    } catch {
      return false; // the connection reports that the server is gone
    }
  }

  // --- latency ------------------------------------------------------------------

  /** @param {string} id */
  async record(id) {
    const minted = await this.secrets.fresh();
    if (!minted.ok) return null;
    try {
      const headers = { Authorization: `Bearer ${minted.secret.value}` };
      const answer = await fetch(`/v1/turns/${encodeURIComponent(id)}`, { headers, cache: "no-store" });
      if (answer.ok) return await answer.json();
      if (answer.status !== 403) return null;
    } catch {
      return null; // the connection reports that the server is gone
    }
    this.setProblem("records", "This client secret may not read turns, so their latency is not shown.");
    return false;
  }
}

new TalkPage();
