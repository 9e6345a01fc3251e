"""The port for the storage of turns' records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol

from msgspec import Struct

from voicepipe.errors import ProtocolError, StorageFailureKind, VoicepipeError
from voicepipe.telemetry.record_json import record_plain
from voicepipe.telemetry.rollups.arms import ArmTurn
from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import Cause, Outcome, TurnRecord
from voicepipe.turn.redaction import redacted_record
from voicepipe.values import replace

MAX_LIMIT: Final = 200
"""Maximum of turns on one page; a record is about 3 kB."""

MAX_SEARCHED: Final = 2_000
"""Maximum of turns in which one page looks for words."""

MAX_POINTS: Final = 2_000
"""Maximum of points of one series."""

MINUTE_MS: Final = 60_000

GROUPS: Final = ("agent", "route", "provider", "model", "language", "outcome", "cause", "arm")
"""The fields by which stats may be grouped."""

TurnOrder = Literal["newest", "slowest"]
GroupBy = Literal["agent", "route", "provider", "model", "language", "outcome", "cause", "arm"]


class StoreError(VoicepipeError):
    """Raised when the store can't read or write: a full disk, a damaged file, a lock timeout.

    The text may name files: it is for the log.
    """

    def __init__(self, why: str, kind: StorageFailureKind = "unknown") -> None:
        super().__init__(why)
        self.kind = kind


class RecordRefused(StoreError):
    """Raised when a turn to be stored, or one part of it, is invalid: another try would not help."""


class Cursor(NamedTuple):
    """The position where a page ended. Clients pass its text back as it is."""

    at_ms: int
    """`started_at_ms` of its last turn or session; `total_ms` on a page by latency."""

    id: str

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Return the cursor of a text that a client passes back.

        Raises:
            ProtocolError: it is no cursor; `field` is `before`.
        """
        at_ms, dot, id = text.partition(".")
        if not (dot and id and at_ms.isascii() and at_ms.isdigit() and len(at_ms) < 16):
            raise ProtocolError(f"expected the `next` of an earlier page, got {text[:80]!r}", field="before")
        return cls(int(at_ms), id)

    def __str__(self) -> str:
        return f"{self.at_ms}.{self.id}"


class StoredTurn(Struct, frozen=True):
    """A turn's record and its owner."""

    record: TurnRecord
    project: str
    """The project that may read it: that of the key that opened the session."""

    agent: str
    started_at_ms: int
    """Start of the turn, in ms since 1970 UTC."""

    user: str = ""
    """The user, as the token's issuer named them; empty: none was named."""

    language: str = ""
    """BCP-47; empty: unknown."""

    route: str = ""
    """The pool whose models might answer; empty: there was no choice."""

    arm: Arm = NO_ARM
    """Arm of an A/B experiment."""


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise ProtocolError(f"expected 1 to {MAX_LIMIT}, got {limit}", field="limit")


