"""The facts about who is asked for an answer, and what came of it. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.record import ModelAttempt


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """The question has left for the model."""

    turn: int
    revision: int
    provider: str


@dataclass(frozen=True, slots=True)
class ModelReached:
    """The question has a connection to its provider, kept from before or new."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class ModelJoined:
    """Another model was asked for the answer too."""

    turn: int
    revision: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]


@dataclass(frozen=True, slots=True)
class ModelChosen:
    """Of several models this one answers, or goes on with the answer."""

    turn: int
    revision: int
    provider: str
    why: str


@dataclass(frozen=True, slots=True)
class ModelAttempted:
    """One of the calls that were made for the answer is over, heard or not."""

    turn: int
    revision: int
    attempt: ModelAttempt
