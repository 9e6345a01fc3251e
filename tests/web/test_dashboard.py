"""The dashboard in a real browser, at a whole server that is under load: what it shows, and to whom."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio

from tests.web.browsers import Browsers
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.client import connect
from voicepipe.config import load
from voicepipe.telemetry.record_json import record_plain
from voicepipe.testing import store_faults
from voicepipe.testing.chromium import Browser, Page
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.records import MARKS, OWNERS, turn_record
from voicepipe.turn.record import marks
from voicepipe.turn.record.values import ToolCall, TurnRecord
from voicepipe.wiring import running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SLOW_MS = 1_400
"""What the planted model takes to its first word."""

DRAWN = "document.querySelector('#view')?.children.length > 0"

LOADED = "document.querySelector('#view').dataset.busy === 'false'"

SLOWEST = "(document.querySelector('#slowest .turn')?.textContent ?? '')"

FOCUSED = "(document.activeElement.id || document.activeElement.textContent || '').trim()"

SERIOUS = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))
"""


@dataclass(frozen=True)
class Watched:
    """A server, who thinks for its two agents, and a browser."""

    url: str
    browser: Browser
    data: Path
    """The server's folder."""

    @asynccontextmanager
    async def page(self, search: str = "", **how: Any) -> AsyncIterator[Page]:
        """Open the dashboard as a user does. It complains of nothing."""
        async with self.browser.page(f"{self.url}/dashboard{search}", **how) as page:
            await page.until(DRAWN)
            yield page
            assert page.complaints == []

    async def hold(self, agent: str, n_turns: int = 1) -> None:
        """A conversation with an agent: questions in writing, answered aloud."""
        async with connect(self.url, agent=agent) as call:
            for _ in range(n_turns):
                await call.text_turn("What time is it?")


def settings(folder: Path, quick: FakeVendor, slow: FakeVendor, **more: object) -> Any:
    """Two agents: one whose model is quick, and one whose model is not."""
    overrides = {
        "server.port": 0,
        "server.drain_ms": 0,
        "server.data_dir": str(folder / "data"),
        "providers.quick.base_url": quick.base_url,
        "providers.slow.base_url": slow.base_url,
        "agents.default.stt": "quick/ear",
        "agents.default.llm": "quick/mind",
        "agents.default.tts": "quick/mouth",
        "agents.support.llm": "slow/mind",
        **more,
    }
    return load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory, browsers: Browsers) -> AsyncIterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    async with FakeVendor() as quick, FakeVendor() as slow:
        slow.llm.usual = LlmCue(tokens=tokens("It is <img src=x> late."), ttft_ms=SLOW_MS)
        async with running(settings(folder, quick, slow)) as server, browsers.browser(has_microphone=False) as browser:
            yield Watched(server.base_url, browser, folder / "data")


async def test_a_slow_provider_is_found_while_calls_go_on(watched: Watched) -> None:
    """Without a reload the page shows the running turns, and then which model the slowest turn waited for."""
    async with watched.page() as page:
        await page.evaluate("window.same = true")
        async with asyncio.TaskGroup() as users:
            for agent in ("default", "support"):
                users.create_task(watched.hold(agent, 2), name=agent)
            await page.until("document.querySelector('.running .latency') !== null")  # a running turn is shown
        await page.until(f"{SLOWEST}.includes('slow/mind')")
        await page.evaluate("document.querySelector('#slowest .turn').click()")
        text = await page.until("document.querySelector('.answer')?.innerText")
        took = re.search(r"the LLM slow/mind took (\d+) ms", text)
        assert took is not None, text
        assert int(took[1]) >= SLOW_MS
        assert "agents.support.llm" in text
        assert "<img src=x>" in await page.text("#words")  # what models say is never markup
        await page.click("#views a[href*=providers]")
        rows = await page.until(
            "(() => { const rows = [...document.querySelectorAll('#providers-llm tbody tr')];"
            "return rows.length > 1 && rows.map((row) => [...row.cells].map((cell) => cell.textContent)); })()"
        )
        assert {row[0]: row[4].startswith("▲ ") for row in rows} == {"quick/mind": False, "slow/mind": True}
        assert min(int(row[4][2:]) for row in rows if row[0] == "slow/mind") >= SLOW_MS
        assert await page.evaluate("window.same") is True


