"""The real engine process, started once for all tests of this room, and a stand-in for its loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import soundfile

from voicepipe.ports.transcriber import Samples
from voicepipe.providers.local.engine.daemon import Daemon, Loaders
from voicepipe.providers.local.process import start_engine
from voicepipe.registry import ProviderSettings

DATA = Path(__file__).parent.parent / "data"

RunDaemon = Callable[[Loaders], AbstractAsyncContextManager[ProviderSettings]]


def settings_for(socket_path: Path, **changes: Any) -> ProviderSettings:
    """What wiring gives the adapters."""
    return ProviderSettings(kind="local", options=(("socket", str(socket_path)),), **changes)


@pytest.fixture(scope="session")
def engine_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an engine with all three models listens. Without them this fails, and says how to install them."""
    path = tmp_path_factory.mktemp("e") / "e.sock"
    began, over, failures = threading.Event(), threading.Event(), []

    async def hold() -> None:
        async with start_engine(path, linger_ms=200):
            began.set()
            await asyncio.to_thread(over.wait)

    def run() -> None:
        try:
            asyncio.run(hold())
        except BaseException as error:
            failures.append(error)
            began.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(100)
    if failures:
        raise failures[0]
    yield path
    over.set()
    thread.join(30)
    assert not thread.is_alive()
    assert not failures


@pytest.fixture
def settings(engine_socket: Path) -> ProviderSettings:
    """Of the real engine. Answers wait for each other here: only an engine that hangs is idle for so long."""
    return settings_for(engine_socket, idle_timeout_ms=60_000)


@pytest.fixture
def run_daemon(tmp_path: Path) -> RunDaemon:
    """An engine's event loop in this process, with models of the test's own."""

    @asynccontextmanager
    async def run(loaders: Loaders) -> AsyncIterator[ProviderSettings]:
        path = tmp_path / "d.sock"
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(Daemon(loaders, linger_ms=60_000).serve(path))
            while not path.is_socket():  # noqa: ASYNC110 - a turn of the loop or two
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write_eof()
            await reader.read()  # it has answered by closing, so it serves
            writer.close()
            yield settings_for(path, connect_timeout_ms=2_000, idle_timeout_ms=5_000)
            serving.cancel()

    return run


@pytest.fixture(scope="session")
def clips() -> dict[str, tuple[Samples, str]]:
    """name -> (int16 at 16 kHz, what is said) of the recordings of short clean turns."""
    lines = map(json.loads, (DATA / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    clean = [line for line in lines if line["kind"] == "clean"]
    return {
        Path(line["id"]).name: (soundfile.read(DATA / line["path"], dtype="int16")[0], line["text"]) for line in clean
    }
