"""The check digits of card, account and identity numbers."""

from __future__ import annotations

from typing import Final

IBAN_CHARS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20, "LV": 21,
    "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MT": 31, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PT": 25, "QA": 29,
    "RO": 24, "RS": 22, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26, "UA": 29, "VA": 22,
    "XK": 20,
}  # fmt: skip
"""Country -> length of its account numbers. Source: SWIFT's IBAN registry."""

_DNI: Final = "TRWAGMYFPDXBNJZSQVHLCKE"


def is_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of a card number (ISO/IEC 7812-1, annex B)."""
    doubled = [int(digit) * (2 if position % 2 else 1) for position, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def is_iban(text: str) -> bool:
    """Return whether this is an account number: its country's length, and the remainder 1 by 97 (ISO 13616-1)."""
    if IBAN_CHARS.get(text[:2]) != len(text):
        return False
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


def is_ahv(digits: str) -> bool:
    """Return whether this is a Swiss social security number: 756, and the check digit of EAN-13."""
    weighted = sum(int(digit) * (3 if position % 2 else 1) for position, digit in enumerate(digits[:12]))
    return len(digits) == 13 and digits.startswith("756") and (10 - weighted % 10) % 10 == int(digits[12])


def is_cpf(digits: str) -> bool:
    """Return whether this is a Brazilian taxpayer's number: two check digits by 11."""
    if len(digits) != 11 or len(set(digits)) == 1:
        return False
    return all(
        sum(int(digit) * weight for digit, weight in zip(digits[:n], range(n + 1, 1, -1), strict=True)) * 10 % 11 % 10
        == int(digits[n])
        for n in (9, 10)
    )


def is_dni(text: str) -> bool:
    """Return whether this is a Spanish identity number: eight digits (X, Y or Z for the first), and their letter."""
    number = text[:-1].translate(str.maketrans("XYZ", "012"))
    return number.isdigit() and _DNI[int(number) % 23] == text[-1]


def is_nir(digits: str) -> bool:
    """Return whether this is a French social security number: 13 digits, and 97 minus their remainder by 97."""
    return len(digits) == 15 and digits[0] in "12" and 97 - int(digits[:13]) % 97 == int(digits[13:])


def is_bsn(digits: str) -> bool:
    """Return whether this is a Dutch citizen's number: nine digits whose weighted sum 11 divides."""
    weights = (9, 8, 7, 6, 5, 4, 3, 2, -1)
    return len(digits) == 9 and sum(int(d) * w for d, w in zip(digits, weights, strict=True)) % 11 == 0


def is_steuer_id(digits: str) -> bool:
    """Return whether this is a German tax number: eleven digits, the last by ISO 7064, MOD 11,10."""
    if len(digits) != 11 or digits[0] == "0":
        return False
    product = 10
    for digit in digits[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])
