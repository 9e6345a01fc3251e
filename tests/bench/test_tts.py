"""The bench of voices, against voices and vendors whose sound is known."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from voicepipe.audio.samples import silence
from voicepipe.bench import tts
from voicepipe.bench.tts import TEXTS, TtsCandidate, TtsMeasurement, measure, read_texts
from voicepipe.bench.tts_report import CSV_COLUMNS, svg, table, tts_runs, write_csv
from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.ports.synthesizer import RATE_HZ, Voice
from voicepipe.testing.fakes.cues import Cut, Status, TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.vendor import FakeVendor


def silent(what: str, done: int, of: int) -> None:
    """Discard the progress."""


def candidate(synthesizer: FakeSynthesizer, usd: float | None = None) -> TtsCandidate:
    return TtsCandidate(synthesizer.name, synthesizer, Voice(model="m"), lambda n: None if usd is None else usd * n)


async def test_each_text_is_spoken_and_paid_by_the_character() -> None:
    synthesizer = FakeSynthesizer(TtsCue(ms_per_char=10))
    spoken = await measure([candidate(synthesizer, 2)], ("Hello there.", "Goodbye."), 3, 2, silent)
    assert sorted((each.text, each.n_chars, each.cost_usd) for each in spoken) == [(0, 12, 24), (0, 12, 24), (1, 8, 16)]
    assert sorted(each.sound_ms for each in spoken) == [80, 120, 120]
    assert all(each.audible_ms is not None and each.error == "" for each in spoken)
    assert all(each.real_time_factor is not None and each.real_time_factor > 0 for each in spoken)


async def test_leading_silence_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter([0.0, 0.1, 0.3, 0.9, 1.2])
    monkeypatch.setattr(tts, "loop_s", lambda: next(now_s))
    synthesizer = FakeSynthesizer()
    async with asyncio.TaskGroup() as group:
        measuring = group.create_task(measure([candidate(synthesizer)], ("Hello.",), 1, 1, silent))
        request = await synthesizer.script.nth(0)
        request.send(silence(RATE_HZ // 10))
        request.send(np.concatenate([silence(RATE_HZ // 20), tone("x", ms_per_char=150)]))
        request.send(tone("x", ms_per_char=100))
        request.finish()
    (spoken,) = measuring.result()
    assert spoken.audible_ms == pytest.approx(300)
    assert spoken.leading_ms == pytest.approx(150, abs=5)  # and the tone's own fade
    assert spoken.n_underruns == 2  # 100 ms lasted from 0.1 to 0.2 s, the next 200 from 0.3 to 0.5
    assert spoken.underrun_ms == pytest.approx(100 + 400)
    assert spoken.real_time_factor == pytest.approx(1.2 / 0.4)


async def test_failures_are_reported() -> None:
    synthesizer = FakeSynthesizer(TtsCue())
    synthesizer.script.cue(TtsCue(fault=Status(429)), TtsCue(fault=Cut(after=9_600)))
    refused, cut, whole = await measure([candidate(synthesizer, 1)], ("Hello.",), 3, 1, silent)
    assert (refused.audible_ms, "429" in refused.error, refused.cost_usd) == (None, True, None)
    assert cut.error
    assert cut.audible_ms is not None
    assert cut.real_time_factor is None
    assert whole.error == ""


def spoke(audible_ms: float | None, *, underrun_ms: float = 0, error: str = "") -> TtsMeasurement:
    return TtsMeasurement(
        spec="a/b",
        text=0,
        n_chars=10,
        audible_ms=audible_ms,
        leading_ms=None if audible_ms is None else 20,
        total_ms=500,
        sound_ms=0 if error else 1_000,
        n_underruns=int(underrun_ms > 0),
        underrun_ms=underrun_ms,
        cost_usd=None if error else 0.5,
        error=error,
    )


def test_the_report(tmp_path: Path) -> None:
    measured = tts_runs([spoke(100), spoke(200), spoke(300, underrun_ms=50), spoke(None, error="HTTP 500")])
    _, _, line, failure = table(measured)
    assert line == "| a/b | 200/290/298 | 20 | 0.500/0.500/0.500 | 1 of 3 | 49 | 1 of 4 | 1.500000 |"
    assert failure == "a/b: 1 failed: HTTP 500"
    write_csv(tmp_path / "tts.csv", measured)
    with (tmp_path / "tts.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert (lines[2]["underrun_ms"], lines[3]["audible_ms"], lines[3]["error"]) == ("50.00", "", "HTTP 500")
    curves = [each for each in ElementTree.fromstring(svg(measured)).iter() if each.tag.endswith("polyline")]
    assert len(curves) == 2


def test_texts_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("One.\n\n ...\nTwo.\n")
    assert read_texts(tmp_path / "texts") == ("One.", "Two.")
    (tmp_path / "texts").write_text("...\n")
    for name in ("texts", "other"):
        with pytest.raises(ConfigError, match="--texts: expected a text"):
            read_texts(tmp_path / name)


async def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeVendor() as vendor:
        settings = ("--set", f"providers.ollama.base_url={vendor.base_url}", "--data-dir", str(tmp_path / "data"))
        price = ("--set", "providers.ollama.tts_usd_per_million_chars=100000")
        command = ("bench", "tts", "ollama/x", "--n", "6", "--voice", "anna", "--out", str(tmp_path / "out"))
        status = await asyncio.to_thread(main, (*command, *settings, *price))
        assert {request.question["voice"] for request in vendor.tts.received} == {"anna"}
    printed = capsys.readouterr()
    assert status == 0
    assert f" | 0 of 6 | {sum(map(len, TEXTS)) / 10:.6f} |" in printed.out
    assert "ollama/x: 6 of 6" in printed.err
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["tts.csv", "tts.md", "tts.svg"]


async def test_cached_speech_is_measured_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The TTS gets requests for its own row and two more, so that all clauses are stored; then none, and nothing is
    paid.
    """
    (tmp_path / "texts").write_text("One.\nTwo.\n")
    async with FakeVendor() as vendor:
        settings = ("--set", f"providers.ollama.base_url={vendor.base_url}", "--data-dir", str(tmp_path / "data"))
        command = ("bench", "tts", "ollama/x", "--n", "4", "--cached", "--texts", str(tmp_path / "texts"))
        status = await asyncio.to_thread(main, (*command, *settings))
        assert sorted(request.question["input"] for request in vendor.tts.received) == ["One."] * 4 + ["Two."] * 4
    printed = capsys.readouterr()
    assert status == 0
    rows = [line for line in printed.out.splitlines() if line.startswith("| ollama/x")]
    assert [row.split(" | ")[0] for row in rows] == ["| ollama/x", "| ollama/x, from disk"]
    assert rows[1].endswith(" | 0 of 4 | 0.000000 |")


async def test_a_voice_that_can_t_say_the_texts_keeps_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeVendor() as vendor:
        vendor.tts.usual = TtsCue(fault=Status(500))
        settings = ("--set", f"providers.ollama.base_url={vendor.base_url}", "--data-dir", str(tmp_path / "data"))
        command = ("bench", "tts", "ollama/x", "--n", "1", "--cached")
        assert await asyncio.to_thread(main, (*command, *settings)) == 2
    assert "--cached: expected a voice that can speak the texts, got" in capsys.readouterr().err
