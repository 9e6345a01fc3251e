"""Under every attack the innocent have all their turns, and nothing of it is left in the server."""

from __future__ import annotations

import pytest

from attack.bystanders import bystanders
from attack.catalog import ATTACKS, Attack
from attack.outcome import Outcome, under_attack
from attack.server import ServerProcess
from tests.cpu_speed import slowness

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOLD_MS = 100
"""Of CPU time, the most that the loop may be held without a break; on a slower processor longer, as `slowness`
says."""

HOLD = "ms of CPU time in one hold of the loop"
TRIES = 3
"""The shortest hold of so many attacks counts. What shares the processor and its caches makes a hold longer, in CPU
time too, and nothing makes one shorter: a fault of the server is in each attack."""

MEMORY_MB = 400


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_attack_leaves_the_others_alone(attack: Attack, server: ServerProcess) -> None:
    """Judged by counts, bytes and CPU time, which a busy machine does not change."""
    target = server.target()
    async with bystanders(target) as users:
        for _ in range(TRIES):
            outcome = await under_attack(server, users, lambda: attack.run(target))
            found = faults(attack, outcome)
            if not all(HOLD in each for each in found) or not found:
                break
    assert not found, "\n".join([*found, f"seen: {dict(outcome.sent.seen)}", server.log()[-3_000:]])


def faults(attack: Attack, outcome: Outcome) -> list[str]:
    """What is wrong, in words."""
    seen, felt = outcome.sent.seen, outcome.felt
    found = [f"the innocent: {each}" for each in felt.failed]
    found += [] if felt.completed else ["the innocent had no written turn"]
    found += [f"expected {n} of {name!r}, got {dict(seen)}" for name, n in attack.sees.items() if seen[name] < n]
    found += [f"saw {name!r} {n} times" for name, n in seen.items() if name.startswith(attack.never or ("\0",))]
    bounds = {
        "MB that memory grew": (outcome.growth_mb, attack.growth_mb),
        "MB of memory": (outcome.peak_mb, MEMORY_MB),
        HOLD: (outcome.hold_ms, HOLD_MS * slowness()),
        "lines `crashed`": (outcome.crashed, 0),
        "stuck sessions": (outcome.stuck, 0),
        "sessions left": (outcome.sessions_left, 0),
        "descriptors left": (outcome.descriptors_left, 0),
    }
    found += [
        f"expected at most {most:.0f} {what}, got {got:.0f}" for what, (got, most) in bounds.items() if got > most
    ]
    return found
