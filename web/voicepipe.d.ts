/** Types of `voicepipe.js` and `voicepipe-call.js`, for programs that import them. */

import type { ExtensionEvents, Failure, LineState, Minted, Realtime, ServerEvents } from "./realtime.js";

export type { Extension, ExtensionEvents, Failure, FailureKind, LineState, Minted, Secret, ServerEvents } from "./realtime.js";

/** The state of the conversation, seen from the user. */
export type Scene = "listening" | "user_speaking" | "thinking" | "speaking";

/** `requesting`: the browser requests the microphone from the user. `reconnecting`: the connection broke, or could not be opened. */
export type CallState = "idle" | "requesting" | "connecting" | Scene | "reconnecting" | "ended" | "failed";

/**
 * `silent`: it has given no sound at all yet. `gone`: it was disconnected. The last five: it could not be opened, since
 * the user or the browser refused, there is none, another program has it, the page is not secure, or for another reason.
 */
export type MicrophoneState =
  | "closed"
  | "requesting"
  | "open"
  | "silent"
  | "gone"
  | "refused"
  | "absent"
  | "busy"
  | "insecure"
  | "broken";

/** Comes whenever one of its fields has changed. */
export interface CallChange {
  readonly state: CallState;
  /** What goes on in the conversation, also while the connection is replaced. */
  readonly scene: Scene;
  readonly connection: LineState;
  readonly microphone: MicrophoneState;
  readonly muted: boolean;
  /** Why the call is not connected, or has ended. */
  readonly failure: Failure | null;
  /** Until the next try to connect; 0 unless the connection waits for it. */
  readonly wait_ms: number;
}

/** An item of the conversation, as text. Comes again, the same object, whenever it has changed. */
export interface Entry {
  readonly id: string;
  readonly role: "user" | "agent";
  readonly text: string;
  /** Of the agent's text that was cut: the part that was played; null: not known yet. */
  readonly played: string | null;
  readonly cut: boolean;
  readonly done: boolean;
  /** Why the text is missing; empty when it is there. */
  readonly failure: string;
  /** The turn's id; empty until it is known. `GET /v1/turns/{id}` has its record. */
  readonly turn: string;
}

export interface ToolCall {
  readonly callId: string;
  /** Aborted when the call ends, or its session does. */
  readonly signal: AbortSignal;
}

/** A function of the page that the agent may call. */
export interface Tool<Arguments = any> {
  readonly name: string;
  /** For the LLM. */
  readonly description?: string;
  /** A JSON Schema of the arguments. */
  readonly parameters?: Readonly<Record<string, unknown>>;
  /** Return the result: text, or a value that JSON can hold. What it throws is sent to the LLM as `{"error": message}`. */
  readonly handler: (args: Arguments, call: ToolCall) => unknown;
}

export interface ToolResult {
  readonly callId: string;
  readonly name: string;
  /** JSON, as the LLM wrote it. */
  readonly args: string;
  /** Empty for a call that the server ran: a page with a client secret does not learn its result. */
  readonly output: string;
  readonly failed: boolean;
  readonly ranBy: "page" | "server";
}

/** The call's own events. */
export interface CallEvents {
  state: CallChange;
  entry: Entry;
  /** A turn has been answered. */
  turn: { readonly turn: string; readonly entry: Entry };
  /** The server's message about a request that failed; the call goes on. */
  problem: { readonly message: string };
  /** 50 times a second while the microphone is open; parts of full scale. */
  level: { readonly peak: number; readonly rms: number };
  /** A function of the page has returned. */
  tool: ToolResult;
}

/** What `token` may give. */
export type Given = string | { readonly value: string; readonly expires_at?: number } | Minted;

export interface CallOptions {
  /**
   * Where a client secret comes from, before each session: an address to post to, which answers as
   * `POST /v1/realtime/client_secrets` does, or a function.
   */
  readonly token: string | URL | (() => Promise<Given>);
  /** The voicepipe server; the one that the module came from, if it is left out. Give it where the module is bundled. */
  readonly server?: string | URL;
  /** The server's choice, if it is left out. */
  readonly agent?: string;
  /** The agent's own, if it is left out. */
  readonly voice?: string;
  /** A device's id; the system's choice, if it is left out. */
  readonly microphone?: string;
  readonly loudspeaker?: string;
  /** Whether a call without a microphone fails, before it connects; true. */
  readonly microphoneRequired?: boolean;
  readonly tools?: readonly Tool[];
}

export interface Device {
  readonly id: string;
  /** Empty until the user has allowed a microphone. */
  readonly name: string;
}

/** List the devices. A browser that lets no page choose a loudspeaker lists none. */
export function devices(): Promise<{ microphones: Device[]; loudspeakers: Device[] }>;

/** A voice call from a page. Nothing throws for what a user, a device, a network or a server does. */
export class VoicepipeCall {
  constructor(options: CallOptions);
  /** The next four apply from the next start on. */
  agent: string;
  voice: string;
  microphoneId: string;
  tools: readonly Tool[];
  readonly running: boolean;
  readonly state: CallState;
  readonly scene: Scene;
  readonly muted: boolean;
  readonly holdToTalk: boolean;
  /** Everything that `state` events report, now. */
  readonly now: CallChange;
  /** The connection, for events that this class does not send; null while no call runs. */
  readonly line: Realtime | null;
  /** The open microphone; null without one. */
  readonly microphone: { readonly deviceId: string } | null;

  /** Listen to the call, or to the server's events; returns what stops it. */
  on<Type extends keyof CallEvents>(type: Type, listener: (event: CallEvents[Type]) => void): () => void;
  on<Type extends keyof ServerEvents>(
    type: Type,
    listener: (event: ServerEvents[Type] & { type: Type }) => void,
  ): () => void;
  on<Type extends keyof ExtensionEvents>(
    type: Type,
    listener: (event: ExtensionEvents[Type] & { type: Type }) => void,
  ): () => void;

  /** Start the call, from a click or a key press: browsers play no audio otherwise. */
  start(): Promise<void>;
  stop(): void;
  /** Try to connect now, where the call waits for its next try. */
  retry(): void;
  /** Send text as the user's message. Returns whether it was sent, or will be when the connection is back. */
  say(text: string): boolean;
  /** Stop the agent. */
  interrupt(): void;
  /** While muted, no audio of the microphone is sent. */
  mute(muted?: boolean): void;
  /** Whether the user's turn lasts from `press` to `release`, instead of by turn detection. */
  setHoldToTalk(hold: boolean): void;
  press(): void;
  /** Returns false when the turn was too short to send. */
  release(): boolean;
  /** In this call and the next ones; an empty id is the system's choice. */
  useMicrophone(deviceId: string): Promise<boolean>;
  /** Returns false where the browser refuses, or lets no page choose. */
  useLoudspeaker(deviceId: string): Promise<boolean>;
  /** Open the microphone, again if it could not be opened or is gone. */
  openMicrophone(): Promise<boolean>;
}
