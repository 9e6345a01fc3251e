"""`voicepipe simulate capacity`: how many cores and nodes a number of users needs, in virtual time."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.bench.capacity_fleet import Balance, Calls, LoopCurve, loops_needed
from voicepipe.bench.capacity_loop import Costs, Talk
from voicepipe.bench.capacity_report import capacity_line, capacity_table, write_capacity_csv
from voicepipe.cli.options import CapacityOptions
from voicepipe.errors import ConfigError
from voicepipe.server.head_room import HeadRoom

BALANCES: Final[dict[str, Balance]] = {"random": "random", "least": "least"}

RANGES: Final = {
    "call_s": (10, 86_400),
    "speech_ms": (200, 60_000),
    "answer_ms": (200, 60_000),
    "pause_ms": (0, 60_000),
    "silence_ms": (20, 10_000),
    "stt_ms": (0, 10_000),
    "llm_ms": (0, 10_000),
    "tts_ms": (0, 10_000),
    "spread": (0, 2),
    "failures": (0, 0.9),
    "lost_nodes": (0, 10_000),
    "cores": (1, 1_024),
    "refused": (0.0001, 0.5),
}
"""Option -> its least and its largest value."""


def run(options: CapacityOptions) -> int:
    """Simulate, and print the table.

    Raises:
        ConfigError: an option or the file of costs is wrong.
    """
    for name, (least, most) in RANGES.items():
        if not least <= getattr(options, name) <= most:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option}: expected {least} to {most}, got {getattr(options, name)}")
    for users in options.users:
        if not 1 <= users <= 1_000_000:
            raise ConfigError(f"--users: expected 1 to 1000000, got {users}")
    talk = Talk(
        speech_ms=options.speech_ms,
        answer_ms=options.answer_ms,
        pause_ms=options.pause_ms,
        silence_ms=options.silence_ms,
        stt_ms=options.stt_ms,
        llm_ms=options.llm_ms,
        tts_ms=options.tts_ms,
        spread=options.spread,
        failures=options.failures,
    )
    curve = LoopCurve(talk, Costs() if options.costs is None else read_costs(options.costs))
    lines = []
    for users in options.users:
        load = loops_needed(
            Calls(users=users, call_s=options.call_s, lost_nodes=options.lost_nodes),
            curve,
            HeadRoom,
            loops_per_node=options.cores,
            balance=BALANCES[options.balance],
            max_refused=options.refused,
            seed=options.seed,
        )
        lines.append(capacity_line(users, load, curve))
    sys.stdout.write("\n".join(capacity_table(lines)) + "\n")
    if options.csv is not None:
        try:
            write_capacity_csv(options.csv, lines)
        except OSError as why:
            raise ConfigError(f"--csv: expected a file that can be written, got {options.csv}: {why.strerror}") from why
    return 0


def read_costs(path: Path) -> Costs:
    """Read the costs of a machine, as `tests.measure.capacity` writes them.

    Raises:
        ConfigError: the file can't be read, or a cost is unknown or negative.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = next((name for name in values if name not in Costs.__slots__), None)
        if unknown is not None:
            raise ConfigError(f"--costs: {path}: {unknown}: expected one of {', '.join(Costs.__slots__)}")
        costs = msgspec.convert(values, Costs)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as why:
        raise ConfigError(f"--costs: {path}: expected a TOML file of numbers, got {why}") from None
    for name in Costs.__slots__:
        if getattr(costs, name) < 0:
            raise ConfigError(f"--costs: {path}: {name}: expected 0 or more, got {getattr(costs, name)}")
    return costs
