"""What the RUN steps of the service's image install, with the image's Python in a clean folder."""

import os
import shutil
from pathlib import Path

import pytest

from tests.samples.dockerfiles import FOLDER, ROOT, run, stages, wanted_python

pytestmark = pytest.mark.slow
HEAVY = ("jax", "jaxlib", "libtpu", "optuna", "numpy", "scipy", "pip", "setuptools")
APP = "import autotune_service.app, psycopg, autotune_db, autotune_kernels\n"
FOUND = "from importlib.util import find_spec\nprint([name for name in {} if find_spec(name)])"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of commands of the environment that the build stage makes."""
    name = f"python{wanted_python()}"
    anywhere = [*Path.home().glob(f".pyenv/versions/*/bin/{name}"), shutil.which(name)]
    python = anywhere[0]
    if python is None:
        pytest.skip(f"{name}, which the image has, is not on this machine")
    folder = tmp_path_factory.mktemp("image")
    source, venv, path = folder / "source", folder / "venv", folder / "path"
    path.mkdir()
    (path / "python3").symlink_to(python)
    index = [python, "-m", "pip", "--retries", "0", "download", "--no-deps", "h11"]
    if run([*index, "--dest", folder / "h11"]).returncode != 0:
        pytest.skip("no package index can be reached")
    for step in stages((FOLDER / "service.Dockerfile").read_text())[1].instructions:
        if step.name == "COPY":
            *files, target = step.words
            for file in (ROOT / file for file in files):
                (source / target).mkdir(parents=True, exist_ok=True)
                if file.is_dir():
                    shutil.copytree(file, source / target, dirs_exist_ok=True)
                else:
                    shutil.copy(file, source / target)
        elif step.name == "RUN":
            words = [str(venv) if word == "/opt/autotune" else word for word in step.words]
            env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
            done = run(words, cwd=source, env=env)
            assert done.returncode == 0, done.stderr
    return venv / "bin"


def test_it_holds_the_service_and_nothing_heavy(programs, tmp_path):
    code = APP + FOUND.format(HEAVY)
    done = run([programs / "python", "-W", "error", "-c", code], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_command_runs(programs, tmp_path):
    done = run([programs / "autotune", "--help"], cwd=tmp_path)
    assert done.returncode == 0 and "serve" in done.stdout, done.stderr
