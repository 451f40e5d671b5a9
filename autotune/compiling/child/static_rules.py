"""The rules that need no compiler, for a config that a model is about to trace."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from autotune.compiling.child.devices import abstract_mesh, known_info
from autotune.compiling.child.trace import pallas_call as reader
from autotune.declaring.kernel import Kernel
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.outcome import Illegal, OutOfVmem
from autotune.domain.problem import Config, Problem
from autotune.domain.trace import Trace
from autotune.estimating import legality, vmem

_SEVERAL = 4  # steps of a dynamic grid: a compiler has to expect more than one


def refusal(
    kernel: Kernel, problem: Problem, config: Config, default: Config, chip: Chip, options: str
) -> Illegal | OutOfVmem | Exception | None:
    """Why a config cannot run, or what the kernel raises for it where it takes its default; None
    where that is not shown. What integers decide, a dynamic grid and the blocks that are visited,
    nobody knows before the call: of such a kernel the shapes of blocks and the bytes of VMEM are
    judged. ``options``: of the compiler. No array is computed on the accelerator."""
    import jax

    info = known_info(chip, jax.__version__, options)
    arrays = [replace(array, values=None) for array in kernel.inputs(problem)]

    def traced(config: Config) -> Any:
        return jax.jit(kernel.build(problem, config)).trace(*reader.abstract(arrays)).jaxpr

    with ExitStack() as entered:
        entered.enter_context(abstract_mesh(info, kernel.mesh_axes(problem)))
        if cpu := _or_none(lambda: jax.local_devices(backend="cpu")[0]):
            entered.enter_context(jax.default_device(cpu))
        try:
            jaxpr = traced(config)
        except Exception as error:
            return error if _or_none(lambda: traced(default)) else None
        calls = _or_none(lambda: reader.calls(jaxpr, arrays, _SEVERAL)) or []
        traces = _or_none(lambda: reader.traces(calls))
    is_dynamic = any(call.mapping.num_dynamic_grid_bounds for call in calls)
    return _refusal(traces[0], info, is_dynamic=is_dynamic) if traces else None


def _refusal(trace: Trace, info: ChipInfo, *, is_dynamic: bool) -> Illegal | OutOfVmem | None:
    is_known = not is_dynamic and all(op.exact for call in trace.calls for op in call.operands)
    broken = legality.violation(trace, info) if is_known else legality.misaligned(trace, info)
    if broken:
        return legality.illegal(broken)
    over = vmem.over_limit(trace, info)
    return over and vmem.out_of_vmem(over[0].certain_bytes, over[1], info)


def _or_none(make: Callable[[], Any]) -> Any:
    """None for what cannot be made here."""
    try:
        return make()
    except Exception:
        return None
