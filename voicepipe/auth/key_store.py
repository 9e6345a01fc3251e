"""The generated secrets of one `data_dir`, shared by all processes that use it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from voicepipe.auth.file_cache import FileCache
from voicepipe.auth.keys import SECRET_BYTES, Keyring, SigningKey, VerifyingKey
from voicepipe.auth.sqlite import change_counter, reading, writing
from voicepipe.errors import ConfigError
from voicepipe.storage import StorageHealth


class KeyStore:
    """Generated HS256 secrets, and keys from files, as one ring.

    Every method but `current` may wait for another process that is writing: call from a worker thread. Threads may
    share one store.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        signing: Iterable[SigningKey] = (),
        verifying: Iterable[VerifyingKey] = (),
        health: StorageHealth | None = None,
    ) -> None:
        """Create a store. `signing` and `verifying` are keys from files; the first of `signing` precedes the generated
        secrets.
        """
        self._data_dir = data_dir
        self._signing, self._verifying = tuple(signing), tuple(verifying)
        self._ring: FileCache[Keyring] = FileCache(lambda: change_counter(data_dir), health)

    def keyring(self, now_s: int) -> Keyring:
        """Return the ring as it is now, or the last ring while the file cannot be read.

        The first call of all makes a secret; a call that finds no change reads 4 bytes.

        Raises:
            ConfigError: the file is unusable and was never read, or two keys have the same `kid`.
        """
        return self._ring.get(lambda: Keyring((*self._signing, *self._generated(now_s)), self._verifying))

    def current(self) -> Keyring | None:
        """Return the ring if the file is unchanged since it was read, else None: never waits for another process."""
        return self._ring.current()

    def rotate(self, now_s: int) -> SigningKey:
        """Make a new secret, which signs from now on. Tokens signed with older secrets stay valid."""
        with writing(self._data_dir) as connection:
            return _make(connection, now_s)

    def remove(self, kid: str) -> None:
        """Delete a generated secret: the tokens that it signed are refused from now on.

        Raises:
            ConfigError: there is no such secret, or it is the newest one, which signs.
        """
        with writing(self._data_dir) as connection:
            kids = [row[0] for row in connection.execute("SELECT kid FROM token_secrets ORDER BY position DESC")]
            if kid not in kids:
                raise ConfigError(f"no token key {kid!r}; there are: {', '.join(kids)}")
            if kid == kids[0]:
                raise ConfigError(f"token key {kid!r} is the one that signs: rotate first, then remove it")
            connection.execute("DELETE FROM token_secrets WHERE kid = ?", (kid,))

    def _generated(self, now_s: int) -> tuple[SigningKey, ...]:
        with reading(self._data_dir) as connection:
            found = _all(connection)
        if found:
            return found
        with writing(self._data_dir) as connection:
            return _all(connection) or (_make(connection, now_s),)  # another process may have made it first


def _all(connection: sqlite3.Connection) -> tuple[SigningKey, ...]:
    rows = connection.execute("SELECT kid, secret FROM token_secrets ORDER BY position DESC")
    return tuple(SigningKey.hs256(kid, secret) for kid, secret in rows)


def _make(connection: sqlite3.Connection, now_s: int) -> SigningKey:
    key = SigningKey.hs256(f"hs-{secrets.token_hex(4)}", secrets.token_bytes(SECRET_BYTES))
    connection.execute(
        "INSERT INTO token_secrets (kid, secret, created_at_s) VALUES (?, ?, ?)", (key.kid, key.secret, now_s)
    )
    return key
