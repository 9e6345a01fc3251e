"""What only the loops in C can get wrong. The tests of both are in test_kernels.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from voicepipe.audio import resample, samples, silero
from voicepipe.audio.compiled import IS_COMPILED, WHY_NUMPY, kernels
from voicepipe.audio.samples import silence
from voicepipe.audio.silero import CONTEXT_SAMPLES, MAX_WINDOWS, WINDOW_SAMPLES, SileroState

WEIGHTS = np.zeros((64, 32))


@pytest.fixture(autouse=True, params=[16, 32, 64])
def vector_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    """Use the loops with vectors of this length, or with the longest that the processor has; they must be compiled."""
    assert IS_COMPILED, WHY_NUMPY or "there are no loops in C for this machine"
    yield kernels.choose(request.param)
    kernels.choose(64)


def filtered(n_samples: int = 64, n_out: int = 32, block_in: int = 48, block_out: int = 32) -> None:
    kernels.resample(silence(n_samples), WEIGHTS, silence(n_out), block_in, block_out)


def features(n_samples: int = WINDOW_SAMPLES, n_context: int = CONTEXT_SAMPLES, n_windows: int = 1) -> None:
    network = silero.shared()._networks[0]
    assert isinstance(network, silero._CompiledNetwork)
    context, out = np.zeros(n_context, dtype=np.float32), np.zeros((n_windows, 512), dtype=np.float32)
    basis, first, second, third, fourth, memory = network._weights
    window = silence(n_samples)
    kernels.silero_features(basis, first, second, third, fourth, memory, window, context, out)


def hop_powers(n_samples: int = 321, n_hop: int = 160, n_hops: int = 2) -> None:
    kernels.hop_powers(silence(n_samples), n_hop, 0.97, np.zeros((2, n_hops), dtype=np.float32))


def advanced(n_features: int = 512, n_cells: int = 128) -> None:
    weights, answer, row = (np.zeros(n, dtype=np.float32) for n in (128 * 512, 128, n_features))
    kernels.silero_advance(weights, answer, row, np.zeros(128, dtype=np.float32), np.zeros(n_cells, dtype=np.float32))


def test_vectors_are_no_longer_than_requested(vector_bytes: int) -> None:
    assert vector_bytes in (16, 32, 64)
    assert vector_bytes <= kernels.choose(64)
    assert kernels.choose(vector_bytes) == vector_bytes
    assert kernels.choose(0) == 16
    with pytest.raises(TypeError):
        kernels.choose("long")  # type: ignore[arg-type]


def test_the_loops_are_used() -> None:
    assert samples.peak is kernels.peak
    assert samples.mean_squares is kernels.mean_squares
    assert resample._filter_blocks is kernels.resample


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernels.peak(silence(0)), "expected samples"),
        (lambda: kernels.first_beyond(silence(8), -1), "expected a level of 0 to 32767"),
        (lambda: kernels.first_beyond(silence(8), 40_000), "expected a level of 0 to 32767"),
        (lambda: kernels.first_beyond(silence(8).view(np.uint16), 1), "expected a row of samples, int16"),
        (lambda: kernels.first_beyond(silence(8).reshape(2, 4), 1), "expected a row of samples, int16"),
        (lambda: kernels.mean_squares(silence(321), 320), "expected whole frames"),
        (lambda: kernels.mean_squares(silence(320), 0), "expected whole frames"),
        (lambda: filtered(n_samples=63), "expected the samples of each block"),
        (lambda: filtered(n_out=64, n_samples=64), "expected the samples of each block"),
        (lambda: filtered(n_out=33), "expected whole blocks of output"),
        (lambda: filtered(n_out=0), "expected whole blocks of output"),
        (lambda: filtered(block_out=31), "expected whole rows of weights"),
        (lambda: filtered(block_in=-1), "expected a block of samples"),
        (lambda: filtered(block_in=2**62), "expected a block of samples"),
        (lambda: filtered(block_out=2**62), "expected whole rows of weights"),
        (lambda: kernels.mean_squares(silence(320), 2**62), "expected whole frames"),
        (lambda: hop_powers(n_hop=2**62), "expected hops of a multiple of 16 samples"),
        (lambda: hop_powers(n_hop=2**56), "expected a sample and whole hops"),
        (lambda: features(n_samples=WINDOW_SAMPLES - 1), "expected 1 to 3 windows"),
        (lambda: features(n_samples=(MAX_WINDOWS + 1) * WINDOW_SAMPLES), "expected 1 to 3 windows"),
        (lambda: features(n_context=CONTEXT_SAMPLES - 1), "expected a context"),
        (lambda: features(n_windows=2), "expected output for each window"),
        (lambda: hop_powers(n_samples=160), "expected a sample and whole hops"),
        (lambda: hop_powers(n_samples=322), "expected a sample and whole hops"),
        (lambda: hop_powers(n_hop=0), "expected hops of a multiple of 16 samples"),
        (lambda: hop_powers(n_hop=8), "expected hops of a multiple of 16 samples"),
        (lambda: advanced(n_features=511), "expected the arrays of the model"),
        (lambda: advanced(n_cells=127), "expected the arrays of the model"),
    ],
)
def test_a_wrong_length_is_an_error(call: Callable[[], None], words: str) -> None:
    """Nothing is read or written beyond a buffer."""
    with pytest.raises(ValueError, match=words):
        call()


def test_samples_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises((BufferError, ValueError)):
        kernels.peak(silence(64)[::2])


def test_output_that_is_read_only_is_refused() -> None:
    out = silence(32)
    out.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        kernels.resample(silence(64), WEIGHTS, out, 48, 32)


def test_weights_at_an_odd_address_are_refused_and_samples_are_read() -> None:
    answer = np.frombuffer(b"\0" * 513, dtype=np.uint8)[1:].view(np.float32)
    arrays = [np.zeros(n, dtype=np.float32) for n in (128 * 512, 512, 128, 128)]
    with pytest.raises(ValueError, match="expected the arrays of the model"):
        kernels.silero_advance(arrays[0], answer, *arrays[1:])
    odd = np.frombuffer(bytes(range(1, 66)), dtype=np.uint8)[1:].view(np.int16)
    assert kernels.peak(odd) == int(odd.max())
    assert kernels.mean_squares(odd, 32) == [float(np.square(odd.astype(float)).mean())]


def test_silero_memory_is_that_of_numpy() -> None:
    """To the fifth digit after a thousand windows, quiet ones and others that saturate every gate."""
    rng, states = np.random.default_rng(1), (SileroState(), SileroState())
    by_output, answer = (rng.normal(0, 0.1, shape).astype(np.float32) for shape in ((128, 512), 128))
    compiled, plain = silero._CompiledMemory(by_output, answer), silero._Memory(by_output, answer)
    for number in range(1_000):
        row = rng.normal(0, (0, 0.1, 1, 30)[number % 4], 512).astype(np.float32)
        assert compiled.advance(states[0], row) == pytest.approx(plain.advance(states[1], row), abs=1e-4)
        assert np.abs(states[0].cells - states[1].cells).max() < 1e-4
        assert np.abs(states[0].output - states[1].output).max() < 1e-4


def test_silero_features_are_those_of_numpy() -> None:
    """To 5 digits after the point, and the context to the last bit, whatever was read before."""
    rng, compiled, plain = np.random.default_rng(1), silero.Silero(in_c=True), silero.Silero(in_c=False)
    for n_windows in (1, 2, 3, 1, 3):
        windows = rng.normal(0, 3_000, n_windows * WINDOW_SAMPLES).astype(np.int16)
        states = SileroState(), SileroState()
        for state in states:
            state.restart(windows[:CONTEXT_SAMPLES])
        found, expected = compiled.read(states[0], windows), plain.read(states[1], windows)
        assert np.abs(found - expected).max() < 1e-5
        assert np.array_equal(states[0].context, states[1].context)
