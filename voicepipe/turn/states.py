"""The states of a turn: two machines and a gate, whose handlers are in `core`, their sub-states, and the moves.

Which event may cause which move is in a table of the tests, `voicepipe.testing.transitions`.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from msgspec import Struct


class UserState(Enum):
    """The user's state in an utterance."""

    QUIET = "quiet"
    """No utterance is open; the agent speaks, or neither side does."""

    SPEAKING = "speaking"
    HOLDING = "holding"
    """A short silence: work on the answer is allowed, output is not."""

    ENDED = "ended"
    """The turn is over; nothing of the reply is audible yet, so it can still be revised."""


class SpeechEnd(Enum):
    """The two sub-states of HOLDING: the evidence for it."""

    DETECTED = "detected"
    """The VAD has detected the pause."""

    REPORTED = "reported"
    """The STT alone reports an end of speech. Without a pause in the VAD soon, the user has gone on."""


class AgentState(Enum):
    """The agent's state in a reply."""

    IDLE = "idle"
    PREPARING = "preparing"
    """The request was sent to the LLM."""

    READY = "ready"
    """There is output, held by the release gate."""

    SPEAKING = "speaking"
    """Until the audio has been played at the client, which is seconds after the last of it was sent."""

    DUCKED = "ducked"
    """The same while the user speaks over the agent and an interruption is undecided, for a moment."""

    INTERRUPTED = "interrupted"
    """The user interrupted; the reply is being cancelled."""


class Gate(Enum):
    """The release gate of a reply."""

    HELD = "held"
    """Nothing of the reply leaves: its turn is not over, or it is not ready."""

    OPEN = "open"
    """It leaves as it comes; function calls wait until the end of the turn is certain."""

    SUSPENDED = "suspended"
    """The user's voice has stopped a reversible reply: nothing leaves until it is known whether the voice has words."""


class QueuePlace(Enum):
    """The place of a turn in the queue of replies, until its reply starts or it is dropped."""

    UNANSWERED = "unanswered"
    """It is over, and no reply was requested; `response.create` answers it. Only the latest such turn stands here."""

    REQUESTED = "requested"
    """Its reply starts when all that the user has said is transcribed."""

    WAITING = "waiting"
    """It is over; its reply starts when its transcript is known and no other reply is being made."""


class Revisable(Enum):
    """Whether the user's further speech may still change a turn's question, and with it the reply."""

    OPEN = "open"
    """The user may go on: what is said belongs to the question, and the reply is made again."""

    OVERLONG = "overlong"
    """Its deadline ended it: further speech is in the next turn, or noise would never be answered."""

    FIXED = "fixed"
    """Nothing changes it any more: it has another cause than the user's speech, or is answered as it is."""


class TranscriptState(Enum):
    """The transcript of an utterance, as of the user's latest pause in it."""

    PENDING = "pending"
    """The text is still to come."""

    PROVISIONAL = "provisional"
    """The final text is late: the interim text counts until it comes, or is lost."""

    FINAL = "final"
    """The text is known, and may be empty; before the first pause there is none."""

    LOST = "lost"
    """No text is awaited any more: the STT has failed, or sent none in time."""


class OverlapState(Enum):
    """The evidence on speech over the agent's, until it is an interruption or is dropped."""

    UNDECIDED = "undecided"
    """The agent is ducked, for a moment. Nothing new may begin."""

    TOLERATED = "tolerated"
    """Nothing has shown an interruption so far; the agent goes on, and later evidence still counts."""

    UNDECIDED_OVER = "undecided_over"
    """The user is silent again before the agent's volume is restored. Nothing new may begin."""

    OVER = "over"
    """The user is silent again; only the words are still to come."""


State = TypeVar("State", UserState, AgentState)


class Move(Struct, frozen=True):
    """A move of one machine from one state to another, caused by that kind of event."""

    source: UserState | AgentState
    event: type
    target: UserState | AgentState

    def __str__(self) -> str:
        machine = "user" if isinstance(self.source, UserState) else "agent"
        return f"{machine} {self.source.value} -> {self.target.value} by {self.event.__name__}"
