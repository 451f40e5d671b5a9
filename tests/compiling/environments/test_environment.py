"""Environments on disk: which one is meant, what is unfinished, which Python fits."""

import fcntl
import json
import re
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from autotune.compiling.environments import create
from autotune.compiling.environments.create import fitting_interpreter
from autotune.compiling.environments.environment import (
    FOLDER_VARIABLE,
    CannotCompile,
    Environment,
    environments,
    find_environment,
    keep,
    remove,
)
from autotune.domain.errors import AutotuneError, InvalidInputError, UnknownNameError
from autotune.domain.key import Toolchain
from tests.servers.commands import assert_one_sentence, autotune_here

LIBTPU_9 = "0.10.2+libtpu.9.9"


def made(folder, jax):
    """As one that was created, without its packages."""
    (folder / jax).mkdir(parents=True)
    one = Environment(
        name=jax,
        python=sys.executable,
        python_version="3.11.7",
        toolchain=Toolchain(jax=jax, jaxlib=jax, libtpu="0.0.1"),
        extra=("tokamax",),
    )
    keep(folder, one)
    return one


def test_what_was_made_is_read_back_the_newest_first(tmp_path):
    old, new = made(tmp_path, "0.9.2"), made(tmp_path, "0.10.2")
    assert environments(tmp_path) == [new, old]


def test_a_folder_without_its_note_was_not_finished(tmp_path):
    one = made(tmp_path, "0.9.2")
    (tmp_path / "0.10.2" / "bin").mkdir(parents=True)
    assert environments(tmp_path) == [one]
    with pytest.raises(UnknownNameError, match=r"autotune env create jax==0\.10\.2"):
        find_environment(tmp_path, "0.10.2")


@pytest.mark.parametrize("note", ["", "[]", '{"name": "0.9.2"}', '{"toolchain": 3}'])
def test_a_note_that_is_not_ours_is_passed_over(note, tmp_path):
    made(tmp_path, "0.9.2")
    (tmp_path / "0.9.2" / "autotune-environment.json").write_text(note)
    assert environments(tmp_path) == []


@pytest.mark.parametrize(
    ("wanted", "found"), [("0.12", "0.12.0.1"), ("0.1", None), ("0.12.0.1", "0.12.0.1")]
)
def test_a_short_version_means_the_newest_of_it(wanted, found, tmp_path):
    made(tmp_path, "0.12.0")
    made(tmp_path, "0.12.0.1")
    made(tmp_path, "0.10.2")
    if found is None:
        with pytest.raises(UnknownNameError, match=r"there are 0\.12\.0\.1, 0\.12\.0, 0\.10\.2"):
            find_environment(tmp_path, wanted)
    else:
        assert find_environment(tmp_path, wanted).name == found


def test_the_running_python_is_taken_where_it_fits():
    path, version = fitting_interpreter(">=3.8", "jax 0.1")
    assert (path, version) == (sys.executable, sys.version.split()[0])


def test_the_sentence_names_what_is_needed_and_what_there_is():
    with pytest.raises(InvalidInputError, match=r"jax 99 needs Python .*>=3\.99.*--python"):
        fitting_interpreter(">=3.99", "jax 99")
    with pytest.raises(InvalidInputError, match=r"/no/such/python is no Python 3"):
        fitting_interpreter(">=3.11", "jax 99", "/no/such/python")


def test_commands_use_the_environment_that_jax_names(tmp_path):
    own = replace(made(tmp_path, "0.9.2"), python="/no/such/interpreter")
    keep(tmp_path, own)
    search = ("search", "matmul", "--shape", "1x1x1", "--chip", "v5e")
    place = {FOLDER_VARIABLE: str(tmp_path)}
    done = autotune_here(*search, "--jax", "0.9.2", cwd=tmp_path, env=place)
    assert_one_sentence(done, "the interpreter /no/such/interpreter cannot be started")
    done = autotune_here(*search, "--jax", "0.9.2", "--python", "x", cwd=tmp_path, env=place)
    assert_one_sentence(done, "--jax and --python both name an interpreter")
    done = autotune_here(*search, "--jax", "0.8", cwd=tmp_path, env=place)
    assert_one_sentence(done, "autotune env create jax==0.8")


@pytest.fixture
def installed(monkeypatch):
    """What is installed: nothing but the name of a libtpu 9.9."""
    installed = []

    def install(tool, *packages):
        installed.append(packages)
        (place,) = tool.python.parents[1].glob("lib/*/site-packages")
        (place / "libtpu-9.9.dist-info").mkdir(exist_ok=True)
        (place / "libtpu-9.9.dist-info/METADATA").write_text("Name: libtpu\nVersion: 9.9\n")

    monkeypatch.setattr(create._Installer, "install", install)
    return installed


