"""Forms, read as they come: the same in any pieces, bounded in number and size, and cheap whatever is in them."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe import clock
from voicepipe.errors import ProtocolError
from voicepipe.server import form_reader
from voicepipe.server.form_reader import FIELD_BYTES, MAX_PARTS, FileTooLarge, Form, FormReader

TYPE = "multipart/form-data; boundary=b"
CHUNK = 1 << 16
BUSY_S = 0.25
"""Of CPU for one chunk, far above what is needed: it is about seconds."""


def part(name: str, content: bytes = b"x", more: str = "") -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


def read(body: bytes, n_bytes: int = CHUNK) -> Form:
    reader = FormReader(TYPE)
    for begin in range(0, len(body), n_bytes):
        reader.push(body[begin : begin + n_bytes])
    return reader.finish()


BODY = (
    part("model", b"default")
    + part("include[]", b"a")
    + part("include[]", "\u00fc".encode())
    + part("file", b"\r\n--\r\n--a\r\n\r\n-\x00\xff", '; filename="a; name=b.wav"')
    + part("prompt", b"")
    + b"--b--\r\nwhatever"
)


@given(st.lists(st.integers(0, len(BODY)), max_size=20))
def test_the_pieces_in_which_it_comes_make_no_difference(cuts: list[int]) -> None:
    reader, edges = FormReader(TYPE), [0, *sorted(cuts), len(BODY)]
    for begin, end in pairwise(edges):
        reader.push(BODY[begin:end])
    form = reader.finish()
    assert form.file == bytearray(b"\r\n--\r\n--a\r\n\r\n-\x00\xff")
    assert form.fields == {"model": ["default"], "include": ["a", "\u00fc"], "prompt": [""]}


@given(st.binary(max_size=200), st.integers(1, 50))
def test_noise_is_refused_and_nothing_else(noise: bytes, n_bytes: int) -> None:
    for body in (noise, BODY[:300] + noise, BODY.replace(b"name", noise[:4])):
        with suppress(ProtocolError):
            read(body, n_bytes)


async def test_what_a_client_writes_is_read() -> None:
    """aiohttp's, with a name and a type for each field."""
    data = aiohttp.FormData({"model": "default"})
    data.add_field("file", b"RIFF" * 100, filename="a \u00fc.wav", content_type="audio/wav")
    payload: Any = data()
    body = await payload.as_bytes()
    reader = FormReader(payload.headers["Content-Type"])
    reader.push(body)
    assert reader.finish() == Form(bytearray(b"RIFF" * 100), {"model": ["default"]})


@pytest.mark.parametrize("type_", ["multipart/form-data", "multipart/form-data; boundary=", f"x; boundary={71 * 'b'}"])
def test_a_boundary_is_needed(type_: str) -> None:
    with pytest.raises(ProtocolError, match="boundary"):
        FormReader(type_)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (part("a") * (MAX_PARTS + 1), f"at most {MAX_PARTS} parts"),
        (part("a", b"") * 20_000, f"at most {MAX_PARTS} parts"),
        (part("a", b"x" * FIELD_BYTES), "at most 65536 bytes"),
        (part("a" * 3_000) * 30, "at most 65536 bytes"),
        (part("file") * 2, "expected one file"),
        (part("a", b"\xff") + b"--b--", "UTF-8"),
        (b"\r\n" * 1_000, "begin with its boundary"),
        (b"--b\r\n" + b"X-A: b\r\n" * 5_000, "bytes of headers"),
        (b"--b" + b" " * 5_000, "alone in its line"),
        (b"--bc\r\n", "alone in its line"),
        (b"--b\r\n\r\nx", "no name"),
        (b"--b\r\nContent-Disposition: attachment; name=a\r\n\r\nx", "no name"),
        (part("file"), "breaks off"),
    ],
)
def test_what_is_wrong_or_too_much_is_said(body: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read(body + b"--b")


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_reader, "FILE_BYTES", 1_000)
    assert read(part("file", b"x" * 1_000) + b"--b--").file == bytearray(b"x" * 1_000)
    with pytest.raises(FileTooLarge):
        read(part("file", b"x" * 1_001) + b"--b--")


QUOTES = b"--b\r\nContent-Disposition: form-data;" + b' a="\\";' * 500 + b" name=a\r\n\r\nx\r\n"

COSTLY = {
    "tiny fields": part("a", b"") * 70_000,
    "line ends before the first part": b"\r\n" * 2_000_000,
    "line ends in a file": part("file", b"\r\n" * 2_000_000),
    "almost boundaries": part("file", b"\r\n--a" * 800_000),
    "line ends after the last part": part("file") + b"--b--" + b"\r\n" * 2_000_000,
    "headers": b"--b\r\n" + b"X-A: b\r\n" * 400_000,
    "quotes": QUOTES * 1_000,
    "base64 that is none": part("file", b"!" * 4_000_000).replace(b"form-data", b"form-data; x=base64"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_no_piece_keeps_the_processor_busy(name: str) -> None:
    """4 MB of each; a library needed 10 s for the first."""
    reader, body = FormReader(TYPE), COSTLY[name]
    for begin in range(0, len(body), CHUNK):
        used = clock.CpuTime()
        try:
            reader.push(body[begin : begin + CHUNK])
        except ProtocolError:
            return
        finally:
            assert used.lap_us() / 1e6 < BUSY_S
