"""The law of a turn, as data: which fact may move which machine from where to where.

Two machines and one gate. `machine` has the hands; this module only says what they may do, and
draws it. A move that the law does not name is our bug: it is counted, and red in tests.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from voicepipe.turn import events as e


class Caller(Enum):
    """Where the caller is in an utterance."""

    QUIET = "quiet"
    """No utterance is open; the floor is free or the agent's."""

    SPEAKING = "speaking"
    HOLDING = "holding"
    """A short silence: permission to work, not to speak."""

    ENDED = "ended"
    """The turn is over; nothing of the reply is audible yet, so it can still be revised."""


class Agent(Enum):
    """Where the agent is in a reply."""

    IDLE = "idle"
    PREPARING = "preparing"
    """The model was asked."""

    READY = "ready"
    """There is something to say, held by the gate."""

    SPEAKING = "speaking"
    """Until the sound has been played at the client, which is seconds after the last of it was sent."""

    DUCKED = "ducked"
    """The same with the caller's voice over it: whether they take the floor is open, for a moment."""

    YIELDED = "yielded"
    """The caller took the floor; the reply is being put away."""


_State = TypeVar("_State", Caller, Agent)
_Rows = dict[tuple[_State, type], frozenset[_State]]

_TRANSCRIPT = (e.TranscriptFinished, e.TranscriberFailed)
_OUTPUT = (e.ModelSpoke, e.CallGrew, e.ModelFinished, e.SoundArrived, e.VoiceFinished)
_COMPLETE = (e.ModelFinished, e.VoiceFinished)
_BREAK = (e.StageFailed, e.TimePassed)
_PUT_AWAY = (e.CommitRequested, e.ClearRequested, e.SettingsChanged)
_REVISE = (e.SpeechStarted, e.TranscriptFinished, e.TranscriberFailed, e.ReplyRequested)
_TAKE = (e.SpeechWentOn, e.TranscriptGrew, e.TranscriptFinished, e.CommitRequested)
"""What may show that a voice over the agent's wants the floor."""

_PLAYED = (*_BREAK, *_COMPLETE, e.CancelRequested, e.ItemTruncated, e.PlaybackReported, e.LineResumed)
"""What may end a reply that is being heard; then whoever spoke over it has the floor."""

_GO_ON = (e.TimePassed, *_TRANSCRIPT, e.SilenceGrew, e.ClearRequested, e.SettingsChanged, e.CallerLeft)
"""What may show that nobody wanted it."""

_FREE = (*_BREAK, *_COMPLETE, *_TRANSCRIPT, e.CancelRequested, e.ReplyRequested, e.SilenceGrew, e.SettingsChanged)
"""What may let a reply begin: its turn is over, its words are known, or the one before it is out of the way."""


def _rows(*groups: tuple[_State, tuple[type, ...], _State]) -> _Rows[_State]:
    table: _Rows[_State] = {}
    for source, facts, target in groups:
        for fact in facts:
            table[source, fact] = table.get((source, fact), frozenset()) | {target}
    return table


CALLER_LAW: Final[_Rows[Caller]] = _rows(
    (Caller.QUIET, (e.SpeechStarted,), Caller.SPEAKING),
    (Caller.QUIET, (*_TAKE, *_PLAYED), Caller.SPEAKING),
    (Caller.SPEAKING, (e.SpeechPaused, e.TranscriptFinished, e.TranscriptGrew, e.CommitRequested), Caller.HOLDING),
    (Caller.SPEAKING, _PLAYED, Caller.HOLDING),
    (Caller.SPEAKING, (e.TimePassed,), Caller.ENDED),
    (Caller.SPEAKING, (*_PUT_AWAY, e.CallerLeft), Caller.QUIET),
    (Caller.HOLDING, (e.SpeechStarted, e.TimePassed), Caller.SPEAKING),
    (Caller.HOLDING, (e.SilenceGrew, e.TimePassed), Caller.ENDED),
    (Caller.HOLDING, (*_PUT_AWAY, e.CallerLeft), Caller.QUIET),
    (Caller.ENDED, (e.SpeechStarted,), Caller.SPEAKING),
    (Caller.ENDED, (e.SpeechStarted, e.SilenceGrew, e.CallerLeft, *_TRANSCRIPT), Caller.QUIET),
    (Caller.ENDED, (*_OUTPUT, *_BREAK, e.CancelRequested), Caller.QUIET),
)
"""(state, fact) -> states that may follow. A fact that is not named leaves the caller where they are."""

