"""The mind's port: a conversation in, text and tool calls out, streaming."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a message that is text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A piece of a message that is a picture, as a `data:` or `https:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the system, the caller or the agent."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Text | Image, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """The agent called a function. `arguments` is JSON as text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Returned:
    """What a called function gave back."""

    call_id: str
    output: str


Message = Said | Called | Returned


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the model may call. `parameters_json` is its JSON Schema as text."""

    name: str
    description: str
    parameters_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to the model."""

    model: str
    """The model's name at its provider."""

    messages: tuple[Message, ...]
    functions: tuple[Function, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    passed: tuple[tuple[str, str], ...] = ()
    """Further parameters by their names in OpenAI's chat completions, each value as JSON: `("top_p", "0.9")`. A
    provider that has no such parameter refuses the question."""

    session: str = ""
    """Opaque and stable through a session, for providers that keep a cache by it."""

    user: str = ""
    """Whom the answer is for, as the client names them; opaque."""

    models: tuple[str, ...] = ()
    """Specs that may answer too, behind the route's own, best first. Only a router reads it."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that a router's rules look at: language, country, user_tier, anything."""

    deadline_ms: int | None = None
    """How long after `open` the first speakable output is wanted. Only a router reads it, and its own setting counts
    where that is sooner."""

    queued_ms: Callable[[], int] | None = field(default=None, compare=False, repr=False)
    """Tells how much sound of this answer is still to be heard, in ms. Only a router reads it; None: nobody listens to
    sound."""

    reached: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Is called when the question has its connection, kept from before or new; of several that are asked, by each.
    Providers that have none don't call it."""

    joined: Callable[[str, Literal["hedge", "replacement", "continuation"]], None] | None = field(
        default=None, compare=False, repr=False
    )
    """Is called when a router asks another model too: its spec, and what for."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer, never empty. Reasoning is not part of it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of a function call. The first of each `index` bears `call_id` and `name`; `arguments` are appended."""

    index: int
    call_id: str
    name: str
    arguments: str


MOST_TOKENS: Final = 1_000_000_000
"""Of one answer, and far beyond any model's: a larger count is a vendor's mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that the answer cost, as the provider counts them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Of the input, those that its cache had."""

    cache_write_tokens: int = 0
    """Of the input, those that were put into its cache, where it charges for that."""

    @property
    def is_possible(self) -> bool:
        """Whether these can be counts of one answer: whole, not negative, not absurd, the cache's part of the input.

        What is not is ignored by whoever reads an answer, and the tokens are reckoned from the text.
        """
        counts = (self.input_tokens, self.output_tokens, self.cached_tokens, self.cache_write_tokens)
        # A provider of others may give what its vendor said, whatever the types promise.
        if not all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts):
            return False
        return self.cached_tokens + self.cache_write_tokens <= self.input_tokens


@dataclass(frozen=True, slots=True)
class Finished:
    """The provider said that the answer is complete, and why it ends."""

    reason: Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Routed:
    """A router chose who answers. Comes before that one's first output, and again when another takes over."""

    provider: str
    """Its spec, `groq/llama-3.3-70b`."""

    why: str
    """In words for an operator: `first to speak`, `groq/llama-3.3-70b refused: 429`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One call of a router to one provider is over. All of a request's come before its `Finished`, or its failure."""

    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation"]
    outcome: Literal["spoke", "lost", "failed"]
    """`lost`: another was faster, and this one was closed."""

    began_ms: int
    """After `open`."""

    first_ms: int | None
    """From its start to its first speakable output; None: there was none while it ran."""

    why: str = ""
    """What failed, for `failed`."""

    cost_usd: float | None = None
    """What it cost, or was charged for nothing; None: no price is known."""


ModelEvent = TextDelta | CallDelta | Usage | Finished | Routed | Attempted


class Model(Protocol):
    """Answers a conversation. One instance serves many turns at once."""

    name: str
    """The spec that the settings know it by, `groq/llama-3.3-70b`."""

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask. The iterator ends after `Finished`; `Usage` may come on either side of it.

        A stream that closes without saying why it ends raises, so that a cut is never mistaken for an answer.
        Leaving the context closes the provider's side within 100 ms, also when cancelled.

        Raises:
            StageError: from `open` or from the iterator: the provider refused, stalled or broke.
        """
        ...

    async def warm(self, request: ModelRequest) -> None:
        """Open what can be opened, and read what can be read, before the turn needs it. Fails in silence."""
        ...
