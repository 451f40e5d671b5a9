"""A compiler child that also lets libtpu estimate the time: its static profile of each kernel.

The flag makes libtpu simulate the whole kernel: slow for large grids, and on v4 the process aborts.
An empty AUTOTUNE_STATIC_PROFILE leaves it away.
Run by ``CompilerProcess``; requests and answers are one JSON object a line.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.compiling import libtpu
from autotune.compiling.child.compile import hlo


def main() -> None:
    dump = Path(sys.argv[1])
    if os.environ.get("AUTOTUNE_STATIC_PROFILE", "1"):
        profile = f" --xla_jf_dump_static_llo_profile_to={dump / 'profile'}"
        os.environ["LIBTPU_INIT_ARGS"] += profile
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), dump)), file=answers, flush=True)


def _answer(request: dict[str, Any], dump: Path) -> dict[str, Any]:
    try:
        return _profiled(request, dump)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}


def _profiled(request: dict[str, Any], dump: Path) -> dict[str, Any]:
    """The listing of a sample and the cycles that libtpu expects of its kernel."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    from autotune.compiling.child.chips import compile_only_device
    from autotune.compiling.child.devices import abstract_mesh
    from autotune.domain.key import Chip
    from benchmarks.calibration.samples import build, find

    device = compile_only_device(Chip(request["chip"]))
    function, arrays = build(find(request["sample"]))
    sharding = SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct(s, getattr(jnp, d), sharding=sharding) for s, d in arrays]
    libtpu.clear(dump)
    started = time.perf_counter()
    with abstract_mesh(device):
        text = str(jax.jit(function).trace(*specs).lower().compile().as_text())
    seconds = time.perf_counter() - started
    listings = [text for text in libtpu.listings(dump).values() if libtpu.is_kernel(text)]
    calls = [call for _, call in hlo.instructions(text) if hlo.PALLAS_CALL in call]
    cycles = [int(known[1]) for call in calls if (known := hlo.CYCLES.search(call))]
    if len(listings) != 1 or len(cycles) > 1:
        return {"error": f"{len(listings)} kernels were listed, {len(cycles)} were estimated"}
    return {
        "listing": listings[0],
        "cycles": cycles[0] if cycles else None,
        "seconds": seconds,
        "libtpu": libtpu.version(),
    }


if __name__ == "__main__":
    main()
