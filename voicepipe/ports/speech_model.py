"""The port of speech-to-speech models: the user's audio and the conversation in, the agent's audio and its words out.

A conversation is a connection whose provider stores what was said over it. Its turn detection is off: the session
decides when the user has finished, and requests each answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Finished, ModelRequest, TextDelta
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.synthesizer import Spoken
from voicepipe.ports.transcriber import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions:
    """The parameters of a conversation that cannot change while it is open."""

    model: str
    """The model's name at its provider."""

    voice: str | None = None
    """The voice's name at its provider, or None for the provider's own choice."""

    speed: float = 1.0
    """1 is the voice's own speed. A provider without such a parameter ignores it."""


class WordsComplete(Struct, frozen=True):
    """All words of the answer's audio have come; audio may follow."""


SpeechModelEvent = TextDelta | WordsComplete | CallDelta | Spoken | SpeechUsage | Finished
"""What an answer consists of. `TextDelta` is a piece of the words of its audio, and `Spoken.clause` is always 0. A
`CallDelta` is a whole function call."""


class SpeechConversation(Protocol):
    """One session's conversation with a model."""

    def push(self, samples: Samples) -> None:
        """Send more of what the user says: int16, (n_samples,), at the model's `rate_hz`. Returns at once."""
        ...

    def drop(self) -> None:
        """Discard what was pushed since the latest `answer`: it was no question."""
        ...

    def answer(
        self, request: ModelRequest, *, spoken: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[SpeechModelEvent]]:
        """Request an answer to the conversation of `request`. The iterator ends after `Finished`.

        The model's history is first made equal to that conversation: what it lacks is added as text, and what the
        conversation no longer has, or has cut, is deleted there. With `spoken`, the last message is what the user said
        and what was pushed: the model gets it as audio. Otherwise what was pushed is discarded.

        Leaving the context cancels an answer that is not complete. Only one answer may be open.

        Raises:
            StageError: from `answer` or from the iterator: the provider refused, stalled or broke. The conversation is
                over; open another.
        """
        ...

    async def broken(self) -> StageError:
        """Return why the conversation is over, once it is."""
        ...


class SpeechModel(Protocol):
    """Answers speech with speech. One instance serves many sessions at once."""

    name: str
    """The spec from the settings, `provider/model`."""

    rate_hz: int
    """The sample rate of the user's audio."""

    voices: frozenset[str] | None
    """The names of its voices; None when only its provider has them."""

    lifetime_ms: int | None
    """The age at which a conversation should be replaced by another; None: its provider ends none for its age."""

    def open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AbstractAsyncContextManager[SpeechConversation]:
        """Start the conversation of one session. It connects in the background; `answer` raises a failure. `unused`
        gets the tokens of answers that were cancelled.

        Leaving the context releases the provider within 100 ms, also when cancelled.
        """
        ...
