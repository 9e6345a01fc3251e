/**
 * `<voicepipe-call token-url="/voice-token">`: a button that starts a voice call, with its state, what to do when
 * something is missing, and if wanted a transcript and a line to write.
 *
 *     <script type="module" src="https://voice.example/web/voicepipe-call.js"></script>
 *     <voicepipe-call token-url="/voice-token" transcript></voicepipe-call>
 *
 * Attributes, properties, events, parts and custom properties: "The element" in the documentation's page "Voice in a
 * page of yours".
 *
 * @module
 */

import { STATES, ofFailure, ofMicrophone } from "./messages.js";
import { VoicepipeCall, devices } from "./voicepipe.js";

export { VoicepipeCall, devices };

/** @typedef {import("./voicepipe.js").CallChange} CallChange */
/** @typedef {import("./voicepipe.js").Entry} Entry */

/** The words of the buttons and of the states; `texts` of an element replaces some. */
const TEXTS = {
  ...STATES,
  muted: "Muted",
  no_microphone: "No microphone",
  start: "Talk",
  stop: "Hang up",
  mute: "Mute",
  retry: "Try now",
  retry_microphone: "Try the microphone again",
  write: "Write a message",
  send: "Send",
  transcript: "Conversation",
};

/** Events of the call that the element sends on, each with its value as `detail`. */
const EVENTS = ["state", "entry", "turn", "problem", "tool"];

/** The level of an empty meter, in dB below full scale. */
const QUIETEST_DB = 60;

const MARKUP = `
<div part="panel">
  <div class="row">
    <button part="button call" id="call" type="button"></button>
    <p part="state" id="state"></p>
    <span part="level" id="level" aria-hidden="true"><i id="bar"></i></span>
    <button part="button mute" id="mute" type="button" aria-pressed="false" hidden></button>
  </div>
  <p id="status" role="status"></p>
  <div part="help" id="help" role="alert" hidden><p id="words"></p><button part="button retry" id="retry" type="button"></button></div>
  <ol part="transcript" id="transcript" tabindex="0" hidden></ol>
  <form part="form" id="form" hidden>
    <input part="input" id="input" autocomplete="off" maxlength="4000" />
    <button part="button send" id="send"></button>
  </form>
</div>`;

const STYLE = `
:host {
  --accent: var(--voicepipe-accent, light-dark(#1f5fbf, #9cc3ff));
  --on-accent: var(--voicepipe-on-accent, light-dark(#fff, #0b1e3a));
  --back: var(--voicepipe-background, light-dark(#fff, #1b1d21));
  --text: var(--voicepipe-color, light-dark(#1b1d21, #eceef2));
  --line: var(--voicepipe-border, light-dark(#80868f, #82888f));
  --bad: var(--voicepipe-error, light-dark(#b3261e, #ffb4ab));
  display: inline-block;
  max-width: 100%;
  font: 1rem/1.4 var(--voicepipe-font, system-ui, sans-serif);
}
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
p { margin: 0; }
[part=panel] {
  display: grid; gap: .75em; padding: .75em; max-width: 100%;
  color: var(--text); background: var(--back);
  border: 1px solid var(--line); border-radius: var(--voicepipe-radius, .75em);
}
.row, form, [part=help] { display: flex; flex-wrap: wrap; gap: .5em; align-items: center; }
button, input {
  min-height: 2.75em; padding: 0 1em; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--line); border-radius: var(--voicepipe-button-radius, 2em);
}
button { cursor: pointer; }
input { flex: 1; min-width: 8em; }
#call { color: var(--on-accent); background: var(--accent); border-color: transparent; font-weight: 600; }
[data-running] #call { color: var(--bad); background: transparent; border-color: currentcolor; }
#mute[aria-pressed=true] { color: var(--back); background: var(--text); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#state { flex: 1 0 auto; }
#state::before {
  content: ""; display: inline-block; width: .6em; height: .6em; margin-inline-end: .5em;
  border-radius: 50%; background: var(--line);
}
:is([data-state=listening], [data-state=user_speaking], [data-state=speaking]) #state::before { background: var(--accent); }
:is([data-state=failed], [data-state=no_microphone], [data-state=reconnecting]) #state::before { background: var(--bad); }
:is([data-state=requesting], [data-state=connecting], [data-state=thinking], [data-state=speaking], [data-state=reconnecting]) #state::before { animation: pulse 1.2s ease-in-out infinite alternate; }
@keyframes pulse { to { opacity: .25; } }
#level { order: 2; flex-basis: 100%; height: .25em; overflow: hidden; border-radius: 1em; background: color-mix(in srgb, var(--line) 35%, transparent); }
:not([data-running]) > .row > #level { display: none; }
#bar { display: block; height: 100%; background: var(--accent); transform: scaleX(0); transform-origin: left; }
#status { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
#words { flex: 1 1 16em; color: var(--bad); }
ol { margin: 0; padding: 0; max-height: 16em; overflow: auto; list-style: none; display: grid; gap: .5em; }
li { justify-self: start; padding: .4em .8em; border-radius: .75em; max-width: 90%; overflow-wrap: anywhere; border: 1px solid var(--line); }
li[part~=user] { justify-self: end; }
@media (max-width: 30em) { [data-running] #state { order: 1; flex-basis: 100%; } }
@media (prefers-reduced-motion: reduce) { #state::before { animation: none !important; } #level { display: none; } }
`;

