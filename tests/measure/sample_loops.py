"""Measure the loops over samples, in numpy and in C with each length of vectors.

    python -m tests.measure.sample_loops

The time is the least of several rounds, which take turns: other work on the machine makes a round slower, never faster.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable
from typing import Final

import numpy as np

from voicepipe.audio import levels, resample, samples
from voicepipe.audio.compiled import IS_COMPILED, WHY_NUMPY, kernels
from voicepipe.audio.samples import Samples
from voicepipe.audio.silero import WINDOW_SAMPLES, Silero, SileroState

ROUNDS: Final = 7
CALLS: Final = 500
VECTOR_BYTES: Final = (16, 32, 64)

Work = dict[str, Callable[[], object]]
"""What is measured: its name, and a call."""


def noise(n_samples: int) -> Samples:
    return np.random.default_rng(1).normal(0, 1_000, n_samples).astype(np.int16)


def classify(model: Silero, n_windows: int) -> Callable[[], object]:
    state, audio = SileroState(), noise(n_windows * WINDOW_SAMPLES)
    return lambda: [model.probability(state, features) for features in model.read(state, audio)]


def work(*, in_c: bool) -> Work:
    """Return the work of the audio of a session, by these loops."""
    model, shared, n_blocks = Silero(in_c=in_c), resample._filter(24_000, 16_000), 10
    wide, out = noise(2 * shared.reach + n_blocks * shared.block_in), noise(n_blocks * shared.block_out)
    hops, powers = noise(10 * levels.HOP_SAMPLES + 1), np.empty((2, 10), dtype=np.float32)
    frames = noise(5 * 320)
    filter_blocks = kernels.resample if in_c else resample._in_numpy
    hop_powers = kernels.hop_powers if in_c else levels._in_numpy
    mean_squares = kernels.mean_squares if in_c else samples._mean_squares
    peak = kernels.peak if in_c else samples._peak
    return {
        "VAD model, a window of 32 ms": classify(model, 1),
        "VAD model, three windows": classify(model, 3),
        f"24 to 16 kHz, {1_000 * len(out) // 16_000} ms": lambda: filter_blocks(
            wide, shared.weights, out, shared.block_in, shared.block_out
        ),
        "levels of 100 ms": lambda: hop_powers(hops, levels.HOP_SAMPLES, 0.97, powers),
        "mean squares of 100 ms": lambda: mean_squares(frames, 320),
        "highest sample of 100 ms": lambda: peak(frames),
    }


def measured() -> dict[str, dict[str, float]]:
    """Return the least time of a call in us: by loops, and by what they do."""
    kinds: dict[str, tuple[int, Work]] = {"numpy": (0, work(in_c=False))}
    if IS_COMPILED:
        kinds |= {f"C, {n} bytes": (n, work(in_c=True)) for n in VECTOR_BYTES if kernels.choose(n) == n}
    least: dict[str, dict[str, float]] = {name: {} for name in kinds}
    for _ in range(ROUNDS):
        for kind, (vector_bytes, calls) in kinds.items():
            if vector_bytes:
                kernels.choose(vector_bytes)
            for name, call in calls.items():
                us = 1_000_000 * timeit.timeit(call, number=CALLS) / CALLS
                least[kind][name] = min(us, least[kind].get(name, us))
    return least


def main() -> None:
    """Print the table."""
    if not IS_COMPILED:
        sys.stderr.write(f"SKIPPED: the loops in C: {WHY_NUMPY or 'there are none for this machine'}\n")
    found = measured()
    rows = [["us a call", *found], ["---"] * (1 + len(found))]
    rows += [[name, *(f"{times[name]:.1f}" for times in found.values())] for name in found["numpy"]]
    sys.stdout.write("".join(f"| {' | '.join(row)} |\n" for row in rows))


if __name__ == "__main__":
    main()
