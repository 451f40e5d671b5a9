"""What this toolchain knows of a chip, in the child: from JAX, and from the compiler's refusals."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cache, wraps
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiling import libtpu
from autotune.compiling.child.devices import (
    TRACING,
    abstract_mesh,
    automatic,
    forget_info,
    tpu_info,
)
from autotune.compiling.child.listings import compile_with, listings
from autotune.compiling.child.serving import StageError
from autotune.domain.compiler_options import vmem_limit_bytes
from autotune.domain.compilers import OPTION
from autotune.domain.key import Chip, ChipInfo
from autotune.estimating.simulator.bundles import parse

_LIMIT = re.compile(r"limit ([\d.]+)M exceeded|of ([\d.]+)M vmem")
_LISTS = ("devices", "local_devices")
_TILED = re.compile(r"block shape .* is not divisible by tiling")


@cache
def chip_info(chip: Chip, dump: Path, options: str) -> ChipInfo:
    """Capacities from JAX; the scoped limit and habits of the compiler from tiny kernels, which
    take 0.2 s each to compile.

    Raises ``ValueError`` with a sentence when this toolchain does not know the chip, ``StageError``
    where its compiler refuses the options.
    """
    try:
        device = compile_only_device(chip)
    except Exception as error:
        raise ValueError(
            f"this libtpu cannot compile for {chip}: {str(error).splitlines()[0][:200]}"
        ) from error
    info = tpu_info(chip)
    capacity = info["vmem_capacity_bytes"]
    if options and (refusal := _try(device, _copy_kernel(8, 8), options)):
        line = refusal.splitlines()[0][:240]
        raise StageError(OPTION, ValueError(f"the TPU compiler refuses its options: {line}"))
    asked = vmem_limit_bytes(options)
    limit = min(asked, capacity) if asked else _scoped_limit(chip, device, capacity)

    def whole_tiles(bits: int) -> bool:
        # Blocks of eight rows; it takes those of 16 bits on every chip and version seen.
        refusal = _try(device, _copy_kernel(128, 8, dtype=f"int{bits}"))
        return bool(_TILED.search(refusal or ""))

    return ChipInfo(
        chip=chip,
        device_kind=device.device_kind,
        num_cores=getattr(device, "num_cores", 1),
        scoped_vmem_bytes=limit,
        single_buffer_fallback=_drops_double_buffering(device, limit),
        whole_tiles_up_to_bits=next(filter(whole_tiles, (8, 4)), 0),
        places_operands_in_vmem=_places_operands(chip, device, dump),
        **info,
    )


Axes = Mapping[str, int]
"""Of a kernel's mesh: names and sizes; empty for one device."""


@cache
def _compile_only_devices(chip: Chip, count: int) -> Sequence[Any]:
    """Devices that nothing can run on, for compiling. Kept: each costs a millisecond, and every
    candidate asks."""
    from jax._src import tpu_custom_call as custom_call
    from jax.experimental import topologies

    devices = tuple(topologies.get_topology_desc(**libtpu.topology(chip, count)).devices)[:count]
    is_older = getattr(custom_call, "is_cloud_tpu_older_than", None)
    if is_older is not None and "backend" not in inspect.signature(is_older).parameters:
        # jax 0.7 writes Mosaic for libtpu of any age where no TPU is attached
        (second,) = re.findall(r"\((\d+)\)", devices[0].client.platform_version)
        built = date.fromtimestamp(int(second))
        custom_call.is_cloud_tpu_older_than = lambda *day: built < date(*day)
    return devices


def compile_only_device(chip: Chip) -> Any:
    """Raises what JAX raises."""
    return _compile_only_devices(chip, 1)[0]


def slice_devices(chip: Chip, bounds: Sequence[int]) -> Sequence[Any]:
    """All devices of a slice with so many chips along its axes; one without any. Raises what JAX
    raises, ``ValueError`` for bounds of another rank."""
    from jax.experimental import topologies

    if not bounds:
        return _compile_only_devices(chip, 1)
    return tuple(topologies.get_topology_desc(**libtpu.topology(chip, bounds=bounds)).devices)


def compile_only_target(chip: Chip, axes: Axes) -> Any:
    """A device, or the mesh of as many as the axes need. Raises what JAX raises."""
    if not axes:
        return compile_only_device(chip)
    return mesh_of(_compile_only_devices(chip, prod(axes.values())), axes)


def mesh_of(devices: Sequence[Any], axes: Axes) -> Any:
    """A mesh of just as many devices."""
    from jax.sharding import Mesh

    grid = np.array(devices, dtype=object).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), **automatic(len(axes)))


