"""The events: what has happened. Past tense, frozen, small; instants are session milliseconds.

An event that a reply caused has its `turn` and `revision`; an event of an earlier revision changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.conversation import Item
from voicepipe.turn.record.values import KnowledgeUse, ModelAttempt, ToolResult
from voicepipe.turn.restored_events import ConversationRestored as ConversationRestored
from voicepipe.turn.restored_events import ReplyOwed as ReplyOwed
from voicepipe.turn.settings import ReplySettings, TurnSettings

StageName = Literal["stt", "llm", "tts"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

# --- VAD --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user speaks, for the first time or again."""

    onset_ms: int
    audio_start_ms: int
    """The same instant as a position in the user's audio, including the padding kept before it."""


@dataclass(frozen=True, slots=True)
class SpeechWentOn:
    """The speech over the agent's has lasted this long, as `Duck` requested. Posted about every 100 ms, and before its
    pause.
    """

    voiced_ms: int
    """From its onset to its last voiced sample, in ms, without what can only be the agent's own echo."""

    echoes: bool = False
    """Its latest second resembles what the agent is saying."""

    nonlexical: bool = True
    """It may be only a hum: no sound that makes it words was found. That is decided at a pause, and this event comes
    before one.
    """


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """The user has been silent for a moment (about 80 ms); the turn may or may not be over."""

    last_voiced_ms: int
    """The last voiced sample. This instant, not its detection, is a turn's t0."""

    audio_end_ms: int
    """The same instant as a position in the user's audio."""

    noticed_ms: int = 0
    """How long the silence had lasted in the user's audio when the VAD reported it, in ms; 0: not measured."""


@dataclass(frozen=True, slots=True)
class SilenceGrew:
    """The pause lasts. Counted in samples, or by the wall clock when frames stop coming."""

    silence_ms: int


@dataclass(frozen=True, slots=True)
class EndpointScored:
    """A model outside the core has judged whether the user has finished: evidence for a strategy that knows it."""

    last_voiced_ms: int
    """The pause that was judged, as in its `SpeechPaused`. A score of another pause changes nothing."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class SilenceCommitted:
    """The audio up to here counts as a turn without speech, as `CommitSilence` requested."""

    audio_end_ms: int
    """A position in the user's audio."""


# --- STT --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TranscriberConnected:
    """The STT has its connection, which stays open between utterances."""

    took_ms: int
    """How long connecting took, in ms."""

    hidden_ms: int
    """How much of that was over when the current utterance began, in ms; all of it if there is none."""


@dataclass(frozen=True, slots=True)
class TranscriberChanged:
    """The session's STT provider changed. The new provider also transcribes what was said of the utterance before."""

    utterance: int
    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation"]
    why: str


@dataclass(frozen=True, slots=True)
class TranscriptGrew:
    """The interim text of the utterance so far; may change."""

    utterance: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptFinished:
    """The utterance's text up to that flush (0: the transcriber ended it by itself)."""

    utterance: int
    flush: int
    text: str
    language: str | None = None
    provider: str = ""
    audio_ms: int = 0
    """How much audio the transcriber was given since its text before, in ms."""


@dataclass(frozen=True, slots=True)
class TranscriberFailed:
    """The STT provider refused, stalled or failed; no more text of this utterance will come."""

    utterance: int
    provider: str
    why: str


# --- client requests --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The session's settings are now these."""

    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The client ends the user's turn."""

    event_id: str | None
    buffered_ms: int
    """How much audio has come since the last commit or clear, in ms."""

    last_voiced_ms: int | None
    """The last voiced sample in it, or None when there is none."""

    last_voiced_audio_ms: int | None = None
    """The same instant as a position in the user's audio."""


@dataclass(frozen=True, slots=True)
class ClearRequested:
    """The client clears the audio that is not committed."""

    event_id: str | None


@dataclass(frozen=True, slots=True)
class ReplyRequested:
    """The client requests a reply now."""

    event_id: str | None
    reply: ReplySettings


