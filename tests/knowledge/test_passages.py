"""Documents become passages: whole paragraphs below their headings, none too long, no word lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ConfigError
from voicepipe.knowledge.passages import MAX_DOCUMENT_BYTES, MAX_PASSAGE_CHARS, Passage, read_folder, split

GUIDE = """# Rooms

We have twelve rooms.

## Prices

A room costs 80 francs.
Breakfast is included.

## Pets ##

Dogs are welcome.
# Arrival
From 3 pm.
"""

PAGE = """<!doctype html><html><head><title>Not this</title><style>p { color: red }</style></head><body>
<h1>Opening hours</h1><p>Monday&nbsp;to Friday,<br>8 to 18.</p><script>track()</script>
<h2>Holidays</h2><ul><li>Closed on 1 August</li><li>and at New Year</li></ul></body></html>"""


def test_markdown_is_split_at_its_headings() -> None:
    """Each passage knows the headings above it."""
    assert split(GUIDE, "rooms.md") == [
        Passage("rooms.md", 1, "Rooms", "We have twelve rooms."),
        Passage("rooms.md", 2, "Rooms > Prices", "A room costs 80 francs. Breakfast is included."),
        Passage("rooms.md", 3, "Rooms > Pets", "Dogs are welcome."),
        Passage("rooms.md", 4, "Arrival", "From 3 pm."),
    ]


def test_a_page_is_its_visible_text() -> None:
    """Without scripts, styles and markup."""
    assert split(PAGE, "hours.html", html=True) == [
        Passage("hours.html", 1, "Opening hours", "Monday to Friday,\n8 to 18."),
        Passage("hours.html", 2, "Opening hours > Holidays", "Closed on 1 August\nand at New Year"),
    ]


def test_short_paragraphs_share_a_passage_and_long_ones_are_cut_at_sentences() -> None:
    """Up to the limit."""
    long = "This is one sentence of many. " * 60
    passages = split(f"One.\n\nTwo.\n\n{long}", "a.txt")
    assert passages[0].text.startswith("One.\nTwo.\nThis is one sentence of many.")
    assert all(each.text.endswith(".") for each in passages)
    assert len(passages) == -(-len(long) // (MAX_PASSAGE_CHARS - 30))


@given(text=st.text(alphabet="ab .!?\n#。", max_size=3_000))
def test_no_word_is_lost_and_no_passage_is_too_long(text: str) -> None:
    """However the document is written."""
    passages = split(text, "any.txt")
    assert all(0 < len(each.text) <= MAX_PASSAGE_CHARS for each in passages)
    assert [each.number for each in passages] == list(range(1, len(passages) + 1))
    letters = "".join(each.text for each in passages)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert letters.count("a") >= body.count("a")


def test_a_folder_is_read_with_its_folders_in_order(tmp_path: Path) -> None:
    """Files of other kinds are left out."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("Second.")
    (tmp_path / "a.MD").write_text("\ufeffFirst.", encoding="utf-8")
    (tmp_path / "c.pdf").write_bytes(b"%PDF")
    assert [(each.document, each.text) for each in read_folder(tmp_path, key="k")] == [
        ("a.MD", "First."),
        ("sub/b.txt", "Second."),
    ]


def test_a_bad_folder_is_a_clear_error(tmp_path: Path) -> None:
    """The setting is named, and what is wrong with it."""
    with pytest.raises(ConfigError, match=r"^agents.a.knowledge: expected a folder with documents, got .*nowhere"):
        read_folder(tmp_path / "nowhere", key="agents.a.knowledge")
    with pytest.raises(ConfigError, match=r"^k: expected documents with text \(.*\.md"):
        read_folder(tmp_path, key="k")
    (tmp_path / "latin.txt").write_bytes("Zürich".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"^k: expected documents in UTF-8 .*'latin.txt'"):
        read_folder(tmp_path, key="k")
    (tmp_path / "latin.txt").write_bytes(b"x" * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(ConfigError, match=r"^k: expected documents of at most 10 MB, 'latin.txt' is larger"):
        read_folder(tmp_path, key="k")


def test_a_sentence_that_is_too_long_is_cut_at_words() -> None:
    """One word that is too long is cut anywhere; nothing is lost."""
    sentence = " ".join(f"word{n}" for n in range(2_000)) + "."
    texts = [passage.text for passage in split(sentence, "a.txt")]
    assert " ".join(texts) == sentence
    assert all(len(text) <= MAX_PASSAGE_CHARS for text in texts)
    word = "x" * (2 * MAX_PASSAGE_CHARS + 1)
    assert [len(passage.text) for passage in split(word, "a.txt")] == [MAX_PASSAGE_CHARS, MAX_PASSAGE_CHARS, 1]


def test_a_folder_with_too_many_passages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicepipe.knowledge.passages.MAX_PASSAGES", 2)
    (tmp_path / "a.md").write_text("# One\n\nText.\n\n# Two\n\nText.\n")
    assert len(read_folder(tmp_path, key="k")) == 2
    (tmp_path / "b.txt").write_text("More.")
    with pytest.raises(ConfigError, match=r"k: expected at most 2 passages in .*, got more"):
        read_folder(tmp_path, key="k")
