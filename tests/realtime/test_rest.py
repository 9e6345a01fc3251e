"""Section 7 of the contract: REST beside the socket."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from voicepipe.clock import unix_s
from voicepipe.testing.user import User, calling

Event = dict[str, Any]

SESSION = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"voice": "nova"}}}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def posted(server: Any, path: str, body: Any = None, **headers: str) -> tuple[int, Event]:
    """The status and the body of an answer."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/realtime/{path}", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def test_client_secrets(server: Any, new_key: str) -> None:
    """An `ek_`, when it expires, and the whole session that it starts."""
    status, minted = await posted(server, "client_secrets", {"session": SESSION}, **bearer(new_key))
    assert (status, set(minted)) == (200, {"value", "expires_at", "session"})
    assert minted["value"].startswith("ek_")
    assert 590 <= minted["expires_at"] - unix_s() <= 600
    displayed = minted["session"]
    assert (displayed["type"], displayed["object"], displayed["id"][:5]) == ("realtime", "realtime.session", "sess_")
    assert displayed["instructions"] == "Be brief."


async def test_client_secrets_without_a_body(server: Any, new_key: str) -> None:
    """Everything may be left out."""
    status, minted = await posted(server, "client_secrets", **bearer(new_key))
    assert (status, minted["session"]["type"]) == (200, "realtime")


async def test_client_secrets_for_transcription(server: Any, new_key: str) -> None:
    """Has an object of its own name, and starts such a session."""
    body = {"session": {"type": "transcription"}}
    _, minted = await posted(server, "client_secrets", body, **bearer(new_key))
    assert minted["session"]["object"] == "realtime.transcription_session"
    async with calling(server.url, headers=bearer(minted["value"])) as user:
        assert user.events[0]["session"]["type"] == "transcription"


@pytest.mark.parametrize(("seconds", "status"), [(9, 400), (10, 200), (7_200, 200), (7_201, 400)])
async def test_expires_after(server: Any, new_key: str, seconds: int, status: int) -> None:
    """10 to 7200 seconds."""
    body = {"expires_after": {"anchor": "created_at", "seconds": seconds}}
    got, answer = await posted(server, "client_secrets", body, **bearer(new_key))
    assert got == status
    if status == 200:
        assert abs(answer["expires_at"] - unix_s() - seconds) <= 2
    else:
        assert answer["error"]["param"] == "expires_after.seconds"


async def test_client_secrets_by_api_key_only(server: Any, new_key: str) -> None:
    """A secret mints no other one."""
    _, minted = await posted(server, "client_secrets", **bearer(new_key))
    status, answer = await posted(server, "client_secrets", **bearer(minted["value"]))
    assert (status, answer["error"]["type"]) == (403, "invalid_request_error")


async def test_a_secret_starts_many_sessions(server: Any, new_key: str) -> None:
    """Each with the session that was minted, which a later update may change."""
    _, minted = await posted(server, "client_secrets", {"session": SESSION}, **bearer(new_key))
    for _ in range(2):
        async with calling(server.url, headers=bearer(minted["value"])) as user:
            displayed = user.events[0]["session"]
            assert (displayed["instructions"], displayed["audio"]["output"]["voice"]) == ("Be brief.", "nova")
            await user.send("session.update", session={"type": "realtime", "instructions": "Be long."})
            assert (await user.until("session.updated"))["session"]["instructions"] == "Be long."


async def test_a_session_outlives_its_secret(server: Any, new_key: str) -> None:
    """The secret is for the door."""
    body = {"expires_after": {"anchor": "created_at", "seconds": 10}}
    _, minted = await posted(server, "client_secrets", body, **bearer(new_key))
    async with calling(server.url, headers=bearer(minted["value"])) as user:
        assert user.events[0]["session"]["expires_at"] > minted["expires_at"]


FLAT = {
    "model": "gpt-4o-realtime-preview",
    "modalities": ["text", "audio"],
    "instructions": "Be brief.",
    "voice": "alloy",
    "input_audio_format": "g711_ulaw",
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
}