@dataclass(frozen=True, slots=True)
class GreetingDue:
    """The client is there, and the agent speaks first."""

    text: str
    """What it says; empty: the LLM decides."""

    interruptible: bool = True
    """Whether the user's speech may stop it."""

    at_any_time: bool = False
    """Whether it may come after other turns: it is left out only while somebody speaks or is about to."""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A function that `RunTool` started is over."""

    turn: int
    call_id: str
    output: str
    """The result, or for the LLM why there is none."""

    outcome: ToolResult = "returned"
    final: bool = False
    """The call of the user ends with this reply: another follows only if it has said nothing."""

    revision: int | None = None
    """As in its `RunTool`."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The client cancels the running reply (or the reply of that id)."""

    event_id: str | None
    response_id: str | None


@dataclass(frozen=True, slots=True)
class ItemCreateRequested:
    """The client adds an item to the conversation. With an empty `item.id` the server chooses the id."""

    event_id: str | None
    item: Item
    after: str | None
    """The id of the item to put it after, `root` for the front, None for the end."""

    recording_ms: int = 0
    """The length of the recordings in it, which are to be transcribed, in ms; 0: there are none."""


@dataclass(frozen=True, slots=True)
class ItemTruncateRequested:
    """The client reports how much of an audio reply was played."""

    event_id: str | None
    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemDeleteRequested:
    """The client deletes an item."""

    event_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemRetrieveRequested:
    """The client requests an item."""

    event_id: str | None
    item_id: str


@dataclass(frozen=True, slots=True)
class PlaybackReported:
    """The client reports what its loudspeaker has done. Numbers are as the client sends them, true or not."""

    item_id: str
    played_ms: int
    """How much of the item's audio was played, from its beginning, in ms."""

    buffered_ms: int
    """Received and not played yet, in ms."""

    input_ms: int
    """How much of the user's audio the client had captured at that instant, in ms."""

    carrier_estimated_ms: int | None = None
    """How long this audio was on its way to a phone carrier and its report on the way back, as estimated, in ms; None:
    no phone carrier plays it, or this report allows no estimate."""


# --- LLM --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplyEvent:
    """An event of one revision of a turn's reply. A core that has dropped the revision ignores it."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class ModelRequested(ReplyEvent):
    """The request was sent to the LLM."""

    provider: str


@dataclass(frozen=True, slots=True)
class SpeechRequested(ReplyEvent):
    """The reply was requested of a speech-to-speech model, which has the user's audio."""

    provider: str


@dataclass(frozen=True, slots=True)
class ModelConnected(ReplyEvent):
    """The request has a connection to its provider, reused or new."""


@dataclass(frozen=True, slots=True)
class ModelJoined(ReplyEvent):
    """The request was sent to another LLM too."""

    provider: str
    role: Literal["hedge", "replacement", "continuation"]


@dataclass(frozen=True, slots=True)
class ModelChosen(ReplyEvent):
    """One of several LLMs answers, or continues the answer."""

    provider: str
    why: str

    pool: str = ""
    """The pool whose models might answer; empty: none has a name."""

    arm: str = ""
    """The arm of an A/B experiment, `experiment/pool`; empty: the request is in none."""


@dataclass(frozen=True, slots=True)
class ModelAttempted(ReplyEvent):
    """One of the requests made for the answer is over, used or not."""

    attempt: ModelAttempt


# --- TTS --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SynthesizerChanged(ReplyEvent):
    """Another TTS speaks from here on than the one that is first in the settings."""

    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation"]
    why: str
    n_chars: int = 0
    """How many characters of the text that had been given away it says, in place of the TTS before it."""


@dataclass(frozen=True, slots=True)
class SynthesisUnused(ReplyEvent):
    """A TTS was given this text in vain: another TTS was sooner."""

    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class CachedSpeechUsed(ReplyEvent):
    """The text was played from disk, without the TTS."""

    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class SynthesizerConnected(ReplyEvent):
    """The reply has a connection to its TTS provider, reused or new."""

    hidden_ms: int
    """How much of connecting was over when the reply began, in ms: the part that did not wait for the reply."""


