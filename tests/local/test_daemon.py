"""The engine's loop, with stand-ins for the models: order, bounds, failures, the end."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from voicepipe.errors import StageBroken, StageRefused, StageTimeout
from voicepipe.ports.transcriber import Final, TranscriptionOptions, TranscriptStream
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Exchange, Link, link
from voicepipe.providers.local.engine import worker as worker_module
from voicepipe.providers.local.engine.daemon import Daemon, Loaders
from voicepipe.providers.local.engine.worker import QUEUE_LIMIT, SESSION_LIMIT, Task
from voicepipe.providers.local.process import start_engine
from voicepipe.providers.local.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.waiting import WAIT_S, eventually

RunDaemon = Callable[[Loaders], AbstractAsyncContextManager[ProviderSettings]]
SPEC = Spec("local", "moonshine-tiny")


class Echo:
    """Return the number of samples as the text. Wait for `gate` before each job, and record the order of jobs."""

    concurrency = 1

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.begun: list[str] = []
        self.tasks: list[Task] = []
        self.first_begun = threading.Event()

    def run(self, task: Task) -> None:
        assert isinstance(task.job, wire.Transcribe)
        self.begun.append(task.job.session)
        self.tasks.append(task)
        self.first_begun.set()
        assert self.gate.acquire(timeout=WAIT_S)
        if task.job.session == "poison":
            raise ArithmeticError("what the user said")
        if not task.cancelled.is_set():
            task.emit(wire.Transcribed(f"{len(task.job.audio) // 2} samples"))

    def open(self, n_jobs: int) -> None:
        """Let as many jobs through."""
        self.gate.release(n_jobs)


def far_side(settings: ProviderSettings) -> Link:
    """Where the daemon of a test is."""
    return link("stt", SPEC, settings, model="moonshine-tiny")


def listening(settings: ProviderSettings) -> AbstractAsyncContextManager[TranscriptStream]:
    """Open one session's transcriber at the daemon."""
    return open_transcriber(SPEC, settings).open(TranscriptionOptions(model="moonshine-tiny", language="en-GB"))


async def send_job(settings: ProviderSettings, session: str) -> Exchange:
    """A job that has been handed in."""
    exchange = Exchange(far_side(settings))
    await exchange.send(wire.Transcribe(session, b"\0\0"))
    return exchange


