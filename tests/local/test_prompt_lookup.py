"""Prompt lookup of the local LLM: its guesses fit into a batch, else llama.cpp ends the process."""

from __future__ import annotations

from pathlib import Path

from voicepipe.providers.local.engine.llama_cpp import BATCH_TOKENS, DRAFT_TOKENS, gguf_file, smollm2


def test_the_guesses_of_all_answers_fit_into_a_batch() -> None:
    for weights in (smollm2(), gguf_file(Path("model.gguf"))):
        assert weights.concurrency * (1 + DRAFT_TOKENS) <= BATCH_TOKENS
