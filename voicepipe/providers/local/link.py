"""The adapters' side of the engine's socket: one connection for each job, closed to cancel it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.errors import ConfigError, StageBroken, StageRefused, StageTimeout
from voicepipe.providers.local import wire
from voicepipe.providers.local.prerequisites import check_packages, check_socket_path
from voicepipe.registry import ProviderSettings, Spec

_RETRY_CONNECT_S: Final = 0.02
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Link:
    """How one stage's adapter reaches the engine."""

    stage: wire.Stage
    provider: str
    socket_path: Path
    connect_timeout_ms: int
    idle_timeout_ms: int

    @asynccontextmanager
    async def ask(self, job: wire.Job) -> AsyncIterator[AsyncIterator[wire.Reply]]:
        """Hand in a job; the iterator ends with its final reply. Leaving the context cancels it, without waiting.

        Raises:
            StageError: from the context: no engine was there; from the iterator: it refused, stalled or broke.
        """
        reader, writer = await self._connect()
        try:
            writer.write(wire.frame(job))
            yield self._replies(reader)
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, waiting as long as the settings allow for an engine that is being started again."""
        try:
            async with asyncio.timeout(self.connect_timeout_ms / 1000):
                while True:
                    try:
                        return await asyncio.open_unix_connection(self.socket_path)
                    except (FileNotFoundError, ConnectionError):
                        await asyncio.sleep(_RETRY_CONNECT_S)
        except (TimeoutError, OSError) as error:
            raise self.broken("the engine process is not running") from error

    async def _replies(self, reader: asyncio.StreamReader) -> AsyncIterator[wire.Reply]:
        while True:
            match await self._next(reader):
                case None:
                    raise self.broken("the engine process went away")
                case wire.Refused() as refused:
                    raise StageRefused(
                        self.stage,
                        provider=self.provider,
                        why=refused.why,
                        retryable=refused.retryable,
                        retry_after_ms=refused.retry_after_ms,
                    )
                case wire.Broken() as broken:
                    raise self.broken(broken.why)
                case reply:
                    yield reply
                    if isinstance(reply, wire.FINAL):
                        return

    async def _next(self, reader: asyncio.StreamReader) -> wire.Reply | None:
        try:
            async with asyncio.timeout(self.idle_timeout_ms / 1000):
                return await wire.receive(reader, wire.REPLIES)
        except TimeoutError as error:
            why = f"nothing came for {self.idle_timeout_ms} ms"
            raise StageTimeout(self.stage, provider=self.provider, why=why, retryable=True) from error
        except (ValueError, msgspec.MsgspecError) as error:
            raise self.broken(f"the engine process sent something else: {error}") from error

    def broken(self, why: str) -> StageBroken:
        """The engine failed at a job; another try may find a new one."""
        return StageBroken(self.stage, provider=self.provider, why=why, retryable=True)

    def refused(self, why: str) -> StageRefused:
        """What was asked for does not exist here; trying again won't help."""
        return StageRefused(self.stage, provider=self.provider, why=why, retryable=False)


def link(stage: wire.Stage, spec: Spec, settings: ProviderSettings, *, model: str) -> Link:
    """Check what can be checked before the first turn.

    Raises:
        ConfigError: the spec names another model, no socket is set, or the stage's packages are not installed.
    """
    if spec.model != model:
        raise ConfigError(f"{spec}: expected the local {stage} model {model!r}, got {spec.model!r}")
    socket_path = dict(settings.options).get("socket")
    if not socket_path:
        raise ConfigError(f'{spec}: expected the option "socket", the path of the engine\'s socket')
    check_packages(stage)
    check_socket_path(Path(socket_path))
    return Link(stage, str(spec), Path(socket_path), settings.connect_timeout_ms, settings.idle_timeout_ms)


def new_session() -> str:
    """A name under which the engine shares its time fairly, for ports that don't tell whose turn it is."""
    return f"{os.getpid()}-{next(_numbers)}"
