import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples

Floats = npt.NDArray[np.float32]

SOURCE_SHA256: str

def choose(most: int, /) -> int:
    """Use the loops with vectors of up to `most` bytes (16, 32 or 64); return the length that the processor has."""

def peak(samples: Samples, /) -> int: ...
def first_beyond(samples: Samples, most: int, /) -> int | None: ...
def mean_squares(samples: Samples, n_frame: int, /) -> list[float]: ...
def resample(
    samples: Samples, weights: npt.NDArray[np.float64], out: Samples, block_in: int, block_out: int, /
) -> None: ...
def hop_powers(samples: Samples, n_hop: int, share: float, out: Floats, /) -> None: ...
def silero_features(
    basis: Floats,
    first: Floats,
    second: Floats,
    third: Floats,
    fourth: Floats,
    memory: Floats,
    samples: Samples,
    context: Floats,
    out: Floats,
    /,
) -> None: ...
def silero_advance(by_output: Floats, answer: Floats, features: Floats, output: Floats, cells: Floats, /) -> float: ...
