"""Declaring a tunable kernel. A declaration module may import JAX; this one does not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from autotune.domain.problem import AxisValue, Config, Option, Problem, ProblemSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that can be chosen, with the values worth trying for a problem.

    ``dim`` names the problem dimension that the axis cuts into blocks, where there is one; a value
    counts ``unit`` elements of it each (rows of 128 lanes), or as many as the dimension of that
    name (pages of ``page_size`` tokens).

    Some cut no dimension, but each sequence of a batch: ``lengths`` names the argument whose
    integers are how long these are, or where each begins, and ``longest`` the dimension that none
    of them is longer than. ``is_within``: no block holds elements of two sequences.
    """

    name: str
    choices: Callable[[Problem], Iterable[AxisValue]]
    dim: str | None = None
    unit: int | str = 1
    lengths: str | None = None
    longest: str | None = None
    is_within: bool = False

    def elements(self, value: int, problem: Problem) -> int:
        """Of a block of ``value``."""
        return value * (problem[self.unit] if isinstance(self.unit, str) else self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Block sizes over dimension ``dim``, for an axis that has no name yet."""

    dim: str
    minimum: int = 128
    maximum: int = 8192

    def axis(self, name: str, dim: str) -> Axis:
        """Over the dimension that ``dim`` is called in a problem."""

        def choices(problem: Problem) -> list[int]:
            return block_sizes(problem[dim], minimum=self.minimum, maximum=self.maximum)

        return Axis(name=name, choices=choices, dim=dim)


@overload
def block(name: str, dim: str, *, minimum: int = 128, maximum: int = 8192) -> Axis: ...


@overload
def block(name: str, *, minimum: int = 128, maximum: int = 8192) -> Blocks: ...


def block(
    name: str, dim: str | None = None, *, minimum: int = 128, maximum: int = 8192
) -> Axis | Blocks:
    """A block size over dimension ``dim``: 2^n and 3·2^n times ``minimum``, up to the whole.

    The whole dimension is always among them: it is legal whatever its size. In ``tunable`` the
    parameter is the name: ``block_q=block("q.-2")`` cuts the last but one dimension of ``q``.
    """
    if dim is None:
        return Blocks(dim=name, minimum=minimum, maximum=maximum)
    return Blocks(dim=dim, minimum=minimum, maximum=maximum).axis(name, dim)


def block_sizes(extent: int, *, minimum: int, maximum: int) -> list[int]:
    """2^n and 3·2^n times ``minimum`` below ``extent``, and ``extent`` itself when ≤ ``maximum``.

    With ``extent`` above ``maximum`` the whole dimension is left out: it cannot fit anyway.
    """
    largest = min(extent - 1, maximum) // minimum
    doublings = range(max(largest, 0).bit_length())
    sizes = {minimum * b << n for b in (1, 3) for n in doublings if b << n <= largest}
    if extent <= maximum or not sizes:
        sizes.add(extent)
    return sorted(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """One argument of a kernel. ``shape`` in elements.

    ``values`` is for what cannot be any numbers: a function that returns them as a NumPy array.
    What runs and when depends on the integers among them (page tables, group sizes, block
    indices). All else is verified on normal random numbers with a standard deviation of ``std``.
    ``row_major``: the argument arrives in the layout that a kernel reads. By default XLA lays out
    an array with a last dimension that is no multiple of 128 its own way, and copies it first.
    ``spec``: how it is divided over the mesh of the kernel, as a ``PartitionSpec`` says it.
    ``memory``: "hbm" for what lies there in the model. Else the compiler may copy an argument that
    is small in this problem (a cache of a few pages) to VMEM first, and that copy may choose the
    winner. ``donated``: the caller gives it up, as with ``jax.jit(donate_argnums=…)``: an output
    that shares its memory is written in place, where it would be copied first.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: Callable[[], Any] | None = None
    row_major: bool = False
    std: float = 1.0
    spec: tuple[str | tuple[str, ...] | None, ...] = ()
    memory: Literal["any", "hbm"] = "any"
    donated: bool = False

    def __post_init__(self) -> None:
        """Raises ``ValueError`` with a sentence for a memory that an argument cannot be kept in."""
        if self.memory not in ("any", "hbm"):
            raise ValueError(f"memory of argument {self.name} is {self.memory!r}: any or hbm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A tunable Pallas kernel. Nothing here speaks of legality, memory or time: all of that is
    derived from what ``build`` traces to.

    - ``dims``: names of the problem's dimensions, in the order of ``--shape 8x128x…``.
    - ``alike``: (dimension, another): as long as the other where a shape leaves it out.
    - ``axes``: what can be chosen; ``default``: the values that a user has without tuning, and
      ``default_on(problem, chip)`` where they depend on the chip (its name, such as v5e).
    - ``grid``: names of the grid axes in their default order; a config brings them in any order
      that is legal. Empty when ``build`` has a grid of its own.
    - ``build(problem, config)``: a function of ``inputs``; the ``pallas_call`` is inside it.
    - ``reference(problem)``: a plain JAX function of the same inputs, for correctness. Without one
      a config is right when it agrees with the default config, which is less.
    - ``baseline(problem)``: the plain-XLA competitor; the reference unless given.
    - ``check(problem)``: a sentence about why the problem is impossible, or None.
    - ``constraint(problem, config)``: a sentence about why the values of a config do not go
      together, or None. Such a config is never traced; the space counts it under its sentence.
    - ``mesh(problem)``: names and sizes of the axes that a ``shard_map`` in it is over, whose mesh
      is ``jax.sharding.get_abstract_mesh()``. Shapes are those of whole arrays; what is tuned is
      the program of one device.
    - ``reduced(problem)``: the problem with dimensions that no axis cuts (batch, heads) made small
      for verification; those with a block axis are reduced to two blocks in any case.
    - ``sizes(*shapes)``: the dimensions of a problem whose inputs have these shapes, where a call
      in a model does not show them: its function packs what it is given. It is the function that
      is jitted.
    - ``form``: of a decorated function, what kind of call this is the declaration for.
    """

    name: str
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    axes: tuple[Axis, ...]
    default: Callable[[Problem], Mapping[str, AxisValue]]
    inputs: Callable[[Problem], Sequence[Array]]
    build: Callable[[Problem, Config], Callable[..., Any]]
    reference: Callable[[Problem], Callable[..., Any]] | None = None
    baseline: Callable[[Problem], Callable[..., Any]] | None = None
    default_on: Callable[[Problem, str], Mapping[str, AxisValue]] | None = None
    options: tuple[Option, ...] = ()
    grid: tuple[str, ...] = ()
    check: Callable[[Problem], str | None] | None = None
    constraint: Callable[[Problem, Config], str | None] | None = None
    reduced: Callable[[Problem], Problem] | None = None
    mesh: Callable[[Problem], Mapping[str, int]] | None = None
    alike: tuple[tuple[str, str], ...] = ()
    sizes: Callable[..., Mapping[str, int]] | None = None
    doc: str = ""
    form: str = ""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` with a sentence for an axis that cuts no dimension there is, and
        for values in the place of a function of the problem."""
        functions: dict[str, object] = {"default": self.default}
        functions |= {f"choices of {axis.name}": axis.choices for axis in self.axes}
        for name, function in functions.items():
            if not callable(function):
                raise ValueError(
                    f"{name}, of kernel {self.name}, is {function!r}: it must be a function, as in "
                    f"lambda problem: {function!r}"
                )
        for axis in self.axes:
            for dim in (axis.dim, axis.longest, axis.unit):
                if isinstance(dim, str) and dim not in self.dims:
                    raise ValueError(
                        f"axis {axis.name} of kernel {self.name} cuts dimension {dim!r}: the "
                        f"dimensions are {', '.join(self.dims)}"
                    )

    def default_axes(self, problem: Problem, chip: str | None) -> dict[str, AxisValue]:
        """What a user has without tuning, on that chip where it is known."""
        if chip is not None and self.default_on is not None:
            return dict(self.default_on(problem, chip))
        return dict(self.default(problem))

    def mesh_axes(self, problem: Problem) -> dict[str, int]:
        """Empty for a kernel of one device."""
        return dict(self.mesh(problem)) if self.mesh else {}

    @property
    def problem_spec(self) -> ProblemSpec:
        return ProblemSpec(
            dims=self.dims, dtypes=self.dtypes, options=self.options, alike=self.alike
        )