def test_another_libtpu_stands_before_the_packages_of_an_interpreter(
    tmp_path, installed, monkeypatch
):
    made = create.create_environment(tmp_path, LIBTPU_9, python=sys.executable)
    assert (made.toolchain.jax, made.toolchain.libtpu) == (version("jax"), "9.9")
    assert installed[0] == ("--no-deps", "libtpu==9.9")
    monkeypatch.chdir(Path(sys.executable).parents[1])
    again = create.create_environment(tmp_path, LIBTPU_9, python="bin/python")
    assert (again, len(installed), made.base) == (made, 2, sys.executable)


def test_what_cannot_be_imported_is_not_left_behind(tmp_path, installed, monkeypatch):
    monkeypatch.setattr(
        create.environment,
        "probe",
        lambda _: CannotCompile(lacks=None, message="no module has this"),
    )
    with pytest.raises(AutotuneError, match="cannot be imported there: no module has this"):
        create.create_environment(tmp_path, LIBTPU_9, python=sys.executable)
    assert installed and [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_environments_of_other_bases_stand_beside_each_other(tmp_path, installed):
    older = made(tmp_path, LIBTPU_9)  # of a version that noted no base
    first = create.create_environment(tmp_path, LIBTPU_9, python=sys.executable)
    second = create.create_environment(tmp_path, LIBTPU_9, python=first.python)
    assert {first, second, older} == {*environments(tmp_path)}
    assert Path(first.python).exists()
    assert find_environment(tmp_path, LIBTPU_9) == older
    remove(tmp_path, older.name)
    with pytest.raises(UnknownNameError, match=re.escape(first.name)):
        find_environment(tmp_path, LIBTPU_9)
    remove(tmp_path, find_environment(tmp_path, second.name).name)
    assert find_environment(tmp_path, LIBTPU_9) == find_environment(tmp_path, "0.10.2+libtpu.9")
    listed = autotune_here("env", "list", cwd=tmp_path, env={FOLDER_VARIABLE: str(tmp_path)})
    assert f"on {sys.executable}" in listed.stdout


def test_an_environment_whose_base_has_another_jax_now_is_not_used(tmp_path, installed):
    now = create.create_environment(tmp_path, LIBTPU_9, python=sys.executable)
    keep(tmp_path, replace(now, toolchain=replace(now.toolchain, jax="0.1")))
    with pytest.raises(InvalidInputError, match=rf"jax 0\.1, .* env remove .*{now.name[-8:]}"):
        create.create_environment(tmp_path, LIBTPU_9, python=sys.executable)
    search = ("search", "matmul", "--shape", "1x1x1", "--chip", "v5e", "--jax", LIBTPU_9)
    done = autotune_here(*search, cwd=tmp_path, env={FOLDER_VARIABLE: str(tmp_path)})
    assert_one_sentence(done, "was made with jax 0.1,")


def test_nothing_is_replaced_by_what_it_is_built_on(tmp_path):
    inside = tmp_path / made(tmp_path, "0.9.2").name / "bin" / "python"
    with pytest.raises(InvalidInputError, match=r"lies in the environment 0\.9\.2"):
        create.create_environment(tmp_path, "0.9.2", extra=["more"], python=str(inside))
    assert len(environments(tmp_path)) == 1


def test_the_commands_list_and_remove(tmp_path):
    place = {FOLDER_VARIABLE: str(tmp_path)}
    assert "none yet" in autotune_here("env", "list", cwd=tmp_path, env=place).stdout
    made(tmp_path, "0.9.2")
    (tmp_path / "0.9" / "bin").mkdir(parents=True)
    with (tmp_path / ".0.9.lock").open("w") as lock:  # it is being made
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert autotune_here("env", "list", cwd=tmp_path, env=place).stderr == ""
    listed = autotune_here("env", "list", cwd=tmp_path, env=place)
    assert "tokamax" in listed.stdout and "`autotune env remove 0.9`\n" in listed.stderr
    listed = json.loads(autotune_here("env", "list", "--json", cwd=tmp_path, env=place).stdout)
    assert listed[0]["toolchain"]["jax"] == "0.9.2"
    for name in ("0.9", "jax==0.9.2"):
        assert environments(tmp_path) != []
        assert autotune_here("env", "remove", name, cwd=tmp_path, env=place).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [".0.9.lock"]


@pytest.mark.parametrize("release", ["torch==2", "jax==0.9.*"])
def test_what_is_no_release_is_a_sentence(release, tmp_path):
    done = autotune_here(
        "env", "create", release, cwd=tmp_path, env={FOLDER_VARIABLE: str(tmp_path)}
    )
    assert_one_sentence(done, "is not a release of JAX: write it as jax==0.10.2")
