"""`[benches.NAME]`: benches that are measured again and again, and `[bench_schedule]`: their limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from voicepipe.bench.scheduled.schedule import Schedule, parse_schedule
from voicepipe.config.convert import LANGUAGE_TAG, ONE_OR_MORE, between
from voicepipe.config.sources import Leaves
from voicepipe.config.tools import Read
from voicepipe.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchScheduleSettings:
    """The limits of [scheduled benches](benches.md)."""

    usd_per_day: Annotated[float, between(0, 100_000)] = 0.5
    """The most that scheduled benches may cost in a day (UTC). A run that could cost more than is left is left out."""

    usd_per_month: Annotated[float, between(0, 1_000_000)] = 5.0
    """The same for a calendar month (UTC)."""

    drift_share: Annotated[float, between(0, 10)] = 0.2
    """The least change of a median or p95 that counts as drift, as a share of the figure before. It must also be beyond
    chance: 0 lies outside the 99 % interval of the difference."""

    baseline_runs: Annotated[int, between(2, 1_000)] = 10
    """Number of earlier runs that the latest one is compared with."""

    keep_days: Annotated[int, between(31, 36_500)] = 90
    """Days for which runs are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEntry:
    """A `[benches.NAME]`: a bench that is measured again and again."""

    stage: Literal["llm", "stt", "tts"] = "llm"
    """The stage."""

    models: Annotated[tuple[str, ...], ONE_OR_MORE] = ()
    """The models, as `provider/model`. Their prices must be known: in the catalog or `providers.NAME`."""

    every_minutes: Annotated[int | None, between(1, 525_600)] = None
    """The interval. Either this or `at`."""

    at: Annotated[tuple[str, ...], ONE_OR_MORE] = ()
    """Times in UTC, such as `["03:00", "15:00"]` or `["sun 12:30"]`."""

    n: Annotated[int, between(1, 10_000)] = 20
    """Answers of each model in a run."""

    concurrency: Annotated[int, between(1, 1_000)] = 1
    """Concurrent requests."""

    prompts: str = ""
    """For LLMs: a file of questions, as for `voicepipe bench llm --prompts`. Empty: the built-in ones."""

    cache: Literal["cold", "warm"] = "cold"
    """For LLMs. `cold`: each question is unique. `warm`: each was sent before."""

    max_output_tokens: Annotated[int, between(1, 1_000_000)] = 60
    """For LLMs: the most tokens of an answer."""

    texts: str = ""
    """For TTSs: a file with a text on each line. Empty: the built-in ones."""

    voice: str | None = None
    """For TTSs: the voice. Unset: the provider's own choice."""

    manifest: str = ""
    """For STTs: a file of recordings and their texts, as for `voicepipe bench stt --manifest`."""

    language: Annotated[str | None, LANGUAGE_TAG] = None
    """For STTs and TTSs: the language. Unset: the provider's own choice."""

    def schedule(self, name: str) -> Schedule:
        """Return when it is due.

        Raises:
            ConfigError: `every_minutes` or `at` is missing or wrong.
        """
        return parse_schedule(self.every_minutes, self.at, key=f"benches.{name}")


def read_benches(leaves: Leaves, read: Read, check_spec: Callable[[str, str], None]) -> dict[str, BenchEntry]:
    """Return the scheduled benches of the settings.

    Args:
        check_spec: raises ConfigError for a spec of no provider; gets the spec and its key.

    Raises:
        ConfigError: naming the key of a missing or wrong value.
    """
    names = sorted({path[1] for path in leaves if path[0] == "benches" and len(path) > 1})
    return {name: _checked(read(BenchEntry(), ("benches", name), leaves), name, check_spec) for name in names}


def _checked(entry: BenchEntry, name: str, check_spec: Callable[[str, str], None]) -> BenchEntry:
    at = f"benches.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{at}: expected a name of letters, digits, _ and -, at most 64, got {name!r}")
    if not entry.models:
        raise ConfigError(f"{at}.models: expected one or more models as provider/model, got none")
    for spec in entry.models:
        check_spec(spec, f"{at}.models")
    if entry.stage == "stt" and not entry.manifest:
        raise ConfigError(f"{at}.manifest: expected a file of recordings and their texts, got none")
    entry.schedule(name)
    return entry
