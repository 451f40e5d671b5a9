"""Points for the benchmarks: kernels, problems, chips, and configs that lie where rules decide."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, ListChoices, TraceConfig, Traces
from autotune.domain.key import Chip, ChipInfo, Choices, KernelRef
from autotune.domain.problem import AxisValue, Config, Problem, make_config
from autotune.domain.trace import Trace
from autotune.estimating import legality
from autotune.estimating.vmem import VmemUse, limit_bytes, lowest_rung, vmem_use
from autotune.wording.outcome import violation_text

T = TypeVar("T")
K = TypeVar("K")

CHIPS = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)
MIB = 2**20

# Shape, dtype, options: whole and ragged, small enough for XLA to keep in VMEM and far too large.
PROBLEMS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "matmul": (
        ("4096x4096x4096", "bfloat16", ""),
        ("1000x1100x700", "bfloat16", ""),
        ("8192x4096x8192", "float32", "activation=relu"),
        ("2048x2048x2048", "int8", ""),
        ("4000x5000x3000", "bfloat16", "transpose_rhs=true"),
        ("256x384x200", "float32", ""),
        ("16384x8192x16384", "bfloat16", "activation=gelu"),
    ),
    "flash_attention": (
        ("1x8x8x4096x4096x128", "bfloat16", ""),
        ("2x8x2x1000x1500x64", "bfloat16", "causal=true"),
        ("1x4x4x2048x8192x128", "float32", ""),
        ("1x2x1x200x300x128", "bfloat16", ""),
        ("4x16x4x8192x8192x128", "bfloat16", "causal=true"),
    ),
    "rmsnorm": (
        ("8192x4096", "bfloat16", ""),
        ("1000x1111", "bfloat16", ""),
        ("65536x2048", "float32", ""),
        ("100x512", "float32", ""),
        ("4096x16384", "bfloat16", ""),
    ),
    "vector_add": (
        ("50000000", "bfloat16", ""),
        ("1000000", "float32", ""),
        ("5000", "bfloat16", ""),
        ("40000001", "float32", ""),
    ),
    "tiled_dot": (
        ("16777216", "bfloat16", ""),
        ("100000", "float32", ""),
        ("64000001", "float32", ""),
        ("3000", "bfloat16", ""),
    ),
    "gathered_matmul": (
        ("4096x4096x4096x8", "bfloat16", "group=512"),
        ("1000x1000x1500x8", "bfloat16", ""),
        ("2048x2048x4096x4", "float32", "group=256"),
        ("256x256x200x3", "float32", ""),
    ),
}

# Rows below a bf16 tile, lanes and rows off their tiles, what is no multiple of anything.
_ODD = (1, 7, 8, 16, 24, 64, 100, 120, 129, 136, 192, 200, 250, 264, 320, 500, 640, 1000, 1001)
_ODD_VECTOR = (100, 128, 192, 256, 384, 512, 640, 1000, 1536, 3072, 5120, 7168, 99999, 131072)
_LARGE = (1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192)
_LARGE_VECTOR = tuple(
    p * 2**15 for p in (4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 256, 512, 1024)
)
_LARGE_ROWS = tuple(p * 2**10 for p in (4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProblem:
    """A kernel and a problem, with what it declares."""

    ref: KernelRef
    kernel: str
    problem: Problem
    choices: Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePoint:
    """A config of a subject on a chip, and our verdict from its trace alone."""

    subject: KernelProblem
    config: Config
    chip: ChipInfo
    trace: Trace
    misaligned: str | None
    use: VmemUse

    @property
    def limit_bytes(self) -> int:
        return limit_bytes(self.config.vmem_limit_bytes, self.chip)

    @property
    def is_over_vmem(self) -> bool:
        return self.use.certain_bytes > self.limit_bytes

    @property
    def is_spared(self) -> bool:
        """Whether a search would not compile this: it cannot fit for certain, or is expected not
        to and a higher limit, which is expected to hold it, is asked for instead."""
        higher = lowest_rung(self.use.expected_bytes, self.chip) is not None
        return self.is_over_vmem or (higher and self.use.expected_bytes > self.limit_bytes)

    @property
    def exceeds_arrays(self) -> bool:
        """Whether a block is larger than its array, lanes filled up: no search proposes that."""
        return any(
            block > -(-size // 128) * 128
            for op in self.trace.operands
            for block, size in zip(op.block, op.shape, strict=True)
        )

    @property
    def stratum(self) -> str:
        """Where the point lies: expected bytes against the limit in force."""
        if self.misaligned:
            return "misaligned"
        share = self.use.expected_bytes / self.limit_bytes
        if share <= 0.5:
            return "fits"
        if share <= 1.3:
            return "near the limit"
        return "over" if share <= 3 else "far over"

    def __str__(self) -> str:
        where = f"{self.subject.kernel} {self.subject.problem} {self.chip.chip}"
        return f"{where} {self.config}"


def as_they_come(pending: Mapping[Future[T], K], what: str) -> Iterator[tuple[K, T]]:
    """Keys and results in the order in which they are ready: with a bar on a terminal, else with
    lines."""
    started, console = time.monotonic(), Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=len(pending))
        for number, future in enumerate(as_completed(pending), start=1):
            yield pending[future], future.result()
            bar.update(task, completed=number)
            if not console.is_terminal and (number % 20 == 0 or number == len(pending)):
                seconds = time.monotonic() - started
                print(f"{what}: {number} of {len(pending)}, {seconds:.0f} s", flush=True)


def subjects(pool: CompilerPool) -> list[KernelProblem]:
    """Every kernel of the catalogue with each of its problems."""
    return [_subject(pool, name, *text) for name, problems in PROBLEMS.items() for text in problems]


def _subject(pool: CompilerPool, name: str, shape: str, dtype: str, options: str) -> KernelProblem:
    ref = find_kernel(name)
    spec = pool.ask(DescribeKernel(ref=ref))
    problem = spec.problems.parse(shape, dtype, [options] if options else [])
    return KernelProblem(
        ref=ref,
        kernel=name,
        problem=problem,
        choices=pool.ask(ListChoices(ref=ref, problem=problem)),
    )


def configs(subject: KernelProblem, rng: Random, count: int) -> list[Config]:
    """Different configs: declared sizes, odd ones and large ones, each axis on its own."""
    configs: dict[Config, None] = {}
    for _ in range(count * 3):
        configs[_config(subject, rng)] = None
        if len(configs) == count:
            break
    return list(configs)


def _config(subject: KernelProblem, rng: Random) -> Config:
    kind = rng.choices(("declared", "odd", "large"), (4, 3, 4))[0]
    axes: dict[str, AxisValue] = {
        name: _size(subject, name, values, rng, kind)
        for name, values in subject.choices.axes.items()
    }
    order = list(subject.choices.grid)
    if subject.kernel == "matmul" and rng.random() < 0.3:
        order[0], order[1] = order[1], order[0]
    return make_config(axes, grid_order=tuple(order))


def _size(
    subject: KernelProblem, name: str, declared: Sequence[AxisValue], rng: Random, kind: str
) -> AxisValue:
    if kind == "declared" or rng.random() < 0.3:
        return rng.choice(declared)
    if subject.kernel == "vector_add":
        return rng.choice(_ODD_VECTOR if kind == "odd" else _LARGE_VECTOR)
    if subject.kernel == "tiled_dot":
        return rng.choice(_ODD if kind == "odd" else _LARGE_ROWS)
    if name == "block_m" and subject.kernel == "gathered_matmul":
        return rng.choice((8, 16, 64, *declared))  # a block lies within one group
    return rng.choice(_ODD if kind == "odd" else _LARGE)


def points(
    pool: CompilerPool, subject: KernelProblem, chips: Sequence[ChipInfo], rng: Random, count: int
) -> Iterator[CandidatePoint]:
    """Configs of a subject that can be traced, each on every chip, each with a limit of its own."""
    chosen = configs(subject, rng, count)
    questions = [
        TraceConfig(ref=subject.ref, problem=subject.problem, config=config) for config in chosen
    ]
    for config, traced in zip(chosen, list(pool.ask_all(questions)), strict=True):
        if not isinstance(traced, Traces):
            continue
        trace = traced.traces[0]
        for chip in chips:
            semantics = rng.choice(legality.semantics_variants(trace, chip.chip))
            limit = rng.choice((None, None, *_limits(chip)))
            yield _point(
                subject,
                config.replace(dimension_semantics=semantics, vmem_limit_bytes=limit),
                chip,
                trace,
            )


def _limits(chip: ChipInfo) -> tuple[int, ...]:
    """Limits that a kernel may ask for: between the compiler's own and above the capacity."""
    scoped, capacity = chip.scoped_vmem_bytes, chip.vmem_capacity_bytes
    return (scoped // 2, (scoped + capacity) // 2, capacity)


def _point(subject: KernelProblem, config: Config, chip: ChipInfo, trace: Trace) -> CandidatePoint:
    misaligned = legality.misaligned(trace, chip)
    return CandidatePoint(
        subject=subject,
        config=config,
        chip=chip,
        trace=trace,
        misaligned=violation_text(misaligned) if misaligned else None,
        use=vmem_use(trace, chip),
    )
