"""The three ports without a socket, for tests of whatever uses them: told by the vendor's cues, or driven by hand."""

from __future__ import annotations

from voicepipe.testing.fakes.model import AskedModel, FakeModel
from voicepipe.testing.fakes.synthesizer import AskedVoice, FakeSpeech, FakeSynthesizer
from voicepipe.testing.fakes.transcriber import AskedEar, FakeEar, FakeTranscriber

__all__ = [
    "AskedEar",
    "AskedModel",
    "AskedVoice",
    "FakeEar",
    "FakeModel",
    "FakeSpeech",
    "FakeSynthesizer",
    "FakeTranscriber",
]
