"""The adapters' side of the engine's socket: one connection for each job, closed to cancel it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.clock import answer_from_outside
from voicepipe.errors import ConfigError, StageBroken, StageRefused, StageTimeout
from voicepipe.providers.local import wire
from voicepipe.providers.local.prerequisites import check_gguf, check_packages, check_socket_path
from voicepipe.registry import ProviderSettings, Spec

_RETRY_CONNECT_S: Final = 0.02
_numbers = itertools.count()


class Link(msgspec.Struct, frozen=True):
    """The address of the engine for one stage's adapter, with its timeouts."""

    stage: wire.Stage
    provider: str
    socket_path: Path
    connect_timeout_ms: int
    idle_timeout_ms: int

    def broken(self, why: str) -> StageBroken:
        """The engine failed at a job; another attempt may find a new engine."""
        return StageBroken(self.stage, provider=self.provider, why=why, retryable=True)

    def refused(self, why: str, *, status: int | None = None) -> StageRefused:
        """The requested item does not exist here; a retry does not help. `status` is the matching HTTP status."""
        return StageRefused(self.stage, provider=self.provider, why=why, retryable=False, status=status)


class Exchange:
    """A job at the engine, and the connection that carries it."""

    def __init__(self, link: Link) -> None:
        self.closed = False
        self._link = link
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, job: wire.Job) -> None:
        """Send the job, waiting as long as the settings allow for an engine that is restarting.

        Raises:
            StageBroken: there was no engine.
        """
        try:
            async with answered_within(self._link.connect_timeout_ms):
                while self._writer is None and not self.closed:
                    await self._connect()
        except (TimeoutError, OSError) as error:
            raise self._link.broken("the engine process is not running") from error
        if self._writer is None:
            raise self._link.broken("given up")
        if self.closed:  # while it connected
            self._writer.close()
        self._writer.write(wire.frame(job))

    async def next(self) -> wire.EngineReply:
        """Return the next reply; `wire.FINAL` lists the last ones. When this is cancelled, so is the job.

        Raises:
            StageError: the engine refused, stalled or broke; or the job is over.
        """
        self._refuse_if_closed()  # replies that came before may still be in the reader
        try:
            reply = await self._receive()
        except BaseException:
            self.close()  # part of a frame may have been read
            raise
        self._refuse_if_closed()  # another task may have closed it since the reply came
        if isinstance(reply, wire.FINAL):
            self.close()
        match reply:
            case wire.JobRefused(why, retryable, retry_after_ms):
                stage, provider = self._link.stage, self._link.provider
                raise StageRefused(
                    stage, provider=provider, why=why, retryable=retryable, retry_after_ms=retry_after_ms
                )
            case wire.JobFailed(why):
                raise self._link.broken(why)
        return reply

    def close(self) -> None:
        """Cancel the job, if it is not done. Returns at once; a pending `next` raises `StageBroken`."""
        self.closed = True
        if self._writer is not None:
            self._writer.close()

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise self._link.broken("given up")

    async def _connect(self) -> None:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._link.socket_path)
        except (FileNotFoundError, ConnectionError):
            await asyncio.sleep(_RETRY_CONNECT_S)

    async def _receive(self) -> wire.EngineReply:
        assert self._reader is not None
        link = self._link
        try:
            async with answered_within(link.idle_timeout_ms):
                reply = await wire.receive(self._reader, wire.REPLIES)
        except TimeoutError as error:
            why = f"no data for {link.idle_timeout_ms} ms"
            raise StageTimeout(link.stage, provider=link.provider, why=why, retryable=True) from error
        except (ValueError, msgspec.MsgspecError) as error:
            raise link.broken(f"expected a message of the engine, got another: {error}") from error
        if reply is None:
            raise link.broken("the engine process ended")
        return reply


async def scored(link: Link, job: wire.Score | wire.ScoreAudio) -> float:
    """Have the engine compute a score, and return it, 0 to 1.

    Raises:
        StageError: the engine has no such scores, refused, stalled or broke.
    """
    exchange = Exchange(link)
    try:
        await exchange.send(job)
        match await exchange.next():
            case wire.Scored(probability):
                return min(1.0, max(0.0, probability))
            case _:
                raise link.broken("the engine ended without a score")
    finally:
        exchange.close()


@asynccontextmanager
async def answered_within(timeout_ms: int) -> AsyncIterator[None]:
    """Wait in the block for the engine; raises `TimeoutError` after that time."""
    with answer_from_outside():
        async with asyncio.timeout(timeout_ms / 1000):
            yield


def link(stage: wire.Stage, spec: Spec, settings: ProviderSettings, *, model: str) -> Link:
    """Check what can be checked before the first turn.

    Raises:
        ConfigError: the spec names another model, no socket is set, or the stage's packages are not installed.
    """
    if spec.model != model:
        raise ConfigError(f"{spec}: expected the local {stage} model {model!r}, got {spec.model!r}")
    check_packages(stage)
    return _link(stage, spec, settings)


def gguf_link(spec: Spec, settings: ProviderSettings) -> Link:
    """Do the same for the LLM in a GGUF file, the spec's model.

    Raises:
        ConfigError: no such file, another format, no socket, or missing packages.
    """
    check_gguf(Path(spec.model))
    return _link("llm", spec, settings)


def _link(stage: wire.Stage, spec: Spec, settings: ProviderSettings) -> Link:
    socket_path = dict(settings.options).get("socket")
    if not socket_path:
        raise ConfigError(f'{spec}: expected the option "socket", the path of the engine\'s socket')
    check_socket_path(Path(socket_path))
    return Link(stage, str(spec), Path(socket_path), settings.connect_timeout_ms, settings.idle_timeout_ms)


def new_session() -> str:
    """Return a name under which the engine shares its time fairly, for ports without a session."""
    return f"{os.getpid()}-{next(_numbers)}"
