"""The STT bench, against transcribers and vendors whose answers are known."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from voicepipe.audio.files import write_wav
from voicepipe.bench.stt import PAUSE_MS, SttCandidate, SttResult, SttUtterance, measure, word_errors, words
from voicepipe.bench.stt_manifest import read_manifest
from voicepipe.bench.stt_report import CSV_COLUMNS, stt_runs, svg, table, write_csv
from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Interim, TranscriberCapabilities, TranscriptionOptions
from voicepipe.testing.fakes.cues import Cut, Status, SttCue
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.transcriber import FakeTranscriber, ReceivedFlush
from voicepipe.testing.fakes.vendor import FakeVendor

RATE_HZ = 16_000
SOUND = tone("x" * 5, rate_hz=RATE_HZ)  # 200 ms


def silent(what: str, done: int, of: int) -> None:
    """Discard the progress."""


def said(rate_hz: int) -> list[SttUtterance]:
    return [SttUtterance("a.wav", SOUND, rate_hz, "What time is it?"), SttUtterance("b.wav", SOUND, rate_hz, "No.")]


def candidate(transcriber: FakeTranscriber, usd_a_second: float | None = None) -> SttCandidate:
    def cost_usd(seconds: float) -> float | None:
        return None if usd_a_second is None else usd_a_second * seconds

    return SttCandidate(transcriber.name, transcriber, TranscriptionOptions(model="m"), cost_usd)


async def test_each_recording_is_transcribed_and_compared() -> None:
    transcriber = FakeTranscriber(SttCue(text="what time was it"))
    progress: list[int] = []
    results = await measure([candidate(transcriber, 2)], said, 3, 1, lambda what, done, of: progress.append(done))
    assert [(each.name, each.n_words, each.n_errors) for each in results] == [
        ("a.wav", 4, 1),
        ("b.wav", 1, 4),
        ("a.wav", 4, 1),
    ]
    assert all(each.final_ms is not None and each.final_ms >= 0 for each in results)
    assert [each.cost_usd for each in results] == [pytest.approx(0.4)] * 3
    assert progress == [1, 2, 3]
    pause = PAUSE_MS * RATE_HZ // 1_000
    assert [len(each.samples) for each in transcriber.streams] == [len(SOUND) + pause] * 3
    assert np.array_equal(transcriber.streams[0].samples[:-pause], SOUND)
    assert all(each.left.is_set() for each in transcriber.streams)


async def test_first_words_come_from_interim_results() -> None:
    def guess(request: ReceivedFlush) -> SttCue:
        transcriber.streams[-1].emit(Interim(1, "what"))
        return SttCue(text="what time is it")

    capabilities = TranscriberCapabilities(rate_hz=RATE_HZ, streams=True, partials=True)
    transcriber = FakeTranscriber(guess, capabilities=capabilities)
    (results,) = await measure([candidate(transcriber)], said, 1, 1, silent)
    assert results.partial_ms is not None
    assert results.partial_ms >= 299  # it gets 300 ms of sound in real time


async def test_failures_are_reported_and_count_no_words() -> None:
    transcriber = FakeTranscriber(SttCue(text="no"))
    transcriber.script.cue(SttCue(fault=Status(429)), SttCue(fault=Cut()))
    results = await measure([candidate(transcriber)], said, 3, 1, silent)
    assert [bool(each.error) for each in results] == [True, True, False]
    assert "429" in results[0].error
    assert [(each.final_ms is None, each.n_errors) for each in results[:2]] == [(True, 0)] * 2


async def test_transcriber_that_ends_without_text_has_failed() -> None:
    transcriber = FakeTranscriber()
    async with asyncio.TaskGroup() as group:
        measuring = group.create_task(measure([candidate(transcriber)], said, 1, 1, silent))
        await transcriber.script.nth(0)
        transcriber.streams[0].close()
    (results,) = measuring.result()
    assert (results.error, results.final_ms) == ("the STT ended without a transcript", None)


@pytest.mark.parametrize(
    ("one", "other", "errors"),
    [
        ("What's the time, Mr. O'Neill?", "what\u2019s the time mr o'neill", 0),
        ("one two three", "one three", 1),
        ("one two", "one and two", 1),
        ("one two three", "two two four", 2),
        ("", "anything at all", 3),
        ("all is lost", "", 3),
        ("Stra\u00dfe", "STRASSE", 0),
    ],
)
def test_words_are_compared_as_they_sound(one: str, other: str, errors: int) -> None:
    assert word_errors(words(one), words(other)) == errors


def listened(final_ms: float | None, *, n_errors: int = 1, error: str = "") -> SttResult:
    return SttResult(
        spec="a/b",
        name="x.wav",
        final_ms=final_ms,
        partial_ms=None,
        duration_s=3.0,
        n_words=4,
        n_errors=n_errors,
        cost_usd=None if error else 0.05,
        text='said, "so"',
        error=error,
    )


def test_the_report(tmp_path: Path) -> None:
    measured = stt_runs([listened(100), listened(200, n_errors=0), listened(300), listened(None, error="HTTP 500")])
    _, _, line, failure = table(measured)
    assert line == "| a/b | 200/290/298 | - | 16.7 | 12 | 1 of 4 | 1.000000 |"
    assert failure == "a/b: 1 failed: HTTP 500"
    write_csv(tmp_path / "stt.csv", measured)
    with (tmp_path / "stt.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert (lines[0]["final_ms"], lines[0]["text"], lines[3]["error"]) == ("100.00", 'said, "so"', "HTTP 500")
    (curve,) = [each for each in ElementTree.fromstring(svg(measured)).iter() if each.tag.endswith("polyline")]
    assert curve.get("points", "").split()[-1].endswith(",60.0")  # three of four arrived


def manifest(folder: Path, *lines: object) -> Path:
    write_wav(folder / "a.wav", SOUND, RATE_HZ)
    path = folder / "manifest.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_a_manifest_is_read_up_to_the_last_word(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        {"path": "a.wav", "text": "what time is it", "speech_end_ms": 150, "id": "1"},
        {"path": "noise.wav", "text": None},
    )
    (one,) = read_manifest(path)(8_000)
    assert (one.name, one.text, len(one.samples), one.rate_hz) == ("a.wav", "what time is it", 1_200, 8_000)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({}, "expected"),
        ({"path": "a.wav"}, "got none"),
        ({"path": "b.wav", "text": "x"}, "b.wav"),
        ([], "on each line"),
    ],
)
def test_a_manifest_that_is_none(line: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_manifest(manifest(tmp_path, line))(RATE_HZ)


async def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(tmp_path, {"path": "a.wav", "text": "what time is it"})
    async with FakeVendor() as vendor:
        settings = ("--set", f"providers.ollama.base_url={vendor.base_url}", "--data-dir", str(tmp_path / "data"))
        command = ("bench", "stt", "ollama/x", "--manifest", str(path), "--n", "3", "--out", str(tmp_path / "out"))
        status = await asyncio.to_thread(main, (*command, "--language", "en-GB", *settings))
        assert {request.question["language"] for request in vendor.stt.received} == {"en"}
    printed = capsys.readouterr()
    assert status == 0
    assert "| ollama/x |" in printed.out
    assert " 0.0 | 12 | 0 of 3 |" in printed.out
    assert "ollama/x: 3 of 3" in printed.err
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["stt.csv", "stt.md", "stt.svg"]


def test_recordings_are_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "stt", "ollama/x", "--data-dir", str(tmp_path)]) == 2
    assert "--manifest: expected a file" in capsys.readouterr().err
