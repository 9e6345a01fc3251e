/**
 * Two buttons below an answer, with which the user says whether it was good.
 *
 * @module
 */

import { make } from "./elements.js";

/** @typedef {(turn: string, score: number) => Promise<boolean>} SendScore false: the server did not take it */

const CHOICES = /** @type {const} */ ({ Good: 1, Bad: 0 });

export class Feedback {
  /** @param {SendScore} send */
  constructor(send) {
    this.send = send;
    /** Turn -> the score that the server has. @type {Map<string, number>} */
    this.scores = new Map();
  }

  /**
   * Return the buttons for a turn's answer.
   *
   * @param {string} turn
   */
  buttons(turn) {
    const group = make("div", { class: "feedback", role: "group", "aria-label": "Was this answer good?" });
    for (const [name, score] of Object.entries(CHOICES)) {
      const pressed = String(this.scores.get(turn) === score);
      const button = make("button", { type: "button", class: "quiet", "aria-pressed": pressed }, name);
      button.onclick = () => void this.give(turn, score, group);
      group.append(button);
    }
    return group;
  }

  /**
   * @param {string} turn
   * @param {number} score
   * @param {HTMLElement} group the buttons
   */
  async give(turn, score, group) {
    if (!(await this.send(turn, score))) return;
    this.scores.set(turn, score);
    group.replaceWith(this.buttons(turn));
  }
}
