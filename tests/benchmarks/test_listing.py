"""``python -m benchmarks``: whatever can be run is listed with what it answers, and starts."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITERS = (  # of data files and pages
    "calibration.corpus",
    "calibration.constants",
    "calibration.error_bars",
    "pages.architecture",
    "pages.generated_pages",
    "pages.screenshots",
)
SHARED = r"(?!\.(?:calibration|pages|harness\.field_lookups|kernels\.tokamax_rules)\b)"  # for tests
START = """
import importlib, sys
for name in sys.argv[1:]:
    main = importlib.import_module(name).main
    sys.argv = [name, "--help"]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, name
    else:
        raise AssertionError(name)
"""


def test_every_module_beside_the_listing_is_listed_with_its_question():
    listed = _run("-m", "benchmarks")
    assert listed.returncode == 0
    names = [match[1] for match in re.finditer(r"(?m)^  (\w+) .*\?$", listed.stdout)]
    assert sorted(names) == sorted(path.stem for path in _benchmarks())


def test_each_says_what_it_takes():
    names = [f"benchmarks.{path.stem}" for path in _benchmarks()]
    done = _run("-c", START, *names, *(f"benchmarks.{name}" for name in WRITERS))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("folder", "other"), [("benchmarks", "tests"), ("tests", "benchmarks")])
def test_what_is_measured_and_what_is_tested_import_nothing_of_each_other(folder, other):
    imports = re.compile(rf"(?m)^\s*(?:from|import) {other}\b{SHARED}")
    files = [*(ROOT / folder).rglob("*.py")]
    assert files and not [file for file in files if imports.search(file.read_text())]


def test_foreign_kernels_take_ten_lines_at_most():
    kernels = tomllib.loads((ROOT / "benchmarks/foreign.toml").read_text())["kernel"]
    assert len({kernel["name"] for kernel in kernels}) == len(kernels) >= 40
    assert max(len(kernel["lines"].split("\n")) - 2 for kernel in kernels) <= 10


def _benchmarks():
    return list((ROOT / "benchmarks").glob("[a-z]*.py"))


def _run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
