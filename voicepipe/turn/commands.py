"""The commands: what the core requests. Imperative, frozen, small.

The code that carries out a command never waits: a command starts, stops or sends, and its result is an event.
"""

from __future__ import annotations

from msgspec import Struct

from voicepipe.turn.conversation import Item
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings


class BeginUtterance(Struct, frozen=True):
    """Count the user's audio as this utterance from here on (with the padding kept before speech)."""

    utterance: int


class EndUtterance(Struct, frozen=True):
    """End this utterance, which is committed: what the user says from here on is not part of it."""

    utterance: int


class TranscribeRecording(Struct, frozen=True):
    """Transcribe the recordings of the item that is being created, as this utterance with one pause."""

    utterance: int


class DropUtterance(Struct, frozen=True):
    """Drop what was said in this utterance: the next speech starts a new utterance."""

    utterance: int


class Duck(Struct, frozen=True):
    """Duck this turn's reply, since the user speaks over it; report with `SpeechWentOn` how long the user speaks."""

    turn: int


class FlushTranscript(Struct, frozen=True):
    """Request the utterance's text so far from the transcriber."""

    utterance: int
    flush: int


class DropAudio(Struct, frozen=True):
    """Drop the user's audio that is not committed, and the utterance with it."""


class CommitSilence(Struct, frozen=True):
    """Count the user's audio up to here as a turn, since neither side has spoken for long; post `SilenceCommitted`."""


class ReplyCommand(Struct, frozen=True):
    """A command about one revision of a turn's reply."""

    turn: int
    revision: int


class StartReply(ReplyCommand, frozen=True):
    """Send the request to the LLM and its text to the TTS. The output is held until `OpenGate`."""

    item_id: str
    """The id that the reply's message will have; `call_item_id` derives the ids of its function calls from it."""

    reply: ReplySettings
    items: tuple[Item, ...]
    """The conversation that the LLM reads."""

    first_output_ms: int | None = None
    """How long after the request the first text is needed, in ms, where that is less than usual."""

    words: str = ""
    """Text to speak without a request to the LLM; empty: the LLM answers."""


class SummarizeHistory(Struct, frozen=True):
    """Summarize these items, which are about to leave the LLM's history; post `HistorySummarized`. No turn waits."""

    number: int
    items: tuple[Item, ...]


class OpenGate(ReplyCommand, frozen=True):
    """Release this reply's output to the client, held output first."""

    response_id: str
    reversible: bool = False
    """Retain the audio, so that `ContinueReply` can send it again, until `FinalizeReply`."""

    holds_calls: bool = False
    """Hold the function calls until `ReleaseCalls`."""


class ReleaseCalls(ReplyCommand, frozen=True):
    """Release this reply's function calls, held ones first."""


class RunTool(Struct, frozen=True):
    """Run this function of the server; post `ToolFinished` with the same `revision`."""

    turn: int
    call_id: str
    name: str
    arguments: str
    revision: int | None = None
    """None: the end of the turn can no longer be taken back. Otherwise the function runs early, for this revision of
    the reply: it has no side effects.
    """


class CancelTool(Struct, frozen=True):
    """Cancel a function that runs; its `ToolFinished` counts no more."""

    turn: int
    call_id: str
    revision: int | None = None
    """As in its `RunTool`."""


class SuspendReply(ReplyCommand, frozen=True):
    """Stop sending a reversible reply, and drop what it has queued. The LLM and the TTS go on; what they produce is
    held.
    """


class ContinueReply(ReplyCommand, frozen=True):
    """Go on with a suspended reply, as another revision and another response: a sound without words had stopped it.

    `revision` is the one that was suspended.
    """

    next_revision: int
    response_id: str
    text: str
    """The text from the word at which it was stopped, as far as the LLM has produced it."""

    from_ms: int
    """Where that word begins in the reply's audio."""

    reversible: bool = False
    holds_calls: bool = False
    """As in `OpenGate`."""


class FinalizeReply(ReplyCommand, frozen=True):
    """Drop the audio that was retained for this reply: it can no longer be taken back."""


class ShortenClause(ReplyCommand, frozen=True):
    """Send the text so far, up to a whole word, to the TTS: no clause of this reply has closed for long."""


class SayFiller(ReplyCommand, frozen=True):
    """Play this filler, whose audio is ready, while this reply is awaited; post `FillerSent` as its audio is sent."""

    response_id: str
    words: str


class StopReply(ReplyCommand, frozen=True):
    """Cancel the LLM and the TTS of this reply, and drop what it has queued."""


class Notify(Struct, frozen=True):
    """Send a notification to the client."""

    what: Notification


class WakeAt(Struct, frozen=True):
    """Post `TimePassed` at that instant. Only the latest command counts."""

    at_ms: int


class EndSession(Struct, frozen=True):
    """End the session: the user has not answered the agent's question whether anyone is there."""


class StoreRecord(Struct, frozen=True):
    """Store this turn's record; a later one of the same id replaces it."""

    record: TurnRecord


class ReportOverrun(Struct, frozen=True):
    """Log once that a stage took longer than its limit."""

    turn_id: str
    stage: str
    owner: str
    over_ms: int


class ReportStuck(Struct, frozen=True):
    """Log that the core ended work that no deadline would have ended."""

    user: str
    agent: str
    """The states that the two machines were in."""


class ReportStrategyFailure(Struct, frozen=True):
    """Log that an endpointing strategy failed: `silence` is in its place for the rest of the session."""

    strategy: str
    why: str
    """Without words of the user."""


Command = (
    BeginUtterance
    | EndUtterance
    | TranscribeRecording
    | DropUtterance
    | Duck
    | FlushTranscript
    | DropAudio
    | CommitSilence
    | StartReply
    | SummarizeHistory
    | OpenGate
    | ReleaseCalls
    | RunTool
    | CancelTool
    | SuspendReply
    | ContinueReply
    | FinalizeReply
    | ShortenClause
    | SayFiller
    | StopReply
    | Notify
    | WakeAt
    | EndSession
    | StoreRecord
    | ReportOverrun
    | ReportStuck
    | ReportStrategyFailure
)


def call_item_id(item_id: str, index: int) -> str:
    """Return the id of a reply's function call item, from the id of its message."""
    return f"{item_id}_call{index}"
