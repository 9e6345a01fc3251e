"""A whole server whose stores fail for real: no call is refused, nothing is lost, and the failure is reported."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.wiring.test_running import Call, chat_in_text, settings_for
from tests.wiring.test_serve import config_file
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cluster.sqlite_tables import Tables
from voicepipe.errors import ConfigError
from voicepipe.testing import store_faults
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import Running, running

FILES = ("cluster.sqlite3", "turns.sqlite3")


class Client:
    """A client with an API key, and its responses: every body is searched for names of files."""

    def __init__(self, http: aiohttp.ClientSession, server: Running, folder: Path) -> None:
        self._http, self._url = http, server.base_url
        self._key = ApiKeys(folder / "data").create("acme", now_s=1, scopes=["realtime", "tokens", "operate_all"]).text

    async def request(self, method: str, path: str, body: object = None, *, key: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key or self._key}"}
        async with self._http.request(method, self._url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            assert "sqlite" not in text, text
            return answer.status, await answer.json() if "json" in answer.content_type else text

    async def mint(self, **limits: object) -> str:
        status, body = await self.request("POST", "/v1/realtime/client_secrets", {"voicepipe": {"limits": limits}})
        assert status == 200, body
        return str(body["value"])

    async def turn(self, key: str = "") -> str:
        """A call with one question; returns its turn's id."""
        headers = {"Authorization": f"Bearer {key or self._key}"}
        async with self._http.ws_connect(f"{self._url}/v1/realtime", headers=headers) as line:
            response = await chat_in_text(Call(line), "Hello?")
        assert response["status"] == "completed"
        return str(response["metadata"]["voicepipe_turn"])

    async def failing_stores(self) -> dict[str, str]:
        status, body = await self.request("GET", "/readyz")
        assert (status, body["status"]) == (200, "ready")
        return {each["store"]: each["kind"] for each in body.get("storage", ())}

    async def turns(self) -> set[str]:
        status, body = await self.request("GET", "/v1/turns")
        assert status == 200, body
        return {turn["id"] for turn in body["data"]}

    async def metric(self, name: str) -> float:
        _, text = await self.request("GET", "/metrics")
        return next(float(line.split(" ")[1]) for line in text.splitlines() if line.startswith(f"voicepipe_{name} "))


Scenario = Callable[[Client, Path], Awaitable[None]]


async def run_scenario(tmp_path: Path, scenario: Scenario, **more: object) -> None:
    """Run a server and a client's scenario on it."""
    async with (
        FakeVendor() as vendor,
        running(settings_for(tmp_path, vendor, **more)) as server,
        aiohttp.ClientSession() as http,
    ):
        await scenario(Client(http, server, tmp_path), tmp_path / "data")


@contextmanager
def failing(fault: store_faults.Fault, data: Path) -> Iterator[None]:
    with ExitStack() as faults:
        for name in FILES:
            faults.enter_context(fault(data / name))
        yield


