"""Per-chip constants of the cost model, read from ``chips/<chip>-<libtpu series>.json``.

Each number stands there with its source. All are per core, or per device where a chip compiles
as one device per core. What hardware showed stands apart, in ``chips/hardware.json``, and is used
for the reading of real time only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from autotune.domain.explanation import CORE
from autotune.domain.key import Chip
from autotune.estimating.simulator.outcome import UnfitError

FOLDER = Path(__file__).with_name("chips")
CHIPS = ("v4", "v5e", "v5p", "v6e", "v7x")
PRODUCTS = ("convolution", "dot")
SPATIAL = "spatial convolution"  # depthwise ones are, too: of plain products alone times are given
PRECISE = "product in several passes"  # as a precision that is asked for may mean
GATHER = "gather"
BY_DATA = (GATHER, "scatter", "custom-call")  # data, or unknown code, say what is read
LISTED, SPARSE = f"listed {GATHER}", f"SparseCore {GATHER}"  # whose listings say what they do
_NOTHING: Mapping[str, float] = {}

_VERSION = re.compile(r"\d+")
_HALF = ".gmra.16."
_NARROW = re.compile(r"\.(?:s8|u8|b?f8\w*|s4|u4)\b")
_WIDENED = re.compile(r"\.b?f8\w*\.bf16\b")  # given as 8-bit floats, multiplied as bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class StallModel:
    """Interlock constants, cycles. Mappings of the matrix unit are by :func:`element_kind`,
    ``weights_latency`` by ``transposed`` too: of weights that are transposed as they are pushed."""

    matmul_latency: Mapping[str, float]  # vmatmul start to its first result
    push_cycles: Mapping[str, float]  # how long one vmatpush occupies its MXU
    weights_latency: Mapping[str, float]  # last vmatpush start to weights that can be used
    backlog_cycles: Mapping[str, float]  # how far an MXU may lag behind before issue stalls
    lane_cycles: float  # how long one register occupies its XLU
    lane_queue_cycles: float  # how far an XLU may lag behind before issue stalls
    reduce_latency: Mapping[str, float]  # reduction over lanes by XLU, start to result
    rotate_latency: float  # rotation or permutation over lanes, start to result
    transpose_latency: Mapping[str, float]  # last row in to first row out: "packed" of 16-bit
    # rows, "whole" of all others
    packed_transpose: float  # a 16-bit row against a 32-bit row, in XLU time
    transcendental_latency: float  # exp, log, reciprocal, tanh


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipConstants:
    """What the model knows of one core."""

    name: str
    libtpu: str  # series that the constants were fitted on
    clock_hz: float
    mxu_count: int
    mxu_width: int
    bf16_matmul_cycles: float  # also int8
    f32_matmul_cycles: float
    delay_slots: int  # bundles after a branch that always issue
    granule_bytes: int  # unit of DMA sizes in the listing
    read_latency_cycles: float
    write_latency_cycles: float
    real_read_latency_cycles: float  # from hardware where known, else libtpu's
    real_write_latency_cycles: float
    dma_bytes_per_cycle: float  # of one DMA in libtpu's model
    hbm_bytes_per_cycle: float  # the core's share of HBM in the long run, after efficiency
    burst_bytes_per_cycle: float  # what it moves while another core of the chip moves nothing
    write_cost: float  # the share of HBM's time that a written byte takes, in bytes read
    turn_cost: float  # as much more where half of the bytes are written, half read
    turn_latency_cycles: float  # as much later what is read arrives there
    is_side_by_side: bool  # HBM serves reads, writes and copies at once, not in turn
    sustained_share: float  # of HBM's rate, what it can move for long
    sustained_us: float  # for how long it moves more than that, in time of the full rate
    load_cycles: float  # of a matrix unit, to load each register that was pushed
    matrix_slowdown: float  # cycles more for each that the matrix units are busy
    matrix_rate: float  # of their own clock, in cycles of the core's
    step_cycles: float  # of a pass of a kernel's outer loop, beside what is listed
    link_bytes_per_cycle: float  # of one link to a neighbour, one way
    hop_cycles: float  # from neighbour to neighbour
    offloaded_share: float  # of the rate of copies, what SparseCores move at
    barrier_us: float  # after each operation of XLA, until all cores of a device have ended it
    stalls: StallModel | None  # None: bundles only, a lower bound

    def without_links(self) -> ChipConstants:
        """What goes to other devices is there at once."""
        return replace(self, link_bytes_per_cycle=math.inf, hop_cycles=0.0)

    def matmul_cycles(self, opcode: str) -> float:
        """Return the cycles that one vmatmul occupies its MXU: half where it takes half the rows
        (``gmra.16``, seen with ``lmr``: pops and issue distance of two such are halved, too), twice
        where its 8-bit rows are widened: as many as of bfloat16 in a cycle."""
        whole = self.f32_matmul_cycles if element_kind(opcode) == "f32" else self.bf16_matmul_cycles
        whole *= 2 if _WIDENED.search(opcode) else 1
        return whole / (2 if _HALF in opcode else 1) / self.matrix_rate

    def matmul_results(self, opcode: str) -> int:
        """Return the result registers of one vmatmul, as its pops were counted in listings
        (docs/explanation/simulator.md: the matrix unit)."""
        wide = self.mxu_width // 128
        whole = wide * {"f32": 1, "bf16": 2, "int8": 4}[element_kind(opcode)]
        return max(1, whole // 2) if _HALF in opcode else whole


def element_kind(opcode: str) -> str:
    """Return the kind of elements of an MXU operation: ``f32``, ``bf16`` or ``int8`` (every
    8-bit type). A push without a type in its name has the 8 rows of float32, whatever it is of."""
    if ".bf16" in opcode and not _WIDENED.search(opcode):
        return "bf16"
    return "int8" if _NARROW.search(opcode) else "f32"


def error_bar(
    chip: str,
    parts_us: Mapping[str, float] = _NOTHING,
    steps: int = 0,
    *,
    timed_as: str = "",
    links_share: float = 0.0,
    is_fitted: bool = True,
) -> float | None:
    """Return the relative error that nine of ten kernels stay within: as far as those of the
    pattern ``timed_as`` were off, for none as any other may be; wider by what no time shows
    (docs/results/accuracy.md). None of a chip that is not known, or where as much of a step may be
    missing as the core takes for it.

    ``parts_us``: of ``steps`` grid steps. ``links_share``: of the time, in which links move bytes
    or are waited for. ``is_fitted``: whether constants are known for the libtpu of the listing.
    """
    never_seen = kernel_error(chip)
    if never_seen is None:
        return None
    known = bars()["kernels"]["value"].get(timed_as, {}).get(chip, never_seen)
    known = max(known + _unlike(chip, parts_us, steps), hardware("remote_error") * links_share)
    known += 0.0 if is_fitted else _bar("other", "toolchain")
    missing_us = _hardware()[chip].get("missing_step_cycles", {"value": 0})["value"]
    missing_us *= steps / load(chip).clock_hz * 1e6
    core_us = sum(parts_us.get(part, 0.0) for part in CORE) or math.inf
    return known + missing_us / core_us if missing_us < core_us else None


def pattern_of(name: str) -> str:
    """Return the pattern of kernels that were timed and are called so, empty for none: what only
    begins so is another's."""
    return next((each for each in bars()["kernels"]["value"] if re.fullmatch(each, name)), "")


