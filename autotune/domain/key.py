"""What an answer is an answer to: a kernel, on a TPU generation, with a toolchain.

Capacities of chips are not here: the process that compiles asks
``jax.experimental.pallas.tpu.get_tpu_info_for_chip`` (see ``ChipInfo``).
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from autotune.domain.change import SourceChange
from autotune.domain.codec import Flat, Local, OmitDefault
from autotune.domain.compiler_options import (
    MOST_CHARACTERS,
    canonical,
    in_short,
    parsed,
    process_options,
)
from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.limits import MOST_NAMES, Limit, Name, Names, Text
from autotune.domain.problem import AxisValue, Problem, ProblemSpec, same_value
from autotune.domain.version import installed_version


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRef:
    """A file and the name in it. ``module`` is set for packages, with ``root`` the folder that
    holds the top-level package.

    ``call``: of a decorated function, its arguments in words. ``source``: the text to run in the
    place of the file, which need not exist: a notebook's. ``copy`` is set where the file is in
    another revision of a working tree, with ``copy_of`` that tree: whatever would be imported from
    it comes from the copy. ``changes`` are made to whatever it traces; ``plain``: a function that
    nobody declared, as a kernel without axes.
    """

    path: str
    attribute: str
    module: str = ""
    root: str = ""
    call: str = ""
    source: str = ""
    copy: str = ""
    copy_of: str = ""
    changes: OmitDefault[tuple[SourceChange, ...]] = ()
    plain: OmitDefault[bool] = False

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"


class Chip(StrEnum):
    """A TPU generation as one compile target.

    The target is one JAX device: v4 and v5p are *megacore* (two TensorCores behind one device);
    v2, v3 and v7x show each TensorCore as a device of its own; v5e and v6e have one TensorCore.
    """

    V2 = "v2"
    V3 = "v3"
    V4 = "v4"
    V5E = "v5e"
    V5P = "v5p"
    V6E = "v6e"
    V7X = "v7x"

    @property
    def cores_per_device(self) -> int:
        """TensorCores behind one device: 2 for a megacore."""
        return 2 if self in (Chip.V4, Chip.V5P) else 1

    @property
    def devices_per_chip(self) -> int:
        """Which share the chip's links."""
        return 2 if self in (Chip.V2, Chip.V3, Chip.V7X) else 1

    @property
    def device_kind(self) -> str:
        """As ``Device.device_kind`` of JAX has it."""
        names = {Chip.V5E: "TPU v5 lite", Chip.V5P: "TPU v5", Chip.V6E: "TPU v6 lite"}
        return "TPU7x" if self is Chip.V7X else names.get(self, f"TPU {self.value}")

    @property
    def is_megacore(self) -> bool:
        return self.cores_per_device == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipInfo:
    """What the installed JAX and libtpu say about a chip. All figures are per TensorCore.

    ``scoped_vmem_bytes`` is the limit that the compiler applies when a kernel asks for none; it is
    read from the compiler's own refusal, as are the two traits below.
    """

    chip: Chip
    device_kind: str
    num_cores: int
    vmem_capacity_bytes: int
    scoped_vmem_bytes: int
    hbm_capacity_bytes: int
    hbm_bytes_per_s: float
    bf16_ops_per_s: float
    int8_ops_per_s: float
    fp8_ops_per_s: OmitDefault[float] = 0.0
    num_lanes: int = 128
    num_sublanes: int = 8
    single_buffer_fallback: bool = False
    """The compiler drops double buffering when it does not fit (seen up to jax 0.6)."""
    whole_tiles_up_to_bits: OmitDefault[int] = 0
    """The compiler wants whole tiles of rows (32 of 8 bits, 64 of 4) in blocks of dtypes of so many
    bits or fewer. Seen from v4 on: 8 with jax 0.10 and 0.11, 0 with 0.9 and 0.12; with 0.6 8 on v6e
    and 4 on the others."""
    places_operands_in_vmem: bool = False
    """The compiler may put small operands in VMEM ahead of the call (seen on v7x)."""


# Sources: `Device.device_kind` of JAX, the Pathways spelling (`TPU v5p`, tpu-inference PRs 716 and
# 676), Cloud accelerator types (`v5litepod-8`, `tpu7x-8`) and the marketing names.
_ALIASES = {
    Chip.V2: "tpu v2, tpuv2, cloud tpu v2",
    Chip.V3: "tpu v3, tpuv3, cloud tpu v3",
    Chip.V4: "tpu v4, tpuv4, cloud tpu v4, v4p, pufferfish",
    Chip.V5E: "tpu v5 lite, tpu v5e, tpuv5e, v5 lite, v5lite, v5litepod, tpu v5litepod, "
    "tpu v5lite, viperlite, cloud tpu v5e",
    Chip.V5P: "tpu v5, tpu v5p, tpuv5p, v5, viperfish, cloud tpu v5p",
    Chip.V6E: "tpu v6 lite, tpu v6e, tpuv6e, v6, v6 lite, v6lite, tpu v6lite, trillium, "
    "cloud tpu trillium, cloud tpu v6e, ghostlite",
    Chip.V7X: "tpu7x, tpu 7x, tpu v7x, tpuv7x, 7x, v7, tpu7, tpu v7, ironwood, "
    "cloud tpu ironwood, tpu ironwood",
}
_SLICE_SUFFIX = re.compile(r"-\d+$")  # v5litepod-8, tpu7x-16: the number of chips in the slice