@contextmanager
def told_of(chip: Chip | None, axes: Axes) -> Iterator[None]:
    """Tells code under trace which TPU it is for, where that is known, and its mesh. Much of it
    asks ``jax.default_backend()`` or the first device whether to interpret."""
    import jax

    if chip is None:
        yield
        return
    token = TRACING.set(True)
    forget_info()
    try:
        target = compile_only_target(chip, axes)
        of_chip = {}
        if not axes and jax.devices()[0].platform != "tpu":  # it is not attached, either
            of_chip = {name: _listing(getattr(jax, name), [target]) for name in _LISTS}
        with patched(jax, default_backend=lambda: "tpu", **of_chip), abstract_mesh(target):
            yield
    finally:
        TRACING.reset(token)


def _listing(asked: Callable[..., Any], devices: Sequence[Any]) -> Callable[..., Any]:
    @wraps(asked)
    def listed(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(asked).bind(*args, **kwargs).arguments
        return list(devices) if given.get("backend") in (None, "tpu") else asked(*args, **kwargs)

    return listed


@contextmanager
def attached(chip: Chip | None, present: Sequence[Any] = ()) -> Iterator[None]:
    """To code under trace this machine has that chip, as many of it as JAX has devices here or
    those that are ``present``: models ask ``jax.devices()`` which way they go, and make meshes of
    them."""
    import jax

    if chip is None:
        yield
        return
    devices, asked = list(present or _compile_only_devices(chip, jax.device_count())), jax.make_mesh

    @wraps(asked)
    def make_mesh(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("devices") is None:
            shape = inspect.signature(asked).bind(*args, **kwargs).args[0]  # jax 0.12 renamed it
            kwargs["devices"] = devices[: prod(shape)]
        return asked(*args, **kwargs)

    of_chip = {name: _listing(getattr(jax, name), devices) for name in _LISTS}
    if present:
        of_chip |= dict.fromkeys(("device_count", "local_device_count"), lambda *_: len(devices))
    with patched(jax, default_backend=lambda: "tpu", make_mesh=make_mesh, **of_chip):
        yield


def _scoped_limit(chip: Chip, device: Any, capacity: int) -> int:
    """The limit that the compiler names when it refuses a kernel that asks for no limit.

    The scratch of the probe is above every scoped limit and below the capacity: above the
    capacity the compiler refuses earlier and names the capacity. When it compiles there is no
    lower limit (v2, v3, v4).
    """
    refusal = _try(device, _copy_kernel(8, 8, scratch_bytes=capacity // 4 * 3))
    if refusal is None:
        return capacity
    match = _LIMIT.search(refusal)
    if not match:
        raise ValueError(f"the compiler does not tell its VMEM limit for {chip}: {refusal!r:.500}")
    return min(round(float(match.group(1) or match.group(2)) * 2**20), capacity)


def _drops_double_buffering(device: Any, limit: int) -> bool:
    """A copy whose blocks fit once but not twice: does the compiler accept it?"""
    rows = limit // 3 // (128 * 4) // 8 * 8
    return _try(device, _copy_kernel(rows * 4, rows)) is None


def _places_operands(chip: Chip, device: Any, dump: Path) -> bool:
    """A small copy: does its listing take an operand from VMEM instead of HBM?"""
    libtpu.clear(dump)
    _try(device, _copy_kernel(1024, 256))
    parsed = [
        parse(listing.listing) for listing in listings(dump, chip).values() if listing.is_kernel
    ]
    libtpu.clear(dump)
    return any(
        operand.memory == "vmem" for bundle_list in parsed for operand in bundle_list.operands
    )


def _copy_kernel(
    rows: int, block: int, scratch_bytes: int = 0, dtype: str = "float32"
) -> tuple[Callable[..., Any], Any]:
    """A kernel that moves blocks and computes next to nothing: it compiles in a moment.

    With ``scratch_bytes`` it has a scratch buffer of that size that outlives a step.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    def body(x: Any, out: Any, *scratch: Any) -> None:
        out[0:8, :] = x[0:8, :]
        for buffer in scratch:
            buffer[0:8, :] = x[0:8, :] + buffer[8:16, :]
            out[0:8, :] = buffer[0:8, :]

    spec = pl.BlockSpec((block, 128), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((rows, 128), jnp.dtype(dtype))
    buffers = [pltpu.VMEM((scratch_bytes // 512, 128), jnp.float32)] if scratch_bytes else []
    function = pl.pallas_call(
        body,
        grid=(rows // block,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=shape,
        scratch_shapes=buffers,
    )
    return function, shape


def _try(
    device: Any, kernel: tuple[Callable[..., Any], Any], options: str | None = None
) -> str | None:
    """None when it compiles for the device, else the compiler's message."""
    import jax
    from jax.sharding import SingleDeviceSharding

    function, shape = kernel
    spec = jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=SingleDeviceSharding(device))
    try:
        with abstract_mesh(device):
            compile_with(jax.jit(function).trace(spec).lower(), options)
    except StageError:
        raise
    except Exception as error:  # every refusal is an answer here
        return str(error)
    return None


@contextmanager
def patched(owner: Any, **replacements: Any) -> Iterator[None]:
    """Attributes of a module or a class are others while it lasts."""
    before = {name: getattr(owner, name) for name in replacements}
    try:
        for name, value in replacements.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
