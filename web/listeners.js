/**
 * Listeners by the type of event. No DOM.
 *
 * @module
 */

export class Listeners {
  constructor() {
    /** @type {Map<string, Set<(event: any) => void>>} */
    this.listeners = new Map();
  }

  /**
   * Listen to a type of event.
   *
   * @param {string} type
   * @param {(event: any) => void} listener
   * @returns {() => void} stops listening
   */
  on(type, listener) {
    const known = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, known.add(listener));
    return () => known.delete(listener);
  }

  /**
   * @param {string} type
   * @param {unknown} event
   */
  emit(type, event) {
    for (const listener of this.listeners.get(type) ?? []) listener(event);
  }
}
