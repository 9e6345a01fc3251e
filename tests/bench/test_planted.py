"""Delays that are planted in a real server's turns are told of whoever caused them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.bench import planted
from voicepipe.bench.planted import PLANTS, Told, judged, main, report, run
from voicepipe.client import RATE_HZ
from voicepipe.telemetry.advice import depends_on_for
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record import Breach
from voicepipe.turn.settings import BudgetLimits

DELAY_MS = 1_000
"""Long beside what a busy machine adds, since the limits are half of it."""


def plant(what: str) -> planted.Plant:
    """The one whose description has these words."""
    (found,) = (each for each in PLANTS if what in each.what)
    return found


def nobody(line: str) -> None:
    """Nobody listens."""


async def test_the_late_one_is_named(question: Path) -> None:
    """The model, the client, and the server itself, which is stopped with the answer in its socket."""
    plants = [
        plant("first word comes {ms} ms late"),
        plant("the client keeps"),
        plant("held for {ms} ms while the model"),
    ]
    told = await run(read_sound(question, RATE_HZ), plants, plant_ms=DELAY_MS, rounds=1, say=nobody)
    assert [each.plant.stage for each in told if each.is_right] == ["llm_ttft", "playback", "overhead"]
    assert all(each.later_ms > DELAY_MS // 2 for each in told)


def test_what_is_told_is_what_most_records_say() -> None:
    """And how much later than usual that stage was, in the middle."""
    marks = dict(MARKS)
    late = {name: ms + 700 if ms >= marks["first_delta"] else ms for name, ms in MARKS}
    limits = BudgetLimits(endpoint_ms=600)
    slow = turn_record(tuple(late.items()), limits=limits)
    told = judged(PLANTS[2], [slow, replace(slow, breach=None), slow], [turn_record()] * 3)
    assert slow.breach == Breach("llm_ttft", 335, "fake-llm", depends_on_for("agents.NAME.llm"))
    assert (told.stage, told.later_ms, told.total_later_ms) == ("llm_ttft", 700, 700)
    assert not told.is_right  # of another owner


def test_the_table_says_who_is_wrong() -> None:
    """A row for each; a record that names nobody has nothing to name."""
    right = Told(PLANTS[4], "tts_ttfb", "bench/mouth", "agents.NAME.tts", 402, 433)
    rows = list(report([right, Told(PLANTS[5], "", "", "", 0, 400)], 400))
    assert rows[2:] == [
        "| the voice's first sound comes 400 ms late | 433 ms | 402 ms | `tts_ttfb` | bench/mouth | `agents.NAME.tts` "
        "| right |",
        "| the client keeps sound for 400 ms before it plays it | 400 ms | 0 ms | nothing | - | - | **wrong** |",
    ]


@pytest.mark.parametrize(("stage", "code"), [("playback", 0), ("overhead", 1)])
def test_the_command_fails_when_a_record_is_wrong(
    question: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stage: str, code: int
) -> None:
    """So that a script notices."""

    async def ran(*args: object, **kwargs: object) -> list[Told]:
        return [Told(PLANTS[5], stage, "client", "the client's own buffer", 400, 400)]

    monkeypatch.setattr(planted, "run", ran)
    assert main(["--recording", str(question)]) == code
    assert capsys.readouterr().out.count("\n") == 3


def test_without_a_recording(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It says so."""
    assert main(["--recording", str(tmp_path / "none.wav")]) == 2
    assert capsys.readouterr().err.startswith("planted: ")
