"""The events of the LLMs asked for an answer. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.turn.record import ModelAttempt


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """The request was sent to the LLM."""

    turn: int
    revision: int
    provider: str


@dataclass(frozen=True, slots=True)
class ModelReached:
    """The request has a connection to its provider, kept from before or new."""

    turn: int
    revision: int


@dataclass(frozen=True, slots=True)
class ModelJoined:
    """Another LLM was asked for the answer too."""

    turn: int
    revision: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]


@dataclass(frozen=True, slots=True)
class ModelChosen:
    """Of several LLMs this one answers, or continues the answer."""

    turn: int
    revision: int
    provider: str
    why: str


@dataclass(frozen=True, slots=True)
class ModelAttempted:
    """One of the requests made for the answer is over, heard or not."""

    turn: int
    revision: int
    attempt: ModelAttempt
