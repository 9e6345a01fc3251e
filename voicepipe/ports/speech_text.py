"""Convert written text to the text for the synthesizer: without markup and emoji, with symbols and numbers as words.

The text that the client, the history and the record get stays as written. No I/O.
"""

from __future__ import annotations

import html
import re
from typing import Final

from voicepipe.ports.normalization_rules import RULES_BY_LANGUAGE, NormalizationRules
from voicepipe.ports.number_normalizer import NumberNormalizer

MAX_CHARS: Final = 400
"""Characters of a line processed at once. Longer text without spaces is not a sentence, and patterns may take quadratic
time."""

PATH_PARTS: Final = 2
"""A URL is read with at most this many parts of its path. Of a longer one, or one with a query, only the host is
read."""

_FENCE = re.compile(r"```+|~~~+")
_RULE = re.compile(r"\s*([-*_=])\s*(?:\1\s*){2,}$|\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_LINE_MARK = re.compile(r"^\s*(?:#{1,6}\s+|(?:>\s?)+|[-*+\u2022\u2023\u25e6]\s+(?:\[[ xX]\]\s+)?)")
_NUMBERED = re.compile(r"^\s*(\d{1,3})[.)]\s+(?=\S)")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]]*)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\)")
_NOTE = re.compile(r"\s?\[\^?\d{1,3}\]")
_TAG = re.compile(r"</?(?:a|b|br|code|div|em|h[1-6]|i|li|ol|p|pre|s|span|strong|sub|sup|u|ul)(?:\s[^<>]*)?/?>", re.I)
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+\-.!~|>$])")
_EMPHASIS = re.compile(r"\*\*|~~|`+|(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)")
_SNAKE = re.compile(r"(?<=\w)_+(?=\w)")

_EMOTICON = re.compile(r"(?<!\S)(?:[:;=8][-^']?[()DPpOo3/|\\\]\[]|<3|\^\^|[xX]D)(?=[\s.,!?]|$)")
_EMOJI = re.compile(
    "[\U0001f000-\U0001faff\U000e0020-\U000e007f\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\ufe0e\ufe0f\u200d\u20e3]+"
)
"""Emoji with their joiners and modifiers: Unicode's blocks of pictographs, dingbats, technical symbols and tags."""

_MAIL = re.compile(r"(?:mailto:)?\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b")
_ADDRESS = re.compile(
    r"<?(?:https?://|www\.)(?P<host>[\w.-]*\w)(?::\d+)?(?P<path>/[^\s<>\"']*)?>?"
    r"|(?<![\w.@/])(?P<bare>(?:[\w-]+\.)+(?:com|org|net|io|dev|ai|app|edu|gov|info|eu|uk|de|fr|es|it|nl|pt|br))"
    r"(?P<below>/[^\s<>\"']*)?(?![\w-])",
    re.I,
)
_NUMBERS: Final = {language: NumberNormalizer(language) for language in RULES_BY_LANGUAGE}
"""Built when the server starts: the patterns of one language take 5 ms, and more on a busy machine."""

_PART = re.compile(r"[\w-]{1,24}")
_ENDS = tuple(".!?:;,\u2026\u3002\uff01\uff1f")


class ClauseNormalizer:
    """One reply's clauses, in order. It keeps the state across clauses: whether a code block is open."""

    def __init__(self, language: str | None, pronunciations: tuple[tuple[str, str], ...] = ()) -> None:
        """`language` is a BCP-47 tag. For an unknown language, numbers and symbols are left to the TTS.

        `pronunciations`: whole words or phrases as written, and their spelling for the TTS.
        """
        self._pronunciations = dict(pronunciations)
        longest_first = sorted(map(re.escape, self._pronunciations), key=len, reverse=True)
        self._pronounced = re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)") if longest_first else None
        primary = (language or "").partition("-")[0].lower()
        self._wording = RULES_BY_LANGUAGE.get(primary)
        self._numbers = _NUMBERS.get(primary)
        self._in_code = False

    def read(self, clause: str) -> str:
        """Return the spoken form of `clause`; empty when the clause has nothing to speak."""
        if self._pronounced is not None:
            clause = self._pronounced.sub(lambda found: self._pronunciations[found[0]], clause)
        text = "\n".join(filter(None, map(self._line, self._without_code(clause).splitlines())))
        spoken = " ".join(text.split())
        return spoken if any(map(str.isalnum, spoken)) else ""

    # --- helpers ------------------------------------------------------------------------------

    def _without_code(self, clause: str) -> str:
        """Drop blocks of code, which are not for speech."""
        spoken = []
        for i, part in enumerate(_FENCE.split(clause)):
            if i:
                self._in_code = not self._in_code
            if not self._in_code:
                spoken.append(part)
        return " ".join(spoken)

    def _line(self, line: str) -> str:
        if len(line) > MAX_CHARS:
            return " ".join(self._line(line[at : at + MAX_CHARS]) for at in range(0, len(line), MAX_CHARS))
        if not line.strip() or _RULE.match(line):
            return ""
        unmarked = _NUMBERED.sub(r"\1, ", _LINE_MARK.sub("", line, count=1))
        text = self._unmarked(unmarked).strip()
        is_item = unmarked != line
        return f"{text}." if is_item and text and not text.endswith(_ENDS) else text

    def _unmarked(self, line: str) -> str:
        text = _NOTE.sub("", _IMAGE_OR_LINK.sub(r"\1", line))
        text = html.unescape(_TAG.sub(" ", text))
        if line.count("|") > 1:
            text = ", ".join(cell.strip() for cell in text.split("|") if cell.strip())
        text = _EMOJI.sub(" ", _EMOTICON.sub(" ", text))
        if self._wording is not None:
            text = _addresses(text, self._wording)
        text = _SNAKE.sub(" ", _EMPHASIS.sub("", _ESCAPED.sub(r"\1", text)))
        if self._wording is not None and self._numbers is not None:
            text = self._numbers.read(_signs(text, self._wording))
        return re.sub(r"\s+([.,!?;:])(?=\s|$)", r"\1", text)


def _signs(text: str, wording: NormalizationRules) -> str:
    text = re.sub(r"~(?=[\d$€£])", f"{wording.signs['≈']} ", text)
    text = re.sub(r"[#\u2116](?=\d)", f"{wording.nth} ", text)
    for sign, name in wording.signs.items():
        if sign in text:
            text = re.sub(rf"(?<=\s){re.escape(sign)}(?=\s)", name, text)
    return text


def _addresses(text: str, wording: NormalizationRules) -> str:
    text = _MAIL.sub(lambda m: f"{_dotted(m[1], wording)} {wording.at} {_dotted(m[2], wording)}", text)
    return _ADDRESS.sub(lambda m: _address(m, wording), text)


def _address(found: re.Match[str], wording: NormalizationRules) -> str:
    host, path = found["host"] or found["bare"], found["path"] or found["below"] or ""
    ending = path[len(path.rstrip(".,!?;:)")) :]
    parts = [part for part in path.rstrip(".,!?;:)").split("/") if part]
    spoken = [_dotted(host.removeprefix("www."), wording)]
    if len(parts) <= PATH_PARTS and all(map(_PART.fullmatch, parts)):
        spoken += [f"{wording.slash} {part.replace('-', ' ').replace('_', ' ')}" for part in parts]
    return " ".join(spoken) + ending


def _dotted(name: str, wording: NormalizationRules) -> str:
    return name.replace(".", f" {wording.dot} ")