async def test_an_engine_computes_on_one_thread(run_daemon: RunDaemon) -> None:
    """Other threads of the library that numpy computes with would take the cores from the models."""
    with threadpool_limits(limits=2, user_api="blas"):
        async with run_daemon({"stt": Echo}):
            assert [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"] == [1]


async def test_sessions_are_served_in_turn(run_daemon: RunDaemon) -> None:
    """One user's revisions don't make another wait behind them all."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        jobs = [await send_job(settings, "first")]
        await asyncio.to_thread(echo.first_begun.wait, WAIT_S)
        for session in ("a", "a", "a", "b"):
            jobs.append(await send_job(settings, session))
            await in_queue(settings)
        echo.open(5)
        for job in jobs:
            assert await job.next() == wire.Transcribed("1 samples")
            job.close()
    assert echo.begun == ["first", "a", "b", "a", "a"]


async def in_queue(settings: ProviderSettings) -> None:
    """Return when the daemon has seen all that was sent before: a later lease has been answered."""
    reader, writer = await asyncio.open_unix_connection(dict(settings.options)["socket"])
    writer.write(wire.frame(wire.Attach(wire.VERSION, ("stt",))))
    reply: wire.EngineReply | None = None
    while not isinstance(reply, wire.Ready):
        reply = await wire.receive(reader, wire.REPLIES)
    writer.close()


async def test_a_lease_reports_how_busy_a_model_is(run_daemon: RunDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the clients of an engine, again and again; nothing is known of one that is gone."""
    monkeypatch.setattr(wire, "LOAD_S", 0.01)
    echo = Echo()

    async def is_busy(share: float) -> bool | None:
        return (0.0 < engine.load.get("stt", 0.0) <= 1.0) is (share > 0) or None

    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        engine = start_engine(Path(dict(settings.options)["socket"]), stages=("stt",))
        assert engine.load == {}
        async with engine:
            job = await send_job(settings, "first")
            await eventually(lambda: is_busy(1.0))
            echo.open(1)
            assert await job.next() == wire.Transcribed("1 samples")
            await eventually(lambda: is_busy(0.0))


async def test_the_time_of_each_thread_counts_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a job which is not done: a long answer must not look like a pause."""
    now_us = 0
    monkeypatch.setattr(worker_module, "monotonic_us", lambda: now_us)
    echo, replies = Echo(), queue.SimpleQueue[wire.EngineReply]()
    worker = worker_module.Worker("stt", lambda: echo, lambda: None)
    assert worker.submit(Task(wire.Transcribe("s", b"\0\0"), replies.put))
    assert worker.submit(Task(wire.Transcribe("s", b"\0\0"), replies.put))
    assert echo.first_begun.wait(WAIT_S)
    now_us = 1_000_000
    assert worker.read_load() == 1.0
    now_us = 1_500_000
    echo.open(2)
    for _ in range(2):
        assert replies.get(timeout=WAIT_S) == wire.Transcribed("1 samples")

    async def is_idle() -> bool | None:
        return not worker._running_since_us or None

    await eventually(is_idle)
    now_us = 3_000_000
    assert worker.read_load() == 0.25
    now_us = 4_000_000
    assert worker.read_load() == 0.0


async def test_full_queue_refuses_at_once(run_daemon: RunDaemon) -> None:
    """With a hint when to come again; those who wait are answered, and one user can't take all the room."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        running = await send_job(settings, "running")
        await asyncio.to_thread(echo.first_begun.wait, WAIT_S)
        greedy = [await send_job(settings, "greedy") for _ in range(SESSION_LIMIT + 1)]
        with pytest.raises(StageRefused, match="the queue is full"):
            await greedy.pop().next()
        others = [await send_job(settings, f"s{n}") for n in range(QUEUE_LIMIT - SESSION_LIMIT)]
        await in_queue(settings)
        late = await send_job(settings, "late")
        with pytest.raises(StageRefused) as refused:
            await late.next()
        assert (refused.value.retryable, refused.value.retry_after_ms) == (True, 1_000)
        echo.open(1 + QUEUE_LIMIT)
        for job in (running, *greedy, *others):
            assert await job.next() == wire.Transcribed("1 samples")
            job.close()


async def test_cancelled_jobs_are_not_run(run_daemon: RunDaemon) -> None:
    """A job whose user has gone while it waited costs nothing."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        running = await send_job(settings, "running")
        await asyncio.to_thread(echo.first_begun.wait, WAIT_S)
        gone, queued = await send_job(settings, "gone"), await send_job(settings, "kept")
        await in_queue(settings)
        gone.close()
        await in_queue(settings)
        echo.open(2)
        for job in (running, queued):
            await job.next()
            job.close()
    assert echo.begun == ["running", "kept"]


async def test_a_failing_job_breaks_only_itself(run_daemon: RunDaemon, caplog: pytest.LogCaptureFixture) -> None:
    """Its user may try again; the next job runs; what was said stands in no log."""
    echo = Echo()
    echo.open(2)
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        poison = await send_job(settings, "poison")
        with pytest.raises(
            StageBroken, match="local/moonshine-tiny: the local model failed: ArithmeticError"
        ) as broken:
            await poison.next()
        assert broken.value.retryable
        fine = await send_job(settings, "fine")
        assert await fine.next() == wire.Transcribed("1 samples")
        fine.close()
    assert "what the user said" not in caplog.text


async def test_a_model_that_does_not_load_refuses(run_daemon: RunDaemon) -> None:
    """Jobs that came before and after the failure get the reason, and a mark that trying again won't help."""
    may_fail = threading.Event()

    def load() -> Echo:
        assert may_fail.wait(WAIT_S)
        raise OSError("no such weights")

    async with run_daemon({"stt": load}) as settings, asyncio.timeout(WAIT_S):
        early = await send_job(settings, "early")
        may_fail.set()
        for job in (early, await send_job(settings, "late")):
            with pytest.raises(StageRefused, match="can't load the local stt model: no such weights") as refused:
                await job.next()
            assert not refused.value.retryable


async def test_a_stalled_engine_is_a_timeout(run_daemon: RunDaemon) -> None:
    """After the time that the settings give it."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        short_timeout = ProviderSettings(kind="local", options=settings.options, idle_timeout_ms=50)
        job = await send_job(short_timeout, "a")
        assert await asyncio.to_thread(echo.first_begun.wait, WAIT_S)
        with pytest.raises(StageTimeout, match="no data for 50 ms"):
            await job.next()
        assert await asyncio.to_thread(echo.tasks[0].cancelled.wait, WAIT_S)
        echo.open(1)


async def test_no_engine_is_broken(tmp_path: Path) -> None:
    """Not a traceback of the socket's, and another provider may be tried."""
    options = (("socket", str(tmp_path / "absent.sock")),)
    with pytest.raises(StageBroken, match="the engine process is not running") as broken:
        await send_job(ProviderSettings(kind="local", options=options, connect_timeout_ms=60), "a")
    assert broken.value.retryable


async def test_another_version_is_not_attached(run_daemon: RunDaemon) -> None:
    """Two releases on one machine don't misread one another."""
    async with run_daemon({"stt": Echo}) as settings, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_unix_connection(dict(settings.options)["socket"])
        writer.write(wire.frame(wire.Attach(wire.VERSION + 1, ("stt",))))
        refused = await wire.receive(reader, wire.REPLIES)
        writer.close()
    assert isinstance(refused, wire.JobRefused)
    assert "stop the other" in refused.why


async def test_garbage_is_refused_and_survived(run_daemon: RunDaemon) -> None:
    """Whatever else writes to the socket, the next client is served."""
    echo = Echo()
    echo.open(1)
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x02\x00\x00\x00\xc1\xc1", b"\x09\x00", b""):
            reader, writer = await asyncio.open_unix_connection(dict(settings.options)["socket"])
            writer.write(garbage)
            writer.write_eof()
            await reader.read()
            writer.close()
        job = await send_job(settings, "a")
        assert await job.next() == wire.Transcribed("1 samples")
        job.close()


async def test_a_job_that_was_closed_gives_no_replies_that_came_before(tmp_path: Path) -> None:
    """A slow reader leaves an answer whose end is already there."""
    path, closed = tmp_path / "d.sock", asyncio.Event()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.frame(wire.Reading()) + wire.frame(wire.Transcribed("late")))
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    settings = ProviderSettings(kind="local", options=(("socket", str(path)),))
    async with await asyncio.start_unix_server(reply, path), asyncio.timeout(WAIT_S):
        exchange = await send_job(settings, "a")
        assert await exchange.next() == wire.Reading()
        exchange.close()
        with pytest.raises(StageBroken, match="given up"):
            await exchange.next()
        await closed.wait()


