"""What happens now, for whoever watches: closed turns and marks of running ones, to many readers, never waiting."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from voicepipe.errors import Overload
from voicepipe.telemetry.store import KeptTurn, turn_plain, veiled_turn

Kind = Literal["turn", "live"]

KEPT: Final = 500
"""Events that a reader who comes back can still have; closed turns mostly, of some 3 kB each."""

MOST_WAITING: Final = 1_000
"""Events that wait for one reader at most."""

MOST_READERS: Final = 32

MOST_OF_TOKENS: Final = 16
"""Of these, readers with a client secret: pages of visitors leave operators their half."""

MOST_OF_TOKEN: Final = 4
"""Of these, with the same one."""

FULL_WAIT_MS: Final = 5_000
"""When it is worth asking again while all places for readers are taken."""


@dataclass(slots=True)
class FeedEvent:
    """One thing that happened."""

    id: str
    """Names it for a reader who comes back (`Last-Event-ID`)."""

    number: int
    kind: Kind
    project: str
    session: str
    _make: Callable[[], object] = field(repr=False)
    _make_veiled: Callable[[], object] = field(repr=False)
    _data: bytes | None = field(default=None, repr=False)
    _veiled_data: bytes | None = field(default=None, repr=False)

    @property
    def data(self) -> bytes:
        """As JSON, in one line; made when the first reader asks, once for all of them."""
        if self._data is None:
            self._data = msgspec.json.encode(self._make())
        return self._data

    @property
    def veiled_data(self) -> bytes:
        """Return the same for the holder of a client secret: without what providers said."""
        if self._veiled_data is None:
            self._veiled_data = msgspec.json.encode(self._make_veiled())
        return self._veiled_data


Wants = Callable[[FeedEvent], bool]


class Reader:
    """One reader's events, oldest first."""

    def __init__(self, wants: Wants, *, has_gap: bool = False, most: int = MOST_WAITING, token: str = "") -> None:
        self._wants, self._most, self.token = wants, most, token
        # Full means that the reader is slower than what happens: the oldest is dropped and counted, since who
        # watches wants to see now.
        self._waiting: deque[FeedEvent] = deque()
        self._news = asyncio.Event()
        self.lost = 0
        """Events that were dropped."""
        self.has_gap = has_gap
        """It came back too late: nobody knows how much happened in between."""

    def offer(self, event: FeedEvent) -> None:
        """Take an event, if this reader wants it; never waits."""
        if not self._wants(event):
            return
        if len(self._waiting) >= self._most:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(event)
        self._news.set()

    async def next(self, within_s: float) -> FeedEvent | None:
        """The next event; None when there is none for so long."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return None
        event = self._waiting.popleft()
        if not self._waiting:
            self._news.clear()
        return event


class Feed:
    """Belongs to one event loop. What only a watcher wants to know costs nothing while there is none."""

    def __init__(self, *, kept: int = KEPT, most_waiting: int = MOST_WAITING) -> None:
        self._epoch = secrets.token_hex(4)  # numbers begin anew with each start of the server
        self._number = self._dropped = 0
        self._kept: deque[FeedEvent] = deque(maxlen=kept)  # full: the oldest is forgotten
        self._most_waiting = most_waiting
        self._readers: set[Reader] = set()  # bounded by MOST_READERS: one more is refused

    @property
    def is_watched(self) -> bool:
        """Whether anybody reads."""
        return bool(self._readers)

    @property
    def n_readers(self) -> int:
        """How many do."""
        return len(self._readers)

    @property
    def dropped(self) -> int:
        """Events that readers were too slow for, since the beginning."""
        return self._dropped + sum(reader.lost for reader in self._readers)

    def hear(self, turn: KeptTurn) -> None:
        """Tell of a turn that is closed, new or renewed; one that is still spoken has its marks told."""
        if turn.record.outcome is not None:
            whose = (turn.project, turn.record.session)
            self._tell("turn", *whose, lambda: turn_plain(turn), lambda: turn_plain(veiled_turn(turn)))

    def tell_live(self, project: str, session: str, make: Callable[[], object]) -> None:
        """Tell of a turn that runs, if anybody watches; `make` gives what is told as plain values."""
        if self._readers:
            self._tell("live", project, session, make, make)  # marks, verdicts and actions: no provider's words

    def forget(self, project: str, session: str) -> None:
        """Keep nothing more of a session for who comes back."""
        kept = [event for event in self._kept if (event.project, event.session) != (project, session)]
        self._kept = deque(kept, maxlen=self._kept.maxlen)

    @contextmanager
    def reading(self, wants: Wants, *, after: str = "", token: str = "") -> Iterator[Reader]:
        """Read what happens while the block runs, and first what happened after the event of the id `after`.

        `token` names the client secret of a reader who has one.

        Raises:
            Overload: there are readers enough, of all or of client secrets.
        """
        self._check_room(token)
        missed, has_gap = self._after(after)
        reader = Reader(wants, has_gap=has_gap, most=self._most_waiting, token=token)
        for event in missed:
            reader.offer(event)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._dropped += reader.lost

    def _check_room(self, token: str) -> None:
        if len(self._readers) >= MOST_READERS:
            raise Overload(f"All {MOST_READERS} live streams are taken.", retry_after_ms=FULL_WAIT_MS)
        if not token:
            return
        tokens = [reader.token for reader in self._readers if reader.token]
        if tokens.count(token) >= MOST_OF_TOKEN:
            raise Overload(f"All {MOST_OF_TOKEN} live streams of this client secret are open.")
        if len(tokens) >= MOST_OF_TOKENS:
            why = f"All {MOST_OF_TOKENS} live streams of client secrets are taken."
            raise Overload(why, retry_after_ms=FULL_WAIT_MS)

    def _tell(
        self, kind: Kind, project: str, session: str, make: Callable[[], object], make_veiled: Callable[[], object]
    ) -> None:
        self._number += 1
        event = FeedEvent(f"{self._epoch}-{self._number}", self._number, kind, project, session, make, make_veiled)
        self._kept.append(event)
        for reader in self._readers:
            reader.offer(event)

    def _after(self, id: str) -> tuple[list[FeedEvent], bool]:
        """What is known after an event, and whether there was more."""
        if not id:
            return [], False
        epoch, _, number = id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
            return list(self._kept), True
        oldest = self._kept[0].number if self._kept else self._number + 1
        return [event for event in self._kept if event.number > int(number)], int(number) + 1 < oldest
