"""Inworld's Realtime API on a local socket: OpenAI's protocol at another address, with the model in the session.

Written from Inworld's documentation, "WebSocket" and "OpenAI migration".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import Status
from voicepipe.testing.fakes.openai_realtime_speech import FakeRealtimeSpeech

KEY = "aW53b3JsZDprZXk="
"""The only valid key; Inworld's are Base64 already."""


class FakeInworldRealtime(FakeRealtimeSpeech):
    """Inworld."""

    base_path = ""

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Basic {KEY}":
            return Status(401, "invalid credentials")
        if path != "/api/v1/realtime/session" or query.get("protocol") != "realtime" or not query.get("key"):
            return Status(404, "expected another address")
        return None

    def is_valid(self, session: dict[str, Any]) -> bool:
        return bool(session.get("model")) and super().is_valid(session)