# --- reply ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelTextReceived(ReplyEvent):
    """The LLM sent text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallGrew(ReplyEvent):
    """The LLM calls a function; `arguments` is the piece that came now, perhaps empty."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokensCounted(ReplyEvent):
    """The tokens of the answer, as the provider counts them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int = 0
    usd: float | None = None
    """What they cost, where a speech-to-speech model has counted them, whose tokens have several prices; None: unknown.
    """


@dataclass(frozen=True, slots=True)
class ModelFinished(ReplyEvent):
    """The LLM's answer is complete."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class ClauseHandedOver(ReplyEvent):
    """A clause was given to the TTS."""

    clause: int
    text: str
    provider: str
    shortened: bool = False
    """It was cut at a word, as `ShortenClause` requested."""

    n_chars: int | None = None
    """Number of characters as spoken; None: as many as are written."""


@dataclass(frozen=True, slots=True)
class SoundArrived(ReplyEvent):
    """The TTS sent audio."""

    clause: int
    duration_ms: int
    audible_after_ms: int | None
    """How far into this audio its first audible sample lies, in ms; None when it is all silence."""

    word_starts_ms: tuple[int, ...] = ()
    """Where words of this audio begin, in all of the clause's audio."""


@dataclass(frozen=True, slots=True)
class OutputSent(ReplyEvent):
    """Output of the reply was written to the client's socket: audio, or text when `duration_ms` is 0."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class FillerSent(ReplyEvent):
    """Audio of the filler that `SayFiller` requested was written to the client's socket."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class PhrasesReady:
    """The audio of exactly these phrases is cached, so that they can be played at once."""

    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class SynthesisFinished(ReplyEvent):
    """All audio of the reply has come (a text-only reply has none, and posts this with its end)."""


@dataclass(frozen=True, slots=True)
class StageFailed(ReplyEvent):
    """A provider of the reply refused, stalled or failed."""

    stage: StageName
    provider: str
    why: str


# --- time and connection ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnowledgeSearched(ReplyEvent):
    """The agent's documents were searched for this reply; the request to the LLM follows."""

    found: KnowledgeUse


@dataclass(frozen=True, slots=True)
class HistorySummarized:
    """The summary that `SummarizeHistory` requested has come, at a cost of `usd`; empty: it failed."""

    number: int
    text: str
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class TimePassed:
    """An instant that `WakeAt` requested has come."""


@dataclass(frozen=True, slots=True)
class EventLoopStalled:
    """Our own event loop was blocked: events of that time are late, and their instants do not show it."""

    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is lost, and the client may resume. Until then no audio comes in and nothing can be sent."""


@dataclass(frozen=True, slots=True)
class ConnectionResumed:
    """The client has resumed on another connection."""

    missed: tuple[tuple[int, int], ...] = ()
    """(turn, ms of its audio): what was sent and had not arrived. It has been sent again."""


@dataclass(frozen=True, slots=True)
class UserLeft:
    """The session is over."""

    why: str


Event = (
    SpeechStarted
    | SpeechWentOn
    | SpeechPaused
    | SilenceGrew
    | EndpointScored
    | SilenceCommitted
    | TranscriptGrew
    | TranscriptFinished
    | TranscriberFailed
    | TranscriberConnected
    | TranscriberChanged
    | SettingsChanged
    | CommitRequested
    | ClearRequested
    | ReplyRequested
    | ConversationRestored
    | ReplyOwed
    | GreetingDue
    | ToolFinished
    | CancelRequested
    | ItemCreateRequested
    | ItemTruncateRequested
    | ItemDeleteRequested
    | ItemRetrieveRequested
    | PlaybackReported
    | ModelRequested
    | SpeechRequested
    | ModelConnected
    | ModelJoined
    | ModelChosen
    | ModelAttempted
    | ModelTextReceived
    | CallGrew
    | TokensCounted
    | ModelFinished
    | ClauseHandedOver
    | SynthesizerChanged
    | SynthesizerConnected
    | SynthesisUnused
    | CachedSpeechUsed
    | SoundArrived
    | OutputSent
    | FillerSent
    | PhrasesReady
    | SynthesisFinished
    | StageFailed
    | KnowledgeSearched
    | HistorySummarized
    | TimePassed
    | EventLoopStalled
    | ConnectionLost
    | ConnectionResumed
    | UserLeft
)
