"""Build the work of scheduled benches: one model of one bench, what it can cost at most, and how to measure it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from voicepipe.bench import llm, stt, tts
from voicepipe.bench.llm_prompts import read_prompts
from voicepipe.bench.scheduled.schedule import Schedule
from voicepipe.bench.stt_manifest import read_manifest
from voicepipe.config.benches import BenchEntry
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.ports.model import Model
from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.ports.transcriber import Transcriber, TranscriptionOptions
from voicepipe.registry import Spec, Stage
from voicepipe.turn.cost import Price
from voicepipe.wiring.audio import speech_cost_usd, transcription_usd
from voicepipe.wiring.chat import answer_usd
from voicepipe.wiring.prices import price_of, stt_usd_per_minute_of, tts_usd_per_million_of
from voicepipe.wiring.stages import Stages

MESSAGE_TOKENS: Final = 100
"""What a chat template adds to a request, at most. OpenAI's adds less than 10."""


class MeasuredRequest(Struct, frozen=True):
    """One request of a run."""

    latency_ms: float | None
    """To the first token, the first audible audio or the text; None if there was none."""

    usd: float | None
    """None: its provider has not said what was used."""

    error: str = ""


class BenchJob(Struct, frozen=True, kw_only=True):
    """One model of a scheduled bench."""

    bench: str
    stage: Stage
    model: str
    schedule: Schedule
    request_usd: float
    """The most that one request can cost."""

    requests: int
    """In a run, those that warm caches among them."""

    measure: Callable[[], Awaitable[Sequence[MeasuredRequest]]]

    @property
    def run_usd(self) -> float:
        """Return the most that a run can cost."""
        return self.requests * self.request_usd

    @property
    def subject(self) -> tuple[str, str, str]:
        """Return what is measured: bench, stage and model."""
        return self.bench, self.stage, self.model


def bench_jobs(settings: Settings, stages: Stages) -> Iterator[BenchJob]:
    """Yield the jobs of the settings' benches. Reads the benches' files.

    Raises:
        ConfigError: a provider can't be made, a price is not known, or a file can't be read.
    """
    for name, entry in settings.benches.items():
        for text in dict.fromkeys(entry.models):
            key = f"benches.{name}"
            spec = Spec.parse(text, key=f"{key}.models")
            provider = stages.get(entry.stage, spec, key=f"{key}.models")
            try:
                yield _BUILDERS[entry.stage](settings, name, entry, spec, provider)
            except ConfigError as why:  # a bench's file is named by the option of the command
                raise ConfigError(f"{key}: {why}") from None


def _llm_job(settings: Settings, name: str, entry: BenchEntry, spec: Spec, model: Model) -> BenchJob:
    price = price_of(settings, spec)
    if price is None:
        raise _unpriced(spec, "input_usd_per_million and output_usd_per_million")
    plan = llm.LlmBenchPlan(
        prompts=read_prompts(Path(entry.prompts)) if entry.prompts else llm.PROMPTS,
        n_answers=entry.n,
        at_once=entry.concurrency,
        caches=llm.CACHES[entry.cache],
        max_output_tokens=entry.max_output_tokens,
    )
    candidate = llm.LlmCandidate(str(spec), model, spec.model, partial(answer_usd, settings, spec))

    async def measure() -> list[MeasuredRequest]:
        answers = await llm.measure([candidate], plan, _silent)
        return [MeasuredRequest(None if each.error else each.ttft_ms, each.cost_usd, each.error) for each in answers]

    warming = min(len(plan.prompts), plan.n_answers) if entry.cache == "warm" else 0
    return BenchJob(
        bench=name,
        stage="llm",
        model=str(spec),
        schedule=entry.schedule(name),
        request_usd=_max_usd(price, plan),
        requests=entry.n + warming,
        measure=measure,
    )


def _max_usd(price: Price, plan: llm.LlmBenchPlan) -> float:
    """Return the most that one request can cost: a token is at least one byte."""
    n_bytes = max(len(f"{each.system}{each.user}".encode()) for each in plan.prompts)
    most_expensive = Price(max(price.input_usd, price.cache_write_usd or 0.0), price.output_usd)
    return most_expensive.cost_usd(n_bytes + MESSAGE_TOKENS, plan.max_output_tokens)


def _tts_job(settings: Settings, name: str, entry: BenchEntry, spec: Spec, synthesizer: Synthesizer) -> BenchJob:
    if tts_usd_per_million_of(settings, spec) is None:
        raise _unpriced(spec, "tts_usd_per_million_chars")
    texts = tts.read_texts(Path(entry.texts)) if entry.texts else tts.TEXTS
    cost_usd = partial(speech_cost_usd, settings, spec)
    voice = Voice(model=spec.model, voice=entry.voice, language=entry.language)
    candidate = tts.TtsCandidate(str(spec), synthesizer, voice, cost_usd)

    async def measure() -> list[MeasuredRequest]:
        spoken = await tts.measure([candidate], texts, entry.n, entry.concurrency, _silent)
        return [MeasuredRequest(None if each.error else each.audible_ms, each.cost_usd, each.error) for each in spoken]

    return BenchJob(
        bench=name,
        stage="tts",
        model=str(spec),
        schedule=entry.schedule(name),
        request_usd=max(cost_usd(len(text)) or 0.0 for text in texts),
        requests=entry.n,
        measure=measure,
    )


def _stt_job(settings: Settings, name: str, entry: BenchEntry, spec: Spec, transcriber: Transcriber) -> BenchJob:
    if stt_usd_per_minute_of(settings, spec) is None:
        raise _unpriced(spec, "stt_usd_per_minute")
    utterances = read_manifest(Path(entry.manifest))
    cost_usd = partial(transcription_usd, settings, spec)
    pause_s = stt.PAUSE_MS / 1_000  # it is sent behind each recording, and the vendor bills it
    candidate = stt.SttCandidate(
        str(spec), transcriber, TranscriptionOptions(model=spec.model, language=entry.language), cost_usd
    )

    async def measure() -> list[MeasuredRequest]:
        results = await stt.measure([candidate], utterances, entry.n, entry.concurrency, _silent)
        return [
            MeasuredRequest(each.final_ms, None if each.error else cost_usd(each.duration_s + pause_s), each.error)
            for each in results
        ]

    longest_s = max(len(each.samples) / each.rate_hz for each in utterances(transcriber.capabilities.rate_hz))
    return BenchJob(
        bench=name,
        stage="stt",
        model=str(spec),
        schedule=entry.schedule(name),
        request_usd=cost_usd(longest_s + pause_s) or 0.0,
        requests=entry.n,
        measure=measure,
    )


_BUILDERS: Final[dict[str, Callable[..., BenchJob]]] = {"llm": _llm_job, "tts": _tts_job, "stt": _stt_job}


def _unpriced(spec: Spec, names: str) -> ConfigError:
    return ConfigError(
        f"expected a model with a known price, for bench_schedule.usd_per_day; set providers.{spec.provider}.{names}"
    )


def _silent(what: str, done: int, of: int) -> None:
    """Drop the progress."""


async def jobs_of(settings: Settings, stages: Stages) -> list[BenchJob]:
    """Return the jobs, whose files are read beside the event loop; raises as `bench_jobs`."""
    return await asyncio.to_thread(lambda: list(bench_jobs(settings, stages)))
