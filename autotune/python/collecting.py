"""``autotune.collect``: the workload of a model, from Python."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.declaring.calls.listening import LISTENER
from autotune.domain.errors import InvalidInputError
from autotune.domain.workload import UndeclaredKernel, Workload, WorkloadProblem, workload_text


class CollectedWorkload:
    """What was found so far; equal problems are one, with the sum of their weights."""

    def __init__(self) -> None:
        from autotune.compiling.child.loading import Loader
        from autotune.declaring.discovery import installed_kernels

        self._loader = Loader()
        self._catalogue = installed_kernels()
        self._problems: list[WorkloadProblem] = []
        self._undeclared: list[UndeclaredKernel] = []

    def trace(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Find the kernels of such a call, counted through its loops, as `autotune collect` does.

        Arrays may be ``jax.ShapeDtypeStruct``; nothing is compiled or run. Raises what the function
        raises; what was found until then is kept. JAX's caches are cleared: what was compiled
        before is compiled again.
        """
        import jax

        from autotune.compiling.child.collecting import Heard, kernels_of

        jax.clear_caches()  # what jit has traced before would be heard of by nobody
        token = LISTENER.set(Heard())  # what matching builds is no call of the model
        try:
            error, kernels = kernels_of(function, args, kwargs, self._loader, self._catalogue)
        finally:
            LISTENER.reset(token)
        self._add(kernels.problems, kernels.undeclared)
        if error is not None:
            raise error

    @property
    def workload(self) -> Workload:
        return Workload(problems=tuple(self._problems), undeclared=tuple(self._undeclared))

    def save(self, path: str | Path) -> None:
        """As TOML, for `autotune tune`. Raises ``InvalidInputError`` for a function of a notebook's
        cells: another process cannot load it."""
        for problem in self._problems:
            file, _, attribute = problem.kernel.rpartition(":")
            if file and not Path(file).is_file():
                raise InvalidInputError(
                    f"{attribute} is in no file: move it from the notebook to a module"
                )
        if not (self._problems or self._undeclared):
            raise InvalidInputError("no kernel was found: call workload.trace(function, ...)")
        try:
            Path(path).write_text(workload_text(self.workload), encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be written: {error.strerror}") from error

    def _add(
        self, problems: Iterable[WorkloadProblem], undeclared: Iterable[UndeclaredKernel]
    ) -> None:
        from autotune.compiling.child.collecting import merged

        self._problems = merged([*self._problems, *problems])
        self._undeclared = merged([*self._undeclared, *undeclared])


@contextmanager
def collect() -> Iterator[CollectedWorkload]:
    """In its block ``workload.trace(function, ...)`` finds all kernels of a model. Beside that,
    decorated functions and ``Tuned`` kernels that the block itself calls or traces count once for
    each time that Python comes to them: not by loops, and not what ``jax.jit`` has traced before.
    """
    if "jax" not in sys.modules:
        raise InvalidInputError("nothing can be traced yet: import jax first")
    if LISTENER.get() is not None:
        raise InvalidInputError(
            'this module collects while it is collected: put that under if __name__ == "__main__":'
        )
    from autotune.compiling.child.collecting import Heard

    heard, workload = Heard(), CollectedWorkload()
    token = LISTENER.set(heard)
    try:
        yield workload
    finally:
        LISTENER.reset(token)
        workload._add(heard.untraced(), [])
