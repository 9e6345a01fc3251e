"""The dashboard's overview in a real browser, over planted turns: its figures are true, and agree with one another."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np
import pytest
import pytest_asyncio
import soundfile

from tests.web.browsers import Browsers
from voicepipe.clock import unix_ms
from voicepipe.config import load
from voicepipe.telemetry.journal.plain import as_it_is
from voicepipe.telemetry.journal.session_files import SessionFiles
from voicepipe.telemetry.recording.folder import DONE_SUFFIX, RecordingFolder
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.chromium import Browser, Page
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.record.values import Breach, ToolCall
from voicepipe.wiring import running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000

CAUSES: Final = (
    (5, "llm_ttft", "far/large", "first_delta"),
    (3, "tts_ttfb", "near/voice", "first_sound"),
    (2, "endpoint", "near/ear", "llm_requested"),
)
"""Late turns, with the stage and the owner that each was late by, and the mark from which it is a second later."""

N_TIMELY: Final = 10
N_EARLIER: Final = 4

LOADED: Final = "document.querySelector('#view').dataset.busy === 'false' && document.querySelector('#late') !== null"

SERIOUS: Final = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))
"""

UNSEEN: Final = """
[...document.querySelectorAll("#view *")]
  .filter((each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowX))
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.id || each.className)
"""

TOOLS = (
    ToolCall(name="find_table", ran_by="server", took_ms=312, outcome="returned"),
    ToolCall(name="show_map", took_ms=None, outcome="unanswered"),
    ToolCall(name="book", ran_by="server", took_ms=8_000, outcome="timed_out"),
)
"""The function calls of one turn: each side's, and one without a result."""


LONG_SILENCE: Final = (
    ("voiced_last", 5_000),
    ("flushed", 5_090),
    ("transcribed", 5_120),
    ("start_due", 5_350),
    ("llm_requested", 5_360),
    ("end_due", 5_560),
    ("ended", 5_560),
    ("first_delta", 5_680),
    ("first_clause", 5_690),
    ("first_sound", 5_710),
    ("gate_opened", 5_710),
    ("first_sent", 5_712),
    ("first_audible", 5_760),
)
"""A turn in time whose chosen silence was longer than its limit, and hid half of what it took the LLM."""


def planted(now_ms: int) -> Iterator[StoredTurn]:
    """Late turns of three causes among others, five minutes ago; and timely ones, a day before."""
    ages = [5 * MINUTE_MS] * N_TIMELY + [DAY_MS + 5 * MINUTE_MS] * N_EARLIER
    for n, age_ms in enumerate(ages):
        words = "Is there lunch tomorrow?" if n == 3 else "What time is it?"
        tools = TOOLS if n == 1 else ()
        timely = LONG_SILENCE if n == N_TIMELY else MARKS
        record = turn_record(
            timely, id=f"turn_timely_{n}", session="sess_timely", breach=None, user_text=words, tools=tools, pool="fast"
        )
        arm = ("greeting/new", "greeting/old")[n % 2] if n < N_TIMELY else ""
        yield stored(record, now_ms - age_ms + n, arm)
    for n, stage, owner, mark in CAUSES:
        at = dict(MARKS)[mark]
        marks = tuple((name, ms + 1_000 * (ms >= at and name != "voiced_last")) for name, ms in MARKS)
        for number in range(n):
            breach = Breach(stage, 900, owner, "llm")
            providers = (("stt", "near/ear"), ("llm", "far/large"), ("tts", "near/voice"))
            name = f"turn_{stage}_{number}"
            record = turn_record(marks, id=name, session="sess_late", breach=breach, providers=providers)
            yield stored(record, now_ms - 5 * MINUTE_MS + number)


def stored(record: Any, started_at_ms: int, arm: str = "") -> StoredTurn:
    return StoredTurn(record, "default", "default", started_at_ms, language="en", route=record.pool, arm=Arm.read(arm))


