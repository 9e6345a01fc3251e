"""`voicepipe eval`: hold scripted conversations with an agent, and judge them."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from voicepipe import clock
from voicepipe.agents import Agent
from voicepipe.cli.bench_run import engines
from voicepipe.cli.eval_time import SERVER, refuse_outside_server, refuse_running_server
from voicepipe.cli.local_server import refuse_python_file
from voicepipe.cli.options import EvalOptions
from voicepipe.client import until_ready
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.evals.persona import NamedModel
from voicepipe.evals.report import ScenarioResult, failures_of, html, junit, table
from voicepipe.evals.run import Target, run_scenario, utterances_of
from voicepipe.evals.scenario import Scenario, Scripted, read_scenario, scenario_files, texts
from voicepipe.evals.scripted_models import ScriptedModels
from voicepipe.evals.speech import UserSpeech, UserTts
from voicepipe.evals.virtual_time import run_in_virtual_time
from voicepipe.ports.synthesizer import Voice
from voicepipe.registry import Spec, Stage
from voicepipe.values import replace
from voicepipe.wiring.stages import Stages

PASSED: Final = 0
FAILED: Final = 1

Key = tuple[bool, bool, bool]
"""Which stages of a server are scripted: LLM, STT, TTS. Scenarios with the same share a server."""


def run(options: EvalOptions) -> int:
    """Run all scenarios and report; 0 when all passed, 1 when one failed.

    Raises:
        ConfigError: a scenario, an option or a setting is wrong.
        ServerUnreachable: the named server does not answer.
    """
    if options.runs < 1:
        raise ConfigError(f"--runs: expected 1 or more, got {options.runs}")
    for name, path in (("--junit", options.junit), ("--html", options.html)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{name}: expected a file in a folder that is there, got {path}")
    if not options.scenarios:
        raise ConfigError(
            f"eval: expected a scenario (a YAML file, or a folder of them) beside {options.file}, got none"
        )
    scenarios = [_with_options(read_scenario(path), options) for path in scenario_files(options.scenarios)]
    for scenario in scenarios:
        _check(scenario, options)
    if options.time == "virtual":
        refuse_running_server(options)
    agents = _agents(scenarios, options)
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    results = _run_all(options, scenarios, agents, err)
    _report(options, results, out)
    return PASSED if all(each.passed for each in results) else FAILED


def _queries_models(scenario: Scenario) -> bool:
    """Return whether the eval queries its own models while a scenario runs."""
    return _is_judged(scenario) or any(step.persona for step in scenario.steps)


def _is_judged(scenario: Scenario) -> bool:
    return any(texts(each.judge) for each in scenario.expectations)


def _with_options(scenario: Scenario, options: EvalOptions) -> Scenario:
    models = scenario.models
    models = replace(models, judge=options.judge or models.judge, persona=options.persona or models.persona)
    user = scenario.user if options.user_tts is None else replace(scenario.user, tts=options.user_tts)
    return replace(scenario, models=models, user=user, agent=options.agent or scenario.agent)


def _check(scenario: Scenario, options: EvalOptions) -> None:
    if scenario.scripted is not None and options.url is not None:
        raise ConfigError(f"{scenario.path}: scripted: expected no --url, since a scripted model needs its own server")
    if _is_judged(scenario) and not scenario.models.judge:
        raise ConfigError(
            f"{scenario.path}: models.judge: expected provider/model (or --judge), since it has a `judge`"
        )
    if any(step.persona for step in scenario.steps) and not scenario.models.persona:
        raise ConfigError(f"{scenario.path}: models.persona: expected provider/model (or --persona), got none")


def _agents(scenarios: Sequence[Scenario], options: EvalOptions) -> tuple[Agent, ...]:
    """Return the agents in Python of the server that is started here, which has each scenario's agent.

    Raises:
        ConfigError: it has not, or a server that runs was named and a Python file too.
    """
    if options.url is not None:
        refuse_python_file(options)
        return ()
    agents = options.agents()
    settings = load(options.config, overrides=options.overrides(), agents=agents)
    for scenario in scenarios:
        if scenario.agent is not None and settings.agent_named(scenario.agent) is None:
            place = "--agent" if options.agent else f"{scenario.path}: agent"
            raise ConfigError(f"{place}: expected one of {', '.join(settings.agents)}, got {scenario.agent!r}")
    return agents


def _run_all(
    options: EvalOptions, scenarios: Sequence[Scenario], agents: Sequence[Agent], err: Console
) -> list[ScenarioResult]:
    from voicepipe.telemetry.log import logging_to

    with (
        tempfile.TemporaryDirectory(prefix="vp-eval-", ignore_cleanup_errors=True) as folder,
        logging_to(style="human", level=logging.ERROR),
    ):
        overrides = options.overrides() | _data_dir(options, folder, "own")
        own = _OwnModels(load(options.config, overrides=overrides, agents=agents))

        async def in_real_time() -> list[ScenarioResult]:
            async with AsyncExitStack() as stack:
                await own.open(stack, scenarios)
                return await _converse(options, scenarios, agents, own, folder, err)

        async def in_virtual_time() -> list[ScenarioResult]:
            async with AsyncExitStack() as stack:
                await own.open(stack, [each for each in scenarios if _queries_models(each)])
                return await _converse(options, scenarios, agents, own, folder, err)

        if options.time == "real":
            return asyncio.run(in_real_time())
        asyncio.run(own.speak(scenarios))
        return run_in_virtual_time(in_virtual_time)


async def _converse(
    options: EvalOptions,
    scenarios: Sequence[Scenario],
    agents: Sequence[Agent],
    own: _OwnModels,
    folder: str,
    err: Console,
) -> list[ScenarioResult]:
    results: dict[Path, ScenarioResult] = {}
    for key in dict.fromkeys(_key(scenario) for scenario in scenarios):
        same = [scenario for scenario in scenarios if _key(scenario) == key]
        async with _server(options, agents, key, folder, err) as (url, scripted):
            for scenario in same:
                results[scenario.path] = await _run_runs(options, scenario, own, url, scripted, err)
    return [results[scenario.path] for scenario in scenarios]


def _key(scenario: Scenario) -> Key:
    scripted = scenario.scripted
    return (False, False, False) if scripted is None else (bool(scripted.answers), scripted.stt, scripted.tts)


def _data_dir(options: EvalOptions, folder: str, name: str) -> dict[str, object]:
    """Return the setting of a temporary data folder: turns of evals are no users' turns."""
    return {} if options.data_dir is not None else {"server.data_dir": str(Path(folder) / name)}


