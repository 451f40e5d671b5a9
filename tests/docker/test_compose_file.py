"""The compose file: against its schema, and against the Dockerfiles, secrets and commands that it
names."""

import json
import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema.validators import Draft202012Validator

from autotune.cli.main import cli
from tests.samples.dockerfiles import COMPOSE, FOLDER, ROOT, health_command, run, stages

SCHEMA = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def _complaints(compose):
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(compose)]


def test_it_is_valid():
    Draft202012Validator.check_schema(SCHEMA)
    assert _complaints(COMPOSE) == []


def test_what_comes_from_a_registry_is_pinned():
    images = {s["image"] for name, s in SERVICES.items() if name not in OURS}
    bases = {service["build"]["args"]["BASE"] for service in OURS.values()}
    assert len(images) == 3
    for one in images | bases:
        assert re.fullmatch(r"[\w/]+:[\w.-]+@sha256:[0-9a-f]{64}", one), one
    (base,) = bases
    assert f"ARG BASE={base.partition('@')[0]}\n" in (FOLDER / "worker.Dockerfile").read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_nobody_takes_the_machine(name):
    service = SERVICES[name]
    assert service["mem_limit"] and service["cpus"] and service["pids_limit"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", OURS)
def test_ours_are_walled_in(name):
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert "user" not in service, "it is in the image"


@pytest.mark.parametrize("name", SERVICES)
def test_what_it_refers_to_is_declared(name):
    service = SERVICES[name]
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(service["secrets"]) <= set(COMPOSE["secrets"])
    for variable, value in service["environment"].items():
        if variable.endswith("_FILE"):  # where a secret is
            assert value.removeprefix("/run/secrets/") in service["secrets"]
    for other, how in service.get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other] or _health_of_image(other)
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"


def _health_of_image(name):
    return health_command(
        stages((FOLDER.parent / OURS[name]["build"]["dockerfile"]).read_text())[-1]
    )


def test_the_service_believes_the_proxy_only():
    proxy = SERVICES["proxy"]["networks"]["front"]["ipv4_address"]
    assert SERVICES["service"]["environment"]["FORWARDED_ALLOW_IPS"] == proxy
    (pool,) = COMPOSE["networks"]["front"]["ipam"]["config"]
    assert ip_address(proxy) in ip_network(pool["subnet"])
    assert ip_address(proxy) not in ip_network(pool["ip_range"]), "another could be given it"
    open_to_all = {name for name, one in SERVICES.items() if "ports" in one}
    assert open_to_all == {"proxy", "prometheus"}
    assert SERVICES["prometheus"]["ports"][0].startswith("127.0.0.1:")


def test_nobody_but_the_owner_has_the_owners_secrets():
    """Who reads what: the migrations and the roles own the tables, all others have a role."""
    has = {name: set(service["secrets"]) for name, service in SERVICES.items()}
    assert {name for name, secrets in has.items() if "database_url" in secrets} == {
        "migrate",
        "roles",
    }
    assert has["service"] == {"service_database_url"}
    assert has["worker"] == {"worker_database_url"}
    assert has["backup"] == {"backup_password"}


@pytest.mark.parametrize("name", OURS)
def test_its_command_is_one_of_ours(name):
    image = stages((FOLDER.parent / OURS[name]["build"]["dockerfile"]).read_text())[-1]
    command = OURS[name].get("command") or image.one("CMD").words
    done = CliRunner().invoke(cli, [*command, "--help"])
    assert done.exit_code == 0, done.output


def _variables(*paths):
    files = [file for path in paths for file in ROOT.glob(path) if file.is_file()]
    return {name for file in files for name in re.findall(r"AUTOTUNE_[A-Z_]+", file.read_text())}


def test_variables_are_those_of_the_code():
    used = _variables("docker/*", "docs/guides/deploying.md")
    assert "AUTOTUNE_DATABASE_URL_FILE" in used
    assert used <= _variables("autotune/**/*.py", "db/**/*.py", "service/**/*.py")


def test_secrets_are_made_once(tmp_path):
    script, folder = str(FOLDER / "make-secrets.sh"), tmp_path / "secrets"
    assert run([script, str(folder)]).returncode == 0
    made = _texts(folder)
    declared = {secret["file"].removeprefix("secrets/") for secret in COMPOSE["secrets"].values()}
    assert set(made) == declared
    passwords = {made[name] for name in made if name.endswith("_password")}
    assert len(passwords) == 4
    assert all(re.fullmatch(r"[0-9a-f]{48}\n", one) for one in passwords)
    given = SERVICES["postgres"]["environment"]
    for url, user, password in (
        ("database_url", given["POSTGRES_USER"], "postgres_password"),
        ("service_database_url", "autotune_service", "service_password"),
        ("worker_database_url", "autotune_worker", "worker_password"),
    ):
        secret = made[password].strip()
        assert made[url] == f"postgresql://{user}:{secret}@postgres/{given['POSTGRES_DB']}\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o444}

    (folder / "service_password").unlink()  # as where an older version has made the others
    assert run([script, str(folder)]).returncode == 0
    again = _texts(folder)
    assert {name for name in made if again[name] != made[name]} == {"service_password"}


def _texts(folder):
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_secrets_are_not_committed():
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
