"""Replace personal data in a text by its kind: `[email]`, `[card]`."""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal, get_args

from voicepipe.errors import ConfigError
from voicepipe.pii import checksums
from voicepipe.pii.spoken import DigitText, read_digits

Kind = Literal["email", "iban", "card", "ip", "national_id", "phone"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""The kinds in the order of the search: text that one kind matches is not searched for later kinds."""

MAX_CHARS: Final = 20_000
"""Maximum length of a text that is searched: about 40 ms of CPU. Speech of both sides is far shorter."""

MAX_TEXTS: Final = 1_024
"""Maximum number of texts whose result a session stores: that of the items that an LLM reads."""

Span = tuple[int, int, Kind]
"""(first, last + 1, kind) in the text as written."""

_GAP: Final = r"[ \-.,/()]{0,3}"
"""The characters that may stand between two digits of a number, as people and STTs write them."""

_DOT_WORD: Final = r"(?:dot|period|punkt|point|punto|ponto|punt)"
_AT_WORD: Final = r"(?:at|ät|arroba|arobase|chiocciola|apenstaartje)"
_EMAIL: Final = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_WORD: Final = r"[\w+-]{1,64}"
_SPOKEN_EMAIL: Final = re.compile(
    rf"(?<![\w+'-])(?:\w ){{0,30}}{_WORD}(?:(?:\.| (?:{_DOT_WORD}|underscore|dash|minus|hyphen) ){_WORD}){{0,4}} "
    rf"(?:{_AT_WORD}|@) (?:\w ){{0,30}}{_WORD}(?:(?:\.| {_DOT_WORD} )"
    rf"(?!(?:on|in|the|and|of)\b)(?:(?:[a-z] ){{1,3}}[a-z]\b|{_WORD}(?![\w+-]))){{1,3}}",
    re.IGNORECASE,
)
_IBAN: Final = re.compile(r"\b[a-z][ ]?[a-z][ -]?\d[ ]?\d(?:[ -]{0,2}[a-z\d]){11,30}", re.IGNORECASE)
_CARD: Final = re.compile(rf"(?<!\d)[2-6](?:{_GAP}\d){{12,18}}(?!\d)")
_IP4: Final = re.compile(r"(?<![\d.])\d ?\d? ?\d?(?: ?\. ?\d ?\d? ?\d?){3}(?!\.?\d)")
_IP6: Final = re.compile(r"(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", re.IGNORECASE)
_NUMBER: Final = re.compile(rf"(?<![\w])\+? ?\(?\d(?:{_GAP}\d){{6,18}}(?!\d)")
_INTERNATIONAL: Final = re.compile(rf"(?:\+ ?|(?<![\d.,])(?<!\d )00)\(?[1-9](?:{_GAP}\d){{6,14}}(?!\d)")
_NATIONAL: Final = re.compile(rf"(?<![\d.,:/-])\(?0[1-9](?:{_GAP}\d){{7,10}}(?![\d:])")
_AMERICAN: Final = re.compile(r"(?<![\d.-])(?:1[ .-])?\(?[2-9]\d\d\)?[ .-]{1,2}[2-9]\d\d[ .-]\d{4}(?![\d-])")
_PHONE_CUE: Final = re.compile(
    r"phone|\bcall\b|reach|\bmobile|\bcell\b|\btel|fax|whats.?app|\btext me|nummer|anruf|erreich|handy|appel|joindre|"
    r"portable|llam|móvil|chiam|cellulare|ligu|ligar|telemóvel|celular|\bbel\b|number is|my number",
    re.IGNORECASE,
)
_OTHER_NUMBER_CUE: Final = re.compile(
    r"order|invoice|ticket|booking|reservation|customer|tracking|serial|model|case|flight|bestell|rechnung|kunden|"
    r"auftrag|commande|facture|pedido|factura|ordine|fattura|factuur|bestelling|account",
    re.IGNORECASE,
)
_NATIONAL_ID_CUE: Final = re.compile(
    r"social security|\bssn\b|tax|steuer|insurance number|\bbsn\b|burgerservice|national id|identity|ausweis|\bahv\b|"
    r"sécurité sociale|\bdni\b|\bnie\b|\bcpf\b|codice fiscale|\bnino\b|sozialversicherung",
    re.IGNORECASE,
)
_PATTERNED_IDS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), check)
    for pattern, check in (
        (r"\b(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}\b", lambda found: True),  # USA
        (rf"(?<!\d)7{_GAP}5{_GAP}6(?:{_GAP}\d){{10}}(?!\d)", lambda found: checksums.is_ahv(found)),
        (r"\b[a-ceghj-prtw-z][a-ceghj-nprtw-z] ?(?:\d\d ?){3}[a-d]\b", lambda found: True),  # United Kingdom
        (r"(?<!\d)[12](?: ?\d){14}(?!\d)", lambda found: checksums.is_nir(found)),
        (r"\b(?:\d{8}|[xyz]-?\d{7})-?[a-z]\b", lambda found: checksums.is_dni(found)),
        (r"\b[a-z]{6}\d{2}[abcdehlmprst]\d{2}[a-z]\d{3}[a-z]\b", lambda found: True),  # Italy
        (r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b", lambda found: checksums.is_cpf(found)),
    )
)
_CUE_CHARS: Final = 45
"""Number of characters before a number that are searched for a word for its kind."""


def kinds_of(names: Collection[str], *, key: str) -> frozenset[Kind]:
    """Return the kinds of these names; `all` means every kind.

    Raises:
        ConfigError: naming `key`, when there is no such kind.
    """
    unknown = [name for name in names if name not in KINDS and name != "all"]
    if unknown:
        raise ConfigError(f"{key}: expected some of all, {', '.join(KINDS)}, got {unknown[0]!r}")
    return frozenset(kind for kind in KINDS if kind in names or "all" in names)


def redact_pii(text: str, kinds: Collection[Kind]) -> str:
    """Return the text with personal data of these kinds replaced by `[KIND]`."""
    parts: list[str] = []
    position = 0
    for first, end, kind in find(text, kinds):
        parts += [text[position:first], f"[{kind}]"]
        position = end
    return "".join((*parts, text[position:]))


class Redactor:
    """Redacts the texts of one session. A repeated text, as of a history, is not searched again."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self.kinds = frozenset(kinds)
        # Full: the oldest is dropped. It has the texts of the session's conversation, and ends with the session.
        self._redacted: OrderedDict[str, str] = OrderedDict()

    def __call__(self, text: str) -> str:
        """Return the text without personal data. A text of more than `MAX_CHARS` is not searched, but replaced."""
        if not self.kinds or not text:
            return text
        if len(text) > MAX_CHARS:
            return "[too long to redact]"
        if (found := self._redacted.get(text)) is None:
            found = self._redacted[text] = redact_pii(text, self.kinds)
            if len(self._redacted) > MAX_TEXTS:
                self._redacted.popitem(last=False)
        return found


def find(text: str, kinds: Collection[Kind] = KINDS) -> list[Span]:
    """Return the spans of personal data of these kinds, in order; no two overlap."""
    if len(text) < 6 or not kinds:  # too short for any kind
        return []
    digit_text = read_digits(text)
    found: list[Span] = []
    for kind in KINDS:
        for first, end in _FINDERS[kind](digit_text):
            span = digit_text.span(first, end)
            if all(span[1] <= other[0] or span[0] >= other[1] for other in found):
                found.append((*span, kind))
    return sorted(span for span in found if span[2] in kinds)


def _emails(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for pattern in (_EMAIL, _SPOKEN_EMAIL):
        yield from (found.span() for found in pattern.finditer(digit_text.text))


def _ibans(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for found in _IBAN.finditer(digit_text.text):
        positions = [position for position in range(*found.span()) if digit_text.text[position].isalnum()]
        compact = "".join(digit_text.text[position] for position in positions).upper()
        length = checksums.IBAN_CHARS.get(compact[:2], 0)
        if length and len(compact) >= length and checksums.is_iban(compact[:length]):
            yield found.start(), positions[length - 1] + 1


def _cards(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for found in _CARD.finditer(digit_text.text):
        if checksums.is_luhn(_digits(found[0])):
            yield found.span()


def _ips(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for pattern in (_IP4, _IP6):
        for found in pattern.finditer(digit_text.text):
            end = found.start() + len(found[0].rstrip())
            if _is_ip(found[0].replace(" ", "")):
                yield found.start(), end


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return text not in ("::", "::1")


def _national_ids(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for pattern, check in _PATTERNED_IDS:
        for found in pattern.finditer(digit_text.text):
            if check("".join(char for char in found[0].upper() if char.isalnum())):
                yield found.span()
    for found in _NUMBER.finditer(digit_text.text):
        digits = _digits(found[0])
        checked = checksums.is_bsn(digits) or checksums.is_steuer_id(digits) or checksums.is_cpf(digits)
        if (checked or len(digits) == 9) and _NATIONAL_ID_CUE.search(_before(digit_text, found.start())):
            yield found.span()


def _phones(digit_text: DigitText) -> Iterator[tuple[int, int]]:
    for pattern in (_INTERNATIONAL, _NATIONAL, _AMERICAN):
        yield from (found.span() for found in pattern.finditer(digit_text.text) if 8 <= len(_digits(found[0])) <= 17)
    for found in _NUMBER.finditer(digit_text.text):
        before, n_digits = _before(digit_text, found.start()), len(_digits(found[0]))
        n_spoken = sum(position in digit_text.spoken for position in range(*found.span()))
        is_phone = _PHONE_CUE.search(before) and not _OTHER_NUMBER_CUE.search(before)
        if n_digits <= 15 and (is_phone or (n_spoken >= 7 and not _OTHER_NUMBER_CUE.search(before))):
            yield found.span()


def _before(digit_text: DigitText, position: int) -> str:
    return digit_text.text[max(0, position - _CUE_CHARS) : position]


def _digits(text: str) -> str:
    return "".join(char for char in text if char.isdigit())


_FINDERS: Final[dict[Kind, Callable[[DigitText], Iterator[tuple[int, int]]]]] = {
    "email": _emails,
    "iban": _ibans,
    "card": _cards,
    "ip": _ips,
    "national_id": _national_ids,
    "phone": _phones,
}
