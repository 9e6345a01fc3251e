// Talks to a server with the page's own modules, where there is no page: WIRE.mjs WEB ADDRESS SECRET SCENE.
// Prints what came of it as JSON.

import { pathToFileURL } from "node:url";

const [web, address, value, scene] = process.argv.slice(2);
const { Realtime } = await import(pathToFileURL(`${web}/realtime.js`));
const { Conversation, EXTENSIONS } = await import(pathToFileURL(`${web}/conversation.js`));
const { ToolCalls } = await import(pathToFileURL(`${web}/tools.js`));
const { secretFrom } = await import(pathToFileURL(`${web}/client_secret.js`));
const { QuestionDelivery } = await import(pathToFileURL(`${web}/question_delivery.js`));

const result = { states: [], errors: [], types: [], has: [], samples: 0, unexpectedFrames: 0, loudspeaker: [], scenes: [], tools: [] };
const secret = async () => ({ ok: true, secret: { value, expires_at: Infinity } });
const line = new Realtime({ address, secret, extensions: EXTENSIONS });
line.on("state", ({ state }) => result.states.push(state));
line.on("error", ({ error }) => result.errors.push(error.code));
line.on("sound", ({ samples }) => (result.samples += samples.length));
line.on("*", ({ type }) => result.types.push(type));

/** Does what a loudspeaker does, at once, and notes it. */
class Paper {
  open = new Set();
  busy = false;
  note = (verb) => result.loudspeaker.push(verb);
  play(item) {
    this.open.add(item);
  }
  finish(item) {
    this.open.delete(item);
  }
  async flush() {
    this.note("flush");
    const cut = [...this.open].map((item) => ({ item, played_ms: 10 }));
    this.open.clear();
    return cut;
  }
  duck() {
    this.note("duck");
  }
  restore() {
    this.note("restore");
  }
}

const next = (type) => new Promise((resolve) => line.on(type, resolve));

