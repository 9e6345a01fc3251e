"""`voicepipe bench llm|stt|tts`: compare providers of a stage with the same work.
`bench load`: measure many sessions. `bench endpointing`: compare end-of-turn rules. `bench compare`: compare two runs.
`bench schedule`: measure the benches of the settings when they are due.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from voicepipe.cli.bench_run import Report
from voicepipe.cli.options import BenchOptions
from voicepipe.config import Settings, load

FAILED = 1

ALONE: Final = ("compare", "endpointing", "load", "schedule")
"""Actions that measure no provider."""

WHERE: Final = {"llm": "bench_llm", "stt": "bench_speech", "tts": "bench_speech"}


def run(options: BenchOptions) -> int:
    """Measure, print the table, write the files; 0 when every provider gave at least one complete answer.

    Raises:
        ConfigError: a setting, a spec or an option is wrong.
    """
    if options.action in ALONE:
        alone: Callable[[Any], int] = import_module(f"voicepipe.cli.bench_{options.action}").run
        return alone(options)
    settings = load(options.config, overrides=options.overrides())
    bench: Callable[[BenchOptions, Settings], Report] = getattr(
        import_module(f"voicepipe.cli.{WHERE[options.action]}"), options.action
    )
    report = bench(options, settings)
    text = "\n".join(report.lines) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{options.action}.md").write_text(text, encoding="utf-8")
        (options.out / f"{options.action}.svg").write_text(report.chart, encoding="utf-8")
        report.write_csv(options.out / f"{options.action}.csv")
    return 0 if report.succeeded else FAILED
