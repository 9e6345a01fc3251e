"""The bench of t0 over the clips that the tests have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure import speech_end_bias
from voicepipe.audio.speech_events import Instant, SpeechStart, SpeechStop

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.slow
def test_the_report_has_a_line_for_each_kind_and_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has kinds by name, the errors of the VAD, and the CPU time at the end."""
    speech_end_bias.main(["--data", str(DATA), "--kind", "backchannel", "--kind", "noise"])
    head, backchannel, noise, cost = capsys.readouterr().out.splitlines()
    assert "t0 - label" in head
    assert backchannel.split()[:2] == ["backchannel", "2"]
    assert noise.split() == ["noise", "3", "-", "-", "-", "0", "0.0", "0.0", "nan", "nan", "nan"]
    assert "CPU ms per s" in cost


def test_totals_count_errors_and_misses() -> None:
    """An end more than 400 ms off is missed, and no error of t0; noise has neither end nor error."""
    clip = {"kind": "clean", "duration_ms": 2_000, "speech_start_ms": 500, "speech_end_ms": 1_500}
    near, far = (SpeechStop(Instant(at_ms, at_ms), 80) for at_ms in (1_520, 1_000))
    totals = speech_end_bias.Totals()
    totals.add(clip, [(620, SpeechStart(Instant(490, 490))), (1_080, far), (1_620, near)])
    totals.add(clip, [(1_080, far)])
    totals.add(clip | {"speech_start_ms": None, "speech_end_ms": None}, [])
    assert (totals.t0_ms, totals.noticed_ms, totals.missed, totals.clips) == ([20], [120], 1, 3)
    assert (totals.onset_ms, totals.started_ms) == ([-10], [120])


@pytest.mark.slow
def test_clips_are_fed_as_a_telephone_sends_them(capsys: pytest.CaptureFixture[str]) -> None:
    """At 8 kHz, on the same time scale as the labels."""
    speech_end_bias.main(["--data", str(DATA), "--kind", "backchannel", "--telephone"])
    _, backchannel = capsys.readouterr().out.splitlines()
    kind, clips, _, t0_ms, *_ = backchannel.split()
    assert (kind, clips) == ("backchannel", "2")
    assert abs(int(t0_ms)) <= 200
