"""Block-shape autotuner for JAX Pallas TPU kernels. These names are its public face.

A function that takes its block sizes from what was tuned::

    import autotune

    @autotune.tunable(block_q=autotune.block("q.-2"))
    def attention(q, k, v, *, block_q=512): ...

    attention.search(q, k, v, chip="v6e", trials=30)

A kernel declared apart, and what was tuned of it::

    KERNEL = autotune.Kernel(name="scale", axes=(autotune.block("block_rows", "rows"),), ...)
    TUNED = autotune.Tuned(KERNEL, declared_in=__file__)

Each name is imported when it is first used: ``import autotune`` costs nothing, and none of them
imports JAX, Optuna or a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from autotune.domain.version import VERSION

__version__ = VERSION

__all__ = [
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

if TYPE_CHECKING:
    from autotune.answering.matching import Match
    from autotune.answering.sources import configure, refresh
    from autotune.declaring.kernel import Array, Axis, Kernel, block
    from autotune.declaring.pallas import Grid, compiler_params
    from autotune.domain.errors import AutotuneError
    from autotune.domain.key import Chip, Key, Toolchain
    from autotune.domain.problem import Config, Option, Problem
    from autotune.domain.record import Record
    from autotune.python.collecting import collect
    from autotune.python.decorator import Tunable, override, tunable
    from autotune.python.explained_client import Client
    from autotune.python.helion_search import helion_search
    from autotune.python.install import install, uninstall
    from autotune.python.notebook import Tuning, compare, estimate, lookup, profile, search, step
    from autotune.python.sources import BundleSource, StoreSource
    from autotune.python.tuned import Tuned, TunedConfig
    from autotune.wording.outcome import ConfigEstimate
else:
    _NAMES = {
        "answering.matching": ("Match",),
        "answering.sources": ("configure", "refresh"),
        "declaring.kernel": ("Array", "Axis", "Kernel", "block"),
        "declaring.pallas": ("Grid", "compiler_params"),
        "domain.errors": ("AutotuneError",),
        "domain.key": ("Chip", "Key", "Toolchain"),
        "domain.problem": ("Config", "Option", "Problem"),
        "domain.record": ("Record",),
        "python.explained_client": ("Client",),
        "python.collecting": ("collect",),
        "python.decorator": ("Tunable", "override", "tunable"),
        "python.helion_search": ("helion_search",),
        "python.install": ("install", "uninstall"),
        "python.notebook": ("Tuning", "compare", "estimate", "lookup", "profile", "search", "step"),
        "python.sources": ("BundleSource", "StoreSource"),
        "python.tuned": ("Tuned", "TunedConfig"),
        "wording.outcome": ("ConfigEstimate",),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
