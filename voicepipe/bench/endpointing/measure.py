"""Trace labelled folders of speech, clip by clip; traces that a file has already are not measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from voicepipe.audio.classifier import Vad
from voicepipe.bench.endpointing.report import NOISY
from voicepipe.bench.endpointing.speech_set import CLEAN, RATE_HZ, Clip, SpeechSet
from voicepipe.bench.endpointing.traces import LabelledTrace, PauseModels, Tracer, append_trace, read_traces

SET_OF_KIND: Final = {
    "command": "orders",
    "call": "calls",
    "clean": "reading",
    "conversation": "reading",
    "hesitation": "hesitation",
}
"""The kinds of clips that are measured. Other kinds are built from these, or have no end."""

TELEPHONE: Final = ("calls",)
"""The sets of telephone recordings: their band is that of 8 kHz, at whatever rate the files are."""

ReportLine = Callable[[str], None]


def trace_all(
    folders: Sequence[Path],
    models: Callable[[], PauseModels],
    file: Path | None,
    progress: ReportLine,
    vad: Vad = "silero",
) -> list[LabelledTrace]:
    """Return the traces of every clip with this VAD, clean and at 10 dB. `models` is called if a clip must be measured.

    Raises:
        OSError: a folder has no manifest, or `file` can't be written.
        ConfigError: a model can't be loaded.
    """
    known = list(read_traces(file, vad)) if file is not None and file.exists() else []
    have = {(each.trace.clip, each.trace.condition) for each in known}
    todo = [
        (speech, clip, condition)
        for speech in map(SpeechSet, folders)
        for clip, condition in _parts(speech)
        if (clip.id, condition) not in have
    ]
    if not todo:
        return known
    tracer_models = models()
    for n, (speech, clip, condition) in enumerate(todo, 1):
        traced = _traced(speech, clip, condition, tracer_models, vad)
        if file is not None:
            append_trace(file, traced)
        known.append(traced)
        progress(f"{n} of {len(todo)} clips")
    return known


def _parts(speech: SpeechSet) -> Iterator[tuple[Clip, str]]:
    for condition in (CLEAN, NOISY):
        for clip in speech.of_kind(*SET_OF_KIND):
            if condition == CLEAN or (clip.id, condition) in speech.mixes:
                yield clip, condition


def _traced(speech: SpeechSet, clip: Clip, condition: str, models: PauseModels, vad: Vad) -> LabelledTrace:
    mix, name = speech.mixes.get((clip.id, condition)), SET_OF_KIND[clip.kind]
    tracer = Tracer(RATE_HZ, models, telephone=name in TELEPHONE, vad=vad)
    return LabelledTrace(
        trace=tracer.trace(speech.sound(clip, condition), clip.id, condition),
        set=name,
        speaker=clip.speaker,
        end_ms=clip.end_ms,
        babble=mix is not None and mix.babble,
        vad=vad,
    )
