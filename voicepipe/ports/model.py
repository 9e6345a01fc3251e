"""The LLM port: a conversation in, streamed text and function calls out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from voicepipe.ports.provider_events import ModelConnected, ModelJoined
from voicepipe.turn.record.arm import NO_ARM, Arm


class Text(Struct, frozen=True):
    """A text part of a message."""

    text: str


class Image(Struct, frozen=True):
    """An image part of a message, as a `data:` or `https:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class Content(Struct, frozen=True):
    """A message of the system, the user or the agent."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Text | Image, ...]


class Called(Struct, frozen=True):
    """The agent called a function. `arguments` is JSON as text."""

    call_id: str
    name: str
    arguments: str


class Returned(Struct, frozen=True):
    """The result of a function call."""

    call_id: str
    output: str


Message = Content | Called | Returned


class Function(Struct, frozen=True):
    """A function that the model may call. `parameters_json` is its JSON Schema as text."""

    name: str
    description: str
    parameters_json: str
    strict: bool | None = None
    """Whether the arguments must match the schema exactly. None: the provider's default."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to the LLM."""

    model: str
    """The model's name at its provider."""

    messages: tuple[Message, ...]
    functions: tuple[Function, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    passed: tuple[tuple[str, str], ...] = ()
    """More parameters by their names in OpenAI's chat completions, each value as JSON: `("top_p", "0.9")`. A provider
    without such a parameter refuses the request."""

    session: str = ""
    """Opaque and stable within a session, for providers that use it as a cache key."""

    user: str = ""
    """The user's id as the client sets it; opaque."""

    models: tuple[str, ...] = ()
    """Specs of fallbacks, after the route's own, best first. Only a router reads it."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that a router's rules match: language, country, user_tier, any other."""

    deadline_ms: int | None = None
    """How long after `open` the first speakable output is due. Only a router reads it; the router's own setting is
    used where that is sooner."""

    is_spoken: bool = False
    """Whether the answer is for a TTS: text without anything to say is then no answer. Only a router reads it."""

    may_be_empty: bool = False
    """Whether the answer may end without a word, as the rest of an answer may. Only a router reads it."""


def text_chars(request: ModelRequest) -> int:
    """Return the length of a request's text. Its images are left out: their cost cannot be estimated from text."""
    total = 0
    for each in request.functions:
        total += len(each.name) + len(each.description) + len(each.parameters_json)
    for message in request.messages:
        if isinstance(message, Content):  # first: these are nearly all messages
            for part in message.parts:
                if isinstance(part, Text):
                    total += len(part.text)
        elif isinstance(message, Called):
            total += len(message.name) + len(message.arguments)
        else:
            total += len(message.output)
    return total


class TextDelta(Struct, frozen=True):
    """More of the answer, never empty. Reasoning is not part of it."""

    text: str


class CallDelta(Struct, frozen=True):
    """More of a function call. The first of each `index` has `call_id` and `name`; `arguments` are appended."""

    index: int
    call_id: str
    name: str
    arguments: str


MAX_TOKENS: Final = 1_000_000_000
"""Limit for one answer, far beyond any model's: a larger count is a vendor's error."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens of the request and the answer, as the provider counts them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """The part of the input read from the provider's cache."""

    cache_write_tokens: int = 0
    """The part of the input written to the provider's cache, where the provider charges for that."""

    @property
    def is_possible(self) -> bool:
        """Return whether the counts are plausible for 1 answer: whole, not negative, not too large, cached part within
        the input.

        Implausible counts are ignored by the consumer of an answer, and the tokens are estimated from the text.
        """
        counts = (self.input_tokens, self.output_tokens, self.cached_tokens, self.cache_write_tokens)
        # A third-party provider may pass on its vendor's values, whatever the types declare.
        if not all(type(count) is int and 0 <= count <= MAX_TOKENS for count in counts):
            return False
        return self.cached_tokens + self.cache_write_tokens <= self.input_tokens


class Finished(Struct, frozen=True):
    """The provider reported that the answer is complete, and why it ended."""

    reason: Literal["stop", "length", "tool_calls", "content_filter"]


class Routed(Struct, frozen=True):
    """A router chose the provider. Comes before that provider's first output, and again when another takes over."""

    provider: str
    """The provider's spec, `groq/llama-3.3-70b`."""

    why: str
    """The reason, for an operator: `first to speak`, `groq/llama-3.3-70b refused: 429`."""

    pool: str = ""
    """The pool whose models might answer; empty: none has a name."""

    arm: Arm = NO_ARM
    """The arm of an A/B experiment."""

    waited_for: str = ""
    """The provider that was waited for longer than this one before it answered; empty: there was none."""


class Attempted(Struct, frozen=True, kw_only=True):
    """One request of a router to one provider has ended. All of an answer's come before its `Finished`, or its
    failure.
    """

    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation", "probe", "judge"]
    """`probe`: it tested whether a provider answers again, and its answer was not used. `judge`: it requested how hard
    the question is."""

    outcome: Literal["spoke", "lost", "failed"]
    """`lost`: another provider was faster, and this request was closed."""

    began_ms: int
    """Start, in ms after `open`."""

    first_ms: int | None
    """From its start to its first speakable output; None: there was no output."""

    why: str = ""
    """The error, for `failed`."""

    cost_usd: float | None = None
    """The cost, also when the output was not used; None: no price is known."""


ModelEvent = TextDelta | CallDelta | Usage | Finished | ModelConnected | ModelJoined | Routed | Attempted


@runtime_checkable
class FollowsPlayback(Protocol):
    """The events of an answer whose provider reads its audio: a router continues a stalled answer with another model
    only when the audio runs out."""

    def track_playback(self, queued_ms: Callable[[], int]) -> None:
        """Use `queued_ms`, which returns how much audio of this answer is still to be played, in ms. An answer for
        which this is not called has no audio."""
        ...


class Model(Protocol):
    """Answers a conversation. One instance serves many turns at once."""

    name: str
    """The spec from the settings, `groq/llama-3.3-70b`."""

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Start a request. The iterator ends after `Finished`; `Usage` may come before or after it. It may meet
        `FollowsPlayback`.

        A stream that closes without a reason raises, so that a cut answer never counts as complete. Leaving the
        context closes the connection to the provider within 100 ms, also when cancelled.

        Raises:
            StageError: from `open` or from the iterator: the provider refused, stalled or broke.
        """
        ...

    async def warm(self, request: ModelRequest) -> None:
        """Open connections and fill caches before the turn needs them. Failures are ignored."""
        ...
