"""Silero VAD: the probability that 32 ms of audio is speech.

The model is `silero_vad_16k_op15.onnx` of the silero-vad package 6.2.3 (MIT, notice in `silero_vad.LICENSE`), kept
beside this file as `silero_vad.onnx`, sha256 7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49.

Only the weights of that file are used; its graph is computed here, in numpy. A general runtime takes more than twice
as long: it also runs the hundreds of small steps around the few that matter, and its convolutions are slow for 4
frames. The results agree to 5 digits, which a test checks against onnxruntime.

A window, with the 64 samples before it and 64 more mirrored at its end, gives 4 spectra. Four convolutions over the
spectra give 128 features. An LSTM of 128 cells takes the features; a weighted sum of its output is the probability
of speech.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import exp
from typing import Final

import numpy as np

from voicepipe.audio.compiled import IS_COMPILED, kernels
from voicepipe.audio.onnx_weights import Weights, float_weights
from voicepipe.audio.samples import FULL_SCALE, Samples

RATE_HZ: Final = 16_000
WINDOW_SAMPLES: Final = 512
CONTEXT_SAMPLES: Final = 64

MAX_WINDOWS: Final = 3
"""The most windows of one `Silero.read`: 96 of the 100 ms that a session processes at once. From four on the library
starts threads for the products, and takes several times as long."""

_SCALE: Final = np.float32(1 / FULL_SCALE)
_HALF: Final = np.array(0.5, dtype=np.float32)
_ZERO: Final = np.array(0, dtype=np.float32)
"""As arrays: numpy converts a number anew for each call."""

_MIRRORED_SAMPLES: Final = 64
_FRAME_SAMPLES: Final = 256
_HOP_SAMPLES: Final = 128
_N_FRAMES: Final = 4
_N_CELLS: Final = 128
_NYQUIST: Final = _FRAME_SAMPLES // 2

_N_BINS: Final = _NYQUIST + 1
"""The magnitudes of 0 Hz to 8 kHz."""

_PANEL: Final = 32
"""Outputs whose sums `_kernels.c` keeps in the processor's registers."""


class SileroState:
    """The model's state for one stream: its recurrent state and the last samples. 1.3 KB."""

    __slots__ = ("cells", "context", "output")

    def __init__(self) -> None:
        self.context: Weights = _zeros(CONTEXT_SAMPLES)
        """(64,): the samples before the next window, in units of int16."""

        self.output: Weights = _zeros(_N_CELLS)
        self.cells: Weights = _zeros(_N_CELLS)

    def restart(self, context: Samples) -> None:
        """Reset the stream; continue after `context`, int16, (<= 64,), the samples just before the next window."""
        for array in (self.output, self.cells, self.context):
            array[:] = 0
        if len(context):
            self.context[-len(context) :] = context


def _zeros(*shape: int) -> Weights:
    return np.zeros(shape, dtype=np.float32)


class _Layer:
    """Weighted sums of rows of inputs. The bias is the last row of the weights, next to a column of ones."""

    __slots__ = ("_products", "_weights", "inputs", "sums")

    def __init__(self, n_rows: int, weights: Weights, n_products: int = 1) -> None:
        """`weights`: (n_inputs + 1, n_outputs), with the bias."""
        self._weights = weights
        rows = np.ones((n_rows, len(weights)), dtype=np.float32)
        self.inputs = rows[:, :-1]
        """(n_rows, n_inputs), filled before `compute`."""

        self.sums: Weights = _zeros(n_rows, weights.shape[1])
        """(n_rows, n_outputs)."""

        self._products = _products(rows, self.sums, n_products)

    def compute(self) -> None:
        """Fill `sums`."""
        for rows, sums in self._products:
            rows.dot(self._weights, sums)


def _products(rows: Weights, sums: Weights, n_products: int) -> list[tuple[Weights, Weights]]:
    """Return the rows and their sums in `n_products` parts, each of them small enough for one thread.

    For products of over 2**18 multiplications OpenBLAS wakes a thread for each core. They stay awake for tens of ms,
    and on a busy machine the caller waits for them as long.
    """
    return list(zip(np.split(rows, n_products), np.split(sums, n_products), strict=True))


