"""Where a kernel is declared. Plain data, so that it can cross to where the kernel is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRef:
    """A file and the name in it. ``module`` is set for packages, with ``root`` the folder that
    holds the top-level package."""

    path: str
    attribute: str
    module: str = ""
    root: str = ""

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"
