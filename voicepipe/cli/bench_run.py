"""Parts of the stage benches: providers by spec, the local engines while they run, and progress lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicepipe.cli.options import BenchOptions
from voicepipe.config import Settings
from voicepipe.errors import ConfigError
from voicepipe.providers.net import connection_pool, http
from voicepipe.registry import Spec, Stage
from voicepipe.wiring.engine import LocalModels
from voicepipe.wiring.stages import Stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a bench."""

    lines: Sequence[str]
    """The table and its notes, in Markdown."""

    chart: str
    """SVG."""

    write_csv: Callable[[Path], None]
    succeeded: bool
    """Every measured provider gave at least one complete answer."""


def check_counts(options: BenchOptions, *names: str) -> None:
    """Check that these options are 1 or more.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise ConfigError(f"--{name.replace('_', '-')}: expected 1 or more, got {value}")


def stage_named(settings: Settings, stages: Stages, stage: Stage, text: str) -> tuple[Spec, Any]:
    """Return the parsed spec, and its Transcriber, Model or Synthesizer.

    Raises:
        ConfigError: there is no such provider, or it can't be made.
    """
    spec = Spec.parse(text, key="SPEC")
    if spec.provider not in settings.providers:
        known = ", ".join(settings.providers)
        raise ConfigError(f"SPEC: expected a model of one of the providers {known}, got {text!r}")
    return spec, stages.get(stage, spec, key=f"bench {stage} {text}")


@asynccontextmanager
async def engines(stages: Stages, needed: Iterable[tuple[Stage, str]]) -> AsyncIterator[None]:
    """Run the local engines for the duration of the block, if any of the specs needs one."""
    engine = LocalModels(stages.engines_for((stage, Spec.parse(spec)) for stage, spec in needed), print_line)
    async with http.lifetime(), connection_pool.lifetime(), asyncio.TaskGroup() as group:
        running = group.create_task(engine.run(), name="local-engine")
        await engine.loaded.wait()
        yield
        running.cancel()


def show_progress(what: str, done: int, of: int) -> None:
    """Print progress: on a terminal a line that is overwritten, in a file only the last line of each."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}: {done} of {of}" + ("\n" if done == of else ""))
        sys.stderr.flush()
    elif done == of:
        print_line(f"{what}: {done} of {of}")


def print_line(line: str) -> None:
    """Print a progress line to stderr, apart from the report."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
