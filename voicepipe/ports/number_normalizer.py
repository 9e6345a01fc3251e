"""Convert numbers to words as a person reads them aloud: amounts, measures, times, years, telephone numbers. No I/O.

The names of numbers are num2words'. A number of no certain kind stays as written: the TTS has its own reading for
versions, dates in digits and codes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from voicepipe.ports.normalization_rules import RULES_BY_LANGUAGE, NormalizationRules

MAX_DIGITS = 15
"""The longest number read as one number: a longer one is read digit by digit."""

CODE_DIGITS = 7
"""From this length on a number without separators is a code, and read digit by digit."""

_FIRST_YEAR, _LAST_YEAR = 1100, 2099
_SCALES = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_BEFORE = r"(?<![\w.,:/+-])"
_LOOSE = r"(?<![\w.,:/+])(?<!\d[-\u2013])(?<![$€£])"
_AFTER = r"(?![\w:/]|[.,-]\d)"


class NumberNormalizer:
    """Converts one language's numbers."""

    def __init__(self, language: str) -> None:
        """`language` is one of `RULES_BY_LANGUAGE`."""
        self._language, self._wording = language, RULES_BY_LANGUAGE[language]
        self._rules = _rules(self, self._wording, language)

    def read(self, text: str) -> str:
        """Return the text with its numbers in words."""
        if not any(char.isdecimal() for char in text):
            return text
        for pattern, speak in self._rules:
            text = pattern.sub(speak, text)
        return text

    # --- kinds of numbers ---------------------------------------------------------------------

    def phone(self, found: re.Match[str]) -> str:
        """Read digit by digit, with a pause where the text has a separator."""
        digits = sum(map(str.isdecimal, found[0]))
        if digits < CODE_DIGITS or digits > MAX_DIGITS:
            return found[0]
        groups = [self._digits(group) for group in re.findall(r"\d+", found[0])]
        return ("plus " if found[0].startswith("+") else "") + ", ".join(groups)

    def money(self, found: re.Match[str]) -> str:
        """Read whole units, then the cents."""
        one, more = self._wording.money[found["sign"]]
        scale = found.groupdict().get("scale") or ""
        plain = self._plain(found["n"])
        whole, _, rest = plain.partition(".")
        if scale or len(rest) not in (0, 2):
            return _joined(self._number(plain), _SCALES.get(scale.lower(), scale), more)
        cents = self._wording.cents.get(found["sign"])
        if int(whole) == 0 and int(rest or 0) and cents is not None:
            return f"{self._wording.one} {cents[0]}" if rest == "01" else f"{self._number(str(int(rest)))} {cents[1]}"
        spoken = f"{self._wording.one} {one}" if whole == "1" else f"{self._number(whole)} {more}"
        return spoken if not int(rest or 0) else _joined(spoken, self._wording.money_and, self._number(str(int(rest))))

    def percent(self, found: re.Match[str]) -> str:
        """Read a percentage."""
        return f"{self._signed(found)} {self._wording.percent}"

    def degrees(self, found: re.Match[str]) -> str:
        """Read a temperature, or an angle."""
        names = {"C": "Celsius", "F": "Fahrenheit"}
        one, more = self._wording.degrees
        return _joined(self._signed(found), one if found["n"] == "1" else more, names.get(found["scale"] or "", ""))

    def measure(self, found: re.Match[str]) -> str:
        """Read a number with its unit."""
        one, more = self._wording.units[found["unit"]]
        if found["n"] == "1":
            return f"{self._wording.one} {one}"
        return f"{self._signed(found)} {more}"

    def time(self, found: re.Match[str]) -> str:
        """Read an hour and its minutes; a duration in minutes and seconds has the same form and is read the same
        way.
        """
        hour, minute = int(found["hour"]), int(found["minute"] or 0)
        half = (found.groupdict().get("half") or "").strip().replace(".", "").upper()
        if hour > 24 or minute > 59:
            return found[0]
        at = hour == 1
        spoken = self._wording.one if at and self._wording.hour[0] not in ("", "o'clock") else self._number(str(hour))
        if minute:
            oh = "oh " if self._language == "en" and minute < 10 else ""
            past = self._wording.past[0 if at else 1]
            return _joined(spoken, past, oh + self._number(str(minute)), half)
        o_clock = self._wording.hour[0 if at else 1]
        if self._language == "en" and (half or hour > 12):
            o_clock = half or "hundred"
        return _joined(spoken, o_clock)

    def span(self, found: re.Match[str]) -> str:
        """Read a range of two numbers."""
        ends = f"{self._counted(found['from'])} {self._wording.to} {self._counted(found['to'])}"
        return f"{ends} {self._wording.percent}" if found["share"] else ends

    def ordinal(self, found: re.Match[str]) -> str:
        """Read an ordinal."""
        return _words(found["n"], self._language, "ordinal")

    def decade(self, found: re.Match[str]) -> str:
        """Read a decade, as `1990s`."""
        year = _words(found["n"], self._language, "year")
        return f"{year.removesuffix('y')}ies" if year.endswith("y") else f"{year}s"

    def number(self, found: re.Match[str]) -> str:
        """Read any other number."""
        return self._signed(found)

    # --- helpers ------------------------------------------------------------------------------

    def _signed(self, found: re.Match[str]) -> str:
        spoken = self._counted(found["n"])
        return f"{self._wording.minus} {spoken}" if found["minus"] else spoken

    def _counted(self, written: str) -> str:
        plain = self._plain(written)
        digits = len(plain.replace(".", ""))
        if plain == written and plain.isdecimal():
            if (plain[0] == "0" and digits > 1) or digits >= CODE_DIGITS:
                return self._digits(plain)
            if digits == 4 and _FIRST_YEAR <= int(plain) <= _LAST_YEAR:
                return _words(plain, self._language, "year")
        return self._number(plain) if digits <= MAX_DIGITS else self._digits(plain.replace(".", ""))

    def _number(self, plain: str) -> str:
        return _words(plain, self._language, "cardinal")

    def _digits(self, digits: str) -> str:
        return " ".join(self._number(digit) for digit in digits)

    def _plain(self, written: str) -> str:
        ungrouped = re.sub(f"[{re.escape(self._wording.groups)}]", "", written)
        return ungrouped.replace(self._wording.decimal, ".")


