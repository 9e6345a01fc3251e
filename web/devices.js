/**
 * The microphones and loudspeakers of the user's machine.
 *
 * @module
 */

/** @typedef {{id: string, name: string}} Device */

/**
 * List the microphones and the loudspeakers. Their names are empty until the user has allowed a microphone; a browser
 * that lets no page choose a loudspeaker lists none.
 *
 * @returns {Promise<{microphones: Device[], loudspeakers: Device[]}>}
 */
export async function devices() {
  const all = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  /** @param {MediaDeviceKind} kind */
  const of = (kind) =>
    all.filter((each) => each.kind === kind && each.deviceId !== "").map(({ deviceId: id, label: name }) => ({ id, name }));
  return { microphones: of("audioinput"), loudspeakers: "setSinkId" in AudioContext.prototype ? of("audiooutput") : [] };
}
