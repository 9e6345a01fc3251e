"""The moves of the two machines, each checked against the transition table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from voicepipe.turn.states import Agent, Caller, may_follow

_State = TypeVar("_State", Caller, Agent)


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one machine from one state to another, caused by that kind of event."""

    source: Caller | Agent
    fact: type
    target: Caller | Agent

    @property
    def lawful(self) -> bool:
        """Return whether the table names it."""
        return self.target in may_follow(self.source, self.fact)

    def __str__(self) -> str:
        machine = type(self.source).__name__.lower()
        return f"{machine} {self.source.value} -> {self.target.value} by {self.fact.__name__}"


@dataclass(slots=True)
class Steps:
    """The moves of the latest event, and all moves ever made against the table."""

    fact: type = object
    moves: list[Move] = field(default_factory=list)
    unlawful: list[str] = field(default_factory=list)

    def face(self, fact: object) -> None:
        """Attribute all moves until the next call to this event."""
        self.fact, self.moves = type(fact), []

    def take(self, source: _State, target: _State) -> _State:
        """Go from `source` to `target`; return the machine's state."""
        if target is not source:
            move = Move(source, self.fact, target)
            self.moves.append(move)
            if not move.lawful:
                self.unlawful.append(str(move))
        return target
