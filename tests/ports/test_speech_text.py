"""What a voice is given for what was written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.ports.normalization_rules import RULES_BY_LANGUAGE
from voicepipe.ports.speech_text import ClauseNormalizer


def said(text: str, language: str | None = "en") -> str:
    return ClauseNormalizer(language).read(text)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("**Sure!** Here's `the plan`:", "Sure! Here's the plan:"),
        ("## Steps", "Steps."),
        ("- eggs\n- *two* apples", "eggs. two apples."),
        ("> He said __so__, ~~twice~~", "He said so, twice."),
        ("See [our docs](https://example.com/a_b(c)) now.", "See our docs now."),
        ("![A cat](cat.png) Look.", "A cat Look."),
        ("| size | price |\n|---|---|\n| big | low |", "size, price big, low"),
        ("Tom &amp; Jerry [1], a <b>bold</b><br/>pair", "Tom and Jerry, a bold pair"),
        (r"Three \* is snake_case", "Three * is snake case"),
        ("x * y * z", "x * y * z"),
        ("Great \U0001f389\U0001f44d\U0001f3fd job :) \U0001f468\u200d\U0001f469\u200d\U0001f467!", "Great job!"),
    ],
)
def test_markup_and_pictures_are_not_read(written: str, spoken: str) -> None:
    """What is for the eye goes, what it marks stays."""
    assert said(written) == spoken


@pytest.mark.parametrize("written", ["---", "\U0001f389 :)", "|---|:-:|", "```", "**", "![](x.png)"])
def test_nothing_to_say(written: str) -> None:
    assert said(written) == ""


def test_code_is_passed_over_across_clauses() -> None:
    """A block of code comes in several clauses; what follows it is read again."""
    speakable = ClauseNormalizer("en")
    clauses = ["Here:", "```python", "x = 1.", "print(x)\n```", "Done."]
    assert [speakable.read(clause) for clause in clauses] == ["Here:", "", "", "", "Done."]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Visit https://www.example.com/help/start-here.", "Visit example dot com slash help slash start here."),
        ("At https://example.com/a?b=c&d=5 now", "At example dot com now"),
        ("Go to example.com/help, ok?", "Go to example dot com slash help, ok?"),
        ("Mail anna.b@example.com!", "Mail anna dot b at example dot com!"),
        (
            "It costs $5.50 or $1,299.",
            "It costs five dollars fifty or one thousand two hundred and ninety-nine dollars.",
        ),
        ("$1.5 million, $20k", "one point five million dollars, twenty thousand dollars"),
        ("€3 and $1.", "three euros and one dollar."),
        ("Up 50% to 3.14.", "Up fifty percent to three point one four."),
        ("20°C, 68 °F, -1°", "twenty degrees Celsius, sixty-eight degrees Fahrenheit, minus one degree"),
        ("3:30 pm, 15:00, 3:05, 5pm, 10:00 AM", "three thirty PM, fifteen hundred, three oh five, five PM, ten AM"),
        ("In 1999, 2,000 came.", "In nineteen ninety-nine, two thousand came."),
        ("Call 555-0123.", "Call five five five, zero one two three."),
        ("Call +1 (555) 123-4567.", "Call plus one, five five five, one two three, four five six seven."),
        ("Code 0042.", "Code zero zero four two."),
        ("Pages 5-10, the 3rd", "Pages five to ten, the third"),
        ("5 km at 90 km/h, 1 kg, 8GB", "five kilometers at ninety kilometers per hour, one kilogram, eight gigabytes"),
        ("1. Wash it", "one, Wash it."),
        ("A & B = C", "A and B equals C"),
        ("The 1990s, 5 s, the 2000s", "The nineteen nineties, five seconds, the two thousands"),
        ("Call 1-800-555-1234.", "Call one, eight zero zero, five five five, one two three four."),
        ("50-60% of ~$20", "fifty to sixty percent of about twenty dollars"),
        ("#1 for $0.99 or £0.01", "number one for ninety-nine cents or one penny"),
        ("9am-5pm", "nine AM to five PM"),
    ],
)
def test_english(written: str, spoken: str) -> None:
    """Addresses, sums, measures, times and numbers as words."""
    assert said(written) == spoken


@pytest.mark.parametrize("written", ["Version 3.5.1 on 2024-05-01.", "10.0.0.1", "10/12/2024", "B2B, MP3, 12B", "24/7"])
def test_what_is_not_clearly_a_number_stays(written: str) -> None:
    """A voice has its own reading for dates in digits, versions and codes."""
    assert said(written) == written


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("de", "1.299,50 € um 15:30 Uhr", "eintausendzweihundertneunundneunzig Euro fünfzig um fünfzehn Uhr dreißig"),
        ("de-AT", "1 km, 3,5 %", "ein Kilometer, drei Komma fünf Prozent"),
        ("fr", "1 299,50 € à 15:30", "mille deux cent quatre-vingt-dix-neuf euros cinquante à quinze heures trente"),
        ("es", "3,5 % y 1 €", "tres punto cinco por ciento y un euro"),
        ("it", "5 km, 20 °C", "cinque chilometri, venti gradi Celsius"),
        ("pt-BR", "R$ 2,50", "dois reais e cinquenta"),
        ("nl", "om 15:30 uur, € 2", "om vijftien uur dertig, twee euro"),
    ],
)
def test_other_languages(language: str, written: str, spoken: str) -> None:
    """Each with its own marks for thousands and decimals, and its own words."""
    assert said(written, language) == spoken


@pytest.mark.parametrize("language", [None, "ja", "xx-YY"])
def test_unknown_language(language: str | None) -> None:
    """Only markup and pictures go: a number in the wrong language is worse than the voice's own reading."""
    assert said("**5 km** \U0001f389 at example.com & $3", language) == "5 km at example.com & $3"


@pytest.mark.parametrize("unit", ["-", "--|", "a.", "1,", "0-", "a@", "_a", "[a](", "1 ", "**a", "\n- ", "9"])
def test_long_nonsense(unit: str) -> None:
    """Thousands of characters without a sentence are over in a moment: no pattern takes the longer for more of them."""
    assert isinstance(said(unit * 5_000 + "!"), str)


@settings(deadline=None)
@given(st.text(max_size=240), st.sampled_from([None, *RULES_BY_LANGUAGE]))
def test_any_text(text: str, language: str | None) -> None:
    """Never fails, and never gives a voice something without a letter or a digit."""
    spoken = said(text, language)
    assert not spoken or any(map(str.isalnum, spoken))


@settings(deadline=None)
@given(st.text(alphabet="0123456789.,:-+$€%° kmpPaA/()", max_size=40), st.sampled_from(list(RULES_BY_LANGUAGE)))
def test_any_number(text: str, language: str) -> None:
    """However a number is written, it can be read."""
    assert isinstance(said(text, language), str)
