"""`voicepipe providers`: who could think, with which key, at what price and how fast; `--probe` asks them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from voicepipe.cli.found_server import usual_url
from voicepipe.cli.options import Options
from voicepipe.cli.probe import PATIENCE_S, Probe, Reply, ask_model, probe
from voicepipe.cli.troubles import told_now
from voicepipe.cli.turns_measured import Measured, measured
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError, StageError, VoicepipeError
from voicepipe.providers.catalog import ModelFacts
from voicepipe.registry import Spec

FAILED: Final = 1

HEAD: Final = (
    "model",
    "key",
    "USD/M in/out/cached",
    "TTFT said",
    "TTFT here p50/p95",
    "tokens/s said",
    "tokens/s here",
    "evidence",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model of one provider."""

    provider: str
    model: str
    """Empty: none is known by name."""

    in_use: bool
    """An agent thinks with it."""

    key: str
    """`set`, `$NAME missing`, `not needed`, or `no base_url`."""

    evidence: str
    facts: ModelFacts
    measured: Measured | None
    """In the turns of this server."""

    now: str = ""
    """What the server that runs here says of it, if it is not well."""

    probe: Probe | None = None


def run(options: Options) -> int:
    """Print a line for each provider, or for each model of those that were named; 0 unless a probe failed.

    Raises:
        ConfigError: a setting is wrong, or there is no provider of a name that was given.
    """
    settings = load(options.config, overrides=options.overrides())
    for name in options.names:
        if name not in settings.vendors.providers and name not in settings.providers:
            raise ConfigError(f"providers: expected one of {', '.join(settings.providers)}, got {name!r}")
    shown = asyncio.run(_shown(settings, options))
    if options.json:
        sys.stdout.write(json.dumps([_plain(line) for line in shown], indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{text}\n" for text in table(shown))
    return FAILED if any(line.probe is not None and not line.probe.ok for line in shown) else 0


async def _shown(settings: Settings, options: Options) -> list[Line]:
    seen = await measured(settings, options.project)
    now = await told_now(usual_url(settings), options.credential)
    shown = [
        replace(line, now=now.get(f"{line.provider}/{line.model}", "")) for line in lines(settings, options.names, seen)
    ]
    return await _probed(settings, shown, set(options.names)) if options.probe else shown


def lines(settings: Settings, names: tuple[str, ...], seen: dict[str, Measured]) -> Iterator[Line]:
    """Yield what the agents think with, then the first model of each other vendor; of `names`, if any, all models."""
    used = list(dict.fromkeys(spec for agent in settings.agents for spec in settings.thinkers(agent)))
    wanted = [spec for spec in used if not names or spec.provider in names]
    for name, vendor in settings.vendors.providers.items():
        if names and name not in names:
            continue
        models = list(vendor.models) if names else list(vendor.models)[:1]
        if names or all(spec.provider != name for spec in used):
            wanted += [Spec(name, model) for model in models or [""]]
    for spec in dict.fromkeys(wanted):
        vendor_facts = settings.vendor(spec.provider)
        yield Line(
            provider=spec.provider,
            model=spec.model,
            in_use=spec in used,
            key=_key(settings, spec.provider),
            evidence=vendor_facts.evidence.replace("_", " ") if vendor_facts is not None else "yours",
            facts=settings.facts(spec),
            measured=seen.get(str(spec)),
        )


def _key(settings: Settings, provider: str) -> str:
    entry = settings.providers[provider]
    if entry.api_key:
        return "set" if entry.base_url else "set, no base_url"
    if entry.api_key_env:
        return f"${entry.api_key_env} missing"
    return "not needed" if entry.base_url or entry.kind == "local" else "no base_url"


def table(shown: list[Line]) -> Iterator[str]:
    """Yield the lines of a table for people; what a probe came to stands below its model."""
    rows = [HEAD, *(_cells(line) for line in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row, line in zip(rows, [None, *shown], strict=True):
        mark = "* " if line is not None and line.in_use else "  "
        yield (mark + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        if line is not None and line.now:
            yield f"    NOW {line.now}"
        if line is not None and line.probe is not None:
            its = line.probe
            first = "" if its.first_ms is None else f"first after {its.first_ms} ms, all after {its.total_ms} ms: "
            yield f"    {'ok' if its.ok else 'FAILED'}  {its.spec}  {first}{its.said}"
    yield "* an agent thinks with it. Prices and speeds are others' claims; `--json` names their sources."


def _cells(line: Line) -> tuple[str, ...]:
    facts, here = line.facts, line.measured
    return (
        f"{line.provider}/{line.model or '...'}",
        line.key,
        "/".join(
            _figure(usd)
            for usd in (facts.input_usd_per_million, facts.output_usd_per_million, facts.cached_usd_per_million)
        ),
        f"{facts.ttft_p50_ms} ms" if facts.ttft_p50_ms is not None else "-",
        f"{here.ttft_p50_ms}/{here.ttft_p95_ms} ms, {here.turns} turns" if here is not None else "-",
        _figure(facts.tokens_per_s),
        _figure(here.tokens_per_s if here is not None else None),
        line.evidence,
    )


def _figure(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:g}"


def _plain(line: Line) -> dict[str, object]:
    plain = asdict(line)
    facts = plain.pop("facts")
    del facts["name"]
    return {**plain, **facts}


async def _probed(settings: Settings, shown: list[Line], named: set[str]) -> list[Line]:
    """Ask each model whose key is set, at once; models on one's own machines only when in use or named."""
    from voicepipe.providers.net import http

    async def done(line: Line) -> Line:
        asked = line.key == "set" or (line.key == "not needed" and (line.in_use or line.provider in named))
        if not asked or settings.providers[line.provider].kind == "local":
            return line
        return await _probe(settings, line)

    async with http.lifetime(), asyncio.TaskGroup() as group:
        tasks = [group.create_task(done(line), name=f"probe-{line.provider}-{line.model}") for line in shown]
    return [task.result() for task in tasks]


async def _probe(settings: Settings, line: Line) -> Line:
    from voicepipe.providers.llm import names
    from voicepipe.stages.model import Model
    from voicepipe.wiring import Stages

    vendor = settings.vendor(line.provider)
    # What a server of one's own has is known to itself alone.
    model = "" if vendor is not None and vendor.yours and not line.in_use else line.model

    async def ask() -> Reply:
        nonlocal model
        if not model:
            nobody = Spec(line.provider, "any")
            model = min(await names.listed(nobody, settings.connection(nobody, key="--probe")), default="")
        if not model:
            raise StageError("llm", provider=line.provider, why="it lists no model", retryable=False)
        spec = Spec(line.provider, model)
        found: Model = Stages(settings).get("llm", spec, key="--probe")
        return await ask_model(found, model)

    result, _ = await probe("llm", f"{line.provider}/{model}", ask())
    if not result.ok and model:
        result = replace(result, said=result.said + await _hint(settings, Spec(line.provider, model)))
    return replace(line, model=model, probe=replace(result, spec=f"{line.provider}/{model}"))


async def _hint(settings: Settings, spec: Spec) -> str:
    """What to try instead of a model that did not answer: its vendor's nearest names, if it has none of that name."""
    from voicepipe.providers.llm import names

    try:
        async with asyncio.timeout(PATIENCE_S):
            known = await names.listed(spec, settings.connection(spec, key="--probe"))
    except (VoicepipeError, TimeoutError):
        return ""  # why the model did not answer says enough
    if not known or names.has(spec.model, known):
        return ""
    near = names.nearest(spec.model, known)
    return f"; it lists {', '.join(near)}" if near else f"; it lists {len(known)} models, none with such a name"
