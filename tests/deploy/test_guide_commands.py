"""The guide's commands that need neither root nor a cluster run as they are written, and what they make is what the
server and the store read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs import PAGES, code
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.keys import read_pem
from voicepipe.config import load

pytestmark = pytest.mark.slow

GUIDE = next(path for path in PAGES if path.name == "deploy-nodes.md")
NODES = Path(__file__).parents[2] / "deploy" / "nodes"

HERE = ("mkdir", "cd", "openssl", "printf", "cat", "chmod", "voicepipe")
"""Programs that change nothing but the working folder."""


def block_with(words: str) -> str:
    """Return the block of the guide that has these words, without the commands that need more than this folder."""
    (found,) = (block for block in code("console", PAGES[GUIDE]) if words in block)
    lines = found.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if line.split()[0] in HERE)


def run(commands: str, folder: Path) -> None:
    """Run the commands in a folder, where `voicepipe` is this one."""
    programs = folder / "programs"
    programs.mkdir()
    voicepipe = programs / "voicepipe"
    voicepipe.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m voicepipe "$@"\n')
    voicepipe.chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_secrets_of_the_set_are_those_that_the_server_reads(tmp_path: Path) -> None:
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / "deploy" / "secrets").mkdir(parents=True, exist_ok=True)
        (tmp_path / "deploy" / "secrets" / name).write_text(f"{name}\n")
    run(block_with("valkey_password"), tmp_path)
    secrets = tmp_path / "deploy" / "secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    read_pem(secrets / "tokens.pem")
    assert (secrets / "voice.example.pem").read_text() == "fullchain.pem\nprivkey.pem\n"
    environ = dict(line.split("=", 1) for line in (secrets / "nodes.env").read_text().splitlines())
    settings = load(environ={"HOME": str(tmp_path), **environ}, folder=tmp_path)
    password = (secrets / "valkey_password").read_text().strip()
    assert re.fullmatch(r"[0-9a-f]{48}", password)
    assert settings.cluster.store == f"redis://:{password}@valkey:6379/0"
    assert settings.records.url.startswith("postgresql://voicepipe:")
    assert password in (secrets / "valkey.conf").read_text()
    assert starts(secrets / "valkey.conf")
    (secrets / "valkey.conf").write_text("appendfoo yes\n")
    assert not starts(secrets / "valkey.conf")


def starts(settings: Path) -> bool:
    """Return whether Redis starts with a file of settings: not with one that it does not know."""
    command = ["redis-server", str(settings), "--port", "0", "--unixsocket", "s.sock", "--dir", str(settings.parent)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=settings.parent, text=True, **pipes) as program:  # type: ignore[call-overload]
        assert program.stdout is not None
        ready = any("Ready to accept connections" in line or "ready to accept" in line for line in program.stdout)
        program.terminate()
    return ready


def test_the_keys_for_kubernetes_are_those_that_the_server_reads(tmp_path: Path) -> None:
    run(block_with("operate_all"), tmp_path)
    read_pem(tmp_path / "tokens.pem")
    keys = {key.project: key for key in ApiKeys(tmp_path / "keys").list()}
    assert sorted(keys) == ["mine", "ops"]
    assert list(keys["ops"].scopes) == ["operate_all"]


def test_the_firewalls_let_in_the_addresses_of_the_guide() -> None:
    (guide,) = (tomllib.loads(block) for block in code("toml", PAGES[GUIDE]) if "trusted_proxies" in block)
    node, store = ((NODES / name).read_text() for name in ("firewall.nft", "firewall-store.nft"))
    server = guide["server"]
    scraped = re.findall(r"(10\.0\.0\.\d+):8080", PAGES[GUIDE])
    nodes = sorted(set(scraped))
    assert _addresses(node) == {"callers": [*server["trusted_proxies"], *server["metrics_allow"]], "nodes": nodes}
    assert _addresses(store) == {"nodes": nodes}
    assert re.findall(r"dport (\d+)", node) == ["8080", "8080", "6379", "6379"]


def test_the_servers_for_snapshots_are_the_store_and_those_of_two_nodes() -> None:
    """Each at its own address, and let in by the firewall of its host."""
    (line,) = re.findall(r"^VOICEPIPE_CLUSTER__SNAPSHOT_STORES=(redis.*)$", PAGES[GUIDE], re.MULTILINE)
    found = [re.fullmatch(r"redis://:STORE_PASSWORD@(.*):6379/0", url) for url in line.split(",")]
    nodes = _addresses((NODES / "firewall.nft").read_text())["nodes"]
    assert [each and each[1] for each in found] == ["10.0.0.20", *nodes[:2]]


def _addresses(rules: str) -> dict[str, list[str]]:
    """Return the addresses of each set of a file of rules."""
    found = re.findall(r"set (\w+) \{.*?elements = \{ (.*?) \}", rules, re.DOTALL)
    return {str(name): str(elements).split(", ") for name, elements in found}
