"""Read the pages' scripts as they are served: without their comments, compressed, and some with all that they import.

The sources need no build, and hold their own documentation. A page on a phone needs neither that text nor its bytes:
it is half of what is sent otherwise. And a script that pages of other servers load comes as one file: its modules would
take a request each, one after the other for as many levels as they import each other.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

ENTRIES: Final = ("voicepipe-call.js", "voicepipe.js")
"""Scripts that are served with all that they import."""

VENDOR: Final = "vendor"
"""The folder with scripts of others, which are served as they are, with their licences in them."""

_COMMENT: Final = re.compile(r"^[ \t]*(?:/\*\*.*?\*/[ \t]*$|//[^\n]*)", re.DOTALL | re.MULTILINE)
"""A comment that begins a line. A type inside an expression stays: only a parser distinguishes it from a string."""

_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const)\*? (\w+))", re.MULTILINE)
_EXPORTS: Final = re.compile(r"^export \{([^}]*)\};$", re.MULTILINE)
_ELSE: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class ServedScript(Struct, frozen=True):
    """A script as it is served."""

    plain: bytes
    compressed: bytes
    """The same, in gzip."""

    tag: str
    """A digest of it, for its `ETag`."""


def read_script(path: Path) -> ServedScript:
    """Return a script, read again only when a file of its folder has changed; waits for a disk.

    Raises:
        OSError: the file cannot be read.
    """
    files = sorted(path.parent.glob("*.js")) if path.name in ENTRIES else [path]
    states = [(each, each.stat()) for each in files]
    return _read(path, tuple((each.name, state.st_mtime_ns, state.st_size) for each, state in states))


# Full: the oldest is dropped, and read again when it is needed. The pages have fewer.
@functools.lru_cache(maxsize=128)
def _read(path: Path, _states: tuple[tuple[str, int, int], ...]) -> ServedScript:
    if path.name in ENTRIES:
        text = bundle(path)
    else:
        text = path.read_text(encoding="utf-8")
        text = text if VENDOR in path.parts else without_comments(text)
    plain = text.encode()
    return ServedScript(plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])


def without_comments(text: str) -> str:
    """Return a script without the comments that begin a line. Its lines keep their numbers, for a browser's errors."""
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)


def bundle(path: Path) -> str:
    """Return a module and all that it imports as one module, with the same exports, without indentation.

    Each imported module becomes a function that returns its exports, so its other names stay its own. `import.meta` is
    that of the whole, in the same folder. The indentation of strings over several lines, HTML and CSS, goes too.

    Raises:
        ValueError: a module is imported or exported in another form than by its name, or imports itself in the end.
        OSError: a module cannot be read.
    """
    modules: dict[str, str] = {}
    entry = _with_imports(path, modules, (path.name,))
    return "".join(modules.values()) + entry


def _with_imports(path: Path, modules: dict[str, str], within: tuple[str, ...]) -> str:
    """Return a module's text with constants in place of its imports; add those that it imports to `modules`."""
    text = without_comments(path.read_text(encoding="utf-8"))
    for _, name in _IMPORT.findall(text):
        if name in within:
            raise ValueError(f"{path.name}: expected no circle of imports, got {' -> '.join((*within, name))}")
        if name not in modules:
            modules[name] = _as_function(name, _with_imports(path.with_name(name), modules, (*within, name)))
    text = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = {_constant(found[2])};", text)
    wrong = next((line for line in _ELSE.findall(text) if not (_EXPORT.match(line) or _EXPORTS.match(line))), None)
    if wrong is not None:
        raise ValueError(f"{path.name}: expected imports and exports by name, got {wrong!r}")
    return re.sub(r"\n\s+", "\n", text)


def _as_function(name: str, text: str) -> str:
    names = ", ".join(_exported(text))
    body = _EXPORTS.sub("", _EXPORT.sub("", text))
    return f"const {_constant(name)} = (() => {{\n{body}return {{ {names} }};\n}})();\n"


def _exported(text: str) -> Iterator[str]:
    yield from _EXPORT.findall(text)
    for names in _EXPORTS.findall(text):
        yield from (name.strip() for name in names.split(",") if name.strip())


def _constant(name: str) -> str:
    """Return the name of the constant that holds a module's exports."""
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
