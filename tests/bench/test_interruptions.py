"""The interruption bench: what its microphones record, how it counts, and a call to a server of its own."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import numpy as np
import pytest

from tests.measure import interruptions
from tests.measure.interruption_call import Seen
from tests.measure.interruption_scenes import KINDS, OFFSETS, Kind, Scene, reply_of, scenes
from tests.measure.interruptions import main, report, write_csv
from voicepipe.audio.samples import rms_dbfs
from voicepipe.bench.endpointing.speech_set import RATE_HZ, SpeechSet
from voicepipe.ports.transcriber import Samples
from voicepipe.values import replace

DATA = Path(__file__).parents[1] / "data"
MS = RATE_HZ // 1_000


@pytest.fixture(scope="module")
def speech() -> SpeechSet:
    return SpeechSet(DATA)


@pytest.fixture(scope="module")
def reply(speech: SpeechSet) -> Samples:
    return reply_of(speech)


def of_kind(speech: SpeechSet, reply: Samples, kind: Kind) -> list[Scene]:
    return list(scenes(speech, reply, kind))


def test_each_kind_has_its_scenes(speech: SpeechSet, reply: Samples) -> None:
    """Ten for each backchannel and for the echo, one for each clean recording; each within the reply."""
    counts = {kind: len(of_kind(speech, reply, kind)) for kind in KINDS}
    n_listeners, n_clean = len(speech.of_kind("backchannel")), len(speech.of_kind("clean"))
    assert counts == {
        "backchannel": OFFSETS * n_listeners,
        "backchannel over echo": OFFSETS * n_listeners,
        "echo alone": OFFSETS,
        "interruption": n_clean,
    }
    ends_ms = max(
        len(scene.sound) // MS for kind in ("backchannel", "interruption") for scene in of_kind(speech, reply, kind)
    )
    assert ends_ms < len(reply) // MS == 14_000


def test_a_voice_begins_where_it_is_said_to(speech: SpeechSet, reply: Samples) -> None:
    """Before its onset there is the room; behind it the voice, for 1.5 s."""
    scene = of_kind(speech, reply, "interruption")[3]
    before, after = scene.sound[: (scene.onset_ms - 150) * MS], scene.sound[scene.onset_ms * MS :]
    assert rms_dbfs(before) < -65
    assert rms_dbfs(after[: 500 * MS]) > -40
    assert len(after) == 1_500 * MS


def test_the_echo_is_the_reply_late_and_20_db_weaker(speech: SpeechSet, reply: Samples) -> None:
    scene = of_kind(speech, reply, "echo alone")[2]
    delay_ms = 80 + 2 * 60
    mixed = scene.sound[delay_ms * MS :][: len(reply)]
    assert rms_dbfs(mixed) == pytest.approx(rms_dbfs(reply) - 20, abs=0.5)
    assert np.corrcoef(mixed, reply)[0, 1] > 0.95


def test_the_scenes_are_always_the_same(speech: SpeechSet, reply: Samples) -> None:
    first, second = (of_kind(speech, reply, "backchannel over echo")[5] for _ in range(2))
    assert np.array_equal(first.sound, second.sound)


def test_the_table_counts_who_stopped_the_agent(speech: SpeechSet, reply: Samples, tmp_path: Path) -> None:
    scene = of_kind(speech, reply, "backchannel")[0]
    continuing = Seen(scene, ducked_ms=120, n_ducked=1, verdicts_ms=(280,))
    stopped = Seen(scene, ducked_ms=180, n_ducked=1, stopped_ms=900, why="words")
    interrupting = Seen(
        replace(scene, kind="interruption"), ducked_ms=100, n_ducked=1, stopped_ms=1_000, why="sustained"
    )
    lines = list(report([continuing, stopped, interrupting], "scripted"))
    assert lines[2] == "| backchannel | 2 | 1 (50%) | 10 % stop | 150/174 ms | 280/280 ms | 900/900 ms |"
    assert lines[3].startswith("| interruption | 1 | 1 (100%) | 5 % don't |")
    assert len(lines) == 4
    write_csv(tmp_path / "out.csv", [continuing, stopped], "scripted")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["stopped_ms"], row["why"], row["verdicts_ms"]) for row in rows] == [
        ("", "", "280"),
        ("900", "words", ""),
    ]


def test_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.slow
async def test_a_call_to_a_server_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user interrupts the agent, and it stops."""
    listed = interruptions._listed
    monkeypatch.setattr(interruptions, "_listed", lambda *which: listed(*which)[:1])
    out = tmp_path / "out.csv"
    arguments = ["--data", str(DATA), "--stt", "scripted", "--kind", "interruption", "--csv", str(out)]
    assert await asyncio.to_thread(main, arguments) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert row["why"] in ("words", "sustained")
    assert 0 <= int(row["ducked_ms"]) < int(row["stopped_ms"])
