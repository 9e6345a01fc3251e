"""The request rules of each LLM vendor, from the sources that are named beside them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from voicepipe.testing.fakes import vendor_anthropic, vendor_gemini
from voicepipe.testing.fakes.request_rules import RequestRules

_NOT_NAMED: Final = frozenset({"auto", "none"})
"""For vendors that have neither `required` nor the name of one function."""

VENDOR_RULES: Final[Mapping[str, RequestRules]] = MappingProxyType(
    {
        # OpenAI API reference: reasoning models refuse max_tokens and sampling parameters.
        "openai": RequestRules(
            model="gpt-5-mini",
            refuses=frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "stop"}),
            max_tokens_field="max_completion_tokens",
            affinity=("body", "prompt_cache_key"),
            quiet={"reasoning_effort": "minimal"},
        ),
        "anthropic": vendor_anthropic.RULES,
        "gemini": vendor_gemini.RULES,
        # Refusals in public issues (call ids, order of roles); pipecat's adapter (stream_options, seed).
        "mistral": RequestRules(
            model="mistral-small-latest",
            refuses=frozenset({"stream_options", "seed", "user", "logit_bias", "service_tier"}),
            tool_choices=frozenset({"auto", "none", "any"}),
            nine=True,
            usage="always",
            affinity=("body", "prompt_cache_key"),
        ),
        # DeepSeek's API pages; pipecat's adapter.
        "deepseek": RequestRules(
            model="deepseek-v4-flash",
            refuses=frozenset({"seed", "user", "max_completion_tokens", "logit_bias"}),
            cached_at="deepseek",
            quiet={"thinking": {"type": "disabled"}},
        ),
        # docs.cohere.com, compatibility API: parameters that are not supported.
        "cohere": RequestRules(
            model="command-a-03-2025",
            refuses=frozenset({"stream_options", "logit_bias", "parallel_tool_calls", "service_tier", "user"}),
            cached_at="nowhere",
            usage="never",
        ),
        # docs.x.ai; LiteLLM's adapter: grok-4 refuses these.
        "xai": RequestRules(
            model="grok-4.3",
            refuses=frozenset({"frequency_penalty", "presence_penalty", "stop"}),
            affinity=("header", "x-grok-conv-id"),
        ),
        # LiteLLM's adapter: no forced calls; its thinking models take no temperature.
        "moonshot": RequestRules(
            model="kimi-k2.6",
            temperatures=None,
            tool_choices=_NOT_NAMED,
            cached_at="flat",
            quiet={"thinking": {"type": "disabled"}},
        ),
        # platform.minimaxi.com: temperature above 0 and up to 1, at most 2048 tokens.
        "minimax": RequestRules(
            model="MiniMax-M2",
            refuses=frozenset({"logit_bias", "presence_penalty", "frequency_penalty"}),
            temperatures=(0.001, 1.0),
            max_tokens_field="max_completion_tokens",
            max_tokens=2_048,
            quiet={"reasoning_split": True},
        ),
        # platform.xiaomimimo.com, OpenAI API: its examples send max_completion_tokens and this switch.
        "xiaomi": RequestRules(
            model="mimo-v2.6-flash",
            max_tokens_field="max_completion_tokens",
            quiet={"thinking": {"type": "disabled"}},
        ),
        # alibabacloud.com: deep thinking is a top-level field.
        "alibaba": RequestRules(model="qwen3.8-flash", quiet={"enable_thinking": False}),
        # pipecat's and LiteLLM's adapters: the parameters that it takes.
        "inception": RequestRules(
            model="mercury-2",
            refuses=frozenset({"seed", "user", "logit_bias", "top_p", "parallel_tool_calls", "service_tier"}),
            quiet={"reasoning_effort": "instant", "realtime": True},
        ),
        # console.groq.com: parameters that are not supported.
        "groq": RequestRules(
            model="openai/gpt-oss-20b",
            refuses=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
            quiet={"reasoning_effort": "low"},
        ),
        # pipecat's adapter strips these.
        "fireworks": RequestRules(
            model="accounts/fireworks/models/gpt-oss-20b",
            refuses=frozenset({"stream_options", "seed", "max_completion_tokens"}),
            usage="always",
            affinity=("header", "x-session-affinity"),
            quiet={"reasoning_effort": "low"},
        ),
        # LiteLLM's adapter: tool_choice auto or none; its list of parameters.
        "deepinfra": RequestRules(
            model="openai/gpt-oss-20b",
            refuses=frozenset({"seed", "user", "logprobs", "service_tier"}),
            tool_choices=_NOT_NAMED,
            quiet={"reasoning_effort": "low"},
        ),
        # inference-docs.cerebras.ai: 400 on these.
        "cerebras": RequestRules(
            model="gpt-oss-120b",
            refuses=frozenset(
                {"frequency_penalty", "presence_penalty", "logit_bias", "parallel_tool_calls", "service_tier"}
            ),
            quiet={"reasoning_effort": "low"},
        ),
        # pipecat's and LiteLLM's adapters: plain strings, no penalties, no seed.
        "sambanova": RequestRules(
            model="gpt-oss-120b",
            refuses=frozenset({"frequency_penalty", "presence_penalty", "seed", "logit_bias"}),
            text_only=True,
        ),
        # LiteLLM's adapter: gpt-oss always reasons a little.
        "together": RequestRules(model="openai/gpt-oss-120b", quiet={"reasoning_effort": "low"}),
        # Your own vLLM: docs.vllm.ai, the chat template's switch.
        "modal": RequestRules(model="Qwen/Qwen3-8B", quiet={"chat_template_kwargs": {"enable_thinking": False}}),
        "runpod": RequestRules(model="Qwen/Qwen3-8B", quiet={"chat_template_kwargs": {"enable_thinking": False}}),
        "lambda": RequestRules(model="Qwen/Qwen3-8B", quiet={"chat_template_kwargs": {"enable_thinking": False}}),
        "vllm": RequestRules(model="Qwen/Qwen3-8B", quiet={"chat_template_kwargs": {"enable_thinking": False}}),
        # openrouter.ai: reasoning is one object.
        "openrouter": RequestRules(model="google/gemini-2.5-flash", quiet={"reasoning": {"enabled": False}}),
        # docs.inworld.ai: Basic on chat completions; sticks to the field `user`.
        "inworld": RequestRules(model="auto", key_prefix="Basic ", affinity=("body", "user"), usage="always"),
        "crazyrouter": RequestRules(model="gpt-4.1-mini"),
        "flo2": RequestRules(model="fast"),
        # Ollama's own OpenAI compatibility page.
        "ollama": RequestRules(model="qwen3:8b", key="", cached_at="nowhere", quiet={"reasoning_effort": "none"}),
    }
)
"""Vendor -> its rules."""