async def test_a_link_shows_another_person_the_same(watched: Watched) -> None:
    """Paused, with a filter, on a turn's page: the address shows another person the same view; back goes back."""
    await watched.hold("support")
    seen = "document.querySelector('#view').innerText"
    async with watched.page() as page:
        await page.until(f"{SLOWEST} && !{seen}.includes('running')")
        await page.click("#hold")
        await page.until(f"location.search.includes('at=') && {LOADED}")
        await page.click("#groups .choice label:nth-of-type(4)")
        await page.until("[...document.querySelectorAll('#group-table a')].some((a) => a.textContent === 'slow/mind')")
        await page.click("#group-table a[href*='slow']")
        await page.until(f"document.querySelector('#chips').textContent.includes('slow/mind') && {LOADED}")
        assert "default" not in await page.text("#slowest")
        here, address = await page.evaluate(seen), await page.evaluate("location.search")
        await page.click("#slowest .turn")
        await page.until("document.querySelector('#waterfall') !== null")
        turn, of_turn = await page.evaluate(seen), await page.evaluate("location.search")
        await page.evaluate("history.back()")
        await page.until("document.querySelector('#stages') !== null")
        assert await page.evaluate(seen) == here
    for search, expected in ((address, here), (of_turn, turn)):
        async with watched.page(search) as another:
            assert await another.evaluate(seen) == expected


async def test_by_keyboard_alone(watched: Watched) -> None:
    """From the top of the page to why a turn was slow, and what has the focus keeps it when new figures come."""
    await watched.hold("support")
    async with watched.page() as page:
        await page.until(SLOWEST)
        await page.press("Tab")
        assert await page.evaluate(FOCUSED) == "Skip to the figures"
        walked: list[str] = []
        while "ms" not in (here := await walk(page)):
            walked.append(here)
        for expected in ("Overview", "Turns", "hold", "text", "open-filters"):
            assert expected in walked
        await watched.hold("default")  # the list is drawn anew
        await page.until("document.querySelector('#now .turn')?.textContent.includes('default')")
        assert await page.evaluate(FOCUSED) == here
        await page.press("Enter")
        assert "ms too late" in await page.until("document.querySelector('.answer')?.innerText")
        assert await page.evaluate("document.activeElement.id") == "main"


async def walk(page: Page) -> str:
    """What the next Tab leads to; it must show that it has the focus."""
    await page.press("Tab")
    visible = (
        "document.activeElement.matches('.choice input') ? document.activeElement.nextSibling : document.activeElement"
    )
    assert await page.evaluate(f"getComputedStyle({visible}).outlineStyle") == "solid", await page.evaluate(FOCUSED)
    return str(await page.evaluate(FOCUSED))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_serious_is_found(watched: Watched, axe: str, scheme: Literal["light", "dark"]) -> None:
    """By axe-core in every view, with the filters open, wide and on a phone, which need not be scrolled sideways."""
    await watched.hold("support")
    for width in (1_280, 360):
        async with watched.page(width=width, scheme=scheme) as page:
            await page.until(SLOWEST)
            await page.click("#open-filters")
            await page.until("document.querySelector('#filters select') !== null")
            await page.evaluate(axe + "; 0")
            for view in ("#views a", "#views a[href*=turns]", "#views a[href*=providers]", "#views a[href*=sessions]"):
                await page.evaluate(f"document.querySelector({json.dumps(view)}).click()")
                await page.until(f"document.querySelector({json.dumps(view)})?.ariaCurrent === 'page' && {DRAWN}")
                assert (view, await page.evaluate(SERIOUS)) == (view, [])
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            await page.evaluate("document.querySelector('#views a').click()")
            await page.until(SLOWEST)
            await page.evaluate("document.querySelector('#slowest .turn').click()")
            await page.until("document.querySelector('#waterfall') !== null")
            assert await page.evaluate(SERIOUS) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_every_mark_and_action_has_words(watched: Watched) -> None:
    """A turn's page has a name for each mark that the core stamps, and a sentence for each thing it does."""
    stamped = {value for name, value in vars(marks).items() if name.isupper() and isinstance(value, str)}
    stamped |= {name.removesuffix("1") for name in marks.FIRST_ROUND.marks}
    assert {"first_delta", "tool_called_"} <= stamped
    async with watched.page() as page:
        known = await page.evaluate(
            "import('/web/dashboard/why.js').then(({ MARKS, ACTIONS }) => [Object.keys(MARKS), Object.keys(ACTIONS)])"
        )
    assert stamped - set(known[0]) == set()
    assert set(known[1]) >= {"hedge", "fallback", "continuation", "short_clause", "filler", "apology"}


