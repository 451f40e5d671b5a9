"""What gives blocks for shapes that nobody tuned."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.domain.codec import ByName, OmitDefault
from autotune.domain.config import Config
from autotune.domain.problem import Problem
from autotune.domain.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAxis:
    """An axis that is a size. ``dim``: what it cuts, empty where the grid does not run over it.
    ``sizes``: those that were compiled, cutting ``dim``. It may be the whole of a dimension that is
    a multiple of ``whole`` (0: of none). ``most``: the largest that the kernel declares; a longer
    whole is one only where such a block was compiled."""

    name: str
    dim: str
    sizes: tuple[int, ...]
    whole: int = 0
    most: OmitDefault[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRange:
    """Of the dimensions that are cut, for problems with the same ``uncut`` ones."""

    uncut: ByName[int]
    least: ByName[int]
    most: ByName[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledBlocks:
    """A config that compiled within VMEM: what is no larger anywhere does, too."""

    config: Config
    dims: ByName[int]
    vmem_used_bytes: int
    vmem_allowed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerm:
    """``us`` times the product of the sizes that ``of`` names, for each step of the grid or once.
    ``dim``: only for problems where that dimension is a multiple of the lanes, or is not
    (``aligned``); empty: for all. ``axis``: only where its last block hangs over ``dim``, which
    costs masks, or wherever it ``cuts`` that into several blocks, so that others are moved again;
    without a ``dim``: divided by the size of the axis, for what a step does in turns of that size;
    empty: wherever it ends. ``tiles``: sizes of axes count as whole tiles of the widest matrix
    unit. ``each_block``: as often as that axis has blocks, for what is done before the first step
    and after the last one of the others, not each step. ``odd``: of blocks of columns along a
    diagonal that are no whole tiles. Where a rule has ``hbm``, all are of the core but what
    ``waits``, as for latencies."""

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
    """The arithmetic is in ``answering.rules``. Of one kernel, chip, toolchain, element type
    and set of options.

    ``least``, ``most``: the range that was seen of each dimension, ``seen``: with each choice of
    those that nothing cuts. ``divides``: pairs of an axis
    and another one, or a dimension, that it divided in each config that the gate has passed.
    ``grows``: dimensions that are cut, and that VMEM grows with all the same. ``runs``: dimensions
    that only the grid runs over; the others that nothing cuts are ``inside`` a block. ``diagonal``:
    two axes, of rows and of columns, where nothing is done in blocks that lie behind the diagonal
    that ends with the last row and column, as with a causal mask; where it ``clips``, a block of
    columns that hangs over takes what is there. The fastest is what takes the least by the sum of
    its ``costs``. ``hbm``: all traffic of a call, where that is known: core and HBM work side by
    side then, with a latency of ``latency_us`` for the reads of a step, and what ``waits`` is
    added. ``vmem``: what blocks take that nobody compiled, about: where some that seem to fit seem
    much faster than what is known to be safe, there is no answer.

    Of ``left_out`` problems, each left out once with all that is known of it, the rule answered
    ``problems``; the regrets are shares of the best time that is known of each: the rule's median
    and worst, and the medians of the nearest record and of the kernel's default, which is None
    where no default compiled.
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
