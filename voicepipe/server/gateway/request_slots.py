"""Limit the concurrent requests of each kind. A request without a slot is refused, never queued."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.errors import TooManyRequests
from voicepipe.server.gateway.slot_counts import MAX_PER_TOKEN, SlotCaps, SlotCounts, SlotRefusal
from voicepipe.server.revocations import REVOKED, Revocable


@dataclass(slots=True, eq=False)
class RequestSlot:
    """One request's slot."""

    principal: Principal
    answer: Revocable | None = None
    """The running answer; None before and after."""

    @contextmanager
    def revocable(self, answer: Revocable) -> Iterator[None]:
        """Let a revocation of the client secret end this answer while the block runs."""
        self.answer = answer
        try:
            yield
        finally:
            self.answer = None


class SharedSlots(Protocol):
    """The slots that several processes share."""

    def taken(self, what: str, project: str, token: str) -> AbstractAsyncContextManager[SlotRefusal | None]:
        """Take a slot of the kind `what` while the block runs; yield the limit that refuses it, if one does."""
        ...


class RequestSlots:
    """The slots of a process, or of all processes that serve one port. Belongs to one event loop."""

    def __init__(self, what: str, caps: SlotCaps, shared: SharedSlots | None = None) -> None:
        """Prepare.

        Args:
            what: the kind of request, as text.
            caps: numbers of slots.
            shared: counts the slots of all processes; None: there are no others.
        """
        self._what, self.caps, self._shared = what, caps, shared
        self._counts = SlotCounts(caps)
        self._taken: set[RequestSlot] = set()  # bounded: by `caps`

    def __len__(self) -> int:
        """Number of slots in use."""
        return len(self._taken)

    def check(self, principal: Principal) -> None:
        """Check that a slot is free now in this process, before a long body is read.

        Raises:
            Overload: all are taken.
            TooManyRequests: the project, or the client secret, has no more.
        """
        self._raise(self._counts.refusal(*_token(principal)), principal)

    @asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[RequestSlot]:
        """Take a slot while the block runs.

        Raises:
            Overload, TooManyRequests: as in `check`.
        """
        with self._counted(principal):
            if self._shared is None:
                with self._running(principal) as slot:
                    yield slot
                return
            async with self._shared.taken(self._what, *_token(principal)) as refusal:
                self._raise(refusal, principal)
                with self._running(principal) as slot:
                    yield slot

    @contextmanager
    def _counted(self, principal: Principal) -> Iterator[None]:
        self._raise(self._counts.take(*_token(principal)), principal)
        try:
            yield
        finally:
            self._counts.free(*_token(principal))

    @contextmanager
    def _running(self, principal: Principal) -> Iterator[RequestSlot]:
        slot = RequestSlot(principal)
        self._taken.add(slot)
        try:
            yield slot
        finally:
            self._taken.discard(slot)

    def _raise(self, refusal: SlotRefusal | None, principal: Principal) -> None:
        match refusal:
            case "full":
                raise self._full(f"Too many concurrent {self._what} (limit {self.caps.all}).")
            case "tokens":
                raise self._full(f"Too many concurrent {self._what} of client secrets (limit {self.caps.of_tokens}).")
            case "project":
                limit = self.caps.per_project
                raise TooManyRequests(
                    f"Too many concurrent {self._what} of project {principal.project!r} (limit {limit})."
                )
            case "token":
                raise TooManyRequests(
                    f"Too many concurrent {self._what} of this client secret (limit {MAX_PER_TOKEN})."
                )

    def _full(self, why: str) -> Overload:
        return Overload(why, retry_after_ms=self.caps.retry_after_ms)

    def end_revoked(self, revocation: Revocation) -> None:
        """End the answers whose client secret is revoked."""
        for slot in self._taken:
            claims = slot.principal.claims
            if slot.answer is not None and claims is not None and revocation.covers(claims):
                slot.answer.end_now(REVOKED)


def _token(principal: Principal) -> tuple[str, str]:
    return principal.project, principal.claims.token_id if principal.claims is not None else ""
