"""`GET /docs`: the documentation as pages, rendered from the Markdown files in `web/docs`, with a search."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from markdown_it.token import Token

INDEX: Final = "index"

MAX_QUERY_CHARS: Final = 100
"""Maximum length of a search; longer ones are cut, since no page holds such a long term."""

MAX_RESULTS: Final = 30

EXCERPT_CHARS: Final = 160

_REPOSITORY_LINK: Final = re.compile(r"\.\./\.\./[A-Z_]+(\.md)?")
"""Links to files that only a clone has; the server shows their text without the link."""

_DIAGRAM: Final = re.compile(r"mermaid (\w+)")
_DRAWING: Final = (
    '<figure><div class="wide" tabindex="0" role="region" aria-label="Diagram"><img src="/web/diagrams/{name}.svg" '
    'alt="State diagram; the text below it has the same content" /></div>'
    "<details><summary>The diagram as text</summary>"
)


class Section(Struct, frozen=True):
    """A heading of a page and the text below it, as the search reads it."""

    page: str
    title: str
    anchor: str
    text: str

    lower: str
    """Heading and text in lower case."""

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether every word, in lower case, is in the heading or the text."""
        return all(word in self.lower for word in words)

    def excerpt(self, word: str) -> str:
        """Return the text around the first place of a word, at most `EXCERPT_CHARS` characters."""
        start = max(0, self.text.lower().find(word) - EXCERPT_CHARS // 3)
        return " ".join(self.text[start : start + EXCERPT_CHARS].split())


class RenderedPage(Struct, frozen=True):
    """A rendered page."""

    name: str
    title: str
    body: str
    """HTML."""

    sections: tuple[Section, ...]


class Docs:
    """The pages of a folder of Markdown files."""

    def __init__(self, pages: Sequence[RenderedPage]) -> None:
        self.pages = {page.name: page for page in pages}

    @classmethod
    @functools.cache
    def read(cls, folder: Path) -> Docs:
        """Render every Markdown file of a folder, once, in the order in which the index links them; waits for files."""
        names = [path.stem for path in folder.glob("*.md")]
        index = (folder / f"{INDEX}.md").read_text(encoding="utf-8")
        linked = re.findall(r"\]\(([\w-]+)\.md\)", index)
        order = dict.fromkeys([INDEX, *linked, *sorted(names)])
        texts = {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in order if name in names}
        return cls([render(name, text) for name, text in texts.items()])

    def search(self, query: str) -> list[Section]:
        """Return the sections that hold every word of a query, those with a word in their heading first."""
        words = query[:MAX_QUERY_CHARS].lower().split()
        if not words:
            return []
        found = [each for page in self.pages.values() for each in page.sections if each.matches(words)]
        found.sort(key=lambda each: not any(word in each.title.lower() for word in words))
        return found[:MAX_RESULTS]


def render(name: str, text: str) -> RenderedPage:
    """Return a page from its Markdown; the marks around generated blocks are left out."""
    # Imported late: most servers never show these pages, and the library takes 1 MB.
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE))
    sections = tuple(_sections(name, tokens))
    body = markdown.renderer.render([*_drawn(_linked(tokens))], markdown.options, {})
    # Wide blocks scroll by themselves, also from the keyboard.
    body = body.replace("<pre>", '<pre tabindex="0">')
    body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>')
    return RenderedPage(
        name, sections[0].title if sections else name, body.replace("</table>", "</table></div>"), sections
    )


