"""Sets of nodes in several regions: each has stores of its own, and a client takes the nearest one that is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.wiring.test_running import settings_for
from voicepipe.client import Region, ServerUnreachable, connect, nearest_region, regions
from voicepipe.client.regions import in_order
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.flaky_proxy import FlakyProxy, flaky_proxy
from voicepipe.testing.waiting import WAIT_S
from voicepipe.wiring import Running, running

WAIT_MS = int(1_000 * WAIT_S)


@dataclass
class Place:
    """A region: its address, and the server behind it while one runs."""

    name: str
    address: FlakyProxy
    folder: Path
    server: Running | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.address.port}"


@asynccontextmanager
async def places(folder: Path, vendor: FakeVendor, *names: str) -> AsyncIterator[dict[str, Place]]:
    """Run a server in each region. One key signs all client secrets, as one settings file for all regions gives it."""
    pem = folder / "tokens.pem"
    key = ed25519.Ed25519PrivateKey.generate()
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    async with AsyncExitStack() as stack:
        found = {}
        for name in names:
            between = await stack.enter_async_context(flaky_proxy(0))
            found[name] = Place(name, between, folder / name)
        addresses = {f"regions.{region.name}.url": region.url for region in found.values()}
        for region in found.values():
            region.folder.mkdir()
            more: dict[str, object] = {"server.token_keys": (str(pem),), "cluster.region": region.name, **addresses}
            region.server = await stack.enter_async_context(running(settings_for(region.folder, vendor, **more)))
            region.address.server_port = int(region.server.base_url.rpartition(":")[2])
        yield found


async def mint(url: str) -> str:
    async with aiohttp.ClientSession() as http, http.post(f"{url}/v1/realtime/client_secrets", json={}) as answer:
        body: dict[str, Any] = await answer.json()
        assert answer.status == 200, body
        return str(body["value"])


async def test_a_conversation_runs_in_the_region_that_is_ready(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, places(tmp_path, vendor, "eu", "us") as found:
        both = await regions(found["eu"].url, timeout_ms=WAIT_MS)
        assert {(region.name, region.url, region.is_ready, region.why) for region in both} == {
            (name, region.url, True, "") for name, region in found.items()
        }
        assert both == in_order(both)
        assert all(region.round_trip_ms is not None and region.round_trip_ms > 0 for region in both)

        found["eu"].address.server_port = 0  # its balancer has no node
        found["eu"].address.abort()
        nearest = await nearest_region(found["eu"].url, found["us"].url, timeout_ms=WAIT_MS)
        assert (nearest.name, nearest.url) == ("us", found["us"].url)
        (_, gone) = await regions(nearest.url, timeout_ms=WAIT_MS)
        assert (gone.name, gone.is_ready, gone.round_trip_ms) == ("eu", False, None)
        assert gone.why

        secret = await mint(nearest.url)
        async with connect(nearest.url, key=secret) as call:
            assert call.session_id


async def test_a_client_secret_is_valid_in_its_region_alone(tmp_path: Path) -> None:
    """Its limits are counted in one store: valid in two regions, a secret for one session would start two."""
    async with FakeVendor() as vendor, places(tmp_path, vendor, "eu", "us") as found:
        secret = await mint(found["eu"].url)
        headers = {"Authorization": f"Bearer {secret}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.get(f"{found['us'].url}/v1/realtime") as answer:
                refused = (await answer.json())["error"]
                assert (answer.status, refused["code"]) == (401, "wrong_audience")
                assert "'voicepipe-realtime/eu'" in refused["message"]
                assert "'voicepipe-realtime/us'" in refused["message"]
            async with http.get(f"{found['eu'].url}/v1/realtime") as answer:
                assert answer.status == 426, "it may begin, over a WebSocket"


async def test_any_page_reads_the_regions(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, places(tmp_path, vendor, "eu") as found, aiohttp.ClientSession() as http:
        headers = {"Origin": "https://shop.example"}
        async with http.get(f"{found['eu'].url}/v1/regions", headers=headers) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
            data = [{"name": "eu", "url": found["eu"].url}]
            assert await answer.json() == {"object": "list", "region": "eu", "ready": True, "data": data}


async def test_what_is_no_list_of_regions_is_named(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        async with running(settings_for(tmp_path, vendor)) as server:
            with pytest.raises(ServerUnreachable, match=r"no \[regions.NAME\] in its settings"):
                await regions(server.base_url, timeout_ms=WAIT_MS)
        with pytest.raises(ServerUnreachable, match="no server answers"):
            await regions(server.base_url, timeout_ms=WAIT_MS)


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """Run a server that answers each request with these bytes, `PORT` in them replaced, or never; give its address."""
    served = set()
    port = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if answer is None:
                    continue
                writer.write(answer.replace(b"PORT", port))
                if b"keep-alive" not in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = str(server.sockets[0].getsockname()[1]).encode()
        yield f"http://127.0.0.1:{port.decode()}"
        await asyncio.gather(*filter(None, served))


def http_answer(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nConnection: keep-alive\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http_answer(b"what"), "got no JSON"),
        (http_answer(b"{}"), "got other JSON"),
        (http_answer(b"", "404 Not Found"), "expected status 200, got 404"),
        (b"", "Server disconnected"),
    ],
)
async def test_a_server_of_another_kind_is_named(answer: bytes, why: str) -> None:
    async with answering(answer) as url:
        with pytest.raises(ServerUnreachable, match=why):
            await regions(url, timeout_ms=WAIT_MS)


async def test_a_region_that_hangs_is_given_up() -> None:
    async with answering(None) as url:
        with pytest.raises(ServerUnreachable, match="no answer within 50 ms"):
            await regions(url, timeout_ms=50)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b'{"region": "eu", "ready": false,', "eu: it accepts no sessions now"),
        (b'{"region": "us", "ready": true,', "eu: its address has the nodes of another region, 'us'"),
    ],
)
async def test_a_region_that_is_not_ready_is_named(said: bytes, why: str) -> None:
    """A node that drains still answers."""
    body = said + b' "data": [{"name": "eu", "url": "http://127.0.0.1:PORT"}]}'
    padded = body.ljust(len(body) + 1)  # a port has five digits, and PORT four letters
    async with answering(http_answer(padded).replace(padded, body)) as url:
        with pytest.raises(ServerUnreachable, match=why):
            await nearest_region(url, timeout_ms=WAIT_MS)


def test_the_nearest_ready_region_is_the_first() -> None:
    near, far = Region("a", "http://a", 10.0, is_ready=True), Region("b", "http://b", 90.0, is_ready=True)
    full, gone = Region("c", "http://c", 1.0, is_ready=False), Region("d", "http://d", None, is_ready=False)
    assert in_order((gone, far, full, near)) == (near, far, full, gone)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"regions.eu.url": "https://eu.example.com"}, "cluster.region: expected one of eu, .* got ''"),
        ({"regions.eu.url": "eu.example.com", "cluster.region": "eu"}, "eu.url: expected an address"),
        (
            {"regions.eu.url": "https://eu.example.com/v1", "cluster.region": "eu"},
            "eu.url: expected an address",
        ),
        ({"regions.eu.url": "", "cluster.region": "eu"}, "eu.url: expected an address .* got ''"),
        ({"regions.eu.ulr": "https://eu.example.com", "cluster.region": "eu"}, "did you mean"),
    ],
)
def test_a_wrong_region_is_named(overrides: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