def _by_tap(kernel: Weights) -> Weights:
    """Return a convolution's (n_outputs, n_inputs, n_taps) for rows with the frames of all taps side by side."""
    return kernel.transpose(2, 1, 0).reshape(-1, len(kernel))


def _windows(buffer: Weights, length: int, hop: int) -> Weights:
    """Return windows of each row of a buffer, (n_rows, n_windows, length): a view that follows the buffer's
    content."""
    return np.lib.stride_tricks.sliding_window_view(buffer, length, axis=1)[:, ::hop]


def _with_bias(weights: Weights, bias: Weights) -> Weights:
    return np.vstack((weights, bias[None]))


class _Network:
    """The part of the model without a memory, for a number of windows at once: samples in, what the LSTM adds out.

    Several windows take little longer than one: most of the time goes into loading the weights, and into the steps
    around a product.
    """

    def __init__(self, n_windows: int, weights: _NetworkWeights) -> None:
        self._prepare_spectra(n_windows, weights.basis)
        self._prepare_convolutions(n_windows, weights)

    def read(self, state: SileroState, samples: Samples) -> Weights:
        """Return what the LSTM adds for each window, (n_windows, 512)."""
        self._take_spectra(state, samples)
        self._convolve()
        return self._last_layer.sums.copy()

    # --- four spectra a window ------------------------------------------------------------------

    def _prepare_spectra(self, n_windows: int, basis: Weights) -> None:
        self._n_windows, self._basis = n_windows, basis
        end = CONTEXT_SAMPLES + WINDOW_SAMPLES
        sound = _zeros(n_windows, end + _MIRRORED_SAMPLES)
        # Parts of the arrays are kept as views: to take one takes as long as a small sum.
        self._contexts, self._first_context = sound[1:, :CONTEXT_SAMPLES], sound[0, :CONTEXT_SAMPLES]
        self._windows, self._mirrored = sound[:, CONTEXT_SAMPLES:end], sound[:, end:]
        self._ends, self._last = sound[:-1, end - CONTEXT_SAMPLES : end], sound[-1, end - CONTEXT_SAMPLES : end]
        self._mirror = sound[:, end - 2 : end - 2 - _MIRRORED_SAMPLES : -1]
        self._overlapping = _windows(sound, _FRAME_SAMPLES, _HOP_SAMPLES)
        frames = _zeros(n_windows, _N_FRAMES, _FRAME_SAMPLES)
        self._frames = frames
        self._powers = _zeros(n_windows * _N_FRAMES, _FRAME_SAMPLES)
        self._spectra = _products(frames.reshape(-1, _FRAME_SAMPLES), self._powers, n_windows)
        self._of_cosines, self._of_sines = self._powers[:, 1:_NYQUIST], self._powers[:, _N_BINS:]
        self._of_bins = self._powers.reshape(n_windows, _N_FRAMES, -1)[:, :, :_N_BINS]
        self._padded = _zeros(n_windows, _N_FRAMES + 2, _N_BINS)
        """The magnitudes, with a frame of zeros on either side."""

        self._magnitudes = self._padded[:, 1:-1]

    def _take_spectra(self, state: SileroState, samples: Samples) -> None:
        self._first_context[:] = state.context
        self._windows[:] = samples.reshape(self._n_windows, WINDOW_SAMPLES)
        if self._n_windows > 1:
            self._contexts[:] = self._ends
        state.context[:] = self._last
        self._mirrored[:] = self._mirror
        self._frames[:] = self._overlapping
        for frames, powers in self._spectra:
            frames.dot(self._basis, powers)  # half a microsecond less than `matmul`
        np.multiply(self._powers, self._powers, out=self._powers)
        np.add(self._of_cosines, self._of_sines, out=self._of_cosines)
        np.sqrt(self._of_bins, out=self._magnitudes)

    # --- four convolutions of three taps, and the LSTM's sums -------------------------------------

    def _prepare_convolutions(self, n_windows: int, weights: _NetworkWeights) -> None:
        first, *others = weights.layers
        layers = [
            _Layer(n_windows * _N_FRAMES, first, n_windows),
            *(_Layer(n_windows * n_rows, each) for n_rows, each in zip((2, 1, 1), others, strict=True)),
        ]
        self._layers, self._last_layer = layers, _Layer(n_windows, weights.memory)
        n_first = layers[0].sums.shape[1]
        behind_zeros = _zeros(n_windows, _N_FRAMES + 1, n_first)
        self._first = behind_zeros[:, 1:]
        """The output of the first convolution, behind a frame of zeros; the second takes every other frame."""

        self._first_sums = layers[0].sums.reshape(self._first.shape)
        self._first_inputs = layers[0].inputs.reshape(n_windows, _N_FRAMES, -1)
        self._first_taps = _windows(self._padded.reshape(n_windows, -1), 3 * _N_BINS, _N_BINS)
        self._second_inputs = layers[1].inputs.reshape(n_windows, 2, -1)
        self._second_taps = _windows(behind_zeros.reshape(n_windows, -1), 3 * n_first, 2 * n_first)
        self._second_sums = layers[1].sums.reshape(n_windows, -1)

    def _convolve(self) -> None:
        first, second, third, fourth = self._layers
        self._first_inputs[:] = self._first_taps
        first.compute()
        np.maximum(self._first_sums, _ZERO, out=self._first)
        self._second_inputs[:] = self._second_taps
        second.compute()
        np.maximum(self._second_sums, _ZERO, out=third.inputs)
        third.compute()
        np.maximum(third.sums, _ZERO, out=fourth.inputs)
        fourth.compute()
        np.maximum(fourth.sums, _ZERO, out=self._last_layer.inputs)
        self._last_layer.compute()


