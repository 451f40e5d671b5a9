"""Questions of a request, from plain JSON data to keys. Each part is checked in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.domain.chip import Chip, parse_chip
from autotune.domain.dtype import parse_dtype
from autotune.domain.key import Key
from autotune.domain.problem import MAX_DIMENSION, Problem
from autotune.domain.toolchain import Toolchain
from autotune.errors import InvalidInputError
from autotune.lookup.matching import Identity, identity
from autotune_service.errors import Refusal
from autotune_service.snapshot_cache import Snapshot

MAX_NAME = 200  # characters
VERSIONS = ("jax", "jaxlib", "libtpu")
_INT = {int}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What holds for all questions that do not say otherwise; the parts as they were given."""

    chip: Any = None
    toolchain: Any = None


def known_identity(asked: Any, chip: str, versions: Any, snapshot: Snapshot) -> Identity | None:
    """What to look an answer up by, made of unchecked data: what is equal to a key that is
    published needs no check. None for what must be looked at closely."""
    try:
        problem = asked["problem"]
        dims, name = problem["dims"], asked["kernel"]
        if "chip" in asked or "toolchain" in asked or set(map(type, dims.values())) != _INT:
            return None
        fingerprint = asked.get("fingerprint") or snapshot.newest[name]
        found = identity(
            name, fingerprint, chip, versions, dims, problem["dtype"], problem.get("options") or {}
        )
        hash(found)
        return found
    except (KeyError, TypeError, AttributeError):
        return None


def parse_question(asked: Any, around: Surroundings, snapshot: Snapshot, at: str) -> Key:
    """The key of one question. Raises ``Refusal`` with the field, which is under ``at``."""
    question = _mapping(asked, at)
    chip = chip_of(question.get("chip", around.chip), at + ".chip")
    toolchain = toolchain_of(question.get("toolchain", around.toolchain), at + ".toolchain")
    name = _text(question.get("kernel"), at + ".kernel")
    given = question.get("fingerprint")
    fingerprint = None if given is None else _text(given, at + ".fingerprint")
    fingerprint = fingerprint_of(name, fingerprint, snapshot, at + ".kernel")
    problem = _problem(question.get("problem"), name, fingerprint, snapshot, at)
    return Key(
        kernel=name, fingerprint=fingerprint, problem=problem, chip=chip, toolchain=toolchain
    )


def fingerprint_of(name: str, given: str | None, snapshot: Snapshot, field: str) -> str:
    """The one given, else that of the newest record. Raises ``Refusal`` for an unknown kernel."""
    newest = snapshot.newest.get(name)
    if newest is None:
        known = ", ".join(sorted(snapshot.newest)) or "none"
        message = f"unknown kernel {name[:MAX_NAME]!r}: there is {known}"
        raise Refusal(404, "unknown_kernel", message, field)
    return given or newest


def chip_of(text: Any, field: str) -> Chip:
    try:
        return parse_chip(_text(text, field))
    except InvalidInputError as error:
        raise Refusal(422, "unknown_chip", str(error), field) from error


def toolchain_of(data: Any, field: str) -> Toolchain:
    versions = _mapping(data, field)
    return Toolchain(**{name: _text(versions.get(name), f"{field}.{name}") for name in VERSIONS})


def _problem(data: Any, name: str, fingerprint: str, snapshot: Snapshot, at: str) -> Problem:
    field = at + ".problem"
    problem = _mapping(data, field)
    dims = _mapping(problem.get("dims"), field + ".dims")
    for dim, size in dims.items():
        _text(dim, field + ".dims")
        if type(size) is not int or not 1 <= size <= MAX_DIMENSION:
            message = f"dimension {dim} must be a whole number from 1 to {MAX_DIMENSION}"
            raise Refusal(422, "invalid_dimension", message, f"{field}.dims.{dim}")
    options = _mapping(problem.get("options") or {}, field + ".options")
    for option, value in options.items():
        _text(option, field + ".options")
        if not isinstance(value, int) and not isinstance(value, str):
            message = f"option {option} must be a text, a whole number, true or false"
            raise Refusal(422, "invalid_option", message, f"{field}.options.{option}")
    dtype = problem.get("dtype")
    dtype = None if dtype is None else _text(dtype, field + ".dtype")
    spec = snapshot.index.kernels.get((name, fingerprint))
    try:
        if spec is None:  # another version of the kernel: it may have other dimensions
            parsed = parse_dtype(_text(dtype, field + ".dtype"))
            return Problem(dims=tuple(dims.items()), dtype=parsed, options=tuple(options.items()))
        shape = ",".join(f"{dim}={size}" for dim, size in dims.items())
        return spec.problems.parse(shape, dtype, [f"{n}={value}" for n, value in options.items()])
    except InvalidInputError as error:
        raise Refusal(422, "invalid_problem", str(error), field) from error


def _mapping(data: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        what = "is missing" if data is None else "must be an object"
        raise Refusal(422, "invalid_field", f"{field.rpartition('.')[2]} {what}", field)
    return data


def _text(data: Any, field: str) -> str:
    """Names and versions are short; what is printed must be printable."""
    name = field.rpartition(".")[2]
    if data is None:
        raise Refusal(422, "missing_field", f"{name} is missing", field)
    if not isinstance(data, str) or not 0 < len(data) <= MAX_NAME or not data.isprintable():
        message = f"{name} must be a text of 1 to {MAX_NAME} printable characters"
        raise Refusal(422, "invalid_field", message, field)
    return data