@dataclass(frozen=True)
class Planted:
    """A server that has these turns, and a browser."""

    url: str
    browser: Browser
    now_ms: int

    @asynccontextmanager
    async def page(self, search: str = "", **how: Any) -> AsyncIterator[Page]:
        async with self.browser.page(f"{self.url}/dashboard{search}", **how) as page:
            await page.until(LOADED)
            yield page
            assert page.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted_server(tmp_path_factory: pytest.TempPathFactory, browsers: Browsers) -> AsyncIterator[Planted]:
    folder = tmp_path_factory.mktemp("planted")
    now_ms = unix_ms()
    (folder / "data").mkdir(mode=0o700)
    store = await SqliteTurnStore.open(folder / "data" / "turns.sqlite3")
    await store.store(tuple(planted(now_ms)))
    for n, score in enumerate((1.0, 0.0, 1.0)):
        assert await store.store_feedback(f"turn_timely_{n}", "default", "user", score, now_ms)
    await store.close()
    (folder / "data" / "journals").mkdir(mode=0o700)
    path = folder / "data" / "journals" / "1-sess_late.jsonl"
    files = SessionFiles(path, head=lambda: b"", texts="plain", words=as_it_is, max_bytes=1_000_000)
    files.write_audio("user", np.full(48_000, 500, dtype=np.int16), 24_000)
    files.close(ended=True)
    place = RecordingFolder(folder / "data" / "recordings").new_path("default", "sess_late", "", now_ms)
    soundfile.write(
        place.with_name(place.name + DONE_SUFFIX), np.full((72_000, 2), 500, dtype=np.int16), 24_000, format="FLAC"
    )
    overrides = {
        "server.port": 0,
        "server.drain_ms": 0,
        "server.data_dir": str(folder / "data"),
        "providers.near.base_url": "http://127.0.0.1:9/v1",
        "response_cache.mb": 1,
        **{f"agents.default.{stage}": f"near/{name}" for stage, name in (("stt", "ear"), ("llm", "a"), ("tts", "b"))},
    }
    settings = load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)
    async with running(settings) as server, browsers.browser(has_microphone=False) as browser:
        yield Planted(server.base_url, browser, now_ms)


async def rows_of(page: Page, table: str) -> list[list[str]]:
    found: list[list[str]] = await page.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')].map((row) => [...row.cells].map((c) => c.textContent))"
    )
    return found


async def test_three_causes_of_late_turns_are_seen_at_a_glance(planted_server: Planted) -> None:
    """Each with its share of the late turns and whose it is, the largest first."""
    async with planted_server.page() as page:
        causes = await page.evaluate("[...document.querySelectorAll('#late li')].map((each) => each.innerText)")
    assert [re.sub(r"\s+", " ", each) for each in causes] == [
        "LLM first token: far/large 50 % 5 late turns",
        "TTS first byte: near/voice 30 % 3 late turns",
        "End of turn: near/ear 20 % 2 late turns",
    ]


async def test_table_and_bar_show_the_same_wait(planted_server: Planted) -> None:
    """For every stage: the table's mean wait is the bar's part and the legend's figure."""
    async with planted_server.page() as page:
        rows = await rows_of(page, "stage-table")
        label = await page.evaluate("document.querySelector('#second .track.waited').getAttribute('aria-label')")
    drawn = {stage: int(ms) for stage, ms in re.findall(r"([\w ]+?) (\d+) ms", label.partition(": ")[2])}
    waited = {row[0]: int(row[2]) for row in rows if row[0] != "Turn latency" and int(row[2]) > 0}
    drawn.pop("limit", None)
    assert waited == {stage.strip(): ms for stage, ms in drawn.items() if stage.strip() != "limit"}
    assert "End of turn" in waited
    (total,) = (int(row[2]) for row in rows if row[0] == "Turn latency")
    assert abs(total - sum(waited.values())) <= len(waited), "rounded"


