"""Weights out of an ONNX file, and nothing out of other files."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from voicepipe.audio.onnx_weights import float_weights


def tensor(shape: tuple[int, ...], kind: int, name: str, raw: bytes) -> bytes:
    """An initializer inside a graph inside a model."""
    fields = b"".join(bytes((8, n)) for n in shape) + bytes((16, kind))
    fields += bytes((8 << 3 | 2, len(name))) + name.encode() + bytes((9 << 3 | 2, len(raw))) + raw
    fields += bytes((12 << 3 | 2, 3)) + b"doc"
    graph = bytes((5 << 3 | 2, len(fields))) + fields
    return bytes((7 << 3 | 2, len(graph))) + graph


def test_weights_come_with_their_names_and_shapes() -> None:
    """Fields of other kinds, and other numbers of bits, are passed over; what is not float32 is left out."""
    values = np.arange(6, dtype="<f4")
    version = bytes((8, 10))  # ir_version, a whole number
    unknown = bytes((15 << 3 | 5, 1, 2, 3, 4)) + bytes((14 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8))
    integers = tensor((2,), 7, "n", np.arange(2, dtype="<i8").tobytes())
    found = float_weights(version + unknown + integers + tensor((2, 3), 1, "w", values.tobytes()))
    assert list(found) == ["w"]
    assert found["w"].tolist() == values.reshape(2, 3).tolist()


def test_the_judge_has_its_weights() -> None:
    """1.2 of the 1.3 MB of its file."""
    found = float_weights(files("voicepipe.audio").joinpath("silero_vad.onnx").read_bytes())
    assert sum(weights.nbytes for weights in found.values()) > 1_200_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "got none"),
        (tensor((1,), 7, "n", bytes(8)), "got none"),
        (tensor((2,), 1, "w", bytes(8))[:-1], "expected 24 bytes at 2, got 23"),
        (b"\x3b", "wire type 3 at byte 1"),
        (b"\xff\xff", "the end of the message"),
    ],
)
def test_what_is_no_model_is_refused(data: bytes, why: str) -> None:
    """Empty, without floats, cut off, of an unknown wire type, a number without an end."""
    with pytest.raises(ValueError, match=why):
        float_weights(data)
