"""API keys that were found lately, so that a busy client's is not looked up in the file for each of its requests."""

from __future__ import annotations

import hashlib
from typing import Final

from voicepipe.auth.apikeys import ApiKey, ApiKeys

MOST_KEYS: Final = 1_024
"""A customer has a few."""


class KnownKeys:
    """Remembers keys until the file changes, whichever process changed it: one that is revoked is forgotten at once.

    Reads 28 bytes of the file at each question, in some 20 us. Belongs to one thread.
    """

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys = api_keys
        self._as_of = b""
        # Full: the one that was learned first is forgotten, and looked up again.
        self._keys: dict[bytes, ApiKey] = {}

    def recall(self, text: str) -> ApiKey | None:
        """The key whose text this is, if it was learned and nothing has changed since."""
        if self.as_of() != self._as_of:
            self._keys.clear()
        return self._keys.get(_digest(text))

    def as_of(self) -> bytes:
        """The state of the file: to be asked before a key is looked up that is to be learned."""
        return self._api_keys.state()

    def learn(self, text: str, key: ApiKey, *, as_of: bytes) -> None:
        """Remember a key that was found in that state of the file, or a later one."""
        if as_of != self._as_of:
            self._keys.clear()
            self._as_of = as_of
        if len(self._keys) >= MOST_KEYS:
            del self._keys[next(iter(self._keys))]
        self._keys[_digest(text)] = key


def _digest(text: str) -> bytes:
    """Whoever reads our memory finds no key in it."""
    return hashlib.sha256(text.encode()).digest()
