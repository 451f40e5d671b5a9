"""Loading a kernel declaration, in the child: the only place that executes a user's module."""

import importlib
import importlib.util
import linecache
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from autotune.compiling.child.changes.rewriting import changed_kernel
from autotune.declaring.calls.function import FunctionKernel
from autotune.declaring.calls.text import part_of
from autotune.declaring.kernel import Kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import NamedProblem
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelRef

_DECLARATIONS = (Kernel, FunctionKernel)
OF_A_FILE = "autotune_user_kernel_"  # begins the name of a module that was named by its file


class LoadError(Exception):
    """The declaration cannot be loaded; the message is a sentence for the user."""


class NameLoadError(LoadError):
    """The file has no declaration of that name."""


class PinnedPackages:
    """Import finder that takes named top-level packages from fixed folders, before anything else
    on the path that happens to have the same name."""

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        root = self.roots.get(name) if path is None else None
        return PathFinder.find_spec(name, [root]) if root else None


class CopiedTrees:
    """Import finder that takes what lies in a working tree from a copy of it, another revision.
    What the copy lacks (generated files, compiled extensions) is taken from the tree."""

    def __init__(self) -> None:
        self.copies: dict[str, str] = {}
        """By the tree that each is a copy of; absolute, without links."""

    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if not self.copies or _is_own(name):
            return None
        spec = None
        if path is None:
            others = (finder for finder in sys.meta_path if finder is not self)
            spec = next((s for f in others if (s := f.find_spec(name, None))), None)
            path = _folders_of(spec) if spec else sys.path
        return self._in_copies(name, path) or spec

    def strays(self) -> list[str]:
        """Modules that came from a tree although its copy has them: loaded before it was known, or
        past the import system."""
        names = []
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if _is_own(name) or not isinstance(file, str):
                continue
            moved = Path(self._moved(file) or file).resolve()
            if moved != Path(file).resolve() and moved.is_file():
                names.append(name)
        return sorted(names)

    def _in_copies(self, name: str, path: Iterable[str]) -> ModuleSpec | None:
        """None where nothing of the path is in a tree, or a copy of one."""
        back = {copy: tree for tree, copy in self.copies.items()}
        places = [self._moved(place) or place for place in path]
        trees = [tree for place in places if (tree := _moved(place, back))]
        if not trees:
            return None
        spec = PathFinder.find_spec(name, places) or PathFinder.find_spec(name, trees)
        if spec and spec.submodule_search_locations is not None:
            # Of a namespace package Python would search sys.path again, which names the tree.
            spec.submodule_search_locations = list(spec.submodule_search_locations)
        return spec

    def _moved(self, place: str) -> str | None:
        """In the copy, where it is in a tree; a copy may be inside its tree."""
        is_copy = _moved(place, {copy: copy for copy in self.copies.values()})
        return is_copy or _moved(place, self.copies)


def _is_own(name: str) -> bool:
    """Of this program, which the tree may be that of: it is not what is compared."""
    return name.partition(".")[0] in ("__main__", "autotune")


def _folders_of(spec: ModuleSpec) -> list[str]:
    """The folders that a top-level module was found in."""
    files = list(spec.submodule_search_locations or ())
    if not files and spec.has_location and spec.origin:
        files = [spec.origin]
    return [str(Path(file).resolve().parent) for file in files]


def _moved(place: str, copies: Mapping[str, str]) -> str | None:
    """The same place in another tree, without links; None for one that is in none."""
    real = Path(place).resolve()
    for tree, other in copies.items():
        if real.is_relative_to(tree):
            return str(Path(other) / real.relative_to(tree))
    return None


