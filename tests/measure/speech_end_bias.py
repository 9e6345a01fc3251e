"""Measure the distance of t0 from the true end of speech: the VAD's edges against a labelled folder of speech.

`python -m tests.measure.speech_end_bias --data FOLDER` feeds every clip of FOLDER/manifest.jsonl to a VAD in 20 ms
frames, at 24 kHz as clients send it, and prints for each kind of clip: the error of the last voiced sample (t0) and of
the onset against the labels, the delay of the pause's detection after the labelled end, pauses found inside turns,
speech found in noise, the delay of the detection of speech after its labelled beginning (p50, p90 and the longest), and
the CPU time of the VAD with its gate and with every window judged. `--telephone` feeds the clips as G.711 at 8 kHz.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from voicepipe.audio import silero
from voicepipe.audio.classifier import Vad
from voicepipe.audio.files import read_sound
from voicepipe.audio.g711 import G711_HZ, decode_mulaw, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import Edge, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import EnergyGate, VadSegmenter

RATE_HZ: Final = 24_000
FRAME_MS: Final = 20

NEAR_MS: Final = 400
"""A pause farther from the labelled end than this is a miss, not an error of t0."""


@dataclass(slots=True)
class Totals:
    """The measurements of one kind of clip."""

    clips: int = 0
    audio_ms: int = 0
    t0_ms: list[int] = field(default_factory=list)
    onset_ms: list[int] = field(default_factory=list)
    started_ms: list[int] = field(default_factory=list)
    """From the labelled beginning of speech to the frame that showed it."""

    noticed_ms: list[int] = field(default_factory=list)
    missed: int = 0
    starts: int = 0
    pauses: int = 0

    def add(self, clip: dict[str, Any], edges: list[tuple[int, Edge]]) -> None:
        """Count one clip; `edges` come with the stream position of each detection."""
        starts = [(at_ms, edge.onset.stream_ms) for at_ms, edge in edges if isinstance(edge, SpeechStart)]
        pauses = [(at_ms, edge.last_voiced.stream_ms) for at_ms, edge in edges if isinstance(edge, SpeechStop)]
        self.clips += 1
        self.audio_ms += clip["duration_ms"]
        self.starts += len(starts)
        self.pauses += len(pauses)
        end_ms = clip["speech_end_ms"]
        if end_ms is None:
            return
        if starts:
            self.started_ms.append(starts[0][0] - clip["speech_start_ms"])
            self.onset_ms.append(starts[0][1] - clip["speech_start_ms"])
        near = [pause for pause in pauses if abs(pause[1] - end_ms) <= NEAR_MS]
        if near:
            self.noticed_ms.append(near[-1][0] - end_ms)
            self.t0_ms.append(near[-1][1] - end_ms)
        else:
            self.missed += 1


class OpenGate(EnergyGate):
    """A gate that passes every window to the VAD model."""

    def push(self, frame: bytes, *, hold: bool) -> bool:
        super().push(frame, hold=hold)
        return True


def speech_edges(samples: Samples, segmenter: VadSegmenter) -> Iterator[tuple[int, Edge]]:
    """Return the edges of a clip, fed as it would arrive, each with the position (ms) of the frame that showed it."""
    n_frame = segmenter.rate_hz * FRAME_MS // 1_000
    for first in range(0, len(samples) - n_frame + 1, n_frame):
        at_ms = (first + n_frame) * 1_000 // segmenter.rate_hz
        for edge in segmenter.push(samples[first : first + n_frame], at_ms):
            yield at_ms, edge


def read_clips(data: Path) -> list[tuple[dict[str, Any], Samples]]:
    """Return every clip of a speech folder with its line of the manifest."""
    lines = (data / "manifest.jsonl").read_text().splitlines()
    clips = [json.loads(line) for line in lines]
    return [(clip, read_sound(data / clip["path"], RATE_HZ)) for clip in clips]


def by_telephone(samples: Samples) -> Samples:
    """Return a clip as it comes from a telephone: G.711, at `G711_HZ`."""
    return decode_mulaw(encode_mulaw(Resampler(RATE_HZ, G711_HZ).push(samples)))


def measure(
    clips: list[tuple[dict[str, Any], Samples]], vad: Vad = "silero", rate_hz: int = RATE_HZ
) -> dict[str, Totals]:
    """Return the totals by kind of clip, with this VAD."""
    totals_by_kind: dict[str, Totals] = {}
    for clip, samples in clips:
        totals_by_kind.setdefault(clip["kind"], Totals()).add(
            clip, list(speech_edges(samples, VadSegmenter(rate_hz, vad=vad)))
        )
    return totals_by_kind


def cpu_ms_per_s(sounds: list[Samples], new_gate: Callable[[], EnergyGate] = EnergyGate, vad: Vad = "silero") -> float:
    """Return the CPU time of a VAD per second of audio, in ms."""
    began = time.process_time()
    for samples in sounds:
        for _ in speech_edges(samples, VadSegmenter(RATE_HZ, gate=new_gate(), vad=vad)):
            pass
    spent = time.process_time() - began
    return 1_000 * spent * RATE_HZ / sum(len(samples) for samples in sounds)


def _spread(errors: list[int]) -> str:
    """Format p10, p50 and p90 of the errors, and p90 of their magnitude."""
    if not errors:
        return f"{'-':>24}"
    low, middle, high = np.percentile(errors, (10, 50, 90))
    return f"{low:5.0f}{middle:5.0f}{high:5.0f} ±{np.percentile(np.abs(errors), 90):4.0f}   "


def _started(delays_ms: list[int]) -> tuple[float, ...]:
    """Return p50, p90 and the longest of the delays; without any they are no numbers."""
    return tuple(np.percentile(delays_ms, (50, 90, 100))) if delays_ms else (np.nan,) * 3


def table(totals_by_kind: dict[str, Totals]) -> Iterator[str]:
    """Yield the report, line by line."""
    columns = "".join(f"{name:^24}" for name in ("t0 - label", "onset - label", "noticed - label"))
    yield f"{'ms: p10 p50 p90 ±p90':<23}{columns}miss  pauses starts/min  start noticed p50 p90 max"
    for kind, totals in sorted(totals_by_kind.items()):
        spreads = _spread(totals.t0_ms) + _spread(totals.onset_ms) + _spread(totals.noticed_ms)
        per_min = 60_000 * totals.starts / totals.audio_ms
        counts = f"{totals.missed:4d}{totals.pauses / totals.clips:8.1f}{per_min:8.1f}"
        started = "".join(f"{value:5.0f}" for value in _started(totals.started_ms))
        yield f"{kind:<17}{totals.clips:4d}  {spreads}{counts}{started:>24}"


def main(arguments: list[str] | None = None) -> None:
    """Print the report of one speech folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.speech_end_bias", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with manifest.jsonl and its clips")
    parser.add_argument("--kind", action="append", help="only clips of this kind; may be given more than once")
    parser.add_argument("--vad", choices=get_args(Vad), default="silero", help="the setting `agents.NAME.vad` (silero)")
    parser.add_argument("--telephone", action="store_true", help="feed the clips as G.711 at 8 kHz")
    options = parser.parse_args(arguments)
    clips = [pair for pair in read_clips(options.data) if not options.kind or pair[0]["kind"] in options.kind]
    silero.shared()
    if options.telephone:
        clips = [(clip, by_telephone(samples)) for clip, samples in clips]
    for line in table(measure(clips, options.vad, G711_HZ if options.telephone else RATE_HZ)):
        sys.stdout.write(line + "\n")
    if options.telephone:
        return
    sounds = [samples for _, samples in clips]
    still: list[Samples] = [np.zeros(60 * RATE_HZ, dtype=np.int16)]
    sys.stdout.write(
        f"VAD, CPU ms per s of audio: {cpu_ms_per_s(sounds, vad=options.vad):.2f} gated, "
        f"{cpu_ms_per_s(sounds, OpenGate, options.vad):.2f} every window, "
        f"{cpu_ms_per_s(still, vad=options.vad):.2f} in silence\n"
    )


if __name__ == "__main__":
    main()