@pytest.mark.parametrize("window", ["15m", "1h", "24h", "7d", "30d"])
async def test_every_window_counts_its_turns(planted_server: Planted, window: str) -> None:
    n_turns = N_TIMELY + 10 + (N_EARLIER if window in ("7d", "30d") else 0)
    async with planted_server.page(f"?window={window}") as page:
        assert f"of {n_turns} turns" in await page.text(".tiles")
        assert await page.evaluate("document.querySelector('#windows input:checked').value") == window
        assert await page.evaluate("document.querySelectorAll('.heat .timely, .heat .late').length") > 0


async def test_a_free_span_has_an_address(planted_server: Planted) -> None:
    """From the fields to the address; another person sees the same; a window leaves it."""
    since, until = (planted_server.now_ms - DAY_MS - age * MINUTE_MS for age in (60, 0))
    async with planted_server.page() as page:
        await page.click("#open-filters")
        await page.until("document.querySelector('#span-from') !== null")
        for field, at_ms in (("from", since), ("to", until)):
            script = (
                f"(() => {{ const field = document.querySelector('#span-{field}'); const at = {at_ms};"
                "field.value = new Date(at - 60000 * new Date(at).getTimezoneOffset()).toISOString().slice(0, 16);"
                "field.dispatchEvent(new Event('change')); })()"
            )
            await page.evaluate(script)
        await page.until(f"location.search.includes('since=') && {LOADED}")
        assert f"of {N_EARLIER} turns" in await page.text(".tiles")
        address = await page.evaluate("location.search")
        assert "Span: " in await page.text("#chips")
        await page.click("#windows label:nth-of-type(2)")
        await page.until(f"!location.search.includes('since=') && {LOADED}")
    async with planted_server.page(address) as another:
        assert f"of {N_EARLIER} turns" in await another.text(".tiles")


async def test_two_spans_side_by_side(planted_server: Planted) -> None:
    """The last quarter of an hour beside the same a day earlier, in the table and in the tiles."""
    async with planted_server.page() as page:
        await page.click("#stages .choice label:nth-of-type(3)")
        await page.until("document.querySelector('#stage-table thead')?.innerText.includes('p95 then')")
        rows = await rows_of(page, "stage-table")
        (total,) = (row for row in rows if row[0] == "Turn latency")
        (expected,) = {turn_record().total_ms}
        assert expected is not None
        assert abs(int(total[8]) - expected) <= expected * 0.02
        assert total[10] == "0 %"
        assert "0 % then" in await page.text(".tiles")
        address = await page.evaluate("location.search")
    assert "versus=day" in address


async def test_a_stage_that_made_no_turn_late_is_not_marked(planted_server: Planted) -> None:
    """A day of turns in time has no red: neither a long silence that was chosen, nor what ran hidden behind it."""
    since, until = (unix_iso(planted_server.now_ms - DAY_MS - age * MINUTE_MS) for age in (60, 0))
    async with planted_server.page(f"?since={since}&at={until}") as page:
        rows = {row[0]: row for row in await rows_of(page, "stage-table")}
        assert f"of {N_EARLIER} turns" in await page.text(".tiles")
        alarms = await page.evaluate("[...document.querySelectorAll('#view .alarm')].map((each) => each.innerText)")
    assert (int(rows["Silence"][4]) > int(rows["Silence"][1]), rows["Silence"][6]) == (True, "0 %")
    assert alarms == []


def unix_iso(at_ms: int) -> str:
    """Return a time as addresses of the dashboard have it."""
    return f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


async def test_the_heat_map_counts_every_turn(planted_server: Planted) -> None:
    async with planted_server.page() as page:
        label = await page.evaluate("document.querySelector('.heat').getAttribute('aria-label')")
        n_late = await page.evaluate("document.querySelectorAll('.heat .late').length")
    assert sum(map(int, re.findall(r"ms (\d+) turn", label))) == N_TIMELY + 10
    assert n_late > 0


