"""The events of a reply: from the search in the agent's documents to the audio that was sent to the client.

Each has the `turn` and the `revision` of its reply; an event of an earlier revision changes nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import KnowledgeUse, ModelAttempt

StageName = Literal["stt", "llm", "tts"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class ReplyEvent(Struct, frozen=True):
    """An event of one revision of a turn's reply. A core that has dropped the revision ignores it."""

    turn: int
    revision: int


# --- before the request -----------------------------------------------------------------------


class KnowledgeSearched(ReplyEvent, frozen=True):
    """The agent's documents were searched for this reply; the request to the LLM follows."""

    found: KnowledgeUse


# --- LLM --------------------------------------------------------------------------------------


class ModelRequested(ReplyEvent, frozen=True):
    """The request was sent to the LLM."""

    provider: str


class SpeechRequested(ReplyEvent, frozen=True):
    """The reply was requested of a speech-to-speech model, which has the user's audio."""

    provider: str


class ModelConnected(ReplyEvent, frozen=True):
    """The request has a connection to its provider, reused or new."""


class ModelJoined(ReplyEvent, frozen=True):
    """The request was sent to another LLM too."""

    provider: str
    role: Literal["hedge", "replacement", "continuation"]


class ModelChosen(ReplyEvent, frozen=True):
    """One of several LLMs answers, or continues the answer."""

    provider: str
    why: str

    pool: str = ""
    """The pool whose models might answer; empty: none has a name."""

    arm: Arm = NO_ARM
    """The arm of an A/B experiment."""

    waited_for: str = ""
    """The LLM that the answer waited for longer than for this one; empty: there was none."""


class ModelAttempted(ReplyEvent, frozen=True):
    """One of the requests made for the answer is over, used or not."""

    attempt: ModelAttempt


class ModelTextReceived(ReplyEvent, frozen=True):
    """The LLM sent text; never empty."""

    text: str


class CallGrew(ReplyEvent, frozen=True):
    """The LLM calls a function; `arguments` is the piece that came now, perhaps empty."""

    index: int
    call_id: str
    name: str
    arguments: str


class TokensCounted(ReplyEvent, frozen=True):
    """The tokens of the answer, as the provider counts them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int = 0
    usd: float | None = None
    """What they cost, where a speech-to-speech model has counted them, whose tokens have several prices; None: unknown.
    """


class ModelFinished(ReplyEvent, frozen=True):
    """The LLM's answer is complete."""

    reason: FinishReason


# --- TTS --------------------------------------------------------------------------------------


class SynthesizerChanged(ReplyEvent, frozen=True):
    """Another TTS speaks from here on than the one that is first in the settings."""

    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation"]
    why: str
    n_chars: int = 0
    """How many characters of the text that another TTS already had it speaks, in place of that TTS."""

    waited_for: str = ""
    """The TTS that the first audio waited for longer than for this one; empty: there was none."""


class SynthesizerConnected(ReplyEvent, frozen=True):
    """The reply has a connection to its TTS provider, reused or new."""

    hidden_ms: int
    """How much of connecting was over when the reply began, in ms: the part that did not wait for the reply."""


class ClauseHandedOver(ReplyEvent, frozen=True):
    """A clause was given to the TTS."""

    clause: int
    text: str
    provider: str
    shortened: bool = False
    """It was cut at a word, as `ShortenClause` requested."""

    n_chars: int | None = None
    """Number of characters as spoken; None: as many as are written."""


class SynthesisUnused(ReplyEvent, frozen=True):
    """A TTS was given this text in vain: another TTS was sooner."""

    provider: str
    n_chars: int


class CachedSpeechUsed(ReplyEvent, frozen=True):
    """The text was played from disk, without the TTS."""

    provider: str
    n_chars: int


class SoundArrived(ReplyEvent, frozen=True):
    """The TTS sent audio."""

    clause: int
    duration_ms: int
    audible_after_ms: int | None
    """How far into this audio its first audible sample lies, in ms; None when it is all silence."""

    word_starts_ms: tuple[int, ...] = ()
    """Where words of this audio begin, in all of the clause's audio."""


class SynthesisFinished(ReplyEvent, frozen=True):
    """All audio of the reply has come (a text-only reply has none, and posts this with its end)."""


# --- output and failures ----------------------------------------------------------------------


class OutputSent(ReplyEvent, frozen=True):
    """Output of the reply was written to the client's socket: audio, or text when `duration_ms` is 0."""

    duration_ms: int


class FillerSent(ReplyEvent, frozen=True):
    """Audio of the filler that `SayFiller` requested was written to the client's socket."""

    duration_ms: int


class StageFailed(ReplyEvent, frozen=True):
    """A provider of the reply refused, stalled or failed."""

    stage: StageName
    provider: str
    why: str