export class VoicepipeCallElement extends HTMLElement {
  constructor() {
    super();
    /** Replaces `token-url`: a function that gives a client secret. @type {import("./voicepipe.js").CallOptions["token"] | null} */
    this.token = null;
    /** Functions of the page that the agent may call; from the next start on. @type {readonly import("./voicepipe.js").Tool[]} */
    this.tools = [];
    /** Words in place of the element's own. @type {Partial<typeof TEXTS>} */
    this.texts = {};
    /** The call that runs, or ran last. @type {VoicepipeCall | null} */
    this.call = null;
    /** @type {Map<string, HTMLElement>} */
    this.entries = new Map();
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    root.innerHTML = MARKUP;
    // No <style>: the policy of a page may forbid those.
    const style = new CSSStyleSheet();
    style.replaceSync(STYLE);
    root.adoptedStyleSheets = [style];
    /** The elements with an id, by it. @type {Record<string, any>} */
    this.parts = Object.fromEntries([...root.querySelectorAll("[id]")].map((each) => [each.id, each]));
    this.panel = /** @type {HTMLElement} */ (root.querySelector("[part=panel]"));
    this.listen();
  }

  connectedCallback() {
    this.display(this.call?.now ?? null);
  }

  disconnectedCallback() {
    this.call?.stop();
  }

  listen() {
    const { call, mute, retry, form, input } = this.parts;
    call.onclick = () => (this.call?.running ? this.call.stop() : void this.start());
    mute.onclick = () => this.call?.mute(!this.call.muted);
    retry.onclick = () => this.retry();
    /** @param {Event} event */
    form.onsubmit = (event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (text && this.call?.say(text)) input.value = "";
    };
    this.panel.onkeydown = ({ key }) => {
      if (key === "Escape") this.call?.interrupt();
    };
  }

  /** Start a call, from a click or a key press. */
  async start() {
    if (this.call?.running) return;
    this.entries.clear();
    this.parts.transcript.replaceChildren();
    const call = new VoicepipeCall({
      token: this.token ?? this.getAttribute("token-url") ?? missing,
      server: this.getAttribute("server") ?? undefined,
      agent: this.getAttribute("agent") ?? "",
      voice: this.getAttribute("voice") ?? "",
      microphoneRequired: !this.hasAttribute("text"),
      tools: this.tools,
    });
    this.call = call;
    for (const type of EVENTS) {
      call.on(/** @type {any} */ (type), (/** @type {any} */ detail) => this.dispatchEvent(new CustomEvent(type, { detail })));
    }
    call.on("state", (change) => this.display(change));
    call.on("entry", (entry) => this.show(entry));
    call.on("level", ({ rms }) => this.measure(rms));
    await call.start();
  }