async def _run_runs(
    options: EvalOptions, scenario: Scenario, own: _OwnModels, url: str, scripted: ScriptedModels, err: Console
) -> ScenarioResult:
    target = Target(
        url=url,
        key=options.credential,
        speech=own.speech,
        record_speech=scripted.record,
        persona=own.model(scenario.models.persona),
        judge=own.model(scenario.models.judge),
    )
    began_ms, runs = clock.monotonic_ms(), []
    with err.status("") as status:
        for number in range(1, options.runs + 1):
            prefix = f"{scenario.name}, run {number} of {options.runs}"
            status.update(escape(prefix))
            scripted.begin(scenario.scripted or Scripted())
            runs.append(await run_scenario(scenario, target, _progress(status, prefix)))
    result = ScenarioResult(scenario, tuple(runs), clock.monotonic_ms() - began_ms, time=options.time)
    err.print(
        f"{scenario.name}: {result.n_passed} of {len(runs)} runs passed", style="dim", markup=False, soft_wrap=True
    )
    return result


def _progress(status: Status, prefix: str) -> Callable[[str], None]:
    return lambda line: status.update(escape(f"{prefix}, {line}"))


def _report(options: EvalOptions, results: Sequence[ScenarioResult], out: Console) -> None:
    out.print(table(results))
    for each in results:
        lines = list(failures_of(each))
        if lines:
            out.print(f"\n{each.scenario.name} ({each.scenario.path})", markup=False, soft_wrap=True)
        for line in lines:
            out.print(f"  {line}", markup=False, soft_wrap=True)
    for name, path, content in (
        ("--junit", options.junit, junit),
        ("--html", options.html, lambda found: html(found).encode()),
    ):
        if path is not None:
            try:
                path.write_bytes(content(results))
            except OSError as why:
                raise ConfigError(f"{name}: expected a file that can be written, got {path}: {why.strerror}") from why


