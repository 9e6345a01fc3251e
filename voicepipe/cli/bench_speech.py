"""`voicepipe bench stt` and `voicepipe bench tts`: one set of inputs for several STTs or TTSs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from voicepipe.bench import stt as ears
from voicepipe.bench import stt_report, tts_report
from voicepipe.bench import tts as mouths
from voicepipe.bench.stt_manifest import read_manifest
from voicepipe.cli.bench_run import Report, check_counts, engines, stage_named, tell
from voicepipe.cli.options import SttBenchOptions, TtsBenchOptions
from voicepipe.config import Settings
from voicepipe.errors import ConfigError, StageError
from voicepipe.router.sound_store import open_store
from voicepipe.router.stored_voice import StoredVoice
from voicepipe.stages.synthesizer import Voice
from voicepipe.stages.transcriber import Hearing
from voicepipe.wiring.audio import heard_usd, spoken_usd
from voicepipe.wiring.stages import Stages

KEPT_BYTES: Final = 256 << 20
"""Limit of the bench's cached speech on disk while the bench runs."""


def stt(options: SttBenchOptions, settings: Settings) -> Report:
    """Measure STTs.

    Raises:
        ConfigError: a spec, an option or a recording is wrong.
    """
    check_counts(options, "n", "concurrency")
    if options.manifest is None:
        raise ConfigError("--manifest: expected a file that names recordings and what is said in them, got none")
    heard = asyncio.run(_hear(options, settings, read_manifest(options.manifest)))
    measured = stt_report.ear_runs(heard)
    return Report(
        lines=tuple(stt_report.table(measured)),
        picture=stt_report.svg(measured),
        write_csv=lambda path: stt_report.write_csv(path, measured),
        succeeded=all(each.whole for each in measured),
    )


async def _hear(
    options: SttBenchOptions, settings: Settings, utterances: Callable[[int], Sequence[ears.Utterance]]
) -> list[ears.Listened]:
    stages = Stages(settings)
    asked = [_ear(options, settings, stages, text) for text in dict.fromkeys(options.specs)]
    async with engines(settings, stages, "stt", options.specs):
        return await ears.measure(asked, utterances, options.n, options.concurrency, tell)


def _ear(options: SttBenchOptions, settings: Settings, stages: Stages, text: str) -> ears.Ear:
    spec, transcriber = stage_named(settings, stages, "stt", text)
    hearing = Hearing(model=spec.model, language=options.language)
    return ears.Ear(text, transcriber, hearing, partial(heard_usd, settings, spec))


def tts(options: TtsBenchOptions, settings: Settings) -> Report:
    """Measure TTSs.

    Raises:
        ConfigError: a spec or an option is wrong.
    """
    check_counts(options, "n", "concurrency")
    texts = mouths.TEXTS if options.texts is None else mouths.read_texts(options.texts)
    measured = tts_report.mouth_runs(asyncio.run(_speak(options, settings, texts)))
    return Report(
        lines=tuple(tts_report.table(measured)),
        picture=tts_report.svg(measured),
        write_csv=lambda path: tts_report.write_csv(path, measured),
        succeeded=all(each.whole for each in measured),
    )


async def _speak(options: TtsBenchOptions, settings: Settings, texts: Sequence[str]) -> list[mouths.Utterance]:
    stages = Stages(settings)
    asked = [_mouth(options, settings, stages, text) for text in dict.fromkeys(options.specs)]
    async with engines(settings, stages, "tts", options.specs), AsyncExitStack() as stack:
        if options.cached:
            asked += [await _kept(stack, mouth, texts[: options.n]) for mouth in asked]
        return await mouths.measure(asked, texts, options.n, options.concurrency, tell)


async def _kept(stack: AsyncExitStack, mouth: mouths.Mouth, texts: Sequence[str]) -> mouths.Mouth:
    """Return the same TTS with the texts cached on disk, as `server.audio_cache_mb` does.

    Raises:
        ConfigError: the TTS could not speak the texts.
    """
    folder = stack.enter_context(TemporaryDirectory(prefix="voicepipe-bench-", ignore_cleanup_errors=True))
    store = await stack.enter_async_context(open_store(Path(folder), most_bytes=KEPT_BYTES))
    kept = replace(
        mouth,
        spec=f"{mouth.spec}, from disk",
        synthesizer=StoredVoice(mouth.synthesizer, store),
        cost_usd=lambda n_chars: 0.0,
    )
    try:
        await mouths.learn(kept, texts)
    except StageError as failure:
        raise ConfigError(f"--cached: expected a voice that can say the texts, got {failure}") from None
    await store.settled()
    return kept


def _mouth(options: TtsBenchOptions, settings: Settings, stages: Stages, text: str) -> mouths.Mouth:
    spec, synthesizer = stage_named(settings, stages, "tts", text)
    voice = Voice(model=spec.model, voice=options.voice, language=options.language)
    return mouths.Mouth(text, synthesizer, voice, partial(spoken_usd, settings, spec))
