"""`voicepipe check`: probe every stage of every agent, then print the settings in force with their sources."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.audio.samples import Samples, silence
from voicepipe.cli.options import CheckOptions
from voicepipe.cli.probe import Probe, StageOutput, probe, probe_endpoint, probe_llm, probe_stt, probe_tts
from voicepipe.cli.scripted_llm import scripted_llm
from voicepipe.config import OptionRow, Settings, effective, load
from voicepipe.config.settings import STAGES
from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.ports.endpoint_scorer import AudioScorer
from voicepipe.ports.synthesizer import Voice
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.registry import Spec, Stage

ORDER: Final[tuple[Stage, ...]] = ("tts", "stt", "llm")
"""TTS first: its audio is the STT's input."""

FAILED: Final = 1


def run(options: CheckOptions) -> int:
    """Print everything; 0 when all stages answered.

    Raises:
        ConfigError: a setting is wrong, or there is no agent of the given name.
    """
    with scripted_llm(options, _print_line) as check_options:
        return _check(check_options)


def _check(options: CheckOptions) -> int:
    from voicepipe.wiring.terminal import function_warnings

    settings = load(options.config, overrides=options.overrides(), agents=options.agents())
    agents = [options.agent] if options.agent else list(settings.agents)
    if options.agent and options.agent not in settings.agents:
        raise ConfigError(f"--agent: expected one of {', '.join(settings.agents)}, got {options.agent!r}")
    for warning in function_warnings(settings):
        _print_line(warning)
    status = asyncio.run(_try_all(settings, agents))
    _print_line("\nsettings in force:")
    sys.stdout.writelines(f"{line}\n" for line in table(in_force(settings)))
    return status


def in_force(settings: Settings) -> tuple[OptionRow, ...]:
    """Return the settings without those of providers that no agent uses and no source sets."""
    used = {spec.provider for agent in settings.agents.values() for stage in STAGES for spec in agent.specs(stage)}
    written = {key.split(".")[1] for key in settings.origins if key.startswith("providers.")}
    idle = tuple(f"providers.{name}." for name in settings.providers if name not in used | written)
    return tuple(row for row in effective(settings) if not row.key.startswith(idle))


def table(rows: tuple[OptionRow, ...]) -> Iterator[str]:
    """Yield a line for each setting; a line without a source is a default."""
    width = max(len(row.key) for row in rows)
    for row in rows:
        source = "" if row.source == "default" else f"   <- {row.source}"
        yield f"{row.key:<{width}}  {row.value}{source}"


async def _try_all(settings: Settings, agents: list[str]) -> int:
    from voicepipe.telemetry.log import logging_to

    failed = 0
    with logging_to(style="human", level=logging.ERROR):
        async with _providers(settings, agents, _print_line) as providers:
            async for done in _probes(settings, agents, providers):
                _print_line(line(done))
                failed += not done.ok
    _print_line(f"\n{failed} stage{'s' if failed != 1 else ''} failed" if failed else "\nall stages answer")
    return FAILED if failed else 0


def line(done: Probe) -> str:
    """Return the line that reports a probe."""
    first = "" if done.first_ms is None else f"first after {done.first_ms} ms, all after {done.total_ms} ms: "
    return f"{'ok    ' if done.ok else 'FAILED'}  {done.stage}  {done.spec}  {first}{done.outcome}"


Get = Callable[[Stage, Spec, str], Any]
"""(stage, spec, the setting that names it) -> the Transcriber, Model or Synthesizer."""


@dataclass(frozen=True, slots=True)
class _Providers:
    """What makes the providers. Both raise ConfigError when an engine can't run."""

    get: Get
    audio_scorer_of: Callable[[str], AudioScorer | None]
    """An agent's name -> its smart-turn, or None."""


async def _probes(settings: Settings, agents: list[str], providers: _Providers) -> AsyncIterator[Probe]:
    """Probe each stage once, however many agents share it."""
    tried: set[tuple[Stage, Spec, str | None]] = set()
    tried_files: set[str] = {""}
    for name in agents:
        agent, sound = settings.agents[name], silence(0)
        for stage, spec in ((each, spec) for each in ORDER for spec in agent.specs(each)):
            voice = agent.voice if stage == "tts" else None
            if (stage, spec, voice) in tried:
                continue
            tried.add((stage, spec, voice))
            key = f"agents.{name}.{stage}"
            query = _query(providers.get, stage, spec, key, voice, agent.language, sound)
            done, audio = await probe(stage, str(spec), query)
            sound = audio if stage == "tts" else sound
            yield done
        if agent.smart_turn not in tried_files:
            tried_files.add(agent.smart_turn)
            yield (await probe("endpoint", agent.smart_turn, _judged(providers, name, sound)))[0]


async def _judged(providers: _Providers, agent: str, sound: Samples) -> StageOutput:
    scorer = providers.audio_scorer_of(agent)
    assert scorer is not None, "the agent has the setting"
    return await probe_endpoint(scorer, sound)


async def _query(
    get: Get, stage: Stage, spec: Spec, key: str, voice: str | None, language: str | None, sound: Samples
) -> StageOutput:
    provider = get(stage, spec, key)
    match stage:
        case "tts":
            return await probe_tts(provider, Voice(model=spec.model, voice=voice, language=language))
        case "stt":
            return await probe_stt(provider, TranscriptionOptions(model=spec.model, language=language), sound)
        case "llm":
            return await probe_llm(provider, spec.model)


@asynccontextmanager
async def _providers(
    settings: Settings, agents: list[str], print_line: Callable[[str], None]
) -> AsyncIterator[_Providers]:
    """Yield what makes the providers, with the local engine running if one of them needs it.

    An engine that can't run does not stop the probes of other stages: only probes that need it fail, with the
    reason.
    """
    from voicepipe.providers.net import connection_pool, http
    from voicepipe.wiring import Stages
    from voicepipe.wiring.engine import EngineUse, LocalModels

    stages = Stages(settings)
    why_not: dict[EngineUse, str] = {}
    used = ((stage, spec) for name in agents for stage in STAGES for spec in settings.agents[name].specs(stage))
    engines = {use: LocalModels((use,), print_line) for use in (*stages.engines_for(used), *stages.smart_turns(agents))}

    async def keep_running(use: EngineUse) -> None:
        try:
            await engines[use].run()
        except* VoicepipeError as errors:
            why_not[use] = str(errors.exceptions[0])
            engines[use].loaded.set()

    def get(stage: Stage, spec: Spec, key: str) -> Any:
        for use, why in why_not.items():
            if stages.is_served_by(use, spec):
                raise ConfigError(why)
        return stages.get(stage, spec, key=key)

    def audio_scorer_of(agent: str) -> AudioScorer | None:
        for use in stages.smart_turns((agent,)):
            if use in why_not:
                raise ConfigError(why_not[use])
        return stages.audio_scorer_of(agent)

    async with http.lifetime(), connection_pool.lifetime(), asyncio.TaskGroup() as group:
        running = [group.create_task(keep_running(use), name=use.socket_path.stem) for use in engines]
        for engine in engines.values():
            await engine.loaded.wait()
        yield _Providers(get, audio_scorer_of)
        for task in running:
            task.cancel()


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
