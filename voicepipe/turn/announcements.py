"""What the core tells the client, before any dialect of the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.conversation import FunctionCall, Item, Message
from voicepipe.turn.record import StageSpan
from voicepipe.turn.settings import ReplySettings

OutputItem = Message | FunctionCall
"""What a reply is made of."""

ResponseStatus = Literal["completed", "cancelled", "incomplete", "failed"]

KeptBy = Literal["acknowledgement", "echo", "no_words"]
"""Why a voice over the agent's did not take the floor, so far."""

TakenBy = Literal["stop_word", "words", "sustained", "client"]
"""Why it did."""


@dataclass(frozen=True, slots=True)
class CallerSpoke:
    """The caller began to speak; what is said will be the item `item_id`."""

    item_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class CallerStopped:
    """The caller's turn is over."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCommitted:
    """The caller's audio has become the item `item_id`."""

    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class SilenceTimedOut:
    """Nobody has spoken for long; that silence, between two positions in the caller's audio, will be the item."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCleared:
    """The audio that was not committed is forgotten."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """A whole item joined the conversation (the wire says added, then done)."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemShown:
    """An item, as the client asked to see it."""

    item: Item


@dataclass(frozen=True, slots=True)
class ItemCut:
    """A spoken reply was cut to what was heard."""

    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemForgotten:
    """An item left the conversation."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TranscriptDelta:
    """More of what the caller says; what was sent before stands."""

    item_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class TranscriptDone:
    """All of what the caller said in this item."""

    item_id: str
    transcript: str
    speech_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptFailed:
    """The caller's words in this item could not be had."""

    item_id: str
    why: str


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """A reply is being made."""

    response_id: str
    reply: ReplySettings
    turn_id: str


@dataclass(frozen=True, slots=True)
class OutputStarted:
    """An output item of the reply begins; deltas for it follow.

    `item` is an assistant message or a function call in progress.
    """

    response_id: str
    item: OutputItem
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """The reply is over. Exactly one for each `ResponseStarted`."""

    response_id: str
    status: ResponseStatus
    reason: str = ""
    """`turn_detected` or `client_cancelled`; `max_output_tokens` or `content_filter`; for a failure its error code."""

    message: str = ""
    """For a failure: what happened, in words for the client."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AgentDucked:
    """Somebody speaks over this reply: lower its voice. Told only in sessions that can."""

    turn_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class AgentRestored:
    """They did not interrupt: raise it again. Told likewise."""

    turn_id: str
    item_id: str
    reason: KeptBy
    after_ms: int
    """Since the voice was lowered."""


@dataclass(frozen=True, slots=True)
class AgentYielded:
    """They did: the reply is over. Told likewise."""

    turn_id: str
    item_id: str
    reason: TakenBy
    after_ms: int


@dataclass(frozen=True, slots=True)
class TurnMarked:
    """An instant of a running turn is known, or known better. Told only in sessions that watch their turns."""

    turn_id: str
    revision: int
    mark: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class StageJudged:
    """A stage of a running turn has taken this long. Told likewise."""

    turn_id: str
    revision: int
    span: StageSpan


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """Something was done to save the budget. Told likewise."""

    turn_id: str
    revision: int
    action: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A client's event could not be done; the session lives on."""

    event_id: str | None
    code: str
    message: str
    field: str | None = None


Announcement = (
    CallerSpoke
    | CallerStopped
    | AudioCommitted
    | SilenceTimedOut
    | AudioCleared
    | ItemAdded
    | ItemShown
    | ItemCut
    | ItemForgotten
    | TranscriptDelta
    | TranscriptDone
    | TranscriptFailed
    | ResponseStarted
    | OutputStarted
    | ResponseEnded
    | AgentDucked
    | AgentRestored
    | AgentYielded
    | TurnMarked
    | StageJudged
    | ActionTaken
    | Refused
)
