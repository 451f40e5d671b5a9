"""MaxText's flags of its attention, where nobody has set one of them: they are read once, when a
run begins."""

from collections.abc import Callable
from typing import Any

from autotune.tables.description import described
from autotune.tables.hooks.hook import Hook, Named, Package, Problems

_DIVIDING = "tensor", "context", "sequence", "autoregressive"  # heads or sequences


def _flags(config: Any) -> list[str]:
    names = type(config).model_fields
    return [name for name in names if name.startswith(("sa_block_", "eval_sa_block_"))]


def _is_default(config: Any, name: str) -> bool:
    """Of the flag: neither the caller says it, nor the file of a model."""
    default = type(config).model_fields[name].default
    return name not in config.model_fields_set and getattr(config, name) == default


def _problem(call: Named) -> Problems:
    config = call["pydantic_config"]
    parts = [n for n in type(config).model_fields if n.startswith(("ici_", "dcn_"))]
    divided = any(getattr(config, n) != 1 for n in parts if any(word in n for word in _DIVIDING))
    if divided or config.use_jax_splash or not all(_is_default(config, n) for n in _flags(config)):
        return {}
    table = described("maxtext")
    key = {name: getattr(config, name) for name in table.key[0].split()}
    kernels = table.problems_of({**key, "dtype": config.dtype.value, "compile_topology": ""})
    first = config.use_tokamax_splash or config.sa_use_fused_bwd_kernel
    return dict([*kernels.items()][:1]) if first else kernels


def _set(call: Named, axes: Named, default: Callable[[], Any]) -> Any:
    config = call["pydantic_config"]
    for name in _flags(config):
        axis = name.partition("sa_")[2]
        setattr(config, name, axes.get(axis, getattr(config, name)))
    return default()


_parameters = Hook(
    module="maxtext.configs.pyconfig",
    path="HyperParameters.__init__",
    problems=_problem,
    result=_set,
)
MAXTEXT = Package(name="maxtext", releases=("0.2.5",), hooks=lambda: (_parameters,))
