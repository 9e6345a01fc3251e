"""The texts of sessions that the workers of one server share: in the supervisor's memory, never on a disk."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import DropText, HasText, KeepText, TakeText


@dataclass(frozen=True, slots=True)
class WorkerTexts:
    """Implements `SessionTexts`: another worker goes on with the sessions of one that has died.

    Each method raises `StoreUnavailable` when the supervisor does not answer.
    """

    link: WorkerLink

    async def has_text(self, session_id: str) -> bool:
        return (await self.link.request_text(HasText(0, session_id))).is_done

    async def keep_text(
        self, session_id: str, text: bytes, *, digest: str, owner: str, life_s: int, former: str = ""
    ) -> bool:
        request = KeepText(0, session_id, text, digest, owner, life_s, former)
        return (await self.link.request_text(request)).is_done

    async def take_text(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        return (await self.link.request_text(TakeText(0, session_id, digest, owner, next_digest))).text

    async def drop_text(self, session_id: str, *, owner: str) -> None:
        await self.link.request_text(DropText(0, session_id, owner))
