"""Attack a server and print what innocent users felt: `python tests/attacks/measure.py [NAME ...]`.

Each attack has a server of its own, and comes from a process of its own. Before it, a control round of the same length
tells what this machine does to the innocent without any attack. All is measured from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import msgspec
from rich.console import Console
from rich.table import Table

from attack import bad_vendors
from attack.bystanders import Experience, bystanders
from attack.catalog import ATTACKS, FUZZERS, Attack
from attack.outcome import Outcome, under_attack
from attack.server import TOML, ServerProcess
from attack.target import Sent, Target
from attack.vendors import vendors

CONTROL_S = 3.0
COLUMNS = (
    "attack",
    "sent",
    "MB sent",
    "worst wait of a frame, ms (without)",
    "turn p50/p95, ms (without)",
    "turns",
    "failed",
    "peak MB",
    "hold CPU, ms",
    "crashed",
    "left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attack's figures."""

    attack: Attack
    without: Experience
    outcome: Outcome

    def cells(self) -> tuple[str, ...]:
        """As they are printed."""
        outcome, felt = self.outcome, self.outcome.felt
        left = outcome.sessions_left + outcome.descriptors_left + outcome.stuck
        return (
            self.attack.name,
            f"{outcome.sent.events:,}",
            f"{outcome.sent.n_bytes / 1e6:.1f}",
            f"{_worst(felt)} ({_worst(self.without)})",
            f"{_middle(felt)} ({_middle(self.without)})",
            str(felt.completed + felt.spoken["completed"]),
            str(len(felt.failed)),
            f"{outcome.peak_mb:.0f}",
            f"<= {outcome.hold_ms:.0f}",
            str(outcome.crashed),
            f"{left:.0f}",
        )


def _worst(felt: Experience) -> str:
    return f"{max(felt.waits_ms):.0f}" if felt.waits_ms else "-"


def _middle(felt: Experience) -> str:
    if len(felt.turns_ms) < 2:
        return "-"
    cuts = quantiles(felt.turns_ms, n=20)
    return f"{cuts[9]:.0f}/{cuts[18]:.0f}"


async def measure(attack: Attack, settings: str, options: argparse.Namespace) -> Row:
    """Run one attack on a fresh server."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), settings)
        server.start()
        try:
            target = server.target(seed=options.seed, scale=options.scale if attack.name in FUZZERS else 1.0)
            async with bystanders(target) as users:
                users.begin_anew()
                await asyncio.sleep(CONTROL_S)
                without = users.begin_anew()
                outcome = await under_attack(server, users, lambda: from_outside(attack.name, target))
        finally:
            server.stop()
        return Row(attack=attack, without=without, outcome=outcome)


async def from_outside(name: str, target: Target) -> Sent:
    """Run an attack in another process, so that it and the innocent don't wait for one another."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--attack", name, json.dumps(msgspec.to_builtins(target))),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SystemExit(f"{name} failed: exit code {process.returncode}")
    found = json.loads(out)
    return Sent(found["events"], found["n_bytes"], Counter(found["seen"]))


def _attack(name: str, target: str) -> None:
    sent = asyncio.run(ATTACKS[name].run(Target(**json.loads(target))))
    sys.stdout.write(json.dumps({"events": sent.events, "n_bytes": sent.n_bytes, "seen": sent.seen}))


def _print(console: Console, rows: list[Row], *, markdown: bool) -> None:
    if markdown:
        lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
        console.print("\n".join(f"| {' | '.join(line)} |" for line in lines), soft_wrap=True, markup=False)
        return
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*row.cells())
    console.print(table)


def main() -> None:
    """Measure the attacks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python tests/attacks/measure.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(ATTACKS)}; none: all")
    parser.add_argument("--seed", type=int, default=7, help="of every random choice")
    parser.add_argument("--scale", type=float, default=1.0, help="how much longer than usual the fuzzers search")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    parser.add_argument("--attack", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        return _attack(*options.names)
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"expected names out of {', '.join(ATTACKS)}, got {', '.join(sorted(unknown))}")
    console, rows = Console(), []
    names = options.names or list(ATTACKS)
    with vendors() as addresses:
        settings = TOML.format(**addresses, server="", more=bad_vendors.agents())
        for n, name in enumerate(names, 1):
            console.print(f"[{n}/{len(names)}] {name}: {ATTACKS[name].says} ...", markup=False, highlight=False)
            rows.append(asyncio.run(measure(ATTACKS[name], settings, options)))
            outcome = rows[-1].outcome
            console.print(f"    saw {dict(outcome.sent.seen.most_common(8))}", markup=False, highlight=False)
            for failed in outcome.felt.failed[:5]:
                console.print(f"    the innocent: {failed}", markup=False, highlight=False)
    _print(console, rows, markdown=options.markdown)
    return None


if __name__ == "__main__":
    main()