async def test_a_job_that_is_closed_gives_no_reply_that_comes_at_the_same_time(tmp_path: Path) -> None:
    """The reply is in the reader, and the task that waits for it has not run yet."""
    path = tmp_path / "d.sock"

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    settings = ProviderSettings(kind="local", options=(("socket", str(path)),))
    async with await asyncio.start_unix_server(reply, path), asyncio.timeout(WAIT_S):
        exchange = await send_job(settings, "a")
        waiting = asyncio.create_task(exchange.next(), name="reader")
        await asyncio.sleep(0)  # until it waits
        assert exchange._reader is not None
        exchange._reader.feed_data(wire.frame(wire.Transcribed("late")))
        exchange.close()
        with pytest.raises(StageBroken, match="given up"):
            await waiting


async def test_it_ends_after_its_last_client(tmp_path: Path) -> None:
    """Without one to wait for it does not stay; nor does its socket."""
    path = tmp_path / "d.sock"
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        serving = group.create_task(Daemon({"stt": Echo}, linger_ms=10).serve(path))
        settings = ProviderSettings(kind="local", options=(("socket", str(path)),))
        job = await send_job(settings, "a")
        job.close()
        await serving
    assert not path.exists()


async def test_flushes_request_the_pushed_audio(run_daemon: RunDaemon) -> None:
    """A flush has the utterance as it was then; of two that wait the later counts; a new utterance begins empty."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S), listening(settings) as stream:
        stream.begin(1)
        stream.push(np.zeros(10, np.int16))
        stream.flush(1)
        stream.push(np.zeros(5, np.int16))
        stream.flush(2)
        stream.begin(2)
        stream.push(np.zeros(3, np.int16))
        stream.flush(1)
        echo.open(2)
        assert await anext(aiter(stream)) == Final(1, 2, "15 samples", "en")
        assert await anext(aiter(stream)) == Final(2, 1, "3 samples", "en")


async def test_long_speech_is_decoded_while_it_goes_on(run_daemon: RunDaemon) -> None:
    """Pieces of it are done before any flush, so a flush waits for the rest only; nothing is decoded twice."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S), listening(settings) as stream:
        stream.begin(1)
        for _ in range(40):
            stream.push(np.zeros(16_000, np.int16))
        echo.open(100)
        for flush in (1, 2):
            stream.flush(flush)
            text = await anext(aiter(stream))
            assert isinstance(text, Final)
            counts = [int(word) for word in text.text.split() if word != "samples"]
            assert sum(counts) == 40 * 16_000
            assert max(counts) <= 15 * 16_000
        assert len(echo.begun) == len(counts) + 1


async def test_a_broken_stream_stays_broken(run_daemon: RunDaemon) -> None:
    """Asking on raises the same error, and does not wait."""

    def load() -> Echo:
        raise OSError("no such weights")

    async with run_daemon({"stt": load}) as settings, asyncio.timeout(WAIT_S), listening(settings) as stream:
        stream.flush(1)
        for _ in range(2):
            with pytest.raises(StageRefused, match="no such weights"):
                await anext(aiter(stream))


async def test_leaving_is_seen_by_the_engine(run_daemon: RunDaemon) -> None:
    """The job of a stream that was left is cancelled, while another task waits for its text."""
    echo = Echo()
    async with run_daemon({"stt": lambda: echo}) as settings, asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        async with listening(settings) as stream:
            stream.flush(1)
            waiting = group.create_task(anext(aiter(stream), None))
            await asyncio.to_thread(echo.first_begun.wait, WAIT_S)
        assert await waiting is None
        assert await asyncio.to_thread(echo.tasks[0].cancelled.wait, WAIT_S)
        echo.open(1)


@pytest.mark.parametrize("language", ["de", "fr-CA"])
async def test_other_languages_are_refused(run_daemon: RunDaemon, language: str) -> None:
    """By name, and before the user has said anything."""
    async with run_daemon({"stt": Echo}) as settings:
        with pytest.raises(StageRefused, match=f"expected the language English, got '{language}'"):
            async with open_transcriber(SPEC, settings).open(
                TranscriptionOptions(model="moonshine-tiny", language=language)
            ):
                pass
