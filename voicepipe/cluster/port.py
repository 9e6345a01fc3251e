"""The port to what processes and nodes share. Times are unix seconds, passed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, Self

from voicepipe.auth.claims import Claims
from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import ProtocolError

Unavailable = Literal["admit", "refuse"]
"""What becomes of a client secret while the store is away that alone knows whether it was revoked elsewhere, how often
it was used, or its session config."""

CONFIG_MAX_BYTES: Final = 262_144
"""Of one session config: room for long instructions and many tools, and a bound on what a key's holder can store."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a counter says after it was asked to count."""

    total: int
    counted: bool
    """False: counting would have passed the limit, so nothing was counted."""

    @classmethod
    def of(cls, had: int, amount: int, limit: int | None) -> Self:
        """The law of `Cluster.count`: never above the limit by counting up, never below zero by giving back."""
        refused = amount > 0 and limit is not None and had + amount > limit
        return cls(had, counted=False) if refused else cls(max(had + amount, 0), counted=True)


class Cluster(Protocol):
    """What must be agreed on by all who serve the same callers.

    Every method is atomic: of any number of callers, in any process, that want the last one of something, one gets it.
    A method that is cancelled may still have had its effect.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached, read or written; nothing was changed. A
            store that can't tell whether a call had its effect must find out before it raises. `Resilient` turns these
            into answers of this process, for whatever store.
    """

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        """Revoke a token or a subject. Doing it twice does no harm.

        Returns:
            True: all who share the store know. False: only this process does, and tells the others when it can.
        """
        ...

    async def is_revoked(self, claims: Claims) -> bool:
        """Whether a token is covered by any revocation in force. Asked before a handshake is answered."""
        ...

    def revocations(self) -> AsyncGenerator[Revocation, None]:
        """All revocations in force, then each new one within two seconds, until it is closed or cancelled.

        May give one again. One watch for each process is enough: its running calls are found by `Revocation.covers`.
        """
        ...

    async def keep_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        """Keep a token's starting session config, as JSON text, until the token expires.

        Raises:
            ProtocolError: it is longer than `CONFIG_MAX_BYTES`.
        """
        ...

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        """The config of that id; None when it expired, was never kept, or belongs to another project."""
        ...

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> Tally:
        """Add `amount` to a counter, unless that would pass `limit`; a negative amount gives back, and 0 only asks.

        A counter begins at 0 and is forgotten at the latest `until_s` that it was given. Its calls may outlive a token,
        so for turns and spend that is a time by which they have surely ended. Money is counted in millionths of a USD.
        """
        ...

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        """Take one slot for `holder` (a session's id) in each pool, or in none.

        Args:
            pools: a pool's name -> how many slots it has: `{"machine": 40, "project/demo": 10}`.
            owner: the process that runs the session. It must call `renew_slots` before `until_s`, else the slots
                are free again: so a process that died takes none with it.

        Returns:
            None when all were taken (again, if the holder had them), or the name of a pool that was full.
        """
        ...

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        """Keep all slots of a process until a later time. Slots that have run out meanwhile stay free."""
        ...

    async def give_back_slots(self, holder: str) -> None:
        """Free the slots of one session. Doing it twice does no harm."""
        ...

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        """How many slots of a pool are taken."""
        ...


def counter(claims: Claims, what: str) -> str:
    """The name of a counter of one token: `what` is `sessions`, `turns` or `spend`."""
    return f"token/{claims.project}/{claims.token_id}/{what}"


def check_config(session: bytes) -> None:
    """Refuse a session config that is too long to keep.

    Raises:
        ProtocolError: it is longer than `CONFIG_MAX_BYTES`.
    """
    if len(session) > CONFIG_MAX_BYTES:
        raise ProtocolError(
            f"expected a session config of at most {CONFIG_MAX_BYTES} bytes, got {len(session)}", field="session"
        )
