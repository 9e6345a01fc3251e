"""The three ports without a socket, for tests of their users: driven by the vendor's cues, or by the test."""

from __future__ import annotations

from voicepipe.testing.fakes.model import FakeModel, ReceivedModelRequest
from voicepipe.testing.fakes.synthesizer import FakeSpeech, FakeSynthesizer, ReceivedClause
from voicepipe.testing.fakes.transcriber import FakeTranscriber, FakeTranscriptStream, ReceivedFlush

__all__ = [
    "FakeModel",
    "FakeSpeech",
    "FakeSynthesizer",
    "FakeTranscriber",
    "FakeTranscriptStream",
    "ReceivedClause",
    "ReceivedFlush",
    "ReceivedModelRequest",
]
