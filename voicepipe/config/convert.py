"""Convert one value of a file, the environment or the command line to the type of its option, or raise an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from voicepipe.errors import ConfigError
from voicepipe.ports.endpointing import strategy_names
from voicepipe.turn.endpointing.built_in import BUILT_IN


@dataclass(frozen=True, slots=True)
class Found:
    """A value as written, and its source."""

    value: object
    source: str
    """The source, for error texts: a file's path, `$NAME`, or the command's option."""

    text: bool = False
    """True: the value had no type where it was written (an environment variable, the command line) and is parsed as its
    option's type."""


def between(low: float, high: float) -> Meta:
    """Return the rule of a number from `low` to `high`, both allowed."""
    return Meta(ge=low, le=high)


WEB_ADDRESS: Final = Meta(
    pattern=r"^$|^(https?|wss?|tcp)://[^/\s]+", description="text that begins with http(s)://, ws(s):// or tcp://"
)
"""A host with `http://` or `https://`, `ws://` or `wss://` for a WebSocket, or `tcp://` for other protocols."""

LANGUAGE_TAG: Final = Meta(
    pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*\Z", description='a language tag such as "en" or "pt-BR" (text)'
)
"""A language tag's shape (BCP 47, RFC 5646): letters, then subtags of letters and digits."""

ONE_OR_MORE: Final = Meta(description="text, or a list of texts", extra={"list": True})
"""A list of texts. A text is read as a list too, separated by commas: the form used where lists are not possible."""

SECRET: Final = Meta(extra={"secret": True})
"""A secret: never shown, not even in its own error text."""

METADATA_OPTIONS: Final = Meta(
    description='a list of "language", "speed" and "voice"', extra={"each_of": ("language", "speed", "voice")}
)
"""The options that a token's metadata may set."""

TABLE: Final = Meta(description="a table of names and texts", extra={"table": True})
"""A table whose names are free. Numbers and booleans in it become text."""

SECRET_TABLE: Final = Meta(description="a table", extra={"table": True, "secret": True})
"""The same, where a value may be a secret under an unknown name."""

SECTIONS: Final = Meta(description="tables of options", extra={"sections": True})
"""A table whose names are free, each with a table of options: pairs of a name and a dataclass."""

MAY_BE_EMPTY: Final = Meta(extra={"empty": True})
"""A text whose empty value differs in meaning from an unset one, in every source."""

STRATEGY_NAME: Final = Meta(
    description=", ".join(f'"{name}"' for name in BUILT_IN) + " or the name of an installed strategy (text)",
    extra={"one_of": strategy_names},
)
"""A built-in end-of-turn strategy, or one of an installed package."""


def check_language_tag(tag: str, key: str) -> None:
    """Raises ConfigError: the text is no language tag; `key` is the table that has it as a name."""
    if not re.match(LANGUAGE_TAG.pattern or "", tag):
        raise ConfigError(f"{key}.{tag}: expected {LANGUAGE_TAG.description}, got {displayed(tag)}")


PLAIN: Final[dict[object, str]] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Texts for a boolean beside `true`, `false`, `1` and `0`."""


def convert(found: Found, hint: Any, key: str) -> object:
    """Return `found` as `hint` requires: a plain type, a union with None, a Literal, a tuple of texts, or Annotated.

    Raises:
        ConfigError: naming the key, the expected type, the actual value and its source.
    """
    plain, rule = _taken_apart(hint)
    if found.text and found.value == "" and may_be_unset(hint) and not _has_extra(rule, "empty"):
        return None
    value = _parts(found.value, plain) if found.text and isinstance(found.value, str) else found.value
    if _has_extra(rule, "list") and isinstance(value, str):
        value = _parts(value, plain)
    try:
        converted = msgspec.convert(value, Annotated[plain, rule] if rule is not None else plain, strict=not found.text)
    except msgspec.ValidationError:
        converted = None
    if converted is None or not _acceptable(converted, rule):
        came = "something else" if _has_extra(rule, "secret") else displayed(found.value)
        raise ConfigError(f"{key}: expected {expected(hint)}, got {came} ({found.source})")
    return converted


def expected(hint: Any) -> str:
    """Describe the values that a type hint accepts."""
    plain, rule = _taken_apart(hint)
    if get_origin(plain) is Literal:
        return " or ".join(json.dumps(choice) for choice in get_args(plain))
    what = PLAIN.get(plain, "a list of texts")
    if rule is None:
        return what
    return rule.description or (what if rule.ge is None else f"{what} from {rule.ge} to {rule.le}")


def displayed(value: object) -> str:
    """Format a value as in the file, cut when long."""
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def displayed_option(value: object, hint: Any) -> str:
    """Format an option's value as in the file; a list of one text is written as the text, where both are allowed."""
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 and _has_extra(_taken_apart(hint)[1], "list") else list(value)
    return "unset" if value is None else displayed(value)


def is_secret(hint: Any) -> bool:
    """Return whether the option's value must never be shown."""
    return _has_extra(_taken_apart(hint)[1], "secret")


def is_table(hint: Any) -> bool:
    """Return whether the option is a table with free names."""
    return _has_extra(_taken_apart(hint)[1], "table")


def section_kind(hint: Any) -> type | None:
    """Return the dataclass of an option's tables with free names; None: it has no such tables."""
    plain, rule = _taken_apart(hint)
    return get_args(get_args(plain)[0])[1] if _has_extra(rule, "sections") else None


def may_be_unset(hint: Any) -> bool:
    """Return whether the option may be unset, which an empty text means in sources without types."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return NoneType in get_args(plain)


def _taken_apart(hint: Any) -> tuple[Any, Meta | None]:
    """Split a hint into its plain type (without None) and the rule that narrows it."""
    rule: Meta | None = None
    if get_origin(hint) is Annotated:
        hint, rule = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        hint = next(arm for arm in get_args(hint) if arm is not NoneType)
    return hint, rule


def _acceptable(value: object, rule: Meta | None) -> bool:
    """Return whether a converted value also passes what msgspec can't check: NaN, and names that exist at run time
    only."""
    if isinstance(value, float) and math.isnan(value):
        return False
    one_of: Callable[[], Collection[object]] | None = rule.extra.get("one_of") if rule and rule.extra else None
    each_of = rule.extra.get("each_of") if rule and rule.extra else None
    if each_of is not None and not (isinstance(value, tuple) and set(value) <= set(each_of)):
        return False
    return one_of is None or value in one_of()


def _has_extra(rule: Meta | None, key: str) -> bool:
    return rule is not None and rule.extra is not None and key in rule.extra


def _parts(text: str, plain: Any) -> object:
    """Return an untyped text as msgspec expects it: a list for a tuple, `true` and `false` for a boolean."""
    if plain is bool:
        return BOOLEANS.get(text.lower(), text)
    if get_origin(plain) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text.strip() if plain in (int, float) else text
