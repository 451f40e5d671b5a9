"""A workload: the problems of a model, how often each runs, and for which chips and toolchains.

Its file is TOML, or JSON lines (one problem a line; one without ``kernel`` holds for all).

    chips = ["v5e", "v6e"]

    [[problem]]
    kernel = "matmul"
    shape = "m=4096,k=4096,n=4096"
    dtype = "bfloat16"
    options = {activation = "gelu"}
    weight = 32
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from autotune.domain.codec import OmitDefault
from autotune.domain.compiler_options import over
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.step import TunedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProblem:
    """As the command line of a search says it: ``shape``, ``dtype`` and ``options``, or ``args``.

    ``weight``: how often a step of the model runs it. ``config``: what the model runs today, as
    ``autotune estimate --config`` reads it. ``compiler_options``: over those of the workload, as
    ``autotune.domain.compiler_options`` writes them. ``line``: in the file.
    """

    kernel: str
    shape: str = ""
    dtype: str | None = None
    options: tuple[str, ...] = ()
    args: str = ""
    weight: float = 1.0
    config: str = ""
    chips: tuple[str, ...] = ()
    jax: tuple[str, ...] = ()
    compiler_options: str = ""
    line: int = 0

    def __str__(self) -> str:
        said = [self.kernel, self.args or self.shape, self.dtype or "", *self.options]
        return " ".join(filter(None, said))


def workload_problem(
    kernel: str, problem: Problem, weight: float = 1.0, chips: tuple[str, ...] = ()
) -> WorkloadProblem:
    """A problem as the command line says it."""
    return WorkloadProblem(
        kernel=kernel,
        shape=",".join(f"{name}={size}" for name, size in problem.dims),
        dtype=problem.dtype,
        options=tuple(f"{name}={option_text(value)}" for name, value in problem.options),
        weight=weight,
        chips=chips,
    )


def option_text(value: object) -> str:
    """As the command line takes it: text as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitPipeline:
    """An ``emit_pipeline``: its ``grid`` on a core (0: decided by data), ``blocks`` it copies."""

    grid: tuple[int, ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredKernel:
    """A ``pallas_call`` that no declaration is known of. ``core``: what a kernel for a mesh of
    cores runs on; ``source``: the file and line that make the call; ``scope``: where in the model;
    ``scalars`` (read before the kernel), ``operands`` and ``scratch``: dtypes and shapes, as
    ``bfloat16[8,128]``; ``dmas``: that a subcore starts at most. ``vmem_bytes``: of its
    blocks, buffered, and its scratch; ``limit_bytes``: what it asks for itself."""

    name: str
    core: OmitDefault[str] = ""
    source: OmitDefault[str] = ""
    scope: OmitDefault[str] = ""
    scalars: OmitDefault[tuple[str, ...]] = ()
    operands: OmitDefault[tuple[str, ...]] = ()
    grid: tuple[int, ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()
    pipelines: OmitDefault[tuple[EmitPipeline, ...]] = ()
    scratch: OmitDefault[tuple[str, ...]] = ()
    dmas: OmitDefault[tuple[str, ...]] = ()
    vmem_bytes: int = 0
    limit_bytes: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidProblem:
    """One that cannot be tuned, and why; ``line``: in the file."""

    line: int
    problem: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}: {self.reason}" if self.line else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``chips`` and ``jax`` (versions): of every problem that names none; ``compiler_options``: of
    all. ``step``, ``step_args``, ``topology``: the function of the model that they come from, as
    `autotune step` takes it. ``invalid``: entries of the file that are no problems."""

    problems: tuple[WorkloadProblem, ...] = ()
    chips: tuple[str, ...] = ()
    jax: tuple[str, ...] = ()
    compiler_options: str = ""
    step: str = ""
    step_args: str = ""
    topology: str = ""
    undeclared: tuple[UndeclaredKernel, ...] = ()
    invalid: tuple[InvalidProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedEntry:
    """A problem of a workload on one chip with one toolchain. ``before_us``: the estimated time of
    what the model ran when it was tuned, predicted within ``before_error`` where that was not
    compiled; ``reason``: why nothing was published, empty if it was."""

    key: Key
    weight: float
    before_us: float | None
    reason: str = ""
    before_error: OmitDefault[float | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWorkload:
    """A workload as it was tuned last. ``missing``: what could not be tuned, in words; ``steps``:
    of the function that it names, on each chip."""

    name: str
    entries: tuple[TunedEntry, ...]
    missing: tuple[str, ...] = ()
    steps: OmitDefault[tuple[TunedStep, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedTimes:
    """Sums over the problems that have both times, each as often as it runs. ``timed``: how many
    these are; ``predicted``: of how many the time before is only predicted, for which the sum may
    be off by ``before_error`` as a share, None where it is none."""

    timed: int
    predicted: int
    before_us: float
    before_error: float | None
    after_us: float


def weighted_times(
    times: Iterable[tuple[float, float | None, float | None, float | None]],
) -> WeightedTimes:
    """Of problems as (weight, before, its error where it is predicted, after)."""
    timed = [
        (weight, old, error, new)
        for weight, old, error, new in times
        if old is not None and new is not None
    ]
    before_us = sum(weight * old for weight, old, _, _ in timed)
    off_us = [weight * old * error for weight, old, error, _ in timed if error is not None]
    return WeightedTimes(
        timed=len(timed),
        predicted=len(off_us),
        before_us=before_us,
        before_error=sum(off_us) / before_us if off_us and before_us else None,
        after_us=sum(weight * new for weight, _, _, new in timed),
    )


_TABLE = re.compile(r"^[ \t]*\[\[(?P<problem>problem\]\])?", re.MULTILINE)
_Reader = Callable[[str, Any], Any]
_Entry = TypeVar("_Entry", WorkloadProblem, UndeclaredKernel)
_MOST_PROBLEMS = 10_000


def read_workload(text: str) -> Workload:
    """Raises ``InvalidInputError`` for a text that is neither TOML nor JSON lines; what is wrong
    with one problem is said in ``invalid``, with its line."""
    is_json = text.lstrip()[:1] == "{"
    rows = _json_rows(text) if is_json else _toml_rows(text)
    problems, undeclared, invalid, general = [], [], [], dict[str, Any]()
    for line, kind, row in rows:
        try:
            if kind == "undeclared":
                undeclared.append(_entry(UndeclaredKernel, row, _OF_UNDECLARED, "name"))
            elif kind == "problem":
                problems.append(_entry(WorkloadProblem, row, _OF_PROBLEM, "kernel", line=line))
            else:
                general |= _read(row, _OF_ALL)
        except (ValueError, TypeError, InvalidInputError) as error:
            if not kind:
                raise InvalidInputError(f"line {line}: {error}") from error
            name = row.get("kernel") if isinstance(row, Mapping) else None
            invalid.append(InvalidProblem(line=line, problem=str(name or kind), reason=str(error)))
        if len(problems) > _MOST_PROBLEMS:
            raise InvalidInputError(f"a workload has at most {_MOST_PROBLEMS} problems")
    if not problems and not invalid and not undeclared:
        raise InvalidInputError("the workload has no problems: it needs [[problem]] tables")
    return Workload(
        problems=tuple(problems), **general, undeclared=tuple(undeclared), invalid=tuple(invalid)
    )


def load_workload(file: Path) -> Workload:
    """Raises ``InvalidInputError`` with the file's name."""
    try:
        return read_workload(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, InvalidInputError) as error:
        raise InvalidInputError(f"{file}: {error}") from error


def workload_text(workload: Workload) -> str:
    """As TOML; ``read_workload`` is the inverse, but for lines."""
    given = ((name, getattr(workload, name)) for name in sorted(_OF_ALL))
    lines = [f"{name} = {_toml(value)}" for name, value in given if value not in ("", ())]
    for problem in workload.problems:
        lines += ["", "[[problem]]", *_fields(problem)]
    for kernel in workload.undeclared:
        lines += ["", "[[undeclared]]", *_fields(kernel)]
        for pipeline in kernel.pipelines:
            lines += ["", "[[undeclared.pipelines]]", *_fields(pipeline)]
    return "\n".join(lines) + "\n"


def _toml_rows(text: str) -> Iterator[tuple[int, str, Any]]:
    """Line, kind and fields of each table."""
    try:
        whole = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(f"it is no TOML: {error}") from error
    problems = _tables(whole, "problem")
    lines = iter(_lines_of_problems(text, len(problems)))
    yield 1, "", {n: v for n, v in whole.items() if n not in ("problem", "undeclared")}
    for row in problems:
        yield next(lines, 1), "problem", row
    for row in _tables(whole, "undeclared"):
        yield 1, "undeclared", row


def _tables(whole: Mapping[str, Any], kind: str) -> list[Any]:
    entries = whole.get(kind, [])
    return entries if isinstance(entries, list) else [entries]


def _lines_of_problems(text: str, count: int) -> list[int]:
    """The parser does not say lines. Where ``[[problem]]`` stands as often as there are problems
    these are theirs; else from one table of a list to the next a text is a document of its own."""
    lines, begin, tables = list[int](), 0, [*_TABLE.finditer(text)]
    starts = [match.start() for match in tables if match["problem"]]
    breaks = (text.count("\n", *between) for between in pairwise([0, *starts]))
    plain = [number + 1 for number in accumulate(breaks)]
    if len(plain) == count:
        return plain
    for end in [*(match.start() for match in tables), len(text)]:
        try:
            part = tomllib.loads(text[begin:end])
        except tomllib.TOMLDecodeError:  # this "[[" stands in a text, or in a list
            continue
        lines += [text.count("\n", 0, begin) + 1] * len(_tables(part, "problem"))
        begin = end
    return lines


def _json_rows(text: str) -> Iterator[tuple[int, str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"line {number}: it is no JSON: {error}") from error
        yield number, "problem" if not isinstance(row, dict) or "kernel" in row else "", row


def _entry(
    form: type[_Entry], row: Any, readers: Mapping[str, _Reader], needed: str, **more: Any
) -> _Entry:
    """A problem or a kernel. Raises ``ValueError`` for what is none."""
    if isinstance(row, dict) and not row.get(needed):
        raise ValueError(f"it names no {needed}")
    return form(**_read(row, readers), **more)


def _read(row: Any, readers: Mapping[str, _Reader]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{row!r} is no table")
    for name in row:
        if name not in readers:
            raise ValueError(f"there is no field {name!r}: there are {', '.join(sorted(readers))}")
    return {name: readers[name](name, value) for name, value in row.items()}


def _weight(_: str, weight: Any) -> float:
    if type(weight) not in (int, float) or not isfinite(weight) or weight <= 0:
        raise ValueError(f"weight = {weight} is no number above 0")
    return float(weight)


def _size(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} = {value!r} is no size")
    return value


def _sizes(name: str, values: Any) -> tuple[int, ...]:
    return tuple(_size(name, size) for size in _list(name, values))


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} = {value!r} is no list")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} = {value!r} is no text")
    return value


def _names(name: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{name} = {value!r} is no list of names")
    return tuple(names)


def _assignments(_: str, given: Any) -> str:
    """``name=value,…``, which may be given as a table."""
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return ",".join(map(str, given))
    if not isinstance(given, dict):
        raise ValueError(f"{given!r} is neither text nor a table")
    return ",".join(f"{name}={option_text(value)}" for name, value in given.items())


_OF_EACH: dict[str, _Reader] = {
    "chips": _names,
    "jax": _names,
    "compiler_options": lambda _, given: over("", given),
}
_OF_ALL = _OF_EACH | dict.fromkeys(("step", "step_args", "topology"), _text)
_OF_PROBLEM: dict[str, _Reader] = {
    **dict.fromkeys(("kernel", "args", "config"), _text),
    "shape": _assignments,
    "dtype": lambda name, value: _text(name, value) or None,
    "options": lambda name, given: tuple(filter(None, _assignments(name, given).split(","))),
    "weight": _weight,
    **_OF_EACH,
}
_OF_UNDECLARED: dict[str, _Reader] = {
    **dict.fromkeys(("name", "core", "source", "scope"), _text),
    **dict.fromkeys(("scalars", "operands", "scratch", "dmas"), _names),
    "grid": _sizes,
    "weight": _weight,
    "blocks": lambda name, blocks: tuple(_sizes(name, block) for block in _list(name, blocks)),
    "pipelines": lambda n, v: tuple(EmitPipeline(**_read(p, _OF_UNDECLARED)) for p in _list(n, v)),
    **dict.fromkeys(("vmem_bytes", "limit_bytes"), _size),
}


def _fields(value: WorkloadProblem | UndeclaredKernel | EmitPipeline) -> list[str]:
    names = [n for n in type(value).__dataclass_fields__ if n not in ("line", "pipelines")]
    pairs = [(name, getattr(value, name)) for name in names]
    return [f"{name} = {_toml(given)}" for name, given in pairs if given not in ("", None, ())]


def _toml(value: Any) -> str:
    """JSON's texts, numbers and lists are TOML's, but for DEL."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
