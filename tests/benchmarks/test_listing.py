"""``python -m benchmarks``: whatever can be run is listed with what it answers, and starts."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
import tools
from benchmarks.__main__ import NAMES, question

ROOT = Path(benchmarks.__file__).parents[1]
TOOLS = (
    "architecture",
    "calibration.corpus",
    "calibration.constants",
    "calibration.error_bars",
    "screenshots",
)


def test_every_module_beside_the_listing_is_listed_once() -> None:
    modules = {path.stem for path in Path(benchmarks.__file__).parent.glob("[a-z]*.py")}
    assert sorted(modules) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_asks_a_question(name: str) -> None:
    assert question(name).endswith("?")


@pytest.mark.parametrize("name", [f"benchmarks.{name}" for name in NAMES])
def test_it_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _starts(name, monkeypatch)


@pytest.mark.parametrize("name", [f"tools.{name}" for name in TOOLS])
def test_a_tool_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _starts(name, monkeypatch)


def _starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = importlib.import_module(name).main
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def test_every_tool_is_started_here() -> None:
    folder = Path(tools.__file__).parent
    files = {p for p in folder.rglob("*.py") if '__name__ == "__main__"' in p.read_text()}
    started = {folder / f"{name.replace('.', '/')}.py" for name in TOOLS}
    assert files - started == {folder / "calibration" / "profile_worker.py"}  # a child of corpus


def test_the_command_lists_and_refuses() -> None:
    listed = _run()
    assert listed.returncode == 0
    assert all(f"  {name} " in listed.stdout for name in NAMES)
    refused = _run("nonsense")
    assert refused.returncode == 1
    assert refused.stderr == "there is no benchmark nonsense: python -m benchmarks lists them\n"


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
