"""Convert 1 value of a file or of the environment to the type of its option, or raise an error."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from voicepipe.errors import ConfigError
from voicepipe.stages.endpointing import strategy_names


@dataclass(frozen=True, slots=True)
class Found:
    """A value as written, and its source."""

    value: object
    source: str
    """For error texts: a file's path, `$NAME`, or the command's option."""

    text: bool = False
    """True: the value had no type where it was written (an environment variable, the command line) and is parsed as its
    option's type."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both allowed."""

    low: int
    high: int

    def expected(self, what: str) -> str:
        return f"{what} from {self.low} to {self.high}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A host with `http://` or `https://`, `ws://` or `wss://` for a WebSocket, or `tcp://` for other protocols."""

    def expected(self, what: str) -> str:
        return f"{what} that begins with http(s)://, ws(s):// or tcp://"

    def accepts(self, value: object) -> bool:
        return value == "" or (isinstance(value, str) and re.match(r"(https?|wss?|tcp)://[^/\s]+", value) is not None)


@dataclass(frozen=True, slots=True)
class LanguageTag:
    """A language tag's shape (BCP 47, RFC 5646): letters, then subtags of letters and digits."""

    def expected(self, what: str) -> str:
        return f'a language tag such as "en" or "pt-BR" ({what})'

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", value) is not None


@dataclass(frozen=True, slots=True)
class OneOrMore:
    """A text, or a list of texts. A list becomes one text with commas: the form used where lists are not possible."""

    def expected(self, what: str) -> str:
        return f"{what}, or a list of texts"

    def accepts(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class Secret:
    """Never shown, not even in its own error text."""

    def expected(self, what: str) -> str:
        return what

    def accepts(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class MayBeEmpty:
    """A text whose empty value differs in meaning from an unset one, in every source."""

    def expected(self, what: str) -> str:
        return what

    def accepts(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class StrategyName:
    """A built-in end-of-turn strategy, or one of an installed package."""

    def expected(self, what: str) -> str:
        return f'"adaptive", "silence" or the name of an installed strategy ({what})'

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and value in strategy_names()


Rule = Between | WebAddress | LanguageTag | OneOrMore | Secret | MayBeEmpty | StrategyName

PLAIN: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})


def convert(found: Found, hint: Any, key: str) -> object:
    """Return `found` as `hint` requires: a plain type, a union with None, a Literal, a tuple of texts, or Annotated.

    Raises:
        ConfigError: naming the key, the expected type, the actual value and its source.
    """
    plain, rule = _taken_apart(hint)
    if found.text and found.value == "" and may_be_unset(hint) and not isinstance(rule, MayBeEmpty):
        return None
    value = _from_text(found.value, plain) if found.text and isinstance(found.value, str) else found.value
    if isinstance(value, int) and not isinstance(value, bool) and plain is float:
        value = float(value)
    if isinstance(rule, OneOrMore) and isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    if not _fits(value, plain) or (rule is not None and not rule.accepts(value)):
        came = "something else" if isinstance(rule, Secret) else shown(found.value)
        raise ConfigError(f"{key}: expected {expected(hint)}, got {came} ({found.source})")
    return tuple(value) if isinstance(value, list) else value


def expected(hint: Any) -> str:
    """Describe what a hint accepts."""
    plain, rule = _taken_apart(hint)
    if get_origin(plain) is Literal:
        return " or ".join(json.dumps(choice) for choice in get_args(plain))
    what = PLAIN.get(plain, "a list of texts")
    return rule.expected(what) if rule is not None else what


def shown(value: object) -> str:
    """Format a value as in the file, cut when long."""
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_secret(hint: Any) -> bool:
    """Return whether the option's value must never be shown."""
    return isinstance(_taken_apart(hint)[1], Secret)


def may_be_unset(hint: Any) -> bool:
    """Return whether the option may be unset, which an empty text means in sources without types."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return NoneType in get_args(plain)


def _taken_apart(hint: Any) -> tuple[Any, Rule | None]:
    """Split a hint into its plain type (without None) and the rule that narrows it."""
    rule: Rule | None = None
    if get_origin(hint) is Annotated:
        hint, rule = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        hint = next(arm for arm in get_args(hint) if arm is not NoneType)
    return hint, rule


def _from_text(text: str, plain: Any) -> object:
    """Parse an untyped text as `plain`; return the text unchanged when it does not look like that type."""
    if plain is bool:
        return True if text.lower() in TRUE else False if text.lower() in FALSE else text
    if plain in (int, float):
        try:
            return int(text) if plain is int else float(text)
        except ValueError:
            return text
    if get_origin(plain) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _fits(value: object, plain: Any) -> bool:
    if get_origin(plain) is Literal:
        return value in get_args(plain)
    if get_origin(plain) is tuple:
        return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    return type(value) is plain
