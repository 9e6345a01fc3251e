"""`voicepipe providers`: list the available LLMs, STTs and TTSs with keys and prices; `--probe` calls them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from voicepipe.cli import providers_speech
from voicepipe.cli.connectivity import reached
from voicepipe.cli.local_server import usual_url
from voicepipe.cli.measured_latency import MeasuredModel, measured
from voicepipe.cli.options import ProvidersOptions, environment_key
from voicepipe.cli.probe import ANSWER_TOKENS, PROBE_TIMEOUT_S, QUESTION, Probe, StageOutput, probe, probe_llm
from voicepipe.cli.provider_status import key_of, unhealthy_models
from voicepipe.cli.providers_speech import SpeechLine
from voicepipe.config import Settings, load
from voicepipe.config.settings import LOCAL
from voicepipe.config.speech_vendors import for_stage
from voicepipe.errors import ConfigError, StageError, VoicepipeError
from voicepipe.providers.catalog import ModelFacts
from voicepipe.registry import Spec, Stage
from voicepipe.turn.cost import estimated_tokens
from voicepipe.values import replace

FRAMING_TOKENS: Final = 10
"""Tokens that the framing of a question takes, about."""

FAILED: Final = 1

HEAD: Final = (
    "model",
    "key",
    "reached",
    "USD/M in/out/cached",
    "TTFT said",
    "TTFT here p50/p95",
    "tokens/s said",
    "tokens/s here",
    "evidence",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """One model of one provider."""

    provider: str
    model: str
    """Empty: no model is known by name."""

    in_use: bool
    """An agent uses it as its LLM."""

    key: str
    """`set`, `$NAME missing`, `not needed`, or `no base_url`."""

    evidence: str
    facts: ModelFacts
    measured: MeasuredModel | None
    """Measured in the turns of this server."""

    reached: str = ""
    """How long connecting took, or why it failed; empty: not tried, since the key is missing."""

    now: str = ""
    """The running local server's report about the model, if it is not healthy."""

    probe: Probe | None = None


def run(options: ProvidersOptions) -> int:
    """Print a line for each provider, or for each model of the named providers; 0 unless a probe failed.

    Raises:
        ConfigError: a setting is wrong, or there is no provider of a given name.
    """
    settings = load(options.config, overrides=options.overrides())
    for name in options.names:
        if name not in settings.vendors.providers and name not in settings.providers:
            raise ConfigError(f"providers: expected one of {', '.join(settings.providers)}, got {name!r}")
    llms, speech = asyncio.run(_all_lines(settings, options))
    if options.json:
        plain = [*map(_plain, llms), *map(providers_speech.plain, speech)]
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        tables = ([table(llms)] if llms else []) + ([providers_speech.table(speech)] if speech else [])
        sys.stdout.write("\n".join("".join(f"{text}\n" for text in each) for each in tables))
    probes = [*(line.probe for line in llms), *(line.probe for line in speech)]
    return FAILED if any(each is not None and not each.ok for each in probes) else 0


async def _all_lines(settings: Settings, options: ProvidersOptions) -> tuple[list[ModelLine], list[SpeechLine]]:
    seen = await measured(settings, options.project)
    now = await unhealthy_models(usual_url(settings), environment_key())
    lines_ = [
        replace(line, now=now.get(f"{line.provider}/{line.model}", "")) for line in lines(settings, options.names, seen)
    ]
    speech = list(providers_speech.lines(settings, options.names))
    lines_, speech = await _reached(settings, lines_, speech)
    return await _probed(settings, lines_, speech, set(options.names)) if options.probe else (lines_, speech)


