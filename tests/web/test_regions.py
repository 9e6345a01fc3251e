"""A page of another origin takes the nearest region, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.web.browsers import Browsers
from tests.wiring.test_regions import places
from voicepipe.testing.fakes.vendor import FakeVendor

pytestmark = pytest.mark.slow


@asynccontextmanager
async def other_origin() -> AsyncIterator[str]:
    """Serve an empty page."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>Shop</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_a_page_takes_a_region_that_answers(tmp_path: Path, browsers: Browsers) -> None:
    async with (
        FakeVendor() as vendor,
        places(tmp_path, vendor, "eu", "us") as found,
        other_origin() as shop,
        browsers.browser(has_microphone=False) as browser,
        browser.page(shop) as page,
    ):
        eu, us = found["eu"], found["us"]
        script = f"import('{us.url}/web/regions.js').then((its) => its"
        both = await page.evaluate(f"{script}.regions('{eu.url}', '{us.url}'))")
        assert {(each["name"], each["url"], each["is_ready"]) for each in both} == {
            ("eu", eu.url, True),
            ("us", us.url, True),
        }
        assert both == sorted(both, key=lambda each: each["round_trip_ms"])

        eu.address.server_port = 0
        eu.address.abort()
        nearest = await page.evaluate(f"{script}.nearestRegion('{eu.url}', '{us.url}'))")
        assert (nearest["name"], nearest["url"]) == ("us", us.url)
        (_, gone) = await page.evaluate(f"{script}.regions('{us.url}'))")
        assert gone == {"name": "eu", "url": eu.url, "round_trip_ms": None, "is_ready": False}

        us.address.server_port = 0
        us.address.abort()
        why = await page.evaluate(f"{script}.regions('{eu.url}').then(String, (why) => why.message))")
        assert why.startswith(f"no list of regions: {eu.url}: ")


async def test_the_dashboard_links_to_the_other_regions(tmp_path: Path, browsers: Browsers) -> None:
    async with (
        FakeVendor() as vendor,
        places(tmp_path, vendor, "eu", "us") as found,
        browsers.browser(has_microphone=False) as browser,
        browser.page(f"{found['eu'].url}/dashboard?view=nodes") as page,
    ):
        link = await page.until("document.querySelector('#regions a')?.href")
        assert link == f"{found['us'].url}/dashboard?view=nodes"
        assert await page.text("#regions") == "Region: eu. Others: us"
        assert page.complaints == []