@pytest.mark.parametrize(("kind", "begins"), [("csv", "id,session,"), ("jsonl", "{")])
async def test_turns_are_exported_with_the_views_filters(planted_server: Planted, kind: str, begins: str) -> None:
    saved = (
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return 'blob:x'; };"
        "HTMLAnchorElement.prototype.click = function () { window.named = this.download; }; 0"
    )
    async with planted_server.browser.page(f"{planted_server.url}/dashboard?view=turns&over=true") as page:
        await page.until("document.querySelector('#export-csv') !== null")
        await page.evaluate(saved)
        await page.evaluate(f"document.querySelector('#export-{kind}').click()")
        text = await page.until("window.saved")
        assert await page.evaluate("window.named") == f"turns.{kind}"
    assert text.lstrip("\ufeff").startswith(begins)
    lines = [line for line in text.splitlines() if line]
    assert len(lines) == 10 + (kind == "csv")
    assert "sess_timely" not in text


async def test_providers_over_their_limit_are_marked(planted_server: Planted) -> None:
    async with planted_server.browser.page(f"{planted_server.url}/dashboard?view=providers") as page:
        await page.until("document.querySelector('#providers-tts tbody tr') !== null")
        llm, tts = await rows_of(page, "providers-llm"), await rows_of(page, "providers-tts")
        ((_, shared, requests, *_),) = await rows_of(page, "response-cache-table")
    (large,) = (row for row in llm if row[0] == "far/large")
    assert large[5].startswith("▲ ")
    (voice,) = (row for row in tts if row[0] == "near/voice")
    assert [voice[4].startswith("▲"), voice[5].startswith("▲ ")] == [False, True]
    assert (shared, requests) == ("\u2013", "0 of 0")


async def test_the_arms_of_an_experiment_stand_side_by_side(planted_server: Planted) -> None:
    """With their scores; too few of them name no winner, and the other turns are no arm of it."""
    async with planted_server.page("?by=arm") as page:
        new, old, rest = await rows_of(page, "experiment-greeting")
        verdict = await page.text("#of-experiment-greeting .secondary")
    assert [row[:2] for row in (new, old, rest)] == [["new", "5"], ["old", "5"], ["no arm", "10"]]
    good = [row[5] for row in (new, old, rest)]
    assert good == ["2 of 2, 100 % (34 % to 100 %)", "0 of 1, 0 % (0 % to 79 %)", "\u2013"]
    assert verdict.startswith("No arm has won yet.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_everything_and_axe_finds_nothing(
    planted_server: Planted, axe: str, scheme: Literal["light", "dark"]
) -> None:
    """No part of a view is scrolled out of sight sideways, at 360 px and on a wide screen."""
    for width in (360, 1_280):
        for search in ("?versus=day", "?by=arm", "?view=turns", "?view=providers", "?view=sessions"):
            url = f"{planted_server.url}/dashboard{search}"
            async with planted_server.browser.page(url, width=width, scheme=scheme) as page:
                await page.until("document.querySelector('#view')?.children.length > 0")
                await page.until("document.querySelector('#view').dataset.busy === 'false'")
                await page.evaluate(axe + "; 0")
                assert (search, width, await page.evaluate(SERIOUS)) == (search, width, [])
                if width == 360:
                    assert (search, await page.evaluate(UNSEEN)) == (search, [])
                    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), search


async def test_turns_are_found_by_their_words(planted_server: Planted) -> None:
    """By what was said, in either case; the address has the words, and they are left out again."""
    address, listed = f"{planted_server.url}/dashboard", "document.querySelector('.turns li, .empty') !== null"
    async with planted_server.browser.page(f"{address}?view=turns&window=1h") as page:
        await page.until(listed)
        n_all = await page.evaluate("document.querySelectorAll('.turns li').length")
        typed = (
            "(() => {{ const field = document.querySelector('#words'); field.value = '{0}';"
            "field.dispatchEvent(new Event('change')); }})()"
        )
        await page.evaluate(typed.format("LUNCH tomorrow"))
        await page.until("document.querySelectorAll('.turns li').length === 1")
        assert "words=LUNCH+tomorrow" in await page.evaluate("location.search")
        search = await page.evaluate("location.search")
        await page.evaluate(typed.format("nobody said this"))
        await page.until("document.querySelectorAll('.turns li').length === 0")
        await page.evaluate(typed.format(""))
        await page.until(f"document.querySelectorAll('.turns li').length === {n_all}")
        assert page.complaints == []
    async with planted_server.browser.page(f"{address}{search}") as another:
        await another.until(listed)
        assert await another.evaluate("document.querySelector('#words').value") == "LUNCH tomorrow"
        assert await another.evaluate("document.querySelectorAll('.turns li').length") == 1


