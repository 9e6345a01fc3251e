"""The sessions of all workers that use the local models, as their supervisor counts them."""

from __future__ import annotations


class ModelSlots:
    """Counts these sessions, and the slots that are reserved for more. Instants are monotonic, in ms."""

    def __init__(self) -> None:
        self._n_taken = 0
        self._reserved_ms: dict[str, int] = {}  # bounded: by the limits, and by the life of a reservation
        """Reservation -> when it ends."""

    def take(self, limit: int | None, reservation: str, now_ms: int) -> bool:
        """Take a slot, if fewer than `limit` are taken or reserved; None: whatever is taken. The slot of this
        reservation is no longer reserved then."""
        self._reserved_ms.pop(reservation, None)
        if limit is not None and self._n_taken + self._n_reserved(now_ms) >= limit:
            return False
        self._n_taken += 1
        return True

    def reserve(self, limit: int, reservation: str, until_ms: int, now_ms: int) -> bool:
        """Reserve a slot, if fewer than `limit` are taken or reserved."""
        if self._n_taken + self._n_reserved(now_ms) >= limit:
            return False
        self._reserved_ms[reservation] = until_ms
        return True

    def free(self) -> None:
        """Free a slot that was taken."""
        self._n_taken -= 1

    def _n_reserved(self, now_ms: int) -> int:
        self._reserved_ms = {name: until_ms for name, until_ms in self._reserved_ms.items() if until_ms > now_ms}
        return len(self._reserved_ms)
