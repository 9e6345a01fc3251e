"""Hold calls whose media goes through a real TURN server, and say what works.

`python -m tests.measure.turn_server --turnserver PROGRAM` starts coturn on 127.0.0.1, and a server with fake providers
that has no address but the relay's. A client calls it over each way that `webrtc.ice_servers` can name: UDP, TCP and
TLS. coturn's certificate has an issuer that this process trusts by `SSL_CERT_FILE`, and in the last call another one.

This unpacks the packages of Debian into a folder without installing them. `LD_LIBRARY_PATH` then names its libraries:

    apt-get download coturn libevent-{core,extra,openssl,pthreads}-2.1-7 libhiredis0.14 libmariadb3 libpq5
    for each in *.deb; do dpkg-deb -x "$each" FOLDER; done
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aioice import ice

from tests.server.rtc_user import rtc_call
from voicepipe.config import load
from voicepipe.server.tls import dev_certificate
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.free_port import free_port
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import running

USER, PASSWORD = "anna", "the password of the relay"
ADDRESSES: Final = (
    "turn:127.0.0.1:{port}",
    "turn:127.0.0.1:{port}?transport=tcp",
    "turns:127.0.0.1:{tls_port}",
    "turns:127.0.0.1:{tls_port}?transport=tcp",
)
N_OF_CLIENT: Final = 2
"""Times that aiortc's client looks for its addresses."""

START_S: Final = 10.0
SDP_SESSION: Final = {"type": "realtime", "model": "default"}


@asynccontextmanager
async def coturn(program: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """Run coturn while the block runs; yield its port, and that for TLS."""
    cert, key = dev_certificate(folder / "tls")
    port, tls_port = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *(program, "-n", "--no-cli", "--allow-loopback-peers", "--no-dtls", "--lt-cred-mech", "--realm=voicepipe.test"),
        *(f"--user={USER}:{PASSWORD}", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1"),
        *(f"--listening-port={port}", f"--tls-listening-port={tls_port}", f"--cert={cert}", f"--pkey={key}"),
        *(f"--userdb={folder / 'turn.db'}", f"--pidfile={folder / 'turn.pid'}", "--log-file=stdout", "--simple-log"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(lambda: _listens(tls_port), within_s=START_S)
        yield port, tls_port
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool | None:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    writer.close()
    return True


async def call(folder: Path, address: str) -> str:
    """Return what a call has that can only use this TURN server."""
    requests = list[bool]()

    def of_the_client_alone(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        requests.append(True)
        return ["127.0.0.1"] if len(requests) <= N_OF_CLIENT else []

    own, ice.get_host_addresses = ice.get_host_addresses, of_the_client_alone
    try:
        async with FakeVendor() as vendor, aiohttp.ClientSession() as http:
            overrides = {
                "server.port": 0,
                "server.drain_ms": 0,
                "server.data_dir": str(folder / "data"),
                "providers.fake.base_url": vendor.base_url,
                "agents.default.stt": "fake/stt",
                "agents.default.llm": "fake/llm",
                "agents.default.tts": "fake/tts",
                "agents.default.first_speaker": "agent",
                "agents.default.greeting": "Hello there.",
                "webrtc.ice_servers": address,
                "webrtc.turn_username": USER,
                "webrtc.turn_credential": PASSWORD,
            }
            settings = load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)
            async with running(settings) as server:
                try:
                    async with rtc_call(http, server.base_url, session=dict(SDP_SESSION)) as user:
                        kinds = {
                            line.split(" typ ")[1].split()[0]
                            for line in user.connection.remoteDescription.sdp.splitlines()
                            if " typ " in line
                        }
                        await user.event("session.created")
                        await user.sound()
                        return f"events and sound; addresses of the server: {', '.join(sorted(kinds))}"
                except TimeoutError:
                    return "no connection"
    finally:
        ice.get_host_addresses = own


async def measure(program: str, folder: Path) -> bool:
    """Print what each address gives; return whether all is as it should be."""
    good = True
    async with coturn(program, folder) as (port, tls_port):
        os.environ["SSL_CERT_FILE"] = str(folder / "tls" / "cert.pem")
        for address in ADDRESSES:
            named = address.format(port=port, tls_port=tls_port)
            found = await call(folder, named)
            good &= found.endswith(": relay")
            sys.stdout.write(f"{named}: {found}\n")
        del os.environ["SSL_CERT_FILE"]
        found = await call(folder, ADDRESSES[2].format(tls_port=tls_port))
        sys.stdout.flush()
        sys.stdout.write(f"turns with a certificate that is not trusted: {found}\n")
    return good and found == "no connection"


def main(arguments: list[str] | None = None) -> int:
    """Hold the calls; return 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.turn_server", description=__doc__)
    parser.add_argument("--turnserver", default="turnserver", help="coturn's program (turnserver)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(measure(options.turnserver, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
