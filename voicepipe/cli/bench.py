"""`voicepipe bench llm`: the same questions to several language models, and how fast each answered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

from voicepipe.bench.llm import CACHES, PROMPTS, Answer, Candidate, Plan, measure
from voicepipe.bench.llm_picture import svg
from voicepipe.bench.llm_prompts import read_prompts
from voicepipe.bench.llm_report import runs, table, write_csv
from voicepipe.cli.options import Options
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.providers.net import http
from voicepipe.registry import Spec
from voicepipe.wiring.chat import answer_usd
from voicepipe.wiring.engine import LocalModels
from voicepipe.wiring.routes import LOCAL
from voicepipe.wiring.stages import Stages

FAILED = 1


def run(options: Options) -> int:
    """Measure, print the table, write the files; 0 when every model gave at least one whole answer.

    Raises:
        ConfigError: a setting, a spec or an option is wrong.
    """
    settings = load(options.config, overrides=options.overrides())
    plan = _plan(options)
    answers = asyncio.run(_measure(settings, options.specs, plan))
    measured = runs(answers)
    report = "\n".join(table(measured)) + "\n"
    sys.stdout.write(report)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "llm.md").write_text(report, encoding="utf-8")
        (options.out / "llm.svg").write_text(svg(measured), encoding="utf-8")
        write_csv(options.out / "llm.csv", measured)
    return 0 if all(each.whole for each in measured) else FAILED


def _plan(options: Options) -> Plan:
    for name in ("n", "concurrency", "max_tokens"):
        value = getattr(options, name)
        if value < 1:
            raise ConfigError(f"--{name.replace('_', '-')}: expected 1 or more, got {value}")
    return Plan(
        prompts=read_prompts(options.prompts) if options.prompts is not None else PROMPTS,
        n_answers=options.n,
        at_once=options.concurrency,
        caches=CACHES[options.cache],
        max_output_tokens=options.max_tokens,
    )


async def _measure(settings: Settings, specs: Sequence[str], plan: Plan) -> list[Answer]:
    stages = Stages(settings)
    candidates = [_candidate(settings, stages, text) for text in dict.fromkeys(specs)]
    local = any(settings.providers[Spec.parse(each.spec).provider].kind == LOCAL for each in candidates)
    engine = LocalModels(stages.engine_socket, ("llm",) if local else (), _say)
    async with http.lifetime(), asyncio.TaskGroup() as group:
        running = group.create_task(engine.run(), name="local-engine")
        await engine.loaded.wait()
        answers = await measure(candidates, plan, _tell)
        running.cancel()
    return answers


def _candidate(settings: Settings, stages: Stages, text: str) -> Candidate:
    spec = Spec.parse(text, key="SPEC")
    if spec.provider not in settings.providers:
        known = ", ".join(settings.providers)
        raise ConfigError(f"SPEC: expected a model of one of the providers {known}, got {text!r}")
    model = stages.get("llm", spec, key=f"bench llm {text}")
    return Candidate(text, model, spec.model, partial(answer_usd, settings, spec))


def _tell(what: str, done: int, of: int) -> None:
    """A line that is written over on a terminal; in a file only the last of each."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}: {done} of {of}" + ("\n" if done == of else ""))
        sys.stderr.flush()
    elif done == of:
        _say(f"{what}: {done} of {of}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
