"""Share the API keys of a node with the others: each node has all keys in its own file, and works without the store."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

import msgspec

from voicepipe.auth.apikeys import ApiKeys, KeyRow
from voicepipe.cluster.port import SharedKeys
from voicepipe.errors import ConfigError, Overload
from voicepipe.telemetry.log import log_event
from voicepipe.values import replace

CHECK_S: Final = 2.0
"""How often a node checks for keys that were made or revoked, in its file and in the store."""

LATEST_S: Final = 1 << 40
"""No instant of a key is later, in Unix seconds: the file's numbers have 64 bits."""

_rows: Final = msgspec.json.Decoder(KeyRow)


@dataclass(slots=True)
class KeySync:
    """The keys of one node's file and those of the store."""

    keys: ApiKeys
    store: SharedKeys
    _seen: tuple[str, bytes] | None = field(default=None)
    """The store's version and the file's state when both were the same."""

    async def run(self) -> None:
        """Keep both the same until cancelled. While the store is away, or the file fails, changes stay where they were
        made."""
        while True:
            try:
                await self.sync()
            except Overload:
                pass
            except (ConfigError, OSError) as why:
                log_event("api_keys_not_shared", level=logging.WARNING, why=str(why))
            await asyncio.sleep(CHECK_S)

    async def sync(self) -> None:
        """Take the keys of the store into the file, and give it those that it lacks; nothing where neither has changed.

        Raises:
            Overload: the store is away.
            ConfigError, OSError: the file can't be read or written.
        """
        version = await self.store.keys_version()
        if version and (version, await asyncio.to_thread(self.keys.state)) == self._seen:
            return
        bodies, revoked = await self.store.shared_keys()
        found = [row for id_, body in bodies.items() if (row := _read(id_, body, revoked.get(id_))) is not None]
        await asyncio.to_thread(self.keys.merge, found)
        state, rows = await asyncio.to_thread(self._state_and_rows)
        lacking = {row.id: msgspec.json.encode(row) for row in rows if row.id not in bodies}
        ended = {row.id: at_s for row in rows if (at_s := row.revoked_at_s) is not None and row.id not in revoked}
        if lacking or ended:
            await self.store.share_keys(lacking, ended)
        # A version from before: a change of another node in between is found the next time.
        self._seen = None if lacking or ended else (version, state)

    def _state_and_rows(self) -> tuple[bytes, tuple[KeyRow, ...]]:
        return self.keys.state(), self.keys.rows()


def _read(id_: str, body: bytes, revoked_at_s: int | None) -> KeyRow | None:
    """Return a key of the store; None: another version of voicepipe has stored something else."""
    try:
        row = _rows.decode(body)
    except ValueError:  # also msgspec's errors, and bytes that are no UTF-8
        return None
    instants_s = (row.created_at_s, row.revoked_at_s or 0, revoked_at_s or 0)
    if row.id != id_ or not all(0 <= each <= LATEST_S for each in instants_s):
        return None
    return row if revoked_at_s is None else replace(row, revoked_at_s=revoked_at_s)