def aliases(chip: Chip) -> tuple[str, ...]:
    """Other spellings that ``parse_chip`` takes for this chip, all in lower case."""
    return tuple(_ALIASES[chip].split(", "))


_BY_NAME = {name: chip for chip in Chip for name in (chip.value, *aliases(chip))}


def parse_chip(text: str) -> Chip:
    """The chip that ``text`` names in any spelling.

    Raises ``UnknownNameError`` with the list of chips.
    """
    name = " ".join(str(text).strip().lower().replace("_", " ").split())
    chip = _BY_NAME.get(name) or _BY_NAME.get(_SLICE_SUFFIX.sub("", name))
    if chip is None:
        raise UnknownNameError(f"unknown chip {text!r}: choose one of {', '.join(Chip)}")
    return chip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Toolchain:
    """jax, jaxlib and libtpu versions, as the process that compiles reports them. ``options``: of
    the compiler, in the form of ``autotune.domain.compiler_options``; empty for nearly all."""

    jax: Name
    jaxlib: Name
    libtpu: Name
    options: OmitDefault[Annotated[str, Limit(longest=MOST_CHARACTERS, printable=True)]] = ""

    def __post_init__(self) -> None:
        """Raises ``InvalidInputError`` for options that cannot be read."""
        if self.options:
            object.__setattr__(self, "options", canonical(parsed(self.options)))

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """What tells it from others."""
        return self.jax, self.jaxlib, self.libtpu, self.options

    def __str__(self) -> str:
        return f"jax {self.jax}, jaxlib {self.jaxlib}, libtpu {self.libtpu}{self._with_options}"

    @property
    def label(self) -> str:
        """What is enough where many stand together."""
        return f"jax {self.jax}{self._with_options}"

    @property
    def _with_options(self) -> str:
        return f", {in_short(self.options)}" if self.options else ""


def installed_toolchain() -> Toolchain | None:
    """Versions of the installed jax, jaxlib and libtpu, read without importing them; None where one
    is missing."""
    jax, jaxlib, libtpu = map(installed_version, ("jax", "jaxlib", "libtpu"))
    return Toolchain(jax=jax, jaxlib=jaxlib, libtpu=libtpu) if jax and jaxlib and libtpu else None


def process_toolchain(installed: Toolchain | None = None) -> Toolchain | None:
    """What is installed, with the compiler options of this process: what its own programs are
    compiled with. Raises ``InvalidInputError`` for options that cannot be read."""
    installed = installed or installed_toolchain()
    return installed and replace(installed, options=canonical(process_options(os.environ)))


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
    typed = tuple(sorted((name, value.__class__, value) for name, value in options.items()))
    sizes = tuple(sorted(dims.items()))
    return Identity(kernel, fingerprint, chip, toolchain, dtype, sizes, typed)


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


def may_be_same(key: Key, other: Key) -> bool:
    """Whether two keys may be one in the spelling of their kernel, where that is not known."""
    if key == other:
        return True
    first, second = identity_of(key), identity_of(other)
    values, meant = dict(key.problem.options), dict(other.problem.options)
    return (
        first._replace(options=()) == second._replace(options=())
        and values.keys() == meant.keys()
        and all(same_value(value, meant[name]) for name, value in values.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """``fingerprint`` changes when what the kernel runs does. ``form``: of a decorated function,
    what kind of call it is described for.

    ``cuts``: (axis, dimension) for each axis that is a block size over a dimension. Empty where
    that is not known: descriptions saved by older versions do not say it.
    """

    name: Name
    fingerprint: Name
    problems: Flat[ProblemSpec]
    axes: Names
    grid: Names
    doc: Text = ""
    cuts: Annotated[tuple[tuple[Name, Name], ...], Limit(longest=MOST_NAMES)] = ()
    form: Local[OmitDefault[str]] = ""

    def key(self, problem: Problem, chip: Chip, toolchain: Toolchain) -> Key:
        return Key(
            kernel=self.name,
            fingerprint=self.fingerprint,
            problem=problem,
            chip=chip,
            toolchain=toolchain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The raw space of a problem: values per axis, the default, the names of the grid axes."""

    axes: dict[str, list[AxisValue]]
    default: dict[str, AxisValue]
    grid: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of what there is to be tried; the default is apart."""
        return hashlib.sha256(repr((self.axes, self.grid)).encode()).hexdigest()[:12]
