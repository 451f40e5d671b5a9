"""``import autotune``: which names it gives, that they are typed, and that it stays light."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import autotune

NAMES = [
    "Array",
    "AutotuneError",
    "Axis",
    "BundleSource",
    "Chip",
    "Client",
    "Config",
    "ConfigEstimate",
    "Grid",
    "Kernel",
    "Key",
    "Match",
    "Option",
    "Problem",
    "Record",
    "StoreSource",
    "Toolchain",
    "Tunable",
    "Tuned",
    "TunedConfig",
    "Tuning",
    "block",
    "collect",
    "compare",
    "compiler_params",
    "configure",
    "estimate",
    "helion_search",
    "install",
    "lookup",
    "override",
    "profile",
    "refresh",
    "search",
    "step",
    "tunable",
    "uninstall",
]

LOADED = """
import sys
{statement}
print(*sorted(name for name in sys.modules if name.split(".")[0] not in sys.stdlib_module_names))
"""


def test_the_public_names():
    """Adding one is a promise; taking one away breaks users: the changelog says both."""
    assert autotune.__all__ == NAMES
    assert set(NAMES) <= set(dir(autotune))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_documented_and_found(name):
    found = getattr(autotune, name)
    assert found.__name__ == name
    assert found.__doc__


def test_what_type_checkers_see_is_what_is_loaded():
    for name, module in _typed().items():
        assert getattr(autotune, name) is getattr(import_module(module), name)
    assert sorted(_typed(), key=str) == sorted(NAMES)


def _typed():
    """The names imported under TYPE_CHECKING, each with its module."""
    tree = ast.parse(Path(autotune.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_a_name_that_there_is_not():
    with pytest.raises(AttributeError, match="module 'autotune' has no attribute 'Kernal'"):
        getattr(autotune, "Kernal")  # noqa: B009  (mypy would refuse it as an attribute)


def test_importing_the_package_imports_nothing_else():
    version = {"autotune.domain", "autotune.domain.version"}
    assert _loaded("import autotune") == {"autotune", *version}


def test_no_name_brings_more_than_this_package():
    loaded = _loaded(f"from autotune import {', '.join(NAMES)}")
    assert {module.partition(".")[0] for module in loaded} == {"autotune"}


def _loaded(statement):
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(autotune.__file__).parents[1],
    )
    return set(done.stdout.split()) - {"__main__"}
