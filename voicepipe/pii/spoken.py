"""Replace digits in words ("four two four two"), as STTs write them, by digits, in seven languages."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_DIGITS: Final = {
    word: str(digit)
    for words in (
        "zero one two three four five six seven eight nine",  # English
        "null eins zwei drei vier fünf sechs sieben acht neun",  # German
        "zéro un deux trois quatre cinq six sept huit neuf",  # French
        "cero uno dos tres cuatro cinco seis siete ocho nueve",  # Spanish
        "zero uno due tre quattro cinque sei sette otto nove",  # Italian
        "zero um dois três quatro cinco seis sete oito nove",  # Portuguese
        "nul een twee drie vier vijf zes zeven acht negen",  # Dutch
    )
    for digit, word in enumerate(words.split())
} | {"oh": "0", "zwo": "2", "meia": "6", "één": "1"}

_TEENS: Final = {
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
    "thirteen": "13",
    "fourteen": "14",
    "fifteen": "15",
    "sixteen": "16",
    "seventeen": "17",
    "eighteen": "18",
    "nineteen": "19",
}
_TENS: Final = {
    "twenty": "2",
    "thirty": "3",
    "forty": "4",
    "fifty": "5",
    "sixty": "6",
    "seventy": "7",
    "eighty": "8",
    "ninety": "9",
}
_TIMES: Final = {"double": 2, "triple": 3, "doppel": 2, "doble": 2, "doppio": 2}
_DOTS: Final = frozenset(("dot", "point", "punkt", "punto", "ponto", "punt"))
_PLUS: Final = frozenset(("plus", "più", "más", "mais"))
_TOKEN: Final = re.compile(r"[^\W\d_]+|\d|\s+|.", re.DOTALL)


class DigitText(Struct, frozen=True):
    """A text with digits in place of digit words, and the span of each character in the original text."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """For each character of `text`: (first, last + 1) in the original text."""

    spoken: frozenset[int]
    """Places in `text` of digits that were words."""

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return the span of a part of `text` in the original text."""
        return self.spans[first][0], self.spans[end - 1][1]


def read_digits(text: str) -> DigitText:
    """Return the text with each digit word as its digit.

    "double five" is 55, and in English "forty two" is 42. A word for a dot or a plus counts between or before digits
    only.
    """
    tokens = list(_TOKEN.finditer(text))
    words = [token[0].lower() for token in tokens]
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    spoken: set[int] = set()
    n = 0
    while n < len(tokens):
        read, n_tokens = _read(words, n)
        start, end = tokens[n].start(), tokens[n + n_tokens - 1].end()
        if read:
            spoken |= {len(spans) + position for position, char in enumerate(read) if char.isdigit()}
            spans += [(start, end)] * len(read)
            parts.append(read)
        else:
            parts.append(text[start:end])
            spans += [(position, position + 1) for position in range(start, end)]
        n += n_tokens
    return DigitText("".join(parts), tuple(spans), frozenset(spoken))


def _read(words: list[str], n: int) -> tuple[str, int]:
    """Return the digits of the word at `n`, or an empty text, and their number of tokens."""
    word, after = words[n], words[n + 2] if n + 2 < len(words) and words[n + 1].strip() in ("", "-") else ""
    if word in _DIGITS:
        return _DIGITS[word], 1
    if word in _TEENS:
        return _TEENS[word], 1
    if word in _TENS:
        unit = _DIGITS.get(after, "0")
        return (_TENS[word] + unit, 3) if unit != "0" else (f"{_TENS[word]}0", 1)
    if word in _TIMES and (digit := _DIGITS.get(after, after if after.isdigit() else "")):
        return digit * _TIMES[word], 3
    before = words[n - 2] if n >= 2 else ""
    if word in _DOTS and _is_digit(before) and _is_digit(after):
        return ".", 1
    if word in _PLUS and _is_digit(after):
        return "+", 1
    return "", 1


def _is_digit(word: str) -> bool:
    return word.isdigit() or word in _DIGITS or word in _TEENS or word in _TENS
