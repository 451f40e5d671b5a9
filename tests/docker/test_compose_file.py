"""The compose file: against its schema, and against the Dockerfiles, secrets and commands that it
names."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema.validators import Draft202012Validator

from autotune.cli.main import cli
from tests.samples.dockerfiles import FOLDER, ROOT, stages
from tests.servers.images import COMPOSE, run

SCHEMA = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def _complaints(compose: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(compose)]


def test_it_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert _complaints(COMPOSE) == []


@pytest.mark.parametrize(
    "path, key, value",
    [
        ((), "servises", {}),
        (("services", "service"), "readonly", True),
        (("services", "service"), "ports", 8700),
        (("services", "worker"), "cap_drop", "ALL"),
        (("services", "worker", "depends_on", "migrate"), "condition", "service_done"),
        (("services", "postgres", "healthcheck"), "tests", "true"),
        (("secrets", "database_url"), "path", "database_url"),
    ],
)
def test_what_is_wrong_is_found(path: tuple[str, ...], key: str, value: Any) -> None:
    changed = copy.deepcopy(COMPOSE)
    place = changed
    for part in path:
        place = place[part]
    place[key] = value
    assert _complaints(changed)


def test_dockerfiles_are_there() -> None:
    built = {service["build"]["dockerfile"] for service in OURS.values()}
    assert built == {str(file.relative_to(ROOT)) for file in FOLDER.glob("*.Dockerfile")}
    assert {service["build"]["context"] for service in OURS.values()} == {".."}
    assert set(SERVICES) - set(OURS) == {"postgres"}
    assert re.fullmatch(r"postgres:\d+", SERVICES["postgres"]["image"])


@pytest.mark.parametrize("name", OURS)
def test_ours_are_walled_in(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert "user" not in service, "it is in the image"
    assert "mem_limit" in service or name == "migrate"


@pytest.mark.parametrize("name", SERVICES)
def test_what_it_refers_to_is_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(service["secrets"]) <= set(COMPOSE["secrets"])
    for variable, value in service["environment"].items():
        if variable.endswith("_FILE"):
            assert value.removeprefix("/run/secrets/") in service["secrets"]
    for other, how in service.get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"


def test_volumes_are_declared() -> None:
    named = [volume.partition(":")[0] for volume in SERVICES["postgres"]["volumes"]]
    assert named == list(COMPOSE["volumes"])


@pytest.mark.parametrize("name", OURS)
def test_its_command_is_one_of_ours(name: str) -> None:
    image = stages((FOLDER.parent / OURS[name]["build"]["dockerfile"]).read_text())[-1]
    command = OURS[name].get("command") or image.one("CMD").words
    done = CliRunner().invoke(cli, [*command, "--help"])
    assert done.exit_code == 0, done.output


def _variables(*paths: str) -> set[str]:
    files = [file for path in paths for file in ROOT.glob(path) if file.is_file()]
    return {name for file in files for name in re.findall(r"AUTOTUNE_[A-Z_]+", file.read_text())}


def test_variables_are_those_of_the_code() -> None:
    used = _variables("docker/*", "docs/deploying.md")
    assert "AUTOTUNE_DATABASE_URL_FILE" in used
    assert used <= _variables("autotune/**/*.py", "db/**/*.py", "service/**/*.py")


def test_secrets_are_made_once(tmp_path: Path) -> None:
    script, folder = str(FOLDER / "make-secrets.sh"), tmp_path / "secrets"
    assert run([script, str(folder)]).returncode == 0
    made = {file.name: file.read_text().strip() for file in folder.iterdir()}
    declared = {secret["file"].removeprefix("secrets/") for secret in COMPOSE["secrets"].values()}
    assert set(made) == declared
    assert re.fullmatch(r"[0-9a-f]{48}", made["postgres_password"])
    given = SERVICES["postgres"]["environment"]
    assert made["database_url"] == (
        f"postgresql://{given['POSTGRES_USER']}:{made['postgres_password']}@postgres/"
        f"{given['POSTGRES_DB']}"
    )
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o444}

    again = run([script, str(folder)])
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert (folder / "database_url").read_text().strip() == made["database_url"]


def test_secrets_are_not_committed() -> None:
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
