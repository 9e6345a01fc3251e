"""The transition table of a turn, as data: which event may move which machine from which state to which.

There are two machines and one gate. `core` has the handlers; this module lists what they may do. The table drives
nothing: tests and `voicepipe replay` check each move against it, and the documentation draws it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from voicepipe.turn import events as e


class User(Enum):
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


class Agent(Enum):
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


class OverlapState(Enum):
    """The evidence on speech over the agent's, until it is an interruption or is dropped."""

    UNDECIDED = "undecided"
    """The agent is ducked, for a moment. Nothing new may begin."""

    TOLERATED = "tolerated"
    """Nothing has shown an interruption so far; the agent goes on, and later evidence still counts."""

    OVER = "over"
    """The user is silent again; only the words are still to come."""


State = TypeVar("State", User, Agent)
_Rows = dict[tuple[State, type], frozenset[State]]

_TRANSCRIPT = (e.TranscriptFinished, e.TranscriberFailed)
_OUTPUT = (e.ModelTextReceived, e.CallGrew, e.ModelFinished, e.SoundArrived, e.SynthesisFinished)
_COMPLETE = (e.ModelFinished, e.SynthesisFinished)
_BREAK = (e.StageFailed, e.TimePassed)
_PUT_AWAY = (e.CommitRequested, e.ClearRequested, e.SettingsChanged)
_REVISE = (e.SpeechStarted, e.TranscriptFinished, e.TranscriberFailed, e.ReplyRequested)
_TAKE = (e.SpeechWentOn, e.TranscriptGrew, e.TranscriptFinished, e.CommitRequested)
"""Events that may show that speech over the agent's is an interruption."""

_PLAYED = (*_BREAK, *_COMPLETE, e.CancelRequested, e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed)
"""Events that may end a reply that is being played; then the overlap becomes the user's turn."""

_GO_ON = (e.TimePassed, *_TRANSCRIPT, e.SilenceGrew, e.ClearRequested, e.SettingsChanged, e.UserLeft)
"""Events that may show that there was no interruption."""

_EVIDENCE = (e.SilenceGrew, e.EndpointScored)
_FREE = (*_BREAK, *_COMPLETE, *_TRANSCRIPT, *_EVIDENCE, e.CancelRequested, e.ReplyRequested, e.SettingsChanged)
"""Events that may let a reply begin: its turn is over, its words are known, the user seems to have finished, or the
reply before it is out of the way.
"""


def _rows(*groups: tuple[State, tuple[type, ...], State]) -> _Rows[State]:
    table: _Rows[State] = {}
    for source, events, target in groups:
        for event in events:
            table[source, event] = table.get((source, event), frozenset()) | {target}
    return table


USER_TRANSITIONS: Final[_Rows[User]] = _rows(
    (User.QUIET, (e.SpeechStarted,), User.SPEAKING),
    (User.QUIET, (*_TAKE, *_PLAYED), User.SPEAKING),
    (User.SPEAKING, (e.SpeechPaused, e.TranscriptFinished, e.TranscriptGrew, e.CommitRequested), User.HOLDING),
    (User.SPEAKING, _PLAYED, User.HOLDING),
    (User.SPEAKING, (e.TimePassed,), User.ENDED),
    (User.SPEAKING, (*_PUT_AWAY, e.UserLeft), User.QUIET),
    (User.HOLDING, (e.SpeechStarted, e.TimePassed), User.SPEAKING),
    (User.HOLDING, (e.SilenceGrew, e.TimePassed), User.ENDED),
    (User.HOLDING, (*_PUT_AWAY, e.UserLeft), User.QUIET),
    (User.ENDED, (e.SpeechStarted,), User.SPEAKING),
    (User.ENDED, (e.SpeechStarted, e.SilenceGrew, e.UserLeft, *_TRANSCRIPT), User.QUIET),
    (User.ENDED, (*_OUTPUT, *_BREAK, e.CancelRequested), User.QUIET),
)
"""(state, event) -> states that may follow. An event that is not named leaves the user's state unchanged."""

