"""The dashboard puts two spans, and two versions of an agent, side by side: in a real browser, over stored turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.web.browsers import Browsers
from voicepipe.clock import unix_ms
from voicepipe.config import load
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.chromium import Browser, Page
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.arm import Arm
from voicepipe.wiring import running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

DAY_MS = 86_400_000
OLD, NEW = "prompt/old", "prompt/new"
TOTAL_MS = 983
"""The turn latency of a turn with the marks `MARKS`."""

SLOWER_MS = {OLD: 400, NEW: 0}
"""What the model of an arm takes longer to its first token."""

YESTERDAY_MS = 1_000
"""What it took longer a day earlier."""

N_TURNS = 3
QUANTILE = 0.01
"""The relative error of a quantile."""


def stored(at_ms: int, later_ms: int, arm: str, number: int) -> StoredTurn:
    """A turn whose first token came later."""
    marks = tuple((name, ms + later_ms * (name not in BEFORE)) for name, ms in MARKS)
    record = turn_record(marks, id=f"turn_{number}", session=f"sess_{number}", turn=1)
    return StoredTurn(record, "default", "default", at_ms, arm=Arm.read(arm))


BEFORE = ("voiced_last", "flushed", "end_due", "ended", "transcribed", "llm_requested")


def turns(now_ms: int) -> Iterator[StoredTurn]:
    """Some turns of each arm, just now and a day earlier."""
    number = 0
    for ago_ms, later_ms in ((60_000, 0), (DAY_MS + 60_000, YESTERDAY_MS)):
        for arm, slower_ms in SLOWER_MS.items():
            for _ in range(N_TURNS):
                number += 1
                yield stored(now_ms - ago_ms, later_ms + slower_ms, arm, number)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dashboard(tmp_path_factory: pytest.TempPathFactory, browsers: Browsers) -> AsyncIterator[tuple[Browser, str]]:
    """A browser, and the dashboard's address."""
    folder: Path = tmp_path_factory.mktemp("compared")
    data = folder / "data"
    data.mkdir(mode=0o700)
    store = await SqliteTurnStore.open(data / "turns.sqlite3")
    await store.store(tuple(turns(unix_ms())))
    await store.close()
    async with FakeVendor() as vendor:
        overrides = {
            "server.port": 0,
            "server.drain_ms": 0,
            "server.data_dir": str(data),
            "providers.quick.base_url": vendor.base_url,
            "agents.default.stt": "quick/ear",
            "agents.default.llm": "quick/mind",
            "agents.default.tts": "quick/mouth",
        }
        settings = load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)
        async with running(settings) as server, browsers.browser(has_microphone=False) as browser:
            yield browser, f"{server.base_url}/dashboard"


async def rows(page: Page, table: str, column: str) -> dict[str, list[str]]:
    """Return the rows of a table by their first cell, as soon as it has that column; the key of its heads is ''."""
    found: list[list[str]] = await page.until(
        f"(() => {{ const all = [...document.querySelectorAll('#{table} tr')].map((row) =>"
        " [...row.cells].map((cell) => cell.textContent.trim()));"
        f" return all.some((row) => row.includes({column!r})) && all; }})()"
    )
    return {"": found[0], **{row[0]: row for row in found[1:]}}


def figure(cells: dict[str, list[str]], row: str, column: str) -> int:
    """Return a figure of a table, without the sign that it is over its limit."""
    return int(cells[row][cells[""].index(column)].removeprefix("▲ "))


async def test_two_spans_are_side_by_side(dashboard: tuple[Browser, str]) -> None:
    """The stage that was slower a day ago is seen in its row; a link shows another person the same."""
    browser, url = dashboard
    async with browser.page(url) as page:
        await page.until("document.querySelector('#stage-table tbody tr') !== null")
        assert "then" not in await page.text("#stage-table")
        await page.click("#stages .choice label:nth-of-type(3)")
        stages = await rows(page, "stage-table", "p50 then")
        address = await page.evaluate("location.search")
        tiles = await page.text(".tiles")
        assert page.complaints == []
    assert "versus=day" in address
    for row, usual_ms in (("Turn latency", TOTAL_MS), ("LLM first token", 235)):
        now_ms, then_ms = figure(stages, row, "p50, ms"), figure(stages, row, "p50 then")
        assert now_ms == pytest.approx(usual_ms + SLOWER_MS[NEW], rel=QUANTILE, abs=1)
        assert then_ms == pytest.approx(usual_ms + YESTERDAY_MS + SLOWER_MS[NEW], rel=QUANTILE, abs=1)
    assert figure(stages, "TTS first byte", "p50, ms") == figure(stages, "TTS first byte", "p50 then")
    assert " then" in tiles
    async with browser.page(f"{url}{address}") as another:
        assert await rows(another, "stage-table", "p50 then") == stages


async def test_two_versions_are_side_by_side(dashboard: tuple[Browser, str]) -> None:
    """The arms of an experiment, each with its turns and its latency; a name leads to the turns of that arm alone."""
    browser, url = dashboard
    async with browser.page(url) as page:
        await page.until("document.querySelector('#group-table tbody tr') !== null")
        await page.click("#groups .choice label:nth-of-type(7)")
        arms = await rows(page, "group-table", "A/B arm")
        assert set(arms) == {"", OLD, NEW}
        for arm, slower_ms in SLOWER_MS.items():
            assert figure(arms, arm, "Turns") == N_TURNS
            assert figure(arms, arm, "p50, ms") == pytest.approx(TOTAL_MS + slower_ms, rel=QUANTILE, abs=1)
        await page.click("#group-table tbody a")
        await page.until("document.querySelector('#chips').textContent.includes('prompt/')")
        only = await rows(page, "group-table", "A/B arm")
        await page.until("document.querySelectorAll('#group-table tbody tr').length === 1")
        assert page.complaints == []
    assert only.keys() & {OLD, NEW}
