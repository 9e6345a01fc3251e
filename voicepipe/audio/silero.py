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

from functools import lru_cache
from importlib.resources import files
from math import exp
from typing import Final

import numpy as np

from voicepipe.audio.onnx_weights import Weights, float_weights
from voicepipe.audio.samples import FULL_SCALE, Samples

RATE_HZ: Final = 16_000
WINDOW_SAMPLES: Final = 512
CONTEXT_SAMPLES: Final = 64

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
    """Weighted sums of `n_rows` rows of inputs. The bias is the last row of the weights, next to a column of ones."""

    __slots__ = ("_rows", "_weights", "inputs")

    def __init__(self, n_rows: int, weights: Weights, bias: Weights) -> None:
        self._weights = np.vstack((weights, bias[None]))
        self._rows = np.ones((n_rows, len(self._weights)), dtype=np.float32)
        self.inputs = self._rows[:, :-1]
        """(n_rows, n_inputs), filled before `sums`."""

    def sums(self, out: Weights) -> None:
        """Write the sums to `out`, (n_rows, n_outputs)."""
        np.matmul(self._rows, self._weights, out=out)

    def rectified(self, out: Weights) -> None:
        """Write the sums to `out`, with negative values set to 0."""
        np.matmul(self._rows, self._weights, out=out)
        np.maximum(out, _ZERO, out=out)


def _by_tap(kernel: Weights) -> Weights:
    """Return a convolution's (n_outputs, n_inputs, n_taps) for rows with the frames of all taps side by side."""
    return kernel.transpose(2, 1, 0).reshape(-1, len(kernel))


def _windows(buffer: Weights, length: int, hop: int) -> Weights:
    """Return stretches of a buffer as rows: a view that follows the buffer's content."""
    return np.lib.stride_tricks.sliding_window_view(buffer, length)[::hop]


