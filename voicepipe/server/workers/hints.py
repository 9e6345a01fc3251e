"""The hints that the workers of one server share, in the supervisor's memory: of their routers, and of their turns."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.cluster.port import Hint
from voicepipe.errors import StoreUnavailable
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import StoreHint


class WorkerHints(Struct, frozen=True):
    """Implements `RouterHints`. Each method raises `StoreUnavailable` when the supervisor does not answer."""

    link: WorkerLink

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        if not self.link.send(StoreHint(kind, process, body, life_s)):
            raise StoreUnavailable

    async def hints(self, kind: str) -> list[Hint]:
        return await self.link.request_hints(kind)
