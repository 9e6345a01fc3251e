"""The judge: the right file, sane verdicts, streams that don't disturb one another."""

from __future__ import annotations

import hashlib
import time
from importlib.resources import files

import numpy as np
import onnxruntime
import pytest

from tests.audio.conftest import Clip
from voicepipe.audio import silero
from voicepipe.audio.samples import Samples, silence
from voicepipe.audio.silero import CONTEXT_SAMPLES, MAX_WINDOWS, WINDOW_SAMPLES, SileroState


def probabilities(
    state: SileroState, samples: Samples, n_at_once: int = 1, model: silero.Silero | None = None
) -> list[float]:
    """The windows of `samples`, read `n_at_once` at a time."""
    model, windows = model or silero.shared(), samples[: len(samples) // WINDOW_SAMPLES * WINDOW_SAMPLES]
    found: list[float] = []
    for first in range(0, len(windows), n_at_once * WINDOW_SAMPLES):
        features = model.read(state, windows[first : first + n_at_once * WINDOW_SAMPLES])
        found += [model.probability(state, each) for each in features]
    return found


@pytest.mark.plain
def test_the_model_is_the_file_that_the_docstring_names_and_its_licence_lies_beside_it() -> None:
    """sha256 of the vendored ONNX file."""
    room = files("voicepipe.audio")
    assert hashlib.sha256(room.joinpath("silero_vad.onnx").read_bytes()).hexdigest() in (silero.__doc__ or "")
    assert "MIT License" in room.joinpath("silero_vad.LICENSE").read_text()


@pytest.mark.parametrize("in_c", [False, True], ids=["in_numpy", "in_c"])
def test_it_is_what_the_models_own_runtime_makes_of_it(clips: dict[str, Clip], in_c: bool) -> None:
    """Speech and room tone through onnxruntime: the same probabilities, to a hundred-thousandth."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = files("voicepipe.audio").joinpath("silero_vad.onnx").read_bytes()
    run = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run
    samples = clips["clean/LJ001-0008"].samples(16_000)
    sound = np.concatenate((np.zeros(CONTEXT_SAMPLES), samples / 32_768)).astype(np.float32)
    state, expected = np.zeros((2, 1, 128), dtype=np.float32), []
    for first in range(0, len(samples) - WINDOW_SAMPLES + 1, WINDOW_SAMPLES):
        window = sound[None, first : first + CONTEXT_SAMPLES + WINDOW_SAMPLES]
        answer, state = run(None, {"input": window, "state": state, "sr": np.array(16_000)})
        expected.append(float(answer[0, 0]))
    assert min(expected) < 0.1
    assert max(expected) > 0.9
    found = probabilities(SileroState(), samples, model=silero.Silero(in_c=in_c))
    assert found == pytest.approx(expected, abs=1e-5)


def test_windows_read_at_once_have_the_same_probabilities(clips: dict[str, Clip]) -> None:
    """Also after a restart, whose context belongs to the first of them."""
    samples = clips["clean/LJ001-0008"].samples(16_000)[:32_000]
    alone = probabilities(SileroState(), samples)
    for n_at_once in range(2, MAX_WINDOWS + 1):
        state = SileroState()
        assert probabilities(state, samples, n_at_once) == pytest.approx(alone, abs=1e-6)
        state.restart(samples[-CONTEXT_SAMPLES:])
        again, fresh = probabilities(state, samples, n_at_once), SileroState()
        fresh.restart(samples[-CONTEXT_SAMPLES:])
        assert again == pytest.approx(probabilities(fresh, samples), abs=1e-6)


def share_of_other_threads(n_at_once: int) -> float:
    """CPU time of all other threads while this one reads so many windows at a time, as a part of its own."""
    state, samples = SileroState(), silence(n_at_once * WINDOW_SAMPLES)
    own_s, all_s = time.thread_time(), time.process_time()
    for _ in range(100):
        silero.shared().read(state, samples)
    own_s, all_s = time.thread_time() - own_s, time.process_time() - all_s
    return all_s / own_s - 1


@pytest.mark.parametrize("n_at_once", range(1, MAX_WINDOWS + 1))
def test_no_other_thread_computes(n_at_once: int) -> None:
    """The library's threads would stay awake for tens of ms, and a reader waits for them on a busy machine.

    They may still be awake from an earlier test when the first share is taken.
    """
    assert min(share_of_other_threads(n_at_once) for _ in range(5)) < 0.2


def test_speech_is_speech_and_room_tone_is_not(clips: dict[str, Clip]) -> None:
    """Inside the labelled speech most windows are sure, in the tone behind it none."""
    clip = clips["clean/LJ001-0008"]
    found = probabilities(SileroState(), clip.samples(16_000))
    inside = found[clip.start_ms // 32 + 2 : clip.end_ms // 32]
    behind = found[clip.end_ms // 32 + 10 :]
    assert np.mean(np.array(inside) > 0.5) > 0.9
    assert max(behind) < 0.35


def test_streams_share_the_model_and_nothing_else(clips: dict[str, Clip]) -> None:
    """Two interleaved streams get what each gets alone, though one is silent."""
    speech = clips["clean/LJ001-0008"].samples(16_000)[:32_000]
    alone = probabilities(SileroState(), speech)
    mine, other = SileroState(), SileroState()
    together = []
    for first in range(0, len(speech) - WINDOW_SAMPLES + 1, WINDOW_SAMPLES):
        together += probabilities(mine, speech[first : first + WINDOW_SAMPLES])
        probabilities(other, silence(WINDOW_SAMPLES))
    assert together == alone


def test_a_stream_restarted_without_context_is_a_fresh_one(clips: dict[str, Clip]) -> None:
    speech = clips["clean/LJ001-0008"].samples(16_000)[:16_000]
    used = SileroState()
    probabilities(used, speech)
    used.restart(silence(0))
    assert probabilities(used, speech) == probabilities(SileroState(), speech)


def test_a_restarted_stream_is_a_new_one(clips: dict[str, Clip]) -> None:
    """Nothing of the audio before a restart is left, and the context counts."""
    speech = clips["clean/LJ001-0008"].samples(16_000)
    used, fresh = SileroState(), SileroState()
    probabilities(used, speech)
    used.restart(speech[16_000 - CONTEXT_SAMPLES : 16_000])
    fresh.restart(speech[16_000 - CONTEXT_SAMPLES : 16_000])
    again = speech[16_000:32_000]
    assert probabilities(used, again) == probabilities(fresh, again) != probabilities(SileroState(), again)
