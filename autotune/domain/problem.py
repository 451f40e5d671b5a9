"""One concrete use of a kernel (named dimensions, element type, static options), one point of its
space (a config), and the few facts about element types and tiles that need no JAX."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from autotune.domain.codec import ByName, OmitDefault
from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.limits import (
    MAX_DIMENSION,
    MOST_NAMES,
    Bytes,
    Choice,
    Limit,
    Name,
    Names,
    Size,
)

_BITS = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "int32": 32,
    "uint32": 32,
    "int16": 16,
    "uint16": 16,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "uint4": 4,
    "bool": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e4m3b11fnuz": 8,
    "float64": 64,
    "int64": 64,
    "float4_e2m1fn": 4,
    "int2": 2,
    "uint2": 2,
}

DTYPES = tuple(_BITS)


def _short(name: str) -> set[str]:
    """As JAX and XLA print it: f32, i32 and s32, f8_e4m3fn and f8e4m3fn."""
    short = name.replace("float", "f").replace("uint", "u").replace("int", "i")
    return {short, short.replace("_", ""), re.sub("^i", "s", short)}


_SHORT = {short: name for name in _BITS for short in _short(name)} | {
    "fp8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "pred": "bool",
}


def parse_dtype(text: str) -> str:
    """The full name of an element type (``bf16`` → ``bfloat16``).

    Raises ``UnknownNameError`` with the list of names.
    """
    name = text.strip().lower().removeprefix("torch.")
    name = _SHORT.get(name, name)
    if name not in _BITS:
        raise UnknownNameError(f"unknown dtype {text!r}: choose one of {', '.join(_BITS)}")
    return name


def bits(dtype: str) -> int:
    """Width of one element in bits. A random key that a kernel makes is a word."""
    return _BITS["uint32" if dtype.startswith("key<") else dtype]


def memory_bits(dtype: str) -> int:
    """Width of one element in what a kernel reads and writes: a boolean takes a whole word there
    (Mosaic's memory references have none, XLA converts the array ahead of the call)."""
    return 32 if dtype == "bool" else bits(dtype)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def values_per_word(dtype: str) -> int:
    """How many share a word of 32 bits: rows of narrow types do."""
    return max(1, 32 // memory_bits(dtype))


def sublane_tile(rows: int, least: int, most: int = 8) -> int:
    """Rows of a tile: the power of two that holds ``rows``, from ``least`` to ``most``.

    Source: ``infer_tiling`` in jax/_src/pallas/mosaic/tpu_info.py (``infer-memref-layout``).
    """
    tile = least
    while tile < min(rows, most):
        tile *= 2
    return tile


AxisValue = Choice

PARALLEL = "parallel"
ARBITRARY = "arbitrary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Block sizes and other declared axes, and what every Pallas kernel has.

    ``grid_order`` names the grid axes from the outermost to the innermost (empty: the kernel's
    grid has no names and its order is fixed). ``dimension_semantics`` is in grid order. A
    ``vmem_limit_bytes`` of None leaves the compiler's own limit in force.
    """

    axes: ByName[AxisValue]
    grid_order: Names = ()
    dimension_semantics: Names = ()
    vmem_limit_bytes: Bytes | None = None

    def __getitem__(self, axis: str) -> Any:
        """The value of a declared axis. ``KeyError`` for one that is not declared."""
        return dict(self.axes)[axis]

    def keys(self) -> list[str]:
        """So that ``BlockSizes(**config)`` and ``dict(config)`` take the axes."""
        return [name for name, _ in self.axes]

    def replace(self, **changes: Any) -> "Config":
        return replace(self, **changes)

    def texts(self) -> list[str]:
        """A text for each part, but for the limit of VMEM."""
        order = [f"order={order_text(self.grid_order)}"] if self.grid_order else []
        letters = semantics_text(self.dimension_semantics)
        semantics = [f"semantics={letters}"] if letters else []
        return [*(f"{name}={value}" for name, value in self.axes), *order, *semantics]

    def __str__(self) -> str:
        limit = self.vmem_limit_bytes
        return " ".join([*self.texts(), *([] if limit is None else [f"vmem={limit / 2**20:g}MiB"])])


def make_config(axes: Mapping[str, AxisValue], **fields: Any) -> Config:
    """A config from a mapping of axis values, in the mapping's order."""
    return Config(axes=tuple(axes.items()), **fields)


GRID_ORDER, SEMANTICS, VMEM_LIMIT = "grid order", "semantics", "VMEM limit"


def parts_of(config: Config) -> dict[str, AxisValue]:
    """Its axes, and what every Pallas kernel has, by the names under which people see them."""
    parts: dict[str, AxisValue] = dict(config.axes)
    if config.grid_order:
        parts[GRID_ORDER] = order_text(config.grid_order)
    if config.dimension_semantics:
        parts[SEMANTICS] = semantics_text(config.dimension_semantics)
    parts[VMEM_LIMIT] = limit_text(config.vmem_limit_bytes)
    return parts


def order_text(order: Sequence[str]) -> str:
    """From the outermost axis to the innermost."""
    return ">".join(order)


def semantics_text(semantics: Sequence[str]) -> str:
    """A letter for each grid axis."""
    return "".join(kind[:1].upper() for kind in semantics)


def limit_text(limit_bytes: int | None) -> str:
    """*own* is the compiler's own."""
    if limit_bytes is None:
        return "own"
    is_small = limit_bytes < 2**30
    return f"{limit_bytes / 2**20:.2f} MiB" if is_small else f"{limit_bytes / 2**30:.2f} GiB"


def limit_sizes(configs: Iterable[Config]) -> dict[str, int]:
    """The VMEM limits of these by their texts, to put the texts in order; the compiler's own is the
    smallest."""
    limits = {config.vmem_limit_bytes for config in configs}
    return {limit_text(limit): limit or 0 for limit in limits}


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
            if not 0 < size <= MAX_DIMENSION:
                raise ValueError(f"dimension {name} is not from 1 to {MAX_DIMENSION}")
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

    def parse(
        self, shape: str | None, dtype: str | None = None, options: Sequence[str] = ()
    ) -> Problem:
        """A problem from ``m=8,k=128`` or ``8x128``, a dtype name and ``name=value`` options; of a
        function also from ``x=8x128``, which is ``x.0=8,x.1=128``.

        Raises ``InvalidInputError`` or ``UnknownNameError`` with one sentence, where there is no
        shape too.
        """
        if not shape:
            form = ",".join(f"{name}=128" for name in self.dims)
            example = f"add --shape {form}, or --args '{form},dtype={self.dtypes[0]}'"
            raise InvalidInputError(f"say the problem: {example}, with your sizes")
        sizes = named_sizes(shape) if "=" in shape else self._positional(shape)
        dims = {name: _size(name, text) for name, text in sizes.items()}
        return self.problem(dims, dtype, named_parts(",".join(options), "option"))

    def parse_call(self, text: str) -> Problem:
        """A problem from ``m=8,k=128,dtype=bf16,causal=true``: sizes and options in one text.
        Raises as ``parse`` does."""
        if "[" in text:
            sizes = ",".join(f"{name}=…" for name in self.dims)
            raise InvalidInputError(f"a declaration takes sizes, no arrays: --args {sizes}")
        parts = named_parts(text, "argument")
        dtype = parts.pop("dtype", None)
        names = [option.name for option in self.options if option.name in parts]
        options = {name: parts.pop(name) for name in names}
        return self.problem({n: _size(n, size) for n, size in parts.items()}, dtype, options)

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
        sizes = re.split(r"\s*[x×,]\s*", shape.lower().strip(" ,"))
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
    values = {name: _of_text(value) for name, value in named_parts(text, what).items()}
    if not values:
        raise InvalidInputError(f"{what} {text!r} is not of the form name=value")
    if "dtype" in values:
        values["dtype"] = parse_dtype(str(values["dtype"]))
    return values


def named_sizes(shape: str) -> dict[str, str]:
    """``m=8,x=512x1024`` as a dictionary, in which the second is x.0 and x.1. Raises
    ``InvalidInputError``."""
    sizes: dict[str, str] = {}
    for name, size in named_parts(shape, "dimension").items():
        several = size.lower().split("x")
        is_array = len(several) > 1 and all(map(str.isdigit, several))
        sizes |= {f"{name}.{n}": s for n, s in enumerate(several)} if is_array else {name: size}
    return sizes


def named_parts(text: str, what: str) -> dict[str, str]:
    """``a=1,b=2`` as a dictionary; every part must have the form, no name may come twice."""
    parts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidInputError(f"{what} {part!r} is not of the form name=value")
        if name.strip() in parts:
            raise InvalidInputError(f"{what} {name.strip()!r} is given twice")
        parts[name.strip()] = value.strip()
    return parts


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.lstrip("+-").isdigit()):
        raise InvalidInputError(f"dimension {name}={text} is not a whole number")
    digits = text.lstrip("+-0") or "0"
    size = int(digits) if len(digits) < 20 else MAX_DIMENSION + 1
    return _checked_size(name, -size if text.startswith("-") else size)


def _checked_size(name: str, size: int) -> int:
    if type(size) is int and 0 < size <= MAX_DIMENSION:
        return size
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


def same_value(value: OptionValue, other: OptionValue) -> bool:
    """Whether two spellings may mean the same: 1, "true" and True."""
    return value == other or str(value).lower() == str(other).lower()
