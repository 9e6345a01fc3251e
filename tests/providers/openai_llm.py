"""The model and the request of the tests of an OpenAI-shaped LLM."""

from __future__ import annotations

from collections.abc import Callable

from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.registry import ProviderSettings, Spec

SPEC = Spec("groq", "meta/llama")
HI = ModelRequest(model="meta/llama", messages=(Content("user", (Text("Hi"),)),))
Settings = Callable[..., ProviderSettings]
