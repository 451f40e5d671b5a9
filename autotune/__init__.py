"""Block-shape autotuner for JAX Pallas TPU kernels. These names are its public face.

Declaring a kernel::

    from autotune import Array, Config, Grid, Kernel, Problem, block, compiler_params

    KERNEL = Kernel(name="scale", dims=("rows",), axes=(block("block_rows", "rows"),), ...)

Using what was tuned, in a model and in a model server::

    from autotune import BundleSource, Client, Tuned

    TUNED = Tuned(KERNEL, declared_in=__file__, source=BundleSource("configs.bundle"))

Each name is imported when it is first used: ``import autotune`` costs nothing, and none of them
imports JAX, Optuna or a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Array",
    "AutotuneError",
    "Axis",
    "BundleSource",
    "Chip",
    "Client",
    "Config",
    "Grid",
    "Kernel",
    "Key",
    "Option",
    "Problem",
    "StoreSource",
    "Toolchain",
    "Tuned",
    "block",
    "compiler_params",
]

if TYPE_CHECKING:
    from autotune.client import Client
    from autotune.domain.chip import Chip
    from autotune.domain.config import Config
    from autotune.domain.key import Key
    from autotune.domain.problem import Option, Problem
    from autotune.domain.toolchain import Toolchain
    from autotune.errors import AutotuneError
    from autotune.kernel import Array, Axis, Kernel, block
    from autotune.pallas import Grid, compiler_params
    from autotune.runtime import BundleSource, StoreSource, Tuned
else:
    _MODULES = {
        "Array": "kernel",
        "AutotuneError": "errors",
        "Axis": "kernel",
        "BundleSource": "runtime",
        "Chip": "domain.chip",
        "Client": "client",
        "Config": "domain.config",
        "Grid": "pallas",
        "Kernel": "kernel",
        "Key": "domain.key",
        "Option": "domain.problem",
        "Problem": "domain.problem",
        "StoreSource": "runtime",
        "Toolchain": "domain.toolchain",
        "Tuned": "runtime",
        "block": "kernel",
        "compiler_params": "pallas",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