AGENT_TRANSITIONS: Final[_Rows[Agent]] = _rows(
    (Agent.IDLE, (e.SilenceCommitted,), Agent.PREPARING),
    (Agent.IDLE, _FREE, Agent.PREPARING),
    (Agent.PREPARING, _OUTPUT, Agent.READY),
    (Agent.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.UserLeft), Agent.IDLE),
    (Agent.READY, (*_OUTPUT, e.SilenceGrew, e.TimePassed), Agent.SPEAKING),
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.UserLeft), Agent.IDLE),
    (Agent.SPEAKING, (*_BREAK, *_COMPLETE, e.SilenceGrew, e.OutputSent), Agent.IDLE),
    (
        Agent.SPEAKING,
        (e.CancelRequested, e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed, e.UserLeft),
        Agent.IDLE,
    ),
    (Agent.SPEAKING, (e.SpeechStarted,), Agent.DUCKED),
    (Agent.DUCKED, _GO_ON, Agent.SPEAKING),
    (Agent.DUCKED, _PLAYED, Agent.IDLE),
    (Agent.DUCKED, _TAKE, Agent.INTERRUPTED),
    (Agent.SPEAKING, (e.SpeechStarted, *_TAKE), Agent.INTERRUPTED),
    (Agent.INTERRUPTED, (e.SpeechStarted, *_TAKE), Agent.IDLE),
    (Agent.IDLE, (e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed), Agent.PREPARING),
    (Agent.SPEAKING, (e.ClearRequested,), Agent.PREPARING),
    (Agent.PREPARING, (e.SpeechWentOn, e.TranscriptGrew), Agent.IDLE),
    (Agent.READY, (e.SpeechWentOn, e.TranscriptGrew), Agent.IDLE),
    # An earlier reply may still be playing while the next one is generated, and goes on when the next one is dropped.
    (Agent.SPEAKING, _FREE, Agent.PREPARING),
    (Agent.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested), Agent.SPEAKING),
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE), Agent.SPEAKING),
)
"""(state, event) -> states that may follow."""


def may_follow(source: User | Agent, event: type) -> frozenset[User] | frozenset[Agent]:
    """Return the states that the table allows after this kind of event; an empty set means that it moves nothing."""
    if isinstance(source, User):
        return USER_TRANSITIONS.get((source, event), frozenset())
    return AGENT_TRANSITIONS.get((source, event), frozenset())


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one machine from one state to another, caused by that kind of event."""

    source: User | Agent
    event: type
    target: User | Agent

    @property
    def is_allowed(self) -> bool:
        """Return whether the table names it."""
        return self.target in may_follow(self.source, self.event)

    def __str__(self) -> str:
        machine = type(self.source).__name__.lower()
        return f"{machine} {self.source.value} -> {self.target.value} by {self.event.__name__}"


def illegal_moves(moves: Iterable[Move]) -> list[str]:
    """Return the moves that the table does not name: bugs of ours."""
    return [str(move) for move in moves if not move.is_allowed]


def diagram() -> str:
    """Return both machines as one Mermaid state diagram, for the docs."""
    user = _machine("user", User.QUIET, USER_TRANSITIONS)
    agent = _machine("agent", Agent.IDLE, AGENT_TRANSITIONS)
    return "\n".join(["stateDiagram-v2", *user, *agent]) + "\n"


def _machine(title: str, first: User | Agent, table: _Rows[State]) -> list[str]:
    causes: dict[tuple[str, str], list[str]] = {}
    for (source, event), targets in table.items():
        for target in sorted(targets, key=lambda state: state.value):
            causes.setdefault((source.value, target.value), []).append(event.__name__)
    lines: list[str] = [f"    state {title} {{", f"        [*] --> {title}_{first.value}"]
    for (source_name, target_name), events in causes.items():
        lines.append(f"        {title}_{source_name} --> {title}_{target_name}: {', '.join(sorted(events))}")
    return [*lines, "    }"]
