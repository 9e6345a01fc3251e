"""The catalog is whole, and says what is wrong with one that is not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from voicepipe.errors import ConfigError
from voicepipe.providers import catalog
from voicepipe.providers.built_in import adapter
from voicepipe.providers.catalog.facts import Catalog, ModelFacts
from voicepipe.providers.catalog.load import parse
from voicepipe.registry import Spec
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES
from voicepipe.values import replace

BUILT = catalog.load()


def test_every_vendor_is_listed_and_reachable() -> None:
    """Each has an adapter, an address or a user who knows it, and a name for its key."""
    assert set(BUILT.providers) == set(VENDOR_RULES)
    for vendor in BUILT.providers.values():
        assert adapter(vendor.kind, "llm")
        assert vendor.base_url.startswith("http") or vendor.self_hosted
        assert not vendor.base_url.endswith("/")
        assert vendor.key_env
        assert vendor.source


def test_a_model_is_found_by_its_name_and_by_its_dated_one() -> None:
    haiku = BUILT.model(Spec("anthropic", "claude-haiku-4-5"))
    assert BUILT.model(Spec("anthropic", "claude-haiku-4-5-20251001")) == haiku
    assert (haiku.input_usd_per_million, haiku.output_usd_per_million, haiku.cache_min_tokens) == (1.0, 5.0, 4096)
    assert haiku.ttft_p50_ms == 180
    assert "Crazyrouter" in haiku.figures_source


@pytest.mark.parametrize("spec", [Spec("groq", "no-such-model"), Spec("nobody", "no-such-model")])
def test_of_an_unknown_model_only_the_name_is_known(spec: Spec) -> None:
    facts = BUILT.model(spec)
    assert facts == ModelFacts(name="no-such-model")
    assert facts.cost_usd(input_tokens=1, output_tokens=1) is None


def test_every_published_figure_and_price_has_its_source() -> None:
    models = [model for vendor in BUILT.providers.values() for model in vendor.models.values()]
    assert len(models) > 60
    for model in models:
        assert model.figures_source or (model.ttft_p50_ms is None and model.tokens_per_s is None), (
            f'{model.name}: add figures = "...", the source of its published speed'
        )
        assert model.source or (model.input_usd_per_million or 0) == 0, (
            f'{model.name}: add source = "...", the source of its price'
        )


def test_every_published_speed_is_a_prior_or_stands_beside_one() -> None:
    """The 64 speeds of models in the published lists; ranges by their middle."""
    with (Path(__file__).parent / "published_speeds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    n_figures = 0
    for row in rows:
        facts = BUILT.model(Spec.parse(row["spec"]))
        known = [facts, *facts.other_figures]
        published = {name: float(row[name]) for name in ("ttft_p50_ms", "tokens_per_s") if row[name]}
        assert any(all(getattr(each, name) == figure for name, figure in published.items()) for each in known), row
        n_figures += len(published)
    assert n_figures == 64


def test_another_publications_figure_is_no_prior() -> None:
    opus = BUILT.model(Spec("anthropic", "claude-opus-4-6"))
    (other,) = opus.other_figures
    assert (opus.ttft_p50_ms, other.ttft_p50_ms) == (1100, 320)
    assert "March 2026" in other.figures


def test_cached_tokens_cost_their_own_price() -> None:
    facts = ModelFacts(name="m", input_usd_per_million=1.0, output_usd_per_million=10.0, cached_usd_per_million=0.1)
    assert facts.cost_usd(input_tokens=1_000_000, output_tokens=0) == pytest.approx(1.0)
    assert facts.cost_usd(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=500_000) == pytest.approx(1.55)
    assert facts.cost_usd(input_tokens=10, output_tokens=0, cached_tokens=99) == pytest.approx(10 * 0.1 / 1e6)


def test_so_do_tokens_that_are_put_into_the_cache() -> None:
    """Where a price is known; else they were read like any."""
    facts = BUILT.model(Spec("anthropic", "claude-haiku-4-5"))
    counts = {"input_tokens": 10_000, "output_tokens": 0, "cached_tokens": 4_000, "cache_write_tokens": 5_000}
    assert facts.cost_usd(**counts) == pytest.approx((1_000 * 1.0 + 4_000 * 0.1 + 5_000 * 1.25) / 1e6)
    free = replace(facts, cache_write_usd_per_million=None)
    assert free.cost_usd(**counts) == pytest.approx((6_000 * 1.0 + 4_000 * 0.1) / 1e6)
    # One that counts wrongly is not paid twice.
    assert facts.cost_usd(input_tokens=10, output_tokens=0, cached_tokens=8, cache_write_tokens=8) == pytest.approx(
        (8 * 0.1 + 2 * 1.25) / 1e6
    )


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-5-mini-2025-08-07", '{"reasoning_effort":"minimal"}'),
        ("openai", "gpt-5.2", '{"reasoning_effort":"none"}'),
        ("openai", "gpt-4.1-mini", None),
        ("gemini", "gemini-2.5-flash-lite", '{"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}'),
        ("alibaba", "qwen3.8-flash", '{"enable_thinking":false}'),
        ("xiaomi", "mimo-v2.6-flash", '{"thinking":{"type":"disabled"}}'),
        ("deepseek", "deepseek-v4-flash", '{"thinking":{"type":"disabled"}}'),
        ("vllm", "Qwen/Qwen3-8B", '{"chat_template_kwargs":{"enable_thinking":false}}'),
        ("vllm", "meta-llama/Llama-3.1-8B-Instruct", None),
    ],
)
def test_thinking_is_switched_off_model_by_model(provider: str, model: str, expected: str | None) -> None:
    assert dict(BUILT.providers[provider].options_for(model)).get("model_extra") == expected


@pytest.mark.parametrize(
    ("model", "refuses"),
    [
        ("claude-haiku-4-5", set()),
        ("claude-sonnet-4-6", {"prefill"}),
        ("claude-haiku-5-5", {"prefill", "temperature", "top_p", "top_k"}),
        ("claude-opus-4-7-20260416", {"prefill", "temperature", "top_p", "top_k"}),
    ],
)
def test_what_newer_models_refuse(model: str, refuses: set[str]) -> None:
    reported = dict(BUILT.providers["anthropic"].options_for(model)).get("model_refuses", "")
    assert set(reported.split()) == refuses


def test_a_custom_address_is_distinguished() -> None:
    moonshot, vllm = BUILT.providers["moonshot"], BUILT.providers["vllm"]
    assert moonshot.owns("https://api.moonshot.cn/v1/")
    assert not moonshot.owns("http://127.0.0.1:9/v1")
    assert vllm.owns("http://10.0.0.7:8000/v1")


MINE = """
[sources]
offer = "the offer of 3 May"
[providers.groq.models]
"openai/gpt-oss-20b" = { input_usd = 1, output_usd = 2, source = "offer" }
[providers.groq.options]
session_field = "user"
[providers.corner]
title = "The corner shop"
base_url = "https://corner.example/v1"
key_env = ["CORNER_KEY"]
evidence = "documented"
source = "its own page"
cached_tokens = "not reported"
affinity = "none"
"""


def test_a_file_of_ones_own_is_laid_over_it(tmp_path: Path) -> None:
    """New vendors, other prices, more options; what it leaves out stays."""
    (tmp_path / "mine.toml").write_text(MINE)
    mine = catalog.load(tmp_path / "mine.toml")
    model = mine.model(Spec("groq", "openai/gpt-oss-20b"))
    assert (model.input_usd_per_million, model.output_usd_per_million, model.source) == (1, 2, "the offer of 3 May")
    assert mine.model(Spec("groq", "openai/gpt-oss-120b")) == BUILT.model(Spec("groq", "openai/gpt-oss-120b"))
    assert dict(mine.providers["groq"].options)["speech_format"] == "wav"
    assert dict(mine.providers["groq"].options)["session_field"] == "user"
    assert mine.providers["corner"].key_env == ("CORNER_KEY",)
    assert set(mine.providers) == {*BUILT.providers, "corner"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[providers", "mine: expected a TOML file"),
        ("[provider.groq]", r"mine\.provider: unknown field; did you mean providers\?"),
        ("[providers.groq]\nbase_ulr = 'x'", r"mine: providers\.groq\.base_ulr: unknown field; did you mean base_url"),
        ("[providers.groq]\nkey_env = 3", r"providers\.groq\.key_env: expected `array`, got `int`"),
        ("[providers.groq]\nevidence = 'hearsay'", r"providers\.groq\.evidence: invalid enum value 'hearsay'"),
        ("[providers.mine]\ntitle = 'x'", r"providers\.mine\.evidence: expected text, got nothing"),
        ("[providers.groq.options]\nx = 1", r"providers\.groq\.options: expected `str`, got `int`"),
        ("[[providers.groq.when]]\nextra = {}", r"providers\.groq\.when\[0\]\.models: expected patterns"),
        ("[[providers.groq.when]]\nmodels = ['*']\nsay = 1", r"providers\.groq\.when\[0\]\.say: unknown field"),
        ("[providers.groq.models]\nm = { input_usd = 1 }", r'providers\.groq\.models\."m": expected both'),
        ("[providers.groq.models]\nm = { context_tokens = -1 }", r'models\."m"\.context_tokens: expected 0 or more'),
        ("[providers.groq.models]\nm = { input_usd = 'x' }", r'models\."m"\.input_usd: expected `float \| null`'),
        ("[providers.groq.models]\nm = { ttft_p50_ms = 9 }", r'models\."m"\.figures: expected where its speed'),
    ],
)
def test_what_is_wrong_is_named_with_its_row_and_field(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(text, where="mine", over=BUILT)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"catalog\.file: expected a catalog, got .*none\.toml"):
        catalog.load(tmp_path / "none.toml")


def test_an_empty_catalog_has_no_vendors() -> None:
    assert Catalog().provider("groq") is None
