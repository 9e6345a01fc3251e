"""The event loop in virtual time: its clock jumps over waits, never over data or over the work of threads."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from voicepipe import clock
from voicepipe.agents.threads import run_in_thread
from voicepipe.evals import virtual_time
from voicepipe.evals.virtual_time import run_in_virtual_time
from voicepipe.testing.waiting import WAIT_S

HOUR_S = 3_600


async def tick(every_s: float) -> None:
    """Have a timer due at any time."""
    while True:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(every_s)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test is over: what waits for it does not return before."""
    over = threading.Event()
    yield over
    over.set()


def test_a_wait_takes_its_time_on_every_clock_of_the_package() -> None:
    async def wait() -> tuple[int, ...]:
        session = clock.SessionClock()
        before = clock.monotonic_ms(), clock.monotonic_us(), clock.unix_ms(), clock.unix_s(), clock.loop_s()
        iso = clock.utc_iso()
        await asyncio.sleep(HOUR_S)
        after = clock.monotonic_ms(), clock.monotonic_us(), clock.unix_ms(), clock.unix_s(), clock.loop_s()
        assert clock.utc_iso() > iso
        return (session.now_ms(), *(round(b - a) for a, b in zip(before, after, strict=True)))

    ms = HOUR_S * 1_000
    assert run_in_virtual_time(wait) == (ms, ms, ms * 1_000, ms, HOUR_S, HOUR_S)


def test_the_real_clock_is_back_afterwards() -> None:
    real_ms = clock.unix_ms()
    run_in_virtual_time(lambda: asyncio.sleep(1_000 * HOUR_S))
    assert real_ms <= clock.unix_ms() < real_ms + HOUR_S * 1_000


def test_a_schedule_of_frames_has_no_rounding_error() -> None:
    """An absolute schedule, as the user's microphone has it: a frame each 20 ms."""

    async def frames() -> list[int]:
        began_ms, at_ms = clock.monotonic_ms(), list[int]()
        for n in range(1, 30_001):
            await asyncio.sleep(max(0, n * 20 - (clock.monotonic_ms() - began_ms)) / 1_000)
            at_ms.append(clock.monotonic_ms() - began_ms)
        return at_ms

    assert run_in_virtual_time(frames) == [n * 20 for n in range(1, 30_001)]


@pytest.mark.parametrize("run", [asyncio.to_thread, run_in_thread], ids=["loop's thread", "tool's thread"])
def test_the_clock_stands_still_while_a_thread_works(run: object, never: threading.Event) -> None:
    async def work() -> int:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick(1))
            before_ms = clock.monotonic_ms()
            assert callable(run)
            await run(lambda: never.wait(0.05))
            took_ms = clock.monotonic_ms() - before_ms
            ticking.cancel()
        return took_ms

    assert run_in_virtual_time(work) == 0


def test_a_thread_is_awaited_when_no_timer_is_due(never: threading.Event) -> None:
    async def work() -> bool:
        return await asyncio.to_thread(never.wait, 0.05)

    assert run_in_virtual_time(work) is False


def test_a_function_that_never_returns_does_not_stop_the_clock(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_time, "THREAD_TIMEOUT_S", 0.01)

    async def work() -> list[int]:
        before_ms, at_ms = clock.monotonic_ms(), list[int]()
        for _ in range(2):
            try:
                async with asyncio.timeout(60):
                    await run_in_thread(never.wait)
            except TimeoutError:
                at_ms.append(clock.monotonic_ms() - before_ms)
        return at_ms

    assert run_in_virtual_time(work) == [60_000, 120_000]


def test_a_task_that_never_waits_does_not_stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "BUSY_POLLS", 100)

    async def forever() -> None:
        while True:  # noqa: ASYNC110 - this is what it is about
            await asyncio.sleep(0)

    async def busy() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(), WAIT_S)

    run_in_virtual_time(busy)


def test_data_between_client_and_server_takes_no_time() -> None:
    """More than a socket holds, so that both sides have to wait for each other."""
    whole = b"x" * 3_000_000

    async def converse() -> tuple[bool, int]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got = await reader.readexactly(len(whole))
            await asyncio.sleep(0.25)
            writer.write(got)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.TaskGroup() as group:
            ticking = group.create_task(tick(0.001))
            before_ms = clock.monotonic_ms()
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert writer.get_extra_info("peername") == server.sockets[0].getsockname()
            writer.write(whole)
            same = await reader.read() == whole
            took_ms = clock.monotonic_ms() - before_ms
            writer.close()
            ticking.cancel()
        return same, took_ms

    assert run_in_virtual_time(converse) == (True, 250)


