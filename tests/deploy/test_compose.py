"""The compose files are valid by their specification, and the whole set fits together."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from tests.deploy.test_one_machine import DRAIN_S
from tests.deploy.test_prometheus import promtool
from voicepipe.config import Settings, load
from voicepipe.server.options import ServerSettings

NODES = ("node1", "node2", "node3")
SECRETS = {
    "VOICEPIPE_CLUSTER__STORE": "redis://:PASSWORD@valkey:6379/0",
    "VOICEPIPE_RECORDS__URL": "postgresql://voicepipe:PASSWORD@postgres/voicepipe",
    "DEEPGRAM_API_KEY": "key",
    "GROQ_API_KEY": "key",
}
"""What the guide writes into secrets/nodes.env."""


@pytest.fixture
def deploy(root: Path) -> Path:
    return root / "deploy"


@pytest.fixture
def compose(deploy: Path) -> dict[str, Any]:
    """compose.nodes.yaml, with its anchors put in."""
    return dict(yaml.safe_load((deploy / "compose.nodes.yaml").read_text()))


@pytest.fixture
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(compose["services"])


@pytest.fixture
def settings(deploy: Path, tmp_path: Path) -> Settings:
    """The nodes' settings, with the variables of the image and of the secret."""
    image = dict(re.findall(r"(VOICEPIPE_\w+)=(\S+)", (deploy / "Dockerfile").read_text()))
    environ = {"HOME": str(tmp_path), **image, **SECRETS}
    return load(config=str(deploy / "nodes" / "voicepipe.toml"), environ=environ, folder=tmp_path)


@pytest.mark.parametrize("file", ["compose.yaml", "compose.nodes.yaml"])
def test_the_file_follows_the_specification(deploy: Path, file: str) -> None:
    """And each network, volume and secret that a service names is declared."""
    plain = yaml.safe_load((deploy / file).read_text())
    read = PyCompose.from_yaml(yaml.safe_dump(plain))
    read.validate()
    assert set(read.service_names()) == set(plain["services"])


def test_a_wrong_field_is_found(compose: dict[str, Any]) -> None:
    compose["services"]["valkey"]["mem_limits"] = "1g"
    with pytest.raises(ValueError, match="mem_limits"):
        PyCompose.from_yaml(yaml.safe_dump(compose))


def test_the_balancer_alone_is_published(services: dict[str, dict[str, Any]]) -> None:
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert published.pop("balancer") == ["80:80", "443:443"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert set(published) == {"prometheus", "grafana"}


def test_each_container_is_bound(services: dict[str, dict[str, Any]]) -> None:
    """No right but what its program needs to become another user; memory and processes have limits."""
    for name, each in services.items():
        assert each["cap_drop"] == ["ALL"], name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit", "restart"} <= set(each), name
        assert each.get("read_only") is True or name in ("postgres", "grafana"), name
    assert {name for name, each in services.items() if "cap_add" in each} == {"valkey", "postgres"}


def test_nodes_differ_by_their_name_address_and_folder(services: dict[str, dict[str, Any]]) -> None:
    """The rest is shared: a node's name in the cluster is its host's."""
    plain = []
    for number, name in enumerate(NODES, 1):
        text = yaml.safe_dump(services[name]).replace(f"node{number}", "NODE")
        plain.append(text.replace(f"172.29.0.1{number}", "ADDRESS"))
    assert "hostname: NODE" in plain[0]
    assert plain[0] == plain[1] == plain[2]


def addresses(services: dict[str, dict[str, Any]], network: str) -> dict[str, str]:
    """Service -> its fixed address in a network."""
    found = {}
    for name, each in services.items():
        of = each["networks"]
        if isinstance(of, dict) and of.get(network):
            found[name] = of[network]["ipv4_address"]
    return found


def test_the_balancer_knows_the_nodes_and_they_know_it(
    deploy: Path, compose: dict[str, Any], services: dict[str, dict[str, Any]], settings: Settings
) -> None:
    """By the addresses in their network."""
    calls = addresses(services, "calls")
    servers = re.findall(r"(?m)^    server (\S+) (\S+):8080$", (deploy / "proxy" / "haproxy.cfg").read_text())
    assert dict(servers) == {name: calls[name] for name in NODES}
    assert settings.server.trusted_proxies == (calls["balancer"],)
    assert settings.server.metrics_allow == (addresses(services, "scrapes")["prometheus"],)
    for network in ("calls", "scrapes"):
        ((subnet,),) = [[each["subnet"] for each in compose["networks"][network]["ipam"]["config"]]]
        inside = addresses(services, network).values()
        assert all(ip_address(each) in ip_network(subnet) for each in inside)
        assert len(set(inside)) == len(inside)


def test_the_state_is_reached_by_nodes_alone(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    inside = {name for name, each in services.items() if "state" in each["networks"]}
    assert inside == {*NODES, "valkey", "postgres"}
    assert compose["networks"]["state"]["internal"] is True
    assert services["valkey"]["networks"] == services["postgres"]["networks"] == ["state"]


def test_there_is_time_to_drain(services: dict[str, dict[str, Any]], settings: Settings) -> None:
    """Before Docker kills the node."""
    grace_s = int(services["node1"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > DRAIN_S + (settings.server.drain_ms - ServerSettings().drain_ms) / 1_000 + 10


def test_what_is_mounted_is_there_or_made_by_the_guide(
    deploy: Path, compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    guide = (deploy.parent / "web" / "docs" / "deploy-nodes.md").read_text()
    mounts = [each.split(":")[0] for service in services.values() for each in service.get("volumes", ())]
    files = [each for each in mounts if each.startswith("./")]
    files += [each["file"] for each in compose["secrets"].values()]
    files += [f"./{file}" for service in services.values() for file in service.get("env_file", ())]
    for file in files:
        if file.startswith("./secrets/"):
            assert f"> {file.removeprefix('./secrets/')}" in guide or f"-out {file.removeprefix('./secrets/')}" in guide
        else:
            assert (deploy / file).exists(), file
    for variable in SECRETS:
        assert variable in guide
    assert all((deploy.parent / ".gitignore").read_text().count(line) == 1 for line in ("deploy/secrets/\n",))


def test_prometheus_scrapes_each_node(deploy: Path, services: dict[str, dict[str, Any]]) -> None:
    job = (deploy / "prometheus" / "nodes.yml").read_text()
    one = (deploy / "prometheus" / "containers.yml").read_text()
    targets = ", ".join(f"{name}:8080" for name in NODES)
    assert job.partition("global:")[2] == one.partition("global:")[2].replace("voicepipe:8080", targets)
    assert "--config.file=/etc/prometheus/nodes.yml" in services["prometheus"]["command"]
    promtool("check", "config", str(deploy / "prometheus" / "nodes.yml"))
