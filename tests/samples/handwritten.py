"""Listings written by hand, bundle by bundle."""

from autotune.estimating.simulator import simulate
from benchmarks.calibration.as_libtpu import cycles_as_libtpu_counts

HBM = (
    "%s0_s0 = inlined_call_operand.hbm [shape: s32[8,128], index: 0, kind: input, "
    "shape index: {}] /* operand 0 */"
)
SCALAR = (
    "%s9_s9 = inlined_call_operand.<no memory space> [shape: s32[], index: 3, kind: input, "
    "shape index: {}] /* operand 3 */"
)
SEMAPHORE = (
    "%s8_s8 = inlined_call_operand.sflag [shape: u32[], index: 4, kind: input, shape index: {}] "
    "/* operand 4 */"
)
READ = (
    "%{n} = dma.hbm_to_vmem [thread:$0] {guard} /*hbm=*/%s0_s0, /*size_in_granules=*/{size}, "
    "/*vmem=*/[#allocation2], /*dst_syncflagno=*/{flag} /* \niteration_bounds: (4)\n */"
)


def read(n, *, size="64", flag="[#allocation3]", guard=""):
    return READ.format(n=n, size=size, flag=flag, guard=guard)


def wait(n, *, size="64", flag="[#allocation3]", guard=""):
    return f"%{n} = dma.done.wait {guard}{', ' if guard else ''}{flag}, {size}"


def listing(*bundles):
    """Bundles are (operations, markers) or operations; the entry and exit bundles are added."""
    rows = [(HBM + "  ;;  " + SCALAR, "entry bundle: %f = custom-call(%x)")]
    rows += [row if isinstance(row, tuple) else (row, "") for row in bundles]
    rows.append(("%99 = vsyncpa [#allocation3], 1", "exit bundle: %f = custom-call(%x)"))
    lines = ["= control target key start", "LB: loop body", "= control target key end", ""]
    for address, (operations, markers) in enumerate(rows):
        place = "     0" if address == 0 else f"{address:#6x}"
        body = f"{{ {operations} }}" if operations else "{}"
        lines.append(f"{place}   :  {body}" + (f" /* {markers} */" if markers else ""))
    return "\n".join(lines) + "\n"


def run(*bundles, chip="v5e", **options):
    """What becomes of the listing of these bundles: a Simulation, or a ``NotSimulated``."""
    return simulate(listing(*bundles), chip=chip, **options)


def libtpu_cycles(*bundles, chip="v5e"):
    """What libtpu's own estimate of the listing would be, to us."""
    return cycles_as_libtpu_counts(listing(*bundles), chip=chip)
