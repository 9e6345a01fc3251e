"""What turns cost: by the model that answered, at the catalog's prices or the settings' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.testing.records import turn_record
from voicepipe.turn.record import TokenCount
from voicepipe.wiring.prices import Prices

TOKENS = TokenCount(input=1_000_000, output=100_000, cached=400_000)


def settings(folder: Path, text: str) -> Settings:
    (folder / "voicepipe.toml").write_text(text)
    return load(environ={"HOME": "/h"}, folder=folder)


def test_cached_tokens_are_cheaper_and_local_voices_free(tmp_path: Path) -> None:
    prices = Prices(settings(tmp_path, "[agents.default]\nllm = 'groq/openai/gpt-oss-120b'\n"))
    record = turn_record(tokens=TOKENS, providers=(("llm", "groq/openai/gpt-oss-120b"),))
    assert prices.unpriced("default") is None
    assert prices.cost_usd("default", record) == pytest.approx(0.6 * 0.15 + 0.4 * 0.075 + 0.1 * 0.6)


def test_of_several_models_the_one_that_answered_is_paid(tmp_path: Path) -> None:
    text = "[agents.default]\nllm = ['groq/openai/gpt-oss-120b', 'openai/gpt-5-mini']\n"
    prices = Prices(settings(tmp_path, text))
    record = turn_record(tokens=TOKENS, providers=(("llm", "openai/gpt-5-mini"),))
    assert prices.cost_usd("default", record) == pytest.approx(0.6 * 0.25 + 0.4 * 0.025 + 0.1 * 2.0)
    nobody = turn_record(tokens=TOKENS, providers=())
    assert prices.cost_usd("default", nobody) == pytest.approx(0.6 * 0.15 + 0.4 * 0.075 + 0.1 * 0.6)


def test_what_has_no_price_is_named(tmp_path: Path) -> None:
    """Of a pool each model needs one, and so does a voice that is not local."""
    text = "[agents.default]\nllm = ['groq/openai/gpt-oss-120b', 'openrouter/some/model']\n"
    assert Prices(settings(tmp_path, text)).unpriced("default") == "providers.openrouter.input_usd_per_million"
    text = "[agents.default]\nllm = 'groq/openai/gpt-oss-120b'\ntts = 'openai/tts-1'\n"
    prices = Prices(settings(tmp_path, text))
    assert prices.unpriced("default") == "providers.openai.speech_usd_per_million"
    assert Prices(settings(tmp_path, "")).unpriced("default") is None


def test_a_session_knows_the_prices_of_all_who_may_answer(tmp_path: Path) -> None:
    """Local ones are free; what has no price is left out."""
    text = "[agents.default]\nllm = ['groq/openai/gpt-oss-120b', 'openrouter/some/model', 'local/smollm2-135m']\n"
    prices = Prices(settings(tmp_path, text)).of_agent("default")
    assert prices.models.keys() == {"groq/openai/gpt-oss-120b", "local/smollm2-135m"}
    assert prices.models["groq/openai/gpt-oss-120b"].cost_usd(1_000_000, 100_000, 400_000) == pytest.approx(0.18)
    assert prices.models["local/smollm2-135m"].cost_usd(1_000_000, 0) == 0
    assert prices.speech_usd == 0
    text = "[agents.default]\nllm = 'groq/openai/gpt-oss-120b'\ntts = 'openai/tts-1'\n"
    assert Prices(settings(tmp_path, text)).of_agent("default").speech_usd is None
