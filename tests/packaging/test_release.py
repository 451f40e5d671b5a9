"""A release has one version, and what `make release` builds works where nothing else is."""

import os
import re
import sys
import venv

import pytest

from autotune.domain.version import VERSION
from tests.packaging.test_wheel import ROOT, run


def test_the_version_is_one():
    heading = re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert heading and citation and {heading[1], citation[1]} == {VERSION}


@pytest.mark.slow
def test_what_a_clone_builds_works_in_an_empty_environment(tmp_path):
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", ROOT, clone, cwd=tmp_path)
    for pinned in ("requirements.lock", "pyproject.toml"):
        os.utime(clone / pinned, (0, 0))  # the environment of the tests is not made anew for it
    run("make", "release", f"VENV={sys.prefix}", cwd=clone, MAKEFLAGS="")
    built = {path.name for path in (clone / "dist").iterdir()}
    assert {"notes.md", "sbom-service.cdx.json", "sbom-worker.cdx.json"} <= built
    (wheel,) = (clone / "dist").glob(f"pallas_autotune-{VERSION}-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", f"{wheel}[search]", cwd=tmp_path)
    assert run(binaries / "autotune", "--version", cwd=tmp_path).split()[-1] == VERSION
    search = ("search", "vector_add", "--shape", "4096", "--chip", "v5e", "--trials", "2")
    assert "Published, verified" in run(
        binaries / "autotune", *search, "--db", "x.db", cwd=tmp_path
    )
