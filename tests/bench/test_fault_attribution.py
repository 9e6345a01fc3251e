"""Delays that are planted in a real server's turns are attributed to the component that caused them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure import fault_attribution
from tests.measure.fault_attribution import INJECTED_DELAYS, Finding, judge, main, report, run
from voicepipe.audio.files import read_sound
from voicepipe.client import RATE_HZ
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.values import Breach
from voicepipe.values import replace

DELAY_MS = 2_000
"""Long beside what a busy machine adds, since the limits are half of it."""


def injected(what: str) -> fault_attribution.InjectedDelay:
    """The one whose description has these words."""
    (found,) = (each for each in INJECTED_DELAYS if what in each.what)
    return found


def ignore(line: str) -> None:
    """Discard the line."""


@pytest.mark.long
@pytest.mark.slow
async def test_the_late_one_is_named(question: Path) -> None:
    """The LLM, the client, and the server itself, which is stopped with the answer in its socket."""
    injected_delays = [
        injected("first word comes {ms} ms late"),
        injected("the client keeps"),
        injected("held for {ms} ms while the LLM"),
    ]
    findings = await run(read_sound(question, RATE_HZ), injected_delays, delay_ms=DELAY_MS, rounds=1, say=ignore)
    assert [(each.injected.stage, each.n_wrong) for each in findings] == [
        ("llm_ttft", 0),
        ("playback", 0),
        ("overhead", 0),
    ], findings
    assert all(each.later_ms > DELAY_MS // 2 for each in findings)


def test_most_frequent_breach_is_reported() -> None:
    """And how much later than usual that stage was, in the middle."""
    marks = dict(MARKS)
    late = {name: ms + 700 if ms >= marks["first_delta"] else ms for name, ms in MARKS}
    slow = turn_record(tuple(late.items()))
    findings = judge(INJECTED_DELAYS[2], [slow, replace(slow, breach=None), slow], [turn_record()] * 3)
    assert slow.breach == Breach("llm_ttft", 335, "fake-llm", "llm", 335)
    assert (findings.stage, findings.later_ms, findings.total_later_ms) == ("llm_ttft", 700, 700)
    assert (findings.n_wrong, findings.n) == (3, 3)  # of another owner


def test_the_table_says_who_is_wrong() -> None:
    """Each cause has a row; a record without a cause has none."""
    right = Finding(INJECTED_DELAYS[4], "tts_ttfb", "bench/tts", "agents.default.tts", 402, 433, 0, 3)
    rows = list(report([right, Finding(INJECTED_DELAYS[5], "", "", "", 0, 400, 2, 3)], 400))
    assert rows[2:] == [
        "| the TTS's first sound comes 400 ms late | 433 ms | 402 ms | `tts_ttfb` | bench/tts | `agents.default.tts` "
        "| right, 3 of 3 |",
        "| the client keeps sound for 400 ms before it plays it | 400 ms | 0 ms | nothing | - | - | **2 wrong of 3** |",
        "",
        "2 wrong of 6.",
    ]


@pytest.mark.parametrize("n_wrong", [0, 1])
def test_the_command_fails_when_a_record_is_wrong(
    question: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], n_wrong: int
) -> None:
    """So that a script notices."""

    async def ran(*args: object, **kwargs: object) -> list[Finding]:
        return [Finding(INJECTED_DELAYS[5], "playback", "client", "the client's own buffer", 400, 400, n_wrong)]

    monkeypatch.setattr(fault_attribution, "run", ran)
    assert main(["--recording", str(question)]) == n_wrong
    assert capsys.readouterr().out.count("\n") == 5


def test_without_a_recording(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It says so."""
    assert main(["--recording", str(tmp_path / "none.wav")]) == 2
    assert capsys.readouterr().err.startswith("planted: ")
