"""Recordings are decoded in processes of their own: a file that harms its decoder affects no other request."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
import pytest

from voicepipe.audio import decode_process
from voicepipe.audio.decode_file import Pieces, TooLong
from voicepipe.audio.files import UnreadableSound, wav_bytes
from voicepipe.audio.samples import Samples
from voicepipe.huge_pages import VARIABLES
from voicepipe.server import decoding as decoding_module
from voicepipe.server.decoding import DecodedRecording, Decoding, decoding
from voicepipe.testing.fakes.cues import Hold, SttCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

pytestmark = pytest.mark.slow

RATE_HZ = 16_000
LONG = wav_bytes(tone("x" * 1_500, rate_hz=RATE_HZ), RATE_HZ)  # 60 s
SECRET = "a provider's key"


@pytest.fixture
async def decoders(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Decoding]:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    async with decoding() as opened:
        yield opened


def opened(decoders: Decoding, file: bytes = LONG, max_duration_s: int = 600) -> Any:
    return decoders.opened(bytearray(file), RATE_HZ, max_duration_s=max_duration_s)


def processes(decoders: Decoding) -> list[int]:
    """The recordings'."""
    children = Path(f"/proc/{decoders.pid}/task/{decoders.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for an effect of another process that no event reports."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def rest(recording: DecodedRecording) -> list[Samples]:
    found = []
    while (piece := await recording.next_piece()) is not None:
        found.append(piece)
    return found


async def test_it_is_the_same_sound(decoders: Decoding) -> None:
    """The bytes go to the other process, and its pieces are those that are cut here."""
    file = bytearray(LONG)
    async with decoders.opened(file, RATE_HZ, max_duration_s=600) as recording:
        assert not file
        pieces = await rest(recording)
        assert recording.read_s == 60.0
    for here, there in zip(Pieces(LONG, RATE_HZ, max_duration_s=600), pieces, strict=True):
        assert np.array_equal(here, there)
    await until(lambda: not processes(decoders))


def recorded(container: str, codec: str) -> bytes:
    """Two seconds, as browsers and telephones write them."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone("x" * 50, rate_hz=48_000)[None, :], "s16", "mono")
        frame.sample_rate = 48_000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            out.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["webm libopus", "mp4 aac", "ipod aac", "adts aac", "mp3 libmp3lame", "ogg libopus"])
async def test_every_kind_of_file_is_read_there(decoders: Decoding, kind: str) -> None:
    """Though a library loads a part of itself only when a file needs it, and no file can be opened."""
    async with opened(decoders, recorded(*kind.split())) as recording:
        assert sum(map(len, await rest(recording))) == pytest.approx(2 * RATE_HZ, abs=0.2 * RATE_HZ)


async def test_a_refusal_comes_back_as_it_is(decoders: Decoding) -> None:
    with pytest.raises(UnreadableSound, match="expected a sound file: wav, flac"):
        async with opened(decoders, b"no sound"):
            pass
    with pytest.raises(TooLong, match="at most 30 s"):
        async with opened(decoders, max_duration_s=30) as recording:
            await rest(recording)


async def test_a_decoder_that_crashes_costs_its_own_recording_alone(
    decoders: Decoding, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(decoders) as recording:
        (crashing,) = processes(decoders)
        async with opened(decoders) as other:
            os.kill(crashing, signal.SIGSEGV)
            with pytest.raises(UnreadableSound, match="can't be decoded"):
                await rest(recording)
            assert sum(map(len, await rest(other))) == 60 * RATE_HZ
    await until(lambda: bool(caplog.records))
    assert [record.message for record in caplog.records] == ["decoder_ended"]
    assert f"{-signal.SIGSEGV}" in caplog.records[0].__dict__["fields"]["why"]


async def test_a_decoder_that_hangs_is_ended(decoders: Decoding, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(decoders) as recording:
        monkeypatch.setattr(decoding_module, "STEP_S", 0.2)
        os.kill(processes(decoders)[0], signal.SIGSTOP)
        with pytest.raises(UnreadableSound, match=r"within 0\.2 s"):
            await rest(recording)
    await until(lambda: not processes(decoders))


async def test_a_decoder_has_the_recording_and_nothing_else(decoders: Decoding) -> None:
    async with opened(decoders):
        process = Path(f"/proc/{processes(decoders)[0]}")
        lines = [line.split() for line in (process / "limits").read_text().splitlines()]
        limits = {" ".join(line[:-3]): line[-3] for line in lines}
        assert limits["Max core file size"] == limits["Max open files"] == limits["Max file size"] == "0"
        assert limits["Max cpu time"] == "120"
        assert int(limits["Max address space"]) < 1 << 30
        environ = (process / "environ").read_text()
        assert SECRET not in environ
        assert not [name for name in VARIABLES if name in environ]
        assert os.getpriority(os.PRIO_PROCESS, int(process.name)) >= 10
        sockets = [os.readlink(fd) for fd in (process / "fd").iterdir() if os.readlink(fd).startswith("socket:")]
        assert len(sockets) == 1


def test_the_limits_hold() -> None:
    code = """
from voicepipe.audio.decode_process import limit_process
limit_process()
for wanted in (lambda: bytearray(400 << 20), lambda: open("/etc/passwd"), lambda: __import__("socket").socket()):
    try:
        wanted()
    except (MemoryError, OSError) as refused:
        print(type(refused).__name__)
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.split() == ["MemoryError", "OSError", "OSError"]


async def test_an_answer_that_no_decoder_gives_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compromised decoder must not compromise the server: the server waits for no gigabyte."""
    for kind, n_bytes in ((b"p", 1 << 30), (b"x", 1 << 20), (b"o", 5), (b"?", 1)):
        reader = asyncio.StreamReader()
        reader.feed_data(decode_process.ANSWER.pack(kind, 0.0, n_bytes))
        recording = DecodedRecording((reader, None), asyncio.Semaphore(1))  # type: ignore[arg-type]
        with pytest.raises(UnreadableSound, match="can't be decoded"):
            await recording._answer()


async def test_the_process_that_forks_is_started_again(decoders: Decoding) -> None:
    async with opened(decoders) as recording:
        first = decoders.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert sum(map(len, await rest(recording))) == 60 * RATE_HZ  # its own process lives
    await until(lambda: decoders.is_down)
    async with opened(decoders) as recording:
        assert sum(map(len, await rest(recording))) == 60 * RATE_HZ
    assert decoders.pid != first


async def test_it_ends_with_the_server() -> None:
    async with decoding() as decoders:
        context = opened(decoders)
        await context.__aenter__()
        pids = [decoders.pid, *processes(decoders)]
    for pid in pids:
        await until(lambda pid=pid: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
    with suppress(Exception):
        await context.__aexit__(None, None, None)


async def post(server: Any, file: bytes = LONG) -> tuple[int, Any]:
    form = aiohttp.FormData({"model": "default"})
    form.add_field("file", io.BytesIO(file), filename="a.wav")
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/audio/transcriptions", data=form) as answer,
    ):
        return answer.status, await answer.json()


def of_server() -> list[int]:
    """The processes of this process's server: those that fork, and the recordings'."""
    found = []
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdigit() and b"voicepipe.audio.decode_process" in (each / "cmdline").read_bytes():
                found.append((int((each / "stat").read_text().rpartition(")")[2].split()[1]), int(each.name)))
    ours = {pid for parent, pid in found if parent == os.getpid()}
    return [pid for parent, pid in found if parent in ours]


async def test_a_crash_costs_its_request_a_400_and_the_server_nothing(fake_server: Any) -> None:
    async with fake_server({}) as server, asyncio.TaskGroup() as group:
        hold = Hold()
        server.vendor.stt.cue(SttCue(text="One.", hold=hold))
        tasks = group.create_task(post(server))
        await soon(hold.reached)
        (decoder,) = of_server()
        os.kill(decoder, signal.SIGSEGV)
        hold.release.set()
        status, answer = await tasks
        assert (status, answer["error"]["code"]) == (400, "invalid_file_format")
        assert (await post(server))[0] == 200


async def test_credentials_are_looked_up_whatever_keeps_the_threads_busy(serve: Any) -> None:
    """Keys that were made since the last look, too; and client secrets are made."""
    async with serve() as server:
        busy, over = [], threading.Event()
        try:
            busy = [asyncio.get_running_loop().run_in_executor(None, over.wait) for _ in range(64)]
            status, minted = await server.mint({}, headers=server.new_key())
            assert status == 200
            headers = {"Authorization": f"Bearer {minted['value']}"}
            async with server.connect(headers=headers) as call:
                await call.send_str("in?")
                assert await call.receive_str(timeout=WAIT_S) == "in?"
            assert not any(each.done() for each in busy)
        finally:
            over.set()
            await asyncio.gather(*busy)


async def test_decoding_delays_no_other_request(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More hang than the server has threads; a credential is still looked up, and a page still read."""
    async with fake_server({}) as server, asyncio.TaskGroup() as group:
        holds = [Hold() for _ in range(12)]
        server.vendor.stt.cue(*(SttCue(text="One.", hold=hold) for hold in holds))
        tasks = [group.create_task(post(server)) for _ in holds]
        for hold in holds:
            await soon(hold.reached)
        for pid in of_server():
            os.kill(pid, signal.SIGSTOP)
        for hold in holds:
            hold.release.set()
        async with aiohttp.ClientSession() as http:
            for path, key in (("/v1/models", "vp_acme_" + "a" * 51), ("/talk", ""), ("/metrics", "")):
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                async with http.get(server.url + path, headers=headers) as answer:
                    assert answer.status in (200, 401)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
