"""The transition table of a turn: which event may move which machine from which state to which.

The table drives nothing. Tests compare each move of the core with it, also the moves of replayed journals: a move that
the table does not name is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.states import Agent, Move, State, User

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

_NO_WORDS = (e.SpeechPaused, e.TimePassed, *_TRANSCRIPT)
"""Events that may show that what has stopped an answer softly was a sound without words."""

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
    (User.HOLDING, _NO_WORDS, User.QUIET),
    (User.ENDED, (e.SpeechStarted,), User.SPEAKING),
    (User.ENDED, (e.SpeechStarted, e.SilenceGrew, e.UserLeft, *_TRANSCRIPT), User.QUIET),
    (User.ENDED, (*_OUTPUT, *_BREAK, e.CancelRequested), User.QUIET),
)
"""(state, event) -> states that may follow. An event that is not named leaves the user's state unchanged."""

AGENT_TRANSITIONS: Final[_Rows[Agent]] = _rows(
    (Agent.IDLE, (e.SilenceCommitted, e.GreetingDue, e.ToolFinished), Agent.PREPARING),
    (Agent.IDLE, _FREE, Agent.PREPARING),
    (Agent.PREPARING, _OUTPUT, Agent.READY),
    (Agent.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.UserLeft), Agent.IDLE),
    (Agent.READY, (*_OUTPUT, e.SilenceGrew, e.TimePassed), Agent.SPEAKING),
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.UserLeft), Agent.IDLE),
    (Agent.SPEAKING, (*_BREAK, *_COMPLETE, e.SilenceGrew, e.OutputSent), Agent.IDLE),
    (
        Agent.SPEAKING,
        (e.CancelRequested, e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed, e.UserLeft),
        Agent.IDLE,
    ),
    (Agent.SPEAKING, (e.SpeechStarted,), Agent.DUCKED),
    (Agent.SPEAKING, (e.SpeechStarted,), Agent.READY),
    (Agent.READY, (*_NO_WORDS, e.ClearRequested, e.SettingsChanged), Agent.SPEAKING),
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
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested), Agent.SPEAKING),
)
"""(state, event) -> states that may follow."""


def may_follow(source: User | Agent, event: type) -> frozenset[User] | frozenset[Agent]:
    """Return the states that the table allows after this kind of event; an empty set means that it moves nothing."""
    if isinstance(source, User):
        return USER_TRANSITIONS.get((source, event), frozenset())
    return AGENT_TRANSITIONS.get((source, event), frozenset())


def illegal_moves(moves: Iterable[Move]) -> list[str]:
    """Return the moves that the table does not name: bugs of ours."""
    return [str(move) for move in moves if move.target not in may_follow(move.source, move.event)]
