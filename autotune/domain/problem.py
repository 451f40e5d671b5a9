"""One concrete use of a kernel: named dimensions, element type, static options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.domain.codec import ByName
from autotune.domain.dtype import parse_dtype
from autotune.errors import InvalidInputError, UnknownNameError

OptionValue = str | int | bool

MAX_DIMENSION = 2**31 - 1  # TPU index arithmetic is 32-bit


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A static option of a kernel: its name, allowed values, and default."""

    name: str
    choices: tuple[OptionValue, ...]
    default: OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Dimensions in the kernel's own order, element type, and every option with its value."""

    dims: ByName[int]
    dtype: str
    options: ByName[OptionValue] = ()

    def __getitem__(self, dim: str) -> int:
        return dict(self.dims)[dim]

    def option(self, name: str) -> OptionValue:
        return dict(self.options)[name]

    def with_dims(self, **dims: int) -> "Problem":
        """The same problem with some dimensions replaced."""
        merged = tuple((name, dims.get(name, size)) for name, size in self.dims)
        return Problem(dims=merged, dtype=self.dtype, options=self.options)

    def with_options(self, **options: OptionValue) -> "Problem":
        """The same problem with some options replaced."""
        merged = tuple((name, options.get(name, value)) for name, value in self.options)
        return Problem(dims=self.dims, dtype=self.dtype, options=merged)

    def __str__(self) -> str:
        parts = [f"{name}={size}" for name, size in self.dims] + [f"dtype={self.dtype}"]
        return ",".join(parts + [f"{name}={value}" for name, value in self.options])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSpec:
    """What problems a kernel takes: enough to parse one without importing the kernel."""

    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    options: tuple[Option, ...] = field(default=())

    def parse(self, shape: str, dtype: str | None = None, options: Sequence[str] = ()) -> Problem:
        """A problem from ``m=8,k=128`` or ``8x128``, a dtype name and ``name=value`` options.

        Raises ``InvalidInputError`` or ``UnknownNameError`` with one sentence.
        """
        dims = self._parse_dims(shape)
        chosen = self.dtypes[0] if dtype is None else parse_dtype(dtype)
        if chosen not in self.dtypes:
            raise UnknownNameError(
                f"dtype {chosen} is not supported by this kernel: choose one of "
                f"{', '.join(self.dtypes)}"
            )
        return Problem(dims=dims, dtype=chosen, options=self._parse_options(options))

    def _parse_dims(self, shape: str) -> tuple[tuple[str, int], ...]:
        given = _named(shape, "dimension") if "=" in shape else self._positional(shape)
        for name in given:
            if name not in self.dims:
                raise UnknownNameError(
                    f"unknown dimension {name!r}: this kernel has {', '.join(self.dims)}"
                )
        missing = [name for name in self.dims if name not in given]
        if missing:
            raise InvalidInputError(
                f"the shape lacks {', '.join(missing)}: give "
                f"{','.join(f'{name}=…' for name in self.dims)}"
            )
        return tuple((name, _size(name, given[name])) for name in self.dims)

    def _positional(self, shape: str) -> dict[str, str]:
        sizes = shape.lower().split("x")
        if len(sizes) != len(self.dims):
            raise InvalidInputError(
                f"shape {shape!r} has {len(sizes)} dimensions, this kernel has {len(self.dims)}: "
                f"{'x'.join(self.dims)}"
            )
        return dict(zip(self.dims, sizes, strict=True))

    def _parse_options(self, options: Sequence[str]) -> tuple[tuple[str, OptionValue], ...]:
        given = _named(",".join(options), "option") if options else {}
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise UnknownNameError(
                    f"unknown option {name!r}: this kernel has {', '.join(known) or 'none'}"
                )
        return tuple(
            (name, _choice(option, given[name]) if name in given else option.default)
            for name, option in known.items()
        )


def _named(text: str, what: str) -> dict[str, str]:
    """``a=1,b=2`` as a dictionary; every part must have the form, no name may come twice."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidInputError(f"{what} {part!r} is not of the form name=value")
        if name.strip() in found:
            raise InvalidInputError(f"{what} {name.strip()!r} is given twice")
        found[name.strip()] = value.strip()
    return found


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.lstrip("+-").isdigit()):
        raise InvalidInputError(f"dimension {name}={text} is not a whole number")
    digits = text.lstrip("+-0") or "0"
    size = int(text) if len(digits) < 20 else MAX_DIMENSION + 1
    if text.startswith("-") or size == 0:
        raise InvalidInputError(f"dimension {name}={text} must be at least 1")
    if size > MAX_DIMENSION:
        raise InvalidInputError(f"dimension {name} is too large: at most {MAX_DIMENSION}")
    return size


def _choice(option: Option, text: str) -> OptionValue:
    """The one allowed value whose text is ``text`` (``true`` and ``True`` alike)."""
    for value in option.choices:
        if str(value).lower() == text.lower():
            return value
    allowed = ", ".join(str(value).lower() for value in option.choices)
    raise UnknownNameError(f"option {option.name}={text} is not one of {allowed}")


def problem_to_data(problem: Problem) -> dict[str, object]:
    """Plain JSON data; ``problem_from_data`` is the inverse."""
    return {
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "options": dict(problem.options),
    }


def problem_from_data(data: Mapping[str, object]) -> Problem:
    dims, options = data["dims"], data["options"]
    assert isinstance(dims, Mapping) and isinstance(options, Mapping)
    return Problem(
        dims=tuple((str(name), int(size)) for name, size in dims.items()),
        dtype=str(data["dtype"]),
        options=tuple(options.items()),
    )
