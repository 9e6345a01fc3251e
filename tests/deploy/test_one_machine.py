"""What deploy/ says of one machine holds: the image's files exist, nothing is open that need not be, and there is time
to stop in good order."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from tests.web.node import NODE
from voicepipe.config import load
from voicepipe.server.app import LAST_ANSWERS_S
from voicepipe.server.options import ServerSettings
from voicepipe.session.shutdown import LAST_WORD_S

DRAIN_S = ServerSettings().drain_ms / 1_000 + LAST_WORD_S + LAST_ANSWERS_S
"""How long a server may take to stop, with the usual settings."""


@pytest.fixture
def deploy(root: Path) -> Path:
    return root / "deploy"


def stages(dockerfile: str) -> dict[str, list[str]]:
    """The image's instructions by the stage that they stand in, without comments, each on one line."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", dockerfile))
    found: dict[str, list[str]] = {}
    stage = "before"
    for line in filter(None, joined.splitlines()):
        if line.startswith("FROM"):
            stage = line.split(" AS ")[1]
        found.setdefault(stage, []).append(line)
    return found


def test_the_image_is_made_of_what_is_there(deploy: Path) -> None:
    """Of the clone, and of nothing that .dockerignore keeps out."""
    lines = [line for stage in stages((deploy / "Dockerfile").read_text()).values() for line in stage]
    sources = [
        name for line in lines if line.startswith("COPY") and "--from" not in line for name in line.split()[1:-1]
    ]
    sent = [line[1:] for line in (deploy.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert set(sources) == set(sent)
    assert all((deploy.parent / name).exists() for name in sources)


def test_the_images_packages_are_pinned(deploy: Path) -> None:
    """Every one is checked against its hash, and what is our own takes nothing along."""
    text = (deploy / "Dockerfile").read_text()
    installs = re.findall(r"pip install ([^&\n]*)", re.sub(r"\\\n\s*", "", text))
    assert len(installs) == 5
    assert all(
        "--no-deps" in install and ("--require-hashes" in install or "--no-index /wheels/" in install)
        for install in installs
    )
    assert "UP_COMPILE=1 pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ." in text
    assert all((deploy.parent / lock).exists() for lock in re.findall(r"--requirement (\S+)", text))


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong", "faults"), [("", "", []), ("EXPOSE 8080", "EXPOSE port", ["port"])])
def test_a_linter_accepts_the_image(
    deploy: Path, tmp_path: Path, node_packages: Path, right: str, wrong: str, faults: list[str]
) -> None:
    """It finds what is wrong in a file that is."""
    (tmp_path / "Dockerfile").write_text((deploy / "Dockerfile").read_text().replace(right, wrong))
    linter = node_packages / "dockerfile-utils" / "bin" / "dockerfile-utils"
    command = [str(NODE), str(linter), "lint", "-j", str(tmp_path / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = [each["message"] for each in json.loads(done.stdout)]
    assert len(found) == len(faults)
    assert all(fault in message for fault, message in zip(faults, found, strict=True))


def test_image_runs_as_any_user(deploy: Path) -> None:
    """Each stage that can be run ends with a user who is not root, by number; and has a health check."""
    found = stages((deploy / "Dockerfile").read_text())
    assert found["local"][-1] == found["server"][-1] == "USER 10001"
    assert list(found)[-1] == "server"
    assert any(line.startswith("HEALTHCHECK") and "/healthz" in line for line in found["run"])
    assert 'ENTRYPOINT ["voicepipe"]' in found["run"]


def test_image_is_built_from_all_sources(deploy: Path, up: ModuleType) -> None:
    """What compiles is among them, and only the stage of the wheel has it."""
    found = stages((deploy / "Dockerfile").read_text())
    copied = {name for line in found["wheel"] if line.startswith("COPY") for name in line.split()[1:-1]}
    assert copied == set(up.SOURCES)
    assert [stage for stage, lines in found.items() if any(" gcc " in line for line in lines)] == ["wheel"]


def test_what_installs_packages_is_not_in_the_image(deploy: Path) -> None:
    """Each target copies an environment from a stage that ends by removing it."""
    found = stages((deploy / "Dockerfile").read_text())
    for target in ("local", "server"):
        (copied,) = [line for line in found[target] if line.startswith("COPY")]
        (source,) = re.findall(r"--from=(\S+)", copied)
        assert found[source][-1].endswith("pip uninstall --yes setuptools pip")


def test_the_images_settings_are_settings(deploy: Path, tmp_path: Path) -> None:
    """An environment variable that names none would keep the server from starting."""
    for file in ("Dockerfile", "compose.yaml"):
        named = dict(re.findall(r"(VOICEPIPE_\w+)[=:] ?(\S+)", (deploy / file).read_text()))
        assert named
        load(environ={"HOME": str(tmp_path), **named}, folder=tmp_path)


def test_nothing_is_published_beyond_this_machine(deploy: Path) -> None:
    """Each port is bound to loopback, as every container is bound hand and foot."""
    text = (deploy / "compose.yaml").read_text()
    published = re.findall(r"^ +- (\S+:\d+)(?: |$)", text, re.M)
    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)
    services = re.findall(r"^  (voicepipe|prometheus|grafana):\n", text.partition("\nvolumes:")[0], re.M)
    assert len(services) == text.count("cap_drop: [ALL]") == text.count("no-new-privileges:true") == 3


def services(deploy: Path) -> dict[str, str]:
    """Each service's lines in compose.yaml."""
    text = (deploy / "compose.yaml").read_text().partition("\nservices:\n")[2].partition("\n# Three")[0]
    parts = re.split(r"(?m)^  (\w+):\n", text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def networks(service: str) -> set[str]:
    """The names of the networks that a service is in."""
    inline = re.findall(r"(?m)^    networks: \[(.+)\]$", service)
    if inline:
        return set(inline[0].split(", "))
    (block,) = re.findall(r"(?m)^    networks:\n((?:      .*\n)+)", service)
    return set(re.findall(r"(?m)^      (\w+):", block))


def test_every_container_has_a_bound_of_memory_and_processes(deploy: Path) -> None:
    """A user, or a program beside the server, that makes one grow takes nothing from the machine's others."""
    found = services(deploy)
    assert set(found) == {"voicepipe", "prometheus", "grafana"}
    for name, lines in found.items():
        assert len(re.findall(r"(?m)^    mem_limit: \d+[mg]\b", lines)) == 1, name
        assert len(re.findall(r"(?m)^    pids_limit: \d+\b", lines)) == 1, name


def test_the_programs_beside_the_server_do_not_share_its_network(deploy: Path) -> None:
    """No other program is on its loopback, which may read metrics and more; Grafana can't reach it at all."""
    found = services(deploy)
    assert "network_mode" not in "".join(found.values())
    of = {name: networks(lines) for name, lines in found.items()}
    assert of["voicepipe"] & of["prometheus"] == {"scrapes"}
    assert of["prometheus"] & of["grafana"] == {"monitoring"}
    assert not of["voicepipe"] & of["grafana"]
    text = (deploy / "compose.yaml").read_text()
    assert re.search(r"(?m)^  scrapes:.*\n    internal: true$", text)
    declared = set(re.findall(r"(?m)^  (\w+):", text.partition("\nnetworks:\n")[2].partition("\nsecrets:")[0]))
    assert declared == set().union(*of.values())


def test_prometheus_scrapes_from_an_allowed_address(deploy: Path) -> None:
    """It requests the server by its name there, as Grafana requests Prometheus; the rest is as on a machine
    of its own.
    """
    found = services(deploy)
    (address,) = re.findall(r"ipv4_address: (\S+)", found["prometheus"])
    assert f"METRICS_ALLOW: {address} " in found["voicepipe"]
    (file,) = re.findall(r"--config\.file=/etc/prometheus/(\S+?),", found["prometheus"])
    job = (deploy / "prometheus" / file).read_text()
    usual = (deploy / "prometheus" / "prometheus.yml").read_text()
    assert job.partition("global:")[2] == usual.partition("global:")[2].partition("    # authorization")[0].replace(
        "localhost:8080", "voicepipe:8080"
    )
    source = (deploy / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    assert "url: http://prometheus:9090" in source


def test_what_compose_mounts_is_there(deploy: Path) -> None:
    """The secret is the exception: only its owner has it."""
    mounts = re.findall(r"- (\./\S+?):", (deploy / "compose.yaml").read_text())
    assert mounts
    assert [mount for mount in mounts if not (deploy / mount).exists()] == []


def unit(deploy: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(deploy / "systemd" / "voicepipe.service")
    return parser


def test_there_is_time_to_stop(deploy: Path) -> None:
    """Systemd and compose wait for longer than the server takes to drain."""
    assert float(unit(deploy)["Service"]["TimeoutStopSec"]) > DRAIN_S + 10
    (grace_s,) = re.findall(r"stop_grace_period: (\d+)s", (deploy / "compose.yaml").read_text())
    assert float(grace_s) > DRAIN_S + 10


def test_the_unit_is_bounded_in_memory_and_threads(deploy: Path) -> None:
    """The kernel ends a process of the unit then, and no other program's; the rest of the unit goes on."""
    service = unit(deploy)["Service"]
    assert re.fullmatch(r"\d+G", service["MemoryMax"])
    assert int(service["TasksMax"]) > 0
    assert service["OOMPolicy"] == "continue"


def test_the_unit_may_write_its_own_folder_and_nothing_else(deploy: Path) -> None:
    """As a user of its own, which never gets any right that it did not have."""
    service = unit(deploy)["Service"]
    assert (service["User"], service["ProtectSystem"], service["NoNewPrivileges"]) == ("voicepipe", "strict", "yes")
    assert service["CapabilityBoundingSet"] == ""
    assert service["StateDirectory"] in service["ExecStart"].rpartition("--data-dir")[2]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("nginx.conf", r"proxy_(?:read|send)_timeout (\d+)s;"),
        ("haproxy.cfg", r"timeout (?:client|server|tunnel) (\d+)s\n"),
    ],
)
def test_the_proxies_wait_longer_than_a_silent_client(deploy: Path, file: str, pattern: str) -> None:
    """A silent client is pinged; a proxy that gave up before would cut calls in which the user thinks."""
    waits_s = [int(seconds) for seconds in re.findall(pattern, (deploy / "proxy" / file).read_text())]
    assert len(waits_s) >= 2
    assert min(waits_s) > 2 * ServerSettings().ping_ms / 1_000
    assert "trusted_proxies" in {field.name for field in fields(ServerSettings)}


def test_a_reloaded_haproxy_keeps_the_longest_session(deploy: Path) -> None:
    (seconds,) = re.findall(r"hard-stop-after (\d+)s", (deploy / "proxy" / "haproxy.cfg").read_text())
    assert int(seconds) >= ServerSettings().max_session_s


def test_systemd_accepts_the_unit(deploy: Path, tmp_path: Path) -> None:
    """By its own verifier. Only the paths of the program and of its documentation are others."""
    text = (deploy / "systemd" / "voicepipe.service").read_text()
    for there in ("/opt/voicepipe/venv/bin/voicepipe", "/opt/voicepipe/README.md"):
        assert there in text
        text = text.replace(there, "/bin/true")
    (tmp_path / "voicepipe.service").write_text(text)
    analyze = shutil.which("systemd-analyze")
    assert analyze, "systemd-analyze is missing: `python3 deploy/up.py test` says what to install"
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "voicepipe.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