def anchor_of(title: str) -> str:
    """Return the fragment that leads to a heading, formed as code hosts do."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def _sections(page: str, tokens: Sequence[Token]) -> Iterator[Section]:
    """Split a page at its headings, and give each heading its anchor."""
    title, anchor, texts = "", "", list[str]()
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            if title:
                yield _section(page, title, anchor, texts)
            title, texts = _plain(token), []
            anchor = anchor_of(title)
            before.attrSet("id", anchor)
        elif token.type == "inline":
            texts.append(_plain(token))
        elif token.type in ("fence", "code_block"):
            texts.append(token.content)
    if title:
        yield _section(page, title, anchor, texts)


def _section(page: str, title: str, anchor: str, texts: Sequence[str]) -> Section:
    text = " ".join(texts)
    return Section(page, title, anchor, text, f"{title}\n{text}".lower())


def _plain(inline: Token) -> str:
    return "".join(child.content if child.content else " " for child in inline.children or ())


def _linked(tokens: Sequence[Token]) -> Iterator[Token]:
    """Turn links between files into links between pages of the server."""
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _address(str(child.attrGet("href") or "")))
            elif child.type == "image":
                child.attrSet("src", str(child.attrGet("src") or "").replace("../", "/web/", 1))
        yield token


def _drawn(tokens: Iterator[Token]) -> Iterator[Token]:
    """Put the drawing in front of each diagram's text, which stays for those who read it."""
    from markdown_it.token import Token  # late, as in `render`

    for token in tokens:
        diagram = _DIAGRAM.fullmatch(token.info) if token.type == "fence" else None
        if diagram is None:
            yield token
            continue
        yield Token("html_block", "", 0, content=_DRAWING.format(name=diagram[1]))
        yield token
        yield Token("html_block", "", 0, content="</details></figure>")


def _address(link: str) -> str:
    path, hash_sign, anchor = link.partition("#")
    if _REPOSITORY_LINK.fullmatch(path):
        return "/docs"
    if path.endswith(".md"):
        name = path.removesuffix(".md")
        path = "/docs" if name == INDEX else f"/docs/{name}"
    return f"{path}{hash_sign}{anchor}"


def document(docs: Docs, title: str, main: str, *, current: str, query: str = "") -> str:
    """Return a whole HTML document: head, search, list of pages, and the content."""
    links = "".join(
        f'<li><a href="/docs{"" if name == INDEX else "/" + name}"{" aria-current=page" if name == current else ""}>'
        f"{html.escape(page.title)}</a></li>"
        for name, page in docs.pages.items()
    )
    return _DOCUMENT.format(title=html.escape(title), links=links, main=main, query=html.escape(query, quote=True))


def results(docs: Docs, query: str) -> str:
    """Return the search's results as HTML."""
    found = docs.search(query)
    words = query.lower().split()
    items = "".join(
        f'<li><a href="/docs/{each.page}#{each.anchor}">{html.escape(docs.pages[each.page].title)}: '
        f"{html.escape(each.title)}</a><p>{html.escape(each.excerpt(words[0]))}</p></li>"
        for each in found
    )
    count = f"{len(found)} section{'' if len(found) == 1 else 's'}" if found else "No section"
    return f'<h1>Search</h1><p role="status">{count} with “{html.escape(query)}”.</p><ol class="results">{items}</ol>'


_DOCUMENT: Final = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>{title} · voicepipe</title>
    <link rel="icon" type="image/svg+xml" href="/web/icon.svg" />
    <link rel="stylesheet" href="/web/theme.css" />
    <link rel="stylesheet" href="/web/docs.css" />
  </head>
  <body>
    <a class="skip" href="#main">Skip to the text</a>
    <header>
      <p class="brand"><a href="/docs"><img src="/web/icon.svg" alt="" width="28" height="28" />voicepipe</a></p>
      <form action="/docs" method="get" role="search">
        <label class="unseen" for="q">Search the documentation</label>
        <input id="q" type="search" name="q" value="{query}" maxlength="100" placeholder="Search" />
        <button type="submit" class="quiet">Search</button>
      </form>
    </header>
    <div class="columns">
      <nav aria-label="Pages"><details open><summary>Pages</summary><ul>{links}</ul></details></nav>
      <main id="main">{main}</main>
    </div>
  </body>
</html>
"""
