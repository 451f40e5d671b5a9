"""What is known of a chip without its compiler, and how code under trace is told of it."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from typing import Any

from autotune.domain.compiler_options import vmem_limit_bytes
from autotune.domain.key import Chip, ChipInfo

_MIB = 1 << 20


def known_info(chip: Chip, jax: str, options: str) -> ChipInfo:
    """As ``chips.chip_info`` has it from the compilers of jax 0.10.2 and 0.12.0. Raises what JAX
    raises for a chip that it does not know."""
    info = tpu_info(chip)
    asked = vmem_limit_bytes(options) or (32 if chip in (Chip.V6E, Chip.V7X) else 16) * _MIB
    is_old, wants_tiles = chip in (Chip.V2, Chip.V3), jax.startswith(("0.10.", "0.11."))
    return ChipInfo(
        chip=chip,
        device_kind=chip.device_kind,
        num_cores=chip.cores_per_device,
        scoped_vmem_bytes=min(asked, info["vmem_capacity_bytes"]),
        whole_tiles_up_to_bits=8 if wants_tiles and not is_old else 0,
        places_operands_in_vmem=chip is Chip.V7X,
        **info,
    )


def abstract_mesh(
    target: Any, axes: Mapping[str, int] | None = None
) -> AbstractContextManager[Any]:
    """The ambient mesh that tells code under trace which TPU it is for (needed for rank-1 blocks
    and by kernels that ask ``get_tpu_info``), a device, of several by ``axes``, or a mesh; nothing
    on a JAX that has no such thing."""
    import jax.sharding as sharding

    if not hasattr(sharding, "use_abstract_mesh") or not hasattr(sharding, "AbstractDevice"):
        return nullcontext()
    is_mesh = isinstance(target, sharding.Mesh)
    axes = dict(target.shape) if is_mesh else dict(axes or {"device": 1})
    device = target.devices.flat[0] if is_mesh else target
    wanted = {
        "device_kind": device.device_kind,
        "num_cores": getattr(device, "num_cores", 1),
        "platform": "tpu",
    }
    known = inspect.signature(sharding.AbstractDevice).parameters
    kind = _watched(sharding.AbstractDevice) if TRACING.get() else sharding.AbstractDevice
    described = kind(**{n: v for n, v in wanted.items() if n in known})
    mesh = sharding.AbstractMesh(
        tuple(axes.values()), tuple(axes), abstract_device=described, **automatic(len(axes))
    )
    context: AbstractContextManager[Any] = sharding.use_abstract_mesh(mesh)
    return context


@contextmanager
def meshed(mesh: Any) -> Iterator[None]:
    """An abstract mesh around what is traced, where JAX refuses one of another size than that which
    is there already."""
    from jax.sharding import AbstractMesh, use_abstract_mesh

    with use_abstract_mesh(AbstractMesh((), ())), use_abstract_mesh(mesh):
        yield


READS: set[str] = set()
"""What code under trace has asked of its device since this process began."""

TRACING = ContextVar("TRACING", default=False)
"""Not while it is lowered: then JAX itself asks."""


def forget_info() -> None:
    """What lowering has asked for: ``get_tpu_info`` keeps it, and would not ask for a kernel."""
    from jax.experimental.pallas import tpu as pltpu

    getattr(getattr(pltpu, "get_tpu_info", None), "cache_clear", lambda: None)()


@cache
def _watched(kind: type[Any]) -> type[Any]:
    """Devices that note who asks for their kind: what does not is the same on every chip. JAX
    compares and hashes them all the time, which is not asking."""

    names = [field.name for field in fields(kind)]

    def fields_of(device: Any) -> tuple[Any, ...]:
        return tuple(object.__getattribute__(device, name) for name in names)

    class WatchedDevice(kind):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name in ("device_kind", "num_cores") and TRACING.get():
                READS.add(name)
            return object.__getattribute__(self, name)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, kind) and fields_of(self) == fields_of(other)

        def __hash__(self) -> int:
            return hash(fields_of(self))

        def __reduce__(self) -> Any:
            """JAX keeps shapes that name it, and they are written with a program."""
            return kind, fields_of(self)

    return WatchedDevice


def automatic(count: int) -> dict[str, Any]:
    """Axes that XLA divides arrays over: they are explicit by default from jax 0.11 on."""
    import jax.sharding as sharding

    kinds = getattr(sharding, "AxisType", None)
    return {} if kinds is None else {"axis_types": (kinds.Auto,) * count}


_RATED_HBM = {Chip.V5P: 2765e9 / 2}  # of a core; Google's figure of the chip. JAX's is less


def tpu_info(chip: Chip) -> dict[str, Any]:
    """Fields of ``ChipInfo`` from JAX. A JAX without ``get_tpu_info_for_chip`` knows the figures
    by device kind only; those of v7x are not in it, but it cannot compile for v7x either."""
    from jax.experimental.pallas import tpu as pltpu

    if hasattr(pltpu, "get_tpu_info_for_chip"):
        name = "7x" if chip is Chip.V7X else chip.value
        version = next(v for v in pltpu.ChipVersion if str(v) == name)
        info = pltpu.get_tpu_info_for_chip(version, chip.cores_per_device)
    else:
        info = _published(chip)
    return {
        "vmem_capacity_bytes": info.vmem_capacity_bytes,
        "hbm_capacity_bytes": info.hbm_capacity_bytes,
        "hbm_bytes_per_s": max(float(info.mem_bw_bytes_per_second), _RATED_HBM.get(chip, 0.0)),
        "bf16_ops_per_s": float(info.bf16_ops_per_second),
        "int8_ops_per_s": float(info.int8_ops_per_second),
        "fp8_ops_per_s": float(getattr(info, "fp8_ops_per_second", 0)),
    }


def _published(chip: Chip) -> Any:
    """``get_tpu_info_for_chip`` of jax 0.10.2, for a JAX that has none (0.6 and 0.7)."""
    from types import SimpleNamespace

    vmem, hbm, bandwidth, bf16, int8 = {
        Chip.V2: (16 * _MIB, 8.0e9, 358e9, 23e12, 0.0),
        Chip.V3: (16 * _MIB, 17.2e9, 412.5e9, 70e12, 0.0),
        Chip.V4: (16 * _MIB, 17.2e9, 615e9, 137.5e12, 0.0),
        Chip.V5E: (128 * _MIB, 17.2e9, 820e9, 197e12, 394e12),
        Chip.V5P: (64 * _MIB, 51.5e9, 1230e9, 229.5e12, 459e12),
        Chip.V6E: (128 * _MIB, 34.4e9, 1640e9, 920e12, 1840e12),
        Chip.V7X: (64 * _MIB, 103e9, 3700e9, 1155e12, 0.0),
    }[chip]
    return SimpleNamespace(
        vmem_capacity_bytes=vmem,
        hbm_capacity_bytes=round(hbm),
        mem_bw_bytes_per_second=bandwidth,
        bf16_ops_per_second=bf16,
        int8_ops_per_second=int8,
    )
