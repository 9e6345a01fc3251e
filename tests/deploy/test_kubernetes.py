"""The manifests are valid by Kubernetes' own schemas, fit each other, and name what the server has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.test_one_machine import DRAIN_S
from tests.deploy.test_prometheus import promtool, queried, series
from voicepipe.config import Settings, load
from voicepipe.server.options import ServerSettings
from voicepipe.server.workers.supervisor import CLOSE_MARGIN_MS

Manifest = dict[str, Any]

VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: the oldest and the newest that the guide names."""

SECRETS = {
    "VOICEPIPE_CLUSTER__STORE": "redis://:PASSWORD@store.example:6379/0",
    "VOICEPIPE_RECORDS__URL": "postgresql://voicepipe:PASSWORD@db.example/voicepipe",
    "DEEPGRAM_API_KEY": "key",
    "GROQ_API_KEY": "key",
}
"""What the guide puts into the secret of the nodes' environment."""


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "deploy" / "kubernetes"


@pytest.fixture
def kustomization(folder: Path) -> Manifest:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


@pytest.fixture
def manifests(folder: Path, kustomization: Manifest) -> dict[str, Manifest]:
    """Kind/name -> the object."""
    found: dict[str, Manifest] = {}
    for file in kustomization["resources"]:
        for each in yaml.safe_load_all((folder / file).read_text()):
            found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


@pytest.fixture
def pod(manifests: dict[str, Manifest]) -> Manifest:
    return dict(manifests["StatefulSet/voicepipe"]["spec"]["template"]["spec"])


