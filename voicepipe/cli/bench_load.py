"""`voicepipe bench load`: how long users wait under load, what a session costs, and who is admitted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.bench.load.admission import AdmissionPlan, admission_lines, measure_admission
from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.measure import LoadPlan, MeasuredRuns, RunningServer, measure
from voicepipe.bench.load.providers import Delays
from voicepipe.bench.load.report import carried, compared, problems, profile_lines, table, write_csv
from voicepipe.bench.load.rows import RowFile
from voicepipe.bench.load.servers import OTHERS_CORE, variant
from voicepipe.bench.load.user import sentence
from voicepipe.bench.load.wire_protocols import RATE_HZ
from voicepipe.cli.options import LoadBenchOptions, environment_key
from voicepipe.errors import ConfigError, VoicepipeError

SOUND: Final = Path(__file__).with_name("probe.flac")
"""What the users say without `--sound`."""

DONE, FAILED, NOTHING = 0, 1, 2


def run(options: LoadBenchOptions) -> int:
    """Measure, print the tables, write the files; 1 when a turn failed, 2 when nothing could be measured.

    Raises:
        ConfigError: an option is wrong.
    """
    _check(options)
    if options.pin:
        os.sched_setaffinity(0, {OTHERS_CORE})
    try:
        frames = sentence(read_sound(options.sound or SOUND, RATE_HZ))
        if options.admission:
            return _admission(options, frames)
        rows = RowFile(options.out)
        measured = run_fast(measure(_plan(options), frames, rows, _progress, _running(options)))
    except ConfigError:
        raise
    except (VoicepipeError, OSError, RuntimeError, ValueError) as why:
        sys.stderr.write(f"bench load: {why}\n")
        return NOTHING
    _write(options, list(_report(options, rows, measured)), "load")
    if options.out is not None and measured.loads:
        write_csv(options.out / "load.csv", measured.loads)
    return FAILED if any(row.n_errors for row in rows.rows) else DONE


def _check(options: LoadBenchOptions) -> None:
    options.overrides()  # report a wrong `--set` before a server does
    for name in options.server:
        variant(name)
    if options.target and (options.profile or options.admission or len(options.server) > 1):
        raise ConfigError("bench load: --target measures one running server, without --profile and --admission")
    for option, number in (("--users", min(options.users)), ("--turns", options.turns), ("--rounds", options.rounds)):
        if number < 1:
            raise ConfigError(f"{option}: expected 1 or more, got {number}")


def _plan(options: LoadBenchOptions) -> LoadPlan:
    return LoadPlan(
        users=options.users,
        turns=options.turns,
        rounds=options.rounds,
        silence_ms=options.silence_ms,
        servers=options.server,
        pin=options.pin,
        profile=options.profile,
        overrides=options.set,
    )


def _running(options: LoadBenchOptions) -> RunningServer | None:
    if options.target is None:
        return None
    return RunningServer(
        name=options.label,
        url=options.target,
        pid=options.pid,
        key=environment_key() or "bench",
        providers_port=options.providers_port,
    )


def _admission(options: LoadBenchOptions, frames: list[Samples]) -> int:
    plan = AdmissionPlan(
        n_users=options.admission,
        turns=options.turns,
        silence_ms=options.silence_ms,
        n_flooded=options.flooded,
        rounds=options.rounds,
        pin=options.pin,
        overrides=options.set,
    )
    admission = run_fast(measure_admission(plan, frames, _progress))
    _write(options, list(admission_lines(admission)), "admission")
    turns = [turn for load in admission.unflooded for turn in load.turns] + admission.arrivals.turns
    return FAILED if any(turn.error for turn in turns) else DONE


def _report(options: LoadBenchOptions, rows: RowFile, measured: MeasuredRuns) -> Iterator[str]:
    yield from table(rows.rows)
    yield ""
    if any(row.minimum_ms is not None for row in rows.rows):
        minimum_ms = Delays().minimum_ms(options.silence_ms)
        yield f"minimum: {minimum_ms} ms with these providers and {options.silence_ms} ms of silence"
    yield from carried(rows.rows)
    if len(options.server) > 1 and measured.loads:
        yield from compared(measured.loads, *options.server[:2])
    yield from problems(measured.loads)
    for name, profile in measured.profiles.items():
        yield ""
        yield from profile_lines(profile, name)


def _write(options: LoadBenchOptions, lines: Sequence[str], name: str) -> None:
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.md").write_text(text, encoding="utf-8")


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
