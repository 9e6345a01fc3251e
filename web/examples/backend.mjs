// A backend for pages with a voice call: it serves the folder `public`, and gets a client secret for each user.
//
//     VOICEPIPE_URL=https://voice.example VOICEPIPE_KEY=vp_... node backend.mjs

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";

const { VOICEPIPE_URL = "http://127.0.0.1:8080", VOICEPIPE_KEY, PORT = "3000" } = process.env;
const { ORIGIN = `http://127.0.0.1:${PORT}` } = process.env;
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8" };

if (!VOICEPIPE_KEY) throw new Error("Set VOICEPIPE_KEY: a key of `voicepipe keys create --scope tokens`.");

function unreachable(why) {
  const message = `The voicepipe server ${VOICEPIPE_URL} can't be reached: ${why.cause?.message ?? why.message}`;
  console.error(message);
  return [502, "application/json", JSON.stringify({ error: { code: "server_unreachable", message } })];
}

async function secret() {
  // Find out here who is logged in, by your own session cookie; refuse everyone else.
  const limits = { max_sessions: 1, session_seconds: 600, origins: [ORIGIN] };
  const answer = await fetch(`${VOICEPIPE_URL}/v1/realtime/client_secrets`, {
    method: "POST",
    headers: { Authorization: `Bearer ${VOICEPIPE_KEY}` },
    body: JSON.stringify({ voicepipe: { subject: "customer-4711", limits } }),
  });
  const body = await answer.json(); // it also describes the session, with the agent's instructions
  const { value, expires_at } = body;
  if (!answer.ok) console.error(`${VOICEPIPE_URL}: HTTP ${answer.status}: ${body.error?.message}`);
  return [answer.status, "application/json", JSON.stringify(answer.ok ? { value, expires_at } : body)]; // 503: full
}

async function page(path) {
  const name = path === "/" ? "/index.html" : path;
  const type = TYPES[extname(name)];
  if (!type || name.includes("..")) return [404, "text/plain", "There is no such page."];
  const file = await readFile(new URL(`public${name}`, import.meta.url)).catch(() => null);
  return file ? [200, type, file] : [404, "text/plain", "There is no such page."];
}

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, ORIGIN);
  const minting = request.method === "POST" && pathname === "/voice-token";
  const [status, type, body] = await (minting ? secret() : page(pathname)).catch(unreachable);
  response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
}).listen(Number(PORT), "127.0.0.1");