const SCENES = {
  /** Ask in writing, and wait for the record of the turn. */
  async talk() {
    const conversation = new Conversation(line, new Paper(), listeners());
    line.open();
    await next("session.updated");
    conversation.write("Hello?");
    await next("voicepipe.turn.record");
  },

  /** Have the agent call functions of the page: one that answers, and one that throws. */
  async tools() {
    const weather = ({ place }) => ({ place, sky: "clear" });
    const tide = async () => {
      throw new Error("no sea here");
    };
    const tools = [
      { name: "weather", description: "The weather.", parameters: { type: "object" }, handler: weather },
      { name: "tide", handler: tide },
    ];
    const conversation = new Conversation(line, new Paper(), listeners(), tools);
    conversation.tools.on("tool", (each) => result.tools.push(each));
    let updates = 0; // two may come at once
    const agreed = new Promise((resolve) => line.on("session.updated", () => (updates += 1) === 2 && resolve()));
    const over = next("voicepipe.turn.record");
    line.open();
    await agreed;
    conversation.write("How is it in Oslo?");
    await over;
  },

  /** Have results, of which one is slow, and have the line break behind the first that was sent. */
  async results() {
    line.send = (event) => result.types.push(event.item ? event.item.call_id : event.type);
    let finish;
    const slow = new Promise((resolve) => (finish = resolve));
    const signals = [];
    const wait = (_, { signal }) => (signals.push(signal), slow);
    const tools = new ToolCalls(line, [{ name: "quick", handler: () => "1" }, { name: "slow", handler: wait }]);
    const say = (event) => line.emit(event.type, event);
    const soon = () => new Promise((resolve) => setImmediate(resolve));
    const call = (name) => ({ response_id: "r", call_id: name, name, arguments: "{}" });
    for (const name of ["quick", "slow", "foreign"]) say({ type: "response.function_call_arguments.done", ...call(name) });
    await soon();
    say({ type: "response.done", response: { id: "r" } });
    result.scenes.push(tools.busy);
    finish("2");
    await soon();
    say({ type: "conversation.item.added", item: { id: "output_quick", type: "function_call_output" } });
    result.types.push("--");
    say({ type: "voicepipe.resumed" });
    say({ type: "error", error: { event_id: tools.delivery.probeId, code: "nothing" } });
    result.scenes.push(tools.busy);
    say({ type: "conversation.item.added", item: { id: "output_slow", type: "function_call_output" } });
    say({ type: "response.created" });
    result.scenes.push(tools.busy);
    say({ type: "response.function_call_arguments.done", ...call("slow"), response_id: "s" });
    result.scenes.push(tools.giveUp(), tools.busy);
    await soon();
    say({ type: "response.done", response: { id: "s" } });
    result.scenes.push(...signals.map(({ aborted }) => aborted));
  },

  /** Send a frame of sound as soon as the server has said what it thinks of our wish. */
  async strict() {
    line.open();
    await next("session.updated");
    line.append(new Int16Array(480).fill(1));
    await next("sound");
  },

  /** Have a session that breaks and does not come back. */
  async gone() {
    line.open();
    await next("session.updated");
    line.append(new Int16Array(480));
    await next("session.created");
  },

  /** The same; then close the call, and begin another. */
  async again() {
    await this.gone();
    line.close();
    line.open();
    await next("session.created");
  },

  /** Have a session that breaks behind sound, and comes back. */
  async broken() {
    line.on("sound", () => result.samples > 2 && line.append(new Int16Array(480)));
    line.open();
    await next("voicepipe.resumed");
  },

  /** Ask, and have the line break: before the words came, between them and the wish for an answer, behind both. */
  async delivery() {
    const sent = (line.send = (event) => result.types.push(event.type));
    const delivery = new QuestionDelivery(line);
    const say = (event) => line.emit(event.type, event);
    const item = { id: "w" };
    const submit = () => delivery.submit("w", () => sent({ type: "words" }));
    const resumed = () => (result.types.push("--"), say({ type: "voicepipe.resumed" }));
    const nothingElse = () => say({ type: "error", error: { event_id: delivery.probeId, code: "nothing" } });
    const over = () => (say({ type: "response.created" }), result.types.push("=="), resumed());

    submit(), resumed(), nothingElse(), say({ type: "conversation.item.added", item }), over();
    submit(), resumed(), say({ type: "conversation.item.added", item }), nothingElse(), over();
    submit(), resumed(), say({ type: "conversation.item.added", item }), say({ type: "response.created" }), nothingElse();
    result.types.push("==");
    const busy = () =>
      say({ type: "error", error: { event_id: delivery.requestId, code: "conversation_already_has_active_response" } });
    submit(), say({ type: "conversation.item.added", item }), busy(), say({ type: "response.done" }), over();
  },

  /** Get a secret from addresses that answer in several ways. */
  async tokens() {
    const answers = [
      new Response('{"value": "ek_1"}'),
      new Response('{"error": {"code": "invalid_key", "message": "?"}}', { status: 401 }),
      new Response("", { status: 500 }),
      new Response("", { status: 502 }),
      new Response("", { status: 503, headers: { "Retry-After": "2" } }),
      new Response("<html>Sign in</html>"),
      new Response('{"token": "ek_1"}'),
    ];
    globalThis.fetch = async () => answers.shift() ?? Promise.reject(new TypeError("away"));
    const mint = secretFrom("http://127.0.0.1/voice-token");
    const functions = [async () => undefined, async () => Promise.reject(new Error("signed out")), async () => "ek_2"];
    for (const source of [...answers.map(() => mint), mint, ...functions.map((each) => secretFrom(each))]) {
      const { secret, failure } = await source();
      result.tools.push(secret ? secret.value : [failure.kind, failure.code, failure.message, failure.passing, failure.wait_ms]);
    }
  },

  /** Be spoken over. */
  async ducking() {
    const speaker = new Paper();
    new Conversation(line, speaker, listeners());
    const say = (event) => line.take(JSON.stringify({ event_id: "e", ...event }));
    line.state = "open";
    for (const item_id of ["a", "b"]) speaker.play(item_id);
    speaker.busy = true;
    say({ type: "voicepipe.agent.ducked", turn_id: "t", item_id: "old" });
    say({ type: "voicepipe.agent.ducked", turn_id: "t", item_id: "a" });
    say({ type: "voicepipe.agent.unducked", turn_id: "t", item_id: "a", reason: "echo", after_ms: 9 });
    say({ type: "voicepipe.of.tomorrow", turn_id: "t" });
    say({ type: "voicepipe.agent.ducked", turn_id: "t", item_id: "b" });
    say({ type: "voicepipe.agent.interrupted", turn_id: "t", item_id: "b", reason: "words", after_ms: 9 });
    await new Promise((resolve) => setImmediate(resolve));
  },
};

function listeners() {
  return { onEntry() {}, onTurn() {}, onProblem() {}, onScene: (scene) => result.scenes.push(scene) };
}

await SCENES[scene]();
result.has = EXTENSIONS.filter((extension) => line.has(extension));
result.unexpectedFrames = line.unexpectedFrames;
line.close();
console.log(JSON.stringify(result));
process.exit(0);
