"""`voicepipe bench endpointing`: when end-of-turn rules answer on labelled speech, and how often too soon."""

from __future__ import annotations

import atexit
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from voicepipe.bench.endpointing.chart import svg
from voicepipe.bench.endpointing.measure import trace_all
from voicepipe.bench.endpointing.report import lines, table, write_csv
from voicepipe.bench.endpointing.rules import default_rules, rule_factory
from voicepipe.bench.endpointing.speech_set import RATE_HZ
from voicepipe.bench.endpointing.traces import AudioScore, PauseModels, SentenceEnd
from voicepipe.bench.endpointing.words import LocalWords
from voicepipe.cli.options import EndpointingBenchOptions
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.protocol.session_types import ADAPTIVE_MIDDLE
from voicepipe.providers.local.engine.llama_cpp import LlamaCpp, smollm2
from voicepipe.providers.local.engine.smart_turn import SmartTurn
from voicepipe.providers.local.prerequisites import check_machine, check_packages

NAME = "endpointing"


def run(options: EndpointingBenchOptions) -> int:
    """Measure, print the tables, write the files.

    Raises:
        ConfigError: an option is wrong, a folder has no manifest, or a model is not installed.
    """
    names = options.rule or default_rules(smart_turn=options.smart_turn is not None)
    agent = load(options.config, overrides=options.overrides()).agents["default"]
    silence_ms = round(ADAPTIVE_MIDDLE * agent.silence_ms)
    rules = {name: partial(rule_factory, name, silence_ms) for name in dict.fromkeys(names)}
    for make in rules.values():
        make(0)  # report a wrong name before everything is measured
    try:
        traces = trace_all(options.data, lambda: _models(options), options.traces, _progress, agent.vad)
    except (OSError, msgspec.MsgspecError) as why:
        raise ConfigError(f"bench endpointing: {why}") from why
    results = lines(traces, rules)
    text = "\n".join(table(results))
    sys.stdout.write(text + "\n")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{NAME}.md").write_text(text, encoding="utf-8")
        (options.out / f"{NAME}.svg").write_text(svg(results), encoding="utf-8")
        write_csv(options.out / f"{NAME}.csv", results)
    return 0


def _progress(line: str) -> None:
    sys.stderr.write(f"\r{line}")


def _models(options: EndpointingBenchOptions) -> PauseModels:
    return PauseModels(
        words=None if options.without_words else LocalWords(RATE_HZ),
        sentence_end=None if options.without_words or options.without_sentence_end else _sentence_end(),
        audio_score=None if options.smart_turn is None else _audio_score(options.smart_turn),
    )


def _audio_score(weights: Path) -> AudioScore:
    return partial(SmartTurn(weights, key="--smart-turn").probability, rate_hz=RATE_HZ)


def _sentence_end() -> SentenceEnd:
    """Load the local language model in this process.

    Raises:
        ConfigError: it is not installed, or can't run here.
    """
    check_machine()
    check_packages("llm")
    folder = TemporaryDirectory(prefix="voicepipe-bench-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return LlamaCpp(Path(folder.name) / "llm.sock", smollm2()).sentence_end
