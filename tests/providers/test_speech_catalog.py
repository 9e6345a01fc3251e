"""The catalog's facts of speech vendors are right."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from voicepipe import providers
from voicepipe.providers import catalog
from voicepipe.providers.built_in import TRANSCRIBERS, VENDORS, VOICES, adapter, factory, key_env_of
from voicepipe.providers.vendor import SpeechFacts
from voicepipe.registry import ProviderSettings, Spec

PROVIDERS = Path(providers.__file__).parent


@pytest.mark.parametrize("its", [*TRANSCRIBERS, *VOICES], ids=lambda its: f"{its.stage}-{its.spec}")
def test_each_has_an_adapter(its: SpeechFacts) -> None:
    assert adapter(its.kind, its.stage)


@pytest.mark.parametrize("package", VENDORS)
def test_an_option_is_one_that_an_adapter_reads(package: str) -> None:
    modules = [file for file in (PROVIDERS / package).glob("*.py") if file.stem != "vendor"]
    code = "".join(file.read_text(encoding="utf-8") for file in modules)
    for option in VENDORS[package].options:
        assert re.search(rf"\b{option.name}\b", code), option.name


def test_no_row_is_repeated() -> None:
    assert len({(its.stage, its.spec) for its in (*TRANSCRIBERS, *VOICES)}) == len(TRANSCRIBERS) + len(VOICES)


def scheme_of(kind: str) -> str:
    """Return the scheme of the addresses of an API."""
    known = (each.base_url for its in VENDORS.values() for each in its.providers if each.kind == kind)
    return {"openai": "http", "wyoming": "tcp"}.get(kind) or urlsplit(next(known)).scheme


def test_a_vendor_has_one_key() -> None:
    """Its profile and its rows of the catalog name the same variable."""
    rows = catalog.load().providers
    both = [its for its in (*TRANSCRIBERS, *VOICES) if Spec.parse(its.spec).provider in rows]
    assert both
    for its in both:
        assert rows[Spec.parse(its.spec).provider].key_env[0] == key_env_of(its)


@pytest.mark.parametrize("its", TRANSCRIBERS, ids=lambda its: its.spec)
def test_a_transcribers_row_has_its_capabilities(its: SpeechFacts) -> None:
    settings = ProviderSettings(kind=its.kind, base_url=f"{scheme_of(its.kind)}://127.0.0.1:1/v1")
    transcriber = factory(its.kind, "stt", key="stt")(Spec.parse(its.spec), settings)
    assert transcriber.capabilities.streams == its.streams.startswith("the call in")
    assert transcriber.capabilities.partials == its.streams.endswith("texts out")
    assert ("end" in its.turn_events) or not transcriber.capabilities.turn_events
    assert transcriber.capabilities.finalize != its.cancel.startswith("none")
