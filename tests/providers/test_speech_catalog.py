"""What is told of speech vendors is so."""

from __future__ import annotations

import pytest

from voicepipe.providers.catalog.speech import EARS, VOICES, SpeechFacts
from voicepipe.registry import BUILT_IN, ProviderSettings, Spec, factory


@pytest.mark.parametrize("its", [*EARS, *VOICES], ids=lambda its: f"{its.stage}-{its.spec}")
def test_each_has_an_adapter(its: SpeechFacts) -> None:
    assert (its.kind, its.stage) in BUILT_IN


def test_none_is_told_twice() -> None:
    assert len({(its.stage, its.spec) for its in (*EARS, *VOICES)}) == len(EARS) + len(VOICES)


@pytest.mark.parametrize("its", EARS, ids=lambda its: its.spec)
def test_an_ears_row_is_what_it_can_do(its: SpeechFacts) -> None:
    scheme = {"openai": "http", "wyoming": "tcp"}.get(its.kind, "ws")
    settings = ProviderSettings(kind=its.kind, base_url=f"{scheme}://127.0.0.1:1/v1")
    ear = factory(its.kind, "stt", key="stt")(Spec.parse(its.spec), settings)
    assert ear.capabilities.streams == its.streams.startswith("the call in")
    assert ear.capabilities.partials == its.streams.endswith("texts out")
    assert ("end" in its.turn_events) or not ear.capabilities.turn_events
    assert ear.capabilities.finalize != its.cancel.startswith("none")