class Silero:
    """The model. One instance serves every stream of a thread; the state of each stream is in `SileroState`."""

    def __init__(self) -> None:
        weights = float_weights(files("voicepipe.audio").joinpath("silero_vad.onnx").read_bytes())
        self._prepare_spectra(weights["model.stft.forward_basis_buffer"][:, 0])
        self._prepare_convolutions(weights)
        self._prepare_memory(weights)

    def probability(self, state: SileroState, window: Samples) -> float:
        """Return the probability, 0 to 1, that `window` is speech: int16, (512,) at 16 kHz, the next window of
        `state`'s stream.

        About 0.04 ms of CPU.
        """
        self._take_spectra(state, window)
        self._convolve()
        return self._remember(state)

    # --- four spectra ---------------------------------------------------------------------------

    def _prepare_spectra(self, basis: Weights) -> None:
        """`basis`: (258, 256), the cosines of 129 frequencies, then their sines, under a window."""
        sines = range(_N_BINS + 1, _N_BINS + _NYQUIST)  # the sines of 0 and 8 kHz are zero everywhere
        # The scale is a power of two, so that scaled weights give the same sums as scaled samples.
        self._basis = np.ascontiguousarray(basis[[*range(_N_BINS), *sines]].T) * _SCALE
        sound, end = _zeros(CONTEXT_SAMPLES + WINDOW_SAMPLES + _MIRRORED_SAMPLES), CONTEXT_SAMPLES + WINDOW_SAMPLES
        # Parts of the arrays are kept as views: to take one takes as long as a small sum.
        self._context, self._window, self._mirrored = sound[:CONTEXT_SAMPLES], sound[CONTEXT_SAMPLES:end], sound[end:]
        self._last, self._mirror = sound[end - CONTEXT_SAMPLES : end], sound[end - 2 : end - 2 - _MIRRORED_SAMPLES : -1]
        self._overlapping = _windows(sound, _FRAME_SAMPLES, _HOP_SAMPLES)
        self._frames = _zeros(_N_FRAMES, _FRAME_SAMPLES)
        self._powers = _zeros(_N_FRAMES, _FRAME_SAMPLES)
        self._of_bins, self._of_cosines = self._powers[:, :_N_BINS], self._powers[:, 1:_NYQUIST]
        self._of_sines = self._powers[:, _N_BINS:]
        self._padded = _zeros(_N_FRAMES + 2, _N_BINS)
        """The magnitudes, with a frame of zeros on either side."""

        self._magnitudes = self._padded[1:-1]

    def _take_spectra(self, state: SileroState, window: Samples) -> None:
        self._context[:] = state.context
        self._window[:] = window
        state.context[:] = self._last
        self._mirrored[:] = self._mirror
        self._frames[:] = self._overlapping
        np.matmul(self._frames, self._basis, out=self._powers)
        np.multiply(self._powers, self._powers, out=self._powers)
        np.add(self._of_cosines, self._of_sines, out=self._of_cosines)
        np.sqrt(self._of_bins, out=self._magnitudes)

    # --- four convolutions of three taps ----------------------------------------------------------

    def _prepare_convolutions(self, weights: dict[str, Weights]) -> None:
        kernels = [weights[f"model.encoder.{n}.reparam_conv.weight"] for n in range(4)]
        biases = [weights[f"model.encoder.{n}.reparam_conv.bias"] for n in range(4)]
        # The third convolution sees a frame of zeros before its two, the fourth on either side of its one: these taps
        # are dropped.
        kernels[2], kernels[3] = kernels[2][:, :, 1:], kernels[3][:, :, 1:2]
        self._convolutions = [
            _Layer(n_rows, _by_tap(kernel), bias)
            for n_rows, kernel, bias in zip((_N_FRAMES, 2, 1, 1), kernels, biases, strict=True)
        ]
        behind_zeros = _zeros(_N_FRAMES + 1, len(kernels[0]))
        self._first = behind_zeros[1:]
        """The output of the first convolution, behind a frame of zeros; the second takes every other frame."""

        self._first_taps = _windows(self._padded.ravel(), 3 * _N_BINS, _N_BINS)
        self._second_taps = _windows(behind_zeros.ravel(), 3 * len(kernels[0]), 2 * len(kernels[0]))

    def _convolve(self) -> None:
        first, second, third, fourth = self._convolutions
        first.inputs[:] = self._first_taps
        first.rectified(self._first)
        second.inputs[:] = self._second_taps
        second.rectified(self._halved)
        third.rectified(fourth.inputs)
        fourth.rectified(self._features)

    # --- a memory, and the answer -------------------------------------------------------------------

    def _prepare_memory(self, weights: dict[str, Weights]) -> None:
        cell = "model.decoder.rnn."
        by_input = np.vstack((weights[cell + "weight_ih"].T, weights[cell + "weight_hh"].T))
        bias = weights[cell + "bias_ih"] + weights[cell + "bias_hh"]
        # Input, forget, cell and output gates; here the cell gate comes last. The other three are logistic, which is a
        # tanh of half the argument: so 1 call computes all 4.
        gate_i, gate_f, gate_g, gate_o = np.split(np.vstack((by_input, bias)), 4, axis=1)
        both = np.hstack((gate_i / 2, gate_f / 2, gate_o / 2, gate_g))
        self._gates = _Layer(1, both[:-1], both[-1])
        self._features, self._output = self._gates.inputs[:, :_N_CELLS], self._gates.inputs[0, _N_CELLS:]
        self._halved = self._convolutions[2].inputs.reshape(2, -1)
        self._gated = _zeros(1, 4 * _N_CELLS)
        self._logistic = self._gated[0, : 3 * _N_CELLS]
        self._gate_i, self._gate_f, self._gate_o, self._gate_g = np.split(self._gated[0], 4)
        self._relu = _zeros(_N_CELLS)
        self._answer = weights["model.decoder.decoder.2.weight"].reshape(-1)
        self._answer_bias = float(weights["model.decoder.decoder.2.bias"][0])

    def _remember(self, state: SileroState) -> float:
        cells, output, logistic = state.cells, state.output, self._logistic
        self._output[:] = output
        self._gates.sums(self._gated)
        np.tanh(self._gated, out=self._gated)
        np.multiply(logistic, _HALF, out=logistic)
        np.add(logistic, _HALF, out=logistic)
        np.multiply(self._gate_i, self._gate_g, out=self._gate_i)
        np.multiply(cells, self._gate_f, out=cells)
        np.add(cells, self._gate_i, out=cells)
        np.tanh(cells, out=output)
        np.multiply(output, self._gate_o, out=output)
        np.maximum(output, _ZERO, out=self._relu)
        return 1 / (1 + exp(-float(self._relu.dot(self._answer)) - self._answer_bias))


@lru_cache(maxsize=1)
def shared() -> Silero:
    """Return the model shared by all streams of the listening thread; the first use loads it (about 0.01 s)."""
    return Silero()
