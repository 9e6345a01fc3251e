"""Parse a provider's table of options into the fields of its adapter's dataclass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from voicepipe.errors import ConfigError
from voicepipe.registry import ProviderSettings, Spec, Stage

STAGES = frozenset({"stt", "llm", "tts"})

Read = Callable[[str], Any]
"""Parse a text as the option's value.

Raises: ValueError: its text names the expected value.
"""


def read(
    kind: str,
    readers: Mapping[str, Read],
    spec: Spec,
    settings: ProviderSettings,
    *,
    stage: Stage | None = None,
    others: Collection[str] = (),
) -> dict[str, Any]:
    """Return the options of `settings`, each parsed by its reader.

    With a `stage`, options with another stage's prefix, such as `stt_`, are skipped: one section may serve several
    stages. So are `others`, which other models of the vendor accept.

    Raises:
        ConfigError: an option is unknown or has a wrong value.
    """
    chosen: dict[str, Any] = {}
    for name, text in settings.options:
        key = f"providers.{spec.provider}.{name}"
        if name not in readers and (
            name in others or (stage is not None and name.partition("_")[0] in STAGES - {stage})
        ):
            continue
        if name not in readers:
            raise ConfigError(f"{key}: unknown for kind {kind}; expected one of {', '.join(sorted(readers))}")
        try:
            chosen[name] = readers[name](text)
        except ValueError as expected:
            raise ConfigError(f"{key}: expected {expected}, got {text!r}") from None
    return chosen


def flag(text: str) -> bool:
    """Parse `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def whole(low: int, high: int, what: str) -> Read:
    """Parse a whole number from `low` to `high`; `what` names it in the error."""

    def read_whole(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"{what} from {low} to {high}")
        return int(text)

    return read_whole


def number(low: float, high: float) -> Read:
    """Parse a number from `low` to `high`."""

    def read_number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = high + 1
        if not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return value

    return read_number


def one_of(*choices: str) -> Read:
    """Parse one of a set of words."""

    def read_choice(text: str) -> str:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return text

    return read_choice


def words(text: str) -> frozenset[str]:
    """Parse words separated by spaces."""
    return frozenset(text.split())


def json_object(of: type = msgspec.Raw) -> Read:
    """Check a JSON object whose members are of the type `of`; return its text."""

    def read_object(text: str) -> str:
        try:
            members(text, of)
        except msgspec.DecodeError as error:
            raise ValueError(f"a JSON object ({error})") from None
        return text

    return read_object


def query(pairs: Sequence[tuple[str, str]], extra: str) -> list[tuple[str, str]]:
    """Return the pairs of a query, overridden by those of a JSON object of texts."""
    more = members(extra, str)
    return [*(pair for pair in pairs if pair[0] not in more), *more.items()]


def members(text: str, of: type = msgspec.Raw) -> dict[str, Any]:
    """Return the members of a JSON object, each as `of`; with `msgspec.Raw` each stays JSON. None for an empty text."""
    return msgspec.json.decode(text, type=dict[str, of]) if text else {}  # type: ignore[valid-type]
