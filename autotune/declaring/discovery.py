"""Finding kernels: the ``autotune.kernels`` entry-point group, or ``path/to/file.py:NAME``.

Nothing is imported here: a kernel's module may need JAX, so it is loaded where compiling happens.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from autotune.domain.errors import KernelImportError, UnknownNameError
from autotune.domain.key import KernelRef
from autotune.domain.version import NAME

GROUP = "autotune.kernels"


def catalogue() -> Mapping[str, KernelRef | str]:
    """Installed kernels by name; a sentence instead of a reference for one that is broken."""
    points = sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name)
    place = cache(_place)  # of the same packages
    return {point.name: _installed(point, place) for point in points}


def installed_kernels() -> dict[str, KernelRef]:
    """Those of the catalogue that are not broken."""
    return {name: ref for name, ref in catalogue().items() if isinstance(ref, KernelRef)}


def find_kernel(name: str) -> KernelRef:
    """The kernel called ``name``, or the one in ``path/to/file.py:NAME``.

    Raises ``UnknownNameError`` or ``KernelImportError`` with one sentence.
    """
    return _from_file(name) if ".py" in name else named_kernel(name)


def named_kernel(name: str) -> KernelRef:
    """The kernel of the catalogue; no file, whoever named it. Raises as ``find_kernel``."""
    points = _ours().select(group=GROUP, name=name) or metadata.entry_points(group=GROUP, name=name)
    if not points:
        from difflib import get_close_matches  # for who mistypes: a model starts without it

        known = catalogue()
        near = get_close_matches(name, known)
        choices = "none is installed;"
        if known:
            choices = f"choose one of {', '.join(known)}; `autotune kernels` lists them;"
        if near:
            choices = f"did you mean {' or '.join(near)}? `autotune kernels` lists all;"
        raise UnknownNameError(
            f"unknown kernel {name!r}: {choices} a kernel of your own is path/to/file.py:NAME"
        )
    kernel = _installed([*points][-1])
    if isinstance(kernel, str):
        raise KernelImportError(kernel)
    return kernel


@cache
def _ours() -> metadata.EntryPoints:
    """What this package declares, without a look at any other: that takes a model 10 ms."""
    try:
        return metadata.distribution(NAME).entry_points
    except metadata.PackageNotFoundError:  # not installed, but on the path
        return metadata.EntryPoints()


def _from_file(text: str) -> KernelRef:
    path, _, attribute = text.rpartition(":")
    if not path or path.endswith(("/", "\\")):
        path, attribute = text, "KERNEL"
    if not Path(path).is_file():
        raise KernelImportError(f"there is no kernel file {path}")
    return KernelRef(path=str(Path(path).resolve()), attribute=attribute)


def _place(package: str) -> Path | None:
    """Of a top-level package: nothing is imported."""
    spec = find_spec(package)
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    return Path(places[0]).resolve() if places and places[0] else None


def _installed(
    point: metadata.EntryPoint, place_of: Callable[[str], Path | None] = _place
) -> KernelRef | str:
    name = point.module.partition(".")[0]
    package = place_of(name)
    if package is None:
        return f"kernel {point.name}: the package {name} cannot be found"
    root = package.parent
    place = root.joinpath(*point.module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.is_file():
        return f"kernel {point.name}: there is no module {point.module} at {path}"
    return KernelRef(path=str(path), attribute=point.attr, module=point.module, root=str(root))