FAULTS = {
    "full": store_faults.full,
    "locked": store_faults.locked,
    "damaged": store_faults.damaged,
    "broken_disk": store_faults.broken_disk,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
async def test_no_call_is_refused_and_no_turn_is_lost(tmp_path: Path, name: str) -> None:
    """New calls with a key and with secrets, old and new; limits hold; and all is stored when the disk is well."""

    async def scenario(client: Client, data: Path) -> None:
        used, fresh = await client.mint(max_sessions=1), await client.mint(turns=2)
        turns = {await client.turn(), await client.turn(used), await client.turn(fresh)}

        async def stored() -> bool | None:
            return (await client.turns()) >= turns or None

        await eventually(stored)
        with failing(FAULTS[name], data):
            minted = await client.mint(max_sessions=1)
            turns |= {await client.turn(key) for key in ("", fresh, minted)}
            for spent in (used, minted):
                status, body = await client.request("GET", "/v1/realtime", key=spent)
                assert (status, body["error"]["code"]) == (401, "token_used_up")

            async def spent_here() -> bool | None:  # a turn is counted when its call has ended
                _, body = await client.request("GET", "/v1/realtime", key=fresh)
                return body["error"]["code"] == "limit_reached" or None

            await eventually(spent_here)
            await eventually(lambda: both_failing(client))
            assert await client.metric("records_waiting") > 0
            assert await client.metric('storage_failing{store="shared"}') == 1

        async def well() -> bool | None:
            return (not await client.failing_stores() and not await client.metric("shared_store_pending")) or None

        await eventually(well)
        await eventually(stored)
        assert await client.metric("records_lost_total") == await client.metric("records_dropped_total") == 0
        for spent in (used, minted):
            assert (await client.request("GET", "/v1/realtime", key=spent))[0] == 401

    await run_scenario(tmp_path, scenario)


async def both_failing(client: Client) -> bool | None:
    return set(await client.failing_stores()) == {"shared", "records"} or None


async def test_what_only_the_store_knows_is_refused_if_that_was_chosen(tmp_path: Path) -> None:
    """A client secret is, with a reason and a time to come back; an API key is not."""

    async def scenario(client: Client, data: Path) -> None:
        secret = await client.mint()
        with failing(store_faults.damaged, data):
            await client.turn()
            status, body = await client.request("GET", "/v1/realtime", key=secret)
            assert (status, body["error"]["code"]) == (503, "storage_unavailable")

        async def well() -> bool | None:
            return not await client.failing_stores() or None

        await eventually(well)
        await client.turn(secret)

    await run_scenario(tmp_path, scenario, **{"server.store_unavailable": "refuse"})


async def test_a_revocation_while_the_store_fails_counts_at_once_and_says_that_it_is_not_stored(tmp_path: Path) -> None:
    """And is stored later."""

    async def scenario(client: Client, data: Path) -> None:
        body = {"voicepipe": {"subject": "anna"}}
        _, minted = await client.request("POST", "/v1/realtime/client_secrets", body)
        with failing(store_faults.full, data):
            gone = await client.request("POST", "/v1/realtime/client_secrets/revoke", {"subject": "anna"})
            assert gone == (200, {"revoked": True, "stored": False})
            status, body = await client.request("GET", "/v1/realtime", key=minted["value"])
            assert (status, body["error"]["code"]) == (401, "token_revoked")

        async def stored() -> bool | None:
            return not await client.metric("shared_store_pending") or None

        await eventually(stored)
        with closing(sqlite3.connect(data / "cluster.sqlite3")) as file:
            assert file.execute("SELECT name FROM revoked").fetchall() == [("anna",)]

    await run_scenario(tmp_path, scenario)


async def test_keys_go_on_working_while_their_file_can_not_be_read(tmp_path: Path) -> None:
    """Unused keys work too, and secrets are minted and checked; a new key counts later."""

    async def scenario(client: Client, data: Path) -> None:
        keys = ApiKeys(data)
        unused = await asyncio.to_thread(keys.create, "acme", now_s=1)
        await client.turn()
        made_last = await asyncio.to_thread(keys.create, "acme", now_s=1)
        with closing(sqlite3.connect(data / "auth.sqlite3", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # after a change: so the server wants to read, and can't
            for key in ("", unused.text, await client.mint()):
                await client.turn(key)
            assert await client.failing_stores() == {"keys": "locked"}
            other.execute("ROLLBACK")

        async def known() -> bool | None:
            status, _ = await client.request("GET", "/v1/turns", key=made_last.text)
            return status == 200 or None

        await eventually(known)
        assert await client.failing_stores() == {}

    await run_scenario(tmp_path, scenario)


@pytest.mark.slow
async def test_a_folder_that_can_not_be_written_gets_one_sentence(tmp_path: Path) -> None:
    """The error names the folder and says what to do. In `/sys` no user can make a file, not even root."""
    async with FakeVendor() as vendor:
        path = tmp_path / "voicepipe.toml"
        path.write_text(config_file(tmp_path, vendor).read_text().replace(str(tmp_path / "data"), "/sys"))
        program = (sys.executable, "-m", "voicepipe", "serve", "--config", str(path))
        process = await asyncio.create_subprocess_exec(*program, stderr=asyncio.subprocess.PIPE)
        _, output = await process.communicate()
    (sentence,) = output.decode().splitlines()
    assert sentence.startswith("voicepipe: server.data_dir: expected a folder that can be made and written, got '/sys'")
    assert sentence.endswith("or name another folder with --data-dir")
    assert process.returncode == 2


def test_a_file_that_another_program_holds_gets_a_sentence_too(tmp_path: Path) -> None:
    """It does not say that the file may be moved away."""
    path = tmp_path / "cluster.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConfigError, match="another program holds it: end that, or wait"):
            Tables(path)
