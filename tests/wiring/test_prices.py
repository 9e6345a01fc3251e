"""What turns cost: by the model that answered, at the catalog's prices or the settings' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.providers.built_in import TRANSCRIBERS, VOICES
from voicepipe.providers.vendor import SpeechFacts
from voicepipe.registry import Spec
from voicepipe.wiring.prices import Prices, check_quota_prices, stt_usd_per_minute_of, tts_usd_per_million_of


def settings(folder: Path, text: str) -> Settings:
    (folder / "voicepipe.toml").write_text(text)
    return load(environ={"HOME": "/h"}, folder=folder)


def test_what_has_no_price_is_named(tmp_path: Path) -> None:
    """In a pool each model needs a price, and so does each TTS and each STT provider that is not local."""
    text = "[agents.default]\nllm = ['groq/openai/gpt-oss-120b', 'openrouter/some/model']\n"
    assert Prices(settings(tmp_path, text)).unpriced("default") == "providers.openrouter.input_usd_per_million"
    text = "[agents.default]\nllm = 'groq/openai/gpt-oss-120b'\ntts = ['openai/tts-1', 'openai/no-such']\n"
    prices = Prices(settings(tmp_path, text))
    assert prices.unpriced("default") == "providers.openai.tts_usd_per_million_chars"
    text = "[agents.default]\nllm = 'groq/openai/gpt-oss-120b'\nstt = 'openai-realtime/gpt-live-transcribe'\n"
    prices = Prices(settings(tmp_path, text))
    assert prices.unpriced("default") == "providers.openai-realtime.stt_usd_per_minute"
    assert Prices(settings(tmp_path, "")).unpriced("default") is None
    text = "[agents.default]\nknowledge = 'documents'\nknowledge_embedding = 'openai/text-embedding-3-small'\n"
    prices = Prices(settings(tmp_path, text))
    assert prices.unpriced("default") == "providers.openai.embedding_usd_per_million"
    text += "[providers.openai]\nembedding_usd_per_million = 0.02\n"
    assert Prices(settings(tmp_path, text)).unpriced("default") is None


def test_a_quota_on_spending_needs_all_prices(tmp_path: Path) -> None:
    """Those of the agents, and those of models that only REST requests name."""
    quota = "[quotas]\nuser_usd_per_day = 2\n"
    check_quota_prices(settings(tmp_path, quota))
    for text, missing in (
        ("[agents.default]\nllm = 'openrouter/some/model'\n", "providers.openrouter.input_usd_per_million"),
        ("[server]\nchat_models = ['openrouter/other/model']\n", "providers.openrouter.input_usd_per_million"),
        ("[server]\nspeech_models = ['openai/no-such']\n", "providers.openai.tts_usd_per_million_chars"),
        ("[server]\ntranscription_models = ['openai/no-such']\n", "providers.openai.stt_usd_per_minute"),
    ):
        check_quota_prices(settings(tmp_path, text))
        with pytest.raises(ConfigError, match=rf"quotas\.user_usd_per_day: .* {missing} is not set"):
            check_quota_prices(settings(tmp_path, quota + text))


def test_a_session_knows_the_prices_of_all_who_may_answer(tmp_path: Path) -> None:
    """Local ones are free; what has no price is left out."""
    text = "[agents.default]\nllm = ['groq/openai/gpt-oss-120b', 'openrouter/some/model', 'local/smollm2-135m']\n"
    prices = Prices(settings(tmp_path, text)).of_agent("default")
    assert prices.models.keys() == {"groq/openai/gpt-oss-120b", "local/smollm2-135m"}
    assert prices.models["groq/openai/gpt-oss-120b"].cost_usd(1_000_000, 100_000, 400_000) == pytest.approx(0.18)
    assert prices.models["local/smollm2-135m"].cost_usd(1_000_000, 0) == 0
    assert (prices.voices, prices.transcribers) == ({"local/hibari": 0.0}, {"local/moonshine-tiny": 0.0})


@pytest.mark.parametrize(
    "facts", [each for each in (*TRANSCRIBERS, *VOICES) if each.usd is not None], ids=lambda facts: facts.spec
)
def test_each_published_price_of_speech_is_that_of_its_provider(tmp_path: Path, facts: SpeechFacts) -> None:
    """Also of a vendor whose STT and TTS have another address than its LLMs, such as Together."""
    price_of = stt_usd_per_minute_of if facts.stage == "stt" else tts_usd_per_million_of
    assert price_of(settings(tmp_path, ""), Spec.parse(facts.spec)) == facts.usd


def test_vendors_prices_count_where_the_settings_have_none(tmp_path: Path) -> None:
    """Each TTS and STT provider's own price counts; at another address of the same name it does not."""
    text = """
        [agents.default]
        stt = ["deepgram/nova-3", "cartesia/ink-2"]
        tts = ["cartesia/sonic-3", "deepgram/aura-2-apollo-en", "rime/arcana"]
        [providers.rime]
        tts_usd_per_million_chars = 7.0
        """
    prices = Prices(settings(tmp_path, text)).of_agent("default")
    assert prices.voices == pytest.approx(
        {"cartesia/sonic-3": 50.0, "deepgram/aura-2-apollo-en": 30.0, "rime/arcana": 7.0}
    )
    assert prices.transcribers == pytest.approx({"deepgram/nova-3": 0.0048, "cartesia/ink-2": 0.009})
    elsewhere = "\n[providers.cartesia]\nbase_url = 'ws://127.0.0.1:1'\n"
    prices = Prices(settings(tmp_path, text + elsewhere)).of_agent("default")
    assert "cartesia/sonic-3" not in prices.voices
    assert "cartesia/ink-2" not in prices.transcribers