@lru_cache(maxsize=1_024)
def _words(plain: str, language: str, kind: Literal["cardinal", "ordinal", "year"]) -> str:
    from num2words import num2words  # type: ignore[import-untyped]  # 2 MB, for the first number that is spoken

    spoken: str = num2words(float(plain) if "." in plain else int(plain), lang=language, to=kind)
    return spoken.replace(",", "")


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


NumberRule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def _rules(reader: NumberNormalizer, wording: NormalizationRules, language: str) -> list[NumberRule]:
    """Return the patterns, specific ones before general ones."""
    groups, decimal = re.escape(wording.groups), re.escape(wording.decimal)
    amount = rf"(?:\d{{1,3}}(?:[{groups}]\d{{3}})+|\d+)(?:{decimal}\d+)?"
    number = rf"(?P<minus>[-\u2212](?=\d))?(?P<n>{amount})"
    sign = "|".join(re.escape(sign) for sign in sorted(wording.money, key=len, reverse=True))
    english = language == "en"
    scale = r"(?:\s?(?P<scale>thousand|million|billion|trillion|bn|[kmbKMB]))?" if english else ""
    half = r"\s?[aApP]\.?[mM]\b"
    clock = rf":(?P<minute>\d\d)(?:\s(?:{'|'.join(wording.hour)})\b)?"
    if english:
        clock = rf"(?=:\d\d|{half})(?::(?P<minute>\d\d))?(?P<half>{half}\.?)?"
    unit = "|".join(re.escape(unit) for unit in sorted(wording.units, key=len, reverse=True) if len(unit) > 1)
    letter = "|".join(unit for unit in wording.units if len(unit) == 1)  # `5 s`, but not `1990s`
    written: list[tuple[str, Callable[[re.Match[str]], str]]] = [
        (r"(?<![\w.,:/-])(?:\+\d|\(?0\d)[\d ()./-]{4,}\d(?![\w/]|[.,-]\d)", reader.phone),
        (rf"{_BEFORE}(?:1[-. ])?(?:\(\d{{3}}\) ?|\d{{3}}[-.])?\d{{3}}[-.]\d{{4}}{_AFTER}", reader.phone),
        (rf"(?<!\w)(?P<sign>{sign})\s?(?P<n>{amount}){scale}{_AFTER}", reader.money),
        (rf"{_BEFORE}(?P<n>{amount})\s?(?P<sign>{sign}){scale}(?!\w)", reader.money),
        (rf"{_LOOSE}{number}\s?%", reader.percent),
        (rf"{_LOOSE}{number}\s?°\s?(?P<scale>[CF]\b)?", reader.degrees),
        (rf"{_LOOSE}(?P<hour>\d{{1,2}}){clock}(?![\w:])", reader.time),
        (rf"{_BEFORE}(?P<from>{amount})\s?[-\u2013]\s?(?P<to>{amount})(?P<share>\s?%)?(?![\w:/-]|[.,]\d)", reader.span),
        (
            rf"{_LOOSE}{number}(?:(?=\s?(?:{unit})\b)\s?|(?=\s(?:{letter})\b)\s)(?P<unit>{unit}|{letter})(?![\w/])",
            reader.measure,
        ),
        (rf"{_LOOSE}{number}{_AFTER}", reader.number),
    ]
    if english:
        written.append((r"(?<![\w.,])(?P<n>\d{1,6})(?:st|nd|rd|th)\b", reader.ordinal))
        written.append((r"(?<![\w.,])(?P<n>[12]\d\d0)s\b", reader.decade))
        written.append((r"(?<=[AP]M)\s?[-\u2013]\s?(?=\w)", lambda _: f" {wording.to} "))
    return [(re.compile(pattern), speak) for pattern, speak in written]
