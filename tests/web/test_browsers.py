"""The browsers that tests share."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.web.browsers import Browsers

pytestmark = pytest.mark.slow


def running(folder: Path) -> set[int]:
    """The processes with a profile in the folder that no other of them has started."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if f"--user-data-dir={folder}" in line and "--type=" not in line:
            found.add(process.pid)
    return found


async def greets(browsers: Browsers) -> bool:
    async with browsers.browser(has_microphone=False) as browser, browser.page("data:text/html,<p>hello") as page:
        return await page.text("p") == "hello"


async def test_one_browser_serves_until_it_crashes_and_none_is_left(tmp_path: Path) -> None:
    browsers = Browsers(tmp_path)
    try:
        assert await greets(browsers)
        (first,) = running(tmp_path)
        assert await greets(browsers)
        assert running(tmp_path) == {first}
        os.killpg(first, signal.SIGKILL)
        # WNOWAIT: `Browsers` has to find out by itself that it has ended.
        await asyncio.to_thread(os.waitid, os.P_PID, first, os.WEXITED | os.WNOWAIT)
        assert await greets(browsers)
        (second,) = running(tmp_path)
        assert second != first
    finally:
        browsers.close()
    assert running(tmp_path) == set()


async def test_profiles_are_separate(tmp_path: Path) -> None:
    """A page finds nothing that an earlier one has stored."""
    (tmp_path / "page.html").write_text("<!doctype html><p>hello")
    address = (tmp_path / "page.html").as_uri()
    browsers = Browsers(tmp_path)
    found = []
    try:
        for _ in range(2):
            async with browsers.browser(has_microphone=False) as browser, browser.page(address) as page:
                found.append(await page.evaluate("localStorage.getItem('seen')"))
                await page.evaluate("localStorage.setItem('seen', 'yes')")
    finally:
        browsers.close()
    assert found == [None, None]
