"""The stack of another thread is read while it runs."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from voicepipe.telemetry.thread_stack import MAX_FRAMES, is_idle, stack_of
from voicepipe.testing.waiting import WAIT_S


@contextmanager
def another_thread(work: Callable[[], object]) -> Iterator[int]:
    """Run `work` in a thread; its id."""
    thread = threading.Thread(target=work)
    thread.start()
    assert thread.ident is not None
    try:
        yield thread.ident
    finally:
        thread.join(WAIT_S)


def test_a_stack_is_files_and_lines_innermost_first() -> None:
    """As many as are worth reading."""
    is_deep, is_read = threading.Event(), threading.Event()

    def deeper(n: int) -> None:
        if n:
            deeper(n - 1)
        else:
            is_deep.set()
            is_read.wait(WAIT_S)

    with another_thread(lambda: deeper(20)) as thread_id:
        assert is_deep.wait(WAIT_S)
        stack = stack_of(thread_id)
        is_read.set()
    assert len(stack) == MAX_FRAMES
    assert any(each.startswith("tests/telemetry/test_thread_stack.py:") for each in stack)
    assert stack[-1].endswith(" deeper")
    assert not is_idle(stack)


def test_its_own_stack_and_one_that_is_over() -> None:
    assert any(line.endswith(" test_its_own_stack_and_one_that_is_over") for line in stack_of(threading.get_ident()))
    with another_thread(lambda: None) as thread_id:
        pass
    assert stack_of(thread_id) == ()
    assert not is_idle(())


def test_the_main_thread_of_a_process_with_many_threads() -> None:
    """faulthandler writes the 100 newest."""
    is_read = threading.Event()
    threads = [threading.Thread(target=is_read.wait, args=(WAIT_S,)) for _ in range(120)]
    for thread in threads:
        thread.start()
    found = list[tuple[str, ...]]()
    try:
        with another_thread(lambda: found.append(stack_of(threading.main_thread().ident or 0))):
            pass
    finally:
        is_read.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert any(line.startswith("tests/telemetry/test_thread_stack.py:") for line in found[0])


def test_a_thread_that_waits_in_a_selector_is_idle() -> None:
    def wait() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            selector.select(WAIT_S)

    reader, writer = os.pipe()
    try:
        with another_thread(wait) as thread_id:
            while not is_idle(stack := stack_of(thread_id)):
                assert stack, "the thread is over"
            os.write(writer, b"x")
    finally:
        os.close(reader)
        os.close(writer)


def test_each_line_of_a_stack_that_changes_is_a_place() -> None:
    """The thread calls, returns, awaits and raises while it is read."""
    is_read = threading.Event()

    async def deeper(n: int) -> int:
        if n:
            return await deeper(n - 1)
        await asyncio.sleep(0)
        return sum(range(5))

    async def change() -> None:
        while not is_read.is_set():
            await asyncio.gather(*(deeper(5) for _ in range(5)))

    with another_thread(lambda: asyncio.run(change())) as thread_id:
        found = [stack_of(thread_id) for _ in range(200)]
        is_read.set()
    lines = [line for stack in found for line in stack]
    assert len(lines) > 200
    assert not [line for line in lines if not line.rpartition(" ")[0].rpartition(":")[2].isdigit()]


def test_without_a_file_descriptor_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    with pytest.raises(OSError, match="Too many"):
        stack_of(threading.get_ident())
