"""Parameters that are passed on: by the provider's own names, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from voicepipe.errors import StageRefused
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.providers.built_in import factory
from voicepipe.providers.llm.extra_params import passed_on
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

ADDRESS = ProviderAddress.of("llm", Spec("p", "m"), ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1"))


def request(**passed: Any) -> ModelRequest:
    return ModelRequest(
        model="m",
        messages=(Content("user", (Text("Hi."),)),),
        passed=tuple((name, json.dumps(value)) for name, value in passed.items()),
    )


def values(made: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in made.items()}


def test_each_goes_by_the_providers_own_name() -> None:
    received = request(top_p=0.5, response_format={"type": "json_object"})
    assert values(passed_on(ADDRESS, received, names=None)) == {
        "top_p": 0.5,
        "response_format": {"type": "json_object"},
    }
    assert values(passed_on(ADDRESS, request(top_p=0.5), names={"top_p": "topP"})) == {"topP": 0.5}
    assert passed_on(ADDRESS, request(), names={}) == {}


@pytest.mark.parametrize("known", [{"names": {}}, {"names": None, "left_out": frozenset({"top_p"})}])
def test_one_that_the_provider_does_not_have_is_refused(known: Any) -> None:
    with pytest.raises(StageRefused, match="'top_p'") as refused:
        passed_on(ADDRESS, request(top_p=0.5), **known)
    assert (refused.value.status, refused.value.retryable) == (400, True)


ADAPTERS = [
    ("anthropic", "claude-haiku-4-5", "verbosity"),
    ("gemini", "gemini-2.5-flash", "logit_bias"),
    ("local", "smollm2-135m", "top_p"),
]


@pytest.mark.parametrize(("kind", "model", "parameter"), ADAPTERS)
async def test_native_adapters_refuse_parameters_they_do_not_have(kind: str, model: str, parameter: str) -> None:
    settings = ProviderSettings(
        kind=kind,
        base_url="" if kind == "local" else "http://127.0.0.1:9/v1",
        options=(("socket", "/nowhere"),) if kind == "local" else (),
    )
    adapter = factory(kind, "llm", key="test")(Spec("p", model), settings)
    received = replace(request(**{parameter: "x"}), model=model)
    with pytest.raises(StageRefused, match=f"no parameter '{parameter}'") as refused:
        await adapter.open(received).__aenter__()
    assert refused.value.status == 400
