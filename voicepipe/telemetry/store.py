"""The port where turns' records are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from voicepipe.errors import ProtocolError, VoicepipeError
from voicepipe.telemetry.record_json import record_plain
from voicepipe.turn.record import Outcome, TurnRecord

LIMIT_MAX: Final = 200
"""Turns on one page at most; a record is some 3 kB."""


class StoreError(VoicepipeError):
    """The store could not read or write: a full disk, a damaged file, a lock that did not open."""


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn's record and whose it is."""

    record: TurnRecord
    project: str
    """Who may read it: the project of the key that opened the session."""

    agent: str
    started_at_ms: int
    """When the turn began, in ms since 1970 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnQuery:
    """Which turns to list. A field that is None leaves nothing out.

    Raises:
        ProtocolError: `limit` or `before` is not what it should be.
    """

    limit: int = 50
    before: str | None = None
    """The `next` of the page before this one."""

    session: str | None = None
    agent: str | None = None
    outcome: Outcome | None = None
    over: bool | None = None
    """Whether the total broke its limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ProtocolError(f"expected 1 to {LIMIT_MAX}, got {self.limit}", field="limit")
        if self.before is not None:
            read_cursor(self.before)


NEWEST: Final = TurnQuery()
"""The first page of everything."""


@dataclass(frozen=True, slots=True)
class TurnPage:
    """Some turns, newest first."""

    turns: tuple[KeptTurn, ...]
    next: str | None
    """What to put into `TurnQuery.before` for older ones, or None when these are the oldest."""


class TurnStore(Protocol):
    """Keeps turns' records. Whoever reads sees one project; another's turns don't exist for them.

    A cancelled call stops waiting; what it began to write is still written whole.
    Every method raises `StoreError` when the store can't be read or written.
    """

    async def keep(self, turns: Sequence[KeptTurn]) -> None:
        """Store these turns: all of them or, when it raises, none.

        A turn that the store has already is replaced, but keeps its first `started_at_ms`, so
        that pages don't shift under a reader. Returns when a crash of this process can't lose them.
        """
        ...

    async def get(self, id: str, project: str) -> KeptTurn | None:
        """The turn of that id, or None when this project has none."""
        ...

    async def list(self, project: str, query: TurnQuery = NEWEST) -> TurnPage:
        """The project's turns that match, newest first."""
        ...

    async def close(self) -> None:
        """Let go of the store. It answers no more calls; closing twice does nothing."""
        ...


def turn_plain(turn: KeptTurn) -> dict[str, Any]:
    """A kept turn as the API serves it.

    The fields of `record_plain`, and `object` (`voicepipe.turn`), `agent`, and `started_at`
    (ISO 8601, UTC, ms). The project is the reader's own and left out.
    """
    started_at = datetime.fromtimestamp(turn.started_at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return {
        "object": "voicepipe.turn",
        "agent": turn.agent,
        "started_at": started_at.replace("+00:00", "Z"),
        **record_plain(turn.record),
    }


def cursor(turn: KeptTurn) -> str:
    """Where a page ended. Clients pass it back as it is."""
    return f"{turn.started_at_ms}.{turn.record.id}"


def read_cursor(before: str) -> tuple[int, str]:
    """(started_at_ms, id) of the turn that a page ended with.

    Raises:
        ProtocolError: no page ended so.
    """
    started_at_ms, dot, id = before.partition(".")
    if not (dot and id and started_at_ms.isascii() and started_at_ms.isdigit() and len(started_at_ms) < 16):
        raise ProtocolError(f"expected the `next` of an earlier page, got {before[:80]!r}", field="before")
    return int(started_at_ms), id
