/**
 * The talk page: its buttons, its messages, and the conversation.
 *
 * @module
 */

import { Call, EXTENSIONS } from "./call.js";
import { part } from "./elements.js";
import { Latencies } from "./latency.js";
import { Microphone } from "./microphone.js";
import { Realtime } from "./realtime.js";
import { Secrets } from "./secrets.js";
import { Settings } from "./settings.js";
import { Speaker } from "./speaker.js";
import { Transcript } from "./transcript.js";
import { MICROPHONE, MICROPHONE_GONE, MICROPHONE_SILENT, SCENES, TOO_SHORT, ofFailure } from "./messages.js";

/** @typedef {import("./realtime.js").StateChange} StateChange */
/** @typedef {"line" | "microphone" | "hint" | "records"} Topic */

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
  trouble: part("trouble", HTMLElement),
  troubleWords: part("trouble-words", HTMLElement),
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
    this.settings = new Settings(this.secrets, () => void this.openMicrophone());
    /** @type {Map<Topic, string>} */
    this.problems = new Map();
    /** @type {Realtime | null} */
    this.line = null;
    /** @type {Call | null} */
    this.call = null;
    /** @type {Speaker | null} */
    this.speaker = null;
    /** @type {Microphone | null} */
    this.microphone = null;
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
    press.stop.onclick = () => void this.stop();
    press.mute.onclick = () => this.mute(press.mute.getAttribute("aria-pressed") !== "true");
    press.retry.onclick = () => this.line?.open();
    window.ononline = () => {
      if (this.line && this.line.state !== "closed") this.line.open();
    };
    press.retryMicrophone.onclick = () => void this.openMicrophone();
    for (const radio of document.getElementsByName("mode")) radio.onchange = () => this.takeMode();
    write.onsubmit = (event) => {
      event.preventDefault();
      const words = text.value.trim();
      if (words && this.call?.write(words)) text.value = "";
    };
    this.listenToHolding();
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
    if (!this.call?.holdToTalk || !(target instanceof Element)) return false;
    if (target === press.hold) return key === " " || key === "Enter";
    return key === " " && !target.closest("button, input, select, dialog, summary");
  }

  // --- the conversation's beginning and end -------------------------------------------------

  async start() {
    press.start.disabled = true;
    this.problems.clear();
    this.showProblems();
    this.transcript.clear();
    const speaker = await Speaker.open();
    const line = new Realtime({ address: this.address(), secret: () => this.secrets.fresh(), extensions: EXTENSIONS });
    this.speaker = speaker;
    this.line = line;
    this.call = new Call(line, speaker, {
      onEntry: (entry) => this.transcript.show(entry),
      onTurn: (turn) => this.latencies?.answered(turn),
      onScene: (scene) => this.showScene(scene),
      onTrouble: (why) => this.transcript.note(why),
    });
    this.call.voice = this.settings.voice;
    this.latencies = new Latencies(line, this.transcript, (turn) => this.record(turn));
    line.on("state", (/** @type {StateChange} */ change) => this.lineChanged(change));
    line.on("voicepipe.resumed", () => this.showBack());
    this.showRunning(true);
    this.takeMode();
    (press.hold.hidden ? press.mute : press.hold).focus();
    line.open();
    await this.openMicrophone();
  }

  address() {
    const url = new URL("/v1/realtime", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const agent = this.settings.agent || new URL(location.href).searchParams.get("agent");
    if (agent) url.searchParams.set("agent", agent);
    return url;
  }

  async stop() {
    this.latencies?.stop();
    this.latencies = null;
    this.line?.close();
    this.call = null;
    this.line = null;
    this.showRunning(false);
    await Promise.all([this.microphone?.close(), this.speaker?.close()]);
    this.microphone = null;
    this.speaker = null;
  }

  /** @param {StateChange} change */
  lineChanged({ state, failure }) {
    show.status.textContent = STATES[state];
    show.status.dataset.state = state;
    if (state === "open") this.setProblem("line", "");
    if (failure) this.setProblem("line", ofFailure(failure));
    press.retry.hidden = state !== "waiting";
    if (state === "closed" && failure) void this.stop();
  }

  /** Report that the connection broke and was resumed. */
  showBack() {
    show.status.textContent = "Reconnected: nothing was lost";
    setTimeout(() => {
      if (show.status.dataset.state === "open") show.status.textContent = STATES.open;
    }, BACK_MS);
  }

  // --- the microphone -----------------------------------------------------------------------

  async openMicrophone() {
    if (!this.call) return;
    await this.microphone?.close();
    this.microphone = null;
    const opened = await Microphone.open({
      deviceId: this.settings.microphone,
      onFrame: (frame) => this.captured(frame),
      onEnd: () => this.setProblem("microphone", MICROPHONE_GONE),
    });
    this.setProblem("microphone", opened.ok ? "" : MICROPHONE[opened.trouble]);
    if (!opened.ok) return;
    if (!this.call) return opened.microphone.close(); // the call ended while the browser asked for permission
    this.microphone = opened.microphone;
    this.microphone.mute(this.call.muted);
    await this.settings.showMicrophones(opened.microphone.deviceId);
  }

  /** @param {import("./microphone.js").Frame} frame */
  captured({ samples, rms }) {
    this.call?.push(samples);
    this.showLevel(rms);
    const silent = this.microphone?.silent ?? false;
    if (silent !== (this.problems.get("microphone") === MICROPHONE_SILENT)) {
      this.setProblem("microphone", silent ? MICROPHONE_SILENT : "");
    }
  }

  /** @param {boolean} muted */
  mute(muted) {
    if (!this.call) return;
    this.call.muted = muted;
    this.microphone?.mute(muted);
    press.mute.setAttribute("aria-pressed", String(muted));
    press.mute.textContent = muted ? "Unmute" : "Mute";
    this.showScene(this.call.scene);
  }

  takeMode() {
    const chosen = document.querySelector("input[name=mode]:checked");
    const hold = chosen instanceof HTMLInputElement && chosen.value === "hold";
    this.call?.setHoldToTalk(hold);
    press.hold.hidden = !hold || !this.call;
    this.showScene(this.call?.scene ?? "listening");
  }

  press() {
    this.setProblem("hint", "");
    press.hold.classList.add("held");
    this.call?.press();
  }

  release() {
    press.hold.classList.remove("held");
    if (this.call && !this.call.release()) this.setProblem("hint", TOO_SHORT);
  }

  // --- display ------------------------------------------------------------------------

  /** @param {boolean} running */
  showRunning(running) {
    press.start.disabled = false;
    press.start.hidden = running;
    for (const element of [press.stop, press.mute, show.live, write]) element.hidden = !running;
    show.welcome.hidden = running || !this.transcript.empty;
    if (!running) press.hold.hidden = true;
    this.mute(false);
    if (!running) press.start.focus();
    press.retryMicrophone.hidden = true;
  }

  /** @param {import("./call.js").Scene} scene */
  showScene(scene) {
    const off = this.call?.muted && (scene === "listening" || scene === "user_speaking");
    const waiting = this.call?.holdToTalk && scene === "listening";
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
    show.troubleWords.replaceChildren(...lines);
    show.trouble.hidden = lines.length === 0;
    press.retryMicrophone.hidden = !this.call || !this.problems.has("microphone");
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
