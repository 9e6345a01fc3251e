"""Count the concurrent requests of each kind against their limits: in one process, or in the supervisor of several."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

CHAT_SLOTS: Final = "chat completions"
AUDIO_SLOTS: Final = "requests for speech, transcription, translation or audio of items"
"""The kinds of requests."""

FULL_WAIT_MS: Final = 1_000
"""`Retry-After` when all slots are taken: answers last seconds."""

MAX_PER_TOKEN: Final = 4
"""Limit of one client secret; a page sends one request at a time. It bounds the excess over a spending limit: the cost
of an answer is counted at its end."""

SlotRefusal = Literal["full", "project", "token"]
"""The limit that refuses a slot: of all requests, of the project, or of the client secret."""


class SlotCounts:
    """Counts the concurrent requests of one kind."""

    def __init__(self, limit: int, max_per_project: int) -> None:
        """The arguments are those of `RequestSlots`."""
        self.limit, self.max_per_project = limit, max_per_project or limit
        self._n = 0
        self._of_project: Counter[str] = Counter()
        self._of_token: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._n

    def refusal(self, project: str, token: str) -> SlotRefusal | None:
        """Return the limit that refuses one more request; None: a slot is free. An API key's `token` is empty."""
        if self._n >= self.limit:
            return "full"
        if self._of_project[project] >= self.max_per_project:
            return "project"
        return "token" if token and self._of_token[project, token] >= MAX_PER_TOKEN else None

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
        self._of_project[project] += amount
        self._of_token[project, token] += amount
        if not self._of_project[project]:
            del self._of_project[project]
        if not self._of_token[project, token]:
            del self._of_token[project, token]
