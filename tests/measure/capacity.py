"""Compare `voicepipe simulate capacity` with a real run: CPU and turn latency of one server on one core.

`python -m tests.measure.capacity --sound FILE --users 20 60 120 --fit 10 40 100`: runs the load bench, fits the costs
of the event loop to the CPU of the numbers of users in `--fit`, and prints what the simulation says of the others
beside what was measured, with the deviation. `--out FILE` writes the fitted costs for `simulate capacity --costs FILE`.
The machine must be quiet: another process on the server's core counts as the server's delay. So the run ends where the
bench's own frames are late. With `--loads FILE` each number of users is stored when it is measured, and a run again
measures only the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from voicepipe.audio.files import read_sound
from voicepipe.bench.capacity_loop import Costs, Talk, fitted, simulate_loop
from voicepipe.bench.load.concurrent_users import LoadRun
from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.measure import LoadPlan, measure
from voicepipe.bench.load.providers import ANSWER, Delays
from voicepipe.bench.load.report import latencies_ms
from voicepipe.bench.load.rows import RowFile
from voicepipe.bench.load.servers import OTHERS_CORE
from voicepipe.bench.load.user import FRAME_MS, PAUSE_MS, sentence
from voicepipe.bench.load.wire_protocols import RATE_HZ
from voicepipe.errors import VoicepipeError

MAX_DEVIATION: Final = 0.10

MAX_LATE_MS: Final = 10
"""With frames that are later the machine is busy, and latencies say little; see web/docs/measured.md."""

MAX_FAILED: Final = 0.2
"""With more failed turns the server can't hold the users: a larger number is not measured."""


def talk_of(sound: Path, silence_ms: int, loads: Sequence[LoadRun]) -> Talk:
    """Return how the bench's users talk, with the length of the answers that they got."""
    delays = Delays()
    answers_ms = [turn.sound_ms for load in loads for turn in load.turns if turn.sound_ms and not turn.error]
    return Talk(
        speech_ms=len(sentence(read_sound(sound, RATE_HZ))) * FRAME_MS,
        answer_ms=round(float(np.median(answers_ms))),
        pause_ms=PAUSE_MS,
        silence_ms=silence_ms,
        stt_ms=delays.stt_ms,
        llm_ms=delays.llm_ms,
        token_ms=delays.token_ms,
        tts_ms=delays.tts_ms,
        tokens=len(ANSWER.split()),
    )


def cpu_share(loads: Sequence[LoadRun], n_users: int) -> float:
    """Return the share of a core that the server used with that many users.

    Raises:
        ValueError: it was not measured.
    """
    shares = [load.cost.cpu_pct / 100 for load in loads if load.n_users == n_users and load.cost is not None]
    if not shares:
        raise ValueError(f"expected the CPU of a run with {n_users} users, got none")
    return float(np.mean(shares))


def comparison(loads: Sequence[LoadRun], users: Sequence[int], talk: Talk, costs: Costs) -> Iterator[tuple[str, float]]:
    """Yield a line of the table and its largest deviation for each number of users."""
    for n_users in users:
        same = [load for load in loads if load.n_users == n_users]
        waited = latencies_ms(same)
        failed = sum(bool(turn.error) for load in same for turn in load.turns)
        simulated = simulate_loop(n_users, talk, costs)
        pairs = [
            (100 * cpu_share(loads, n_users) / n_users, 100 * simulated.cpu_share / n_users, ".2f"),
            *(
                (
                    float(np.percentile(waited, 100 * share)) if waited else float("nan"),
                    simulated.latency_ms(share),
                    ".0f",
                )
                for share in (0.5, 0.95)
            ),
        ]
        off = [simulation / measurement - 1 for measurement, simulation, _ in pairs]
        cells = [f"{m:{form}} / {s:{form}} ({100 * d:+.0f} %)" for (m, s, form), d in zip(pairs, off, strict=True)]
        worst = max((abs(each) for each in off), default=0.0)
        yield f"| {n_users} | {' | '.join(cells)} | {failed} |", float("inf") if worst != worst or failed else worst


def costs_toml(costs: Costs) -> str:
    """Return the costs as `voicepipe simulate capacity --costs` reads them."""
    return "".join(f"{each.name} = {getattr(costs, each.name):.6g}\n" for each in fields(costs))


def run_load(options: argparse.Namespace) -> list[LoadRun]:
    """Run the load bench: one server, with every number of users.

    Raises:
        ValueError: the machine is too busy.
    """
    users = sorted([*{*options.fit, *options.users}] * options.rounds)
    return measured_loads(users, options.loads, lambda n: _run_one(n, options))


