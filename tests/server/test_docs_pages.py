"""The documentation's Markdown as pages of the server: headings, links, tables, search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import docs as files
from voicepipe.server.api.docs import Docs, anchor_of, render, results

FOLDER = files.ROOT / "web" / "docs"


@pytest.fixture(scope="module")
def docs() -> Docs:
    return Docs.read(FOLDER)


def test_every_file_is_a_page_in_the_order_of_the_index(docs: Docs) -> None:
    assert set(docs.pages) == {path.stem for path in FOLDER.glob("*.md")}
    assert list(docs.pages)[:2] == ["index", "start"]


def test_every_link_leads_to_a_page_and_a_heading(docs: Docs) -> None:
    """As a browser follows them: between pages, to headings, to pictures."""
    n_links = 0
    for page in docs.pages.values():
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.body):
            path, _, anchor = link.partition("#")
            if path.startswith("/web/"):
                assert (files.ROOT / path[1:]).is_file(), link
                continue
            target = docs.pages[path.removeprefix("/docs").lstrip("/") or "index"] if path else page
            assert not anchor or f'id="{anchor}"' in target.body, (page.name, link)
            n_links += 1
    assert n_links > 50


def test_a_page_shows_markup_as_text_and_leaves_out_the_marks_of_generated_blocks() -> None:
    page = render("x", "# A <b>title</b>\n\n<!-- begin y -->\n<script>alert(1)</script>\n<!-- end y -->\n")
    assert page.title == "A <b>title</b>"
    assert "<script>" not in page.body
    assert "begin y" not in page.body


def test_a_heading_in_an_example_is_no_section() -> None:
    page = render("x", "# One\n\n```toml\n# two\na = 1\n```\n\n## Three\n")
    assert [each.title for each in page.sections] == ["One", "Three"]


def test_the_search_wants_every_word_and_puts_headings_first() -> None:
    text = "# Bounds\n\nA limit on events.\n\n## Events\n\nEach client has a limit.\n\n## Other\n\nNothing.\n"
    docs = Docs([render("limits", text)])
    assert [each.title for each in docs.search("EVENTS limit")] == ["Events", "Bounds"]
    assert docs.search("events nowhere") == []
    assert docs.search("   ") == []


def test_the_results_show_a_query_as_text() -> None:
    docs = Docs([render("x", "# X\n\na <i>word</i>\n")])
    rendered = results(docs, "<i>word")
    assert "<i>" not in rendered
    assert 'href="/docs/x#x"' in rendered


def test_an_anchor_is_formed_as_in_links_between_files() -> None:
    assert anchor_of("What if?") == "what-if"
    assert anchor_of("Is it `true`, then?") == "is-it-true-then"


async def test_the_pages_come_from_the_server(fake_server: Any) -> None:
    """The index, a page, a search and a page that is not there; no key is needed."""
    async with fake_server() as server, aiohttp.ClientSession() as http:
        for path, status, text in (
            ("/docs", 200, "Documentation"),
            ("/docs/settings", 200, "server.port"),
            ("/docs?q=budget", 200, "with “budget”"),
            ("/docs/nothing", 404, "no page 'nothing'"),
        ):
            async with http.get(server.url + path) as answer:
                assert answer.status == status
                assert text in await answer.text()
        async with http.get(f"{server.url}/docs/settings") as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "script-src 'self'" in policy
            assert "form-action 'self'" in policy


def test_the_wheel_takes_the_pages_along() -> None:
    """The server of an installed wheel reads them from the package."""
    listed = (files.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"docs/*.md"' in listed
    assert (Path(files.ROOT) / "voicepipe" / "_web" / "docs" / "index.md").is_file()
