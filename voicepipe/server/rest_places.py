"""How many requests of a kind are answered at once: refused beyond that, never queued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from voicepipe.errors import Overload
from voicepipe.server.doorway import Visitor
from voicepipe.server.refusals import TooManyRequests

FULL_WAIT_MS: Final = 1_000
"""When it is worth asking again while we are full: answers last seconds."""

TOKEN_AT_ONCE: Final = 4
"""Of one client secret: a page asks one thing at a time. It bounds by how much a limit on spending is overrun, since
what an answer costs is known at its end."""


class Places:
    """One process's places. Belongs to one event loop."""

    def __init__(self, what: str, most: int, most_of_project: int) -> None:
        """Begin with all free.

        Args:
            what: is answered, in words.
            most: how many places there are.
            most_of_project: how many a project may have; 0 means all.
        """
        self._what, self.most, self._most_of_project = what, most, most_of_project or most
        # bounded: by `most`, since who leaves is taken out
        self._projects: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """How many are taken."""
        return self._projects.total()

    def check(self, visitor: Visitor) -> None:
        """Demand that a place would be had now: before what is long to read is read.

        Raises:
            Overload: all are taken.
            TooManyRequests: the project, or the client secret, has no more.
        """
        token = _token(visitor)
        if len(self) >= self.most:
            raise Overload(f"All {self.most} places for {self._what} are taken.", retry_after_ms=FULL_WAIT_MS)
        if self._projects[visitor.project] >= self._most_of_project:
            raise TooManyRequests(f"Project {visitor.project!r} may have {self._most_of_project} answers at once.")
        if token[1] and self._tokens[token] >= TOKEN_AT_ONCE:
            raise TooManyRequests(f"A client secret may have {TOKEN_AT_ONCE} answers at once.")

    @contextmanager
    def place(self, visitor: Visitor) -> Iterator[None]:
        """Have a place for as long as the block runs.

        Raises:
            Overload, TooManyRequests: as `check` does.
        """
        self.check(visitor)
        token = _token(visitor)
        self._projects[visitor.project] += 1
        self._tokens[token] += 1
        try:
            yield
        finally:
            self._projects -= Counter({visitor.project: 1})  # in place, and without what is down to 0
            self._tokens -= Counter({token: 1})


def _token(visitor: Visitor) -> tuple[str, str]:
    """Whose client secret it is; empty for an API key."""
    return visitor.project, visitor.claims.token_id if visitor.claims is not None else ""
