"""A record's latency is compared with a client's own clock, for clients that count in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure.latency_clock import Compared, compared, main, report, run
from voicepipe.audio.files import read_sound
from voicepipe.client import RATE_HZ


def ignore(line: str) -> None:
    """Discard the line."""


def test_a_client_that_counts_from_the_frame_it_sends_sees_less() -> None:
    """By the part of the frame behind the last voiced sample."""
    each = compared(t0_ms=1_005, client_ms=700, record_ms=703, reports=True)
    assert each == Compared(reports=True, off_ms=3, off_by_frame_ms=18)
    assert compared(t0_ms=1_000, client_ms=700, record_ms=703, reports=True).off_by_frame_ms == 23


def test_the_table_has_a_line_for_each_way_to_count() -> None:
    found = [Compared(True, off_ms, off_ms + 10) for off_ms in range(-2, 9)]
    head, _, capture, sending = report(found)
    assert head.startswith("| client |")
    assert capture == "| reports playback | capture | 11 | +3 ms | -2 to +8 ms | -2 to +8 ms |"
    assert sending == "| reports playback | sending | 11 | +13 ms | +8 to +18 ms | +8 to +18 ms |"


@pytest.mark.slow
async def test_turns_of_a_real_server_are_compared(question: Path) -> None:
    """One of each kind; how close they are is measured by the command, on a machine that is known."""
    found = await run(read_sound(question, RATE_HZ), turns=1, clients=2, say=ignore)
    assert sorted(each.reports for each in found) == [False, True]


def test_a_recording_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recording", str(tmp_path / "none.wav")]) == 2
    assert "latency_clock: " in capsys.readouterr().err
