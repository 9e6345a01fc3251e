"""The events: what has happened. Past tense, frozen, small; instants are session milliseconds.

Those of a reply are in `reply_events`, those of a restored session in `restored_events`. All are named here.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from voicepipe.turn.conversation import Item
from voicepipe.turn.record.values import ToolResult
from voicepipe.turn.reply_events import CachedSpeechUsed as CachedSpeechUsed
from voicepipe.turn.reply_events import CallGrew as CallGrew
from voicepipe.turn.reply_events import ClauseHandedOver as ClauseHandedOver
from voicepipe.turn.reply_events import FillerSent as FillerSent
from voicepipe.turn.reply_events import FinishReason as FinishReason
from voicepipe.turn.reply_events import KnowledgeSearched as KnowledgeSearched
from voicepipe.turn.reply_events import ModelAttempted as ModelAttempted
from voicepipe.turn.reply_events import ModelChosen as ModelChosen
from voicepipe.turn.reply_events import ModelConnected as ModelConnected
from voicepipe.turn.reply_events import ModelFinished as ModelFinished
from voicepipe.turn.reply_events import ModelJoined as ModelJoined
from voicepipe.turn.reply_events import ModelRequested as ModelRequested
from voicepipe.turn.reply_events import ModelTextReceived as ModelTextReceived
from voicepipe.turn.reply_events import OutputSent as OutputSent
from voicepipe.turn.reply_events import ReplyEvent as ReplyEvent
from voicepipe.turn.reply_events import SoundArrived as SoundArrived
from voicepipe.turn.reply_events import SpeechRequested as SpeechRequested
from voicepipe.turn.reply_events import StageFailed as StageFailed
from voicepipe.turn.reply_events import StageName as StageName
from voicepipe.turn.reply_events import SynthesisFinished as SynthesisFinished
from voicepipe.turn.reply_events import SynthesisUnused as SynthesisUnused
from voicepipe.turn.reply_events import SynthesizerChanged as SynthesizerChanged
from voicepipe.turn.reply_events import SynthesizerConnected as SynthesizerConnected
from voicepipe.turn.reply_events import TokensCounted as TokensCounted
from voicepipe.turn.restored_events import ConversationRestored as ConversationRestored
from voicepipe.turn.restored_events import ReplyRestored as ReplyRestored
from voicepipe.turn.settings import ReplySettings, TurnSettings

# --- VAD --------------------------------------------------------------------------------------


class SpeechStarted(Struct, frozen=True):
    """The user speaks, for the first time or again."""

    onset_ms: int
    audio_start_ms: int
    """The same instant as a position in the user's audio, including the padding kept before it."""


class SpeechWentOn(Struct, frozen=True):
    """The speech over the agent's has lasted this long, as `Duck` requested. Posted about every 100 ms, and before its
    pause.
    """

    voiced_ms: int
    """From its onset to its last voiced sample, in ms, without what can only be the agent's own echo."""

    echoes: bool = False
    """Its latest second resembles what the agent is saying."""

    nonlexical: bool = True
    """It may be nonlexical, such as "mhm": no sound that makes it words was found. That is decided at a pause, and this
    event comes before one.
    """


class SpeechPaused(Struct, frozen=True):
    """The user has been silent for a moment (about 80 ms); the turn may or may not be over."""

    last_voiced_ms: int
    """The last voiced sample. This instant, not its detection, is a turn's t0."""

    audio_end_ms: int
    """The same instant as a position in the user's audio."""

    noticed_ms: int = 0
    """How long the silence had lasted in the user's audio when the VAD reported it, in ms; 0: not measured."""


class SilenceGrew(Struct, frozen=True):
    """The pause lasts. Counted in samples, or by the wall clock when frames stop coming."""

    silence_ms: int


class EndpointScored(Struct, frozen=True):
    """A model outside the core has judged whether the user has finished: evidence for a strategy that uses it."""

    last_voiced_ms: int
    """The pause that was judged, as in its `SpeechPaused`. A score of another pause changes nothing."""

    name: str
    score: float


class SilenceCommitted(Struct, frozen=True):
    """The audio up to here counts as a turn without speech, as `CommitSilence` requested."""

    audio_end_ms: int
    """A position in the user's audio."""


# --- STT --------------------------------------------------------------------------------------


class TranscriberConnected(Struct, frozen=True):
    """The STT has its connection, which stays open between utterances."""

    took_ms: int
    """How long connecting took, in ms."""

    hidden_ms: int
    """How much of that was over when the current utterance began, in ms; all of it if there is none."""


