// Sends an event on a socket that is open, and one on a socket that closes: CLOSING.mjs WEB. Prints as JSON what each send
// returned and what the sockets got.

import { pathToFileURL } from "node:url";

const [web] = process.argv.slice(2);
const { Realtime } = await import(pathToFileURL(`${web}/realtime.js`));

const got = [];
const line = new Realtime({ address: "ws://host.test/v1/realtime", secret: async () => null });
line.state = "open";
const returned = [WebSocket.OPEN, WebSocket.CLOSING].map((readyState) => {
  line.socket = { readyState, send: (message) => got.push([readyState, JSON.parse(message).type]) };
  return line.send({ type: "response.cancel" });
});
console.log(JSON.stringify({ returned, got }));
