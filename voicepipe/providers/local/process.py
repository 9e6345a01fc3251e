"""Run the engine process: start it or find it, hold a lease, restart it when it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

import voicepipe
from voicepipe.clock import monotonic_ms
from voicepipe.errors import ConfigError, StageBroken, VoicepipeError
from voicepipe.huge_pages import environment_without_huge_pages
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import answered_within
from voicepipe.providers.local.prerequisites import check_engine, check_socket_path
from voicepipe.telemetry.log import log_event

OnProgress = Callable[[wire.LoadProgress], None]
"""Called with each stage's `loading`, then `ready` (with `took_ms`) or `failed` (with `why`)."""

BACK_OFF_MS: Final = (0, 200, 1_000, 5_000, 30_000)
"""Delay before the first, second, ... restart within `_WINDOW_MS`; the last for all later ones."""

_WINDOW_MS: Final = 60_000
_SPAWN_TIMEOUT_S: Final = 30
_RETRY_S: Final = 0.05
_LEAVE_TIMEOUT_S: Final = 1
_EXIT_CANNOT: Final = 2


def start_engine(
    socket_path: Path,
    on_progress: OnProgress = lambda progress: None,
    *,
    stages: tuple[wire.Stage, ...] = wire.STAGES,
    model_file: Path | None = None,
    linger_ms: int = 3_000,
    ready_timeout_ms: int = 60_000,
) -> LocalEngine:
    """Run an engine at `socket_path`, with `stages` loaded, while the context is open.

    An engine that another process of the user runs there is shared. The socket's folder is made, for its owner only.

        async with start_engine(data_dir / "engine.sock", print) as engine: ...

    `model_file` is the operator's own file: of an LLM (GGUF), instead of SmolLM2, or of smart-turn (ONNX), if the stage
    is `endpoint`. Each file has a socket of its own.

    Entering raises:
        ConfigError: the machine or a package cannot run it, or a model does not load; the text names the remedy.
        StageBroken: it does not start in `ready_timeout_ms`.

    Leaving releases the lease; an engine without other clients then ends. An engine also ends `linger_ms` after its
    last client has died.
    """
    return LocalEngine(socket_path.absolute(), on_progress, stages, model_file, linger_ms, ready_timeout_ms)


