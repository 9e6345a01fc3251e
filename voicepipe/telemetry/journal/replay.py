"""Replay a journal to the core, without waiting, and compare the commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from voicepipe.telemetry.journal.format import JournalFile, Plain
from voicepipe.telemetry.journal.plain import plain
from voicepipe.turn.commands import Command, StoreRecord
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.states import Move


class Difference(Struct, frozen=True):
    """The first place where the core's commands differ from the journal."""

    event_number: int
    now_ms: int
    event: Plain
    place: int
    """Number of the command among those of this event, from 0."""

    expected: Plain | None
    """The command in the journal; None: no further command."""

    got: Plain | None

    def fields(self) -> Iterator[tuple[str, Any, Any]]:
        """Return where the commands differ: (path, expected, got)."""
        yield from _differences(self.expected, self.got, "")


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    n_events: int = 0
    last_ms: int = 0
    difference: Difference | None = None
    records: dict[str, TurnRecord] = field(default_factory=dict)
    """The latest record of each turn, as the core makes it now."""

    moves: list[Move] = field(default_factory=list)
    """The moves of both state machines, in order."""


def replay(journal: JournalFile) -> Replayed:
    """Give a new core all events of the journal, up to the first difference."""
    core, words, done = journal.opening.rebuilt(), journal.of_commands, Replayed()
    for line in journal.lines:
        commands = core.handle(line.event, line.now_ms)
        done.n_events, done.last_ms = line.number, line.now_ms
        done.records |= records_of(commands)
        done.moves += core.transitions.moves
        got = [plain(command, words) for command in commands]
        if (place := _first_difference(line.commands, got)) is not None:
            expected, came = _at(line.commands, place), _at(got, place)
            done.difference = Difference(line.number, line.now_ms, plain(line.event), place, expected, came)
            break
    return done


def records_of(commands: Sequence[Command]) -> dict[str, TurnRecord]:
    """Return the records that these commands keep, by turn."""
    return {command.record.id: command.record for command in commands if isinstance(command, StoreRecord)}


def _first_difference(expected: Sequence[Plain], got: Sequence[Plain]) -> int | None:
    if len(expected) == len(got) and all(e == g for e, g in zip(expected, got, strict=True)):
        return None
    pairs = enumerate(zip_longest(expected, got))
    return next((place for place, (e, g) in pairs if next(_differences(e, g, ""), None) is not None), None)


def _at(commands: Sequence[Plain], place: int) -> Plain | None:
    return commands[place] if place < len(commands) else None


def _differences(expected: Any, got: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Return where two plain values differ. A field that an older version did not write is no difference."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in expected.items():
            yield from _differences(value, got.get(name), f"{path}.{name}" if path else name)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for place, (e, g) in enumerate(zip(expected, got, strict=True)):
            yield from _differences(e, g, f"{path}[{place}]")
    elif expected != got:
        yield path, expected, got