@pytest.fixture
def settings(folder: Path, tmp_path: Path) -> Settings:
    """The nodes' settings, as they are with the secret's variables."""
    return load(config=str(folder / "voicepipe.toml"), environ={"HOME": str(tmp_path), **SECRETS}, folder=tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_valid(manifests: dict[str, Manifest], version: str) -> None:
    """Without an unknown field, too."""
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_wrong_field_is_found(manifests: dict[str, Manifest]) -> None:
    budget = manifests["PodDisruptionBudget/voicepipe"]
    budget["spec"]["maxUnavailible"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailible"):
        kubernetes_validate.validate(budget, VERSIONS[-1], strict=True)


def test_every_file_is_applied(folder: Path, kustomization: Manifest) -> None:
    """But the rules for prometheus-adapter, which are no object."""
    settings_files = [file for each in kustomization["configMapGenerator"] for file in each["files"]]
    named = {*kustomization["resources"], *settings_files, "kustomization.yaml", "adapter.yaml"}
    assert named == {path.name for path in folder.iterdir()}
    assert all(text == "voicepipe" for text in re.findall(r"image: (\S+)", (folder / "statefulset.yaml").read_text()))
    assert [each["name"] for each in kustomization["images"]] == ["voicepipe"]


def test_the_objects_fit_each_other(manifests: dict[str, Manifest], kustomization: Manifest, pod: Manifest) -> None:
    """Labels, ports, volumes and names; a secret is named by the guide, and made by the operator."""
    labels = manifests["StatefulSet/voicepipe"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        manifests["StatefulSet/voicepipe"]["spec"]["selector"]["matchLabels"],
        manifests["PodDisruptionBudget/voicepipe"]["spec"]["selector"]["matchLabels"],
        manifests["NetworkPolicy/voicepipe"]["spec"]["podSelector"]["matchLabels"],
        *(manifests[f"Service/{name}"]["spec"]["selector"] for name in ("voicepipe", "nodes")),
        *(each["labelSelector"]["matchLabels"] for each in pod["topologySpreadConstraints"]),
    ]
    assert all(selector == labels for selector in selectors)
    assert f"Service/{manifests['StatefulSet/voicepipe']['spec']['serviceName']}" in manifests
    target = manifests["HorizontalPodAutoscaler/voicepipe"]["spec"]["scaleTargetRef"]
    assert f"{target['kind']}/{target['name']}" in manifests
    (rule,) = manifests["Ingress/voicepipe"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    service = manifests[f"Service/{path['backend']['service']['name']}"]
    assert path["backend"]["service"]["port"]["name"] in {each["name"] for each in service["spec"]["ports"]}
    containers = [*pod["initContainers"], *pod["containers"]]
    ports = {port["name"] for each in containers for port in each.get("ports", ())}
    assert {each["targetPort"] for each in service["spec"]["ports"]} == ports
    claims = manifests["StatefulSet/voicepipe"]["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in (*pod["volumes"], *(claim["metadata"] for claim in claims))}
    assert {mount["name"] for each in containers for mount in each["volumeMounts"]} == volumes
    (generated,) = kustomization["configMapGenerator"]
    assert [each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each] == [generated["name"]]


def test_the_guide_makes_each_secret(root: Path, manifests: dict[str, Manifest], pod: Manifest) -> None:
    guide = (root / "web" / "docs" / "deploy-nodes.md").read_text()
    mounted = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    (environment,) = pod["containers"][0]["envFrom"]
    certificates = {each["secretName"] for each in manifests["Ingress/voicepipe"]["spec"]["tls"]}
    for name in {*mounted, *certificates, environment["secretRef"]["name"]}:
        assert re.search(rf"create secret (?:generic|tls) {name} ", guide), name
    for variable in SECRETS:
        assert f"--from-literal={variable}=" in guide


def test_each_container_is_bound(manifests: dict[str, Manifest], pod: Manifest) -> None:
    """As Kubernetes' restricted standard demands, with a file system that can't be written."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for each in (*pod["initContainers"], *pod["containers"]):
        context = each["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in each["resources"]["limits"]
    labels = manifests["Namespace/voicepipe"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_image_runs_as_the_same_user(root: Path, pod: Manifest) -> None:
    assert f"--uid {pod['securityContext']['runAsUser']} " in (root / "deploy" / "Dockerfile").read_text()


def test_the_settings_are_settings(settings: Settings, pod: Manifest) -> None:
    """With the places that the pod mounts; every stage has a key."""
    assert settings.server.host == "0.0.0.0"
    assert settings.server.metrics_allow == ()  # the ingress controller's address would be in it, too
    (node,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in node["volumeMounts"]}
    assert settings.server.data_dir == mounts["data"]
    assert settings.server.token_keys[0].startswith(f"{mounts['tokens']}/")
    assert f"{mounts['settings']}/voicepipe.toml" in node["args"]


def test_there_is_time_to_drain(settings: Settings, pod: Manifest) -> None:
    """Before Kubernetes kills the node: the hook, the drain, the last words, and what waits for the disk."""
    (node,) = pod["containers"]
    hook, seconds = node["lifecycle"]["preStop"]["exec"]["command"]
    assert hook == "sleep"
    needed_s = int(seconds) + DRAIN_S + (settings.server.drain_ms - ServerSettings().drain_ms) / 1_000
    assert pod["terminationGracePeriodSeconds"] > needed_s + 10
    assert pod["terminationGracePeriodSeconds"] > settings.server.drain_ms / 1_000 + CLOSE_MARGIN_MS / 1_000


def test_the_probes_use_endpoints_of_the_server(pod: Manifest) -> None:
    (node,) = pod["containers"]
    used = {name: node[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert used == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}


def rules(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (metric, series, expression) of prometheus-adapter's rules, with its templates filled in."""
    for rule in yaml.safe_load((folder / "adapter.yaml").read_text())["rules"]:
        query = (
            rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'namespace="voicepipe"')
        )
        assert "<<" not in query
        yield rule["name"]["as"], rule["seriesQuery"], query


def test_the_autoscaler_uses_metrics_that_there_are(
    folder: Path, manifests: dict[str, Manifest], tmp_path: Path
) -> None:
    """prometheus-adapter makes them of the server's own, and promtool accepts its queries."""
    used = {
        each["pods"]["metric"]["name"] for each in manifests["HorizontalPodAutoscaler/voicepipe"]["spec"]["metrics"]
    }
    made = list(rules(folder))
    assert used == {name for name, _, _ in made}
    known = series()
    for _, each, query in made:
        for name, labels in (*queried(each), *queried(query)):
            assert labels <= known[name] | {"namespace", "pod"}
    path = tmp_path / "adapter.json"  # JSON is YAML
    as_rules = [{"record": name, "expr": query} for name, _, query in made]
    path.write_text(json.dumps({"groups": [{"name": "adapter", "rules": as_rules}]}))
    promtool("check", "rules", str(path))


def test_the_scrape_job_labels_what_the_autoscaler_needs(root: Path, tmp_path: Path) -> None:
    """Debian's promtool is built without the discovery in Kubernetes, so the rest is checked with fixed targets."""
    text = (root / "deploy" / "prometheus" / "kubernetes.yml").read_text()
    job = yaml.safe_load(text)
    (scrape,) = job["scrape_configs"]
    assert scrape["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["voicepipe"]}}]
    assert {"namespace", "pod", "instance"} <= {each.get("target_label") for each in scrape["relabel_configs"]}
    scrape["static_configs"] = [{"targets": ["localhost:8080"]}]
    del scrape["kubernetes_sd_configs"]
    (tmp_path / "alerts.yml").write_text((root / "deploy" / "prometheus" / "alerts.yml").read_text())
    scrape["authorization"]["credentials_file"] = str(tmp_path / "alerts.yml")
    (tmp_path / "kubernetes.yml").write_text(json.dumps(job))
    promtool("check", "config", str(tmp_path / "kubernetes.yml"))