def test_what_is_outside_is_refused(tmp_path: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        port = elsewhere.getsockname()[1]

        async def dial() -> None:
            ours, other = os.pipe()  # what the loop reads need not be a socket
            asyncio.get_running_loop().add_reader(ours, lambda: None)
            try:
                await asyncio.open_connection("127.0.0.1", port)
            finally:
                asyncio.get_running_loop().remove_reader(ours)
                os.close(ours)
                os.close(other)

        async def dial_path() -> None:
            await asyncio.open_unix_connection(f"{tmp_path}/engine.sock")

        async def start_program() -> None:
            await asyncio.create_subprocess_exec("true")

        async def start_shell() -> None:
            await asyncio.create_subprocess_shell("true")

        for refused, what in ((dial, f"('127.0.0.1', {port})"), (dial_path, "engine.sock")):
            with pytest.raises(OSError, match="virtual time: a connection to") as why:
                run_in_virtual_time(refused)
            assert what in str(why.value)
        for refused in (start_program, start_shell):
            with pytest.raises(OSError, match="virtual time: a program is refused, since the answer takes real time"):
                run_in_virtual_time(refused)


def test_the_clock_runs_as_the_machines_does_while_an_answer_from_outside_is_due() -> None:
    """The other side answers when a timer of the loop has told it to, so the answer takes as long as the timer."""
    due = threading.Event()

    def answer(deaf: socket.socket) -> None:
        connection, _ = deaf.accept()
        with connection:
            due.wait(WAIT_S)
            connection.sendall(b"yes")

    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        address = elsewhere.getsockname()

        async def query() -> tuple[bytes, float]:
            asyncio.get_running_loop().call_later(0.03, due.set)
            before_ms, began_s = clock.monotonic_ms(), time.monotonic()
            with clock.answer_from_outside():
                reader, writer = await asyncio.open_connection(*address)
                got = await reader.read()
            took_s = time.monotonic() - began_s
            assert 30 <= clock.monotonic_ms() - before_ms <= took_s * 1_000
            writer.close()
            await asyncio.sleep(HOUR_S)
            with clock.answer_from_outside():
                await asyncio.sleep(0)  # the hour is no part of this wait
            return got, took_s

        threading.Thread(target=answer, args=(elsewhere,), daemon=True).start()
        got, took_s = run_in_virtual_time(query)
        assert got == b"yes"
        assert took_s >= 0.03


def test_an_engine_behind_a_unix_socket_answers_in_the_machines_time(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")

    def answer(line: socket.socket) -> None:
        connection, _ = line.accept()
        with connection:
            connection.sendall(connection.recv(100))

    async def query() -> bytes:
        with clock.answer_from_outside():
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"question")
            got = await reader.read()
        writer.close()
        return got

    with socket.socket(socket.AF_UNIX) as line:
        line.bind(path)
        line.listen()
        threading.Thread(target=answer, args=(line,), daemon=True).start()
        assert run_in_virtual_time(query) == b"question"


def test_an_answer_of_this_process_takes_no_time() -> None:
    """Scripted models answer over HTTP, too. The clock jumps over their waits."""

    async def query(host: str) -> int:
        async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
            url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
            before_ms = clock.monotonic_ms()
            with clock.answer_from_outside(url):
                assert not clock.waits_outside()
                await asyncio.sleep(HOUR_S)
            return clock.monotonic_ms() - before_ms

    for host in ("127.0.0.1", "localhost"):
        assert run_in_virtual_time(lambda: query(host)) == HOUR_S * 1_000  # noqa: B023 - it is called at once


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1/v1", "https://models.example/v1", "http://10.0.0.1:80"])
def test_another_address_is_outside(url: str) -> None:
    async def query() -> bool:
        with clock.answer_from_outside(url):
            return clock.waits_outside()

    assert run_in_virtual_time(query)


def test_only_who_waits_for_an_answer_may_connect() -> None:
    """A function's own connection is refused, also while a model is asked."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:

        async def query() -> None:
            function = asyncio.create_task(asyncio.open_connection(*elsewhere.getsockname()), name="function")
            with clock.answer_from_outside():
                _, writer = await asyncio.open_connection(*elsewhere.getsockname())
                writer.close()
                with pytest.raises(OSError, match="virtual time: a connection to"):
                    await function

        run_in_virtual_time(query)


def test_a_connection_that_nothing_accepts_is_closed_with_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "THREAD_TIMEOUT_S", 0.01)
    loops = list[virtual_time.VirtualTimeLoop]()

    async def dial() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        loops.append(loop)
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            loop.add_reader(deaf, lambda: None)
            _, writer = await asyncio.open_connection(*deaf.getsockname())
            loop.remove_reader(deaf)
            writer.close()
            await writer.wait_closed()

    run_in_virtual_time(dial)
    assert loops[0].is_closed()
    assert not loops[0]._halves
