"""The settings of speech-to-speech models: their names, keys and prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.registry import Spec
from voicepipe.turn.cost import Price
from voicepipe.wiring.prices import Prices, speech_price_of
from voicepipe.wiring.speech_routing import SpeechRouting

MODEL = "openai-realtime/gpt-realtime"
KEY = "providers.openai-realtime.audio_input_usd_per_million"


def settings(folder: Path, **more: object) -> Settings:
    overrides = {"agents.default.model": MODEL, **{name.replace("__", "."): value for name, value in more.items()}}
    return load(overrides=overrides, environ={"HOME": str(folder), "OPENAI_API_KEY": "sk-test"}, folder=folder)


def with_prices(folder: Path, **prices: float) -> Settings:
    overrides: dict[str, object] = {"agents.default.model": MODEL}
    overrides |= {f"providers.openai-realtime.{name}": usd for name, usd in prices.items()}
    return load(overrides=overrides, environ={"HOME": str(folder), "OPENAI_API_KEY": "sk-test"}, folder=folder)


def test_an_agent_has_its_model_with_the_published_price(tmp_path: Path) -> None:
    stage = SpeechRouting().speech_stage(settings(tmp_path, agents__default__model_voice="marin"), "default")
    assert stage is not None
    assert (stage.model.name, stage.name, stage.voice, stage.timeout_ms) == (MODEL, "gpt-realtime", "marin", 3_000)
    assert stage.price is not None
    assert stage.price.audio.input_usd == 32.0
    assert stage.options("cedar", 1.0).voice == "marin"


def test_an_agent_without_a_model_has_none(tmp_path: Path) -> None:
    plain = load(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert SpeechRouting().speech_stage(plain, "default") is None


def test_two_agents_share_a_model_and_its_circuit_breaker(tmp_path: Path) -> None:
    stages, both = SpeechRouting(), settings(tmp_path, agents__other__instructions="Be brief.")
    one, other = (stages.speech_stage(both, name) for name in ("default", "other"))
    assert one is not None
    assert other is not None
    assert one.model is other.model
    assert [health.stage for health in stages.healths() if health.spec == MODEL] == ["speech_to_speech"]


def test_the_settings_have_the_last_word_on_prices(tmp_path: Path) -> None:
    spec = Spec.parse(MODEL)
    audio_only = with_prices(tmp_path, audio_input_usd_per_million=5.0)
    assert speech_price_of(audio_only, spec) == SpeechPrice(text=Price(5.0, 5.0), audio=Price(5.0, 5.0))
    every = with_prices(
        tmp_path,
        audio_input_usd_per_million=5.0,
        audio_output_usd_per_million=6.0,
        input_usd_per_million=1.0,
        output_usd_per_million=2.0,
    )
    assert speech_price_of(every, spec) == SpeechPrice(text=Price(1.0, 2.0), audio=Price(5.0, 6.0))


def test_a_model_without_a_price_is_named_for_tokens_that_limit_spending(tmp_path: Path) -> None:
    elsewhere = settings(tmp_path, **{"providers__openai-realtime__base_url": "ws://127.0.0.1:9"})
    assert Prices(elsewhere).unpriced("default") == KEY
    assert Prices(settings(tmp_path)).unpriced("default") is None


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("agents__default__model", "nowhere/model", "no provider is called 'nowhere'"),
        ("agents__default__model", "gpt-realtime", 'expected "provider/model"'),
        ("agents__default__redact_for_llm", "email", "expected nothing beside `model`, got email"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, option: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(tmp_path, **{option: value})


def test_a_provider_without_such_models_is_named(tmp_path: Path) -> None:
    wrong = settings(tmp_path, agents__default__model="openai/gpt-4.1-mini")
    with pytest.raises(ConfigError, match=r"agents\.default\.model: no speech-to-speech adapter of kind 'openai'"):
        SpeechRouting().speech_stage(wrong, "default")
