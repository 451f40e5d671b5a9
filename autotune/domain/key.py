"""What an answer is an answer to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from autotune.domain.chip import Chip
from autotune.domain.errors import InvalidInputError
from autotune.domain.limits import Name
from autotune.domain.problem import Problem, ProblemSpec, same_value
from autotune.domain.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Kernel, its fingerprint, problem, chip and toolchain."""

    kernel: Name
    fingerprint: Name
    problem: Problem
    chip: Chip
    toolchain: Toolchain

    def declared(self, problems: ProblemSpec) -> "Key":
        """In the spelling of its kernel. Raises ``InvalidInputError`` for what it does not take."""
        problem = self.problem
        options = dict(problem.options)
        missing = [option.name for option in problems.options if option.name not in options]
        if missing:
            raise InvalidInputError(f"the problem lacks the options {', '.join(missing)}")
        same = problems.problem(dict(problem.dims), problem.dtype, options)
        return replace(self, problem=same)

    def __str__(self) -> str:
        return f"{self.kernel}[{self.fingerprint}] {self.problem} on {self.chip}, {self.toolchain}"


class Identity(NamedTuple):
    """What tells one key from another, in memory, in bundles and in the database: values with their
    types (for Python 1 is True), whatever the order of dimensions and options."""

    kernel: str
    fingerprint: str
    chip: str
    toolchain: tuple[str, str, str, str]
    dtype: str
    dims: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, type[Any], Any], ...]


def identity(
    kernel: str,
    fingerprint: str,
    chip: str,
    toolchain: tuple[str, str, str, str],
    dims: Mapping[str, int],
    dtype: str,
    options: Mapping[str, Any],
) -> Identity:
    """From plain data, so that a question can be looked up before anything is made of it.
    ``toolchain``: jax, jaxlib, libtpu and compiler options."""
    typed = [(name, value.__class__, value) for name, value in options.items()]
    return Identity(
        kernel,
        fingerprint,
        chip,
        toolchain,
        dtype,
        tuple(sorted(dims.items())),
        tuple(sorted(typed)),
    )


def identity_of(key: Key) -> Identity:
    problem, toolchain = key.problem, key.toolchain
    return identity(
        key.kernel,
        key.fingerprint,
        key.chip.value,
        toolchain.parts,
        dict(problem.dims),
        problem.dtype,
        dict(problem.options),
    )


def may_be_same(one: Key, other: Key) -> bool:
    """Whether two keys may be one in the spelling of their kernel, where that is not known."""
    own, its = identity_of(one), identity_of(other)
    values, meant = dict(one.problem.options), dict(other.problem.options)
    return (
        own._replace(options=()) == its._replace(options=())
        and values.keys() == meant.keys()
        and all(same_value(value, meant[name]) for name, value in values.items())
    )