async def test_a_turns_page_names_its_tools_and_its_pool(planted_server: Planted) -> None:
    """Each call with the side that ran it, how it ended and how long it took; a turn without calls has no such line."""
    terms = "[...document.querySelectorAll('#facts dt')]"
    facts = f"Object.fromEntries({terms}.map((term) => [term.textContent, term.nextSibling.textContent]))"
    address = f"{planted_server.url}/dashboard?turn="
    async with planted_server.browser.page(f"{address}turn_timely_1") as page:
        await page.until("document.querySelector('#facts') !== null")
        found = await page.evaluate(facts)
        assert found["Tools"] == (
            "find_table (server): returned after 312 ms, show_map (client): unanswered, "
            "book (server): timed out after 8000 ms"
        )
        assert found["Pool"] == "fast"
        assert page.complaints == []
    async with planted_server.browser.page(f"{address}turn_timely_2") as page:
        await page.until("document.querySelector('#facts') !== null")
        assert "Tools" not in await page.evaluate(facts)


async def test_a_sessions_audio_is_played_where_it_is_stored(planted_server: Planted) -> None:
    """Loaded at a click, by the keyboard too, and played to the end though the page is drawn anew; a session without
    audio shows no player."""
    address = f"{planted_server.url}/dashboard?turn="
    drawn = "document.querySelector('#facts') !== null"
    async with planted_server.browser.page(f"{address}turn_llm_ttft_0") as page:
        await page.until(drawn)
        assert (await page.text("#sound")).split("\n\n") == [
            "Audio of the session",
            "Both sides: load 3 s",
            "User: load 2 s",
        ]
        await page.evaluate("document.querySelector('#load-user').focus()")
        await page.click("#load-user")
        await page.until("document.querySelector('#play-user')?.duration === 2")
        assert await page.evaluate("document.activeElement.id") == "play-user"
        await page.press(" ")
        await page.until("document.querySelector('#play-user').currentTime > 0")
        await page.evaluate(
            "window.before = document.querySelector('#facts'); dispatchEvent(new PopStateEvent('popstate'))"
        )
        await page.until(
            "document.querySelector('#facts') !== null && document.querySelector('#facts') !== window.before"
        )
        await page.until("document.querySelector('#play-user').ended")
        assert page.complaints == []
    async with planted_server.browser.page(f"{address}turn_timely_0") as page:
        await page.until(drawn)
        assert await page.evaluate("document.querySelector('#sound')") is None


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1_280, "light")])
async def test_a_recorded_call_is_played_by_the_keyboard(
    planted_server: Planted, axe: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Both sides of the call, with their whole length, on a phone and on a wide screen."""
    address = f"{planted_server.url}/dashboard?turn=turn_llm_ttft_0"
    async with planted_server.browser.page(address, width=width, scheme=scheme) as page:
        await page.until("document.querySelector('#load-call') !== null")
        await page.evaluate("document.querySelector('#load-call').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#play-call')?.duration === 3")
        assert await page.evaluate("document.activeElement.id") == "play-call"
        assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Both sides, 3 s"
        await page.press(" ")
        await page.until("document.querySelector('#play-call').currentTime > 0")
        await page.evaluate(axe + "; 0")
        assert await page.evaluate(SERIOUS) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.complaints == []
