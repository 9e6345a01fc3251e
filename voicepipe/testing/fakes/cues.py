"""Cues for a fake: what to answer to one request, how fast, and where to fail.

Positions count what the fake sends: tokens of a model, bytes of speech, bytes of a transcription's JSON (on the socket)
or whole texts (in the process).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """Refuse with this HTTP status instead of answering."""

    status: int
    message: str = "the cue makes the fake refuse"
    retry_after: str | None = None
    """The `Retry-After` header, seconds or a date."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection before a single byte of the answer."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Read the request and send nothing, not even headers, until the client disconnects."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in the middle."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more, with the connection open, until the client disconnects."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Malformed:
    """Send data with the outer shape of an answer that is not one, then go on normally."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send malformed bytes, and end."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class InBandError:
    """Send an error inside an answer that began with status 200, and end."""

    after: int = 0
    message: str = "the cue makes the fake fail"
    code: int | None = None


@dataclass(frozen=True, slots=True)
class NoEnd:
    """End the transport properly, without marking the answer as complete."""

    after: int = 1_000_000


Fault = Status | HangUp | Hang | Cut | Stall | Malformed | Garbage | InBandError | NoEnd


class Hold:
    """A place where an answer waits until the test continues it."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.reached = asyncio.Event()
        """Set when the answer waits here."""
        self.release = asyncio.Event()
        """Set it to continue the answer."""


@dataclass(frozen=True, slots=True)
class CallCue:
    """A function call; its arguments are sent in the given pieces."""

    name: str
    arguments: tuple[str, ...] = ("{}",)
    call_id: str = "call_fake"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCue:
    """A model's behaviour for one request."""

    tokens: tuple[str, ...] = ("Hello", " there", ",", " user", ".")
    calls: tuple[CallCue, ...] = ()
    before_calls: tuple[str, ...] = ()
    """Tokens that are sent before the calls, which take the place of `tokens`."""

    finish: str = "stop"
    input_tokens: int = 10
    cached_tokens: int = 0
    ttft_ms: int = 0
    gap_ms: int = 0
    """Between two tokens."""

    role_only: int = 1
    """Chunks before the first token that have a role and no text."""

    keep_alives: int = 0
    """Comment lines before each token."""

    chunk_bytes: int | None = None
    """Cut the bytes into pieces of this size, whatever they are; None sends each event whole."""

    raw: tuple[bytes, ...] | None = None
    """On the socket: send these bytes instead of all of the above. Positions count the pieces."""

    content_type: str = "text/event-stream"
    hold: Hold | None = None
    fault: Fault | None = None

    @property
    def sent_tokens(self) -> tuple[str, ...]:
        """Return the tokens that are sent."""
        return self.before_calls if self.calls else self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SttCue:
    """An STT's answer to one flush. A revision is a second cue with another text."""

    text: str = "what time is it"
    language: str | None = None
    speakers: str = ""
    """The speaker of each word, one digit or letter each; a space: none is named. Only for a vendor with speakers."""

    delay_ms: int = 0
    raw: bytes | None = None
    hold: Hold | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TtsCue:
    """A TTS's behaviour for one clause: a tone, longer for a longer text."""

    ms_per_char: int = 40
    rate_hz: int = 24_000
    wav: bool = False
    """Put a WAV header before it, as a streaming server does: with unknown sizes."""

    content_type: str | None = None
    """None sends the true type."""

    chunk_bytes: int = 4_800
    """100 ms at 24 kHz; an odd number cuts samples."""

    ttfb_ms: int = 0
    gap_ms: int = 0
    raw: bytes | None = None
    hold: Hold | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCue:
    """An embedding model's answer to one request."""

    meanings: tuple[tuple[str, ...], ...] = ()
    """Words of the same meaning. Texts that share one are near each other; other words count for themselves."""

    dimensions: int = 64
    raw: bytes | None = None
    hold: Hold | None = None
    fault: Fault | None = None


Cue = LlmCue | SttCue | TtsCue | EmbeddingCue


def tokens(text: str) -> tuple[str, ...]:
    """Cut a text roughly as models do: before each space."""
    words = text.split(" ")
    return tuple(word if i == 0 else " " + word for i, word in enumerate(words))


@dataclass(slots=True)
class CuePoints:
    """One answer in progress: where it waits, and where it fails."""

    fault: Fault | None
    hold: Hold | None

    async def reach(self, position: int) -> Fault | None:
        """Wait where the cue requires it, and return the fault that is due at `position`, once. A stall never
        returns."""
        if self.hold is not None and position >= self.hold.after and not self.hold.reached.is_set():
            self.hold.reached.set()
            await self.hold.release.wait()
        fault = self.fault
        if fault is None or isinstance(fault, Status | HangUp | Hang) or position < fault.after:
            return None
        if isinstance(fault, Stall):
            await asyncio.Event().wait()
        self.fault = None
        return fault
