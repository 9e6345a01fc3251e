"""`voicepipe bench compare`: fail when users wait longer than before."""

from __future__ import annotations

import sys

from voicepipe.bench.compare import MIN_TURNS, compare, table
from voicepipe.bench.compare_runs import read_run
from voicepipe.cli.options import CompareOptions
from voicepipe.config import load
from voicepipe.errors import ConfigError

WITHIN, WORSE, TOO_FEW = 0, 1, 2


def run(options: CompareOptions) -> int:
    """Compare two runs and print the table; 1 when the second exceeds the allowed change, 2 when it is undecidable.

    Raises:
        RunError: a run has no turns.
        ConfigError: a bound is negative.
    """
    min_turns = MIN_TURNS if options.min_turns is None else options.min_turns
    for name, value in (("--p95-ms", options.p95_ms), ("--misses", options.misses), ("--min-turns", min_turns - 1)):
        if value < 0:
            raise ConfigError(f"{name}: expected {'1' if name == '--min-turns' else '0'} or more")
    limit_ms = load(options.config, overrides=options.overrides()).budget.total_ms
    before, after = (read_run(path, limit_ms=limit_ms) for path in options.files)
    compared = compare(before, after, p95_ms=options.p95_ms, misses=options.misses, min_turns=min_turns)
    sys.stdout.write("\n".join(table(compared)) + "\n")
    if not compared.enough:
        return TOO_FEW
    return WORSE if compared.worse else WITHIN
