"""Limit how many requests of a kind are answered at once: refused beyond that, never queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.errors import TooManyRequests
from voicepipe.server.revocations import REVOKED, Revocable

FULL_WAIT_MS: Final = 1_000
"""`Retry-After` when all places are taken: answers last seconds."""

TOKEN_AT_ONCE: Final = 4
"""Limit of one client secret: a page sends one request at a time. It bounds the excess over a spending limit, since an
answer's cost is counted at its end."""


@dataclass(slots=True, eq=False)
class Place:
    """One request's place."""

    principal: Principal
    call: Revocable | None = None
    """The running answer; None before and after."""

    @contextmanager
    def revocable(self, call: Revocable) -> Iterator[None]:
        """End this answer when its client secret is revoked, while the block runs."""
        self.call = call
        try:
            yield
        finally:
            self.call = None

    @property
    def token(self) -> tuple[str, str]:
        """The client secret's project and ID; the ID of an API key is empty."""
        return _token(self.principal)


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
        self._taken: set[Place] = set()  # bounded: by `most`

    def __len__(self) -> int:
        """Number of places in use."""
        return len(self._taken)

    def check(self, principal: Principal) -> None:
        """Check that a place is free now, before a long body is read.

        Raises:
            Overload: all are taken.
            TooManyRequests: the project, or the client secret, has no more.
        """
        if len(self) >= self.most:
            raise Overload(f"Too many concurrent {self._what} (limit {self.most}).", retry_after_ms=FULL_WAIT_MS)
        if sum(each.principal.project == principal.project for each in self._taken) >= self._most_of_project:
            raise TooManyRequests(
                f"Too many concurrent {self._what} of project {principal.project!r} (limit {self._most_of_project})."
            )
        token = _token(principal)
        if token[1] and sum(each.token == token for each in self._taken) >= TOKEN_AT_ONCE:
            raise TooManyRequests(f"Too many concurrent {self._what} of this client secret (limit {TOKEN_AT_ONCE}).")

    @contextmanager
    def place(self, principal: Principal) -> Iterator[Place]:
        """Take a place while the block runs.

        Raises:
            Overload, TooManyRequests: as in `check`.
        """
        self.check(principal)
        place = Place(principal)
        self._taken.add(place)
        try:
            yield place
        finally:
            self._taken.discard(place)

    def end_revoked(self, revocation: Revocation) -> None:
        """End the answers whose client secret is revoked."""
        for place in self._taken:
            claims = place.principal.claims
            if place.call is not None and claims is not None and revocation.covers(claims):
                place.call.end_now(REVOKED)


def _token(principal: Principal) -> tuple[str, str]:
    return principal.project, principal.claims.token_id if principal.claims is not None else ""
