"""The workflows: what they run exists, and they may do no more than they need."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def _jobs(file):
    return dict(yaml.safe_load(file.read_text())["jobs"])


def _scripts(file):
    steps = [step for job in _jobs(file).values() for step in job["steps"]]
    return "\n".join(step.get("run", "") for step in steps)


@each
def test_it_may_do_no_more_than_it_needs(file):
    text = file.read_text()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in _jobs(file).values())
    for script in _scripts(file).splitlines():
        assert "${{" not in script, "a value of a stranger would be run: put it into env"


@each
def test_its_targets_exist(file):
    scripts = _scripts(file)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([a-z-]+)$", scripts, re.M)) <= targets


def test_a_release_is_published_without_a_secret():
    text = (FOLDER / "release.yml").read_text()
    assert "secrets." not in text
    assert _jobs(FOLDER / "release.yml")["publish"]["permissions"] == {"id-token": "write"}


@each
def test_actionlint_finds_nothing(file):
    beside = Path(sys.executable).with_name("actionlint")
    actionlint = str(beside) if beside.exists() else shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not on this machine")
    done = subprocess.run([actionlint, "-no-color", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
