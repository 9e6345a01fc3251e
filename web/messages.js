/**
 * The messages to the user: what is wrong, and what to do about it.
 *
 * @module
 */

/** @typedef {import("./voicepipe.js").MicrophoneState} MicrophoneState */

/** @type {Record<import("./conversation.js").Scene, string>} */
export const SCENES = {
  listening: "Listening",
  user_speaking: "You speak",
  thinking: "Thinking",
  speaking: "Speaking",
};

/** @type {Record<import("./voicepipe.js").CallState, string>} */
export const STATES = {
  ...SCENES,
  idle: "Ready",
  requesting: "Allow the microphone …",
  connecting: "Connecting …",
  reconnecting: "Reconnecting …",
  ended: "The call has ended",
  failed: "No call",
};

const AGAIN = "press “Try the microphone again”.";

/** Where it can be mended, or it does not come back by itself. @type {Partial<Record<MicrophoneState, string>>} */
const MICROPHONE = {
  refused: `This page may not use your microphone. Allow it in the browser's address bar (the microphone or lock sign), then ${AGAIN}`,
  absent: `There is no microphone. Connect one, or choose another one in the settings, then ${AGAIN}`,
  busy: `The microphone can't be opened: another program may be using it. Close that, then ${AGAIN}`,
  insecure:
    "Browsers give the microphone only to pages on this machine or with HTTPS. Open this page over https:// (a server " +
    "for trying out has --tls-dev).",
  broken: `The microphone can't be opened. To try again, ${AGAIN}`,
};

/** @type {Partial<Record<MicrophoneState, string>>} */
const WHILE_OPEN = {
  silent:
    "The microphone is silent. It may be muted (a switch on it, or in the system's sound settings), or it is the wrong " +
    "one: choose another one in the settings.",
  gone: `The microphone was disconnected. Connect it, then ${AGAIN}`,
};

/**
 * Return the message for the state of the microphone; empty when all is well.
 *
 * @param {MicrophoneState} state
 * @param {boolean} canWrite whether the user can write instead
 */
export function ofMicrophone(state, canWrite) {
  const without = MICROPHONE[state];
  if (without) return canWrite ? `${without} Until then you can write.` : without;
  return WHILE_OPEN[state] ?? "";
}

/**
 * Return the message for a failure between the page and the server.
 *
 * @param {import("./failures.js").Failure} failure
 */
export function ofFailure({ kind, code, message }) {
  switch (kind) {
    case "unreachable":
      if (code === "token_refused") return `${noSecret(message)} Retrying automatically.`;
      if (code === "token_unreachable") return "This page's own server can't be reached. Retrying automatically.";
      return "The server can't be reached. Retrying automatically.";
    case "full":
      return "The server is full. Retrying automatically until a session ends.";
    case "starting":
      return `The server is starting. ${message} Retrying automatically.`;
    case "busy":
      return `${message || "The server is busy."} Retrying automatically.`;
    case "broken":
      return "The connection broke. Retrying automatically.";
    case "expired":
      return "The client secret has expired. Get a new one from your backend, put it into the settings, and start again.";
    case "ended":
      return `The server ended the conversation: ${message || code}`;
    case "no_audio":
      return "The sound can't be played: this browser gives the page no audio.";
    case "refused":
      return refused(code, message);
  }
}

/** @param {string} why */
function noSecret(why) {
  return `This page got no client secret from its own server (${why}).`;
}

/**
 * @param {string} code
 * @param {string} message
 */
function refused(code, message) {
  if (code === "token_refused") return noSecret(message);
  if (code === "token_invalid") return noSecret("its answer has none");
  if (code === "token_unreadable") return noSecret(`it lets pages of ${message} read nothing: Access-Control-Allow-Origin is missing`);
  if (code === "token_failed") return noSecret(message || "the page's own function failed");
  if (["forwarded", "host_not_allowed", "not_loopback"].includes(code)) {
    return (
      "This page makes its own client secret only on the machine that the server runs on. Put one (ek_…) that your " +
      "backend or `voicepipe token` minted into the settings, or open the page at /talk#ek_…"
    );
  }
  return message || "The server refused the connection.";
}
