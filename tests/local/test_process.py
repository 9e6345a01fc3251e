"""One engine for the machine: found, shared, started again, and never left behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from voicepipe.errors import ConfigError, StageBroken
from voicepipe.huge_pages import VARIABLES
from voicepipe.ports.synthesizer import Spoken, Synthesizer, Voice, audio_of
from voicepipe.providers.local import prerequisites
from voicepipe.providers.local.process import LocalEngine, start_engine
from voicepipe.providers.local.tts import open_synthesizer
from voicepipe.providers.local.wire import LoadProgress
from voicepipe.registry import ProviderSettings, Spec, Stage
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow

BOUND_S = 60
TTS: tuple[Stage, ...] = ("tts",)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    """In a folder that is not there yet."""
    return tmp_path / "engine" / "e.sock"


def synthesizer_at(socket_path: Path) -> Synthesizer:
    """The voice of the engine there."""
    options = (("socket", str(socket_path)),)
    settings = ProviderSettings(kind="local", options=options, connect_timeout_ms=20_000)
    return open_synthesizer(Spec("local", "hibari"), settings)


async def samples_said(synthesizer: Synthesizer, text: str = "Hello there.") -> int:
    """How much sound there was."""
    async with synthesizer.open(Voice(model="hibari")) as speech:
        speech.push(text)
        speech.finish()
        return sum([spoken.samples.size async for spoken in audio_of(speech)])


async def failure_of(sound: AsyncIterator[Spoken]) -> StageBroken:
    """Read until the synthesis breaks."""
    with pytest.raises(StageBroken) as broken:
        async for _ in sound:
            pass
    return broken.value


async def said_something(synthesizer: Synthesizer) -> bool:
    """False when the dying process still took the call."""
    try:
        return await samples_said(synthesizer) > 0
    except StageBroken:
        return False


def has_ended(socket_path: Path) -> None:
    """Wait for the engine's process to be gone: the kernel gives its lock free then."""
    with open(socket_path.with_name("e.sock.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


async def ended(socket_path: Path) -> None:
    """The same, bounded."""
    async with asyncio.timeout(BOUND_S):
        await asyncio.to_thread(has_ended, socket_path)


async def test_loading_progress_is_reported(socket_path: Path) -> None:
    """Each stage is announced and then ready; only requested stages are loaded; the folder is private."""
    seen: list[LoadProgress] = []
    async with asyncio.timeout(BOUND_S), start_engine(socket_path, seen.append, stages=TTS, linger_ms=60_000) as engine:
        assert [(progress.stage, progress.state) for progress in seen] == [("tts", "loading"), ("tts", "ready")]
        assert seen[-1].took_ms > 0
        assert engine.ready
        assert os.stat(socket_path.parent).st_mode & 0o777 == 0o700
        assert os.stat(socket_path).st_mode & 0o077 == 0
        await asyncio.to_thread(os.kill, engine.pid, 0)
    await ended(socket_path)  # at once, not after the minute that it would wait for a client who had died
    assert "e.sock" not in os.listdir(socket_path.parent)


async def test_clients_share_one_engine(socket_path: Path) -> None:
    """The second finds the first's, and keeps it alive when the first leaves."""
    async with asyncio.timeout(BOUND_S), start_engine(socket_path, stages=TTS, linger_ms=50) as second:
        async with start_engine(socket_path, stages=TTS, linger_ms=50) as first:
            assert first.pid == second.pid
        assert await samples_said(synthesizer_at(socket_path))
        assert second.restarts == 0
    await ended(socket_path)


async def test_an_engine_of_a_server_with_huge_pages_has_none(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would take memory, and the server alone is measured to gain by them."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    async with asyncio.timeout(BOUND_S), start_engine(socket_path, stages=TTS, linger_ms=50) as engine:
        environ = await asyncio.to_thread(Path(f"/proc/{engine.pid}/environ").read_text)
        assert "OPENBLAS_NUM_THREADS" in environ
        assert not [name for name in VARIABLES if name in environ]
    await ended(socket_path)


async def test_two_starters_at_once_start_one(socket_path: Path) -> None:
    """The second starter waits with the first while that still loads."""
    engines = [start_engine(socket_path, stages=TTS, linger_ms=50) for _ in range(2)]
    both = asyncio.Barrier(2)

    async def use(engine: LocalEngine) -> int:
        async with engine:
            await both.wait()
            return engine.pid

    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(use(engine)) for engine in engines]
    assert tasks[0].result() == tasks[1].result()
    await ended(socket_path)


async def test_a_killed_engine_breaks_the_turn_and_comes_back(socket_path: Path) -> None:
    """It is killed in the middle of a sentence: the turn gets the error at once, and a new process speaks the
    next one.
    """
    synthesizer = synthesizer_at(socket_path)
    async with asyncio.timeout(BOUND_S), start_engine(socket_path, stages=TTS, linger_ms=50) as engine:
        killed = engine.pid
        assert await said_something(synthesizer)
        os.kill(killed, signal.SIGSTOP)  # so that it is killed before the sentence is over
        async with synthesizer.open(Voice(model="hibari")) as speech, asyncio.TaskGroup() as group:
            speech.push("This goes on and on and on, for as long as anybody listens.")
            reading = group.create_task(failure_of(audio_of(speech)), name="reading")
            while speech._speaking is None:  # type: ignore[attr-defined]  # noqa: ASYNC110 no event says so
                await asyncio.sleep(0)
            os.kill(killed, signal.SIGKILL)
        assert reading.result().retryable
        while not await said_something(synthesizer):
            pass
        assert engine.restarts == 1

        async def is_known() -> bool:
            return engine.pid != killed

        await eventually(is_known)  # it speaks as soon as its voice is loaded, before it reports to be ready
    await ended(socket_path)


async def test_it_ends_when_its_starter_dies(socket_path: Path) -> None:
    """The starter is killed and can't close the engine."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from voicepipe.providers.local.process import start_engine\n"
        "async def main():\n"
        "    async with start_engine(pathlib.Path(sys.argv[1]), stages=('tts',), linger_ms=50):\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(socket_path)]
    starter = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.PIPE)
    try:
        assert starter.stdout is not None
        async with asyncio.timeout(BOUND_S):
            assert await asyncio.to_thread(starter.stdout.readline) == b"ready\n"
    finally:
        starter.kill()
        starter.communicate()
    await ended(socket_path)


async def test_an_unsupported_machine_fails_at_start(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before a process is started; nothing is written."""
    monkeypatch.setitem(prerequisites.PACKAGES, "tts", {"hibari_is_not_here": "hibari-tts"})
    with pytest.raises(ConfigError, match="not installed: hibari-tts; run: pip install"):
        async with start_engine(socket_path, stages=TTS):
            pass
    assert os.listdir(tmp_path) == []


async def test_the_body_fails_as_it_is(socket_path: Path) -> None:
    """An error of the server is not wrapped in one of the engine's; the engine ends all the same."""
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(BOUND_S), start_engine(socket_path, stages=TTS, linger_ms=50):
            raise ZeroDivisionError
    await ended(socket_path)
