"""Limit how many requests of a kind are answered at once: refused beyond that, never queued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from voicepipe.errors import Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.errors import TooManyRequests

FULL_WAIT_MS: Final = 1_000
"""`Retry-After` when all places are taken: answers last seconds."""

TOKEN_AT_ONCE: Final = 4
"""Limit of one client secret: a page sends one request at a time. It bounds the excess over a spending limit, since an
answer's cost is counted at its end."""


class Places:
    """The places of one process. Belongs to one event loop."""

    def __init__(self, what: str, most: int, most_of_project: int) -> None:
        """Begin with all places free.

        Args:
            what: the kind of request, as text.
            most: number of places.
            most_of_project: number of places that a project may have; 0 means all.
        """
        self._what, self.most, self._most_of_project = what, most, most_of_project or most
        # bounded: by `most`, since finished requests are removed
        self._projects: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """Number of places in use."""
        return self._projects.total()

    def check(self, principal: Principal) -> None:
        """Check that a place is free now, before a long body is read.

        Raises:
            Overload: all are taken.
            TooManyRequests: the project, or the client secret, has no more.
        """
        token = _token(principal)
        if len(self) >= self.most:
            raise Overload(f"Too many concurrent {self._what} (limit {self.most}).", retry_after_ms=FULL_WAIT_MS)
        if self._projects[principal.project] >= self._most_of_project:
            raise TooManyRequests(
                f"Too many concurrent {self._what} of project {principal.project!r} (limit {self._most_of_project})."
            )
        if token[1] and self._tokens[token] >= TOKEN_AT_ONCE:
            raise TooManyRequests(f"Too many concurrent {self._what} of this client secret (limit {TOKEN_AT_ONCE}).")

    @contextmanager
    def place(self, principal: Principal) -> Iterator[None]:
        """Take a place while the block runs.

        Raises:
            Overload, TooManyRequests: as in `check`.
        """
        self.check(principal)
        token = _token(principal)
        self._projects[principal.project] += 1
        self._tokens[token] += 1
        try:
            yield
        finally:
            self._projects -= Counter({principal.project: 1})  # in place, and without counts that are down to 0
            self._tokens -= Counter({token: 1})


def _token(principal: Principal) -> tuple[str, str]:
    """The client secret's ID; empty for an API key."""
    return principal.project, principal.claims.token_id if principal.claims is not None else ""
