"""Send recordings to a running server in real time, and measure word errors and latency.

`python -m tests.measure.replay_recordings --data FOLDER --n 12 --url ws://127.0.0.1:8080` takes recordings with a text
from FOLDER/manifest.jsonl (`path`, `text`, `kind`, `speech_end_ms`), makes one call for each, and prints the word error
rate, the distance of t0 from the label, and p50, p95, p99 of the turn latency and of every stage of the turn. Needs
jiwer, which comes with the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jiwer
import numpy as np

from voicepipe.audio.files import read_sound
from voicepipe.client import RATE_HZ, Answer, CallFailed, closed_turn, connect, until_ready
from voicepipe.errors import VoicepipeError
from voicepipe.turn.record.values import TurnRecord

STAGES: Final = (
    *("silence", "endpoint", "stt_final", "gate_wait", "llm_ttft", "first_clause", "tts_ttfb", "overhead", "playback"),
    *("total", "unattributed"),
)
"""The parts of a record, in the order of a turn; `stt_final` and `gate_wait` lie within `silence` and `endpoint`."""

ANSWERED: Final = ("completed", "incomplete")
"""An answer that was cut at the agent's maximum length counts as an answer."""

RECORD_LATE_MS: Final = 5_000

_COLUMNS: Final = ("id", "text", "transcript", "wer", "answer", "status", "latency_ms", "from_label_ms", "t0_bias_ms")

_WRITTEN: Final = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint"}
"""The reference texts spell these out, STT does not; neither is an error."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and its labels."""

    id: str
    path: Path
    text: str
    speech_end_ms: int


@dataclass(slots=True)
class Talk:
    """The result of one recording."""

    clip: Clip
    answer: Answer | None = None
    stages_ms: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def t0_bias_ms(self) -> int | None:
        """Return the distance of t0 from the label."""
        t0_ms = self.answer.t0_ms if self.answer else None
        return None if t0_ms is None else t0_ms - self.clip.speech_end_ms

    @property
    def latency_ms(self) -> int | None:
        """Return the time from t0 to the first audible sample, at the client."""
        return self.answer.latency_ms if self.answer else None

    @property
    def from_label_ms(self) -> int | None:
        """Return the same from the label instead of t0."""
        first_output_ms = self.answer.first_output_ms if self.answer else None
        return None if first_output_ms is None else first_output_ms - self.clip.speech_end_ms


