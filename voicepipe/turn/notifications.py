"""Notifications from the core to the client, independent of any wire dialect."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

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


class InputSpeechStarted(Struct, frozen=True):
    """The user began to speak; the item `item_id` will hold what is said."""

    item_id: str
    audio_start_ms: int


class InputSpeechStopped(Struct, frozen=True):
    """The user's turn is over."""

    item_id: str
    audio_end_ms: int


class AudioCommitted(Struct, frozen=True):
    """The user's audio has become the item `item_id`."""

    item_id: str
    previous_item_id: str | None


class SilenceTimedOut(Struct, frozen=True):
    """Neither side has spoken for the idle timeout. The silence between two positions in the user's audio will be the
    item.
    """

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class AudioCleared(Struct, frozen=True):
    """The audio that was not committed is dropped."""


class ItemAdded(Struct, frozen=True):
    """A whole item joined the conversation (on the wire: added, then done)."""

    item: Item
    previous_item_id: str | None


class ItemRetrieved(Struct, frozen=True):
    """An item, in answer to the client's request."""

    item: Item


class ItemTruncated(Struct, frozen=True):
    """An audio reply was cut to what the user heard."""

    item_id: str
    content_index: int
    audio_end_ms: int


class ItemDeleted(Struct, frozen=True):
    """An item left the conversation."""

    item_id: str


class TranscriptDelta(Struct, frozen=True):
    """More text of the user's speech. Text sent before does not change."""

    item_id: str
    delta: str


class TranscriptDone(Struct, frozen=True):
    """The whole transcript of this item."""

    item_id: str
    transcript: str
    speech_ms: int


class TranscriptFailed(Struct, frozen=True):
    """The item could not be transcribed."""

    item_id: str
    why: str


class ResponseStarted(Struct, frozen=True):
    """A reply is being generated."""

    response_id: str
    reply: ReplySettings
    turn_id: str


class OutputStarted(Struct, frozen=True):
    """An output item of the reply begins; deltas for it follow.

    `item` is an assistant message or a function call in progress.
    """

    response_id: str
    item: OutputItem
    previous_item_id: str | None


class ToolApproved(Struct, frozen=True):
    """A call that the client has approved runs now, as an item of its own."""

    call: FunctionCall
    previous_item_id: str | None


class ToolEnded(Struct, frozen=True):
    """A call that the server ran is over."""

    call: FunctionCall


class ResponseEnded(Struct, frozen=True):
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


class AgentDucked(Struct, frozen=True):
    """A user speaks over this reply: lower its volume. Sent only in sessions whose client supports it."""

    turn_id: str
    item_id: str


class AgentUnducked(Struct, frozen=True):
    """There was no interruption: restore the volume. Sent in the same sessions only."""

    turn_id: str
    item_id: str
    reason: DismissReason
    after_ms: int
    """Time since the volume was lowered, in ms."""


class AgentInterrupted(Struct, frozen=True):
    """The user interrupted: the reply is over. Sent in the same sessions only."""

    turn_id: str
    item_id: str
    reason: InterruptReason
    after_ms: int


class TurnMarked(Struct, frozen=True):
    """A mark of a running turn is known, or known more exactly. Sent only in sessions that watch their turns."""

    turn_id: str
    revision: int
    mark: str
    at_ms: int


class StageJudged(Struct, frozen=True):
    """A stage of a running turn has taken this long. Sent in the same sessions only."""

    turn_id: str
    revision: int
    span: StageSpan


class ActionTaken(Struct, frozen=True):
    """An action was taken to save the budget. Sent in the same sessions only."""

    turn_id: str
    revision: int
    action: str


class Refused(Struct, frozen=True):
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
