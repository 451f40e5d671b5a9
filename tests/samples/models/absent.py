"""Stands in for torch and vLLM, which tpu-inference imports everywhere and its JAX models do not
use: a module that is not installed, and whatever is taken from it, is an empty class."""

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGES = ("torch", "torchax", "torchvision", "vllm")
FOR_VLLM = ("tpu_inference.layers.vllm", "tpu_inference.models.vllm")
"""Half of the package is there for vLLM's own models."""


class _Anything(type):
    """Classes that have every attribute, are called, and decorate."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        decorated = args[0] if len(args) == 1 and callable(args[0]) else None
        return decorated or _Anything(cls.__name__, (), {})

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        is_absent = any(f"{name}.".startswith(f"{absent}.") for absent in self._names)
        return ModuleSpec(name, self, is_package=True) if is_absent else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in() -> None:
    """For each of :data:`PACKAGES` that is not installed."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    sys.meta_path.insert(0, _Finder([*absent, *(FOR_VLLM if "vllm" in absent else ())]))