class Loader:
    """Loads each declaration once."""

    def __init__(self) -> None:
        self._pinned, self._copied = PinnedPackages(), CopiedTrees()
        sys.meta_path[:0] = [self._copied, self._pinned]
        self._kernels: dict[KernelRef, Kernel] = {}
        self._loaded: dict[KernelRef, Kernel | FunctionKernel] = {}

    def kernel(self, ref: KernelRef) -> Kernel:
        """The declaration at ``ref``. Raises ``LoadError``."""
        if ref not in self._kernels:
            declared = self._declared(ref)
            if isinstance(declared, FunctionKernel):
                try:
                    call = declared.call(ProblemWords(call=ref.call))
                    declared = declared.kernel(declared.read(call))
                except InvalidInputError as error:
                    raise LoadError(f"{ref}: {error}") from error
            self._kernels[ref] = changed_kernel(declared, ref.changes) if ref.changes else declared
        return self._kernels[ref]

    def problem(self, ref: KernelRef, words: ProblemWords) -> NamedProblem:
        """Raises ``LoadError``, and ``InvalidInputError`` for words that do not fit."""
        declared = self._declared(ref)
        if isinstance(declared, Kernel):
            return NamedProblem("", words.of(declared.problem_spec))
        call = declared.call(words)
        return NamedProblem(call, declared.problem(declared.read(call)))

    def function(self, ref: KernelRef) -> tuple[Any, Mapping[str, Any]]:
        """What can be called at ``ref``, tunable or not, and all names of its file. Raises
        ``LoadError``."""
        module = self._imported(ref)
        value = part_of(module, ref.attribute)
        if not callable(value):
            raise NameLoadError(f"{ref.module or ref.path} has no function {ref.attribute}")
        return value, vars(module)

    def _declared(self, ref: KernelRef) -> Kernel | FunctionKernel:
        """What stands in the module, which is executed once."""
        place = replace(ref, call="", changes=())
        if place not in self._loaded:
            self._loaded[place] = self._load(place)
        return self._loaded[place]

    def _load(self, ref: KernelRef) -> Kernel | FunctionKernel:
        if ref.copy:
            self._copied.copies[ref.copy_of] = ref.copy
        if ref.plain:
            return FunctionKernel(name=ref.attribute, function=self.function(ref)[0], axes={})
        module = self._imported(ref)
        if ref.copy and (strays := self._copied.strays()):
            raise LoadError(
                f"{ref.path} cannot be compared: {', '.join(strays)} came from {ref.copy_of}, not "
                "from the other revision; is it imported as Python starts?"
            )
        declared = _attribute(module, ref.attribute)
        if not isinstance(declared, Kernel | FunctionKernel):
            names = [n for n in vars(module) if isinstance(_attribute(module, n), _DECLARATIONS)]
            raise NameLoadError(
                f"{ref.path} has no kernel declaration called {ref.attribute}: "
                + (
                    f"it has {', '.join(names)}"
                    if names
                    else "@autotune.tunable makes one of a function"
                )
            )
        return declared

    def _imported(self, ref: KernelRef) -> ModuleType:
        try:
            return self._module(ref)
        except LoadError:
            raise
        except (Exception, SystemExit) as error:
            file = ref.path or ref.module
            at = [f" at `{f.line}`" for f in extract_tb(error.__traceback__) if f.filename == file]
            said = f"{''.join(at[-1:])}: {type(error).__name__}: {error}"
            raise LoadError(f"the kernel file {file} does not import{said}") from error

    def _module(self, ref: KernelRef) -> ModuleType:
        if ref.module:
            if ref.root:
                self._pinned.roots[ref.module.partition(".")[0]] = ref.root
            return importlib.import_module(ref.module)
        name = f"{OF_A_FILE}{abs(hash((ref.path, ref.source))):x}"
        if ref.source:
            return _from_text(name, ref)
        root, package = _package_of(Path(ref.path))
        if package:  # relative imports are of it
            self._pinned.roots[package[0]] = str(root)
            name = ".".join((*package, name))
        spec = importlib.util.spec_from_file_location(name, ref.path)
        if spec is None or spec.loader is None:
            raise LoadError(f"{ref.path} is not a Python file")
        module, loader = importlib.util.module_from_spec(spec), spec.loader
        return _executed(module, ref, lambda: loader.exec_module(module))


def _package_of(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder that holds the top-level package of a file, and the packages down to it."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return root, path.parent.relative_to(root).parts


def _from_text(name: str, ref: KernelRef) -> ModuleType:
    """A module of a notebook's cells."""
    module = ModuleType(name)
    lines = ref.source.splitlines(keepends=True)
    linecache.cache[name] = (len(ref.source), None, lines, name)  # for tracebacks
    code = compile(ref.source, name, "exec")
    return _executed(module, ref, lambda: exec(code, vars(module)))  # noqa: S102 (what this is for)


def _executed(module: ModuleType, ref: KernelRef, execute: Callable[[], None]) -> ModuleType:
    """Modules beside the declaration can be imported."""
    folder = str(Path(ref.path).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module.__name__] = module
    try:
        execute()
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _attribute(module: ModuleType, name: str) -> Any:
    """What a dotted name means; of a decorated function its declaration."""
    value = part_of(module, name)
    return value if isinstance(value, Kernel) else getattr(value, "declaration", None)
