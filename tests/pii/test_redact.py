"""Personal data in text: found as people and STTs write it, and replaced by its kind."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import docs
from tests.measure import pii
from voicepipe.errors import ConfigError
from voicepipe.pii.redact import KINDS, MAX_CHARS, MAX_TEXTS, Redactor, Span, find, kinds_of, redact_pii


def test_the_labelled_sentences() -> None:
    """No fewer are found than the docs say, and no more false hits."""
    total = pii.score()
    assert total.n_sentences >= 200
    assert set(total.labelled) == set(KINDS)
    assert total.found.total() / total.labelled.total() >= 0.98, total.problems
    assert total.false_hits.total() <= 1, total.problems


def test_the_held_out_sentences() -> None:
    """Fewer are found of sentences that the patterns were not written with, and the docs say so."""
    total = pii.score(pii.HELD_OUT)
    assert total.found.total() >= 30, total.problems
    assert total.false_hits.total() <= 2, total.problems
    assert pii.report() in docs.DOCS


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Write to anna@example.com, please.", "Write to [email], please."),
        ("it's john dot smith at gmail dot com okay", "it's [email] okay"),
        ("Card 4242 4242 4242 4242.", "Card [card]."),
        ("four two four two " * 4 + "and the date", "[card] and the date"),
        ("Pay to CH93 0076 2011 6238 5295 7.", "Pay to [iban]."),
        (
            "c h nine three " + "zero zero seven six two zero one one six two three eight five two nine five seven",
            "[iban]",
        ),
        ("From 192.168.1.17 and 2001:db8::1.", "From [ip] and [ip]."),
        ("AHV 756.9217.0769.85", "AHV [national_id]"),
        ("Call +41 79 123 45 67 or (415) 555-2671.", "Call [phone] or [phone]."),
        ("my number is five five five double oh one two", "my number is [phone]"),
    ],
)
def test_each_is_replaced_by_its_kind(text: str, redacted: str) -> None:
    """The rest of the sentence stays as it is."""
    assert redact_pii(text, KINDS) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "Card 4242 4242 4242 4243.",  # the check digit is wrong
        "Pay to CH93 0076 2011 6238 5295 8.",
        "From 192.168.1.300.",
        "Der Preis ist 1.234.567,89.",
        "Order 4815162342, of 12.05.2026 at 14:35.",
        "one, two, three, four, five, six",
        "Look at the dot on the map.",
    ],
)
def test_what_only_looks_alike_stays(text: str) -> None:
    """Check digits and the words before a number tell them apart."""
    assert redact_pii(text, KINDS) == text


def test_only_the_kinds_of_the_setting_are_replaced() -> None:
    """A number that is another kind's is not found for this one."""
    text = "Card 4242 4242 4242 4242, mail a@example.com."
    assert redact_pii(text, kinds_of(["email"], key="k")) == "Card 4242 4242 4242 4242, mail [email]."
    assert redact_pii(text, kinds_of(["phone"], key="k")) == text
    assert redact_pii(text, kinds_of(["all"], key="k")) == "Card [card], mail [email]."
    assert redact_pii(text, ()) == text


def test_an_unknown_kind_is_refused_with_the_list() -> None:
    """By its setting."""
    with pytest.raises(ConfigError, match=r"^records.redact: expected some of all, email, .* got 'names'"):
        kinds_of(["email", "names"], key="records.redact")


@given(text=st.text(alphabet="0123456789 +-.@:abot/()", max_size=200) | st.text(max_size=100))
def test_any_text_can_be_searched(text: str) -> None:
    """What is found is in order and does not overlap; nothing of it is left in the redacted text."""
    hits = find(text)
    assert all(0 <= first < end <= len(text) for first, end, _ in hits)
    assert all(before[1] <= after[0] for before, after in pairwise(hits))
    rest = "".join(text[a[1] : b[0]] for a, b in zip([(0, 0, ""), *hits], [*hits, (len(text), 0, "")], strict=True))
    redacted = redact_pii(text, KINDS)
    assert len(redacted) == len(rest) + sum(len(kind) + 2 for _, _, kind in hits)


def test_a_session_searches_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its history is read again for each answer. A text that is too long to be searched is not stored at all."""
    searched: list[str] = []

    def search(text: str, kinds: object) -> list[Span]:
        searched.append(text)
        return []

    monkeypatch.setattr("voicepipe.pii.redact.find", search)
    redact = Redactor(KINDS)
    assert [redact(text) for text in ("one", "two", "one", "")] == ["one", "two", "one", ""]
    assert searched == ["one", "two"]
    assert redact("x" * (MAX_CHARS + 1)) == "[too long to redact]"
    for n in range(MAX_TEXTS):
        redact(f"text {n}")
    redact("one")
    assert searched.count("one") == 2
    assert Redactor(())("a@example.com") == "a@example.com"
