"""Notifications from the core to the client, independent of any wire dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.conversation import FunctionCall, Item, Message
from voicepipe.turn.record.values import FailedStage, StageSpan
from voicepipe.turn.settings import ReplySettings

OutputItem = Message | FunctionCall
"""An item that a reply consists of."""

ResponseStatus = Literal["completed", "cancelled", "incomplete", "failed"]

DismissReason = Literal["acknowledgement", "echo", "no_words"]
"""Why speech over the agent's has not become an interruption so far."""

InterruptReason = Literal["stop_word", "words", "sustained", "client"]
"""Why speech over the agent's became an interruption."""


@dataclass(frozen=True, slots=True)
class InputSpeechStarted:
    """The user began to speak; the item `item_id` will hold what is said."""

    item_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class InputSpeechStopped:
    """The user's turn is over."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCommitted:
    """The user's audio has become the item `item_id`."""

    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class SilenceTimedOut:
    """Neither side has spoken for the idle timeout. The silence between two positions in the user's audio will be the
    item.
    """

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCleared:
    """The audio that was not committed is dropped."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """A whole item joined the conversation (on the wire: added, then done)."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    """An item, in answer to the client's request."""

    item: Item


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """An audio reply was cut to what the user heard."""

    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """An item left the conversation."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TranscriptDelta:
    """More text of the user's speech. Text sent before does not change."""

    item_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class TranscriptDone:
    """The whole transcript of this item."""

    item_id: str
    transcript: str
    speech_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptFailed:
    """The item could not be transcribed."""

    item_id: str
    why: str


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """A reply is being generated."""

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
class ToolApproved:
    """A call that the client has approved runs now, as an item of its own."""

    call: FunctionCall
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A call that the server ran is over."""

    call: FunctionCall


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """The reply is over. Exactly one for each `ResponseStarted`."""

    response_id: str
    status: ResponseStatus
    reason: str = ""
    """`turn_detected` or `client_cancelled`; `max_output_tokens` or `content_filter`; for a failure its error code."""

    message: str = ""
    """For a failure: what happened, as text for the client."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    failed_stage: FailedStage | None = None
    """As in the turn's record."""


@dataclass(frozen=True, slots=True)
class AgentDucked:
    """A user speaks over this reply: lower its volume. Sent only in sessions whose client supports it."""

    turn_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class AgentUnducked:
    """There was no interruption: restore the volume. Sent in the same sessions only."""

    turn_id: str
    item_id: str
    reason: DismissReason
    after_ms: int
    """Time since the volume was lowered, in ms."""


@dataclass(frozen=True, slots=True)
class AgentInterrupted:
    """The user interrupted: the reply is over. Sent in the same sessions only."""

    turn_id: str
    item_id: str
    reason: InterruptReason
    after_ms: int


@dataclass(frozen=True, slots=True)
class TurnMarked:
    """A mark of a running turn is known, or known more exactly. Sent only in sessions that watch their turns."""

    turn_id: str
    revision: int
    mark: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class StageJudged:
    """A stage of a running turn has taken this long. Sent in the same sessions only."""

    turn_id: str
    revision: int
    span: StageSpan


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """An action was taken to save the budget. Sent in the same sessions only."""

    turn_id: str
    revision: int
    action: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A client's event was refused; the session goes on."""

    event_id: str | None
    code: str
    message: str
    field: str | None = None


Notification = (
    InputSpeechStarted
    | InputSpeechStopped
    | AudioCommitted
    | SilenceTimedOut
    | AudioCleared
    | ItemAdded
    | ItemRetrieved
    | ItemTruncated
    | ItemDeleted
    | TranscriptDelta
    | TranscriptDone
    | TranscriptFailed
    | ResponseStarted
    | OutputStarted
    | ToolApproved
    | ToolEnded
    | ResponseEnded
    | AgentDucked
    | AgentUnducked
    | AgentInterrupted
    | TurnMarked
    | StageJudged
    | ActionTaken
    | Refused
)
