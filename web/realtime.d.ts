/** Types of `realtime.js`, for programs that import it. */

export type FailureKind =
  | "unreachable"
  | "expired"
  | "refused"
  | "full"
  | "starting"
  | "busy"
  | "ended"
  | "broken"
  /** The browser gives the page no loudspeaker. */
  | "no_audio";

export interface Failure {
  readonly kind: FailureKind;
  /** The server's own code; empty when it sent none. */
  readonly code: string;
  /** What the server said, in words; empty when it said nothing. */
  readonly message: string;
  /** Whether it is worth trying again with nothing changed. */
  readonly passing: boolean;
  readonly wait_ms: number;
}

export interface Secret {
  /** `ek_...` */
  readonly value: string;
  /** Unix seconds. */
  readonly expires_at: number;
}

export type Minted =
  | { readonly ok: true; readonly secret: Secret }
  | { readonly ok: false; readonly failure: Failure };

/** `resuming`: the line broke, and the session waits for us. */
export type LineState = "closed" | "connecting" | "open" | "resuming" | "waiting";

/** What a session may have beyond the published events. */
export type Extension = "binary_audio" | "playback_reports" | "turn_events" | "resume" | "ducking";

/** Any event. */
export interface WireEvent {
  readonly type: string;
  readonly event_id?: string;
  readonly [field: string]: any;
}

export interface StateChange {
  readonly state: LineState;
  readonly failure: Failure | null;
  /** Until the next try; 0 unless `waiting`. */
  readonly wait_ms: number;
}

export interface Item {
  readonly id: string;
  readonly type: "message" | "function_call" | "function_call_output";
  readonly role?: "user" | "assistant" | "system";
  readonly status?: "in_progress" | "completed" | "incomplete";
  readonly content?: readonly { readonly type: string; readonly text?: string; readonly transcript?: string | null }[];
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly output?: string;
}

export interface Response {
  readonly id: string;
  readonly status: "in_progress" | "completed" | "cancelled" | "incomplete" | "failed";
  readonly status_details: {
    readonly type: string;
    readonly reason?: string;
    readonly error?: { readonly type?: string; readonly code?: string; readonly message?: string };
  } | null;
  readonly output: readonly Item[];
  /** `voicepipe_turn` names the turn's record, `GET /v1/turns/{id}`. */
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly usage: Readonly<Record<string, unknown>> | null;
}

interface Identified {
  readonly event_id: string;
}

/** Whose sound it is. */
export interface Place {
  readonly response_id: string;
  readonly item_id: string;
  readonly output_index: number;
  readonly content_index: number;
}

/** More of the agent's sound, as a `delta` or as a binary frame. */
export interface Sound extends Place {
  /** int16, mono, 24 kHz. */
  readonly samples: Int16Array;
}

interface OfTurn extends Identified {
  readonly turn_id: string;
  /** Higher when the user went on speaking: what was told of lower ones does not count any more. */
  readonly revision: number;
}

interface Verdict extends Identified {
  readonly turn_id: string;
  readonly item_id: string;
  readonly reason: string;
  /** Since the volume was lowered. */
  readonly after_ms: number;
}

interface InItem extends Identified {
  readonly item_id: string;
  readonly content_index: number;
}

interface InOutput extends InItem {
  readonly response_id: string;
  readonly output_index: number;
}

/** The published server events that a voice client meets; others come too, under their own `type`. */
export interface ServerEvents {
  "session.created": Identified & { readonly session: Readonly<Record<string, unknown>> };
  "session.updated": Identified & { readonly session: Readonly<Record<string, unknown>> };
  error: Identified & {
    readonly error: {
      readonly type: string;
      readonly code: string | null;
      readonly message: string;
      readonly param: string | null;
      readonly event_id: string | null;
    };
  };
  "input_audio_buffer.speech_started": Identified & { readonly item_id: string; readonly audio_start_ms: number };
  "input_audio_buffer.speech_stopped": Identified & { readonly item_id: string; readonly audio_end_ms: number };
  "input_audio_buffer.committed": Identified & { readonly item_id: string; readonly previous_item_id: string | null };
  "input_audio_buffer.cleared": Identified;
  "conversation.item.added": Identified & { readonly item: Item; readonly previous_item_id: string | null };
  "conversation.item.done": Identified & { readonly item: Item; readonly previous_item_id: string | null };
  "conversation.item.truncated": InItem & { readonly audio_end_ms: number };
  "conversation.item.input_audio_transcription.delta": InItem & { readonly delta: string };
  "conversation.item.input_audio_transcription.completed": InItem & { readonly transcript: string };
  "conversation.item.input_audio_transcription.failed": InItem & { readonly error: { readonly message?: string } };
  "response.created": Identified & { readonly response: Response };
  "response.done": Identified & { readonly response: Response };
  "response.output_item.added": Identified & {
    readonly response_id: string;
    readonly output_index: number;
    readonly item: Item;
  };
  "response.output_item.done": Identified & {
    readonly response_id: string;
    readonly output_index: number;
    readonly item: Item;
  };
  "response.output_audio.delta": InOutput & { readonly delta: string };
  "response.output_audio.done": InOutput;
  "response.output_audio_transcript.delta": InOutput & { readonly delta: string };
  "response.output_audio_transcript.done": InOutput & { readonly transcript: string };
  "response.output_text.delta": InOutput & { readonly delta: string };
  "response.output_text.done": InOutput & { readonly text: string };
  "response.function_call_arguments.done": Identified & {
    readonly response_id: string;
    readonly item_id: string;
    readonly output_index: number;
    readonly call_id: string;
    readonly name: string;
    readonly arguments: string;
  };
}

