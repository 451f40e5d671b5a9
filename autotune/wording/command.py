"""The command line that searches a key again."""

from shlex import quote

from autotune.domain.key import Key
from autotune.domain.trial import Trial


def reproduce(key: Key, trial: Trial) -> str:
    """The command that searches the same key as far as this trial."""
    return f"{search_command(key)} --trials {trial.number + 1}"


def retune(key: Key) -> str:
    """The command that searches a problem under the key's own JAX."""
    return f"{search_command(key)} --jax {quote(key.toolchain.jax)}"


def search_command(key: Key) -> str:
    """The command that searches a problem; safe to paste, whatever the names are."""
    dims = ",".join(f"{name}={size}" for name, size in key.problem.dims)
    options = "".join(
        f" --option {quote(f'{name}={str(value).lower()}')}" for name, value in key.problem.options
    )
    return (
        f"autotune search {quote(key.kernel)} --shape {quote(dims)} "
        f"--dtype {quote(key.problem.dtype)}{options} --chip {key.chip}"
    )
