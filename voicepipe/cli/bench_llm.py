"""`voicepipe bench llm`: send the same questions to several LLMs and compare how fast each answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from voicepipe.bench.llm import CACHES, PROMPTS, LlmBenchPlan, LlmCandidate, LlmMeasurement, measure
from voicepipe.bench.llm_chart import svg
from voicepipe.bench.llm_prompts import read_prompts
from voicepipe.bench.llm_report import runs, table, write_csv
from voicepipe.cli.bench_run import Report, check_counts, engines, show_progress, stage_named
from voicepipe.cli.options import LlmBenchOptions
from voicepipe.config import Settings
from voicepipe.wiring.chat import answer_usd
from voicepipe.wiring.stages import Stages


def llm(options: LlmBenchOptions, settings: Settings) -> Report:
    """Measure the LLMs.

    Raises:
        ConfigError: a spec or an option is wrong.
    """
    check_counts(options, "n", "concurrency", "max_tokens")
    plan = LlmBenchPlan(
        prompts=read_prompts(options.prompts) if options.prompts is not None else PROMPTS,
        n_answers=options.n,
        at_once=options.concurrency,
        caches=CACHES[options.cache],
        max_output_tokens=options.max_tokens,
    )
    measured = runs(asyncio.run(_measure(settings, options.specs, plan)))
    return Report(
        lines=tuple(table(measured)),
        chart=svg(measured),
        write_csv=lambda path: write_csv(path, measured),
        succeeded=all(each.whole for each in measured),
    )


async def _measure(settings: Settings, specs: Sequence[str], plan: LlmBenchPlan) -> list[LlmMeasurement]:
    stages = Stages(settings)
    candidates = [_candidate(settings, stages, text) for text in dict.fromkeys(specs)]
    async with engines(stages, (("llm", spec) for spec in specs)):
        return await measure(candidates, plan, show_progress)


def _candidate(settings: Settings, stages: Stages, text: str) -> LlmCandidate:
    spec, model = stage_named(settings, stages, "llm", text)
    return LlmCandidate(text, model, spec.model, partial(answer_usd, settings, spec))
