"""Write and read a journal's lines: first the session's settings at its start, then a line for each event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec

from voicepipe import __version__
from voicepipe.errors import VoicepipeError
from voicepipe.telemetry.journal.plain import Words, as_it_is, plain, typed
from voicepipe.telemetry.journal.pseudonyms import length
from voicepipe.telemetry.journal.upgrade import renewed_command, renewed_event, renewed_settings
from voicepipe.turn.commands import Command
from voicepipe.turn.events import Event
from voicepipe.turn.journal import Opening
from voicepipe.turn.settings import CoreSettings, TurnSettings

FORMAT: Final = 1
"""Version of the files. Written as `voicepipe_journal`, which identifies a journal."""

Plain = dict[str, Any]
T = TypeVar("T")
Texts = Literal["plain", "pseudonymized"]


class JournalError(VoicepipeError):
    """Raised for a file that is no journal, or one of a version that can't be read."""


class JournalLine(msgspec.Struct, frozen=True):
    """An event as it was written."""

    number: int
    """The event's number in its session, from 1."""

    now_ms: int
    event: Event
    commands: tuple[Plain, ...]


@dataclass(slots=True)
class JournalFile:
    """A journal that was read."""

    opening: Opening
    agent: str
    began_unix_ms: int
    version: str
    texts: Texts
    lines: list[JournalLine] = field(default_factory=list)
    """Up to the first gap."""

    lacks: str = ""
    """Why it ends before the session did; empty when it does not."""

    @property
    def of_commands(self) -> Words:
        """Return the function for texts in commands, so that they can be compared with this journal's."""
        return words_of_commands(self.texts)


def words_of_commands(texts: Texts) -> Words:
    """Return the function for a command's texts: a journal has them as they are, or only their lengths."""
    return as_it_is if texts == "plain" else length


# --- writing --------------------------------------------------------------------------------------


def head(opening: Opening, *, agent: str, began_unix_ms: int, texts: Texts, words: Words, project: str = "") -> bytes:
    """Return the first line. `words` is applied to the texts of instructions and tools; the owner is in `project`."""
    return _encoded(
        {
            "voicepipe_journal": FORMAT,
            "version": __version__,
            "session": opening.session,
            "project": project,
            "agent": agent,
            "began_unix_ms": began_unix_ms,
            "texts": texts,
            "settings": plain(opening.settings, words),
            "core": plain(opening.core),
        }
    )


def line(number: int, now_ms: int, event: Event, commands: Iterable[Command], *, texts: Texts, words: Words) -> bytes:
    """Return the line of one event; `words` is applied to its texts."""
    of_commands = words_of_commands(texts)
    plain_commands = [plain(command, of_commands) for command in commands]
    return _encoded({"n": number, "at_ms": now_ms, "event": plain(event, words), "commands": plain_commands})


def gap(n_lost: int, why: str) -> bytes:
    """Return the line that marks events as missing from here on: how many, or (0) an unknown number."""
    return _encoded({"lost": n_lost, "why": why})


def end() -> bytes:
    """Return the last line of a complete journal."""
    return _encoded({"end": True})


def _encoded(value: Plain) -> bytes:
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:  # half of an emoji, from a model that was cut there: escaped it can be written
        return json.dumps(value).encode() + b"\n"


# --- reading --------------------------------------------------------------------------------------


def read_journal(data: bytes) -> JournalFile:
    """Read a journal to its last complete line, or to where events are missing.

    Raises:
        JournalError: it has no first line, or one that this version can't read, or an unknown event.
    """
    whole, _, torn = data.rpartition(b"\n")
    found = _decoded(whole.split(b"\n"))
    journal = _journal(next(found, {}))
    for number, each in enumerate(found, start=1):
        if "event" not in each:
            journal.lacks = _what_lacks(each)
            return journal
        journal.lines.append(_known(partial(_line, each, number), f"event {number}"))
    journal.lacks = "its last line was cut off" if torn else "the session had not ended, or its server died"
    return journal


def project_of(first_line: bytes) -> str:
    """Return the project in a journal's first line; empty without one."""
    first = next(_decoded([first_line]), {})
    return str(first.get("project", ""))


def is_journal(data: bytes) -> bool:
    """Return whether these bytes begin as a journal does."""
    return b'"voicepipe_journal"' in data[:100]


def _decoded(lines: Iterable[bytes]) -> Iterator[Plain]:
    for each in lines:
        try:
            value = msgspec.json.decode(each)
        except msgspec.DecodeError:
            try:
                value = json.loads(each)
            except ValueError:
                return
        if not isinstance(value, dict):
            return
        yield value


def _journal(first: Plain) -> JournalFile:
    if first.get("voicepipe_journal") != FORMAT:
        raise JournalError(f"expected a journal of format {FORMAT}, got {str(first)[:80]!r}")
    return _known(
        lambda: JournalFile(
            Opening(
                first["session"],
                typed(renewed_settings(first["settings"]), TurnSettings),
                typed(first["core"], CoreSettings),
            ),
            agent=first["agent"],
            began_unix_ms=first["began_unix_ms"],
            version=first["version"],
            texts=first["texts"],
        ),
        "the first line",
    )


def _line(found: Plain, number: int) -> JournalLine:
    return JournalLine(
        number,
        int(found["at_ms"]),
        typed(renewed_event(found["event"]), Event),
        tuple(map(renewed_command, found["commands"])),
    )


def _known(read: Callable[[], T], where: str) -> T:
    try:
        return read()
    except (ValueError, KeyError, TypeError) as why:
        raise JournalError(f"{where}: {type(why).__name__}: {why}") from None


def _what_lacks(found: Plain) -> str:
    if found.get("end"):
        return ""
    n_lost = found.get("lost") or 0
    return f"{found.get('why', 'something is missing')}" + (f" ({n_lost} events)" if n_lost else "")
