// A page's program with @openai/agents as its guide has it: RealtimeSession with its defaults, which are WebRTC in a
// browser, the user's microphone and an audio element. The page loads the package's own bundle for browsers before it.
const { RealtimeAgent, RealtimeSession, tool } = window.OpenAIAgentsRealtime;

const seen = (window.seen = { events: [], errors: [], places: [] });

const weather = tool({
  name: "get_weather",
  description: "Current weather at a place. Always use it for questions about the weather.",
  parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"], additionalProperties: false },
  execute: async ({ place }) => {
    seen.places.push(place);
    return "sunny";
  },
});

window.call = async (server, apiKey, { hasTool }) => {
  const agent = new RealtimeAgent({ name: "A", instructions: "Be brief.", tools: hasTool ? [weather] : [] });
  const session = (window.session = new RealtimeSession(agent));
  session.on("error", ({ error }) => seen.errors.push(error?.error?.message ?? String(error)));
  session.on("transport_event", (event) => seen.events.push(event));
  await session.connect({ apiKey, url: `${server}/v1/realtime/calls` });
};

const textOf = ({ content }) => content.map((part) => part.text ?? part.transcript ?? "").join(" ");

// The messages of the history as [role, text].
window.messages = () =>
  window.session.history.filter(({ type }) => type === "message").map((item) => [item.role, textOf(item)]);

window.textOf = (id) => textOf(window.session.history.find(({ itemId }) => itemId === id));

// What the browser says of the agent's audio.
window.received = async () => {
  const stats = await window.session.transport.connectionState.peerConnection.getStats();
  return [...stats.values()].find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
};