PLANTED: tuple[tuple[str, str, str], ...] = (
    ("end_due", "settings", "1500 ms of silence were chosen to end the turn, of 500 allowed."),
    ("llm_requested", "stt/slow", "the STT stt/slow was late with its text, 1025 ms until the LLM request"),
    ("first_delta", "minds/slow", "the LLM minds/slow took 1235 ms to its first token, of 600 allowed."),
    ("first_clause", "minds/slow", "the LLM minds/slow took 1060 ms to finish its first clause, of 100 allowed."),
    ("first_sound", "voices/slow", "the TTS voices/slow took 1110 ms to its first audio, of 150 allowed."),
    ("first_sent", "server", "the server itself took 1003 ms, of 20 allowed."),
    ("first_audible", "client", "playback took 1050 ms, of 50 allowed."),
)
"""A second more before a mark, who owned that stage, and the sentence that it makes."""

OF_TOOL = {**OWNERS, "tool": "client"}


async def test_each_stage_has_a_sentence_as_the_breach(watched: Watched) -> None:
    """Whatever is a second late, the sentence at the top of its turn's page names it and whose it is."""
    behind = turn_record((*MARKS[:-1], ("earlier_audio_ended", 7_300), ("first_audible", 7_320)))
    records = [*(late(mark, owner) for mark, owner, _ in PLANTED), record_plain(behind, "default")]
    records.append(late("first_delta", "minds/hangs", "minds/quick"))
    records += [record_plain(with_tools(*names), "default") for names in (("find_table",), ("find_table", "book"))]
    async with watched.page() as page:
        script = f"import('/web/dashboard/why.js').then(({{ why }}) => {json.dumps(records)}.map((turn) => why(turn)))"
        text = await page.evaluate(script)
    waited = "the answer waited 1367 ms for other audio of the agent to be played, of 200 allowed."
    tools = (
        "the tool find_table (run by the client) took 2340 ms, of 500 allowed.",
        "the tools find_table and book (run by the client) took 2340 ms, of 500 allowed.",
    )
    stood_in = "the LLM minds/hangs was waited for, and minds/quick served in its place after 1235 ms, of 600 allowed."
    sentences = (waited, stood_in, *tools, *(words for _, _, words in PLANTED))
    assert [words for words in sentences if not any(words in sentence for sentence in text)] == []
    assert all(re.match(r"\d+ ms too late: ", sentence) for sentence in text)


def with_tools(*names: str) -> TurnRecord:
    """A turn whose answer waited for functions that the client ran."""
    before, after = MARKS[:5], MARKS[5:]
    called = (("llm_requested_1", 5_525), ("tool_called_1", 5_700), ("tool_returned_1", 8_040))
    calls = tuple(ToolCall(name=name, took_ms=2_300, outcome="returned") for name in names)
    return turn_record((*before, *called, *((name, ms + 2_540) for name, ms in after)), tools=calls, owners=OF_TOOL)


def late(mark: str, owner: str, provider: str = "") -> dict[str, Any]:
    """A turn whose way to `mark` took a second longer, all owners being `owner`; `provider` has served it instead."""
    at = dict(MARKS)
    moved = tuple((name, ms + 1_000 * (ms >= at[mark] and name != "voiced_last")) for name, ms in MARKS)
    stages = ("silence", "endpoint", "llm_ttft", "first_clause", "tts_ttfb", "overhead", "playback")
    served = tuple((kind, provider or owner) for kind in ("stt", "llm", "tts"))
    return record_plain(turn_record(moved, owners=dict.fromkeys(stages, owner), providers=served), "default")


