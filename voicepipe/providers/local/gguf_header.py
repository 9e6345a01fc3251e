"""The header of a GGUF file: its key-value pairs up to the first list, in which the model's name stands."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from voicepipe.providers.local.llm_models import GGUF, SMOLLM2, LlmProfile

MAGIC: Final = b"GGUF"
"""The first bytes of every GGUF file."""

_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Type number -> the `struct` format of its value."""

_STRING: Final = 8
_MAX_BYTES: Final = 1 << 16
"""A longer string in front of the vocabulary is not one of the names."""


def profile_of(path: Path) -> LlmProfile:
    """Return the limits and examples of a model file: those of the model that comes along for its own weights.

    Without its examples, and without the sampler against loops, SmolLM2-135M answers a plain question with 200 tokens
    of French.
    """
    header = header_of(path)
    named = header.get("general.basename"), header.get("general.size_label")
    return SMOLLM2 if tuple(map(str.lower, map(str, named))) == ("smollm2", "135m") else GGUF


def header_of(path: Path) -> dict[str, object]:
    """Return the key-value pairs that stand in front of the first list, which is the vocabulary in most files; none of
    a file that is missing, damaged or of another format."""
    try:
        with path.open("rb") as file:
            return dict(_pairs(file))
    except (OSError, EOFError, ValueError):
        return {}


def _pairs(file: BinaryIO) -> Iterator[tuple[str, object]]:
    magic, _version, _n_tensors, n_pairs = struct.unpack("<4sIQQ", _exactly(file, 24))
    if magic != MAGIC:
        return
    for _ in range(n_pairs):
        key = _string(file)
        (kind,) = struct.unpack("<I", _exactly(file, 4))
        if kind == _STRING:
            yield key, _string(file)
        elif form := _SCALARS.get(kind):
            yield key, struct.unpack(form, _exactly(file, struct.calcsize(form)))[0]
        else:
            return


def _string(file: BinaryIO) -> str:
    (n_bytes,) = struct.unpack("<Q", _exactly(file, 8))
    if n_bytes > _MAX_BYTES:
        raise ValueError(n_bytes)
    return _exactly(file, n_bytes).decode()


def _exactly(file: BinaryIO, n_bytes: int) -> bytes:
    read = file.read(n_bytes)
    if len(read) < n_bytes:
        raise EOFError
    return read
