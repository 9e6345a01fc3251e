"""Compare the local LLM with and without prompt lookup: guesses of the next tokens from what was said.

`python -m tests.measure.prompt_lookup` loads the model once for each way, in one process, and sends all of them the
same prompts in turn, in rounds. It prints the time to the first token and the tokens a second, as medians and as the
median ratio to the model without lookup in the same round: other work of the machine then falls on both. `--gguf FILE`
takes another model. With temperature 0 all ways must give the same text.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from voicepipe.bench.llm import PROMPTS
from voicepipe.providers.local.engine import llama_cpp

xllamacpp: Any = import_module("xllamacpp")  # without types

MAX_TOKENS: Final = 60

Messages = Sequence[tuple[str, str]]

ORDER: Final = (
    "Order 4711-22: two boxes of blue ceramic tiles, one bag of grey grout, and a rubber mallet. "
    "Delivery on Thursday, the third of December, between ten and twelve, to 17 Harbour Street. "
    "The driver calls half an hour before. Payment by invoice within fourteen days."
)

READ_BACK: Final[tuple[Messages, ...]] = (
    (("system", "Repeat what the user asks for, word by word."), ("user", f"Read this back to me: {ORDER}")),
    (
        ("system", f"Answer from this text with its own words. {ORDER}"),
        ("user", "What is in the order, and when is it?"),
    ),
    (("system", "Repeat each message of the user."), ("user", ORDER), ("assistant", ORDER), ("user", ORDER)),
)
"""Prompts whose answers stand in them: what lookup is for."""

SPOKEN: Final[tuple[Messages, ...]] = tuple((("system", each.system), ("user", each.user)) for each in PROMPTS)
"""The questions of `voicepipe bench llm`."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to guess tokens."""

    name: str
    set_up: Callable[[Any], None]


def ways() -> list[Way]:
    """Return the model as it is, then the ways to guess: (tokens that must match, tokens of a draft).

    Two answers at once and their drafts must fit into `llama_cpp.BATCH_TOKENS`: beyond it llama.cpp ends the process.
    """
    kinds = xllamacpp.common_speculative_type

    def mapped(kind: Any, name: str, size_n: int, size_m: int) -> Callable[[Any], None]:
        def set_up(params: Any) -> None:
            params.speculative.types = [kind]
            getattr(params.speculative, name).size_n = size_n
            getattr(params.speculative, name).size_m = size_m

        return set_up

    def none(params: Any) -> None:
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NONE]

    simple, mapped_k = kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE, kinds.COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K
    return [
        Way("none", none),
        Way("simple, 3 for 7", mapped(simple, "ngram_simple", 3, 7)),
        Way("map, 3 for 7", mapped(mapped_k, "ngram_map_k", 3, 7)),
    ]


@dataclass(slots=True)
class Times:
    """One answer."""

    first_ms: float
    tokens_per_s: float
    text: str


def answer(server: Any, messages: Messages, max_tokens: int, sampling: dict[str, Any]) -> Times:
    """Send one prompt, of which the cache holds nothing but the beginning that all share; return its times."""
    began_s, first_s, text, n_tokens = time.perf_counter(), 0.0, "", 0
    last_s = began_s

    def on_chunk(chunk: Any) -> bool:
        nonlocal first_s, last_s, text, n_tokens
        for part in chunk if isinstance(chunk, list) else [chunk]:
            for choice in part.get("choices", ()):
                if more := choice["delta"].get("content"):
                    last_s = time.perf_counter()
                    first_s = first_s or last_s
                    text += more
            n_tokens = (part.get("usage") or {}).get("completion_tokens", n_tokens)
        return False

    request = {
        "messages": [{"role": role, "content": said} for role, said in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
        "max_tokens": max_tokens,
        "temperature": 0.0,
        **sampling,
    }
    server.handle_chat_completions(request, on_chunk)
    seconds = last_s - first_s
    return Times(1_000 * (first_s - began_s), (n_tokens - 1) / seconds if n_tokens > 1 and seconds else 0.0, text)


def measure(weights: llama_cpp.Weights, folder: Path, rounds: int) -> None:
    """Print a table for each set of prompts."""
    servers: dict[str, Any] = {}
    for n, way in enumerate(ways()):
        params = llama_cpp._params(xllamacpp, folder / f"{n}.sock", weights)
        params.n_parallel, params.n_ctx = 1, weights.context_tokens
        way.set_up(params)
        servers[way.name] = xllamacpp.Server(params)
        answer(servers[way.name], (("user", "Hi"),), 4, {})
    for title, prompts in (("questions as users speak", SPOKEN), ("answers that stand in the prompt", READ_BACK)):
        found: dict[str, list[Times]] = {name: [] for name in servers}
        for n in range(rounds):
            for prompt in prompts:
                names = list(servers)
                for name in names[n % len(names) :] + names[: n % len(names)]:
                    found[name].append(answer(servers[name], prompt, MAX_TOKENS, dict(weights.sampling)))
        sys.stdout.write(f"\n{title}: {len(prompts)} prompts, {rounds} rounds\n\n")
        sys.stdout.write(
            "| way | TTFT ms | ratio | tokens/s | ratio | same text |\n| --- | --- | --- | --- | --- | --- |\n"
        )
        usual = found["none"]
        for name, answers in found.items():
            firsts = [a.first_ms / b.first_ms for a, b in zip(answers, usual, strict=True)]
            rates = [
                a.tokens_per_s / b.tokens_per_s
                for a, b in zip(answers, usual, strict=True)
                if b.tokens_per_s and a.tokens_per_s
            ]
            same = sum(a.text == b.text for a, b in zip(answers, usual, strict=True))
            cells = (
                name,
                f"{statistics.median(each.first_ms for each in answers):.0f}",
                f"{statistics.median(firsts):.2f}",
                f"{statistics.median(each.tokens_per_s for each in answers):.1f}",
                f"{statistics.median(rates):.2f}",
                f"{same} of {len(answers)}",
            )
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.measure.prompt_lookup", description=__doc__)
    parser.add_argument("--gguf", type=Path, help="another model")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    weights = llama_cpp.smollm2() if arguments.gguf is None else llama_cpp.gguf_file(arguments.gguf)
    with tempfile.TemporaryDirectory() as folder:
        measure(weights, Path(folder), arguments.rounds)


if __name__ == "__main__":
    main()
