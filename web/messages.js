/**
 * The page's messages to the user: what is wrong, and what to do about it.
 *
 * @module
 */

/** @type {Record<import("./call.js").Scene, string>} */
export const SCENES = {
  listening: "Listening",
  user_speaking: "You speak",
  thinking: "Thinking",
  speaking: "Speaking",
};

/** @type {Record<import("./microphone.js").MicrophoneTrouble, string>} */
export const MICROPHONE = {
  refused:
    "This page may not use your microphone. Allow it in the browser's address bar (the microphone or lock sign), then " +
    "press “Try the microphone again”. Until then you can write.",
  absent:
    "There is no microphone. Connect one, or choose another one in the settings, then press “Try the microphone " +
    "again”. Until then you can write.",
  busy:
    "The microphone can't be opened: another program may be using it. Close that, then press “Try the microphone " +
    "again”. Until then you can write.",
  insecure:
    "Browsers give the microphone only to pages on this machine or with HTTPS. Open this page over https:// (start the " +
    "server with --tls-dev). Until then you can write.",
  broken: "The microphone can't be opened. Press “Try the microphone again”. Until then you can write.",
};

export const MICROPHONE_SILENT =
  "The microphone is silent. It may be muted (a switch on it, or in the system's sound " +
  "settings), or it is the wrong one: choose another one in the settings.";

export const MICROPHONE_GONE = "The microphone was disconnected. Connect it and press “Try the microphone again”.";

export const TOO_SHORT = "That was too short. Hold the button, or the space bar, for as long as you speak.";

/**
 * Return the message for a failure between the page and the server.
 *
 * @param {import("./failures.js").Failure} failure
 */
export function ofFailure({ kind, code, message }) {
  switch (kind) {
    case "unreachable":
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
    case "refused":
      return refused(code, message);
  }
}

/**
 * @param {string} code
 * @param {string} message
 */
function refused(code, message) {
  if (["forwarded", "host_not_allowed", "not_loopback"].includes(code)) {
    return (
      "This page makes its own client secret only on the machine that the server runs on. Put one (ek_…) that your " +
      "backend or `voicepipe token` minted into the settings, or open the page at /talk#ek_…"
    );
  }
  return message || "The server refused the connection.";
}
