"""The dashboard of one node shows all nodes, in a real browser, over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.web.browsers import Browsers
from tests.web.test_dashboard import settings
from voicepipe.client import connect
from voicepipe.testing.chromium import Browser
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.redis import RedisServer, redis_server
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROWS = "[...document.querySelectorAll('{} tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"


@dataclass
class Nodes:
    """Two nodes, and a browser at the first."""

    one: Running
    other: Running
    browser: Browser


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(
    redis: RedisServer, tmp_path_factory: pytest.TempPathFactory, browsers: Browsers
) -> AsyncIterator[Nodes]:
    folder = tmp_path_factory.mktemp("nodes")
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(FakeVendor())
        servers = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            more = {"cluster.store": redis.url, "cluster.node": name}
            node_settings = settings(folder / name, vendor, vendor, **more)
            servers.append(await stack.enter_async_context(running(node_settings)))
        browser = await stack.enter_async_context(browsers.browser(has_microphone=False))
        one, other = servers
        yield Nodes(one, other, browser)


async def test_a_page_lists_the_nodes_and_leads_to_their_sessions(nodes: Nodes) -> None:
    async with connect(nodes.other.base_url) as call, nodes.browser.page(f"{nodes.one.base_url}/dashboard") as page:
        await call.text_turn("What time is it?")
        await page.until("document.querySelector('#views a[href*=nodes]') !== null")
        await page.click("#views a[href*=nodes]")
        rows = await page.until(
            f"(() => {{ const rows = {ROWS.format('#node-table')};"
            "return rows.length === 2 && rows[1][2] === '1' && rows; })()"
        )
        assert [row[:3] for row in rows] == [["one", "● takes sessions", "0"], ["other", "● takes sessions", "1"]]
        await page.click("#node-table tbody tr:last-child a")
        (session,) = await page.until(
            f"(() => {{ const rows = {ROWS.format('#open-table')}; return rows.length === 1 && rows; }})()"
        )
        assert session[2] == "other"
        assert "Node: other" in await page.text("#chips")
        await page.until("document.querySelector('#server-status dd').innerText === '1'")
        assert page.complaints == []


async def test_a_running_turn_of_another_node_is_displayed_with_its_node(nodes: Nodes) -> None:
    async with nodes.browser.page(f"{nodes.one.base_url}/dashboard") as page:
        await page.until("document.querySelector('#status').dataset.state === 'open'")

        async def displayed() -> str | None:
            return str(await page.evaluate("document.querySelector('.running')?.innerText ?? ''")) or None

        async with connect(nodes.other.base_url, agent="support") as call:
            questions = asyncio.create_task(repeated(call))
            try:
                text = await eventually(displayed)
            finally:
                questions.cancel()
        assert "Node other" in text


async def repeated(call: object) -> None:
    """Ask on and on: the page may not be known to the other node yet."""
    while True:
        await call.text_turn("What time is it?")  # type: ignore[attr-defined]