AGENT_LAW: Final[_Rows[Agent]] = _rows(
    (Agent.IDLE, (e.SilenceCommitted,), Agent.PREPARING),
    (Agent.IDLE, _FREE, Agent.PREPARING),
    (Agent.PREPARING, _OUTPUT, Agent.READY),
    (Agent.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested, e.CallerLeft), Agent.IDLE),
    (Agent.READY, (*_OUTPUT, e.SilenceGrew, e.TimePassed), Agent.SPEAKING),
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CallerLeft), Agent.IDLE),
    (Agent.SPEAKING, (*_BREAK, *_COMPLETE, e.SilenceGrew, e.OutputSent), Agent.IDLE),
    (Agent.SPEAKING, (e.CancelRequested, e.ItemTruncated, e.PlaybackReported, e.LineResumed, e.CallerLeft), Agent.IDLE),
    (Agent.SPEAKING, (e.SpeechStarted,), Agent.DUCKED),
    (Agent.DUCKED, _GO_ON, Agent.SPEAKING),
    (Agent.DUCKED, _PLAYED, Agent.IDLE),
    (Agent.DUCKED, _TAKE, Agent.YIELDED),
    (Agent.SPEAKING, (e.SpeechStarted, *_TAKE), Agent.YIELDED),
    (Agent.YIELDED, (e.SpeechStarted, *_TAKE), Agent.IDLE),
    (Agent.IDLE, (e.ItemTruncated, e.PlaybackReported, e.LineResumed), Agent.PREPARING),
    (Agent.SPEAKING, (e.ClearRequested,), Agent.PREPARING),
    (Agent.PREPARING, (e.SpeechWentOn, e.TranscriptGrew), Agent.IDLE),
    (Agent.READY, (e.SpeechWentOn, e.TranscriptGrew), Agent.IDLE),
    # An earlier reply may still be playing while the next one is made, and goes on when that is put away.
    (Agent.SPEAKING, _FREE, Agent.PREPARING),
    (Agent.PREPARING, (*_BREAK, *_PUT_AWAY, *_REVISE, e.CancelRequested), Agent.SPEAKING),
    (Agent.READY, (*_BREAK, *_PUT_AWAY, *_REVISE), Agent.SPEAKING),
)
"""(state, fact) -> states that may follow."""


def may_follow(source: Caller | Agent, fact: type) -> frozenset[Caller] | frozenset[Agent]:
    """The states that the law lets this kind of fact lead to; none means that it moves nothing."""
    if isinstance(source, Caller):
        return CALLER_LAW.get((source, fact), frozenset())
    return AGENT_LAW.get((source, fact), frozenset())


def diagram() -> str:
    """Both machines as one Mermaid state diagram, for the docs."""
    caller = _machine("caller", Caller.QUIET, CALLER_LAW)
    agent = _machine("agent", Agent.IDLE, AGENT_LAW)
    return "\n".join(["stateDiagram-v2", *caller, *agent]) + "\n"


def _machine(title: str, first: Caller | Agent, law: _Rows[_State]) -> list[str]:
    causes: dict[tuple[str, str], list[str]] = {}
    for (source, fact), targets in law.items():
        for target in sorted(targets, key=lambda state: state.value):
            causes.setdefault((source.value, target.value), []).append(fact.__name__)
    lines: list[str] = [f"    state {title} {{", f"        [*] --> {title}_{first.value}"]
    for (source_name, target_name), facts in causes.items():
        lines.append(f"        {title}_{source_name} --> {title}_{target_name}: {', '.join(sorted(facts))}")
    return [*lines, "    }"]