def _unlike(chip: str, parts_us: Mapping[str, float], steps: int) -> float:
    shown: dict[str, float] = bars()["shown"][chip]["value"]
    shown_us = {part: parts_us.get(part, 0.0) for part in shown}
    whole_us = sum(shown_us.values()) or math.inf
    beyond = sum(max(0.0, us / whole_us - shown[part]) for part, us in shown_us.items())
    more = max(0.0, steps / whole_us - 1 / _bar("shortest step", chip))
    return _bar("part", chip) * beyond + _bar("other", "step") * more


def xla_error(
    chip: str, by_kind: Mapping[str, float] = _NOTHING, operations_per_us: float = 0.0
) -> float | None:
    """Return the error bar of programs of XLA itself, None of a chip that is not known.

    Each operation may take a little longer. Less sure is a kind that was hardly timed, still less
    a gather, not at all what data decide. ``by_kind``: microseconds of each."""
    if chip not in CHIPS:
        return None
    timed = (*PRODUCTS, *bars()["timed_kinds"]["value"])
    known, new = float(bars()["XLA"]["value"]), _bar("other", "new kind")
    bounds = dict.fromkeys(timed, known) | dict.fromkeys(BY_DATA, 1.0)
    bounds |= {LISTED: hardware("listed_gather_error"), SPARSE: hardware("sparse_gather_error")}
    whole_us = sum(by_kind.values())
    if whole_us:
        known = sum(us * bounds.get(kind, new) for kind, us in by_kind.items()) / whole_us
    return math.hypot(known, float(bars()["operation_us"]["value"]) * operations_per_us)