def read_clips(data: Path, kind: str, n: int) -> list[Clip]:
    """Return `n` recordings of a kind that have a text, spread evenly over the manifest; always the same ones."""
    lines = (json.loads(line) for line in (data / "manifest.jsonl").read_text().splitlines())
    known = [
        Clip(line["id"], data / line["path"], line["text"], line["speech_end_ms"])
        for line in lines
        if line["kind"] == kind and line.get("text") and line.get("speech_end_ms")
    ]
    n = min(n, len(known))
    return [known[i * len(known) // n] for i in range(n)]


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation, with titles written out, so that only words differ."""
    words = re.sub(r"[^\w\s']", " ", text.lower()).split()
    return " ".join(_WRITTEN.get(word, word) for word in words)


def stages_of(record: TurnRecord) -> dict[str, int]:
    """Return the durations of a record by name, in ms, with its parts and its total."""
    found = {stage.stage: stage.duration_ms for stage in record.stages} | dict(record.parts)
    if record.total_ms is not None:
        found |= {"total": record.total_ms, "unattributed": record.unattributed_ms}
    return found


async def talk(clip: Clip, url: str, key: str | None, agent: str | None) -> Talk:
    """Connect, say the recording, wait until the answer has been played, disconnect. A failure is a result too."""
    done = Talk(clip)
    sound = await asyncio.to_thread(read_sound, clip.path, RATE_HZ)
    try:
        async with connect(url, key=key, agent=agent) as call:
            answer = done.answer = await call.turn(sound)
            if answer.status not in ANSWERED:
                done.error = f"{answer.status}: {answer.why}"
            timeout_ms = answer.duration_ms + RECORD_LATE_MS
            record = await closed_turn(url, answer.turn_id, key=key, timeout_ms=timeout_ms)
            done.stages_ms = stages_of(record) if record else {}
    except CallFailed as why:
        done.error = str(why)
    return done


def report(talks: list[Talk]) -> Iterator[str]:
    """Yield the summary, line by line."""
    answered = [done for done in talks if done.answer]
    yield f"{len(talks)} recordings, {sum(not done.error for done in talks)} answered"
    if not answered:
        return
    expected = [normalised(done.clip.text) for done in answered]
    transcribed = [normalised(done.answer.user_text) for done in answered if done.answer]
    words = jiwer.process_words(expected, transcribed)
    yield f"word error rate {words.wer:.1%} of {sum(len(text.split()) for text in expected)} words"
    yield f"\n{'ms':<28}{'p50':>7}{'p95':>7}{'p99':>7}{'max':>7}{'N':>5}"
    yield row("turn latency (client)", (done.latency_ms for done in talks))
    yield row("heard, from the label", (done.from_label_ms for done in talks))
    yield row("t0 - label", (done.t0_bias_ms for done in talks))
    for stage in STAGES:
        yield row(f"  {stage}", (done.stages_ms.get(stage) for done in talks))


def row(name: str, values: Iterable[int | None]) -> str:
    """Return a line of the table; None means no value."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{name:<28}{'-':>7}{'-':>7}{'-':>7}{'-':>7}{0:>5}"
    figures = (*np.percentile(known, (50, 95, 99)), max(known))
    return f"{name:<28}{''.join(f'{figure:>7.0f}' for figure in figures)}{len(known):>5}"


def write_csv(path: Path, talks: list[Talk]) -> None:
    """Write one line for each recording."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow((*_COLUMNS, *(f"{stage}_ms" for stage in STAGES), "error"))
        table.writerows(_cells(done) for done in talks)


def _cells(done: Talk) -> list[Any]:
    answer = done.answer
    transcribed, said, status = (answer.user_text, answer.agent_text, answer.status) if answer else ("", "", "")
    wer = round(jiwer.wer(normalised(done.clip.text), normalised(transcribed)), 4)
    figures = (done.latency_ms, done.from_label_ms, done.t0_bias_ms, *(done.stages_ms.get(each) for each in STAGES))
    return [done.clip.id, done.clip.text, transcribed, wer, said, status, *figures, done.error]


async def run(options: argparse.Namespace) -> list[Talk]:
    """Send each recording in turn, and print each result."""
    clips = await asyncio.to_thread(read_clips, options.data, options.kind, options.n)
    await until_ready(options.url, say)
    talks = []
    for index, clip in enumerate(clips, start=1):
        done = await talk(clip, options.url, options.key, options.agent)
        talks.append(done)
        transcribed = done.answer.user_text if done.answer else ""
        say(f"[{index}/{len(clips)}] {clip.id}: {done.error or f'{done.latency_ms} ms'}  {transcribed}")
    return talks


def say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 1 when a recording was not answered, 2 when there is no server or no such folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.replay_recordings", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with manifest.jsonl and its recordings")
    parser.add_argument("--kind", default="clean", help="only recordings of this kind (clean)")
    parser.add_argument("--n", type=int, default=12, help="how many (12)")
    parser.add_argument("--url", default="ws://127.0.0.1:8080", help="the server")
    parser.add_argument("--key", default=os.environ.get("VOICEPIPE_KEY"), help="an API key; better in $VOICEPIPE_KEY")
    parser.add_argument("--agent", help="the agent that answers")
    parser.add_argument("--csv", type=Path, default=Path("talk_set.csv"), help="where the figures go (talk_set.csv)")
    options = parser.parse_args(arguments)
    try:
        talks = asyncio.run(run(options))
    except (VoicepipeError, OSError) as why:
        sys.stderr.write(f"talk_set: {why}\n")
        return 2
    write_csv(options.csv, talks)
    say("")
    for line in report(talks):
        say(line)
    return 1 if any(done.error for done in talks) else 0


if __name__ == "__main__":
    sys.exit(main())
