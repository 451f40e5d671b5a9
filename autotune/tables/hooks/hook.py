"""How a lookup of another package is described."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Named = dict[str, Any]


Problems = Mapping[str, Named]
"""By kernel of the catalogue: dimensions, options and ``dtype``. Those after the first are asked
for where the first has a record. Empty for what the catalogue does not have."""

Result = Callable[[Named, Named, Callable[[], Any]], Any]
"""Of the variables of a call, the axes that are published for it, and what gives the lookup's own
result: what it returns. The variable ``autotune``: the keys of these records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A lookup that a package asks only where a caller has said no block sizes.

    ``path``: of the lookup in ``module``. ``callers``: the functions of that module that ask it,
    themselves or in a function within, where their variables say what the lookup is not told; asked
    by any other it is left alone.

    ``problems``: of the variables of a call; whatever ``UNTYPED`` it raises is *empty* too. None:
    the call is only noted.
    ``put``: what stands at ``path`` then, made from what stood there and our function.
    ``original``: what gives the lookup's own result, where no function stood there.
    """

    module: str
    path: str
    problems: Callable[[Named], Problems] | None
    result: Result
    callers: tuple[str, ...] = ()
    put: Callable[[Any, Any], Any] = lambda _theirs, lookup: lookup
    original: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """``name``: as it is installed. ``releases``: those whose own code was seen to take a config.
    Nothing of any other is touched. ``hooks``: gives them, where the package is wanted."""

    name: str
    releases: tuple[str, ...]
    hooks: Callable[[], tuple[Hook, ...]]


def dtype_of(*arrays: Any) -> str:
    """Raises ``ValueError`` where they differ."""
    names = {str(array.dtype) for array in arrays}
    if len(names) > 1:
        raise ValueError(f"{' with '.join(sorted(names))} is not in the catalogue")
    return names.pop()


def in_order(*names: str) -> Result:
    """Of a lookup that returns these axes as a tuple."""
    return lambda _call, axes, _default: tuple(axes[name] for name in names)
