"""The properties by which turns are grouped.

A **dimension** is one property. A turn has one name in a dimension, or several (such as the providers of all stages).
The **mix** of a turn is the combination of all properties. Neither contains a session, a user or a word: figures
identify no person.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from voicepipe.registry import Spec
from voicepipe.telemetry.store.port import StoredTurn, TurnFilter

ALL: Final = ""
"""The dimension of all turns: every turn has an empty name in it."""

MIX: Final = "mix"
"""The dimension of mixes. One row has the figures of all mixes, by name."""

DIMENSIONS: Final = ("agent", "route", "provider", "model", "language", "outcome", "cause", "arm", "over")
"""The dimensions that a filter may name, beside session, user and time."""

STAGES: Final = ("stt", "llm", "tts")


class Mix(NamedTuple):
    """The properties that distinguish turns. A property without a value is empty."""

    agent: str
    route: str
    language: str
    outcome: str
    cause: str
    arm: str
    over: bool
    stt: str
    llm: str
    tts: str

    @property
    def name(self) -> str:
        """Return the mix as text, which `read_mix` reads."""
        return msgspec.json.encode(self).decode()

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models of all stages, each once."""
        return tuple(dict.fromkeys(spec for spec in (self.stt, self.llm, self.tts) if spec))

    def names(self, dimension: str) -> tuple[str, ...]:
        """Return the names of the mix in a dimension."""
        if dimension == "model":
            return self.models
        if dimension == "provider":
            return tuple(dict.fromkeys(provider_of(spec) for spec in self.models))
        if dimension == "over":
            return (over_name(self.over),)
        return (getattr(self, dimension),)

    def matches(self, filters: dict[str, str]) -> bool:
        """Return whether the mix has all of these names: dimension -> name."""
        return all(name in self.names(dimension) for dimension, name in filters.items())


def mix_of(turn: StoredTurn) -> Mix:
    """Return the mix of a closed turn."""
    record, providers = turn.record, dict(turn.record.providers)
    stt, llm, tts = (providers.get(stage, "") for stage in STAGES)
    return Mix(
        agent=turn.agent,
        route=turn.route,
        language=turn.language,
        outcome=record.outcome or "",
        cause=record.cause,
        arm=str(turn.arm),
        over=record.total_verdict == "over",
        stt=stt,
        llm=llm,
        tts=tts,
    )


def read_mix(name: str) -> Mix:
    """Return the mix of that name."""
    return msgspec.json.decode(name, type=Mix)


def filters_of(query: TurnFilter) -> dict[str, str]:
    """Return dimension -> name, for the fields of a filter beside session, user and time."""
    values = {dimension: getattr(query, dimension) for dimension in DIMENSIONS}
    names = {dimension: value for dimension, value in values.items() if value is not None}
    if query.arm is not None:
        names["arm"] = str(query.arm)
    if query.over is not None:
        names["over"] = over_name(query.over)
    return names


def dimensions_of(mix: Mix) -> Iterator[tuple[str, str]]:
    """Yield each (dimension, name) of a mix, except `ALL`."""
    for dimension in DIMENSIONS:
        for name in mix.names(dimension):
            yield dimension, name


def provider_of(spec: str) -> str:
    """Return `groq` for `groq/llama-3.3-70b`."""
    return Spec.read(spec).provider


def over_name(over: bool) -> str:
    """Return the name of `over` as a dimension."""
    return "true" if over else "false"
