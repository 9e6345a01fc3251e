"""The transition table of a turn: which event may move which machine from which state to which.

The table drives nothing. Tests compare each move of the core with it, also the moves of replayed journals: a move that
the table does not name is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.states import AgentState, Move, State, UserState

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


USER_TRANSITIONS: Final[_Rows[UserState]] = _rows(
    (UserState.QUIET, (e.SpeechStarted,), UserState.SPEAKING),
    (UserState.QUIET, (*_TAKE, *_PLAYED), UserState.SPEAKING),
    (
        UserState.SPEAKING,
        (e.SpeechPaused, e.TranscriptFinished, e.TranscriptGrew, e.CommitRequested),
        UserState.HOLDING,
    ),
    (UserState.SPEAKING, _PLAYED, UserState.HOLDING),
    (UserState.SPEAKING, (e.TimePassed,), UserState.ENDED),
    (UserState.SPEAKING, (*_PUT_AWAY, e.UserLeft), UserState.QUIET),
    (UserState.HOLDING, (e.SpeechStarted, e.TimePassed), UserState.SPEAKING),
    (UserState.HOLDING, (e.SilenceGrew, e.TimePassed), UserState.ENDED),
    (UserState.HOLDING, (*_PUT_AWAY, e.UserLeft), UserState.QUIET),
    (UserState.HOLDING, _NO_WORDS, UserState.QUIET),
    (UserState.ENDED, (e.SpeechStarted,), UserState.SPEAKING),
    (UserState.ENDED, (e.SpeechStarted, e.SilenceGrew, e.UserLeft, *_TRANSCRIPT), UserState.QUIET),
    (UserState.ENDED, (*_OUTPUT, *_BREAK, e.CancelRequested), UserState.QUIET),
)
"""(state, event) -> states that may follow. An event that is not named leaves the user's state unchanged."""

AGENT_TRANSITIONS: Final[_Rows[AgentState]] = _rows(
    (AgentState.IDLE, (e.SilenceCommitted, e.GreetingDue, e.ToolFinished), AgentState.PREPARING),
    (AgentState.IDLE, _FREE, AgentState.PREPARING),
    (AgentState.PREPARING, _OUTPUT, AgentState.READY),
    (AgentState.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.UserLeft), AgentState.IDLE),
    (AgentState.READY, (*_OUTPUT, e.SilenceGrew, e.TimePassed), AgentState.SPEAKING),
    (AgentState.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.UserLeft), AgentState.IDLE),
    (AgentState.SPEAKING, (*_BREAK, *_COMPLETE, e.SilenceGrew, e.OutputSent), AgentState.IDLE),
    (
        AgentState.SPEAKING,
        (e.CancelRequested, e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed, e.UserLeft),
        AgentState.IDLE,
    ),
    (AgentState.SPEAKING, (e.SpeechStarted,), AgentState.DUCKED),
    (AgentState.SPEAKING, (e.SpeechStarted,), AgentState.READY),
    (AgentState.READY, (*_NO_WORDS, e.ClearRequested, e.SettingsChanged), AgentState.SPEAKING),
    (AgentState.DUCKED, _GO_ON, AgentState.SPEAKING),
    (AgentState.DUCKED, _PLAYED, AgentState.IDLE),
    (AgentState.DUCKED, _TAKE, AgentState.INTERRUPTED),
    (AgentState.SPEAKING, (e.SpeechStarted, *_TAKE), AgentState.INTERRUPTED),
    (AgentState.INTERRUPTED, (e.SpeechStarted, *_TAKE), AgentState.IDLE),
    (AgentState.IDLE, (e.ItemTruncateRequested, e.PlaybackReported, e.ConnectionResumed), AgentState.PREPARING),
    (AgentState.SPEAKING, (e.ClearRequested,), AgentState.PREPARING),
    (AgentState.PREPARING, (e.SpeechWentOn, e.TranscriptGrew), AgentState.IDLE),
    (AgentState.READY, (e.SpeechWentOn, e.TranscriptGrew), AgentState.IDLE),
    # An earlier reply may still be playing while the next one is generated, and goes on when the next one is dropped.
    (AgentState.SPEAKING, _FREE, AgentState.PREPARING),
    (AgentState.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested), AgentState.SPEAKING),
    (AgentState.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested), AgentState.SPEAKING),
)
"""(state, event) -> states that may follow."""


def may_follow(source: UserState | AgentState, event: type) -> frozenset[UserState] | frozenset[AgentState]:
    """Return the states that the table allows after this kind of event; an empty set means that it moves nothing."""
    if isinstance(source, UserState):
        return USER_TRANSITIONS.get((source, event), frozenset())
    return AGENT_TRANSITIONS.get((source, event), frozenset())


def illegal_moves(moves: Iterable[Move]) -> list[str]:
    """Return the moves that the table does not name: bugs of ours."""
    return [str(move) for move in moves if move.target not in may_follow(move.source, move.event)]
