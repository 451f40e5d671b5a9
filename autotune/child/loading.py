"""Loading a kernel declaration, in the child: the only place that executes a user's module."""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.domain.kernel_ref import KernelRef
from autotune.kernel import Kernel


class LoadError(Exception):
    """The declaration cannot be loaded; the message is a sentence for the user."""


class PinnedPackages:
    """Import finder that takes named top-level packages from fixed folders, before anything else
    on the path that happens to have the same name."""

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        root = self.roots.get(name) if path is None else None
        return PathFinder.find_spec(name, [root]) if root else None


class Loader:
    """Loads each declaration once."""

    def __init__(self) -> None:
        self._pinned = PinnedPackages()
        sys.meta_path.insert(0, self._pinned)
        self._kernels: dict[KernelRef, Kernel] = {}

    def kernel(self, ref: KernelRef) -> Kernel:
        """The declaration at ``ref``. Raises ``LoadError``."""
        if ref not in self._kernels:
            self._kernels[ref] = self._load(ref)
        return self._kernels[ref]

    def _load(self, ref: KernelRef) -> Kernel:
        try:
            module = self._module(ref)
        except LoadError:
            raise
        except (Exception, SystemExit) as error:
            raise LoadError(
                f"the kernel file {ref.path} does not import: {type(error).__name__}: {error}"
            ) from error
        found = getattr(module, ref.attribute, None)
        if not isinstance(found, Kernel):
            names = [n for n, v in vars(module).items() if isinstance(v, Kernel)]
            raise LoadError(
                f"{ref.path} has no kernel declaration called {ref.attribute}: "
                + (f"it has {', '.join(names)}" if names else "an autotune.Kernel is needed")
            )
        return found

    def _module(self, ref: KernelRef) -> ModuleType:
        if ref.module:
            if ref.root:
                self._pinned.roots[ref.module.partition(".")[0]] = ref.root
            return importlib.import_module(ref.module)
        name = f"autotune_user_kernel_{abs(hash(ref.path)):x}"
        spec = importlib.util.spec_from_file_location(name, ref.path)
        if spec is None or spec.loader is None:
            raise LoadError(f"{ref.path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        folder = str(Path(ref.path).parent)
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
