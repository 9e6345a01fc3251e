"""Read the pages' scripts as they are served: without their comments, and compressed.

The sources are the whole documentation of the scripts, and need no build. A page on a phone needs neither that text nor
its bytes: it is half of what is sent otherwise.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VENDOR: Final = "vendor"
"""The folder with scripts of others, which are served as they are, with their licences in them."""

_COMMENT: Final = re.compile(r"^[ \t]*(?:/\*\*.*?\*/[ \t]*$|//[^\n]*)", re.DOTALL | re.MULTILINE)
"""A comment that begins a line. A type inside an expression stays: telling it from a string takes a parser."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it is served."""

    plain: bytes
    compressed: bytes
    """The same, in gzip."""

    tag: str
    """A digest of it, for its `ETag`."""


def read_script(path: Path) -> Script:
    """Return a script, read again only when its file has changed; waits for a disk.

    Raises:
        OSError: the file cannot be read.
    """
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


# Full: the oldest is dropped, and read again when it is needed. The pages have fewer.
@functools.lru_cache(maxsize=128)
def _read(path: Path, _changed_ns: int, _size: int) -> Script:
    text = path.read_text(encoding="utf-8")
    plain = (text if VENDOR in path.parts else without_comments(text)).encode()
    return Script(plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])


def without_comments(text: str) -> str:
    """Return a script without the comments that begin a line. Its lines keep their numbers, for a browser's errors."""
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
