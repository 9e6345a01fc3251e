"""What a frame costs is measured with a whole server."""

from __future__ import annotations

import re

import pytest

from tests.measure import session_frame


@pytest.mark.slow
def test_a_frame_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The least time is that of the fastest piece."""
    assert session_frame.main(["--seconds", "0.1"]) == 0
    printed = re.fullmatch(r"(\d+) frames: ([\d.]+) us at the least, ([\d.]+) us at p5\n", capsys.readouterr().out)
    assert printed is not None
    assert int(printed[1]) % session_frame.N_FRAMES == 0
    assert 0 < float(printed[2]) <= float(printed[3])


def test_a_frame_of_the_client_holds_its_message() -> None:
    """Its length is written in two bytes, and its mask changes nothing."""
    text = "x" * 1_000
    frame = session_frame.websocket_frame(text)
    assert frame[:4] == b"\x81\xfe\x03\xe8"
    assert frame[8:] == text.encode()
