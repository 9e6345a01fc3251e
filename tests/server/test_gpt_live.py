"""GPT-Live, with the `openai` package: refused in a sentence, over HTTP and over WebSocket."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from websockets.exceptions import InvalidStatus

from voicepipe.server.gpt_live import WHY


async def test_a_live_session_is_refused_in_a_sentence(fake_server: Any) -> None:
    async with (
        fake_server() as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.post("/live/sessions", body={}, cast_to=object)
        assert (refused.value.code, WHY in refused.value.message) == ("live_not_served", True)
        with pytest.raises(InvalidStatus) as unopened:
            async with client.live.connect():
                pass
        assert unopened.value.response.status_code == 404
        assert WHY in (unopened.value.response.body or b"").decode()
