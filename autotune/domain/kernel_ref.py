"""Where a kernel is declared. Plain data, so that it can cross to where the kernel is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRef:
    """A file and the name in it. ``module`` is set for packages, with ``root`` the folder that
    holds the top-level package.

    ``call``: of a decorated function, its arguments in words. ``source``: the text to run in the
    place of the file, which need not exist: a notebook's. ``copy`` is set where the file is in
    another revision of a working tree, with ``copy_of`` that tree: whatever would be imported from
    it comes from the copy.
    """

    path: str
    attribute: str
    module: str = ""
    root: str = ""
    call: str = ""
    source: str = ""
    copy: str = ""
    copy_of: str = ""

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"
