"""Read a folder of documents, and split each into passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from msgspec import Struct

from voicepipe.errors import ConfigError

SUFFIXES: Final = frozenset((".md", ".markdown", ".txt", ".html", ".htm"))
MAX_PASSAGE_CHARS: Final = 800
"""Maximum length of a passage, about 200 tokens: a few passages answer a question, and each has one subject."""

MAX_DOCUMENT_BYTES: Final = 10 << 20
MAX_PASSAGES: Final = 100_000

_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")  # noqa: RUF001 - Chinese and Japanese marks
_BLOCK_TAGS: Final = frozenset(
    ("p", "div", "section", "article", "li", "tr", "br", "table", "ul", "ol", "pre", "blockquote", "dt", "dd", "main")
)
_HIDDEN_TAGS: Final = frozenset(("script", "style", "head", "template", "nav"))
_HEADING_TAGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


class Passage(Struct, frozen=True):
    """A part of a document."""

    document: str
    """The document's path in its folder, with slashes."""

    number: int
    """The number of the passage in the document, from 1."""

    heading: str
    """The headings above the passage, outermost first; empty: none."""

    text: str


def read_folder(folder: Path, *, key: str) -> tuple[Passage, ...]:
    """Return the passages of all documents below a folder, in the order of their paths.

    Raises:
        ConfigError: naming `key`, when it is no folder, has no documents, or one of them cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{key}: expected a folder with documents, got {str(folder)!r}, which is none")
    passages: list[Passage] = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()):
        passages += _read_document(path, path.relative_to(folder).as_posix(), key)
        if len(passages) > MAX_PASSAGES:
            raise ConfigError(f"{key}: expected at most {MAX_PASSAGES} passages in {str(folder)!r}, got more")
    if not passages:
        kinds = ", ".join(sorted(SUFFIXES))
        raise ConfigError(f"{key}: expected documents with text ({kinds}) in {str(folder)!r}, got none")
    return tuple(passages)


def _read_document(path: Path, name: str, key: str) -> list[Passage]:
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise ConfigError(f"{key}: expected documents of at most {MAX_DOCUMENT_BYTES >> 20} MB, {name!r} is larger")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"{key}: expected documents in UTF-8 that can be read, got {name!r}: {why}") from None
    return split(text, name, html=path.suffix.lower() in (".html", ".htm"))


def split(text: str, document: str, *, html: bool = False) -> list[Passage]:
    """Return a document's passages: whole paragraphs below one heading, up to `MAX_PASSAGE_CHARS` together."""
    passages: list[Passage] = []
    for heading, paragraphs in _sections(_text_of_html(text) if html else text):
        for part in _join(piece for paragraph in paragraphs for piece in _pieces(paragraph)):
            passages.append(Passage(document, len(passages) + 1, heading, part))
    return passages


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (headings, paragraphs). Headings are Markdown's; text files rarely have any."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    for line in text.splitlines():
        if (found := _HEADING.match(line)) is None:
            lines.append(line)
            continue
        yield _title(headings), _paragraphs(lines)
        level, lines = len(found[1]), []
        headings = [*((rank, title) for rank, title in headings if rank < level), (level, found[2])]
    yield _title(headings), _paragraphs(lines)


def _title(headings: list[tuple[int, str]]) -> str:
    return " > ".join(title for _, title in headings if title)


def _paragraphs(lines: list[str]) -> list[str]:
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    return [text for block in blocks if (text := re.sub(r"\s+", " ", block).strip())]


def _pieces(paragraph: str) -> Iterator[str]:
    """Yield a paragraph, or its sentences if it is too long; a sentence that is too long is cut at a word."""
    if len(paragraph) <= MAX_PASSAGE_CHARS:
        yield paragraph
        return
    for sentence in filter(None, _SENTENCE_END.split(paragraph)):
        rest = sentence
        while len(rest) > MAX_PASSAGE_CHARS:
            cut = rest.rfind(" ", 1, MAX_PASSAGE_CHARS)
            cut = MAX_PASSAGE_CHARS if cut < 0 else cut
            yield rest[:cut]
            rest = rest[cut:].strip()
        yield rest


def _join(pieces: Iterator[str]) -> Iterator[str]:
    passage = ""
    for piece in pieces:
        if passage and len(passage) + 1 + len(piece) > MAX_PASSAGE_CHARS:
            yield passage
            passage = ""
        passage = f"{passage}\n{piece}" if passage else piece
    if passage:
        yield passage


def _text_of_html(html: str) -> str:
    reader = _HtmlText()
    reader.feed(html)
    reader.close()
    return "".join(reader.parts)


class _HtmlText(HTMLParser):
    """Collects the visible text of a page, with its headings as in Markdown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._n_hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN_TAGS:
            self._n_hidden += 1
        elif tag in _HEADING_TAGS:
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _BLOCK_TAGS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN_TAGS:
            self._n_hidden = max(0, self._n_hidden - 1)
        elif tag in _HEADING_TAGS or tag in _BLOCK_TAGS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._n_hidden:
            self.parts.append(re.sub(r"\s+", " ", data))