/** The events that come only in sessions that have the extension. */
export interface ExtensionEvents {
  "voicepipe.output_audio.started": Identified & Place & { readonly stream: number };
  "voicepipe.turn.mark": OfTurn & { readonly mark: string; readonly at_ms: number };
  "voicepipe.turn.stage": OfTurn & {
    readonly stage: string;
    readonly duration_ms: number;
    readonly limit_ms: number;
    readonly verdict: "within" | "over";
    readonly owner: string;
  };
  "voicepipe.turn.action": OfTurn & { readonly action: string };
  /** Somebody speaks over it: play it at a lower volume until one of the next two. */
  "voicepipe.agent.ducked": Identified & { readonly turn_id: string; readonly item_id: string };
  "voicepipe.agent.unducked": Verdict;
  /** Play no more of it. */
  "voicepipe.agent.interrupted": Verdict;
  /** The node stops in `within_ms`: the session goes on at another one, by itself. */
  "voicepipe.going_away": Identified & { readonly within_ms: number };
  /** Another agent goes on with the call, from the next response on. */
  "voicepipe.agent.handed_over": Identified & { readonly agent: string };
  /** The fields of `GET /v1/turns/{id}`. */
  "voicepipe.turn.record": Identified & { readonly record: Readonly<Record<string, any>> };
  /** The line is back, and nothing was lost. */
  "voicepipe.resumed": Identified & {
    readonly session_id: string;
    readonly secret: string;
    readonly input_received_ms: number;
    readonly window_ms: number;
    /** Another node goes on with the session: the open response is over, and missed events do not come. */
    readonly moved: boolean;
    /** It answers by itself: the rest of an answer, or one that was due. */
    readonly answer_follows: boolean;
    readonly answers: number;
  };
  /** Words of an item, and where they begin in its audio; noted by itself. */
  "voicepipe.output_audio.words": Identified & {
    readonly response_id: string;
    readonly item_id: string;
    readonly words: readonly string[];
    readonly starts_ms: readonly number[];
  };
}

export interface RealtimeOptions {
  /** `ws:` or `wss:`, with `?agent=` or `?model=` as wanted. */
  address: string | URL;
  /** Asked before each new session. */
  secret: () => Promise<Minted>;
  /**
   * Asked for in each session; what the server does not have is done without. Who asks for `playback_reports` has to
   * send them.
   */
  extensions?: readonly Extension[];
}

/** One conversation over the Realtime events, on a WebSocket that mends itself. */
export class Realtime {
  constructor(options: RealtimeOptions);
  address: URL;
  readonly state: LineState;
  /** What the server last said the session is; null before it did. */
  readonly session: Readonly<Record<string, any>> | null;
  /** Sound that was not sent, since the network is slower than the voice; in appends. */
  readonly droppedFrames: number;
  /** `taken`: the id of the request that was named to the node which took the session over. */
  readonly resumeState: { readonly taken: string | undefined };
  /** Binary frames that nobody had announced. */
  readonly unexpectedFrames: number;

  /** Listen; returns what stops it. */
  on(type: "state", listener: (change: StateChange) => void): () => void;
  on(type: "sound", listener: (sound: Sound) => void): () => void;
  on<Type extends keyof ServerEvents>(
    type: Type,
    listener: (event: ServerEvents[Type] & { type: Type }) => void,
  ): () => void;
  on<Type extends keyof ExtensionEvents>(
    type: Type,
    listener: (event: ExtensionEvents[Type] & { type: Type }) => void,
  ): () => void;
  on(type: string, listener: (event: { type: string; [field: string]: any }) => void): () => void;

  /** Connect, and stay connected until `close` or a failure that does not pass. Called while waiting: try now. */
  open(): void;
  close(): void;
  /** Whether the session has it. */
  has(extension: Extension): boolean;

  /** Each returns whether there was a line to send on. While `resuming` it is kept, and sent when the line is back. */
  send(event: { type: string; event_id?: string; [field: string]: unknown }): boolean;
  update(session: Record<string, unknown>): boolean;
  /** int16, mono, 24 kHz. */
  append(samples: Int16Array): boolean;
  commit(): boolean;
  say(role: "user" | "assistant", text: string, id?: string): boolean;
  truncate(itemId: string, playedMs: number): boolean;
}

/** int16 to base64, little-endian. */
export function encodeSound(samples: Int16Array): string;
export function decodeSound(base64: string): Int16Array;
