"""API keys for customers' backends. Random, shown once, stored as a hash, each of one project."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.auth.file_cache import FileCache
from voicepipe.auth.scopes import ALL, KEY_DEFAULT
from voicepipe.auth.sqlite import change_counter, reading, writing
from voicepipe.errors import INCORRECT_KEY, AuthError, ConfigError, UnknownCredential
from voicepipe.storage import StorageHealth

PREFIX: Final = "vp_"

_ALPHABET: Final = string.ascii_letters + string.digits
_ID_CHARS: Final = 8
_SECRET_CHARS: Final = 43
"""62**43 is just above 2**256."""

_PROJECT: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_KEY: Final = re.compile(rf"vp_(?P<project>[a-z0-9-]{{1,32}})_(?P<random>[A-Za-z0-9]{{{_ID_CHARS + _SECRET_CHARS}}})")
_NO_DIGEST: Final = hashlib.sha256(b"").digest()
_FIELDS: Final = ("id", "project", "name", "scopes", "created_at_s", "revoked_at_s")
_COLUMNS: Final = ", ".join(_FIELDS)
_ROW: Final = (*_FIELDS, "secret_sha256")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored: its project and permissions, without the secret."""

    id: str
    """8 characters that are also part of the key itself, after the project."""

    project: str
    name: str
    """The owner's name for the key."""

    scopes: tuple[str, ...]
    created_at_s: int
    revoked_at_s: int | None
    """When it was revoked; None while it is valid."""


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A new key: the only time that its text is shown."""

    text: str = field(repr=False)
    """`vp_PROJECT_` and 51 letters and digits: the id, then 256 random bits."""

    key: ApiKey


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key as nodes share it: all but its secret, of which there is only the digest."""

    id: str
    project: str
    name: str
    scopes: str
    """Separated by spaces."""

    secret_sha256: bytes
    created_at_s: int
    revoked_at_s: int | None


@dataclass(frozen=True, slots=True)
class KeyTable:
    """All API keys of a file at one moment: a look-up is a dictionary's, and reads nothing."""

    keys: Mapping[tuple[str, str], tuple[bytes, ApiKey]] = field(default_factory=dict, repr=False)
    """(project, id) -> the secret's SHA-256, and the key."""

    def find(self, text: str) -> ApiKey:
        """Return the key with this text.

        It is found by its public id, then compared in constant time, so the answer's time reveals nothing of the
        secret.

        Raises:
            UnknownCredential: it is malformed or unknown.
            AuthError: it was revoked.
        """
        match = _KEY.fullmatch(text)
        if match is None:
            raise UnknownCredential(
                f"{INCORRECT_KEY} It is malformed: expected {PREFIX}PROJECT_ and {_ID_CHARS + _SECRET_CHARS} "
                "letters and digits. Was it copied whole?"
            )
        id_, secret = match["random"][:_ID_CHARS], match["random"][_ID_CHARS:]
        digest, key = self.keys.get((match["project"], id_), (_NO_DIGEST, None))
        same = hmac.compare_digest(digest, _digest(secret))
        if key is None or not same:
            raise UnknownCredential(
                f"{INCORRECT_KEY} This server doesn't have it. 'voicepipe keys list' shows its keys by their first "
                "letters, 'voicepipe keys create' makes a new one."
            )
        if key.revoked_at_s is not None:
            raise AuthError(
                f"The API key {key.id} was revoked. Make a new one with 'voicepipe keys create'.",
                code="api_key_revoked",
            )
        return key


