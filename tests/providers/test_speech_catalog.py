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


@pytest.mark.parametrize("facts", [*TRANSCRIBERS, *VOICES], ids=lambda facts: f"{facts.stage}-{facts.spec}")
def test_each_has_an_adapter(facts: SpeechFacts) -> None:
    assert adapter(facts.kind, facts.stage)


@pytest.mark.parametrize("package", VENDORS)
def test_an_option_is_one_that_an_adapter_reads(package: str) -> None:
    modules = [file for file in (PROVIDERS / package).glob("*.py") if file.stem != "vendor"]
    code = "".join(file.read_text(encoding="utf-8") for file in modules)
    for option in VENDORS[package].options:
        assert re.search(rf"\b{option.name}\b", code), option.name


def test_no_row_is_repeated() -> None:
    assert len({(facts.stage, facts.spec) for facts in (*TRANSCRIBERS, *VOICES)}) == len(TRANSCRIBERS) + len(VOICES)


def scheme_of(kind: str) -> str:
    """Return the scheme of the addresses of an API."""
    known = (each.base_url for vendor in VENDORS.values() for each in vendor.providers if each.kind == kind)
    return {"openai": "http", "wyoming": "tcp"}.get(kind) or urlsplit(next(known)).scheme


def test_a_vendor_has_one_key() -> None:
    """Its profile and its rows of the catalog name the same variable."""
    rows = catalog.load().providers
    both = [facts for facts in (*TRANSCRIBERS, *VOICES) if Spec.parse(facts.spec).provider in rows]
    assert both
    for facts in both:
        assert rows[Spec.parse(facts.spec).provider].key_env[0] == key_env_of(facts)


@pytest.mark.parametrize("facts", TRANSCRIBERS, ids=lambda facts: facts.spec)
def test_a_transcribers_row_has_its_capabilities(facts: SpeechFacts) -> None:
    settings = ProviderSettings(kind=facts.kind, base_url=f"{scheme_of(facts.kind)}://127.0.0.1:1/v1")
    transcriber = factory(facts.kind, "stt", key="stt")(Spec.parse(facts.spec), settings)
    assert transcriber.capabilities.streams == facts.streams.startswith("the call in")
    assert transcriber.capabilities.partials == facts.streams.endswith("texts out")
    assert ("end" in facts.turn_events) or not transcriber.capabilities.turn_events
    assert transcriber.capabilities.finalize != facts.cancel.startswith("none")
