"""All API keys in memory, so that no request, and no guess, costs a look into their file."""

from __future__ import annotations

from voicepipe.auth.apikeys import ApiKey, ApiKeys, KeyTable


class KnownKeys:
    """The keys as the file had them at its last change, whichever process changed it. Belongs to one thread.

    A stranger's key costs as much as a good one: 28 bytes of the file are read, some 20 us, and a dictionary. While the
    file can't be read the keys are those of before.
    """

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys, self._remembered = api_keys, api_keys.remembered()
        self._any_made = False

    def is_current(self) -> bool:
        """Return whether the file is as it was when it was read, or can't be looked at now."""
        return self._remembered.current() is not None

    def read(self) -> None:
        """Read the file: call from a worker thread when `is_current` says no.

        Raises:
            ConfigError: the file can't be read, and never was.
        """
        self._remembered.get(self._api_keys.table)

    def find(self, text: str) -> ApiKey:
        """Return the key whose text this is.

        Raises:
            UnknownCredential: it is malformed or unknown.
            AuthError: it was revoked.
        """
        return self._table().find(text)

    def any_made(self) -> bool:
        """Return whether there ever was a key, revoked ones too (`ApiKeys.any_made`), also if its file went away."""
        self._any_made = self._any_made or bool(self._table().keys)
        return self._any_made

    def _table(self) -> KeyTable:
        return self._remembered.last or KeyTable()