class LocalEngine:
    """A lease on the engine process. Made by `start_engine`, used as an async context manager, once."""

    def __init__(
        self,
        socket_path: Path,
        on_progress: OnProgress,
        stages: tuple[wire.Stage, ...],
        model_file: Path | None,
        linger_ms: int,
        ready_timeout_ms: int,
    ) -> None:
        self.socket_path = socket_path
        self.pid = 0
        """Process ID of the engine; changes when the engine is restarted."""
        self.ready = False
        """Whether the engine runs, as far as this process has checked."""
        self.restarts = 0
        self.load: dict[wire.Stage, float] = {}
        """How busy the engine's models were lately, by stage: the share of the time in which they worked, for all
        clients. Empty before the first report."""
        self._on_progress, self._stages, self._model_file = on_progress, stages, model_file
        self._linger_ms, self._ready_timeout_ms = linger_ms, ready_timeout_ms
        self._tasks = asyncio.TaskGroup()
        self._supervisor: asyncio.Task[None] | None = None
        self._lease: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        check_engine(self._stages, self._model_file)
        check_socket_path(self.socket_path)
        self.socket_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._attach()
        await self._tasks.__aenter__()
        self._supervisor = self._tasks.create_task(self._keep(), name="local-engine")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._supervisor is not None
        self._supervisor.cancel()
        await self._tasks.__aexit__(None, None, None)
        self.ready = False
        if self._lease is None:
            return
        reader, writer = self._lease
        writer.write(wire.frame(wire.Leave()))
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await _lost(reader)  # it closes the connection when it has read this
        except TimeoutError:
            pass  # closing means the same, and it ends after its linger time
        finally:
            writer.close()

    async def _keep(self) -> None:
        """Wait for the engine to die and restart it, with longer delays if it keeps dying."""
        recent: deque[int] = deque(maxlen=len(BACK_OFF_MS))  # full: the oldest is dropped, the longest delay stays
        while True:
            if self._lease is not None:
                await self._follow(self._lease[0])
                self._drop_lease()
                log_event("local_engine_gone", level=logging.WARNING, pid=self.pid)
            now_ms = monotonic_ms()
            while recent and recent[0] < now_ms - _WINDOW_MS:
                recent.popleft()
            await asyncio.sleep(BACK_OFF_MS[min(len(recent), len(BACK_OFF_MS) - 1)] / 1000)
            recent.append(now_ms)
            self.restarts += 1
            try:
                await self._attach()
            except VoicepipeError as error:
                log_event("local_engine_failed", level=logging.ERROR, why=str(error))

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Note how busy the engine is, and return when it has closed the lease, or has died."""
        try:
            while (reply := await wire.receive(reader, wire.REPLIES)) is not None:
                if isinstance(reply, wire.Load):
                    self.load = reply.shares
        except (ValueError, msgspec.MsgspecError):
            pass  # nothing can be trusted then: the lease is taken anew

    async def _attach(self) -> None:
        """Take a lease, starting the engine if there is none, and wait until it has loaded."""
        try:
            async with answered_within(self._ready_timeout_ms):
                while not await self._try_attach():  # noqa: ASYNC110 - no event reports what another process does
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError as error:
            raise _broken(f"the engine process was not ready in {self._ready_timeout_ms} ms") from error

    async def _try_attach(self) -> bool:
        """Return False when the engine that was found is ending, or the started engine is not listening yet."""
        try:
            self._lease = await asyncio.open_unix_connection(self.socket_path)
        except (FileNotFoundError, ConnectionError):
            await asyncio.to_thread(_spawn, self.socket_path, self._model_file, self._linger_ms)
            return False
        try:
            reader, writer = self._lease
            writer.write(wire.frame(wire.Attach(wire.VERSION, self._stages)))
            self.ready = await self._loaded(reader)
        finally:
            if not self.ready:
                self._drop_lease()
        return self.ready

    async def _loaded(self, reader: asyncio.StreamReader) -> bool:
        failed: list[str] = []
        while True:
            try:
                reply = await wire.receive(reader, wire.REPLIES)
            except (ValueError, msgspec.MsgspecError) as error:
                raise ConfigError(f"{self.socket_path}: another program listens there: {error}") from error
            match reply:
                case wire.LoadProgress():
                    self._on_progress(reply)
                    if reply.state == "failed":
                        failed.append(reply.why)
                case wire.Ready() if failed:
                    raise ConfigError("; ".join(failed))
                case wire.Ready():
                    self.pid = reply.pid
                    return True
                case wire.JobRefused():
                    raise ConfigError(f"local engines: {reply.why}")
                case _:
                    return False

    def _drop_lease(self) -> None:
        self.ready, self.load = False, {}
        if self._lease is not None:
            self._lease[1].close()
            self._lease = None


async def _lost(reader: asyncio.StreamReader) -> None:
    """Return when the engine has closed the lease, or has died."""
    try:
        while await reader.read(4096):
            pass
    except ConnectionError:
        pass  # the same


def _spawn(socket_path: Path, model_file: Path | None, linger_ms: int) -> None:
    """Start an engine unless one runs; returns when it has detached.

    Raises:
        ConfigError: it refused; the text is its reason.
        StageBroken: it died.
    """
    command = [sys.executable, "-m", "voicepipe.providers.local.engine"]
    command += ["--socket", str(socket_path), "--linger-ms", str(linger_ms)]
    command += [] if model_file is None else ["--model-file", str(model_file.absolute())]
    root = str(Path(voicepipe.__file__).parent.parent)
    environment = environment_without_huge_pages() | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))),
        "OPENBLAS_NUM_THREADS": "1",  # the models start their own threads
    }
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SPAWN_TIMEOUT_S, check=False
    )
    why = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == _EXIT_CANNOT:
        raise ConfigError(why)
    if done.returncode:
        raise _broken(f"the engine process ended with {done.returncode}: {why[-500:]}")


def _broken(why: str) -> StageBroken:
    return StageBroken("local", provider="local", why=why, retryable=True)
