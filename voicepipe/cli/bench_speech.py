"""`voicepipe bench stt` and `voicepipe bench tts`: one set of inputs for several STTs or TTSs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from voicepipe.bench import stt as stt_bench
from voicepipe.bench import stt_report, tts_report
from voicepipe.bench import tts as tts_bench
from voicepipe.bench.stt_manifest import read_manifest
from voicepipe.cli.bench_run import Report, check_counts, engines, show_progress, stage_named
from voicepipe.cli.options import SttBenchOptions, TtsBenchOptions
from voicepipe.config import Settings
from voicepipe.errors import ConfigError, StageError
from voicepipe.ports.synthesizer import Voice
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.router.tts.audio_cache import open_audio_cache
from voicepipe.router.tts.cached import CachedSynthesizer
from voicepipe.values import replace
from voicepipe.wiring.audio import speech_cost_usd, transcription_usd
from voicepipe.wiring.stages import Stages

CACHE_BYTES: Final = 256 << 20
"""Limit of the bench's cached speech on disk while the bench runs."""


def stt(options: SttBenchOptions, settings: Settings) -> Report:
    """Measure STTs.

    Raises:
        ConfigError: a spec, an option or a recording is wrong.
    """
    check_counts(options, "n", "concurrency")
    if options.manifest is None:
        raise ConfigError("--manifest: expected a file of recordings and their texts, got none")
    results = asyncio.run(_transcribe(options, settings, read_manifest(options.manifest)))
    measured = stt_report.stt_runs(results)
    return Report(
        lines=tuple(stt_report.table(measured)),
        chart=stt_report.svg(measured),
        write_csv=lambda path: stt_report.write_csv(path, measured),
        succeeded=all(each.whole for each in measured),
    )


async def _transcribe(
    options: SttBenchOptions, settings: Settings, utterances: Callable[[int], Sequence[stt_bench.SttUtterance]]
) -> list[stt_bench.SttResult]:
    stages = Stages(settings)
    candidates = [_stt_candidate(options, settings, stages, text) for text in dict.fromkeys(options.specs)]
    async with engines(stages, (("stt", spec) for spec in options.specs)):
        return await stt_bench.measure(candidates, utterances, options.n, options.concurrency, show_progress)


def _stt_candidate(options: SttBenchOptions, settings: Settings, stages: Stages, text: str) -> stt_bench.SttCandidate:
    spec, transcriber = stage_named(settings, stages, "stt", text)
    transcription = TranscriptionOptions(model=spec.model, language=options.language)
    return stt_bench.SttCandidate(text, transcriber, transcription, partial(transcription_usd, settings, spec))


def tts(options: TtsBenchOptions, settings: Settings) -> Report:
    """Measure TTSs.

    Raises:
        ConfigError: a spec or an option is wrong.
    """
    check_counts(options, "n", "concurrency")
    texts = tts_bench.TEXTS if options.texts is None else tts_bench.read_texts(options.texts)
    measured = tts_report.tts_runs(asyncio.run(_speak(options, settings, texts)))
    return Report(
        lines=tuple(tts_report.table(measured)),
        chart=tts_report.svg(measured),
        write_csv=lambda path: tts_report.write_csv(path, measured),
        succeeded=all(each.whole for each in measured),
    )


async def _speak(options: TtsBenchOptions, settings: Settings, texts: Sequence[str]) -> list[tts_bench.TtsMeasurement]:
    stages = Stages(settings)
    candidates = [_tts_candidate(options, settings, stages, text) for text in dict.fromkeys(options.specs)]
    async with engines(stages, (("tts", spec) for spec in options.specs)), AsyncExitStack() as stack:
        if options.cached:
            candidates += [await _with_cache(stack, candidate, texts[: options.n]) for candidate in candidates]
        return await tts_bench.measure(candidates, texts, options.n, options.concurrency, show_progress)


async def _with_cache(
    stack: AsyncExitStack, candidate: tts_bench.TtsCandidate, texts: Sequence[str]
) -> tts_bench.TtsCandidate:
    """Return the same TTS with the texts cached on disk, as `server.audio_cache_mb` does.

    Raises:
        ConfigError: the TTS could not speak the texts.
    """
    folder = stack.enter_context(TemporaryDirectory(prefix="voicepipe-bench-", ignore_cleanup_errors=True))
    store = await stack.enter_async_context(open_audio_cache(Path(folder), max_bytes=CACHE_BYTES))
    cached = replace(
        candidate,
        spec=f"{candidate.spec}, from disk",
        synthesizer=CachedSynthesizer(candidate.synthesizer, store),
        cost_usd=lambda n_chars: 0.0,
    )
    try:
        await tts_bench.learn(cached, texts)
    except StageError as failure:
        raise ConfigError(f"--cached: expected a voice that can speak the texts, got {failure}") from None
    await store.wait_until_written()
    return cached


def _tts_candidate(options: TtsBenchOptions, settings: Settings, stages: Stages, text: str) -> tts_bench.TtsCandidate:
    spec, synthesizer = stage_named(settings, stages, "tts", text)
    voice = Voice(model=spec.model, voice=options.voice, language=options.language)
    return tts_bench.TtsCandidate(text, synthesizer, voice, partial(speech_cost_usd, settings, spec))
