"""All API keys in memory, so that no request, and no guess, costs a look into their file."""

from __future__ import annotations

from voicepipe.auth.apikeys import ApiKey, ApiKeys, KeyTable


class KnownKeys:
    """The keys as the file had them at its last change, whichever process changed it. Belongs to one thread.

    A stranger's key costs as much as a good one: 28 bytes of the file are read, some 20 us, and a dictionary.
    """

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys = api_keys
        self._as_of: bytes | None = None
        self._table = KeyTable()

    def is_current(self) -> bool:
        """Return whether the file is as it was when it was read."""
        return self._as_of is not None and self._api_keys.state() == self._as_of

    def read(self) -> None:
        """Read the file: call from a worker thread when `is_current` says no.

        Raises:
            ConfigError: the file can't be read.
        """
        # Looked at before the keys: a change in between is seen the next time, never missed.
        as_of = self._api_keys.state()
        self._table = self._api_keys.table()
        self._as_of = as_of

    def find(self, text: str) -> ApiKey:
        """Return the key whose text this is.

        Raises:
            UnknownCredential: it is malformed or unknown.
            AuthError: it was revoked.
        """
        return self._table.find(text)

    def any_made(self) -> bool:
        """Return whether there ever was a key, revoked ones too (`ApiKeys.any_made`)."""
        return bool(self._table.keys)
