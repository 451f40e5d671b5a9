"""The wheel and the source distribution, installed beside packages that are called ``kernels``,
``db`` and ``service``, as our folders are: nobody gets in the way of anybody."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from autotune import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "autotune", "kernels", "db", "service")
NEIGHBOURS = ("kernels", "db", "service")
_BUILD_SDIST = "import setuptools.build_meta as m, sys; print(m.build_sdist(sys.argv[1]))"


def run(*command, cwd, **environment):
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=surroundings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_of(source, folder):
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=folder.parent)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy: what a build writes beside its sources is not for the repository."""
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory):
    """Built from the source distribution, which therefore holds all that is needed."""
    folder = tmp_path_factory.mktemp("wheel")
    printed = run(sys.executable, "-c", _BUILD_SDIST, folder, cwd=tree)
    return wheel_of(folder / printed.splitlines()[-1], folder / "from-sdist")


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Of a new environment: the neighbours were there first, then came ours. Dependencies are
    found in the environment of the tests, so that no package index is needed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    paths = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(paths.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for built in (neighbours(folder / "neighbours"), wheel):
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
        run(*pip, "--ignore-installed", "--no-index", built, cwd=folder)
    return python


def neighbours(folder):
    for name in NEIGHBOURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("WHOSE = 'theirs'\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "neighbours"\nversion = "1"\n'
        f"[tool.setuptools]\npackages = {json.dumps(NEIGHBOURS)}\n"
    )
    return wheel_of(folder, folder.parent / "wheels")


@pytest.fixture(scope="module", params=["anywhere", "among folders of these names"])
def workplace(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workplace")
    if request.param != "anywhere":
        for name in NEIGHBOURS:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text("WHOSE = 'the folder'\n")
    return folder


def test_the_source_distribution_holds_what_the_tree_does(tree, wheel):
    from_tree = wheel_of(tree, wheel.parents[1] / "from-tree")
    assert files_in(from_tree) == files_in(wheel)
    assert {name.split("/")[0] for name in files_in(wheel) if ".dist-info" not in name} == {
        "autotune",
        "autotune_db",
        "autotune_kernels",
        "autotune_service",
    }


def files_in(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_it_holds_each_module_and_data_file(wheel):
    inside = files_in(wheel)
    suffixes = {".py", ".json", ".mako", ".html", ".css", ".js", ".svg", ".typed"}
    for root in (ROOT, ROOT / "kernels", ROOT / "db", ROOT / "service"):
        for path in root.glob("autotune*/**/*"):
            if path.suffix in suffixes:
                assert str(path.relative_to(root)) in inside


def test_the_neighbours_are_theirs(python, tmp_path):
    code = f"import {', '.join(NEIGHBOURS)}; print({'.WHOSE, '.join(NEIGHBOURS)}.WHOSE)"
    assert run(python, "-c", code, cwd=tmp_path).split() == ["theirs"] * 3


def test_the_installed_one_is_meant(python, tmp_path):
    code = (
        "import autotune, autotune_db, autotune_kernels, autotune_service as s; print(s.__file__)"
    )
    assert Path(run(python, "-c", code, cwd=tmp_path).strip()).is_relative_to(python.parents[1])


def test_its_commands_are_ours(python, workplace):
    command = python.with_name("autotune")
    assert __version__ in run(command, "--version", cwd=workplace)
    kernels = json.loads(run(command, "kernels", "--json", cwd=workplace))
    assert "matmul" in json.dumps(kernels)
    database = workplace / "new.db"
    run(command, "db", "upgrade", cwd=workplace, AUTOTUNE_DATABASE_URL=str(database))
    assert database.stat().st_size
