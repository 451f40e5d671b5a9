"""What gives blocks for shapes that nobody tuned."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.domain.codec import ByName, OmitDefault
from autotune.domain.evidence import Verdict
from autotune.domain.problem import Config, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAxis:
    """An axis that is a size.

    ``dim``: the dimension that it cuts; empty where the grid does not run over it. ``sizes``: the
    sizes that were compiled and cut ``dim``. A block may also be the whole of a dimension that is a
    multiple of ``whole`` (0: it may not). ``most``: the largest size that the kernel declares; a
    longer dimension is one block only where such a block was compiled."""

    name: str
    dim: str
    sizes: tuple[int, ...]
    whole: int = 0
    most: OmitDefault[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRange:
    """The shortest and the longest of the dimensions that are cut, among the problems that have the
    same ``uncut`` dimensions."""

    uncut: ByName[int]
    least: ByName[int]
    most: ByName[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledBlocks:
    """A config that compiled within VMEM: blocks that are no larger anywhere fit, too."""

    config: Config
    dims: ByName[int]
    vmem_used_bytes: int
    vmem_allowed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerm:
    """A cost of ``us`` microseconds times the product of the sizes that ``of`` names. It counts for
    each step of the grid if ``each_step``, else once for a call.

    ``dim``: the cost arises only for problems in which that dimension is a multiple of the lanes
    (``aligned``) or is not; empty: it arises for all problems. ``axis``, with a ``dim``: the cost
    arises only where the last block of that axis hangs over ``dim``, which costs masks. With
    ``cuts`` it arises wherever the axis cuts ``dim`` into several blocks, because other arrays are
    moved again then. ``axis``, without a ``dim``: the cost is divided by the size of the axis,
    because a step works in turns of that size. Without an ``axis`` neither matters.

    ``tiles``: sizes of axes are rounded up to whole tiles of the widest matrix unit.
    ``each_block``: the cost counts once for each block of that axis, not for each step: it is for
    work before the first and after the last step of the other axes. ``odd``: the cost is only for
    blocks of columns along a diagonal that are no whole tiles. ``waits``: where a rule has ``hbm``,
    this is time that the core waits, as for latencies; all other costs are work of the core."""

    us: float
    of: tuple[str, ...]
    each_step: bool
    dim: str = ""
    aligned: bool = True
    axis: OmitDefault[str] = ""
    cuts: OmitDefault[bool] = False
    tiles: OmitDefault[bool] = False
    each_block: OmitDefault[str] = ""
    odd: OmitDefault[bool] = False
    waits: OmitDefault[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VmemTerm:
    """``bytes_each`` times the product of the sizes that ``of`` names."""

    bytes_each: float
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HbmTerm:
    """An array that crosses HBM: ``us``, at the peak rate, times the product of the dimensions that
    ``of`` names. Where any of the axes ``where`` has several blocks, it crosses again for each
    block of the axes ``again``."""

    us: float
    of: tuple[str, ...]
    again: OmitDefault[tuple[str, ...]] = ()
    where: OmitDefault[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRule:
    """A rule for one kernel, chip, toolchain, element type and set of options. Its arithmetic is in
    ``answering.rules``: the fastest blocks are those with the smallest sum of ``costs``.

    ``least``, ``most``: the range of each dimension that was seen; ``seen``: the same for each
    choice of the dimensions that nothing cuts. ``divides``: pairs of an axis and another axis, or a
    dimension, that it divided in each config that the gate has passed. ``grows``: dimensions that
    are cut, and that VMEM grows with all the same. ``runs``: dimensions that only the grid runs
    over; the others that nothing cuts are ``inside`` a block. ``compiled``: the blocks that prove
    sizes to be safe.

    ``diagonal``: two axes, of rows and of columns. The kernel does nothing in blocks that lie
    behind the diagonal that ends with the last row and column, as with a causal mask. With
    ``clips``, a block of columns that hangs over takes only the columns that exist.

    ``hbm``: all traffic of a call, where that is known. Core and HBM then work side by side, with a
    latency of ``latency_us`` for the reads of a step, and costs that ``waits`` marks are added.
    ``vmem``: about how much VMEM blocks take that nobody compiled. There is no answer where blocks
    that seem to fit also seem much faster than all blocks that are known to be safe.

    Each of the ``left_out`` problems was left out once, with all that is known of it; the rule
    answered ``problems`` of them. Regrets are shares of the best time that is known of each
    problem. They are the rule's median and worst, and the medians of the nearest record and of the
    kernel's default. The last is None where no default compiled.
    """

    made_at: datetime
    least: ByName[int]
    most: ByName[int]
    axes: tuple[BlockAxis, ...]
    divides: tuple[tuple[str, str], ...]
    grows: tuple[str, ...]
    runs: tuple[str, ...]
    inside: tuple[str, ...]
    compiled: tuple[CompiledBlocks, ...]
    costs: tuple[CostTerm, ...]
    hbm: OmitDefault[tuple[HbmTerm, ...]] = ()
    latency_us: OmitDefault[float] = 0.0
    vmem: OmitDefault[tuple[VmemTerm, ...]] = ()
    seen: OmitDefault[tuple[SeenRange, ...]] = ()
    diagonal: OmitDefault[tuple[str, ...]] = ()
    clips: OmitDefault[bool] = False
    left_out: OmitDefault[int] = 0
    problems: int = 0
    median_regret: float = 0.0
    worst_regret: float = 0.0
    nearest_regret: float = 0.0
    default_regret: float | None = 0.0


class RuleRefusal(StrEnum):
    """Why there is no rule."""

    FEW_KNOWN = "few problems known"
    FEW_ANSWERED = "few problems answered"
    WRONG_BEFORE = "wrong results before"
    BEATS_NOTHING = "beats nothing"
    TOO_SLOW = "too slow"
    WRONG = "wrong answer"
    UNVERIFIED = "unverified answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRule:
    """``count``: of problems, of ``left_out`` ones where some were, or of configs that are wrong;
    ``needed``: how many would be enough. ``problem``, ``config``: the answer that is the reason,
    ``gate``: what the gate said of it. Regrets as ``ShapeRule`` has them, and the most allowed."""

    cause: RuleRefusal
    count: int = 0
    needed: int = 0
    left_out: int = 0
    problem: Problem | None = None
    config: Config | None = None
    gate: Verdict | None = None
    worst_regret: float = 0.0
    median_regret: float = 0.0
    most_regret: float = 0.0
