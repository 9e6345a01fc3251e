"""A conversation by microphone, with a fake sound device in the place of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import first_audible
from voicepipe.testing.fakes.cues import LlmCue, SttCue

FAKE = '''
"""Has the library's interface: a microphone that hears a recording, a loudspeaker that writes down what it plays."""
import os, threading, time, wave


class PortAudioError(Exception):
    pass


class Stream:
    def __init__(self, *, samplerate, channels, dtype, blocksize, callback):
        if os.environ.get("NO_DEVICE"):
            raise PortAudioError("Error querying device -1")
        assert (samplerate, channels, dtype) == (24_000, 1, "int16")
        self.blocksize, self.callback, self.open = blocksize, callback, True

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        due = time.monotonic()
        while self.open:
            due += self.blocksize / 24_000
            time.sleep(max(0, due - time.monotonic()))
            if self.open:
                self.step()

    def close(self):
        self.open = False


class RawInputStream(Stream):
    def __init__(self, **usual):
        super().__init__(**usual)
        with wave.open(os.environ["MICROPHONE"]) as file:
            self.recording = file.readframes(file.getnframes())

    def step(self):
        n_bytes = 2 * self.blocksize
        block, self.recording = self.recording[:n_bytes], self.recording[n_bytes:]
        self.callback(memoryview(block.ljust(n_bytes, bytes(1))), self.blocksize, None, None)


class RawOutputStream(Stream):
    def step(self):
        block = bytearray(2 * self.blocksize)
        self.callback(memoryview(block), self.blocksize, None, None)
        with open(os.environ["LOUDSPEAKER"], "ab") as file:
            file.write(block)
'''


@pytest.fixture
def device(tmp_path: Path, question: Path) -> dict[str, str]:
    """The environment in which the fake stands in for the library."""
    from voicepipe.audio.files import write_wav

    (tmp_path / "fakes").mkdir()
    (tmp_path / "fakes" / "sounddevice.py").write_text(FAKE)
    write_wav(tmp_path / "microphone.wav", read_sound(question, 24_000), 24_000)
    return {
        "PYTHONPATH": f"{tmp_path / 'fakes'}:{ROOT}",
        "MICROPHONE": str(tmp_path / "microphone.wav"),
        "LOUDSPEAKER": str(tmp_path / "loudspeaker.pcm"),
    }


def played(device: dict[str, str]) -> Any:
    import numpy as np

    return np.frombuffer(Path(device["LOUDSPEAKER"]).read_bytes(), np.int16)


async def test_the_microphone_is_answered_through_the_loudspeaker(
    fake_server: Any, voicepipe: Any, device: dict[str, str]
) -> None:
    async with fake_server() as server:
        server.vendor.stt.usual = SttCue(text="No.")
        server.vendor.llm.usual = LlmCue(tokens=("Fine", " then."))
        ran = await voicepipe("talk", "--turns", "1", "--url", server.url, **device)
    assert ran.status == 0, ran.err
    assert "you    No.\n" in ran.out
    assert "agent  Fine then.\n" in ran.out
    assert "ms from your last voiced sample to the answer, measured here" in ran.out
    assert first_audible(played(device)) is not None


async def test_the_answer_to_a_recording_is_played_on_request(
    fake_server: Any, voicepipe: Any, device: dict[str, str], question: Path, tmp_path: Path
) -> None:
    async with fake_server() as server:
        ran = await voicepipe("talk", question, "--play", "--out", "answer.wav", "--url", server.url, **device)
    assert ran.status == 0, ran.err
    answer = read_sound(tmp_path / "answer.wav", 24_000)
    played_samples = played(device)
    first = first_audible(played_samples)
    assert first is not None
    own = first_audible(answer)
    assert own is not None
    assert played_samples[first : first + 2_400].tolist() == answer[own : own + 2_400].tolist()


async def test_without_the_library_the_remedy_is_said(voicepipe: Any, tmp_path: Path, device: dict[str, str]) -> None:
    (tmp_path / "fakes" / "sounddevice.py").write_text("raise ModuleNotFoundError('No module named sounddevice')")
    ran = await voicepipe("talk", **device)
    assert (ran.status, ran.out) == (2, "")
    assert "sounddevice is not installed; run: pip install --editable '.[microphone]'" in ran.err
    (tmp_path / "fakes" / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    ran = await voicepipe("talk", **device)
    assert (ran.status, ran.out) == (2, "")
    assert "PortAudio library not found; on Debian run: sudo apt-get install -y libportaudio2" in ran.err


async def test_a_missing_microphone_is_an_error(voicepipe: Any, device: dict[str, str]) -> None:
    ran = await voicepipe("talk", NO_DEVICE="1", **device)
    assert ran.status == 2
    assert ran.err == (
        "voicepipe: talk: expected a microphone and a loudspeaker on this machine, got: Error querying device -1\n"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--out", "a.wav"], "--out: expected a recording, got none"),
        (["--play"], "--play: expected a recording, got none"),
        (["--turns", "0"], "--turns: expected 1 or more, got 0"),
    ],
)
async def test_options_for_recordings_are_refused(voicepipe: Any, options: list[str], why: str) -> None:
    ran = await voicepipe("talk", *options)
    assert ran.status == 2
    assert ran.err.startswith(f"voicepipe: {why}")
