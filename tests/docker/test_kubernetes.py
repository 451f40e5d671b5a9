"""The manifests: against the schemas of Kubernetes (package kubernetes-validate, strict, offline),
and against the images, secrets and commands that they name. The schema of RayCluster is KubeRay's
and not at hand: of it the pod templates are validated."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import ray
import yaml
from click.testing import CliRunner
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from autotune.cli.main import cli
from tests.samples.dockerfiles import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
DOCUMENTS = {
    f"{file.name} {one['kind']}": one
    for file in sorted(FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(file.read_text())
}
FARM = DOCUMENTS["farm.yaml RayCluster"]
GROUPS = [FARM["spec"]["headGroupSpec"], *FARM["spec"]["workerGroupSpecs"]]
PODS = {
    **{
        n: one["spec"]["template"]
        for n, one in DOCUMENTS.items()
        if one["kind"] in ("Deployment", "Job")
    },
    **{f"farm {n}": group["template"] for n, group in enumerate(GROUPS)},
}


def validate(document):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def as_document(template):
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "x"},
        "template": template,
    }


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - {"farm.yaml RayCluster"}))
def test_each_is_valid(name):
    validate(DOCUMENTS[name])


@pytest.mark.parametrize("name", PODS)
def test_each_pod_is_valid_and_confined(name):
    validate(as_document(PODS[name]))
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "capabilities": {"drop": ["ALL"]},
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
        }
        assert "memory" in container["resources"]["limits"]
        volumes = {one["name"] for one in spec["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("name", PODS)
def test_each_pod_has_policies_for_both_ways_and_a_probe_that_can_fail(name):
    labels = PODS[name]["metadata"]["labels"].items()
    (policy,) = [
        document["spec"]
        for document in DOCUMENTS.values()
        if document["kind"] == "NetworkPolicy"
        and document["spec"]["podSelector"]["matchLabels"].items() <= labels
    ]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule.get("from") for rule in policy.get("ingress", ()))
    assert all(rule.get("to") or rule.get("ports") for rule in policy["egress"])
    assert PODS[name]["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = PODS[name]["spec"]["containers"]
    if "restartPolicy" not in PODS[name]["spec"] or "worker" in name:  # what does not end soon
        probe = container["livenessProbe"]
        assert "httpGet" in probe or len(probe["exec"]["command"]) > 1


def test_farm_pods_reach_no_database_and_prometheus_reaches_the_service():
    ports = [
        rule.get("ports", ()) for rule in DOCUMENTS["farm.yaml NetworkPolicy"]["spec"]["egress"]
    ]
    assert {port["port"] for rule in ports for port in rule} == {53}
    pod = PODS["service.yaml Deployment"]
    scraped = pod["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == str(
        pod["spec"]["containers"][0]["ports"][0]["containerPort"]
    )
    assert "monitoring" in str(DOCUMENTS["service.yaml NetworkPolicy"]["spec"]["ingress"])


@pytest.mark.parametrize(
    ("program", "state", "is_well"),
    [
        ("raylet", "none", False),
        ("raylet", "listens", True),
        ("raylet", "closed", False),
        ("worker", "none", False),
        ("worker", "fresh", True),
        ("worker", "old", False),
    ],
)
def test_what_the_probes_say(program, state, is_well, tmp_path):
    pod = PODS["farm 1" if program == "raylet" else "worker.yaml Job"]
    *_, code = pod["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
    place = tmp_path / "probed"
    code = code.replace("/tmp/ray/session_latest/sockets/raylet", str(place))
    code = code.replace("/tmp/worker-alive", str(place))
    listening = socket.socket(socket.AF_UNIX)
    if state in ("listens", "closed"):
        listening.bind(str(place)), listening.listen()
    if state in ("fresh", "old"):
        place.touch()
        os.utime(place, (time.time() - 200 * (state == "old"),) * 2)
    if state == "closed":
        listening.close()
    done = subprocess.run([sys.executable, "-ISc", code], capture_output=True)
    listening.close()
    assert (done.returncode == 0) is is_well


@pytest.mark.parametrize("name", [name for name in PODS if not name.startswith("farm")])
def test_commands_and_secrets_are_there(name):
    spec = PODS[name]["spec"]
    (container,) = spec["containers"]
    words = [word for word in container["args"] if not word.startswith("-")]
    options = [word for word in container["args"] if word.startswith("--")]
    helped = CliRunner().invoke(cli, [*words[: 2 if words[0] == "db" else 1], "--help"])
    assert helped.exit_code == 0 and all(option in helped.output for option in options)
    (secret,) = [one["secret"] for one in spec["volumes"] if "secret" in one]
    (variable,) = [one for one in container["env"] if one["name"].endswith("_FILE")]
    assert Path(variable["value"]).name == secret["items"][0]["path"]
    comment = (FOLDER / "service.yaml").read_text()
    assert f"--from-file={secret['items'][0]['key']}" in comment


def test_whose_call_it_is_the_ingress_says_and_no_caller():
    """Else a limit for a caller is one for all of them together."""
    (container,) = PODS["service.yaml Deployment"]["spec"]["containers"]
    (believed,) = [e["value"] for e in container["env"] if e["name"] == "FORWARDED_ALLOW_IPS"]
    seen = []

    async def app(scope, *_):
        seen.append(scope["client"][0])

    for pod in ("10.244.1.7", "203.0.113.1"):
        headers = [(b"x-forwarded-for", b"198.51.100.1, 198.51.100.2")]  # the first is made up
        scope = {"type": "http", "client": (pod, 1), "headers": headers}
        asyncio.run(ProxyHeadersMiddleware(app, believed)(scope, None, None))
    assert seen == ["198.51.100.2", "203.0.113.1"]


def test_the_farm_is_of_the_ray_that_is_pinned_and_has_a_slot_for_each_core():
    assert FARM["spec"]["rayVersion"] == ray.__version__
    assert f"ray=={ray.__version__} " in (ROOT / "docker" / "worker.lock").read_text()
    for group in FARM["spec"]["workerGroupSpecs"]:
        given, (container,) = group["rayStartParams"], group["template"]["spec"]["containers"]
        assert given["num-cpus"] == container["resources"]["requests"]["cpu"]
        assert int(given["memory"]) == int(given["num-cpus"]) * 8 << 30
