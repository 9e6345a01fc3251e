// Puts a question behind an answer that is being spoken, and has the node die: MOVED.mjs WEB ADDRESS SECRET CONTROL.
// A request at CONTROL/begin starts the other node, and one at CONTROL/die kills the first one. Prints what
// came as JSON: of the audio, its levels.

import { pathToFileURL } from "node:url";

const [web, address, value, control] = process.argv.slice(2);
const { Realtime } = await import(pathToFileURL(`${web}/realtime.js`));
const { QuestionDelivery } = await import(pathToFileURL(`${web}/question_delivery.js`));

const result = { states: [], types: [], sounds: [], statuses: [], waited: false, answers: null, left: null };
const secret = async () => ({ ok: true, secret: { value, expires_at: Infinity } });
const line = new Realtime({ address, secret, extensions: ["binary_audio", "resume"] });
const delivery = new QuestionDelivery(line);
line.on("state", ({ state }) => result.states.push(state));
line.on("*", ({ type }) => result.types.push(type));
line.on("sound", ({ item_id, samples }) => result.sounds.push([item_id, levels(samples)]));
line.on("response.done", ({ response }) => result.statuses.push(response.status));
line.on("voicepipe.resumed", ({ answers }) => (result.answers = answers));

/** Return the samples without those that equal the one before. */
function levels(samples) {
  return [...samples.filter((sample, at) => sample !== samples[at - 1])];
}

const next = (type) => new Promise((resolve) => line.on(type, resolve));
const question = (id) => delivery.submit(id, () => line.say("user", "What is there?", id));
const completed = (n) =>
  new Promise((resolve) =>
    line.on("response.done", () => result.statuses.filter((status) => status === "completed").length === n && resolve()),
  );

const over = completed(2);
line.open();
await next("session.updated");
await fetch(`${control}/begin`);
const spoken = next("sound");
question("first");
await spoken;
const refused = next("error");
question("second");
await refused;
result.waited = delivery.open?.waits ?? false;
await fetch(`${control}/die`);
await over;
// All that was sent before this has been answered: a third answer would have begun.
const silence = next("conversation.item.deleted");
line.say("user", "Nothing.", "last");
line.send({ type: "conversation.item.delete", item_id: "last" });
await silence;
result.left = line.resumeState.request().sent.filter(({ type }) => type === "response.create").length;
line.close();
console.log(JSON.stringify(result));
process.exit(0);
