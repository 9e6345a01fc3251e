"""An answer's events say when the request has its connection, pooled or new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.model import Content, Model, ModelRequest, Text
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.providers.anthropic import model as anthropic
from voicepipe.providers.google import model as google
from voicepipe.providers.openai import model as openai
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import Hang, LlmCue, Status
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

SPEC = Spec("fake", "m")
HI = ModelRequest(model="m", messages=(Content("user", (Text("Hi"),)),))

OPENERS = [openai.open_model, anthropic.open_model, google.open_model]


@pytest.mark.parametrize("open_model", OPENERS)
async def test_a_model_reports_its_connection_once_a_request(
    vendor: FakeVendor, settings: Callable[..., ProviderSettings], open_model: Callable[..., Model]
) -> None:
    model = open_model(SPEC, settings())
    for _ in ("new", "kept"):
        async with model.open(HI) as answer:
            events = [event async for event in answer]
        assert events[0] == ModelConnected()
        assert events.count(ModelConnected()) == 1
        assert len(events) > 1


async def test_the_connection_is_reported_before_the_headers_come(
    vendor: FakeVendor, settings: Callable[..., ProviderSettings]
) -> None:
    vendor.llm.usual = LlmCue(fault=Hang())
    async with openai.open_model(SPEC, settings()).open(HI) as answer, asyncio.timeout(WAIT_S):
        assert await anext(aiter(answer)) == ModelConnected()


async def test_a_refusal_follows_the_connection(vendor: FakeVendor, settings: Callable[..., ProviderSettings]) -> None:
    vendor.llm.usual = LlmCue(fault=Status(503))
    async with openai.open_model(SPEC, settings()).open(HI) as answer:
        events = aiter(answer)
        assert await anext(events) == ModelConnected()
        with pytest.raises(StageRefused):
            await anext(events)


async def test_a_request_without_a_connection_reports_none(settings: Callable[..., ProviderSettings]) -> None:
    model = openai.open_model(SPEC, replace(settings(), base_url="http://127.0.0.1:9"))
    async with model.open(HI) as answer:
        with pytest.raises(StageBroken):
            await anext(aiter(answer))
