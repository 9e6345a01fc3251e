import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { VoicepipeCall } from "voicepipe-web";

/** Return a call that lasts as long as the component, its state, and what was said. */
function useVoicepipeCall(options) {
  const [call] = useState(() => new VoicepipeCall(options));
  const [change, setChange] = useState(call.now);
  const [entries, setEntries] = useState(new Map());
  useEffect(() => {
    const listeners = [
      call.on("state", setChange),
      call.on("entry", (entry) => setEntries((known) => new Map(known).set(entry.id, { ...entry }))),
    ];
    return () => {
      for (const stop of listeners) stop();
      call.stop();
    };
  }, [call]);
  return { call, change, entries: [...entries.values()] };
}

function Assistant({ server }) {
  const [text, setText] = useState("");
  const { call, change, entries } = useVoicepipeCall({ server, token: "/voice-token", microphoneRequired: false });
  const send = (event) => {
    event.preventDefault();
    if (call.say(text)) setText("");
  };
  return (
    <section aria-label="Assistant">
      <button onClick={() => (call.running ? call.stop() : call.start())}>{call.running ? "Hang up" : "Talk"}</button>
      <button onClick={() => call.mute(!change.muted)} aria-pressed={change.muted} disabled={!call.running}>
        Mute
      </button>
      <p role="status">{change.failure ? `${change.state}: ${change.failure.message}` : change.state}</p>
      <ol>
        {entries.map(({ id, role, text: said, played }) => (
          <li key={id} className={role}>
            {played ?? said}
          </li>
        ))}
      </ol>
      <form onSubmit={send}>
        <input value={text} onChange={(event) => setText(event.target.value)} aria-label="Write a message" />
        <button>Send</button>
      </form>
    </section>
  );
}

createRoot(document.querySelector("#root")).render(<Assistant server="https://voice.example" />);