def lines(settings: Settings, names: tuple[str, ...], seen: dict[str, MeasuredModel]) -> Iterator[ModelLine]:
    """Yield the agents' LLMs, then the first model of each other vendor; with `names`, all models of those."""
    used = list(dict.fromkeys(spec for agent in settings.agents for spec in settings.llm_specs(agent)))
    listed_specs = [spec for spec in used if not names or spec.provider in names]
    for name, vendor in settings.vendors.providers.items():
        if names and name not in names:
            continue
        models = list(vendor.models) if names else list(vendor.models)[:1]
        if names or all(spec.provider != name for spec in used):
            listed_specs += [Spec(name, model) for model in models or [""]]
    for spec in dict.fromkeys(listed_specs):
        vendor_facts = settings.vendor(spec.provider)
        yield ModelLine(
            provider=spec.provider,
            model=spec.model,
            in_use=spec in used,
            key=key_of(settings, spec.provider),
            evidence=vendor_facts.evidence.replace("_", " ") if vendor_facts is not None else "your settings",
            facts=settings.facts(spec),
            measured=seen.get(str(spec)),
        )


def table(lines_: list[ModelLine]) -> Iterator[str]:
    """Yield the lines of a table for people; a probe's result follows its model."""
    rows = [HEAD, *(_cells(line) for line in lines_)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row, line in zip(rows, [None, *lines_], strict=True):
        marker = "* " if line is not None and line.in_use else "  "
        yield (marker + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        if line is not None and line.now:
            yield f"    NOW {line.now}"
        if line is not None and line.probe is not None:
            yield f"    {line.probe.summary}"
    yield "* an agent uses it. Prices and speeds are published, not measured here; `--json` names the sources."


def _cells(line: ModelLine) -> tuple[str, ...]:
    facts, here = line.facts, line.measured
    return (
        f"{line.provider}/{line.model or '...'}",
        line.key,
        line.reached or "-",
        "/".join(
            _figure(usd)
            for usd in (facts.input_usd_per_million, facts.output_usd_per_million, facts.cached_usd_per_million)
        ),
        _published([facts.ttft_p50_ms, *(each.ttft_p50_ms for each in facts.other_figures)], " ms"),
        f"{here.ttft_p50_ms}/{here.ttft_p95_ms} ms, {here.turns} turns" if here is not None else "-",
        _published([facts.tokens_per_s, *(each.tokens_per_s for each in facts.other_figures)]),
        _figure(here.tokens_per_s if here is not None else None),
        line.evidence,
    )


async def _reached(
    settings: Settings, llms: list[ModelLine], speech: list[SpeechLine]
) -> tuple[list[ModelLine], list[SpeechLine]]:
    """Connect to each provider that could be called; the local ones need no connection."""
    keys = {**{line.provider: line.key for line in llms}, **{line.provider: line.key for line in speech}}
    stages: tuple[Stage, ...] = ("llm", "stt", "tts")
    urls = {
        (name, stage): for_stage(name, stage, settings.providers[name].connection()).base_url
        for name, key in keys.items()
        if key in ("set", "not needed")
        for stage in stages
    }
    needed = {(line.provider, "llm") for line in llms} | {(line.provider, line.stage) for line in speech}
    took = await reached(url for at, url in urls.items() if url and at in needed)
    return (
        [replace(line, reached=took.get(urls.get((line.provider, "llm"), ""), "")) for line in llms],
        [replace(line, reached=took.get(urls.get((line.provider, line.stage), ""), "")) for line in speech],
    )


def _published(figures: list[int | None] | list[float | None], unit: str = "") -> str:
    """Return the published figures of all sources, the router's own first."""
    return " or ".join(f"{figure:g}{unit}" for figure in figures if figure is not None) or "-"


def _figure(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:g}"


def _plain(line: ModelLine) -> dict[str, object]:
    plain = {"stage": "llm", **msgspec.to_builtins(line)}
    facts = plain.pop("facts")
    del facts["name"]
    return {**plain, **facts}


async def _probed(
    settings: Settings, llms: list[ModelLine], speech: list[SpeechLine], named: set[str]
) -> tuple[list[ModelLine], list[SpeechLine]]:
    """Probe all with a key at the same time; providers on the operator's own machines only when in use or named."""
    from voicepipe.providers.net import connection_pool, http

    probed = [line for line in llms if _is_probed(settings, line, named)]
    probed_speech = [line for line in speech if providers_speech.is_probed(settings, line, named)]
    sys.stderr.write(f"voicepipe: {_bill(probed, probed_speech)}\n")
    async with http.lifetime(), connection_pool.lifetime(), asyncio.TaskGroup() as group:
        answers = [group.create_task(_probe(settings, line), name=f"probe-{line.provider}") for line in probed]
        sounds = [
            group.create_task(providers_speech.probed(settings, line), name=f"probe-{line.spec}")
            for line in probed_speech
        ]
    done = {id(line): task.result() for line, task in zip(probed, answers, strict=True)}
    outcomes = {line: task.result() for line, task in zip(probed_speech, sounds, strict=True)}
    return [done.get(id(line), line) for line in llms], [outcomes.get(line, line) for line in speech]


def _is_probed(settings: Settings, line: ModelLine, named: set[str]) -> bool:
    probed = line.key == "set" or (line.key == "not needed" and (line.in_use or line.provider in named))
    return probed and settings.providers[line.provider].kind not in LOCAL


def _bill(probed: list[ModelLine], probed_speech: list[SpeechLine]) -> str:
    """Return what the probes will cost, as far as prices are known."""
    n_read = int(estimated_tokens(len(QUESTION))) + FRAMING_TOKENS
    llms = [line.facts.cost_usd(input_tokens=n_read, output_tokens=ANSWER_TOKENS) for line in probed]
    costs = [*llms, *map(providers_speech.cost_usd, probed_speech)]
    n_stt = sum(line.stage == "stt" for line in probed_speech)
    whom = f"{len(probed)} models, {n_stt} STTs and {len(probed_speech) - n_stt} TTSs"
    unknown = f", plus {costs.count(None)} without a known price" if None in costs else ""
    return f"probing {whom}, for about {sum(usd or 0.0 for usd in costs):.4f} USD{unknown}"


async def _probe(settings: Settings, line: ModelLine) -> ModelLine:
    from voicepipe.ports.model import Model
    from voicepipe.providers.llm import list_models
    from voicepipe.wiring import Stages

    vendor = settings.vendor(line.provider)
    # Only a self-hosted server itself has the list of its models.
    model = "" if vendor is not None and vendor.self_hosted and not line.in_use else line.model

    async def query() -> StageOutput:
        nonlocal model
        if not model:
            unnamed = Spec(line.provider, "any")
            model = min(await list_models.listed(unnamed, settings.connection(unnamed, key="--probe")), default="")
        if not model:
            raise StageError("llm", provider=line.provider, why="the provider lists no model", retryable=False)
        spec = Spec(line.provider, model)
        found: Model = Stages(settings).get("llm", spec, key="--probe")
        return await probe_llm(found, model)

    result, _ = await probe("llm", f"{line.provider}/{model}", query())
    if not result.ok and model:
        result = replace(result, outcome=result.outcome + await _hint(settings, Spec(line.provider, model)))
    return replace(line, model=model, probe=replace(result, spec=f"{line.provider}/{model}"))


async def _hint(settings: Settings, spec: Spec) -> str:
    """Suggest alternatives to a model that did not answer: its vendor's nearest names, if the vendor has none of that
    name.
    """
    from voicepipe.providers.llm import list_models

    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            known = await list_models.listed(spec, settings.connection(spec, key="--probe"))
    except (VoicepipeError, TimeoutError):
        return ""  # the reason of the failure is enough
    if not known or list_models.has(spec.model, known):
        return ""
    near = list_models.nearest(spec.model, known)
    return (
        f"; the provider lists {', '.join(near)}"
        if near
        else f"; the provider lists {len(known)} models, none with such a name"
    )
