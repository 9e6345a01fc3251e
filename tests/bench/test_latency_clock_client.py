"""A record's latency is compared with a client's that shares no code with this project."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.measure.latency_clock_client import Planted, main, report, run
from voicepipe.audio.files import read_sound
from voicepipe.client import RATE_HZ


def test_the_table_has_a_line_for_each_kind_of_client() -> None:
    head, _, reported = report({True: [float(off_ms) for off_ms in range(-2, 9)]})
    assert head.startswith("| client |")
    assert reported == "| reports playback | 11 | +3.0 ms | -2.0 to +8.0 ms | -2.0 to +8.0 ms |"


@pytest.mark.slow
async def test_positions_of_two_instants_make_the_record_longer(question: Path) -> None:
    """By the time between them. A machine that stalls for longer than that moves one turn, so the middle one counts."""
    found = await run(read_sound(question, RATE_HZ), Planted(apart_ms=200), turns=6, clients=2)
    assert median(found[True]) > 150
    assert median(found[False]) < 150


def test_a_recording_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recording", str(tmp_path / "none.wav")]) == 2
    assert "latency_clock_client: " in capsys.readouterr().err
