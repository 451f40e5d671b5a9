"""What hadolint says, and what it has no rule for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.dockerfiles import DOCKERFILES, FOLDER, ROOT, Stage, health_command, stages

HADOLINT = Path(sys.executable).with_name("hadolint")
each = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda file: file.stem)


def _hadolint(text: str) -> str:
    """With the base in its place: the rules for images do not look behind a name."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.M)
    told = [str(HADOLINT), "--no-color", "-"]
    plain = text.replace("FROM ${BASE}", f"FROM {base}")
    done = subprocess.run(told, input=plain, text=True, capture_output=True, check=False)
    assert bool(done.returncode) == bool(done.stdout), done
    return done.stdout


@each
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    assert len(DOCKERFILES) == 2
    assert _hadolint(dockerfile.read_text()) == ""


def _loose_steps(text: str) -> list[str]:
    """RUN steps that are no script of ours in exec form."""
    steps = [step for stage in stages(text) for step in stage.all("RUN")]
    scripts = {str(file.relative_to(ROOT)) for file in FOLDER.glob("*.sh")}
    return [step.rest for step in steps if not step.listed or step.listed[0] not in scripts]


@each
def test_each_step_is_a_script_that_the_tests_run(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    found = stages(text)
    assert _loose_steps(text) == []
    assert [len(stage.all("RUN")) for stage in found] == [0, 2, 0]


def test_scripts_can_be_started_and_stop_at_an_error() -> None:
    for script in FOLDER.rglob("*.sh"):
        assert script.stat().st_mode & 0o111, script
        assert re.search(r"^set -eu$", script.read_text(), re.M), script


def test_both_images_have_the_python_that_their_locks_are_for() -> None:
    texts = [file.read_text() for file in DOCKERFILES]
    (base,) = {found for text in texts for found in re.findall(r"^ARG BASE=(\S+)$", text, re.M)}
    assert all(stages(text)[0].one("FROM").rest == "${BASE} AS base" for text in texts)
    (version,) = re.findall(r"^python:(\d+\.\d+)-slim-\w+$", base)
    assert f"--python-version {version}\n" in (ROOT / "Makefile").read_text()


def _final(name: str) -> Stage:
    return stages((FOLDER / f"{name}.Dockerfile").read_text())[-1]


def test_the_port_is_the_same_everywhere() -> None:
    service = _final("service")
    assert service.one("EXPOSE").rest == "8700"
    assert service.one("CMD").words[-2:] == ["--port", "8700"]
    assert "8700" in " ".join(health_command(service))


def test_the_builder_gets_what_is_copied_and_no_more() -> None:
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
