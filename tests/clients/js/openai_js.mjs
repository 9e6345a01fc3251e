// The openai package for JavaScript. Default: OpenAIRealtimeWS (the ws package, Authorization header).
// --native: OpenAIRealtimeWebSocket, the class for browsers, with the key in a subprotocol.
// --mint: come with a client secret.
// --vad semantic_vad: so that answers begin softly. --go-on S: speak again S seconds after the first sound.
// Usage: node openai_js.mjs --url https://HOST:PORT/v1 --key KEY --recording 24kHz-mono.wav [--native] [--mint]
// Prints one line of JSON and exits with 0 when its "ok" is true. The package opens only wss:, so the server needs TLS.
import fs from 'node:fs';
import { parseArgs } from 'node:util';
import OpenAI from 'openai';

const RATE_HZ = 24_000;
const CHUNK_MS = 20;
const CHUNK_BYTES = (2 * RATE_HZ * CHUNK_MS) / 1_000;
const QUIET_MS = 700;
// Longer than this program may be held on a busy machine in the middle of the question: missing frames are silence.
const SILENCE_MS = 1_000;

const { values: given } = parseArgs({
  options: {
    url: { type: 'string' }, key: { type: 'string', default: 'any' }, recording: { type: 'string' },
    model: { type: 'string', default: 'gpt-realtime' }, within: { type: 'string', default: '45' },
    vad: { type: 'string', default: 'server_vad' }, 'go-on': { type: 'string' },
    native: { type: 'boolean', default: false }, mint: { type: 'boolean', default: false },
  },
});

const turn = { events: {}, transcripts: [], said: [], bytes: 0, late: 0, statuses: [], stopped: false, running: false, answered: false, spoken: false, changedAt: Date.now() };
const more = {};

function finish(error) {
  const said = turn.said.join('').trim();
  const sound_ms = Math.floor(turn.bytes / 2 / (RATE_HZ / 1_000));
  if (!error && (!said || sound_ms < 200)) error = `expected words and sound, got '${said}' and ${sound_ms} ms`;
  const result = { client: given.native ? 'openai-js-native' : 'openai-js-ws', ok: !error, error: error ? String(error?.stack ?? error) : null,
    transcript: turn.transcripts.join(' '), said, sound_ms, late_ms: Math.floor(turn.late / 2 / (RATE_HZ / 1_000)), statuses: turn.statuses, events: turn.events, ...more };
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(error ? 1 : 0));
}

// The samples of a wav file with one channel at 24 kHz.
function samplesOf(file) {
  const wav = fs.readFileSync(file);
  let at = 12;
  while (wav.toString('latin1', at, at + 4) !== 'data') at += 8 + wav.readUInt32LE(at + 4);
  return wav.subarray(at + 8, at + 8 + wav.readUInt32LE(at + 4));
}

// Sends the recording in real time and then silence; ends the program when all is said, answered and quiet.
function speak(send) {
  const pcm = samplesOf(given.recording);
  const began = Date.now();
  let n = 0;
  let first = 0;
  turn.sayAgain = () => { first = n; turn.spoken = turn.answered = false; };
  const tick = () => {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    pcm.subarray((n - first) * CHUNK_BYTES, (n - first + 1) * CHUNK_BYTES).copy(chunk);
    send(chunk.toString('base64'));
    n += 1;
    turn.spoken ||= (n - first) * CHUNK_BYTES >= pcm.length;
    if (turn.spoken && turn.answered && !turn.running && Date.now() - turn.changedAt > QUIET_MS) finish(null);
    else setTimeout(tick, Math.max(0, began + n * CHUNK_MS - Date.now()));
  };
  tick();
}

async function main() {
  const detection = given.vad === 'server_vad' ? { type: 'server_vad', silence_duration_ms: SILENCE_MS } : { type: given.vad };
  const pcm = { type: 'audio/pcm', rate: RATE_HZ };
  const session = {
    type: 'realtime', output_modalities: ['audio'], instructions: 'Be brief.',
    audio: {
      input: { format: pcm, transcription: { model: 'whisper-1' }, turn_detection: detection },
      output: { format: pcm },
    },
  };
  let client = new OpenAI({ baseURL: given.url, apiKey: given.key, maxRetries: 0, dangerouslyAllowBrowser: true });
  if (given.mint) {
    const minted = await client.realtime.clientSecrets.create({ expires_after: { anchor: 'created_at', seconds: 60 }, session });
    more.minted = minted.value.slice(0, 3);
    client = new OpenAI({ baseURL: given.url, apiKey: minted.value, maxRetries: 0 });
  }
  const line = given.native
    ? new (await import('openai/realtime/websocket')).OpenAIRealtimeWebSocket({ model: given.model, dangerouslyAllowBrowser: true }, client)
    : new (await import('openai/realtime/ws')).OpenAIRealtimeWS({ model: given.model }, client);
  more.path = line.url.pathname + line.url.search;
  line.on('error', finish);
  line.socket.addEventListener('close', (event) => finish(`closed by the server: ${event.code} ${event.reason}`));
  line.on('event', (event) => { turn.events[event.type] = (turn.events[event.type] ?? 0) + 1; turn.changedAt = Date.now(); });
  line.on('session.created', () => line.send({ type: 'session.update', session }));
  line.once('session.updated', () => speak((audio) => line.send({ type: 'input_audio_buffer.append', audio })));
  line.on('conversation.item.input_audio_transcription.completed', (event) => turn.transcripts.push(event.transcript));
  line.on('response.created', () => { turn.running = true; turn.stopped = false; });
  line.on('input_audio_buffer.speech_started', () => { turn.stopped = turn.running; });
  line.on('response.output_audio.delta', (event) => {
    const n_bytes = Buffer.from(event.delta, 'base64').length;
    if (turn.bytes === 0 && given['go-on']) setTimeout(() => turn.sayAgain(), Number(given['go-on']) * 1_000);
    turn.bytes += n_bytes;
    if (turn.stopped) turn.late += n_bytes;
  });
  line.on('response.output_audio_transcript.delta', (event) => turn.said.push(event.delta));
  line.on('response.done', (event) => { turn.running = false; turn.statuses.push(event.response.status); turn.answered = event.response.status === 'completed' && turn.bytes > 0; });
}

for (const kind of ['uncaughtException', 'unhandledRejection']) process.on(kind, finish);
setTimeout(() => finish(`not over within ${given.within} s`), Number(given.within) * 1_000).unref();
main().catch(finish);
