"""The proxy example, in front of a real server: calls, pages and what must not be reached from outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.client import connect
from voicepipe.clock import unix_s
from voicepipe.server.tls import dev_certificate

pytestmark = pytest.mark.slow

AROUND = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/voicepipe.conf;
}}
"""


def bound() -> socket.socket:
    """A socket that listens where the kernel wants, for another process."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    return listener


@asynccontextmanager
async def proxied(example: str, folder: Path, upstream: str) -> AsyncIterator[tuple[int, int]]:
    """Run nginx with the example, its places exchanged for ours; gives the ports of http and https."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert nginx, "nginx is missing: `python3 deploy/up.py test` says what to install"
    cert, key = dev_certificate(folder / "tls")
    with bound() as plain, bound() as secure:
        ports = plain.getsockname()[1], secure.getsockname()[1]
        for ours, theirs in (
            ("listen 80;", f"listen 127.0.0.1:{ports[0]};"),
            ("listen 443 ", f"listen 127.0.0.1:{ports[1]} "),
            ("server 127.0.0.1:8080;", f"server {upstream};"),
            ("/etc/ssl/voice.example/fullchain.pem", str(cert)),
            ("/etc/ssl/voice.example/privkey.pem", str(key)),
            ("/var/log/nginx/voicepipe.log", str(folder / "access.log")),
        ):
            assert ours in example
            example = example.replace(ours, theirs)
        (folder / "voicepipe.conf").write_text(example)
        user = "" if os.geteuid() else "user root;"  # the folder's owner; without root, nginx keeps its user
        (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user))
        with (folder / "error.log").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(nginx, "-c", str(folder / "nginx.conf"), "-e", "stderr"),
                stderr=errors,
                env={"NGINX": f"{plain.fileno()};{secure.fileno()};"},  # it takes over what listens, as in an upgrade
                pass_fds=(plain.fileno(), secure.fileno()),
            )
        try:
            yield ports
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def test_a_call_through_the_proxy(
    fake_server: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, over TLS; metrics stay inside, plain http is sent elsewhere, and no credential is logged."""
    example = (root / "deploy" / "proxy" / "nginx.conf").read_text()
    async with fake_server({"server.trusted_proxies": ["127.0.0.1"]}) as server:
        key = ApiKeys(server.folder / "data").create("acme", now_s=unix_s()).text
        async with proxied(example, tmp_path, server.url.removeprefix("http://")) as (plain, secure):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "cert.pem"))
            async with connect(f"https://127.0.0.1:{secure}", key=key) as call:
                assert (await call.text_turn("What time is it?")).status == "completed"
            trusting = ssl.create_default_context(cafile=tmp_path / "tls" / "cert.pem")
            async with aiohttp.ClientSession() as http:
                bearer = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "127.0.0.1"}
                for path, headers, status in (
                    ("/healthz", {}, 200),
                    ("/v1/models", bearer, 200),
                    ("/v1/models", {"X-Forwarded-For": "127.0.0.1"}, 401),  # no client can pretend to be this machine
                    ("/metrics", bearer, 404),
                    (f"/v1/models?token={key}", {}, 401),
                ):
                    url = f"https://127.0.0.1:{secure}{path}"
                    async with http.get(url, headers=headers, ssl=trusting) as answer:
                        assert (path, answer.status) == (path, status)
                url = f"http://127.0.0.1:{plain}/talk"
                async with http.get(url, headers={"Host": "voice.example"}, allow_redirects=False) as answer:
                    assert (answer.status, answer.headers["Location"]) == (308, "https://voice.example/talk")
        logged = (tmp_path / "access.log").read_text()
        assert '"GET /v1/realtime" 101' in logged
        assert key not in logged
        errors = (tmp_path / "error.log").read_text().splitlines()
        assert [line for line in errors if "[notice]" not in line] == []
