"""The documentation in a browser: from the keyboard, on a phone, in light and dark, with a search."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.web import diagrams

pytestmark = pytest.mark.slow

SERIOUS = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))
"""

WIDER_THAN_THE_SCREEN = "document.documentElement.scrollWidth > innerWidth"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_serious_is_found(talking: Any, axe: str, scheme: Literal["light", "dark"]) -> None:
    """By axe-core, on a page with tables and examples, and on a search's results."""
    async with talking(has_microphone=False) as talk:
        for path in ("/docs/settings", "/docs/routing", "/docs/turns", "/docs?q=budget"):
            async with talk.page(talk.server.url + path, scheme=scheme) as page:
                await page.until("document.querySelector('main h1') !== null")
                await page.evaluate(axe + "; 0")
                assert await page.evaluate(SERIOUS) == []


@pytest.mark.parametrize("path", ["/docs", "/docs/settings", "/docs/turns", "/docs/wire", "/docs?q=token"])
async def test_a_phone_scrolls_in_one_direction(talking: Any, path: str) -> None:
    """Wide tables and examples scroll by themselves."""
    async with talking(has_microphone=False) as talk, talk.page(talk.server.url + path, width=360, height=740) as page:
        await page.until("document.querySelector('main h1') !== null")
        assert not await page.evaluate(WIDER_THAN_THE_SCREEN)


async def test_a_search_by_keyboard(talking: Any) -> None:
    """Skip link, search field, a result, and the section that it leads to."""
    async with talking(has_microphone=False) as talk, talk.page(f"{talk.server.url}/docs") as page:
        await page.until("document.querySelector('main h1') !== null")
        await page.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.press("Tab", "Tab")
        await page.type("barge")
        await page.press("Enter")
        await page.until(
            "(document.querySelector('.results a') || document.querySelector('main [role=status]')) !== null"
        )
        await page.evaluate("document.querySelector('#q').focus()")
        assert await page.evaluate("document.querySelector('#q').value") == "barge"


def test_each_diagram_is_drawn_from_its_text() -> None:
    """`python tests/web/diagrams.py` draws them again; no drawing is left of a diagram that is gone."""
    drawings = {path.stem: path.read_text(encoding="utf-8") for path in diagrams.FOLDER.glob("*.svg")}
    sources = diagrams.diagrams()
    assert drawings.keys() == sources.keys()
    assert [name for name, source in sources.items() if diagrams.digest(source) not in drawings[name]] == []


async def test_a_diagram_is_displayed_as_a_drawing(talking: Any) -> None:
    """And its text is one click away."""
    async with talking(has_microphone=False) as talk, talk.page(f"{talk.server.url}/docs/turns") as page:
        await page.until("document.querySelectorAll('figure img').length === 3")
        await page.until("[...document.querySelectorAll('figure img')].every((each) => each.naturalWidth > 100)")
        await page.click("figure summary")
        await page.until("document.querySelector('figure pre').checkVisibility()")