async def test_events_are_read_however_the_line_cuts_them(watched: Watched) -> None:
    """Cut at any character, the same events come out: comments and beats are not among them."""
    text = ': hi\n\nid: 7\nevent: turn\ndata: {"a":\ndata: 1}\n\nretry: 1000\n\nevent: loop\r\ndata: {"b": 2}\r\n\r\n'
    script = f"""
    import("/web/dashboard/stream.js").then(({{ Events }}) => {{
      const text = {json.dumps(text)};
      const all = [];
      for (let cut = 0; cut <= text.length; cut += 1) {{
        const events = new Events();
        all.push(JSON.stringify([...events.push(text.slice(0, cut)), ...events.push(text.slice(cut))]));
      }}
      return [...new Set(all)];
    }})
    """
    async with watched.page() as page:
        text = await page.evaluate(script)
    expected = [{"kind": "turn", "id": "7", "data": {"a": 1}}, {"kind": "loop", "id": "7", "data": {"b": 2}}]
    assert [json.loads(each) for each in text] == [expected]


NOTICE = "document.querySelector('#storage summary')?.textContent"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_store_failure_is_displayed_until_it_ends(
    watched: Watched, axe: str, scheme: Literal["light", "dark"]
) -> None:
    """A full disk, for real: on a phone too, by keyboard, and without a reload."""
    async with watched.page(width=360, scheme=scheme) as page:
        assert not await page.evaluate(NOTICE)
        with store_faults.full(watched.data / "turns.sqlite3"):
            await watched.hold("default")
            text = await page.until(NOTICE)
            assert "records (no room left, since" in text
            await page.evaluate("document.querySelector('#storage summary').focus()")
            await page.press("Enter")
            await page.until("document.querySelector('#storage details').open")
            assert "Sessions go on" in await page.text("#storage p")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            await page.evaluate(axe + "; 0")
            assert await page.evaluate(SERIOUS) == []
        await page.until("!document.querySelector('#storage').childElementCount")


async def test_an_operator_signs_in_and_out(tmp_path: Path, axe: str, browsers: Browsers) -> None:
    """With a key and never by its address; another tab needs no new sign-in; signing out closes all of them."""
    async with FakeVendor() as quick, FakeVendor() as slow:
        chosen = settings(tmp_path, quick, slow)
        async with running(chosen) as server, browsers.browser(has_microphone=False) as browser:
            keys = ApiKeys(chosen.data_path)
            customer = (await asyncio.to_thread(keys.create, "acme", now_s=1)).text
            operator = (await asyncio.to_thread(keys.create, "acme", now_s=1, scopes=("operate",))).text
            async with browser.page(f"{server.base_url}/dashboard?window=24h") as page:
                for wrong, words in (("vp_acme_nonsense", "malformed"), (customer, "scope")):
                    await sign_in(page, wrong)
                    await page.until(f"document.querySelector('#refusal').textContent.includes({words!r})")
                await page.evaluate(axe + "; 0")
                assert await page.evaluate(SERIOUS) == []
                await sign_in(page, operator)
                assert "Start a conversation" in await page.until("document.querySelector('#view .empty')?.innerText")
                assert operator not in await page.evaluate("location.href + document.documentElement.outerHTML")
                assert await page.evaluate("document.cookie") == ""
                await page.send_command("Page.reload")
                await page.until(f"{DRAWN} && !document.querySelector('#sign-out').hidden")
                assert await page.evaluate(TAB) is True
                await page.click("#sign-out")
                await page.until("!document.querySelector('#sign-in').hidden && sessionStorage.length === 0")
                assert await page.evaluate("window.notified") == "out"


TAB = """
new Promise((resolve) => {
  const tab = new BroadcastChannel("voicepipe-operator-key");
  tab.onmessage = ({ data }) => {
    window.notified = data;
    resolve(Boolean(data.key));
  };
  tab.postMessage("key?");
})
"""
"""Request the key as another tab does; return whether one came, and record the notification."""


async def sign_in(page: Page, key: str) -> None:
    """Type a key into the form and send it."""
    await page.until("!document.querySelector('#sign-in').hidden")
    await page.click("#key")
    await page.type(key)
    await page.press("Enter")
