"""A request reports when it has its connection, pooled or new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from voicepipe.ports.model import Model, ModelRequest, Said, Text
from voicepipe.providers.anthropic import model as anthropic
from voicepipe.providers.google import model as google
from voicepipe.providers.openai import model as openai
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.vendor import FakeVendor

SPEC = Spec("fake", "m")
HI = ModelRequest(model="m", messages=(Said("user", (Text("Hi"),)),))


@pytest.mark.parametrize("open_model", [openai.open_model, anthropic.open_model, google.open_model])
async def test_a_model_reports_its_connection_once_a_request(
    vendor: FakeVendor, settings: Callable[..., ProviderSettings], open_model: Callable[..., Model]
) -> None:
    """The report needs no listener."""
    model = open_model(SPEC, settings())
    reached: list[str] = []
    for name in ("new", "kept"):
        async with model.open(replace(HI, reached=partial(reached.append, name))) as answer:
            assert [event async for event in answer]
    assert reached == ["new", "kept"]
    async with model.open(HI) as answer:
        assert [event async for event in answer]
