"""Run the balancers with the examples of deploy/proxy, their places exchanged for those of a test."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from voicepipe.server.tls import dev_certificate

PROXIES = Path(__file__).resolve().parents[2] / "deploy" / "proxy"

AROUND_NGINX = """
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


@dataclass(frozen=True)
class Balancer:
    """A balancer that runs."""

    plain_port: int
    secure_port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.secure_port}"

    @property
    def certificate(self) -> Path:
        """What a client must trust."""
        return self.folder / "tls" / "cert.pem"

    def logged(self) -> str:
        """Return the lines about requests."""
        return (self.folder / "access.log").read_text()

    def complaints(self) -> list[str]:
        """Return what it has logged beside them, without notices."""
        lines = (self.folder / "error.log").read_text().splitlines()
        return [line for line in lines if not re.search(r"\[(notice|NOTICE)\]", line)]


Start = Callable[[Path, Sequence[str]], AbstractAsyncContextManager[Balancer]]


def program(name: str) -> str:
    """Return the path of a program that Debian has in a folder of its own."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"{name} is missing: `python3 deploy/up.py test` says what to install"
    return found


def exchanged(example: str, *places: tuple[str, str]) -> str:
    """Return the example with other places; each must be in it."""
    for there, ours in places:
        assert there in example, there
        example = example.replace(there, ours)
    return example


def _bound() -> socket.socket:
    """A socket that listens where the kernel wants, for another process."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    return listener


@asynccontextmanager
async def nginx(folder: Path, nodes: Sequence[str]) -> AsyncIterator[Balancer]:
    """Run nginx with its example in front of `nodes` (host:port)."""
    cert, key = dev_certificate(folder / "tls")
    with _bound() as plain, _bound() as secure:
        balancer = Balancer(plain.getsockname()[1], secure.getsockname()[1], folder)
        line = "    server 127.0.0.1:8080 max_fails=1 fail_timeout=2s;\n"
        example = exchanged(
            (PROXIES / "nginx.conf").read_text(),
            ("listen 80;", f"listen 127.0.0.1:{balancer.plain_port};"),
            ("listen 443 ", f"listen 127.0.0.1:{balancer.secure_port} "),
            (line, "".join(line.replace("127.0.0.1:8080", node) for node in nodes)),
            ("/etc/ssl/voice.example/fullchain.pem", str(cert)),
            ("/etc/ssl/voice.example/privkey.pem", str(key)),
            ("/var/log/nginx/voicepipe.log", str(folder / "access.log")),
        )
        (folder / "voicepipe.conf").write_text(example)
        user = "" if os.geteuid() else "user root;"  # the folder's owner; without root, nginx keeps its user
        (folder / "nginx.conf").write_text(AROUND_NGINX.format(folder=folder, user=user))
        # It takes over what listens, as in an upgrade.
        environment = {"NGINX": f"{plain.fileno()};{secure.fileno()};"}
        command = (program("nginx"), "-c", str(folder / "nginx.conf"), "-e", "stderr")
        async with _running(command, environment, folder, None, plain, secure):
            yield balancer


@asynccontextmanager
async def haproxy(folder: Path, nodes: Sequence[str]) -> AsyncIterator[Balancer]:
    """Run HAProxy with its example in front of `nodes` (host:port)."""
    cert, key = dev_certificate(folder / "tls")
    pem = folder / "tls" / "both.pem"
    pem.write_text(cert.read_text() + key.read_text())
    with _bound() as plain, _bound() as secure:
        balancer = Balancer(plain.getsockname()[1], secure.getsockname()[1], folder)
        example = (PROXIES / "haproxy.cfg").read_text()
        servers = "".join(f"    server node{number} {node}\n" for number, node in enumerate(nodes, 1))
        example = exchanged(
            example,
            ("bind :80\n", f"bind fd@{plain.fileno()}\n"),
            ("bind :443 ", f"bind fd@{secure.fileno()} "),
            ("/etc/haproxy/voice.example.pem", str(pem)),
            ("".join(re.findall(r"(?m)^    server node\d .*\n", example)), servers),
        )
        (folder / "haproxy.cfg").write_text(example)
        command = (program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg"))
        async with _running(command, {}, folder, folder / "access.log", plain, secure):
            yield balancer


@asynccontextmanager
async def _running(
    command: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    log: Path | None,
    *sockets: socket.socket,
) -> AsyncIterator[None]:
    """Run a program that takes over sockets. Its stdout goes to `log`."""
    with (folder / "error.log").open("wb") as errors, (log or Path(os.devnull)).open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=output,
            stderr=errors,
            env=environment,
            pass_fds=tuple(each.fileno() for each in sockets),
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


BALANCERS: dict[str, Start] = {"nginx": nginx, "haproxy": haproxy}
