"""The variables of an agent's instructions: `{{name}}` in the text, and the values that a client gives them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.protocol.json_fields import MAX_ID_CHARS, one_of, record, required, text

MAX_VALUE_CHARS: Final = 8_192
"""A variable is a name, a date, a customer's record; not a document."""

_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


class Prompt(Struct, frozen=True):
    """The `prompt` of a session: the values that the client gives to the variables."""

    id: str
    """As the client wrote it; it selects nothing."""

    variables: tuple[tuple[str, str], ...] = ()


def filled(template: str, variables: Mapping[str, str]) -> str:
    """Return the text with the values in place of the names. A value is never read for names."""
    return _PLACEHOLDER.sub(lambda found: variables.get(found[1], found[0]), template)


def placeholders(template: str) -> list[str]:
    """Return the names in a text, in order."""
    return _PLACEHOLDER.findall(template)


def check_placeholders(template: str, variables: Collection[str], field: str) -> None:
    """Check that the text names only variables that exist.

    Raises:
        ConfigError: it names another one; the text lists those that exist.
    """
    for name in placeholders(template):
        if name not in variables:
            raise ConfigError(f"{field}: expected {{{{name}}}} of a variable ({listed(variables)}), got {name!r}")


def listed(names: Collection[str]) -> str:
    """Return the names for an error text."""
    return ", ".join(sorted(names)) or "there are none"


def read_prompt(value: object, path: str) -> Prompt:
    """Read a `prompt` object.

    Raises:
        ProtocolError: it has no id, or a variable's value is no text.
    """
    given = record(value, path)
    prompt_id = text(required(given, "id", path, "a string"), f"{path}.id", max_chars=MAX_ID_CHARS)
    variables = given.get("variables")
    named = {} if variables is None else record(variables, f"{path}.variables")
    return Prompt(
        prompt_id, tuple((name, _read_value(each, f"{path}.variables.{name[:64]}")) for name, each in named.items())
    )


def _read_value(value: object, path: str) -> str:
    if isinstance(value, dict):
        one_of(value.get("type"), f"{path}.type", ("input_text",))
        value = required(value, "text", path, "a string")
    return text(value, path, max_chars=MAX_VALUE_CHARS)


def merged_variables(before: tuple[tuple[str, str], ...], prompt: Prompt) -> tuple[tuple[str, str], ...]:
    """Return an agent's variables with the client's values.

    Raises:
        ProtocolError: the agent has no variable of a name; the text lists those that it has.
    """
    known = dict(before)
    for name, value in prompt.variables:
        if name not in known:
            where = f"session.prompt.variables.{name[:64]}"
            why = f"{where}: expected a variable of this agent ({listed(known)}), got another name"
            raise ProtocolError(why, field=where, code="unknown_variable")
        known[name] = value
    return tuple(known.items())
