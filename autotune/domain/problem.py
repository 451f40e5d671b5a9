"""One concrete use of a kernel: named dimensions, element type, static options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from autotune.domain.codec import ByName, OmitDefault
from autotune.domain.dtype import parse_dtype
from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.limits import MAX_DIMENSION, MOST_NAMES, Choice, Limit, Name, Names, Size

OptionValue = Choice
_OPTION_TYPES = (str, int, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A static option of a kernel: its name, allowed values (none: any), and default."""

    name: Name
    choices: Annotated[tuple[OptionValue, ...], Limit(longest=1_000)]
    default: OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Dimensions in the kernel's own order, element type, and every option with its value."""

    dims: ByName[Size]
    dtype: Name
    options: ByName[OptionValue] = ()

    def __post_init__(self) -> None:
        """Python takes 128.0 and True for numbers: as keys they would be equal to what they are
        not."""
        for name, size in self.dims:
            if type(size) is not int:
                raise ValueError(f"dimension {name}={size!r} is not a whole number")
        for name, value in self.options:
            if type(value) not in _OPTION_TYPES:
                raise ValueError(f"option {name}={value!r} is no text, whole number, true or false")

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
    """What problems a kernel takes: enough to parse one without importing the kernel. ``alike``:
    dimensions that are as long as another where they are left out."""

    dims: Names
    dtypes: Names
    options: Annotated[tuple[Option, ...], Limit(longest=MOST_NAMES)] = field(default=())
    alike: OmitDefault[ByName[Name]] = ()

    def parse(self, shape: str, dtype: str | None = None, options: Sequence[str] = ()) -> Problem:
        """A problem from ``m=8,k=128`` or ``8x128``, a dtype name and ``name=value`` options.

        Raises ``InvalidInputError`` or ``UnknownNameError`` with one sentence.
        """
        sizes = _named(shape, "dimension") if "=" in shape else self._positional(shape)
        dims = {name: _size(name, text) for name, text in sizes.items()}
        return self.problem(dims, dtype, _named(",".join(options), "option"))

    def problem(
        self, dims: Mapping[str, int], dtype: str | None, options: Mapping[str, OptionValue]
    ) -> Problem:
        """The one spelling of a problem: names in declared order, each option as it is declared,
        whatever means the same (1 or "True" for true), and its default where it is left out.

        Raises ``InvalidInputError`` or ``UnknownNameError`` with one sentence.
        """
        chosen = self.dtypes[0] if dtype is None else parse_dtype(dtype)
        if chosen not in self.dtypes:
            raise UnknownNameError(
                f"dtype {chosen} is not supported by this kernel: choose one of "
                f"{', '.join(self.dtypes)}"
            )
        return Problem(
            dims=self._checked_dims(dims), dtype=chosen, options=self._checked_options(options)
        )

    def _checked_dims(self, given: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        for name in given:
            if name not in self.dims:
                raise UnknownNameError(
                    f"unknown dimension {name!r}: this kernel has {', '.join(self.dims)}"
                )
        alike = {name: given[other] for name, other in self.alike if other in given}
        given = {**alike, **given}
        missing = [name for name in self.dims if name not in given]
        if missing:
            raise InvalidInputError(
                f"the shape lacks {', '.join(missing)}: give "
                f"{','.join(f'{name}=…' for name in self.dims)}"
            )
        return tuple((name, _checked_size(name, given[name])) for name in self.dims)

    def _positional(self, shape: str) -> dict[str, str]:
        sizes = shape.lower().split("x")
        short = [name for name in self.dims if name not in dict(self.alike)]
        forms = dict.fromkeys("x".join(names) for names in (self.dims, short))
        names = short if len(sizes) == len(short) else list(self.dims)
        if len(sizes) != len(names):
            raise InvalidInputError(
                f"shape {shape!r} has {len(sizes)} dimensions, this kernel has {len(names)}: give "
                f"numbers as {' or '.join(forms)}, or {','.join(f'{name}=…' for name in names)}"
            )
        return dict(zip(names, sizes, strict=True))

    def _checked_options(
        self, given: Mapping[str, OptionValue]
    ) -> tuple[tuple[str, OptionValue], ...]:
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


def parsed_parts(text: str, what: str) -> dict[str, OptionValue]:
    """``m=8,dtype=bf16,residuals=true`` of a kernel that need not be known: whole numbers, truth
    values and else texts; an element type by its full name. Raises ``InvalidInputError``."""
    found = {name: _of_text(value) for name, value in _named(text, what).items()}
    if not found:
        raise InvalidInputError(f"{what} {text!r} is not of the form name=value")
    if "dtype" in found:
        found["dtype"] = parse_dtype(str(found["dtype"]))
    return found


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
    size = int(digits) if len(digits) < 20 else MAX_DIMENSION + 1
    return _checked_size(name, -size if text.startswith("-") else size)


def _checked_size(name: str, size: int) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise InvalidInputError(f"dimension {name}={size} is not a whole number")
    if size < 1:
        raise InvalidInputError(f"dimension {name}={size} must be at least 1")
    if size > MAX_DIMENSION:
        raise InvalidInputError(f"dimension {name} is too large: at most {MAX_DIMENSION}")
    return int(size)


def _choice(option: Option, given: OptionValue) -> OptionValue:
    """The one allowed value that is meant."""
    if not option.choices:
        return option.default if same_value(option.default, given) else _of_text(given)
    exact = [choice for choice in option.choices if type(choice) is type(given) and choice == given]
    meant = exact or [choice for choice in option.choices if same_value(choice, given)]
    if len(meant) == 1:
        return meant[0]
    allowed = ", ".join(str(value).lower() for value in option.choices)
    raise UnknownNameError(f"option {option.name}={given} is not one of {allowed}")


def _of_text(given: OptionValue) -> OptionValue:
    """A whole number or a truth value, where a text says one: on a command line everything is a
    text."""
    if isinstance(given, str):
        if given.lower() in ("true", "false"):
            return given.lower() == "true"
        if given.isascii() and given.removeprefix("-").isdigit() and len(given) < 20:
            return int(given)
    return given


def same_value(one: OptionValue, other: OptionValue) -> bool:
    """Whether two spellings may mean the same: 1, "true" and True."""
    return one == other or str(one).lower() == str(other).lower()