def hardware(name: str, chip: str = "all") -> float:
    """Return a figure of ``chips/hardware.json``; KeyError for one that it does not have."""
    return float(_hardware()[chip][name]["value"])


start_us = partial(hardware, "program_start_us")  # what a program takes beside its operations


def link_bytes_per_us(chip: str) -> float:
    """Of one link of a chip, one way, as far as it is one device's."""
    rate = hardware("link_gigabytes_per_second", chip) * 1e3
    return rate / Chip(chip).devices_per_chip


def kernel_error(chip: str) -> float | None:
    """Return the bar of kernels of a family never seen, None where nothing is known of the chip."""
    return _bar("never seen", chip) if chip in CHIPS else None


def matrix_share(chip: str) -> float:
    """Return the part of the rated peak that a large product of XLA reaches."""
    core = load(chip, is_fused=True)
    rated = float(json.loads(files(chip)[core.libtpu].read_text())["clock_hz"]["value"])
    clock_hz = core.clock_hz * core.matrix_rate / (1 + core.matrix_slowdown)
    return hardware("matrix_fill") * clock_hz / rated


def resolution(limited_by: str) -> float:
    """Return by how much two configs of one problem must differ to be told apart: three of four
    ratios are right within it. Errors that configs share cancel, so it is not the error bar. Of
    links nothing was measured: they are taken for HBM."""
    return _bar("resolution", "HBM" if limited_by == "links" else limited_by)


@lru_cache(maxsize=1)
def _hardware() -> dict[str, Any]:
    hardware: dict[str, Any] = json.loads((FOLDER / "hardware.json").read_text())
    return hardware


@lru_cache(maxsize=1)
def bars() -> dict[str, Any]:
    """Return what ``benchmarks/calibration/error_bars.py`` wrote."""
    errors: dict[str, Any] = json.loads((FOLDER / "errors.json").read_text())
    return errors


def _bar(which: str, name: str) -> float:
    return float(bars()[which][name]["value"])


@lru_cache(maxsize=len(CHIPS))
def files(chip: str) -> Mapping[str, Path]:
    """Return the libtpu series that a chip has constants for, the oldest first, each with its file.

    A file holds several series where a fit to another left all of its constants (``also_fits``);
    one with a file of its own has that."""
    fitted = {path.stem.partition("-")[2]: path for path in FOLDER.glob(f"{chip}-*.json")}
    files: dict[str, Path] = {}
    for path in fitted.values():
        others = json.loads(path.read_text()).get("also_fits", {"value": ()})
        files |= dict.fromkeys(others["value"], path)
    files |= fitted
    return {version: files[version] for version in sorted(files, key=_number)}


def nearest_series(chip: str, libtpu: str | None) -> str:
    """Return the series nearest to a libtpu version; the newest when it is not known."""
    known = list(files(chip))
    if libtpu is None:
        return known[-1]
    wanted = _number(libtpu)
    return min(known, key=lambda name: (abs(_number(name) - wanted), -_number(name)))


