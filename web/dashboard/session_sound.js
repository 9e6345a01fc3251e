/**
 * Players for the audio of a session, where the server stores it.
 *
 * @module
 */

import { make } from "../elements.js";

const SIDES = /** @type {const} */ ({ call: "Both sides", user: "User", agent: "Agent" });

/** The players of one session. They last while its turns are shown, so that a page drawn anew goes on playing. */
export class SessionSound {
  /** @param {import("./sign_in.js").OperatorKey} operator */
  constructor(operator) {
    this.operator = operator;
    this.session = "";
    /** By side. @type {Map<string, HTMLElement>} */
    this.shown = new Map();
    /** @type {string[]} */
    this.addresses = [];
  }

  /**
   * Return a player for the recorded call, and for each side that is stored; none for an operator who may not hear them.
   *
   * @param {string} session
   * @param {AbortSignal} signal
   */
  async players(session, signal) {
    if (session !== this.session) this.clear(session);
    const path = `/v1/sessions/${encodeURIComponent(session)}/audio`;
    const found = await this.operator.fetch(path, signal);
    if (!found.ok) return [];
    const { recording } = found.data;
    if (recording && !this.shown.has("call")) {
      this.shown.set("call", this.player(recording.path, "call", recording.duration_ms));
    }
    for (const { side, duration_ms } of found.data.data) {
      if (!this.shown.has(side)) this.shown.set(side, this.player(`${path}/${side}`, side, duration_ms));
    }
    return [...this.shown.values()];
  }

  /**
   * @param {string} path
   * @param {keyof typeof SIDES} side
   * @param {number} duration_ms
   */
  player(path, side, duration_ms) {
    const seconds = Math.round(duration_ms / 1000);
    const place = make("p", { class: "player" });
    const load = make("button", { type: "button", id: `load-${side}` }, `${SIDES[side]}: load ${seconds} s`);
    load.onclick = async () => {
      load.disabled = true;
      const answer = await this.operator.fetchFile(path);
      load.disabled = false;
      if (!answer.ok) return place.replaceChildren(load, ` ${answer.words}`);
      const src = URL.createObjectURL(answer.data);
      this.addresses.push(src);
      const audio = make("audio", { id: `play-${side}`, controls: "", src, "aria-label": `${SIDES[side]}, ${seconds} s` });
      place.replaceChildren(make("span", {}, `${SIDES[side]} `), audio);
      audio.focus();
    };
    place.append(load);
    return place;
  }

  /** @param {string} session whose players come next */
  clear(session) {
    for (const address of this.addresses) URL.revokeObjectURL(address);
    this.session = session;
    this.addresses = [];
    this.shown.clear();
  }
}
