"""The facts: what has happened. Past tense, frozen, small; instants are session milliseconds.

A fact that a reply caused bears its `turn` and `revision`; one of an earlier revision changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.conversation import Item
from voicepipe.turn.ear_events import EarChanged as EarChanged
from voicepipe.turn.ear_events import EarReached as EarReached
from voicepipe.turn.ear_events import TranscriberFailed as TranscriberFailed
from voicepipe.turn.ear_events import TranscriptFinished as TranscriptFinished
from voicepipe.turn.ear_events import TranscriptGrew as TranscriptGrew
from voicepipe.turn.line_events import LineLost as LineLost
from voicepipe.turn.line_events import LineResumed as LineResumed
from voicepipe.turn.line_events import LoopHeld as LoopHeld
from voicepipe.turn.model_events import ModelAsked as ModelAsked
from voicepipe.turn.model_events import ModelAttempted as ModelAttempted
from voicepipe.turn.model_events import ModelChosen as ModelChosen
from voicepipe.turn.model_events import ModelJoined as ModelJoined
from voicepipe.turn.model_events import ModelReached as ModelReached
from voicepipe.turn.settings import ReplySettings, TurnSettings
from voicepipe.turn.voice_events import VoiceChanged as VoiceChanged
from voicepipe.turn.voice_events import VoiceReached as VoiceReached
from voicepipe.turn.voice_events import VoiceRecited as VoiceRecited
from voicepipe.turn.voice_events import VoiceUnheard as VoiceUnheard

StageName = Literal["stt", "llm", "tts"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

# --- what the ear noticed ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller speaks, for the first time or again."""

    onset_ms: int
    audio_start_ms: int
    """The same instant as a position in the caller's audio, with the padding that is kept before it."""


@dataclass(frozen=True, slots=True)
class SpeechWentOn:
    """The voice that `Duck` was ordered for has lasted this long. Told every 100 ms or so, and before its pause."""

    voiced_ms: int
    """From its onset to its last voiced sample, without what can only be the agent's own voice come back."""

    echoes: bool = False
    """Its latest second sounds like what the agent is saying."""

    hums: bool = True
    """It has no sound that makes words of a hum, as far as that is known: it is before a pause."""


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """The caller has been silent for a moment (about 80 ms); the turn may or may not be over."""

    last_voiced_ms: int
    """The last voiced sample. This, not our noticing, is a turn's t0."""

    audio_end_ms: int
    """The same instant as a position in the caller's audio."""

    final_pitch_st: float | None = None
    """How far the last syllable lay over the middle of the voice's range, in semitones; None: can't be told."""

    final_voiced_ms: int | None = None
    """How long the voice went on without a break up to its last period; None: not measured."""


@dataclass(frozen=True, slots=True)
class SilenceGrew:
    """The pause lasts. Counted in samples, or by the wall clock when frames stop coming."""

    silence_ms: int


@dataclass(frozen=True, slots=True)
class SilenceCommitted:
    """What was heard up to here counts as a turn in which nobody spoke, as `CommitSilence` wanted."""

    audio_end_ms: int
    """A position in the caller's audio."""


# --- what the client asked for ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The session's settings are now these."""

    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The client says that the caller's turn is over."""

    event_id: str | None
    buffered_ms: int
    """How much audio has come since the last commit or clear."""

    last_voiced_ms: int | None
    """The last voiced sample in it, or None when there is none."""

    last_voiced_audio_ms: int | None = None
    """The same instant as a position in the caller's audio."""


@dataclass(frozen=True, slots=True)
class ClearRequested:
    """The client wants the audio that is not committed forgotten."""

    event_id: str | None


@dataclass(frozen=True, slots=True)
class ReplyRequested:
    """The client wants a reply now."""

    event_id: str | None
    reply: ReplySettings


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The client wants the running reply (or the one of that id) to stop."""

    event_id: str | None
    response_id: str | None


@dataclass(frozen=True, slots=True)
class ItemOffered:
    """The client adds an item to the conversation. An empty `item.id` means: give it one."""

    event_id: str | None
    item: Item
    after: str | None
    """The id of the item to put it after, `root` for the front, None for the end."""


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """The client says how much of a spoken reply was heard."""

    event_id: str | None
    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """The client wants an item forgotten."""

    event_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemWanted:
    """The client wants to see an item."""

    event_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class PlaybackReported:
    """The client says what its loudspeaker has done. Numbers are as it says them, true or not."""

    item_id: str
    played_ms: int
    """Of the item's sound, from its beginning."""

    buffered_ms: int
    """Received and not played yet."""

    input_ms: int
    """How much of the caller's audio the client had captured at that instant."""


# --- what the reply did -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelSpoke:
    """The model sent text; never empty."""

    turn: int
    revision: int
    text: str


@dataclass(frozen=True, slots=True)
class CallGrew:
    """The model calls a function; `arguments` is the piece that came now, perhaps empty."""

    turn: int
    revision: int
    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """What the provider says that the answer cost."""

    turn: int
    revision: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """The model's answer is complete."""

    turn: int
    revision: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class ClauseHandedOver:
    """A clause was given to the voice."""

    turn: int
    revision: int
    clause: int
    text: str
    provider: str
    shortened: bool = False
    """It was cut at a word, as `ShortenClause` wanted."""

    n_chars: int | None = None
    """How much text that is as it is said; None: as much as is written."""


@dataclass(frozen=True, slots=True)
class SoundArrived:
    """The voice sent sound."""

    turn: int
    revision: int
    clause: int
    duration_ms: int
    audible_after_ms: int | None
    """How far into this sound its first audible sample lies; None when it is all silence."""

    word_starts_ms: tuple[int, ...] = ()
    """Where words of this sound begin, in all of the clause's sound."""


@dataclass(frozen=True, slots=True)
class OutputSent:
    """Output of the reply was written to the client's socket: sound, or text when `duration_ms` is 0."""

    turn: int
    revision: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class FillerSent:
    """Sound of the filler that `SayFiller` wanted was written to the client's socket."""

    turn: int
    revision: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class PhrasesReady:
    """These phrases, and no others, can be said at once: their sound is there."""

    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class VoiceFinished:
    """All sound of the reply has come (a text-only reply has none, and posts this with its end)."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class StageFailed:
    """A provider of the reply refused, stalled or broke."""

    turn: int
    revision: int
    stage: StageName
    provider: str
    why: str


# --- time and the line ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimePassed:
    """An instant that `WakeAt` asked for has come."""


@dataclass(frozen=True, slots=True)
class CallerLeft:
    """The session is over."""

    why: str


Fact = (
    SpeechStarted
    | SpeechWentOn
    | SpeechPaused
    | SilenceGrew
    | SilenceCommitted
    | TranscriptGrew
    | TranscriptFinished
    | TranscriberFailed
    | EarReached
    | EarChanged
    | SettingsChanged
    | CommitRequested
    | ClearRequested
    | ReplyRequested
    | CancelRequested
    | ItemOffered
    | ItemTruncated
    | ItemDeleted
    | ItemWanted
    | PlaybackReported
    | ModelAsked
    | ModelReached
    | ModelJoined
    | ModelChosen
    | ModelAttempted
    | ModelSpoke
    | CallGrew
    | TokensCounted
    | ModelFinished
    | ClauseHandedOver
    | VoiceChanged
    | VoiceReached
    | VoiceUnheard
    | VoiceRecited
    | SoundArrived
    | OutputSent
    | FillerSent
    | PhrasesReady
    | VoiceFinished
    | StageFailed
    | TimePassed
    | LoopHeld
    | LineLost
    | LineResumed
    | CallerLeft
)
