/** Types of `voicepipe-call.js`, for programs that import it. */

import type { CallChange, CallEvents, CallOptions, CallState, Tool, VoicepipeCall } from "./voicepipe.js";

export * from "./voicepipe.js";

/** What `data-state` of the element holds. */
export type DisplayedState = CallState | "muted" | "no_microphone";

/** The words of the buttons and of the states. */
export type Texts = Record<
  DisplayedState | "start" | "stop" | "mute" | "retry" | "retry_microphone" | "write" | "send" | "transcript",
  string
>;

/** The events of the element; `detail` is that of the call's event. */
export type ElementEvents = {
  [Type in Exclude<keyof CallEvents, "level">]: CustomEvent<CallEvents[Type]>;
};

/** `<voicepipe-call>` */
export class VoicepipeCallElement extends HTMLElement {
  /** Replaces the attribute `token-url`. */
  token: CallOptions["token"] | null;
  /** From the next start on. */
  tools: readonly Tool[];
  /** Words in place of the element's own. */
  texts: Partial<Texts>;
  /** The call that runs, or ran last. */
  readonly call: VoicepipeCall | null;
  /** From a click or a key press. */
  start(): Promise<void>;
  stop(): void;
  addEventListener<Type extends keyof ElementEvents>(
    type: Type,
    listener: (event: ElementEvents[Type]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

declare global {
  interface HTMLElementTagNameMap {
    "voicepipe-call": VoicepipeCallElement;
  }
}
