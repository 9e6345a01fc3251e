"""The endpointing bench: its scoring, its noise, and a run over the clips that the tests have."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.measure import endpointing
from tests.measure.endpointing_detector import FRAME_MS, WORDS_MS, Detector, Event, Kind
from tests.measure.endpointing_score import judge, summary
from voicepipe.audio.files import write_wav
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.endpointing.speech_set import CLEAN, RATE_HZ, Clip, SpeechSet
from voicepipe.turn.settings import TurnSettings

DATA = Path(__file__).parents[1] / "data"

CLIP = Clip(id="a", kind="clean", speaker="s", path=Path("a.wav"), duration_ms=6_000, start_ms=500, end_ms=3_000)


def events(**at_ms: int) -> list[Event]:
    """`started=500, tentative_2=1500`: a number only keeps the names apart."""
    return [Event(Kind(name.partition("_")[0]), ms) for name, ms in at_ms.items()]


def test_an_answer_is_felt_from_when_its_work_began_or_its_sound_may_go() -> None:
    """Work needs 500 ms until the first sound; a longer wait for the end of the turn adds to that."""
    early = judge(CLIP, events(started=560, tentative=3_080, begun=3_140, ended=3_400))
    assert (early.delay_ms, early.tentative_ms, early.begun_ms, early.effective_ms) == (400, 80, 140, 140)
    late = judge(CLIP, events(started=560, tentative=3_080, begun=3_140, ended=3_900))
    assert (late.delay_ms, late.effective_ms) == (900, 400)
    assert not early.cut
    assert not early.missed


def test_work_that_was_withdrawn_is_wasted_and_what_came_after_counts() -> None:
    """Only before the true end was found."""
    verdict = judge(
        CLIP,
        events(
            started=560,
            tentative=1_450,
            begun=1_500,
            withdrawn=1_600,
            tentative_2=3_150,
            begun_2=3_200,
            ended=3_700,
            begun_3=4_000,
            withdrawn_2=4_100,
        ),
    )
    assert (verdict.withdrawn, verdict.tentative_ms, verdict.begun_ms, verdict.cut) == (1, 150, 200, False)


def test_a_pause_in_which_no_work_began_wastes_none() -> None:
    """It was noticed, and was too short."""
    verdict = judge(CLIP, events(started=560, tentative=1_500, tentative_2=3_100, begun=3_200, ended=3_700))
    assert (verdict.withdrawn, verdict.tentative_ms, verdict.begun_ms) == (0, 100, 200)


def test_an_end_inside_the_turn_cuts_it() -> None:
    """Work for that end was not withdrawn; the true end may still be found, or not."""
    cut = judge(CLIP, events(started=560, begun=1_500, ended=2_000, started_2=2_200, begun_2=3_100, ended_2=3_700))
    assert (cut.cut, cut.delay_ms, cut.withdrawn, cut.missed) == (True, 700, 0, False)
    clipped = judge(CLIP, events(started=560, begun=2_500, ended=2_700))
    assert (clipped.cut, clipped.delay_ms, clipped.missed) == (True, None, False)


@pytest.mark.parametrize("found", [{}, {"started": 560}, {"started": 560, "begun": 4_800, "ended": 5_100}])
def test_an_end_that_comes_too_late_is_missed(found: dict[str, int]) -> None:
    """After 2 s, or never."""
    verdict = judge(CLIP, events(**found))
    assert verdict.missed
    assert verdict.effective_ms is None


def test_a_summary_is_over_the_turns_that_have_the_figure() -> None:
    """Shares are of all turns, delays of those with an end."""
    found = judge(CLIP, events(started=560, begun=3_140, ended=3_400))
    missed = judge(CLIP, [])
    both = summary([found, missed])
    assert (both.turns, both.cut, both.missed, both.commit_ms) == (2, 0, 50, (400, 400))
    assert np.isnan(summary([]).cut)


def speech_folder(folder: Path) -> SpeechSet:
    """A second of tone between two of silence, and noise to lie over it at 10 dB."""
    rng = np.random.default_rng(1)
    tone = (8_000 * np.sin(np.arange(RATE_HZ) * 2 * np.pi * 440 / RATE_HZ)).astype(np.int16)
    write_wav(folder / "tone.wav", np.concatenate((silence(RATE_HZ), tone, silence(RATE_HZ))), RATE_HZ)
    write_wav(folder / "hiss.wav", rng.normal(0, 500, 2 * RATE_HZ).astype(np.int16), RATE_HZ)
    tone_line = {"id": "tone", "path": "tone.wav", "kind": "clean", "speaker": "s", "duration_ms": 3_000}
    hiss_line = {"id": "hiss", "path": "hiss.wav", "kind": "noise", "speaker": None, "duration_ms": 2_000}
    lines = [
        tone_line | {"speech_start_ms": 1_000, "speech_end_ms": 2_000},
        hiss_line | {"speech_start_ms": None, "speech_end_ms": None},
    ]
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))
    mix = {"id": "tone", "noise": "hiss", "snr_db": 10, "noise_offset_ms": 500}
    (folder / "mixes.jsonl").write_text(json.dumps(mix))
    return SpeechSet(folder)


def test_a_mix_has_the_noise_that_is_written_as_loud_as_is_written(tmp_path: Path) -> None:
    """10 dB below the speech, not below the clip; from the given offset, and again from its beginning."""
    speech = speech_folder(tmp_path)
    clip = speech.clips["tone"]
    clean, noisy = speech.sound(clip, CLEAN).astype(float), speech.sound(clip, "10").astype(float)
    noise = noisy - clean
    level_db = 20 * np.log10(np.std(clean[RATE_HZ : 2 * RATE_HZ]) / np.std(noise))
    assert level_db == pytest.approx(10, abs=0.2)
    hiss = speech.sound(speech.clips["hiss"], CLEAN).astype(float)
    assert np.corrcoef(noise[:RATE_HZ], hiss[RATE_HZ // 2 : RATE_HZ // 2 + RATE_HZ])[0, 1] > 0.99
    assert np.corrcoef(noise[-RATE_HZ:], hiss[RATE_HZ // 2 : RATE_HZ // 2 + RATE_HZ])[0, 1] > 0.99


def run(settings: TurnSettings, words: Callable[[Samples], str] | None = None, **rule: Any) -> Detector:
    """A detector over "no", whose label ends at 1045 ms."""
    speech = SpeechSet(DATA)
    samples = speech.sound(speech.clips["clean/cv_22058264"], CLEAN)
    detector = Detector(RATE_HZ, settings, words, **rule)
    n_frame = RATE_HZ * FRAME_MS // 1_000
    for end in range(n_frame, len(samples) + 1, n_frame):
        detector.push(samples[end - n_frame : end], end * 1_000 // RATE_HZ)
    return detector


def test_the_detector_waits_as_the_rule_says() -> None:
    """One start, work, one end after the silence that the settings require."""
    for silence_ms in (300, 900):
        found = run(TurnSettings(silence_ms=silence_ms)).events
        assert [event.kind for event in found] == [Kind.STARTED, Kind.TENTATIVE, Kind.BEGUN, Kind.ENDED]
        assert found[-1].at_ms == pytest.approx(1_045 + silence_ms, abs=80)


def test_work_begins_no_oftener_than_it_may() -> None:
    """Without leave to begin, the end of the turn begins it."""
    at_ms = {event.kind: event.at_ms for event in run(TurnSettings(silence_ms=900), max_starts=0).events}
    assert at_ms[Kind.BEGUN] == at_ms[Kind.ENDED]


def test_work_begins_as_late_as_the_answer_allows() -> None:
    """That long before the end of the wait; with nothing known of the answer, soon after the pause."""
    known, unknown = (
        {event.kind: event.at_ms for event in run(TurnSettings(silence_ms=900), answer_ms=answer_ms).events}
        for answer_ms in (500, None)
    )
    assert known[Kind.ENDED] == unknown[Kind.ENDED]
    assert known[Kind.ENDED] - known[Kind.BEGUN] == pytest.approx(500, abs=FRAME_MS)
    assert unknown[Kind.BEGUN] <= unknown[Kind.TENTATIVE] + 4 * FRAME_MS


def test_words_of_the_whole_utterance_change_the_wait() -> None:
    """They come 60 ms after the pause; nothing begins before; a missing word holds the turn open."""
    settings = TurnSettings(silence_ms=720, end_of_turn="adaptive")
    lengths: list[int] = []

    def words(samples: Samples) -> str:
        lengths.append(len(samples) * 1_000 // RATE_HZ)
        return "and the"

    silent, worded = run(settings).events, run(settings, words).events
    assert worded[-1].at_ms > silent[-1].at_ms + 300
    assert worded[1].at_ms == silent[1].at_ms
    assert worded[2].at_ms >= worded[1].at_ms + WORDS_MS
    assert 500 < lengths[0] < 1_200


@pytest.mark.slow
def test_the_command_measures_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with the goals, a CSV with each turn, a picture that is XML; no noise is a turn."""
    assert endpointing.main(["--data", str(DATA), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(" | ") == ["| measure", "must", "aim", "without words |"]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[-1].strip("| ") for line in lines[2:] if "|" in line}
    assert rows["false turns a minute on noise alone"] == "0.0"
    assert rows["turns cut, natural 10 dB without babble"] == "-"
    middle_ms, tail_ms = map(int, rows["tentative end p50/p90, natural clean, ms"].split("/"))
    assert 60 <= middle_ms <= tail_ms <= 400
    turns = list(csv.DictReader((tmp_path / "endpointing.csv").read_text().splitlines()))
    manifest = [json.loads(line) for line in (DATA / "manifest.jsonl").read_text().splitlines()]
    kinds = ("clean", "conversation", "hesitation", "pause_built", "concat")
    assert sorted(turn["clip"] for turn in turns) == sorted(clip["id"] for clip in manifest if clip["kind"] in kinds)
    assert ElementTree.fromstring((tmp_path / "endpointing.svg").read_text()).tag.endswith("svg")


def test_a_folder_without_speech_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its name."""
    assert endpointing.main(["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
