"""Measure how soon, and how often too soon, the detector ends a turn, on a labelled folder of speech.

`python -m tests.measure.endpointing --data FOLDER --out DIR [--words]` feeds each clip of FOLDER/manifest.jsonl,
clean and at 10 dB as FOLDER/mixes.jsonl says, in frames of 20 ms of stream time to the VAD and the end-of-turn rule
that sessions use. It prints the table of goals and writes endpointing.md, .csv (one line a clip) and .svg to DIR.
`--words` measures a second time with the words of the local speech to text as evidence; its CPU is counted apart.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.measure.endpointing_chart import svg
from tests.measure.endpointing_detector import ANSWER_MS, FRAME_MS, Detector, Event, Kind
from tests.measure.endpointing_report import NATURAL, NOISY, STRESS, Result, Run, table, write_csv
from tests.measure.endpointing_score import judge
from voicepipe.audio import silero
from voicepipe.bench.endpointing import words as endpointing_words
from voicepipe.bench.endpointing.speech_set import CLEAN, RATE_HZ, Clip, SpeechSet
from voicepipe.errors import VoicepipeError
from voicepipe.ports.endpointing import strategy_named
from voicepipe.turn.endpointing.strategies import ADAPTIVE
from voicepipe.turn.settings import TurnSettings

SILENCE_MS: Final = 720
"""The middle of the adaptive wait. With an answer that takes 500 ms to its first audio, the user notices 220."""

_PROGRESS_EVERY: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One clip to process."""

    clip: Clip
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """A detector's result for a clip."""

    task: Task
    events: tuple[Event, ...]
    cpu_ms: float
    words_cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule that ends turns and starts replies."""

    settings: TurnSettings
    max_starts: int | None = None
    """Maximum number of starts in one turn; None: no limit."""

    answer_ms: int | None = ANSWER_MS
    """The known duration of an answer; None: not known, as in a session's first turn."""


def detect(data: Path, rule: Rule, words: bool, task: Task) -> Detection:
    """Run one clip through a new detector."""
    silero.shared()
    samples = SpeechSet(data).sound(task.clip, task.condition)
    transcriber = endpointing_words.shared(RATE_HZ) if words else None
    detector = Detector(RATE_HZ, rule.settings, transcriber, rule.max_starts, rule.answer_ms)
    n_frame = RATE_HZ * FRAME_MS // 1_000
    began = time.thread_time()
    for end in range(n_frame, len(samples) + 1, n_frame):
        detector.push(samples[end - n_frame : end], end * 1_000 // RATE_HZ)
    cpu_ms = 1_000 * (time.thread_time() - began) - detector.apart_ms
    return Detection(task=task, events=tuple(detector.events), cpu_ms=cpu_ms, words_cpu_ms=detector.words_cpu_ms)


def tasks(speech: SpeechSet) -> list[Task]:
    """Return every turn clean, and at 10 dB where the set has a mix; every noise alone."""
    clean = [Task(clip=clip, condition=CLEAN) for clip in speech.of_kind(*NATURAL, *STRESS, "noise")]
    noisy = [Task(clip=task.clip, condition=NOISY) for task in clean if (task.clip.id, NOISY) in speech.mixes]
    return clean + noisy


def measure(name: str, speech: SpeechSet, detections: Sequence[Detection]) -> Run:
    """Judge the detections."""
    audio_s = sum(each.task.clip.duration_ms for each in detections) / 1_000
    noise = [each for each in detections if each.task.clip.end_ms is None]
    noise_min = sum(each.task.clip.duration_ms for each in noise) / 60_000
    turns = sum(event.kind is Kind.ENDED for each in noise for event in each.events)
    return Run(
        name=name,
        results=tuple(
            Result(
                clip=each.task.clip,
                condition=each.task.condition,
                mix=speech.mixes.get((each.task.clip.id, each.task.condition)),
                verdict=judge(each.task.clip, each.events),
            )
            for each in detections
            if each.task.clip.end_ms is not None
        ),
        false_turns_per_min=turns / noise_min if noise else float("nan"),
        cpu_ms_per_s=sum(each.cpu_ms for each in detections) / audio_s,
        words_cpu_ms_per_s=sum(each.words_cpu_ms for each in detections) / audio_s,
    )


def detect_all(data: Path, rule: Rule, *, words: bool, jobs: int, all_tasks: list[Task]) -> Iterator[Detection]:
    """Process every clip, in order, in `jobs` processes."""
    one = partial(detect, data, rule, words)
    if jobs == 1:
        yield from map(one, all_tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(one, all_tasks)


def with_progress(name: str, detections: Iterator[Detection], n_tasks: int) -> Iterator[Detection]:
    """Yield the detections, with the progress on standard error."""
    for n, each in enumerate(detections, start=1):
        if n % _PROGRESS_EVERY == 0 or n == n_tasks:
            sys.stderr.write(f"{name}: {n} of {n_tasks} clips\n")
        yield each


def main(arguments: list[str] | None = None) -> int:
    """Measure one speech folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.endpointing", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with manifest.jsonl, mixes.jsonl and clips")
    parser.add_argument("--out", type=Path, required=True, help="where table, CSV and picture go")
    parser.add_argument("--words", action="store_true", help="measure with words as well (needs moonshine-voice)")
    parser.add_argument("--silence-ms", type=int, default=SILENCE_MS, help="the middle of the wait")
    parser.add_argument("--end-of-turn", default=ADAPTIVE, metavar="NAME", help="the strategy; silence: exactly that")
    parser.add_argument("--max-starts", type=int, help="work begins no oftener in one turn, as in sessions (there 3)")
    parser.add_argument("--eager", action="store_true", help="work begins as if nobody knew how long an answer takes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    settings = TurnSettings(silence_ms=options.silence_ms, end_of_turn=options.end_of_turn)
    answer_ms = None if options.eager else ANSWER_MS
    rule = Rule(settings=settings, max_starts=options.max_starts, answer_ms=answer_ms)
    try:
        strategy_named(options.end_of_turn, key="--end-of-turn")
        runs = _runs(options, rule)
    except (VoicepipeError, OSError) as why:
        sys.stderr.write(f"{why}\n")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    report = "\n".join(table(runs)) + "\n"
    sys.stdout.write(report)
    (options.out / "endpointing.md").write_text(report)
    write_csv(options.out / "endpointing.csv", runs)
    (options.out / "endpointing.svg").write_text(svg(runs))
    return 0


def _runs(options: argparse.Namespace, rule: Rule) -> list[Run]:
    speech = SpeechSet(options.data)
    todo = tasks(speech)
    runs = []
    for name, words in (("without words", False), ("with words", True))[: 1 + options.words]:
        detections = detect_all(options.data, rule, words=words, jobs=options.jobs, all_tasks=todo)
        runs.append(measure(name, speech, list(with_progress(name, detections, len(todo)))))
    return runs


if __name__ == "__main__":
    sys.exit(main())
