"""``autotune doctor`` finds what is wrong and says what to do; ``completion`` completes."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
from click.shell_completion import BashComplete

from autotune.cli import doctor as diagnosis
from autotune.cli.doctor import Condition
from autotune.cli.main import cli
from autotune.compiling.environments import environment, packages
from autotune_db import open_store
from tests.servers.commands import assert_one_sentence, autotune, autotune_here
from tests.servers.service import running


def _broken(folder, module, lacks):
    """An interpreter like this one in which importing ``module`` fails for want of another."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import builtins, sys\n"
        "real = builtins.__import__\n"
        "def importing(name, *rest, **more):\n"
        f"    if name.partition('.')[0] == {module!r}:\n"
        f"        raise ModuleNotFoundError(\"No module named '{lacks}'\")\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = importing\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def _one(subject, findings):
    return next(finding for finding in findings if finding.subject == subject)


@pytest.fixture(autouse=True)
def no_environments(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_ENVIRONMENTS", str(tmp_path / "environments"))


def test_here_all_is_well(tmp_path):
    done = autotune_here("doctor", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert {findings[name]["condition"] for name in ("package", "search", "serve", "compiler")} == {
        "ok"
    }
    assert "the first search makes it" in findings["database"]["says"]
    assert not (tmp_path / "test.db").exists()


def test_a_package_that_jax_forgot_is_named(tmp_path):
    """As a fresh jax[tpu]==0.9.2, which does not ask for absl-py."""
    python = _broken(tmp_path, "jax", "absl.logging")
    done = autotune_here("doctor", "--quick", "--python", python, cwd=tmp_path)
    assert done.returncode == 1
    assert f"{python} lacks absl-py, which its JAX forgot to ask for" in done.stdout
    assert f"{python} -m pip install absl-py" in done.stdout


def test_an_interpreter_without_jax_is_no_fault_and_none_at_all_is(tmp_path):
    (bare,) = diagnosis.interpreters(_broken(tmp_path, "jax", "jax"))
    assert bare.condition == Condition.NOT_THERE and "pip install" in bare.remedy
    (missing,) = diagnosis.interpreters(str(tmp_path / "nothing"))
    assert missing.condition == Condition.BAD and "No such file" in missing.says


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/echo"])
def test_what_is_no_python_is_said_in_a_sentence(python, tmp_path):
    done = autotune_here("doctor", "--quick", "--python", python, cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{python} cannot import JAX: " in done.stdout
    done = autotune_here("kernels", "--python", python, cwd=tmp_path)
    assert_one_sentence(done, f"{python} does not answer as a Python does: choose another")


def test_a_python_may_print_a_banner(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho Welcome\n{sys.executable} "$@"\necho Bye\n')
    python.chmod(0o755)
    assert environment.releases(str(python), ["jax"]) == {"jax": version("jax")}
    said = autotune_here("kernels", "--python", str(python), cwd=tmp_path).stderr
    assert f"jax: installed {version('jax')}, kernels were tried with 0.10.2" in said
    assert "\nmaxtext: installed none, kernels were tried with 0.2.5\n" in said
    assert isinstance(environment.probe(str(python)), environment.Interpreter)


def test_an_extra_that_is_half_there_is_bad(monkeypatch):
    asked = ["click>=8", 'optuna>=5; extra == "search"', 'scipy>=99; extra == "search"']
    asked += ['nothing-of-this-name; extra == "serve"', 'numpy>=1; extra == "serve"']
    monkeypatch.setattr(packages, "requires", lambda name: asked)
    real = diagnosis.installed_version
    monkeypatch.setattr(  # numpy alone is everybody's
        diagnosis, "installed_version", lambda name: None if name == "fastapi" else real(name)
    )
    findings = list(diagnosis.packages())
    assert _one("package", findings).condition == Condition.GOOD
    search, serve = _one("search", findings), _one("serve", findings)
    assert (search.condition, search.says) == (Condition.BAD, "lacks scipy>=99")
    assert serve.condition == Condition.NOT_THERE
    assert "'pallas-autotune[serve] @ file:///" in serve.remedy
    assert _one("postgres", findings).condition == Condition.GOOD  # asks for nothing


def test_a_database_that_cannot_be_used(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("x" * 5000)
    finding = diagnosis.database(str(file))
    assert finding.condition == Condition.BAD and finding.remedy


def test_a_database_and_its_service(tmp_path):
    url = str(tmp_path / "test.db")
    open_store(url, create=True).close()
    assert diagnosis.database(url).condition == Condition.GOOD
    with running(url) as service:
        address = f"http://127.0.0.1:{service.port}"
        assert diagnosis.service(address).condition == Condition.GOOD
    assert diagnosis.service(address).condition == Condition.BAD


@pytest.mark.slow
def test_every_chip_compiles(tmp_path):
    done = autotune("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["subject"]: finding["says"] for finding in json.loads(done.stdout)}
    assert [findings[chip] for chip in ("v4", "v5e", "v5p", "v6e")] == ["compiles"] * 4


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_understands_what_it_is_given(shell, tmp_path):
    program = shutil.which(shell)
    script = autotune_here("completion", shell, cwd=tmp_path).stdout
    assert "_AUTOTUNE_COMPLETE" in script
    if program is None:
        pytest.skip(f"{shell} is not on this machine")
    checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("search fla", "plain,flash_attention"),
        ("history --chip v5", "plain,v5e"),
        ("check --jax 9.", "plain,9.8.7"),
        ("env remove ", "plain,9.8.7"),
        ("search ./x", "file,./x"),
    ],
)
def test_a_shell_completes_kernels_chips_and_environments(words, known, tmp_path, monkeypatch):
    made = SimpleNamespace(name="9.8.7")
    monkeypatch.setattr(environment, "environments", lambda _: [made])
    *before, incomplete = words.split(" ")
    completer = BashComplete(cli, {}, "autotune", "_AUTOTUNE_COMPLETE")
    items = completer.get_completions(before, incomplete)
    assert known in [completer.format_completion(item) for item in items]


def test_the_other_package_of_our_import_name_is_bad(tmp_path, monkeypatch):
    assert all(finding.subject != "autotune" for finding in diagnosis.packages())
    (tmp_path / "autotune-0.0.3.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: autotune\nVersion: 0.0.3\n"
    (tmp_path / "autotune-0.0.3.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    (foreign,) = (f for f in diagnosis.packages() if f.subject == "autotune")
    assert foreign.condition == Condition.BAD and "uninstall autotune" in foreign.remedy
