"""What a search or a check is of, as arguments of a command: kept with it, to be asked again."""

import sys
from dataclasses import dataclass, replace
from shlex import quote

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, KernelRef, KernelSpec
from autotune.domain.problem import Config, Problem, ProblemSpec

DEFAULT_DTYPE = "float32"
"""Of a decorated function whose problem names none, as of the arrays that JAX makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemWords:
    """A problem as a command line names it: ``call`` of ``--args``, or ``--shape``, ``--dtype`` and
    ``--option``; false where there is none of them. Raises ``InvalidInputError`` for both."""

    shape: str = ""
    dtype: str = ""
    options: tuple[str, ...] = ()
    call: str = ""

    def __post_init__(self) -> None:
        if self.call and (self.shape or self.dtype or self.options):
            raise InvalidInputError(
                "--shape, --dtype and --option are part of --args: say all of it there, or none"
            )

    def __bool__(self) -> bool:
        return bool(self.call or self.shape or self.dtype or self.options)

    def of(self, spec: ProblemSpec) -> Problem:
        """Of a declaration. Raises as ``ProblemSpec.parse``."""
        if self.call:
            return spec.parse_call(self.call)
        return spec.parse(self.shape, self.dtype or None, self.options)

    def of_searched(self, spec: KernelSpec) -> Problem:
        """The same; of a decorated function, for calls of the form that was searched."""
        return (replace(self, dtype=self.dtype or DEFAULT_DTYPE) if spec.form else self).of(
            spec.problems
        )


NODES_JAX = "jax=="
"""Opens what stands in the place of an interpreter where nodes of a cluster have it."""


def asked(ref: KernelRef, name: str, problem: Problem | str, chip: Chip, python: str = "") -> str:
    """What is asked about, as another command line says it: whoever is in another folder, or has
    another interpreter, reproduces it. ``problem``: that, or the arguments of a call; ``python``:
    what compiles."""
    kernel = name if ref.module else f"{ref.path}:{ref.attribute}"
    said = f"--args {quote(problem)}" if isinstance(problem, str) else problem_arguments(problem)
    return asked_of(kernel, said, chip.value, "" if python == sys.executable else python)


def asked_of(kernel: str, problem: str, chip: str, python: str = "") -> str:
    """``kernel``: a name of the catalogue or FILE.py:NAME; ``python``: of another interpreter."""
    interpreter = f" --python {quote(python)}" if python else ""
    if python.startswith(NODES_JAX):
        interpreter = f" --jax {quote(python.removeprefix(NODES_JAX))}"
    return f"{quote(kernel)} {problem} --chip {chip}{interpreter}"


def problem_arguments(problem: Problem) -> str:
    """The options of a command that name a problem."""
    dims = ",".join(f"{name}={size}" for name, size in problem.dims)
    options = "".join(
        f" --option {quote(f'{name}={str(value).lower()}')}" for name, value in problem.options
    )
    return f"--shape {quote(dims)} --dtype {quote(problem.dtype)}{options}"


def config_text(config: Config) -> str:
    """As ``autotune estimate --config`` reads it."""
    limit = config.vmem_limit_bytes
    if limit is None:
        return ",".join(config.texts())
    vmem = f"vmem={limit}B" if limit % 2**20 else f"vmem={limit >> 20}MiB"
    return ",".join([*config.texts(), vmem])
