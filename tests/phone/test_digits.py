"""Keys become one text."""

from __future__ import annotations

from voicepipe.phone.digits import MAX_DIGITS, DigitCollector


def test_a_hash_ends_a_number_at_once() -> None:
    digits = DigitCollector(2_000)
    for at_ms, digit in enumerate("12#"):
        assert digits.take(at_ms) == ""
        digits.add(digit, at_ms)
    assert digits.take(3) == "12#"
    assert digits.is_empty
    assert digits.take(9_000) == ""


def test_a_pause_ends_a_number() -> None:
    digits = DigitCollector(2_000)
    digits.add("1", 0)
    digits.add("2", 1_500)
    assert digits.take(3_499) == ""
    assert digits.take(3_500) == "12"


def test_a_number_has_a_limit() -> None:
    digits = DigitCollector()
    for _ in range(MAX_DIGITS):
        assert digits.take(0) == ""
        digits.add("1", 0)
    assert digits.take(0) == "1" * MAX_DIGITS