class TurnFilter(Struct, frozen=True, kw_only=True):
    """Which turns are selected. A field that is None leaves nothing out, and each further one leaves out more.

    Raises:
        ProtocolError: the time ends before it begins; `field` is `until`.
    """

    session: str | None = None
    text: str | None = None
    """A part of a session's id, in either case."""

    agent: str | None = None
    route: str | None = None
    provider: str | None = None
    """`groq`: it served any stage."""

    model: str | None = None
    """`groq/llama-3.3-70b`: it served any stage."""

    language: str | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    arm: Arm | None = None
    """`NO_ARM`: the turns in no experiment."""

    user: str | None = None
    over: bool | None = None
    """Whether the total broke its limit."""

    since_ms: int | None = None
    """Began at this instant or later, in ms since 1970 UTC."""

    until_ms: int | None = None
    """Began before this instant."""

    def __post_init__(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms > self.until_ms:
            raise ProtocolError("expected a time after `since`", field="until")


class TurnQuery(TurnFilter, frozen=True, kw_only=True):
    """Which turns to list, and in which order.

    Raises:
        ProtocolError: a field is invalid; `field` names it.
    """

    limit: int = 50
    before: Cursor | None = None
    """The `next` of the page before this one."""

    order: TurnOrder = "newest"
    """`slowest`: by turn latency; turns without one are left out."""

    words: str | None = None
    """A part of the text of the user or the agent, in either case. Texts have no index: one page reads at most
    `MAX_SEARCHED` turns and may have fewer than `limit`; its `next` goes on."""

    def __post_init__(self) -> None:
        TurnFilter.__post_init__(self)
        _check_limit(self.limit)


NEWEST: Final = TurnQuery()
"""The first page of everything."""


class StatsQuery(TurnFilter, frozen=True, kw_only=True):
    """Which turns to sum up, and how.

    Raises:
        ProtocolError: a field is invalid; `field` names it.
    """

    step_ms: int | None = None
    """The time between two points of the series, whole minutes; None: no series."""

    by: GroupBy | None = None
    """The grouping field; None: no groups."""

    def __post_init__(self) -> None:
        TurnFilter.__post_init__(self)
        if self.by is not None and self.by not in GROUPS:
            raise ProtocolError(f"expected one of {', '.join(GROUPS)}, got {str(self.by)[:32]!r}", field="by")
        if self.step_ms is None:
            return
        if self.step_ms < MINUTE_MS or self.step_ms % MINUTE_MS:
            raise ProtocolError(f"expected whole minutes in ms, got {self.step_ms}", field="step")
        if self.since_ms is None or self.until_ms is None:
            raise ProtocolError("a series needs a beginning and an end", field="since")
        if self.until_ms - self.since_ms > MAX_POINTS * self.step_ms:
            raise ProtocolError(f"expected {MAX_POINTS} points at most; a longer step makes fewer", field="step")


EVERYTHING: Final = StatsQuery()
"""The query for all turns, without series and groups."""


class SessionQuery(Struct, frozen=True, kw_only=True):
    """Which sessions to list, newest first. A field that is None leaves nothing out.

    Raises:
        ProtocolError: `limit` is invalid.
    """

    limit: int = 50
    before: Cursor | None = None
    text: str | None = None
    """A part of the session's id, in either case."""

    agent: str | None = None
    user: str | None = None
    since_ms: int | None = None
    """Earliest start of the session's first turn, in ms since 1970 UTC."""

    until_ms: int | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit)


NEWEST_SESSIONS: Final = SessionQuery()
"""The first page of all of them."""


class TurnPage(Struct, frozen=True):
    """A page of turns, in the requested order."""

    turns: tuple[StoredTurn, ...]
    next: Cursor | None
    """The value of `TurnQuery.before` for the next page, or None when there is none."""


class SessionSummary(Struct, frozen=True):
    """A session, from its stored turns."""

    session: str
    project: str
    agent: str
    user: str
    started_at_ms: int
    """Start of its first turn, in ms since 1970 UTC."""

    last_at_ms: int
    """Start of its last turn."""

    turns: int
    over: int
    """Turns whose total broke its limit."""

    failed: int
    slowest_ms: int | None
    """The longest turn latency; None: no turn had audible output."""

    cost_usd: float


class SessionPage(Struct, frozen=True):
    """A page of sessions, newest first."""

    sessions: tuple[SessionSummary, ...]
    next: Cursor | None
    """The value of `SessionQuery.before` for older ones, or None when these are the oldest."""


class TurnWriter(Protocol):
    """Stores turns' records: the one side of `TurnStore` that sessions need."""

    async def store(self, turns: Sequence[StoredTurn]) -> None:
        """Store these turns, as `TurnStore.store` does."""
        ...


