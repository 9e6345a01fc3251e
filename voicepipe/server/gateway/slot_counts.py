"""Count the concurrent requests of each kind against their limits: in one process, or in the supervisor of several."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

CHAT_SLOTS: Final = "chat completions"
AUDIO_SLOTS: Final = "requests for speech, transcription, translation or audio of items"
STREAM_SLOTS: Final = "live streams"
"""The kinds of requests."""

FULL_WAIT_MS: Final = 1_000
"""`Retry-After` when all slots are taken: answers last seconds."""

MAX_PER_TOKEN: Final = 4
"""Limit of one client secret; a page sends one request at a time, or has one stream. It bounds the excess over a
spending limit: the cost of an answer is counted at its end."""

SlotRefusal = Literal["full", "project", "tokens", "token"]
"""The limit that refuses a slot: of all requests, of the project, of all client secrets, or of the client secret."""


@dataclass(frozen=True, slots=True)
class SlotCaps:
    """Maximum numbers of concurrent requests of one kind."""

    all: int
    """Of all clients."""

    per_project: int = 0
    """Of one project; 0: as many as of all."""

    of_tokens: int = 0
    """Of all client secrets together; 0: as many as of all."""

    retry_after_ms: int = FULL_WAIT_MS
    """`Retry-After` when all are taken."""


STREAM_CAPS: Final = SlotCaps(32, of_tokens=16, retry_after_ms=5_000)
"""The limits of live streams: pages of users leave half for operators. Streams last for as long as a page is open."""


class SlotCounts:
    """Counts the concurrent requests of one kind."""

    def __init__(self, caps: SlotCaps) -> None:
        self.caps = caps
        self._n = self._n_of_tokens = 0
        self._of_project: Counter[str] = Counter()
        self._of_token: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._n

    def refusal(self, project: str, token: str) -> SlotRefusal | None:
        """Return the limit that refuses one more request; None: a slot is free. An API key's `token` is empty."""
        if self._n >= self.caps.all:
            return "full"
        if self._of_project[project] >= (self.caps.per_project or self.caps.all):
            return "project"
        if not token:
            return None
        if self._of_token[project, token] >= MAX_PER_TOKEN:
            return "token"
        return "tokens" if self._n_of_tokens >= (self.caps.of_tokens or self.caps.all) else None

    def take(self, project: str, token: str) -> SlotRefusal | None:
        """Take a slot, or return the limit that refuses it."""
        refusal = self.refusal(project, token)
        if refusal is None:
            self._count(project, token, 1)
        return refusal

    def free(self, project: str, token: str) -> None:
        """Free a slot that was taken."""
        self._count(project, token, -1)

    def _count(self, project: str, token: str, amount: int) -> None:
        self._n += amount
        self._n_of_tokens += bool(token) * amount
        self._of_project[project] += amount
        self._of_token[project, token] += amount
        if not self._of_project[project]:
            del self._of_project[project]
        if not self._of_token[project, token]:
            del self._of_token[project, token]