async def test_sessions(server: Any, new_key: str) -> None:
    """The older endpoint: a flat session in and out, with the secret inside, good for a minute."""
    headers = {**bearer(new_key), "OpenAI-Beta": "assistants=v2"}
    status, made = await posted(server, "sessions", FLAT, **headers)
    assert status == 200
    assert {key: made[key] for key in FLAT if key != "turn_detection"} == {
        key: value for key, value in FLAT.items() if key != "turn_detection"
    }
    assert made["turn_detection"]["silence_duration_ms"] == 300
    assert 55 <= made["client_secret"]["expires_at"] - unix_s() <= 60
    older = bearer(made["client_secret"]["value"]) | {"OpenAI-Beta": "realtime=v1"}
    async with calling(server.url, headers=older) as user:
        displayed = user.events[0]["session"]
    assert (displayed["voice"], displayed["input_audio_format"]) == ("alloy", "g711_ulaw")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"voice": 7}, "voice"),
        ({"input_audio_format": "mp3"}, "input_audio_format"),
        ({"client_secret": {"expires_after": {"seconds": 1}}}, "client_secret.expires_after.seconds"),
        ([], None),
    ],
)
async def test_sessions_that_are_refused(server: Any, body: Any, param: str | None) -> None:
    """The field is named as the client wrote it."""
    status, answer = await posted(server, "sessions", body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_sessions_by_the_package_of_the_time(server: Any) -> None:
    """The openai package's own client for it."""
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
    made = await client.beta.realtime.sessions.create(
        model="gpt-4o-realtime-preview", client_secret={"expires_after": {"anchor": "created_at", "seconds": 120}}
    )
    assert made.client_secret.value.startswith("ek_")
    assert 110 <= made.client_secret.expires_at - unix_s() <= 120
    await client.close()


async def test_transcription_sessions(server: Any, new_key: str) -> None:
    """The same for sessions that only listen."""
    body = {"input_audio_format": "g711_alaw", "input_audio_transcription": {"model": "whisper-1"}}
    status, made = await posted(server, "transcription_sessions", body, **bearer(new_key))
    assert (status, made["object"]) == (200, "realtime.transcription_session")
    assert {key: made[key] for key in body} == body
    async with calling(server.url, headers=bearer(made["client_secret"]["value"])) as user:
        displayed = user.events[0]["session"]
    assert (displayed["type"], displayed["audio"]["input"]["format"]) == ("transcription", {"type": "audio/pcma"})


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"session": {"type": "video"}}, {}, 400),
        (None, {"Authorization": "Bearer vp_wrong"}, 401),
    ],
)
async def test_errors(server: Any, new_key: str, body: Any, headers: dict[str, str], status: int) -> None:
    """One shape for all."""
    got, answer = await posted(server, "client_secrets", body, **(headers or bearer(new_key)))
    assert got == status
    assert set(answer["error"]) == {"message", "type", "param", "code"}


async def test_errors_when_full(fake_server: Any) -> None:
    """503 with `Retry-After`, which SDKs honour."""
    async with fake_server({"server.max_sessions": 1}) as server, calling(server.url):
        url = server.url.replace("http", "ws") + "/v1/realtime"
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(url)
    assert refused.value.status == 503
    assert refused.value.headers is not None
    assert int(refused.value.headers["Retry-After"]) > 0


@pytest.mark.parametrize("model", ["gpt-realtime", "gpt-realtime-mini", "gpt-4o-realtime-preview", "anything"])
async def test_model_names(server: Any, model: str) -> None:
    """Any name finds the default agent, and the response shows the requested name."""
    async with calling(server.url, query=f"model={model}") as user:
        assert user.events[0]["session"]["model"] == model


async def test_model_names_when_strict(fake_server: Any) -> None:
    """404 `model_not_found`, if the operator wants that."""
    async with fake_server({"server.strict_models": True}) as server, aiohttp.ClientSession() as http:
        async with http.get(f"{server.url}/v1/realtime?model=anything", headers=UPGRADE) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "model_not_found")
        async with http.ws_connect(f"{server.url}/v1/realtime?model=default") as line:
            assert (await User(line).next())["type"] == "session.created"


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
