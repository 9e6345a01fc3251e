"""Silero VAD: how surely is this 32 ms of sound speech?

The model is `silero_vad_16k_op15.onnx` of the silero-vad package 6.2.3 (MIT, notice in `silero_vad.LICENSE`), kept
beside this file as `silero_vad.onnx`, sha256 7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49.
Its inputs: 64 samples of context and 512 new ones at 16 kHz, and a recurrent state of (2, batch, 128).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import FULL_SCALE, Samples

RATE_HZ: Final = 16_000
WINDOW_SAMPLES: Final = 512
CONTEXT_SAMPLES: Final = 64

_SCALE: Final = np.float32(1 / FULL_SCALE)


class SileroState:
    """What the model remembers of one stream: its recurrent state and the last samples. 3 KB."""

    __slots__ = ("memory", "sound")

    def __init__(self) -> None:
        self.sound: npt.NDArray[np.float32] = np.zeros((1, CONTEXT_SAMPLES + WINDOW_SAMPLES), dtype=np.float32)
        """(1, 576): context, then the window; rows of several streams make a batch."""
        self.memory: npt.NDArray[np.float32] = np.zeros((2, 1, 128), dtype=np.float32)

    def restart(self, context: Samples) -> None:
        """Forget the stream; go on behind `context`, int16, (<= 64,), the samples just before the next window."""
        self.memory = np.zeros((2, 1, 128), dtype=np.float32)
        self.sound[:] = 0
        if len(context):
            np.multiply(context, _SCALE, out=self.sound[0, -len(context) :])


class Silero:
    """The model. One serves every stream of the process: what differs between them is in `SileroState`."""

    def __init__(self) -> None:
        import onnxruntime  # type: ignore[import-untyped]  # 0.15 s of CPU: paid by the first caller, not by every import

        options = onnxruntime.SessionOptions()
        # One thread, which doesn't spin between windows: many streams share few cores.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = files("voicepipe.audio").joinpath("silero_vad.onnx").read_bytes()
        self._run: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run
        self._rate: npt.NDArray[np.int64] = np.array(RATE_HZ, dtype=np.int64)

    def probability(self, state: SileroState, window: Samples) -> float:
        """How likely is `window`, int16, (512,) at 16 kHz, the next of `state`'s stream, to be speech: 0 to 1.

        About 0.12 ms of CPU, without the interpreter's lock while the model runs.
        """
        sound = state.sound
        sound[0, :CONTEXT_SAMPLES] = sound[0, WINDOW_SAMPLES:]
        np.multiply(window, _SCALE, out=sound[0, CONTEXT_SAMPLES:])
        answer, state.memory = self._run(None, {"input": sound, "state": state.memory, "sr": self._rate})
        return float(answer[0, 0])


@lru_cache(maxsize=1)
def shared() -> Silero:
    """The process's one model, loaded by the first call (about 0.2 s with onnxruntime): make that call at start."""
    return Silero()
