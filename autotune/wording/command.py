"""The command line that searches a key again."""

from shlex import quote

from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.trial import Trial


def reproduce(key: Key, trial: Trial) -> str:
    """The command that searches the same key as far as this trial."""
    return f"{search_command(key)} --trials {trial.number + 1}"


def retune(key: Key) -> str:
    """The command that searches a problem under the key's own JAX."""
    return f"{search_command(key)} --jax {quote(key.toolchain.jax)}"


def search_command(key: Key) -> str:
    """The command that searches a problem; safe to paste, whatever the names are."""
    return f"autotune search {quote(key.kernel)} {problem_arguments(key.problem)} --chip {key.chip}"


def problem_arguments(problem: Problem) -> str:
    """The options of a command that name a problem."""
    dims = ",".join(f"{name}={size}" for name, size in problem.dims)
    options = "".join(
        f" --option {quote(f'{name}={str(value).lower()}')}" for name, value in problem.options
    )
    return f"--shape {quote(dims)} --dtype {quote(problem.dtype)}{options}"
