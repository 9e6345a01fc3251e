"""G.711 against the published tables and against libsndfile, an implementation that isn't ours."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import soundfile

from voicepipe.audio import g711
from voicepipe.audio.samples import Samples

EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = np.arange(-32_768, 32_768, dtype=np.int32).astype(np.int16)


@pytest.mark.parametrize(("subtype", "decode"), [("ULAW", g711.decode_mulaw), ("ALAW", g711.decode_alaw)])
def test_decoding_is_what_libsndfile_does(subtype: str, decode: Callable[[bytes], Samples]) -> None:
    """All 256 codes."""
    theirs, _ = soundfile.read(
        io.BytesIO(EVERY_CODE), format="RAW", subtype=subtype, samplerate=8_000, channels=1, dtype="int16"
    )
    assert decode(EVERY_CODE).tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("encode", "table"),
    [(g711.encode_mulaw, g711.MULAW_TO_LINEAR), (g711.encode_alaw, g711.ALAW_TO_LINEAR)],
)
def test_encoding_picks_the_nearest_value(encode: Callable[[Samples], bytes], table: Samples) -> None:
    """For every int16 no code of the table would have come nearer."""
    chosen = table[np.frombuffer(encode(EVERY_SAMPLE), dtype=np.uint8)].astype(np.int32)
    values = np.unique(table).astype(np.int32)
    wide = EVERY_SAMPLE.astype(np.int32)
    above = np.clip(np.searchsorted(values, wide), 1, len(values) - 1)
    nearest = np.minimum(np.abs(values[above - 1] - wide), np.abs(values[above] - wide))
    assert (np.abs(chosen - wide) == nearest).all()


def test_silence_is_coded_as_lines_expect_it() -> None:
    """Mu-law silence is 0xFF, A-law's 0xD5 (ITU-T G.711, tables 1a and 2a), and full scale is where it should be."""
    zero = np.zeros(1, dtype=np.int16)
    assert g711.encode_mulaw(zero) == b"\xff"
    assert g711.encode_alaw(zero) == b"\xd5"
    assert g711.decode_mulaw(b"\x80\x00").tolist() == [32_124, -32_124]
    assert g711.decode_alaw(b"\xaa\x2a").tolist() == [32_256, -32_256]
