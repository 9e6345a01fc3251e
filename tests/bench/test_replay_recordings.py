"""The bench that talks: which recordings, what counts as an error, and a run against a server with fakes."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import voicepipe
from tests.measure.replay_recordings import Clip, Talk, main, normalised, read_clips, report, row, stages_of, write_csv
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S

LABEL = {"kind": "clean", "text": "no", "speech_end_ms": 1_045}


def write_manifest(folder: Path, *lines: dict[str, Any]) -> None:
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_recordings_are_spread_over_those_that_can_be_judged(tmp_path: Path) -> None:
    usable = [{"id": f"clip{n}", "path": f"{n}.wav", **LABEL} for n in range(10)]
    others = [
        {"id": "noise", "path": "n.wav", **LABEL, "kind": "noise"},
        {"id": "wordless", "path": "w.wav", **LABEL, "text": None},
        {"id": "endless", "path": "e.wav", **LABEL, "speech_end_ms": None},
    ]
    write_manifest(tmp_path, *others, *usable)
    assert [clip.id for clip in read_clips(tmp_path, "clean", 3)] == ["clip0", "clip3", "clip6"]
    assert len(read_clips(tmp_path, "clean", 99)) == 10
    assert [clip.id for clip in read_clips(tmp_path, "noise", 5)] == ["noise"]


@pytest.mark.parametrize(
    ("written", "compared"),
    [("Hello,  World!", "hello world"), ("Mr. Hale, don't.", "mister hale don't"), ("shop-boy", "shop boy")],
)
def test_only_differences_in_words_count(written: str, compared: str) -> None:
    assert normalised(written) == compared


def test_a_record_gives_its_stages_its_parts_and_its_total() -> None:
    stages = stages_of(turn_record())
    assert (stages["silence"], stages["endpoint"], stages["gate_wait"]) == (500, 25, 500)
    assert (stages["total"], stages["unattributed"]) == (983, 0)
    assert "total" not in stages_of(turn_record(marks=(("voiced_last", 0), ("llm_requested", 5))))


def test_what_was_not_to_be_had_is_not_counted() -> None:
    assert row("x", [100, None, 300]).split() == ["x", "200", "290", "298", "300", "2"]
    assert row("x", [None]).split() == ["x", "-", "-", "-", "-", "0"]


def test_a_recording_without_an_answer_is_an_error_and_no_figure(tmp_path: Path) -> None:
    lost = Talk(Clip("a", tmp_path, "no", 1_045), error="no answer: nothing heard")
    assert list(report([lost])) == ["1 recordings, 0 answered"]
    write_csv(tmp_path / "out.csv", [lost])
    with (tmp_path / "out.csv").open(newline="") as file:
        line = next(csv.DictReader(file))
    assert (line["wer"], line["latency_ms"], line["error"]) == ("1.0", "", "no answer: nothing heard")


def test_without_a_server_or_a_folder_it_says_so(
    tmp_path: Path, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    write_manifest(tmp_path, {"id": "a", "path": "a.wav", **LABEL})
    assert main(["--data", str(tmp_path), "--url", f"127.0.0.1:{unused_tcp_port}"]) == 2
    assert capsys.readouterr().err.startswith("talk_set: no server answers at http://127.0.0.1")


@pytest.mark.slow
async def test_a_run_prints_the_table_and_writes_the_figures(fake_server: Any, question: Path, tmp_path: Path) -> None:
    write_manifest(tmp_path, {"id": "a", "path": question.name, **LABEL})
    async with fake_server() as server:
        server.vendor.stt.usual = SttCue(text="Know.")
        options = ("--data", str(tmp_path), "--url", server.url, "--csv", str(tmp_path / "out.csv"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.measure.replay_recordings", *options),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(voicepipe.__file__).parents[1],
        )
        try:
            async with asyncio.timeout(WAIT_S):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    out = printed.decode()
    assert "1 recordings, 1 answered\nword error rate 100.0% of 1 words\n" in out
    assert all(name in out for name in ("turn latency (client)", "t0 - label", "gate_wait", "unattributed"))
    with (tmp_path / "out.csv").open(newline="") as file:
        line = next(csv.DictReader(file))
    assert (line["id"], line["transcript"], line["wer"], line["error"]) == ("a", "Know.", "1.0", "")
    assert abs(int(line["t0_bias_ms"])) < 150
    assert int(line["total_ms"]) > 0
