"""A cache of all API keys, so that no request, and no guess, reads their file."""

from __future__ import annotations

from voicepipe.auth.apikeys import ApiKey, ApiKeys, KeyTable


class ApiKeyCache:
    """The keys as of the file's last change, whichever process changed it. Belongs to one thread.

    An unknown key costs as much as a valid one: 28 bytes of the file are read, about 20 us, and a dictionary look-up.
    While the file cannot be read the last known keys stay.
    """

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys, self._cache = api_keys, api_keys.cache()
        self._any_made = False

    def is_current(self) -> bool:
        """Return whether the file is unchanged since it was read, or cannot be checked now."""
        return self._cache.current() is not None

    def read(self) -> None:
        """Read the file: call from a worker thread when `is_current` is False.

        Raises:
            ConfigError: the file cannot be read, and never was.
        """
        self._cache.get(self._api_keys.table)

    def find(self, text: str) -> ApiKey:
        """Return the key with this text.

        Raises:
            UnknownCredential: it is malformed or unknown.
            AuthError: it was revoked.
        """
        return self._table().find(text)

    def any_made(self) -> bool:
        """Return whether a key ever existed, revoked keys too (`ApiKeys.any_made`), also if its file was deleted."""
        self._any_made = self._any_made or bool(self._table().keys)
        return self._any_made

    def _table(self) -> KeyTable:
        return self._cache.last or KeyTable()
