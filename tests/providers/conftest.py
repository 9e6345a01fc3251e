"""What the tests of providers share: a vendor on a real socket, and the connections' lifetime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.built_in import factory
from voicepipe.providers.net import http
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.vendor import FakeVendor


@pytest.fixture
async def vendor() -> AsyncIterator[FakeVendor]:
    """A vendor for one test; the connections to it are closed first."""
    async with FakeVendor() as vendor, http.lifetime():
        yield vendor


@pytest.fixture
def timeout_ms() -> int:
    """How long the vendor may send nothing; `short_timeout` tests shorten it."""
    return LONG_TIMEOUT_MS


@pytest.fixture
def settings(vendor: FakeVendor, timeout_ms: int) -> Callable[..., ProviderSettings]:
    """Settings that lead to the vendor, with options as keywords."""

    def make(*, api_key: str = "sk-test-0123456789", **options: str) -> ProviderSettings:
        return ProviderSettings(
            kind="openai",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=timeout_ms,
            options=tuple(options.items()),
        )

    return make


@pytest.fixture
def transcriber_factory() -> Callable[..., Callable[..., Transcriber]]:
    """`transcriber_factory(SPEC, base_url, kind="deepgram", key=KEY)` returns a factory of transcribers there.

    The factory takes options as keywords.
    """

    def at(spec: Spec, base_url: str, *, kind: str, key: str) -> Callable[..., Transcriber]:
        def make(*, api_key: str = key, idle_timeout_ms: int = LONG_TIMEOUT_MS, **options: str) -> Transcriber:
            settings = ProviderSettings(
                kind=kind,
                base_url=base_url,
                api_key=api_key,
                idle_timeout_ms=idle_timeout_ms,
                options=tuple(options.items()),
            )
            transcriber: Transcriber = factory(kind, "stt", key="stt")(spec, settings)
            return transcriber

        return make

    return at


@pytest.fixture
def flush_late() -> Callable[[Any, int], Awaitable[None]]:
    """Flush in the loop's turn in which the transcriber's waiting ends, before it is notified of that."""

    async def flushing(stream: Any, flush: int) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def do() -> None:
            assert stream._wait.expired()
            try:
                stream.flush(flush)
            except RuntimeError as why:
                done.set_exception(why)
            else:
                done.set_result(None)

        stream._wait.reschedule(loop.time())
        loop.call_soon(do)
        await done

    return flushing
