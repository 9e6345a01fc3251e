"""Compute the cost and the gain of warming an LLM's prompt cache: `python tests/router/prompt_warming.py`.

The warming request would produce one unused token while the user says the first words. It pays what the first turn
would have paid for a prompt that is not in the cache; the first turn then reads the prompt from there. So a call's
extra cost is the prompt at its cached price, and the token. The gain is an estimate, `CACHED_FACTOR`, and
only in the first turn of the call: later turns find the prompt in the cache anyway.

Prices, smallest prompts and times are the catalog's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from voicepipe.providers.catalog import load
from voicepipe.providers.catalog.facts import ModelFacts
from voicepipe.turn.cost import MILLION

N_TURNS = 8
CACHED_FACTOR = 0.8
"""An estimate: a model is a fifth faster once it has read the prompt."""

WRITTEN_TOKENS = 80
"""Output tokens of a turn of a voice agent. The prompt is the smallest that vendors cache, the best case for
warming.
"""


def rows() -> Iterator[tuple[str, ModelFacts]]:
    """Yield every model of which all that is needed is published."""
    for vendor in load().providers.values():
        for model in vendor.models.values():
            needed = (model.cache_min_tokens, model.cached_usd_per_million, model.ttft_p50_ms)
            if model.input_usd_per_million and None not in needed:
                yield f"{vendor.name}/{model.name}", model


def extra_usd(model: ModelFacts) -> float:
    """What a call pays more."""
    prompt, cached, output = model.cache_min_tokens or 0, model.cached_usd_per_million, model.output_usd_per_million
    return (prompt * (cached or 0.0) + (output or 0.0)) / MILLION


def call_usd(model: ModelFacts) -> float:
    """What it pays as it is: one turn that fills the cache, and others that read from it."""
    counts = {"input_tokens": model.cache_min_tokens or 0, "output_tokens": WRITTEN_TOKENS}
    first = model.cost_usd(**counts, cache_write_tokens=counts["input_tokens"])
    later = model.cost_usd(**counts, cached_tokens=counts["input_tokens"])
    return (first or 0.0) + (N_TURNS - 1) * (later or 0.0)


def sooner_ms(model: ModelFacts) -> float:
    """In the first turn of a call."""
    return (1 - CACHED_FACTOR) * (model.ttft_p50_ms or 0)


def table() -> Iterator[str]:
    """Yield the table's lines, as the README has them."""
    yield "| model | smallest prompt kept | a call pays more | its first word, once a call | mean of 8 turns |"
    yield "| --- | --- | --- | --- | --- |"
    for name, model in rows():
        share, ms = extra_usd(model) / call_usd(model), sooner_ms(model)
        yield f"| `{name}` | {model.cache_min_tokens} | {share:.1%} | {ms:.0f} ms sooner | {ms / N_TURNS:.0f} ms |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
