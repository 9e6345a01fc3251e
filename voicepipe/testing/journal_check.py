"""Check that every session of a test, written as a journal and replayed, gives the same commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

from voicepipe.telemetry.journal import format
from voicepipe.telemetry.journal.format import JournalFile, Texts, read_journal
from voicepipe.telemetry.journal.plain import as_it_is
from voicepipe.telemetry.journal.pseudonyms import Pseudonymizer
from voicepipe.telemetry.journal.replay import replay
from voicepipe.turn.core import Core
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.events import Event
from voicepipe.turn.journal import Entry, Opening
from voicepipe.values import replace

MAX_SESSIONS = 4
"""Per test: replays of a property with hundreds of examples would double its time."""


def journal_of(opening: Opening, entries: Sequence[Entry], texts: Texts = "plain") -> bytes:
    """Return a session's journal, as its file would be."""
    words = as_it_is if texts == "plain" else Pseudonymizer(b"a key of the tests")
    lines = [format.head(opening, agent="default", began_unix_ms=0, texts=texts, words=words)]
    for number, entry in enumerate(entries, start=1):
        values = (entry.now_ms, entry.event, entry.commands)
        lines.append(format.line(number, *values, texts=texts, words=words))
    return b"".join([*lines, format.end()])


class JournalCheck:
    """Record the events and commands of cores, while `watching`."""

    def __init__(self) -> None:
        self._sessions: list[tuple[Core, Opening, list[Entry]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the sessions that begin in the block, up to MAX_SESSIONS."""
        begin, handle = Core.__init__, Core.handle
        sessions = self._sessions

        def begun(core: Core, *args: object, **more: object) -> None:
            begin(core, *args, **more)  # type: ignore[arg-type]
            strategies = args[3] if len(args) > 3 else BUILT_IN
            assert isinstance(strategies, Mapping)
            if len(sessions) < MAX_SESSIONS:
                sessions.append(
                    (core, Opening(core.context.session, core.context.settings, core.context.core, strategies), [])
                )

        def handled(core: Core, event: Event, now_ms: int) -> tuple[object, ...]:
            commands = handle(core, event, now_ms)
            for known, _, entries in sessions:
                if known is core:
                    entries.append(Entry(now_ms, event, commands))
            return commands

        with mock.patch.object(Core, "__init__", begun), mock.patch.object(Core, "handle", handled):
            yield

    def journals(self, texts: Texts = "plain") -> Iterator[JournalFile]:
        """Return the sessions as journals, each written and read again."""
        for _, opening, entries in self._sessions:
            journal = read_journal(journal_of(opening, entries, texts))
            journal.opening = replace(journal.opening, strategies=opening.strategies)
            yield journal

    def problems(self) -> list[str]:
        """Return where a replay differs from the session, with plain and with redacted texts."""
        wrong: list[str] = []
        kinds: tuple[Texts, ...] = ("plain", "pseudonymized")
        for journal in (each for texts in kinds for each in self.journals(texts)):
            found = replay(journal).difference
            if found is not None:
                differences = "; ".join(f"{path}: {e!r} is now {g!r}" for path, e, g in list(found.fields())[:3])
                wrong.append(f"{journal.texts} texts, event {found.event_number}, {found.event['is']}: {differences}")
        return wrong