class ApiKeys:
    """The API keys of one `data_dir`. Every method may wait for another process: call from a worker thread.

    A key's secret is stored as plain SHA-256. Slow hashes make guessing of human-chosen passwords costly. 256 random
    bits cannot be guessed at any speed, and this hash is computed at every handshake.
    """

    def __init__(self, data_dir: Path, *, health: StorageHealth | None = None) -> None:
        """Create a store. `health`: is notified when the file cannot be read while a server has its keys in memory."""
        self._data_dir, self._health = data_dir, health

    def create(self, project: str, *, now_s: int, name: str = "", scopes: Collection[str] = KEY_DEFAULT) -> NewApiKey:
        """Make a key for `project`.

        Raises:
            ConfigError: the project's name isn't 1 to 32 of `a-z 0-9 -`, or a scope is unknown.
        """
        _check_new(project, scopes)
        id_, secret = _random(_ID_CHARS), _random(_SECRET_CHARS)
        ordered = tuple(scope for scope in ALL if scope in scopes)
        with writing(self._data_dir) as connection:
            connection.execute(
                "INSERT INTO api_keys (id, project, name, scopes, secret_sha256, created_at_s)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (id_, project, name, " ".join(ordered), _digest(secret), now_s),
            )
        key = ApiKey(id=id_, project=project, name=name, scopes=ordered, created_at_s=now_s, revoked_at_s=None)
        return NewApiKey(f"{PREFIX}{project}_{id_}{secret}", key)

    def table(self) -> KeyTable:
        """Read all keys."""
        with reading(self._data_dir) as connection:
            rows = connection.execute(f"SELECT secret_sha256, {_COLUMNS} FROM api_keys").fetchall()
        keys = ((row[0], _api_key(row[1:])) for row in rows)
        return KeyTable({(key.project, key.id): (digest, key) for digest, key in keys})

    def find(self, text: str) -> ApiKey:
        """Read the file and return the key with this text.

        Raises:
            UnknownCredential: it is malformed or unknown.
            AuthError: it was revoked.
        """
        return self.table().find(text)

    def revoke(self, id_: str, *, now_s: int) -> ApiKey:
        """Revoke the key; a second revocation changes nothing.

        Raises:
            ConfigError: there is no key of that id.
        """
        with writing(self._data_dir) as connection:
            connection.execute(
                "UPDATE api_keys SET revoked_at_s = ? WHERE id = ? AND revoked_at_s IS NULL", (now_s, id_)
            )
            row = connection.execute(f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?", (id_,)).fetchone()
        if row is None:
            raise ConfigError(f"no API key has the id {id_!r}: 'voicepipe keys list' shows them")
        return _api_key(row)

    def rows(self) -> tuple[KeyRow, ...]:
        """Return all keys, to be shared with other nodes."""
        with reading(self._data_dir) as connection:
            found = connection.execute(f"SELECT {_COLUMNS}, secret_sha256 FROM api_keys ORDER BY rowid").fetchall()
        return tuple(KeyRow(**dict(zip(_ROW, row, strict=True))) for row in found)

    def merge(self, rows: Collection[KeyRow]) -> int:
        """Add the keys of other nodes, and their revocations; return how many were new. Nothing is taken back: a key
        that is revoked anywhere is revoked."""
        known = {row.id: row for row in self.rows()}
        new = [row for row in rows if row.id not in known]
        revoked = [
            row
            for row in rows
            if row.revoked_at_s is not None and row.id in known and known[row.id].revoked_at_s is None
        ]
        if not new and not revoked:
            return 0
        with writing(self._data_dir) as connection:
            connection.executemany(
                f"INSERT OR IGNORE INTO api_keys ({', '.join(_ROW)}) VALUES ({', '.join('?' * len(_ROW))})",
                [[getattr(row, name) for name in _ROW] for row in new],
            )
            connection.executemany(
                "UPDATE api_keys SET revoked_at_s = ? WHERE id = ? AND revoked_at_s IS NULL",
                [(row.revoked_at_s, row.id) for row in revoked],
            )
        return len(new) + len(revoked)

    def list(self, project: str | None = None) -> tuple[ApiKey, ...]:
        """Return the keys of `project`, or of all projects, oldest first, revoked keys too."""
        with reading(self._data_dir) as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM api_keys WHERE ?1 IS NULL OR project = ?1 ORDER BY created_at_s, rowid",
                (project,),
            ).fetchall()
        return tuple(map(_api_key, rows))

    def cache(self) -> FileCache[KeyTable]:
        """Return a cache of the table of all keys."""
        return FileCache(lambda: self.state(), self._health)

    def state(self) -> bytes:
        """Return some bytes that differ after every change, by any process: a short read, also on an event loop."""
        return change_counter(self._data_dir)

    def any_made(self) -> bool:
        """Return whether a key ever existed. Until then a server on loopback is open to its own machine.

        A revoked key counts: revoking the last key must admit no client, not every client.
        """
        return bool(self.list())


def _check_new(project: str, scopes: Collection[str]) -> None:
    if not _PROJECT.fullmatch(project):
        raise ConfigError(f"project: expected 1 to 32 of a-z, 0-9 and - (not at the ends), got {project!r}")
    unknown = sorted(set(scopes) - set(ALL))
    if unknown or not scopes:
        raise ConfigError(f"scopes: expected some of {', '.join(ALL)}, got {', '.join(unknown) or 'none'}")


def _random(n_chars: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(n_chars))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _api_key(row: tuple[str, str, str, str, int, int | None]) -> ApiKey:
    id_, project, name, scopes, created_at_s, revoked_at_s = row
    return ApiKey(
        id=id_,
        project=project,
        name=name,
        scopes=tuple(scopes.split()),
        created_at_s=created_at_s,
        revoked_at_s=revoked_at_s,
    )