  /** End the call. */
  stop() {
    this.call?.stop();
  }

  retry() {
    const { call } = this;
    if (!call?.running) void this.start();
    else if (call.now.connection === "waiting") call.retry();
    else void call.openMicrophone();
  }

  // --- display ------------------------------------------------------------------------------

  /** @param {CallChange | null} change null: no call has begun */
  display(change) {
    const texts = { ...TEXTS, ...this.texts };
    const state = change ? stateOf(change) : "idle";
    const running = this.call?.running ?? false;
    const { call, mute, status, form, input, send, transcript } = this.parts;
    this.dataset.state = this.panel.dataset.state = state;
    this.panel.toggleAttribute("data-running", running);
    this.parts.state.textContent = texts[state];
    // Not each change of the conversation: the user hears those.
    status.textContent = change && change.state === change.scene && state !== "muted" ? texts.listening : texts[state];
    call.textContent = running ? texts.stop : this.getAttribute("label") || texts.start;
    mute.hidden = !running;
    mute.textContent = texts.mute;
    mute.setAttribute("aria-pressed", String(change?.muted ?? false));
    transcript.hidden = !this.hasAttribute("transcript") || this.entries.size === 0;
    transcript.ariaLabel = texts.transcript;
    form.hidden = !this.hasAttribute("text") || !running;
    input.ariaLabel = input.placeholder = texts.write;
    send.textContent = texts.send;
    this.help(change, texts);
  }

  /**
   * @param {CallChange | null} change
   * @param {typeof TEXTS} texts
   */
  help(change, texts) {
    const { help, words, retry } = this.parts;
    const microphone = change ? ofMicrophone(change.microphone, this.hasAttribute("text")) : "";
    const failure = change?.failure ? ofFailure(change.failure) : "";
    const text = [failure, microphone].filter(Boolean).join(" ");
    if (words.textContent !== text) words.textContent = text;
    help.hidden = !text;
    retry.hidden = !microphone && change?.connection !== "waiting";
    retry.textContent = microphone && change?.connection !== "waiting" ? texts.retry_microphone : texts.retry;
  }

  /** @param {Entry} entry */
  show({ id, role, text, played, failure }) {
    const { transcript } = this.parts;
    const known = this.entries.get(id);
    if (failure && !text && role === "agent") {
      // The agent apologises. Why it has to is for the page, in the event.
      known?.remove();
      this.entries.delete(id);
      transcript.hidden = !this.hasAttribute("transcript") || this.entries.size === 0;
      return;
    }
    const item = known ?? document.createElement("li");
    if (!known) {
      this.entries.set(id, item);
      item.part.add("entry", role);
      transcript.append(item);
    }
    item.textContent = played ?? (text || "…");
    transcript.hidden = !this.hasAttribute("transcript");
    transcript.scrollTop = transcript.scrollHeight;
  }

  /** @param {number} rms a part of full scale */
  measure(rms) {
    const level = 1 + (20 * Math.log10(Math.max(rms, 1e-6))) / QUIETEST_DB;
    this.parts.bar.style.transform = `scaleX(${Math.max(0, Math.min(1, level)).toFixed(2)})`;
  }
}

/**
 * @param {CallChange} change
 * @returns {import("./voicepipe.js").CallState | "muted" | "no_microphone"}
 */
function stateOf({ state, muted, failure }) {
  if (state === "failed" && !failure) return "no_microphone";
  return muted && (state === "listening" || state === "user_speaking") ? "muted" : state;
}

/** @returns {Promise<string>} */
async function missing() {
  throw new Error("This element has no token-url.");
}

if (!customElements.get("voicepipe-call")) customElements.define("voicepipe-call", VoicepipeCallElement);