class TurnStore(TurnWriter, Protocol):
    """Stores turn records. A reader reads one project; turns of other projects do not exist for that reader.

    A `project` of None means all projects: for an operator of all. A turn is then found by its id in any project.

    A cancelled call stops waiting; its write is completed or not made at all. Every method raises `StoreError` when
    the store can't be read or written.
    """

    async def store(self, turns: Sequence[StoredTurn]) -> None:
        """Store these turns: all of them or, when it raises, none.

        A turn that the store has already is replaced, but keeps its first `started_at_ms`, so that pages don't shift
        under a reader. Returns when a crash of this process can't lose them.
        """
        ...

    async def get(self, id: str, project: str | None) -> StoredTurn | None:
        """Return the turn of that id, or None when this project has none."""
        ...

    async def list(self, project: str | None, query: TurnQuery = NEWEST) -> TurnPage:
        """Return the project's turns that match, newest or slowest first."""
        ...

    async def stats(self, project: str | None, query: StatsQuery = EVERYTHING) -> Stats:
        """Return the figures of the project's turns that match. Running turns are not counted yet."""
        ...

    async def sessions(self, project: str | None, query: SessionQuery = NEWEST_SESSIONS) -> SessionPage:
        """Return the project's sessions that match, newest first."""
        ...

    async def store_summary(self, project: str, session: str, summary: str) -> bool:
        """Store the summary of a session that has turns; False: it has none. It is deleted with the session."""
        ...

    async def summary(self, project: str | None, session: str) -> str:
        """Return the summary of a session; empty: it has none."""
        ...

    async def store_feedback(self, id: str, project: str | None, source: str, score: float, at_ms: int) -> bool:
        """Store a score of a turn's answer, from 0 to 1, in place of an earlier one of that source. It is deleted with
        the turn. Return False where this project has no such turn."""
        ...

    async def by_arm(self, project: str | None, query: TurnFilter) -> tuple[ArmTurn, ...]:
        """Return the newest turns that match, with the arms of their experiments and their scores."""
        ...

    async def delete_session(self, project: str, session: str) -> int:
        """Delete all turns of a session, out of the figures too; return their number."""
        ...

    async def delete_user(self, project: str, user: str) -> int:
        """Delete all turns of a user, out of the figures too; return their number."""
        ...

    async def maintain_step(self, now_ms: int) -> bool:
        """Sum up one time bucket that is over; return whether there may be more to do.

        Stats are right without it, but slower: other buckets are read turn by turn. A call takes a few ms;
        several processes may call it at the same time.
        """
        ...

    async def trim(self, now_ms: int, *, keep_days: int | None, max_bytes: int | None) -> int:
        """Delete some of the oldest turns beyond these limits; return how many: 0 when nothing is beyond them.

        The figures summed up of them stay: they contain no session, no user, and no words. A call takes a few ms, so
        that it delays nothing.
        """
        ...

    async def size_bytes(self) -> int:
        """Return the size of the store."""
        ...

    async def close(self) -> None:
        """Close the store. It accepts no more calls; closing twice does nothing."""
        ...


def redacted_turn(turn: StoredTurn) -> StoredTurn:
    """Return the turn as the holder of a client secret may read it (`voicepipe.turn.redaction`)."""
    return replace(turn, record=redacted_record(turn.record))


def turn_plain(turn: StoredTurn) -> dict[str, Any]:
    """Return a stored turn as the API serves it.

    The fields of `record_json.py` (with `route` as its reason in words), and `object` (`voicepipe.turn`), `agent`,
    `started_at` (ISO 8601, UTC, ms), `project`, `user`, `language`, `pool` (the `route` of a kept turn) and `arm`.
    """
    started_at = datetime.fromtimestamp(turn.started_at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return {
        "object": "voicepipe.turn",
        "project": turn.project,
        "agent": turn.agent,
        "started_at": started_at.replace("+00:00", "Z"),
        "user": turn.user,
        "language": turn.language,
        "pool": turn.route,
        "arm": str(turn.arm),
        **record_plain(turn.record, turn.agent),
    }
