"""Hold this process's copy of the session configs of client secrets."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct

MAX_BYTES: Final = 16_000_000
"""Limit for configs that the store has as well, and the same limit again for configs not yet written to the store."""


class LocalConfig(Struct, frozen=True):
    """One config."""

    id: str
    session: bytes
    project: str
    until_s: int


class LocalConfigs:
    """The copy; belongs to one event loop."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        # Full: the least recently used is dropped; the store has it.
        self._stored: OrderedDict[str, LocalConfig] = OrderedDict()
        self._stored_bytes = 0
        # Full: the next config is refused, and its client secret is not minted.
        self._unwritten: OrderedDict[str, LocalConfig] = OrderedDict()
        self._unwritten_bytes = 0

    def find(self, config_id: str, project: str, now_s: int) -> LocalConfig | None:
        """Return the config of that id, if it belongs to this project and has not expired."""
        config = self._unwritten.get(config_id) or self._stored.get(config_id)
        if config is None or config.project != project or config.until_s <= now_s:
            return None
        return config

    def add_stored(self, config: LocalConfig) -> None:
        """Add a config that the store has."""
        self._drop_stored(config.id)
        self._stored[config.id] = config
        self._stored_bytes += len(config.session)
        while self._stored_bytes > self._max_bytes:
            self._drop_stored(next(iter(self._stored)))

    def add_unwritten(self, config: LocalConfig) -> bool:
        """Add a config that must still be written to the store; False: the buffer is full."""
        if self._unwritten_bytes + len(config.session) > self._max_bytes:
            return False
        self.drop_unwritten(config.id)
        self._unwritten[config.id] = config
        self._unwritten_bytes += len(config.session)
        return True

    def next_unwritten(self, now_s: int) -> LocalConfig | None:
        """Return a config that must still be written to the store; None: the store has all."""
        for config in tuple(self._unwritten.values()):
            if config.until_s > now_s:
                return config
            self.drop_unwritten(config.id)
        return None

    def drop_unwritten(self, config_id: str) -> None:
        """Mark a config as written to the store."""
        config = self._unwritten.pop(config_id, None)
        self._unwritten_bytes -= len(config.session) if config is not None else 0

    @property
    def n_unwritten(self) -> int:
        """Return how many configs must still be written to the store."""
        return len(self._unwritten)

    def _drop_stored(self, config_id: str) -> None:
        config = self._stored.pop(config_id, None)
        self._stored_bytes -= len(config.session) if config is not None else 0
