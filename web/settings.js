/**
 * The settings' dialog: which microphone, agent and voice, and a client secret from elsewhere.
 *
 * @module
 */

import { devices } from "./devices.js";
import { make, part } from "./elements.js";

export class Settings {
  /**
   * @param {import("./secrets.js").Secrets} secrets
   * @param {() => void} onMicrophone another microphone was chosen
   */
  constructor(secrets, onMicrophone) {
    this.secrets = secrets;
    this.dialog = part("settings", HTMLDialogElement);
    this.microphones = part("microphone", HTMLSelectElement);
    this.agents = part("agent", HTMLSelectElement);
    this.voices = part("voice", HTMLInputElement);
    this.secret = part("secret", HTMLInputElement);
    part("open-settings", HTMLButtonElement).onclick = () => void this.open();
    this.microphones.onchange = onMicrophone;
    this.agents.onchange = () => this.showVoices();
    this.secret.onchange = () => secrets.hand(this.secret.value.trim());
    navigator.mediaDevices?.addEventListener("devicechange", () => void this.showMicrophones(this.microphone));
    void this.showMicrophones("");
    this.showAgents();
  }

  /** Empty: the browser's default. */
  get microphone() {
    return this.microphones.value;
  }

  /** Empty: the server's default. */
  get agent() {
    return this.agents.value;
  }

  /** Empty: the agent's default. */
  get voice() {
    return this.voices.value.trim();
  }

  async open() {
    this.dialog.showModal();
    await this.secrets.fresh(); // the answer names the agents
    this.showAgents();
  }

  /** @param {string} chosen a device's id */
  async showMicrophones(chosen) {
    const { microphones: found } = await devices();
    const options = found.map(({ id, name }, i) => new Option(name || `Microphone ${i + 1}`, id));
    const known = found.some(({ id }) => id === chosen);
    this.microphones.replaceChildren(...(known ? [] : [new Option("The system's choice", "")]), ...options);
    this.microphones.value = known ? chosen : "";
  }

  showAgents() {
    const chosen = this.agent;
    const names = this.secrets.agents.map(({ name }) => name);
    this.agents.replaceChildren(new Option("The server's choice", ""), ...names.map((name) => new Option(name, name)));
    this.agents.value = names.includes(chosen) ? chosen : "";
    this.showVoices();
  }

  showVoices() {
    const agent = this.secrets.agents.find(({ name }) => name === (this.agent || "default"));
    const options = (agent?.voices ?? []).map((value) => make("option", { value }));
    part("voices", HTMLDataListElement).replaceChildren(...options);
  }
}