# --- the server -----------------------------------------------------------------------------------


@asynccontextmanager
async def _server(
    options: EvalOptions, in_python: Sequence[Agent], key: Key, folder: str, err: Console
) -> AsyncIterator[tuple[str, ScriptedModels]]:
    """Yield the address of the server, and the scripted models that it uses, if any."""
    scripted = ScriptedModels()

    def print_line(line: str) -> None:
        err.print(line, style="dim", markup=False)

    if options.url is not None:
        await until_ready(options.url, print_line)
        yield options.url, scripted
        return
    from voicepipe.wiring import running

    async with scripted.serving():
        plain = {"server.tls_dev": "false", "server.tls_cert": "", "server.tls_key": "", "server.drain_ms": "0"}
        here = {"server.host": "127.0.0.1", "server.port": "0", **plain}
        name = "server-" + "".join(str(int(each)) for each in key)
        overrides = options.overrides() | here | _data_dir(options, folder, name)
        agents = load(options.config, overrides=overrides, agents=in_python).agents
        overrides |= _scripted_stages(key, agents, scripted.base_url)
        if options.time == "virtual":
            overrides |= SERVER
        settings = load(options.config, overrides=overrides, agents=in_python)
        if options.time == "virtual":
            refuse_outside_server(settings)
        async with running(settings, print_line=print_line) as server:
            await server.ready.wait()
            yield server.base_url, scripted


def _scripted_stages(key: Key, agents: Iterable[str], base_url: str) -> dict[str, object]:
    stages = [stage for stage, is_scripted in zip(("llm", "stt", "tts"), key, strict=True) if is_scripted]
    chosen: dict[str, object] = {f"agents.{agent}.{stage}": f"scripted/{stage}" for agent in agents for stage in stages}
    return chosen | {"providers.scripted.base_url": base_url} if chosen else {}


# --- models of the eval itself --------------------------------------------------------------------


class _OwnModels:
    """The user's TTS, the persona's and the judge's models: providers of the settings, but not of the server."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._stages = settings, Stages(settings)
        self.speech = UserSpeech(self._tts)

    async def open(self, stack: AsyncExitStack, scenarios: Sequence[Scenario]) -> None:
        """Load the local models among those that the scenarios need, until the stack is closed."""
        needed = [(stage, spec) for stage, specs in self._needed(scenarios).items() for spec in specs]
        if needed:
            await stack.enter_async_context(engines(self._stages, needed))

    async def speak(self, scenarios: Sequence[Scenario]) -> None:
        """Make what the user says in all scenarios, in real time: a TTS runs outside this process.

        Raises:
            ConfigError: a recording or the user's TTS does not work.
        """
        async with AsyncExitStack() as stack:
            await self.open(stack, scenarios)
            for scenario in scenarios:
                await utterances_of(scenario, self.speech)

    def model(self, spec: str) -> NamedModel | None:
        """Return a language model by spec; None for an empty one.

        Raises:
            ConfigError: there is no such model.
        """
        if not spec:
            return None
        parsed = self._parsed(spec, "models")
        return NamedModel(self._stages.get("llm", parsed, key="models"), parsed.model)

    def _tts(self, spec: str, voice: str | None) -> UserTts:
        parsed = self._parsed(spec, "user.tts")
        return UserTts(self._stages.get("tts", parsed, key="user.tts"), Voice(model=parsed.model, voice=voice))

    def _parsed(self, text: str, key: str) -> Spec:
        spec = Spec.parse(text, key=key)
        if spec.provider not in self._settings.providers:
            raise ConfigError(f"{key}: expected a model of a provider of the settings, got {text!r}")
        return spec

    def _needed(self, scenarios: Sequence[Scenario]) -> dict[Stage, list[str]]:
        llms, voices = list[str](), list[str]()
        for each in scenarios:
            llms += [spec for spec in (each.models.judge, each.models.persona) if spec]
            speaks = any(part.text and not part.audio for step in each.steps for part in step.parts)
            if speaks or any(step.persona for step in each.steps):
                voices.append(each.user.tts)
        for key, specs in (("models", llms), ("user.tts", voices)):
            for spec in specs:
                self._parsed(spec, key)
        return {"llm": list(dict.fromkeys(llms)), "tts": list(dict.fromkeys(voices))}
