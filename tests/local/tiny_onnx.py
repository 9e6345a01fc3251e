"""Write ONNX files that have smart-turn's input and judge by the mean of the features: small, and without a package.

Fields by their numbers. Source: onnx.proto of ONNX (IR version 8), and Protocol Buffers, Encoding.
"""

from __future__ import annotations

import struct
from pathlib import Path

_FLOAT = 1
_IR_VERSION, _OPSET = 8, 13


def _varint(value: int) -> bytes:
    parts = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        parts.append(low | (0x80 if value else 0))
        if not value:
            return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _tensor(name: str, shape: tuple[int | str, ...]) -> bytes:
    """Return a ValueInfoProto. A dimension that has a name is free."""
    sizes = b"".join(_bytes(1, _number(1, d) if isinstance(d, int) else _bytes(2, d)) for d in shape)
    tensor_type = _number(1, _FLOAT) + _bytes(2, sizes)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor_type))


def _node(operator: str, takes: tuple[str, ...], gives: str) -> bytes:
    return b"".join(_bytes(1, name) for name in takes) + _bytes(2, gives) + _bytes(4, operator)


def write_model(
    path: Path,
    *,
    name: str = "input_features",
    shape: tuple[int | str, ...] = ("n", 80, 800),
    bias: float = 0.0,
) -> Path:
    """Write a model: the sigmoid of the mean of its input and `bias`."""
    graph = (
        _bytes(1, _node("ReduceMean", (name,), "mean"))
        + _bytes(1, _node("Add", ("mean", "bias"), "sum"))
        + _bytes(1, _node("Sigmoid", ("sum",), "logits"))
        + _bytes(2, "tiny")
        + _bytes(5, _number(2, _FLOAT) + _bytes(8, "bias") + _bytes(9, struct.pack("<f", bias)))
        + _bytes(11, _tensor(name, shape))
        + _bytes(12, _tensor("logits", (1, 1, 1)))
    )
    path.write_bytes(_number(1, _IR_VERSION) + _bytes(7, graph) + _bytes(8, _number(2, _OPSET)))
    return path
