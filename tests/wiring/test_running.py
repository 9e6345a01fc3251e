"""The whole server, from settings to a spoken answer, with fake vendors on real sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.telemetry import isolation
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S
from voicepipe.wiring import Running, running
from voicepipe.wiring import server as server_module
from voicepipe.wiring.sessions import Sessions


def settings_for(folder: Path, vendor: FakeVendor, **more: object) -> Settings:
    """Two agents on one fake vendor; everything written goes into `folder`."""
    overrides: dict[str, object] = {
        "server.port": 0,
        "server.data_dir": str(folder / "data"),
        "server.drain_ms": 0,
        "providers.fake.base_url": vendor.base_url,
        "agents.default.stt": "fake/stt",
        "agents.default.llm": "fake/llm",
        "agents.default.tts": "fake/tts",
        "agents.support.llm": "fake/better-mind",
        "agents.support.instructions": "Help.",
        **more,
    }
    return load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)


def written_in(folder: Path) -> list[tuple[str, int]]:
    """What lies there: names and modes."""
    return [(entry.name, stat.S_IMODE(entry.stat().st_mode)) for entry in folder.iterdir()]


class Call:
    """A client of the wire, as plain as can be."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse) -> None:
        self._line = line

    async def send(self, kind: str, **fields: object) -> None:
        await self._line.send_str(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of that type; others are passed over, errors are not."""
        async with asyncio.timeout(WAIT_S):
            while True:
                event = json.loads(await self._line.receive_str())
                assert event["type"] == kind or event["type"] != "error", event
                if event["type"] == kind:
                    return dict(event)


@asynccontextmanager
async def calling(server: Running, path: str = "/v1/realtime") -> AsyncIterator[Call]:
    async with aiohttp.ClientSession() as http, http.ws_connect(server.base_url + path) as line:
        yield Call(line)


async def get(server: Running, path: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(server.base_url + path) as answer:
        return await answer.json()


async def chat_in_text(call: Call, text: str) -> dict[str, Any]:
    """One reply to a written question; gives the response of its `response.done`."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await call.send("conversation.item.create", item=item)
    await call.send("response.create", response={"output_modalities": ["text"]})
    done = await call.until("response.done")
    return dict(done["response"])


async def test_a_question_is_answered_and_its_turn_is_stored(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        vendor.llm.cue(LlmCue(tokens=("Good ", "day.")))
        async with running(settings_for(tmp_path, vendor)) as server:
            async with calling(server) as call:
                created = await call.until("session.created")
                assert created["session"]["model"] == "default"
                response = await chat_in_text(call, "Hello?")
            assert response["status"] == "completed"
            assert response["output"][0]["content"][0]["text"] == "Good day."
            question = await vendor.llm.nth(0)
            assert question.question["model"] == "llm"
            turn_id = response["metadata"]["voicepipe_turn"]
        assert vendor.stt.busy() == vendor.tts.busy() == 0
        async with running(settings_for(tmp_path, vendor)) as server:
            turn = await get(server, f"/v1/turns/{turn_id}")
    assert (turn["id"], turn["agent"], turn["outcome"]) == (turn_id, "default", "completed")
    assert turn["agent_text"] == "Good day."
    assert turn["providers"]["llm"] == "fake/llm"


async def test_two_agents_answer_each_with_their_own_model(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, running(settings_for(tmp_path, vendor)) as server:
        for path, model in (("", "llm"), ("?model=support", "better-mind")):
            before = len(vendor.llm.received)
            async with calling(server, f"/v1/realtime{path}") as call:
                await chat_in_text(call, "Hello?")
            assert (await vendor.llm.nth(before)).question["model"] == model


async def test_the_data_folder_is_private_and_the_only_one(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, running(settings_for(tmp_path, vendor)) as server:
        assert await get(server, "/readyz") == {"status": "ready", "missing": []}
        assert server.is_open
    assert written_in(tmp_path) == [("data", 0o700)]


async def test_texts_are_not_stored_when_the_settings_say_so(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        quiet = settings_for(tmp_path, vendor, **{"records.text": "never"})
        async with running(quiet) as server, calling(server) as call:
            await chat_in_text(call, "Hello?")
        async with running(settings_for(tmp_path, vendor)) as server:
            (turn,) = (await get(server, "/v1/turns"))["data"]
    assert (turn["agent_text"], turn["user_text"], turn["played_text"]) == ("", "", "")


async def test_a_token_starts_the_session_that_it_was_minted_for(tmp_path: Path) -> None:
    async with (
        FakeVendor() as vendor,
        running(settings_for(tmp_path, vendor)) as server,
        aiohttp.ClientSession() as http,
    ):
        body = {"session": {"type": "realtime", "model": "support", "instructions": "Be a parrot."}}
        async with http.post(f"{server.base_url}/v1/realtime/client_secrets", json=body) as answer:
            token = (await answer.json())["value"]
        protocols = ("realtime", f"openai-insecure-api-key.{token}")
        async with http.ws_connect(f"{server.base_url}/v1/realtime", protocols=protocols) as line:
            session = (await Call(line).until("session.created"))["session"]
    assert (session["model"], session["instructions"]) == ("support", "Be a parrot.")


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        with pytest.raises(ConfigError) as caught:
            async with running(settings_for(tmp_path, vendor, **{"server.port": vendor.port})):
                pass
    assert str(caught.value).startswith(f"server.port: expected a port that is free on 127.0.0.1, got {vendor.port}: ")


async def test_an_adapter_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        with pytest.raises(ConfigError, match=r"agents\.default\.stt: no stt adapter of kind 'telepathy'"):
            async with running(settings_for(tmp_path, vendor, **{"providers.fake.kind": "telepathy"})):
                pass


async def test_local_models_that_do_not_load_end_the_server_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port answers while they load, and says what is missing; then the block is cancelled and the reason raised."""
    question, fail = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def no_engine(*_: object, **__: object) -> AsyncIterator[None]:
        question.set()
        await fail.wait()
        raise ConfigError("local engines: this CPU lacks AVX2")
        yield

    monkeypatch.setattr("voicepipe.wiring.engine.start_engine", no_engine)

    async def watch(settings: Settings) -> None:
        async with running(settings) as server:
            await question.wait()
            assert not server.ready.is_set()
            loading = {"status": "starting", "missing": ["local voice: loading"]}
            assert await get(server, "/readyz") == loading
            fail.set()
            await asyncio.Event().wait()

    async with FakeVendor() as vendor:
        with pytest.raises(ConfigError, match=r"^local engines: this CPU lacks AVX2$"):
            await watch(settings_for(tmp_path, vendor, **{"agents.default.tts": "local/hibari"}))


async def test_the_settings_of_who_may_come_in_reach_the_server(tmp_path: Path) -> None:
    """TLS, key files, trusted proxies and the slots of a project."""
    from_outside = {"Host": "voice.example", "X-Forwarded-For": "203.0.113.7"}
    private = ed25519.Ed25519PrivateKey.generate()
    pem = tmp_path / "signs.pem"
    pem.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    chosen: dict[str, object] = {
        "server.tls_dev": True,
        "server.token_keys": [str(pem)],
        "server.trusted_proxies": ["127.0.0.1"],
        "quotas.project_sessions": 1,
    }
    async with FakeVendor() as vendor, running(settings_for(tmp_path, vendor, **chosen)) as server:
        assert server.base_url.startswith("https://")
        assert not server.is_open
        trusting = ssl.create_default_context(cafile=tmp_path / "data" / "tls-dev" / "cert.pem")
        keys = ApiKeys(tmp_path / "data")
        bearer = {"Authorization": f"Bearer {keys.create('acme', now_s=1).text}"}
        url = f"{server.base_url}/v1/realtime"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as http:
            async with http.get(f"{server.base_url}/.well-known/jwks.json") as answer:
                (key,) = (await answer.json(content_type=None))["keys"]
                assert key["alg"] == "EdDSA"
            async with http.get(f"{server.base_url}/v1/turns", headers=from_outside) as answer:
                assert (await answer.json())["error"]["code"] == "missing_credential"
            async with http.ws_connect(url, headers=bearer):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(url, headers=bearer)
                assert refused.value.status == 429


async def test_work_beside_the_sessions_that_fails_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is logged, and the work begins again."""
    failed, begun_again = 0, asyncio.Event()

    async def fail(*_: object) -> None:
        nonlocal failed
        failed += 1
        if failed > 1:
            begun_again.set()
        raise KeyError("a bug")

    async def fail_once(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(isolation, "RESTART_S", 0.0)
    monkeypatch.setattr(server_module, "purge_responses", fail)
    monkeypatch.setattr(Sessions, "warm", fail_once)
    async with FakeVendor() as vendor, running(settings_for(tmp_path, vendor)) as server, calling(server) as call:
        async with asyncio.timeout(WAIT_S):
            await begun_again.wait()
        assert (await chat_in_text(call, "Hello?"))["status"] == "completed"
    where = {record.__dict__["fields"]["where"] for record in caplog.records if record.message == "crashed"}
    assert where == {"responses", "warm-up"}
