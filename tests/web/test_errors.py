"""Errors say what to do, and the page goes on as soon as it can."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from voicepipe.auth.claims import Claims
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.tokens import AUDIENCE, ISSUER, mint
from voicepipe.clock import unix_s
from voicepipe.config import Settings, load
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

pytestmark = pytest.mark.slow

ANSWER = "Ask not what your country can do for you."
MEASURED = "document.querySelector('.agent .latency[data-outcome=completed]')?.dataset.turn"
CONNECTED = "document.querySelector('#status').dataset.state === 'open'"

GONE = ("ERR_CONNECTION_REFUSED", "WebSocket connection to")
"""What a browser's own console says of a server that isn't there."""

REFUSED = ("the server responded with a status of", "WebSocket connection to")


def secret(folder: Path, **claims: Any) -> str:
    """A client secret of the server whose data is in `folder`."""
    now_s = unix_s()
    usual = {"issuer": ISSUER, "audience": AUDIENCE, "subject": "", "project": "default", "token_id": "t1"}
    times = {"issued_at_s": now_s - 60, "not_before_s": now_s - 60, "expires_at_s": now_s + 60}
    return mint(Claims(**{**usual, **times, **claims}), KeyStore(folder / "data").keyring(now_s).signer)


async def test_a_refused_microphone(talking: Any) -> None:
    """The page says where to allow it, and the conversation goes on in writing."""
    async with talking() as talk, talk.page(microphone="denied") as page:
        await page.start()
        assert "Allow it in the browser's address bar" in await page.error_text("may not use your microphone")
        await page.write("Hello?")
        await page.until(MEASURED)


async def test_no_microphone(talking: Any) -> None:
    """The page says that there is none."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        await page.start()
        assert "Connect one" in await page.error_text("There is no microphone")


async def test_a_silent_microphone(talking: Any) -> None:
    """A microphone that gives nothing at all is muted or the wrong one; once it gives something the words go."""
    async with talking(says=(7_000, "jfk")) as talk, talk.page() as page:
        await page.start()
        assert "choose another one in the settings" in await page.error_text("The microphone is silent")
        await page.until("document.querySelector('#problems').hidden")


async def test_an_expired_secret_in_the_address(talking: Any) -> None:
    """It is noticed before a connection is tried, and taken out of the address."""
    async with talking(has_microphone=False) as talk:
        old = secret(talk.folder, expires_at_s=unix_s() - 5)
        async with talk.page(f"{talk.address}#{old}") as page:
            assert await page.evaluate("location.hash") == ""
            await page.click("#start")
            assert "Get a new one from your backend" in await page.error_text("has expired")
            await page.until("document.querySelector('#start').checkVisibility()")


async def test_a_secret_that_the_server_refuses(talking: Any) -> None:
    """A browser reports no reason when a WebSocket is refused; the page finds out, and repeats the server's words."""
    async with talking(has_microphone=False) as talk:
        other = secret(talk.folder, audience="somebody else")
        async with talk.page(f"{talk.address}#{other}", complaints=REFUSED) as page:
            await page.click("#start")
            await page.error_text("use it at the server that it was minted for")
            await page.until("document.querySelector('#start').checkVisibility()")


async def test_a_secret_that_may_not_read_turns(talking: Any) -> None:
    """A backend minted the secret for talking alone: each turn's latency is shown as the session itself reports it.

    Where the session does not report it, the page says why no latency is shown.
    """
    async with talking(has_microphone=False) as talk:
        good = secret(talk.folder)
        async with talk.page(f"{talk.address}#{good}") as page:
            await page.start()
            await page.write("Hello?")
            await page.until(MEASURED)
        async with talk.page(f"{talk.address}#{good}", complaints=REFUSED, unaware=True) as page:
            await page.start()
            await page.write("Hello?")
            await page.error_text("may not read turns")
            assert await page.text(".entry.agent .words")


async def test_a_full_server(talking: Any) -> None:
    """The page says that every place is taken, and connects when one is free."""
    async with (
        talking(has_microphone=False, settings={"server.max_sessions": 1}) as talk,
        talk.page() as first,
        talk.page(complaints=REFUSED) as second,
    ):
        await first.start()
        await second.click("#start")
        await second.error_text("full")
        await first.click("#stop")
        await first.until("document.querySelector('#status').dataset.state === 'closed'")
        await second.click("#retry")
        await second.until(CONNECTED)
        await second.until("document.querySelector('#problems [data-topic=line]') === null")


async def test_a_server_that_comes_back(talking: Any, tmp_path: Path) -> None:
    """The page says that the server is gone, finds it again by itself, and sends it the conversation so far."""
    async with talking(has_microphone=False) as talk, AsyncExitStack() as opened:
        vendor = talk.server.vendor
        async with running(settings(vendor, tmp_path, port=0)) as server:
            page = await opened.enter_async_context(talk.page(f"{server.base_url}/talk", complaints=GONE))
            await page.start()
            await page.write("My name is Ada.")
            await page.until(MEASURED)
        await page.error_text("can't be reached")
        async with running(settings(vendor, tmp_path, port=int(server.base_url.rpartition(":")[2]))):
            # Not by the mouse: the page tries again by itself, and then there is no button to click.
            await page.evaluate("document.querySelector('#retry').click()")
            await page.until(CONNECTED)
            await page.until("document.querySelector('#problems [data-topic=line]') === null")
            await page.write("What is my name?")
            await page.until("document.querySelectorAll('.agent .latency[data-outcome=completed]').length === 2")
    said = [
        message["content"] for message in vendor.llm.received[-1].question["messages"] if message["role"] != "system"
    ]
    assert said == ["My name is Ada.", ANSWER, "What is my name?"]


def settings(vendor: FakeVendor, folder: Path, *, port: int) -> Settings:
    """A server on that port whose stages are all at `vendor`."""
    overrides = {
        "server.port": port,
        "server.drain_ms": 0,
        "server.data_dir": str(folder / "second"),
        "providers.fake.base_url": vendor.base_url,
        "agents.default.stt": "fake/stt",
        "agents.default.llm": "fake/llm",
        "agents.default.tts": "fake/tts",
    }
    return load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)
