"""What the header of a GGUF file says of its model."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from voicepipe.providers.local.engine.llama_cpp import AGAINST_LOOPS, gguf_file, smollm2
from voicepipe.providers.local.gguf_header import header_of, profile_of
from voicepipe.providers.local.llm_models import GGUF, SMOLLM2


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def named(value: str) -> bytes:
    return struct.pack("<I", 8) + text(value)


VOCABULARY = struct.pack("<IIQ", 9, 8, 1) + text("token")


def header(*pairs: tuple[str, bytes], n_pairs: int | None = None) -> bytes:
    begins = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs) if n_pairs is None else n_pairs)
    return begins + b"".join(text(key) + value for key, value in pairs)


SMALL = header(("general.basename", named("SmolLM2")), ("general.size_label", named("135M")))


@pytest.mark.parametrize(
    ("content", "profile"),
    [
        (SMALL, SMOLLM2),
        (header(("general.basename", named("SmolLM2")), ("general.size_label", named("1.7B"))), GGUF),
        (header(("general.basename", named("Qwen2.5")), ("general.size_label", named("135M"))), GGUF),
        (header(("general.basename", struct.pack("<IB", 7, 1)), ("general.size_label", named("135M"))), GGUF),
        (header(), GGUF),
        (SMALL[:-1], GGUF),  # it ends early
        (header(("general.basename", struct.pack("<IQ", 8, 1 << 60))), GGUF),
        (header(("general.basename", struct.pack("<I", 8) + struct.pack("<Q", 1) + b"\xff")), GGUF),
        (b"GGML" + SMALL[4:], GGUF),
        (b"", GGUF),
    ],
)
def test_only_the_weights_that_come_along_have_their_examples(tmp_path: Path, content: bytes, profile: object) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert profile_of(path) is profile
    assert gguf_file(path).sampling == (AGAINST_LOOPS if profile is SMOLLM2 else ())


def test_a_header_is_read_up_to_its_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(
        header(
            ("llama.context_length", struct.pack("<II", 4, 8192)),
            ("llama.rope.freq_base", struct.pack("<If", 6, 0.5)),
            ("tokenizer.ggml.tokens", VOCABULARY),
            ("general.basename", named("behind")),
        )
    )
    assert header_of(path) == {"llama.context_length": 8192, "llama.rope.freq_base": 0.5}


def test_the_file_that_comes_along_says_which_model_it_has() -> None:
    assert profile_of(smollm2().path) is SMOLLM2


def test_a_missing_file_has_no_header(tmp_path: Path) -> None:
    assert header_of(tmp_path / "none.gguf") == {}
