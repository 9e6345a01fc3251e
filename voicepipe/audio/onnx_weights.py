"""Read the weights of an ONNX file by name, without a runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]

# Field numbers of ModelProto, GraphProto and TensorProto. Source: onnx.proto of ONNX (IR version 10).
_GRAPH: Final = 7
_INITIALIZER: Final = 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9
_FLOAT: Final = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types. Source: Protocol Buffers, Encoding."""


def float_weights(model: bytes) -> dict[str, Weights]:
    """Return the float32 initializers of the ONNX file `model` that are stored as raw bytes, read-only.

    Raises:
        ValueError: `model` is not an ONNX file.
    """
    weights: dict[str, Weights] = {}
    for number, graph in _fields(memoryview(model)):
        if number == _GRAPH and isinstance(graph, memoryview):
            for inner, tensor in _fields(graph):
                if inner == _INITIALIZER and isinstance(tensor, memoryview):
                    weights.update(_float_tensor(tensor))
    if not weights:
        raise ValueError("expected an ONNX file with float32 weights, got none")
    return weights


def _float_tensor(tensor: memoryview) -> Iterator[tuple[str, Weights]]:
    """Yield the tensor with its name, if it holds floats."""
    shape: list[int] = []
    name, raw, kind = "", memoryview(b""), 0
    for number, value in _fields(tensor):
        if number == _DIMS and isinstance(value, int):
            shape.append(value)
        elif number == _DATA_TYPE and isinstance(value, int):
            kind = value
        elif number == _NAME and isinstance(value, memoryview):
            name = str(value, "utf-8")
        elif number == _RAW_DATA and isinstance(value, memoryview):
            raw = value
    if kind == _FLOAT and len(raw):
        yield name, np.frombuffer(raw, dtype="<f4").reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field of a Protocol Buffers message. Fixed-width fields come as their bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            n_bytes, at = _varint(message, at)
        elif wire in (_FIXED64, _FIXED32):
            n_bytes = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"expected a Protocol Buffers message, got wire type {wire} at byte {at}")
        if at + n_bytes > len(message):
            raise ValueError(f"expected {n_bytes} bytes at {at}, got {len(message) - at}")
        yield key >> 3, message[at : at + n_bytes]
        at += n_bytes


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, 7 bits per byte, and the position after it."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("expected a whole number, got the end of the message")
