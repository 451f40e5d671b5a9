"""What does the instruction listing cost, and which switch of libtpu would make it cheaper?

    python -m benchmarks listing_cost [--repeats 3] [--python OTHER]

Eight bodies (two of matmul, flash attention and RMSNorm, each on v5e and v6e) are compiled with
each set of switches, in a process of its own: processor seconds of the compile alone, the least of
the repeats, summed, and whether the kernels' bundles are those of the listing that libtpu prints.
A libtpu that does not know a switch aborts: its row says so.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autotune.compiling import libtpu
from autotune.declaring.discovery import find_kernel
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from autotune.estimating.simulator.bundles import Listing, parse

_CHIPS = (Chip.V5E, Chip.V6E)
_BODIES: tuple[tuple[str, str, Mapping[str, int]], ...] = (
    ("matmul", "2048x2048x2048", {"block_m": 512, "block_k": 1024, "block_n": 1024}),
    ("matmul", "2048x2048x2048", {"block_m": 256, "block_k": 512, "block_n": 512}),
    ("flash_attention", "1x8x8x2048x2048x128", {"block_q": 512, "block_kv": 512}),
    ("rmsnorm", "4096x4096", {}),
)
_ASKED = "operations and the packer's log: what we ask for"
_DUMP = "--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true "
_INSTEAD = {
    "no listing": "",
    "a label that no pass has": _DUMP + "--xla_jf_dump_llo_pass_label_regex=nothing",
    "the category codegen": _DUMP + "--xla_jf_dump_category_filter=codegen",
    "the categories basic, utilization, binary-proto": _DUMP
    + "--xla_jf_dump_category_filter=basic,utilization,binary-proto",
}
_BESIDE = (
    "--xla_jf_run_verifier=false",
    "--xla_jf_lsra_v2_verifier=false",
    "--xla_tpu_check_llo_types=false",
    "--xla_tpu_enable_mlir_verifier=false",
    "--xla_tpu_run_backend_hlo_verifier=false",
    "--xla_tpu_impure_verify_allocations=false",
    "--xla_tpu_impure_track_debug_metadata=false",
    "--xla_tpu_add_llo_regions_to_symbol_table=false",
    "--xla_jf_line_info_in_symbol_table=false",
    "--xla_jf_track_bundle_dependency_indices=false",
    "--xla_jf_debug_level=0",
    "--xla_tpu_region_expansion_limit=0",
    "--xla_jf_slot_tracker_hoist_limit=100",
    "--xla_jf_slot_tracker_hoist_limit=2000",
)
_console = Console(width=120)


def main() -> None:
    options = _options()
    if options.child:
        _compile_all(Path(options.child), options.repeats)
        return
    _console.print(f"load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    table = Table("switches", "processor s", "of the listing", "bundles")
    usual, listings = _measured(options)
    rows = {_ASKED: _measured(options, whole=False)}
    rows |= {name: _measured(options, flags) for name, flags in _INSTEAD.items()}
    rows |= {flag: _measured(options, beside=flag) for flag in _BESIDE}
    usual = min(usual, _measured(options)[0])  # first and last: a machine has slow minutes
    table.add_row("the listing, printed", f"{usual:.2f}", "1.00", "")
    for name, (seconds, listing) in rows.items():
        equal = "the same" if listing == listings else "OTHERS" if listing else "none"
        ratio = f"{seconds / usual:.2f}" if seconds else "it aborts"
        table.add_row(name, f"{seconds:.2f}", ratio, equal if seconds else "")
    _console.print(table)


def _options() -> argparse.Namespace:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measured(
    options: argparse.Namespace, instead: str | None = None, beside: str = "", whole: bool = True
) -> tuple[float, str]:
    """Processor seconds, 0 where libtpu aborts, and a hash of the bundles, "" without any."""
    with tempfile.TemporaryDirectory(prefix="listing-cost-") as name:
        dump = Path(name) / "dump"
        dump.mkdir()
        environment = libtpu.child_environment(dump, os.environ)
        if instead is not None:
            environment["LIBTPU_INIT_ARGS"] = instead.format(dump=dump)
        environment["LIBTPU_INIT_ARGS"] += f" {beside}"
        if whole:
            environment[libtpu.WHOLE_LISTING] = "1"
        command = ["-m", "benchmarks", "listing_cost", "--repeats", str(options.repeats)]
        with (Path(name) / "log").open("ab") as log:
            done = subprocess.run(
                [options.python, *command, "--child", str(dump)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
    if done.returncode:
        return 0.0, ""
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["seconds"], answer["listings"]


def _compile_all(dump: Path, repeats: int) -> None:
    """Prints both as JSON. The first turn warms up."""
    from autotune.compiling.child.listings import listings as final_listings

    libtpu.log_the_packing(dump)
    least: dict[tuple[int, Chip], float] = {}
    listings: dict[tuple[int, Chip], str] = {}
    for turn in range(repeats + 1):
        for key in [(body, chip) for body in range(len(_BODIES)) for chip in _CHIPS]:
            libtpu.clear(dump)
            seconds = _compile(*key)
            listings_of = final_listings(dump, key[1]).values()
            listings[key] = "".join(
                _bundles(listing.listing) for listing in listings_of if listing.is_kernel
            )
            if turn:
                least[key] = min(seconds, least.get(key, seconds))
    whole = "".join(listings.values())
    digest = hashlib.sha256(whole.encode()).hexdigest() if whole else ""
    print(json.dumps({"seconds": sum(least.values()), "listings": digest}))


def _bundles(listing: str | Listing) -> str:
    bundles = parse(listing).bundles
    return repr([(sorted(bundle.operations), bundle.empty, bundle.vector) for bundle in bundles])


def _compile(body: int, chip: Chip) -> float:
    """Processor seconds of the compiler alone, of all its threads."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    from autotune.compiling.child.chips import compile_only_device
    from autotune.compiling.child.devices import abstract_mesh
    from autotune.compiling.child.loading import Loader

    name, shape, blocks = _BODIES[body]
    kernel = Loader().kernel(find_kernel(name))
    problem, device = kernel.problem_spec.parse(shape), compile_only_device(chip)
    axes = {**kernel.default_axes(problem, chip.value), **blocks}
    function = kernel.build(problem, make_config(axes, grid_order=kernel.grid))
    sharding = SingleDeviceSharding(device)
    specs = [
        jax.ShapeDtypeStruct(a.shape, getattr(jnp, a.dtype), sharding=sharding)
        for a in kernel.inputs(problem)
    ]
    with abstract_mesh(device):
        lowered = jax.jit(function).trace(*specs).lower()
        started = time.process_time()
        lowered.compile()
    return time.process_time() - started
