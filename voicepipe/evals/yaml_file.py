"""Read YAML to plain values as YAML 1.2 has them, and remember the line of each for error texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from voicepipe.errors import ConfigError

Place = tuple[str | int, ...]
"""Where a value stands: keys of tables and indices of lists, from the top."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""Plain scalars of YAML 1.2's core schema (section 10.3.2). YAML 1.1, which the library reads by default, makes a
boolean of `no` and a number of `12:30`: both are what users say."""


@dataclass(slots=True)
class YamlFile:
    """A file's values, and where each stands."""

    path: Path
    values: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)
    """Place -> its line, from 1."""

    def wrong(self, place: Place, why: str) -> ConfigError:
        """Return the error for a value: file, line, the field's name and `why`."""
        known = next(place[:n] for n in range(len(place), -1, -1) if place[:n] in self.lines)
        name = f"{dotted(place)}: " if place else ""
        return ConfigError(f"{self.path}:{self.lines[known]}: {name}{why}")


def dotted(place: Place) -> str:
    """Return a place as text: `steps[0].expect.contains`."""
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in place).lstrip(".")


def read_yaml(path: Path) -> YamlFile:
    """Read a file that holds one table.

    Raises:
        ConfigError: the file can't be read, is not YAML, has a key twice or holds no table; the text names the line.
    """
    try:
        top = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"{path}: expected a YAML file, got {getattr(why, 'strerror', None) or why}") from None
    except yaml.YAMLError as why:
        mark = getattr(why, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(
            f"{path}{line}: expected YAML, got an error: {getattr(why, 'problem', None) or why}"
        ) from None
    found = YamlFile(path, {}, {(): 1})
    if not isinstance(top, yaml.MappingNode):
        raise found.wrong((), "expected a table with steps, got " + ("nothing" if top is None else "another value"))
    found.values = _Reader(found).table(top, ())
    return found


class _Reader:
    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._open: set[int] = set()
        """The nodes around the current one: an alias may name none of them."""

    def table(self, node: Any, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._file.wrong(place, "expected a text as each key, got a list or a table")
            inner = (*place, key_node.value)
            self._file.lines[inner] = key_node.start_mark.line + 1
            if key_node.value in values:
                raise self._file.wrong(inner, "expected each key once, got it twice")
            values[key_node.value] = self._value(value_node, inner)
        return values

    def _value(self, node: Any, place: Place) -> Any:
        self._file.lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in self._open:
            raise self._file.wrong(place, "expected a value, got an alias of a value around it")
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self.table(node, place)
                case yaml.SequenceNode():
                    return [self._value(each, (*place, n)) for n, each in enumerate(node.value)]
                case _:
                    return _scalar(node)
        finally:
            self._open.discard(id(node))


def _scalar(node: Any) -> object:
    text: str = node.value
    if node.style is not None:  # quoted, or a block: a text whatever it looks like
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
