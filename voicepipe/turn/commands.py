"""The orders: what the core wants done. Imperative, frozen, small.

Whoever carries them out never waits: an order starts, stops or sends, and what comes of it is a fact.
"""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.turn.announcements import Announcement
from voicepipe.turn.conversation import Item
from voicepipe.turn.record import TurnRecord
from voicepipe.turn.settings import ReplySettings


@dataclass(frozen=True, slots=True)
class BeginUtterance:
    """Count the caller's audio as this utterance from here on (with the padding kept before speech)."""

    utterance: int


@dataclass(frozen=True, slots=True)
class EndUtterance:
    """This utterance is committed: what the caller says from here on is not part of it."""

    utterance: int


@dataclass(frozen=True, slots=True)
class ForgetUtterance:
    """What was said in this utterance counts for nothing: the next voice starts anew."""

    utterance: int


@dataclass(frozen=True, slots=True)
class Duck:
    """The caller speaks over this turn's reply: tell with `SpeechWentOn` how long their voice lasts."""

    turn: int


@dataclass(frozen=True, slots=True)
class FlushTranscript:
    """Ask the transcriber for the utterance's text so far."""

    utterance: int
    flush: int


@dataclass(frozen=True, slots=True)
class DropAudio:
    """Forget the caller's audio that is not committed, and the utterance with it."""


@dataclass(frozen=True, slots=True)
class CommitSilence:
    """Nobody has spoken for long: count the caller's audio up to here as a turn, and post `SilenceCommitted`."""


@dataclass(frozen=True, slots=True)
class StartReply:
    """Ask the model and give its words to the voice. The output is held until `OpenGate`."""

    turn: int
    revision: int
    item_id: str
    """The id that the reply's message will have; its calls are named from it by `call_item_id`."""

    reply: ReplySettings
    items: tuple[Item, ...]
    """The conversation that the model reads."""

    first_output_ms: int | None = None
    """How long after the question its first words are wanted, where that is less than usual."""

    words: str = ""
    """What to say, if nobody has to think of it: no model is asked."""


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Let this reply's output go to the client, what was held first."""

    turn: int
    revision: int
    response_id: str


@dataclass(frozen=True, slots=True)
class ShortenClause:
    """No clause of this reply has closed for long: let the voice have its words so far, up to a whole one."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class SayFiller:
    """Say these words now, whose sound is ready, while this reply is awaited; post `FillerSent` as they leave."""

    turn: int
    revision: int
    response_id: str
    words: str


@dataclass(frozen=True, slots=True)
class StopReply:
    """Cancel the model and the voice of this reply, and drop what it has queued."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell the client."""

    what: Announcement


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Post `TimePassed` at that instant. Only the latest counts."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """Store this turn's record; a later one of the same id replaces it."""

    record: TurnRecord


@dataclass(frozen=True, slots=True)
class NoteOverrun:
    """A stage took longer than its limit: say so once in the log."""

    turn_id: str
    stage: str
    owner: str
    over_ms: int


@dataclass(frozen=True, slots=True)
class NoteStuck:
    """Something was under way that nothing would have ended, and was ended: say so in the log."""

    caller: str
    agent: str
    """The states that the two machines were in."""


Order = (
    BeginUtterance
    | EndUtterance
    | ForgetUtterance
    | Duck
    | FlushTranscript
    | DropAudio
    | CommitSilence
    | StartReply
    | OpenGate
    | ShortenClause
    | SayFiller
    | StopReply
    | Announce
    | WakeAt
    | KeepRecord
    | NoteOverrun
    | NoteStuck
)


def call_item_id(item_id: str, index: int) -> str:
    """The id of a reply's function call item, from that of its message."""
    return f"{item_id}_call{index}"