def _number(version: str) -> int:
    """``0.0.42.1`` is 42: the third part counts the series, those before it weigh more."""
    parts = [int(part) for part in [*_VERSION.findall(version), "0", "0", "0"][:3]]
    return parts[0] * 10**6 + parts[1] * 10**3 + parts[2]


@lru_cache(maxsize=32)
def load(
    name: str,
    libtpu: str | None = None,
    *,
    is_fused: bool = False,
    is_plain: bool = False,
    is_packed: bool = False,
) -> ChipConstants:
    """Return the constants of a chip for the nearest libtpu series; UnfitError for a chip that is
    not in :data:`CHIPS`. ``is_fused``: of operations that XLA makes the code of itself,
    ``is_plain``: of those in a program of plain XLA, ``is_packed``: of those that transpose 16-bit
    arrays for a kernel."""
    if name not in CHIPS:
        timed = ", ".join(CHIPS)
        raise UnfitError(
            f"no model for chip {name!r}: only {timed} are timed, others compiled and checked"
        )
    used = nearest_series(name, libtpu)
    data: dict[str, Any] = json.loads(files(name)[used].read_text())
    number = {key: entry["value"] for key, entry in data.items() if key != "stalls"}
    real = {k: e["value"] for k, e in {**_hardware()["all"], **_hardware()[name]}.items()}
    real |= {} if is_fused else real.get("kernels", {})
    real |= real.get("packed_transposes", {}) if is_packed else {}
    clock_hz = float(real.get("clock_hz", number["clock_hz"]))
    hbm_bytes_per_second = number["hbm_gigabytes_per_second"] * 1e9 * real["hbm_efficiency"]
    burst = f"{'xla_' if is_fused else ''}burst_gigabytes_per_second"
    burst_bytes_per_second = real.get(burst, 0.0) * 1e9
    stalls = data["stalls"]
    return ChipConstants(
        name=name,
        libtpu=used,
        clock_hz=clock_hz,
        mxu_count=number["mxu_count"],
        mxu_width=number["mxu_width"],
        bf16_matmul_cycles=number["matmul_cycles"],
        f32_matmul_cycles=number["matmul_f32_cycles"],
        delay_slots=number["delay_slots"],
        granule_bytes=number["granule_bytes"],
        read_latency_cycles=number["read_latency_cycles"],
        write_latency_cycles=number["write_latency_cycles"],
        real_read_latency_cycles=real.get("read_latency_cycles", number["read_latency_cycles"]),
        real_write_latency_cycles=real.get("write_latency_cycles", number["write_latency_cycles"]),
        dma_bytes_per_cycle=number["dma_gigabytes_per_second"] * 1e9 / number["clock_hz"],
        hbm_bytes_per_cycle=hbm_bytes_per_second / clock_hz,
        burst_bytes_per_cycle=(burst_bytes_per_second or hbm_bytes_per_second) / clock_hz,
        write_cost=real["hbm_efficiency"] / real["hbm_write_efficiency"],
        turn_cost=real.get("hbm_turn_cost", 0.0),
        turn_latency_cycles=real.get("hbm_turn_latency_cycles", 0.0),
        is_side_by_side=is_fused and is_plain and bool(real.get("hbm_side_by_side")),
        sustained_share=real.get("hbm_sustained_share", 1.0),
        sustained_us=real.get("hbm_sustained_us", 0.0),
        load_cycles=real.get("load_cycles", 0.0) * (not is_fused),
        matrix_slowdown=real.get("matrix_slowdown", 0.0) * is_fused,
        matrix_rate=real.get("matrix_rate", 1.0),
        step_cycles=real.get("step_cycles", 0.0) * (not is_fused),
        link_bytes_per_cycle=link_bytes_per_us(name) * 1e6 / clock_hz,
        hop_cycles=real["link_hop_us"] * clock_hz / 1e6,
        offloaded_share=real["offloaded_share"],
        barrier_us=real.get("barrier_us", 0.0),
        stalls=StallModel(**{k: e["value"] for k, e in stalls.items()}) if stalls else None,
    )