@dataclass(frozen=True, slots=True)
class _NetworkWeights:
    """What the networks of all numbers of windows share; each layer with its bias."""

    basis: Weights
    layers: tuple[Weights, ...]
    memory: Weights


class _CompiledNetwork:
    """The same in C, for any number of windows. It adds in another order: the sixth digit may differ."""

    def __init__(self, weights: _NetworkWeights) -> None:
        self._weights = [_by_panel(each) for each in (weights.basis, *weights.layers, weights.memory)]

    def read(self, state: SileroState, samples: Samples) -> Weights:
        """Return what the LSTM adds for each window, (n_windows, 512)."""
        sums: Weights = np.empty((len(samples) // WINDOW_SAMPLES, 4 * _N_CELLS), dtype=np.float32)
        basis, first, second, third, fourth, memory = self._weights
        kernels.silero_features(basis, first, second, third, fourth, memory, samples, state.context, sums)
        return sums


def _by_panel(weights: Weights) -> Weights:
    """Return a layer's weights as C reads them: 32 outputs after 32 outputs, (n_outputs / 32, n_rows, 32)."""
    return np.ascontiguousarray(weights.reshape(len(weights), -1, _PANEL).transpose(1, 0, 2))


def _basis(basis: Weights) -> Weights:
    """`basis`: (258, 256), the cosines of 129 frequencies, then their sines, under a window."""
    sines = range(_N_BINS + 1, _N_BINS + _NYQUIST)  # the sines of 0 and 8 kHz are zero everywhere
    # The scale is a power of two, so that scaled weights give the same sums as scaled samples.
    return np.ascontiguousarray(basis[[*range(_N_BINS), *sines]].T) * _SCALE


def _convolutions(weights: dict[str, Weights]) -> tuple[Weights, ...]:
    kernels = [weights[f"model.encoder.{n}.reparam_conv.weight"] for n in range(4)]
    biases = [weights[f"model.encoder.{n}.reparam_conv.bias"] for n in range(4)]
    # The third convolution gets a frame of zeros before its two, the fourth on either side of its one: these taps
    # are dropped.
    kernels[2], kernels[3] = kernels[2][:, :, 1:], kernels[3][:, :, 1:2]
    return tuple(_with_bias(_by_tap(kernel), bias) for kernel, bias in zip(kernels, biases, strict=True))


class _Memory:
    """The LSTM, and the weighted sum of its output."""

    def __init__(self, by_output: Weights, answer: Weights) -> None:
        self._by_output, self._answer = by_output, answer
        self._gated = _zeros(4 * _N_CELLS)
        self._logistic = self._gated[: 3 * _N_CELLS]
        self._gate_i, self._gate_f, self._gate_o, self._gate_g = np.split(self._gated, 4)
        self._relu = _zeros(_N_CELLS)

    def advance(self, state: SileroState, features: Weights) -> float:
        """Change the state by the next window, whose row of features this is; return the sum of its output."""
        cells, output, logistic = state.cells, state.output, self._logistic
        output.dot(self._by_output, self._gated)
        np.add(self._gated, features, out=self._gated)
        np.tanh(self._gated, out=self._gated)
        np.multiply(logistic, _HALF, out=logistic)
        np.add(logistic, _HALF, out=logistic)
        np.multiply(self._gate_i, self._gate_g, out=self._gate_i)
        np.multiply(cells, self._gate_f, out=cells)
        np.add(cells, self._gate_i, out=cells)
        np.tanh(cells, out=output)
        np.multiply(output, self._gate_o, out=output)
        np.maximum(output, _ZERO, out=self._relu)
        return float(self._relu.dot(self._answer))


class _CompiledMemory:
    """The same in C. It adds in another order, and has another tanh: the fifth digit of the probability may differ."""

    def __init__(self, by_output: Weights, answer: Weights) -> None:
        self._by_output, self._answer = _by_panel(by_output), answer

    def advance(self, state: SileroState, features: Weights) -> float:
        """Change the state by the next window, whose row of features this is; return the sum of its output."""
        return kernels.silero_advance(self._by_output, self._answer, features, state.output, state.cells)


class Silero:
    """The model. One instance serves every stream of a thread; the state of each stream is in `SileroState`."""

    def __init__(self, *, in_c: bool = IS_COMPILED) -> None:
        """Read the weights.

        Args:
            in_c: whether it is computed by the loops in C, or in numpy.
        """
        weights = float_weights(files("voicepipe.audio").joinpath("silero_vad.onnx").read_bytes())
        cell = "model.decoder.rnn."
        # Input, forget, cell and output gates; here the cell gate comes last. The other three are logistic, which is a
        # tanh of half the argument: so 1 call computes all 4.
        by_input, by_output = (_gates(weights[cell + name].T) for name in ("weight_ih", "weight_hh"))
        bias = _gates((weights[cell + "bias_ih"] + weights[cell + "bias_hh"])[None])[0]
        of_network = _NetworkWeights(
            _basis(weights["model.stft.forward_basis_buffer"][:, 0]),
            _convolutions(weights),
            _with_bias(by_input, bias),
        )
        self._networks: list[_Network | _CompiledNetwork] = (
            [_CompiledNetwork(of_network)] * MAX_WINDOWS
            if in_c
            else [_Network(n, of_network) for n in range(1, MAX_WINDOWS + 1)]
        )
        # In the file it lies at an odd offset: a copy has the alignment that C needs.
        answer = weights["model.decoder.decoder.2.weight"].reshape(-1).copy()
        self._memory = _CompiledMemory(by_output, answer) if in_c else _Memory(by_output, answer)
        self._answer_bias = float(weights["model.decoder.decoder.2.bias"][0])

    def read(self, state: SileroState, samples: Samples) -> Weights:
        """Return what `probability` takes for each of the next windows of `state`'s stream, (n_windows, 512): of
        `samples`, int16, (n_windows * 512,) at 16 kHz, 1 to `MAX_WINDOWS` windows.

        About 0.03 ms of CPU, and 0.01 ms for each further window.
        """
        return self._networks[len(samples) // WINDOW_SAMPLES - 1].read(state, samples)

    def probability(self, state: SileroState, features: Weights) -> float:
        """Return the probability, 0 to 1, that the next window of `state`'s stream is speech; `features` is its row of
        `read`.

        About 0.015 ms of CPU.
        """
        return 1 / (1 + exp(-self._memory.advance(state, features) - self._answer_bias))


def _gates(weights: Weights) -> Weights:
    """Return the weights of the four gates, (n_inputs, 512), in the order and scale of `Silero`."""
    gate_i, gate_f, gate_g, gate_o = np.split(weights, 4, axis=1)
    # By rows, like the inputs: with columns the library takes another way, up to ten times as long for three windows.
    return np.ascontiguousarray(np.hstack((gate_i / 2, gate_f / 2, gate_o / 2, gate_g)))


@lru_cache(maxsize=1)
def shared() -> Silero:
    """Return the model shared by all streams of the listening thread; the first use loads it (about 0.01 s)."""
    return Silero()
