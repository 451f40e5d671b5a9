"""What may be asked, and how a question becomes a key.

It is declared twice. What msgspec reads has the types alone: enough to look up what is published,
for what is equal to a published key is right in all else. Pydantic reads the rest, checks it, and
says what is wrong.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NotRequired, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from autotune.domain.compiler_options import MOST_CHARACTERS
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Identity, Key, Toolchain, identity, parse_chip
from autotune.domain.limits import MOST_NAMES
from autotune.domain.problem import Problem, parse_dtype
from autotune_service.api.forms import Choice, Size
from autotune_service.errors import HttpError, not_valid, unreadable
from autotune_service.snapshot_cache import IndexedSnapshot

MAX_NAME = 200  # characters
MAX_QUESTIONS = 1_000

Printable = Annotated[
    str, Field(strict=True, min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Flags = Annotated[str, Field(strict=True, max_length=MOST_CHARACTERS)]
"""Of the TPU compiler, beside its defaults: as in ``LIBTPU_INIT_ARGS``."""
_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
class VersionsData(TypedDict):
    jax: Annotated[Printable, Field(examples=["0.10.2"])]
    jaxlib: Annotated[Printable, Field(examples=["0.10.2"])]
    libtpu: Annotated[Printable, Field(examples=["0.0.42.1"])]
    options: NotRequired[Flags]


@with_config(_STRICT)
class ProblemQuestion(TypedDict):
    dims: Annotated[
        dict[Printable, Size],
        Field(max_length=MOST_NAMES, fail_fast=True, examples=[{"m": 1024, "k": 1024, "n": 1024}]),
    ]
    dtype: NotRequired[Annotated[Printable | None, Field(examples=["bfloat16"])]]
    options: NotRequired[
        Annotated[dict[Printable, Choice], Field(max_length=MOST_NAMES, fail_fast=True)] | None
    ]


@with_config(_STRICT)
class Question(TypedDict):
    """``fingerprint``: by default that of the newest record, of a proven one where there is one.
    ``chip`` and ``toolchain``: by default those of the whole call."""

    kernel: Annotated[Printable, Field(examples=["matmul"])]
    fingerprint: NotRequired[Printable | None]
    problem: ProblemQuestion
    chip: NotRequired[Printable | None]
    toolchain: NotRequired[VersionsData | None]


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class VersionsStruct(Struct, forbid_unknown_fields=True, gc=False):
    jax: Name
    jaxlib: Name
    libtpu: Name
    options: Annotated[str, Meta(max_length=MOST_CHARACTERS)] = ""


class ProblemStruct(Struct, forbid_unknown_fields=True, gc=False):
    dims: Annotated[dict[Name, int], Meta(max_length=MOST_NAMES)]
    dtype: Name | None = None
    options: Annotated[dict[Name, bool | int | float | str], Meta(max_length=MOST_NAMES)] | None = (
        None
    )


class QuestionStruct(Struct, forbid_unknown_fields=True, gc=False):
    kernel: Name
    problem: ProblemStruct
    fingerprint: Name | None = None
    chip: Name | None = None
    toolchain: VersionsStruct | None = None


T = TypeVar("T")

_MOST_EXPLAINED_BYTES = 16 << 10
_question: TypeAdapter[Question] = TypeAdapter(Question)
_types = msgspec.json.Decoder(QuestionStruct)
_json = msgspec.json.Decoder(Raw)


@dataclass(frozen=True, slots=True)
class Unread:
    """A question as it was sent."""

    text: Raw

    def read(self) -> Question:
        return checked(_question, bytes(self.text), _types)


def checked(model: TypeAdapter[T], text: bytes, types: msgspec.json.Decoder[Any]) -> T:
    """Raises ``HttpError`` with the first mistake. Pydantic looks for all of them, a microsecond
    each: in a long text it is one of type that msgspec ends at, where there is one."""
    try:
        if len(text) > _MOST_EXPLAINED_BYTES:
            _json.decode(text)
            types.decode(text)
        return model.validate_json(text)
    except ValidationError as error:
        raise not_valid(error, text) from error
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from error


def known_identity(
    question: QuestionStruct,
    chip: str | None,
    toolchain: VersionsStruct | None,
    snapshot: IndexedSnapshot,
) -> Identity | None:
    """What to look an answer up by: what is equal to a key that is published needs no check
    against its kernel. None where something is missing. ``chip`` and ``toolchain``: of the call."""
    chip, versions = question.chip or chip, question.toolchain or toolchain
    if chip is None or versions is None:
        return None
    name, problem = question.kernel, question.problem
    return identity(
        name,
        question.fingerprint or snapshot.newest.get(name, ""),
        _chip_name(chip),
        (versions.jax, versions.jaxlib, versions.libtpu, versions.options),
        problem.dims,
        problem.dtype or "",
        problem.options or {},
    )


@lru_cache(maxsize=1_000)
def _chip_name(text: str) -> str:
    """Empty for what names none."""
    try:
        return parse_chip(text).value if text.isprintable() else ""
    except InvalidInputError:
        return ""


def key_of(
    question: Question, chip: str | None, toolchain: VersionsData | None, snapshot: IndexedSnapshot
) -> Key:
    """Raises ``HttpError`` with the field, as it stands in the question."""
    parsed_chip = chip_of(question.get("chip") or chip)
    versions = question.get("toolchain") or toolchain
    if versions is None:
        raise HttpError(422, "missing_field", "toolchain is missing", "toolchain")
    name = question["kernel"]
    fingerprint = fingerprint_of(name, question.get("fingerprint"), snapshot)
    return Key(
        kernel=name,
        fingerprint=fingerprint,
        problem=_problem(question["problem"], name, fingerprint, snapshot),
        chip=parsed_chip,
        toolchain=toolchain_of(**versions),
    )


def toolchain_of(**parts: str) -> Toolchain:
    try:
        return Toolchain(**parts)
    except InvalidInputError as error:
        raise HttpError(422, "invalid_field", str(error), "toolchain.options") from error


def fingerprint_of(name: str, given: str | None, snapshot: IndexedSnapshot) -> str:
    """The one given, else that of the newest record. Raises ``HttpError`` for an unknown kernel."""
    newest = snapshot.newest.get(name)
    if newest is None:
        known = ", ".join(sorted(snapshot.newest)) or "none"
        raise HttpError(
            404, "unknown_kernel", f"unknown kernel {name!r}: there is {known}", "kernel"
        )
    return given or newest


def chip_of(text: str | None) -> Chip:
    if text is None:
        raise HttpError(422, "missing_field", "chip is missing", "chip")
    try:
        return parse_chip(text)
    except InvalidInputError as error:
        raise HttpError(422, "unknown_chip", str(error), "chip") from error


def _problem(
    given: ProblemQuestion, name: str, fingerprint: str, snapshot: IndexedSnapshot
) -> Problem:
    dims, options = given["dims"], given.get("options") or {}
    dtype = given.get("dtype")
    spec = snapshot.index.kernels.get((name, fingerprint))
    try:
        if spec is not None:
            return spec.problems.problem(dims, dtype, options)
        if dtype is None:  # another version of the kernel: it may have other dimensions
            raise HttpError(422, "missing_field", "problem.dtype is missing", "problem.dtype")
        parsed = parse_dtype(dtype)
        return Problem(dims=tuple(dims.items()), dtype=parsed, options=tuple(options.items()))
    except InvalidInputError as error:
        raise HttpError(422, "invalid_problem", str(error), "problem") from error
