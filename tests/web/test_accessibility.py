"""The page works for every user: with a keyboard, a screen reader, a small screen, a dark room."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

pytestmark = pytest.mark.slow

MEASURED = "document.querySelector('.agent .latency[data-outcome=completed]')?.dataset.turn"

SERIOUS = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))
"""

FOCUSED = "document.activeElement === document.body ? null : document.activeElement.id || document.activeElement.name"

SEEN = "(document.activeElement.matches('#mode input') ? document.activeElement.nextSibling : document.activeElement)"
"""What shows the focus: a radio button is drawn as the label beside it."""

TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter((e) => e.checkVisibility() && !e.closest(".unseen") && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map((e) => e.outerHTML.slice(0, 120))
"""


async def serious(page: Any, axe: str) -> Any:
    """What axe-core finds that is serious or critical, as it is seen now."""
    await page.evaluate(axe + "; 0")
    return await page.evaluate(SERIOUS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_serious_is_found(talking: Any, axe: str, scheme: Literal["light", "dark"]) -> None:
    """Before, during and after a conversation, with a problem, and in the settings: by axe-core, in both schemes."""
    slow = {"budget.total_ms": 100}
    async with talking(has_microphone=False, settings=slow) as talk, talk.page(scheme=scheme) as page:
        assert await serious(page, axe) == []
        await page.click("#open-settings")
        assert await serious(page, axe) == []
        await page.press("Escape")
        await page.start()
        await page.write("Hello?")
        await page.until(MEASURED)
        await page.error_text("no microphone")
        assert await page.evaluate("document.querySelector('.latency.over') !== null")
        assert await serious(page, axe) == []
        await page.click("#mode label:nth-of-type(2)")
        assert await serious(page, axe) == []
        await page.click("#stop")
        await page.until("document.querySelector('#start').checkVisibility()")
        assert await serious(page, axe) == []


async def test_axe_is_awake(talking: Any, axe: str) -> None:
    """A picture without words and a button without a name are found, so that nothing found means something."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
        assert [rule for rule, _ in await serious(page, axe)] == ["button-name"]


async def test_a_conversation_by_keyboard_alone(talking: Any) -> None:
    """Every control is reached in the order in which it is seen, shows that it has the focus, and does its work."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        walked = await walk(page)
        assert walked == ["open-settings", "mode", "start"]
        await page.evaluate("document.querySelector('#open-settings').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#settings').open")
        await page.press("Escape")
        await page.until("!document.querySelector('#settings').open")
        assert await page.evaluate(FOCUSED) == "open-settings"
        await page.press("Tab", "Tab", "Enter")
        await page.until("document.querySelector('#status').dataset.state === 'open'")
        await page.error_text("no microphone")
        assert await page.evaluate(FOCUSED) == "mute"
        await page.press("Tab", "Tab")
        assert await page.evaluate(FOCUSED) == "text"
        await page.type("Hello?")
        await page.press("Enter")
        await page.until(MEASURED)
        await page.evaluate("document.querySelector('#stop').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#start').checkVisibility()")
        assert await page.evaluate(FOCUSED) == "start"


async def walk(page: Any) -> list[str]:
    """The controls that Tab reaches, from the top of the page until it leaves it; each must show its focus."""
    walked: list[str] = []
    await page.press("Tab")
    while (name := await page.evaluate(FOCUSED)) is not None and name not in walked:
        walked.append(name)
        assert await page.evaluate(f"getComputedStyle({SEEN}).outlineStyle") == "solid", name
        await page.press("Tab")
    return walked


async def test_screen_reader_text(talking: Any) -> None:
    """The state and the problems are live regions; the transcript is not, since the agent speaks. Bars have a text."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        await page.start()
        await page.write("Hello?")
        turn_id = await page.until(MEASURED)
        record = await talk.record(turn_id)
        roles = await page.evaluate(
            "['#status', '#problems'].map((id) => document.querySelector(id).getAttribute('role'))"
        )
        live = await page.evaluate("document.querySelectorAll('main [aria-live], main [role=log]').length")
        label = await page.evaluate("document.querySelector('.track.whole').getAttribute('aria-label')")
        heads = await page.evaluate("[...document.querySelectorAll('thead th')].map((cell) => cell.textContent)")
    assert roles == ["status", "alert"]
    assert live == 0
    for part in record["contributions"]:
        assert f" {part['duration_ms']} ms" in label
    assert f"limit {record['total_limit_ms']} ms" in label
    assert heads == ["Stage", "When it ran", "Took, of its limit"]


@pytest.mark.parametrize("width", [320, 390])
async def test_a_phone_shows_everything_without_sideways_scrolling(talking: Any, width: int) -> None:
    """A conversation with long words, its bars unfolded, and the settings; buttons are big enough."""
    async with talking(has_microphone=False) as talk, talk.page(width=width, height=640) as page:
        await page.click("#mode label:nth-of-type(2)")
        await page.start()
        await page.write("Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft?")
        await page.until(MEASURED)
        await page.click(".latency summary")
        await page.until("document.querySelector('.latency details').open")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.evaluate(TOO_WIDE) == []
        await page.click("#open-settings")
        assert await page.evaluate(TOO_WIDE) == []
        small = "[...document.querySelectorAll('button')].filter((b) => b.checkVisibility() && b.offsetHeight < 36)"
        assert await page.evaluate(f"{small}.map((button) => button.id)") == []


async def test_words_are_never_markup(talking: Any) -> None:
    """What people and models say is shown as it is."""
    text = "<img src=x onerror=alert(1)> & <b>bold</b>"
    async with talking(has_microphone=False) as talk, talk.page() as page:
        await page.start()
        await page.write(text)
        await page.until(MEASURED)
        assert await page.evaluate("document.querySelector('.user .words').textContent") == text
        assert await page.evaluate(f"document.querySelector('main b') === null && {json.dumps(text)}") == text