def measured_loads(users: Sequence[int], stored: Path | None, measure_one: Callable[[int], LoadRun]) -> list[LoadRun]:
    """Return a run with each number of users, once for each time that it is in `users`: one of the file `stored`, or a
    new one, which is added to it.

    The first number that the server can't hold is the last one.

    Raises:
        ValueError: the machine is too busy.
    """
    known = stored_loads(stored)
    loads: list[LoadRun] = []
    for n_users in users:
        is_known = bool(known.get(n_users))
        load = known[n_users].pop(0) if is_known else measure_one(n_users)
        if load.late_p95_ms > MAX_LATE_MS:
            raise ValueError(
                f"the machine is too busy: with {n_users} users the bench's own frames came {load.late_p95_ms:.0f} ms "
                f"late (p95), expected at most {MAX_LATE_MS}"
            )
        if stored is not None and not is_known:
            with stored.open("ab") as file:
                file.write(msgspec.json.encode(load) + b"\n")
        loads.append(load)
        if is_full(load):
            _progress(f"{n_users} users: more than {MAX_FAILED:.0%} of the turns failed; no larger number is measured")
            break
    return loads


def is_full(load: LoadRun) -> bool:
    """Return whether the server can't hold the users."""
    return sum(bool(turn.error) for turn in load.turns) > MAX_FAILED * len(load.turns)


def stored_loads(file: Path | None) -> dict[int, list[LoadRun]]:
    """Return the runs of a file, by number of users, in order; none where there is no file."""
    known: dict[int, list[LoadRun]] = {}
    if file is not None and file.exists():
        for line in file.read_bytes().splitlines():
            load = msgspec.json.decode(line, type=LoadRun)
            known.setdefault(load.n_users, []).append(load)
    return known


def _run_one(n_users: int, options: argparse.Namespace) -> LoadRun:
    plan = LoadPlan(
        users=(n_users,),
        turns=options.turns,
        rounds=1,
        silence_ms=options.silence_ms,
        pin=options.pin,
        overrides=("server.head_room=false",),  # so that 120 users are let in
    )
    frames = sentence(read_sound(options.sound, RATE_HZ))
    return run_fast(measure(plan, frames, RowFile(None), _progress)).loads[0]


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def report(loads: Sequence[LoadRun], options: argparse.Namespace) -> tuple[str, Costs, bool]:
    """Return the report, the fitted costs, and whether every figure is within `MAX_DEVIATION`.

    Raises:
        ValueError: the costs can't be fitted.
    """
    talk = talk_of(options.sound, options.silence_ms, loads)
    costs = fitted([(n_users, cpu_share(loads, n_users)) for n_users in options.fit], talk)
    most = min((load.n_users for load in loads if is_full(load)), default=max(options.users))
    lines = list(comparison(loads, [n_users for n_users in options.users if n_users <= most], talk, costs))
    head = [
        "| users | CPU a user, % | turn latency p50, ms | turn latency p95, ms | failed turns |",
        "|" + " --- |" * 5,
    ]
    *few, many = options.fit
    note = f"measured / simulated (deviation); costs fitted to the CPU with {', '.join(map(str, few))} and {many} users"
    within = len(lines) == len(options.users) and all(worst <= MAX_DEVIATION for _, worst in lines)
    return "\n".join([*head, *(line for line, _ in lines), "", note]) + "\n", costs, within


def main(arguments: list[str] | None = None, *, loads: Sequence[LoadRun] | None = None) -> int:
    """Print the table; 1 when a figure deviates by more than a tenth, 2 when nothing could be measured.

    `loads` are runs that were measured before.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.measure.capacity", description=__doc__)
    parser.add_argument("--sound", type=Path, required=True, help="what users say: a few seconds of one voice")
    parser.add_argument("--users", type=int, nargs="+", default=[20, 60, 120], metavar="N", help="compared (20 60 120)")
    parser.add_argument("--fit", type=int, nargs="+", default=[10, 40, 100], metavar="N", help="fitted to (10 40 100)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each user (5)")
    parser.add_argument("--rounds", type=int, default=1, help="runs with each number of users, whose mean counts (1)")
    parser.add_argument("--silence-ms", type=int, default=200, help="the silence that ends a turn (200)")
    parser.add_argument("--pin", action="store_true", help="the server on the first core, all else on the second")
    parser.add_argument(
        "--loads", type=Path, metavar="FILE", help="store the runs there; a run again measures the rest"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the fitted costs to this TOML file")
    options = parser.parse_args(arguments)
    if options.pin:
        os.sched_setaffinity(0, {OTHERS_CORE})
    try:
        measured = run_load(options) if loads is None else loads
        text, costs, within = report(measured, options)
    except (VoicepipeError, OSError, RuntimeError, ValueError) as why:
        sys.stderr.write(f"capacity: {why}\n")
        return 2
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(costs_toml(costs))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