class TranscriberChanged(Struct, frozen=True):
    """The session's STT provider changed. The new provider also transcribes what was said of the utterance before."""

    utterance: int
    provider: str
    role: Literal["primary", "hedge", "replacement", "continuation"]
    why: str
    waited_for: str = ""
    """The STT that was waited for until now; empty: there was none."""


class TranscriptGrew(Struct, frozen=True):
    """The interim text of the utterance so far; may change."""

    utterance: int
    text: str


class TranscriptFinished(Struct, frozen=True):
    """The utterance's text up to that flush (0: the transcriber ended it by itself)."""

    utterance: int
    flush: int
    text: str
    language: str | None = None
    provider: str = ""
    audio_ms: int = 0
    """How much audio the transcriber was given since its text before, in ms."""


class TranscriberFailed(Struct, frozen=True):
    """The STT provider refused, stalled or failed; no more text of this utterance will come."""

    utterance: int
    provider: str
    why: str


# --- client requests --------------------------------------------------------------------------


class SettingsChanged(Struct, frozen=True):
    """The session's settings are now these."""

    settings: TurnSettings


class CommitRequested(Struct, frozen=True):
    """The client ends the user's turn."""

    event_id: str | None
    buffered_ms: int
    """How much audio has come since the last commit or clear, in ms."""

    last_voiced_ms: int | None
    """The last voiced sample in it, or None when there is none."""

    last_voiced_audio_ms: int | None = None
    """The same instant as a position in the user's audio."""


class ClearRequested(Struct, frozen=True):
    """The client clears the audio that is not committed."""

    event_id: str | None


class ReplyRequested(Struct, frozen=True):
    """The client requests a reply now."""

    event_id: str | None
    reply: ReplySettings


class CancelRequested(Struct, frozen=True):
    """The client cancels the running reply (or the reply of that id)."""

    event_id: str | None
    response_id: str | None


class ItemCreateRequested(Struct, frozen=True):
    """The client adds an item to the conversation. With an empty `item.id` the server chooses the id."""

    event_id: str | None
    item: Item
    after: str | None
    """The id of the item to put it after, `root` for the front, None for the end."""

    recording_ms: int = 0
    """The length of the recordings in it, which are to be transcribed, in ms; 0: there are none."""


class ItemTruncateRequested(Struct, frozen=True):
    """The client reports how much of an audio reply was played."""

    event_id: str | None
    item_id: str
    content_index: int
    audio_end_ms: int


class ItemDeleteRequested(Struct, frozen=True):
    """The client deletes an item."""

    event_id: str | None
    item_id: str


class ItemRetrieveRequested(Struct, frozen=True):
    """The client requests an item."""

    event_id: str | None
    item_id: str


class PlaybackReported(Struct, frozen=True):
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


# --- agent ------------------------------------------------------------------------------------


class GreetingDue(Struct, frozen=True):
    """The client is there, and the agent speaks first."""

    text: str
    """Its text; empty: the LLM decides."""

    interruptible: bool = True
    """Whether the user's speech may stop it."""

    at_any_time: bool = False
    """Whether it may come after other turns: it is left out only while the user or the agent speaks or is about to."""


class PhrasesReady(Struct, frozen=True):
    """The audio of exactly these phrases is cached, so that they can be played at once."""

    texts: frozenset[str]


class ToolFinished(Struct, frozen=True):
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


class HistorySummarized(Struct, frozen=True):
    """The summary that `SummarizeHistory` requested has come, at a cost of `usd`; empty: it failed."""

    number: int
    text: str
    usd: float = 0.0


# --- time and connection ----------------------------------------------------------------------


class TimePassed(Struct, frozen=True):
    """An instant that `WakeAt` requested has come."""


class EventLoopStalled(Struct, frozen=True):
    """Our own event loop was blocked: events of that time are late, and their instants do not show it."""

    from_ms: int
    until_ms: int


class ConnectionLost(Struct, frozen=True):
    """The connection is lost, and the client may resume. Until then no audio comes in and nothing can be sent."""


class ConnectionResumed(Struct, frozen=True):
    """The client has resumed on another connection."""

    missed: tuple[tuple[int, int], ...] = ()
    """(turn, ms of its audio): what was sent and had not arrived. It has been sent again."""


class UserLeft(Struct, frozen=True):
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
    | ReplyRestored
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
