"""A request and the tokens of an answer, as tests of routed models send and read them."""

from __future__ import annotations

from voicepipe.ports.model import Content, ModelRequest, Text

HI = ModelRequest(model="any", messages=(Content("user", (Text("Hi"),)),), session="s1")
WORDS = tuple(f" word{i}" for i in range(30))
