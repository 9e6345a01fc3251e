/**
 * Functions of the page that the agent may call. Their results are delivered once each, and then the answer is requested:
 * also when the connection breaks in between. No DOM.
 *
 * @module
 */

import { Listeners } from "./listeners.js";
import { QuestionDelivery } from "./question_delivery.js";

/**
 * @typedef {object} Tool
 * @property {string} name
 * @property {string} [description] for the LLM
 * @property {Record<string, any>} [parameters] a JSON Schema of its arguments
 * @property {(args: any, call: {callId: string, signal: AbortSignal}) => unknown} handler returns the result, or a promise of it
 */
/** @typedef {{callId: string, name: string, args: string, output: string, failed: boolean, ranBy: "page" | "server"}} ToolResult */
/** @typedef {{running: number, complete: boolean, items: Record<string, any>[]}} Calls the function calls of one response */

/** Runs the functions that responses call. Emits `tool` with a `ToolResult`, also of a call that the server ran, and `busy` when `busy` may have changed. */
export class ToolCalls extends Listeners {
  /**
   * @param {import("./realtime.js").Realtime} line
   * @param {readonly Tool[]} tools
   */
  constructor(line, tools) {
    super();
    this.line = line;
    this.tools = tools;
    this.delivery = new QuestionDelivery(line, "tool_request");
    this.over = new AbortController();
    /** Responses whose results are not sent yet. @type {Map<string, Calls>} */
    this.responses = new Map();
    /** Results that the server has; those of the latest response. @type {Set<string>} */
    this.received = new Set();
    line.on("response.function_call_arguments.done", (event) => this.called(event));
    line.on("response.done", ({ response }) => {
      const calls = this.responses.get(response.id);
      if (calls) calls.complete = true;
      this.submit(response.id);
    });
    line.on("conversation.item.done", ({ item }) => this.ended(item));
    line.on("conversation.item.added", ({ item }) => {
      if (item.type === "function_call_output") this.received.add(item.id);
    });
  }

  /** Whether the agent waits for a result. */
  get busy() {
    return this.responses.size > 0 || this.delivery.open !== null;
  }

  /**
   * Return the tools of a session: its own, and those of the page in place of any with the same name.
   *
   * @param {readonly Record<string, any>[]} [own] as the server describes them
   */
  definitions(own = []) {
    const pageTools = this.tools.map(({ name, description = "", parameters = { type: "object", properties: {} } }) => {
      return { type: "function", name, description, parameters };
    });
    return [...own.filter(({ name }) => !pageTools.some((tool) => tool.name === name)), ...pageTools];
  }

  /**
   * Drop the calls of a session that has ended.
   *
   * @returns {boolean} whether the agent waited for a result
   */
  giveUp() {
    const waited = this.busy;
    this.over.abort();
    this.over = new AbortController();
    this.responses.clear();
    this.received.clear();
    return this.delivery.giveUp() || waited;
  }

  /** @param {Record<string, any>} item */
  ended(item) {
    if (item.type === "mcp_call") this.emit("tool", serverResult(item));
  }

  /** @param {{response_id: string, call_id: string, name: string, arguments: string}} event */
  called({ response_id, call_id, name, arguments: args }) {
    const tool = this.tools.find((each) => each.name === name);
    // Another client's, or the server's own.
    if (!tool) return;
    const calls = this.responses.get(response_id) ?? { running: 0, complete: false, items: [] };
    this.responses.set(response_id, calls);
    calls.running += 1;
    void this.run(tool, call_id, args).then((output) => {
      // Its session has ended.
      if (this.responses.get(response_id) !== calls) return;
      calls.running -= 1;
      calls.items.push({ id: `output_${call_id}`, type: "function_call_output", call_id, output });
      this.submit(response_id);
    });
    this.emit("busy", null);
  }

  /**
   * Run a tool; what it throws is its result.
   *
   * @param {Tool} tool
   * @param {string} callId
   * @param {string} args JSON
   */
  async run(tool, callId, args) {
    const { signal } = this.over;
    let [output, failed] = ["", false];
    try {
      const result = await tool.handler(JSON.parse(args || "{}"), { callId, signal });
      output = typeof result === "string" ? result : (JSON.stringify(result) ?? "null");
    } catch (error) {
      failed = true;
      output = JSON.stringify({ error: error instanceof Error ? error.message : String(error) });
    }
    if (!signal.aborted) this.emit("tool", { callId, name: tool.name, args, output, failed, ranBy: "page" });
    return output;
  }

  /**
   * Send the results of a response that is over, once all are there, and request the answer.
   *
   * @param {string} response its id
   */
  submit(response) {
    const calls = this.responses.get(response);
    if (!calls?.complete || calls.running > 0) return;
    this.responses.delete(response);
    this.received.clear();
    const { items } = calls;
    const put = () =>
      items
        .filter(({ id }) => !this.received.has(id))
        .every((item) => this.line.send({ type: "conversation.item.create", item }));
    this.delivery.submit(/** @type {any} */ (items.at(-1)).id, put);
    this.emit("busy", null);
  }
}

/**
 * @param {Record<string, any>} item an `mcp_call` that has ended
 * @returns {ToolResult}
 */
function serverResult({ id, name, arguments: args, output, error }) {
  return { callId: id, name, args, output: output ?? error?.message ?? "", failed: Boolean(error), ranBy: "server" };
}
