"""Command lines that search a key, or estimate a config, again."""

from shlex import quote, split

from autotune.domain.arguments import asked_of, config_text, problem_arguments
from autotune.domain.key import Key, Toolchain
from autotune.domain.record import Check, Trial


def reproduce(key: Key, trial: Trial, asked: str = "") -> str:
    """The command that estimates the config of a trial again. ``asked``: what was searched, as
    ``asked_of`` said it; where that is not known, by the name of the kernel."""
    what = asked or asked_of(key.kernel, problem_arguments(key.problem), key.chip.value)
    again = f"autotune estimate {what} --config {quote(config_text(trial.config))}"
    return again + _flags(key.toolchain)


def retune(check: Check) -> str:
    """The command that searches what was checked, under the JAX that it was checked with."""
    command = f"autotune search {check.asked}" if check.asked else search_command(check.target)
    flags = _flags(check.toolchain) if check.asked else ""
    return f"{command}{flags} --jax {quote(check.toolchain.jax)}"


def search_command(key: Key) -> str:
    """The command that searches a problem; safe to paste, whatever the names are."""
    what = asked_of(key.kernel, problem_arguments(key.problem), key.chip.value)
    return f"autotune search {what}{_flags(key.toolchain)}"


def _flags(toolchain: Toolchain) -> str:
    words = split(toolchain.options)
    return "".join(f" --compiler-option {quote(word)}" for word in words)
