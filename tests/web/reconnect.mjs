// Has tries to resume fail after some time each: RECONNECT.mjs WEB LASTED_MS... Prints the pause before each as JSON.

import { pathToFileURL } from "node:url";

const [web, ...lasted] = process.argv.slice(2);
const { Reconnector } = await import(pathToFileURL(`${web}/reconnect.js`));

let now_ms = 0;
const pauses = [];
const sockets = [];
/** @type {(() => void) | undefined} */
let due;
performance.now = () => now_ms;
Math.random = () => 0.5;
globalThis.clearTimeout = () => {};
globalThis.setTimeout = (call, for_ms) => ((due = call), (pauses.last_ms = for_ms));
globalThis.WebSocket = class {
  constructor() {
    sockets.push(this);
  }
};

new Reconnector(new URL("ws://host.test/v1/realtime"), { sessionId: "sess_x", window_ms: 15000 }, {});
for (const lasted_ms of lasted.map(Number)) {
  pauses.push(pauses.last_ms);
  now_ms += pauses.last_ms;
  due();
  now_ms += lasted_ms;
  sockets.at(-1).onclose();
}
pauses.push(pauses.last_ms);
console.log(JSON.stringify(pauses));
