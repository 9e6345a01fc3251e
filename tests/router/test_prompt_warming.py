"""What the docs say of reading prompts ahead is what the catalog's figures come to."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests import docs

HERE = Path(__file__).parent


@pytest.fixture
def priming() -> ModuleType:
    spec = importlib.util.spec_from_file_location("priming", HERE / "prompt_warming.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_docs_is_of_todays_catalog(priming: ModuleType) -> None:
    lines = list(priming.table())
    assert len(lines) > 5
    assert "\n".join(lines) in docs.DOCS


def test_a_call_pays_its_prompt_once_more_from_the_cache(priming: ModuleType) -> None:
    """And one token, whatever a new prompt costs."""
    for _, model in priming.rows():
        usd = priming.extra_usd(model)
        cached = model.cost_usd(
            input_tokens=model.cache_min_tokens, output_tokens=1, cached_tokens=model.cache_min_tokens
        )
        assert usd == pytest.approx(cached)
        assert 0 < usd < 0.1 * priming.call_usd(model)
