"""The time of a step of a model, for people and for machines."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

from rich import box
from rich.status import Status
from rich.table import Table

from autotune.domain.codec import to_data
from autotune.domain.compilers import Underway
from autotune.domain.key import Chip
from autotune.domain.step import Basis, Step, StepChangeKind, StepKind, StepPart, changes
from autotune.wording.bars import Pace
from autotune.wording.output import STARTING, echo
from autotune.wording.screen import PlainConsole, screen
from autotune.wording.units import counted, error_bar, mebibytes, micros, seconds

_SHOWN_SHARE, _SHOWN_CHANGE, _MOST_SHOWN = 0.005, 0.001, 12
_MOST_DIRECTORIES = 2
_KIND = attrgetter("kind")
_NO_SCOPE, _NO_LINE = "(no name)", "(no line)"
_BY = {
    Basis.SIMULATED: "by their schedules",
    Basis.FLOPS: "by their FLOPs",
    Basis.BYTES: "by their bytes",
    Basis.LINKS: "by published rates of links",
}

Prices = Mapping[Chip, float]
"""Of a chip for an hour."""


def step_data(step: Step, prices: Prices, before: Step | None = None) -> dict[str, Any]:
    """``before``: without tuned configs, or with another JAX."""
    return {
        **to_data(step),
        "before_us": before and before.time_us,
        "changes": [to_data(change) for change in changes(before, step)] if before else [],
        "time_us": step.time_us,
        "tokens_per_s": step.tokens_per_s or None,
        "cost_per_million_tokens": cost_per_million_tokens(step, prices),
        "flops_share": step.flops_share,
    }


def cost_per_million_tokens(step: Step, prices: Prices) -> float | None:
    """In the currency of the prices; None where tokens or a price are not known."""
    price = prices.get(step.chip)
    if price is None or not step.tokens_per_s:
        return None
    return price * step.chips / 3600 / step.tokens_per_s * 1e6


def print_step(name: str, step: Step, prices: Prices, before: Step | None = None) -> None:
    """The time, and what it is made of. ``before``: without tuned configs, or with another JAX."""
    console = screen()
    for line in _facts(name, step, prices, before):
        console.print(line, soft_wrap=True)
    console.print(_table("kind", step, step.sums(_KIND)))
    console.print(_table("scope", step, step.sums(lambda part: part.scope or _NO_SCOPE)))
    console.print(_table("line", step, step.sums(lambda part: _short(part.line) or _NO_LINE)))
    if before is not None and (table := _changes(before, step)).row_count:
        console.print(table)


def print_chips(steps: Sequence[Step], prices: Prices) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("chip", "step", "", "tokens/s", "per 1M tokens", "of peak", "HBM", "most of it"):
        table.add_column(head, justify="left" if head in ("chip", "most of it") else "right")
    for step in steps:
        cost = cost_per_million_tokens(step, prices)
        table.add_row(
            f"{step.devices} × {step.chip}",
            micros(step.time_us),
            error_bar(step.error),
            f"{step.tokens_per_s:,.0f}" if step.tokens else "–",
            f"{cost:,.3f}" if cost is not None else "–",
            f"{step.flops_share:.0%}",
            _hbm(step),
            step.sums(_KIND)[0][0],
        )
    screen().print(table)


def tuned_line(before: Step, after: Step) -> str:
    """What tuning, or another JAX, has made of a step, and what takes most of it now."""
    less = 1 - after.time_us / before.time_us
    kernels_us = sum(part.time_us for part in after.parts if part.kind is StepKind.KERNEL)
    place, most_us, _ = after.sums(lambda part: " ".join((part.kind, _short(part.line))))[0]
    return (
        f"the step on {after.chip}{_toolchains(before, after)}: {micros(before.time_us)} → "
        f"{micros(after.time_us)} {_a_step(after)} {error_bar(after.error)}, {_less(less)}; "
        f"kernels are {kernels_us / after.time_us:.0%} of it; most of it, "
        f"{most_us / after.time_us:.0%}: {place.strip()}"
    )


class StepProgress:
    """How far the compiler is, on stderr: a line that changes on a terminal, elsewhere another one
    every few seconds; nothing when ``silent``."""

    def __init__(self, *, silent: bool) -> None:
        self._silent, self._pace = silent, Pace()
        self._status = Status(STARTING, console=PlainConsole(stderr=True))

    def __enter__(self) -> Self:
        if not self._silent and sys.stderr.isatty():
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def hear(self, elapsed_s: float, underway: Underway | None) -> None:
        line = underway_line(elapsed_s, underway)
        self._status.update(line)
        if not (self._silent or sys.stderr.isatty()) and self._pace.is_due():
            echo(line, err=True)


def underway_line(elapsed_s: float, underway: Underway | None) -> str:
    if underway is None:
        return f"{seconds(elapsed_s)}: tracing and scheduling the model"
    return (
        f"{seconds(elapsed_s)}: {underway.done:,} of {underway.total:,} operations compiled, "
        f"{seconds(underway.left_s)} of the budget left"
    )


def _facts(name: str, step: Step, prices: Prices, before: Step | None) -> Iterator[str]:
    devices = counted(step.devices, f"{step.chip} device")
    yield f"{name} on {devices}: {micros(step.time_us)} {error_bar(step.error)} {_a_step(step)}"
    if before is not None:
        less = 1 - step.time_us / before.time_us
        times = f"{micros(before.time_us)} → {micros(step.time_us)}"
        how = _toolchains(before, step).removeprefix(", ")
        yield f"{how + ':' if how else 'with tuned configs'} {times}, {_less(less)}"
        unlike = [c for c in changes(before, step) if c.what is StepChangeKind.UNLIKE]
        if share := round(sum(c.after_us for c in unlike) / step.time_us, 2):
            yield (
                f"{share:.0%} of it is timed by other means than before, which says nothing of the "
                "change: --budget gives the compiler more time"
            )
    if step.tokens:
        cost = cost_per_million_tokens(step, prices)
        price = "" if cost is None else f", {cost:,.3f} per million tokens"
        yield f"{step.tokens_per_s:,.0f} tokens a second{price}"
    peak = step.peak_flops_per_s / 1e12
    yield f"products: {step.flops_share:.0%} of {peak:,.0f} TFLOP/s a device; HBM {_hbm(step)}"
    shares = [(basis, step.share_us(basis) / step.time_us) for basis in Basis]
    yield "timed " + ", ".join(f"{share:.0%} {_BY[basis]}" for basis, share in shares if share)
    hidden_us = sum(part.hidden_us for part in step.parts)
    if hidden_us:
        yield f"{micros(hidden_us)} of copies and collectives run beside what is shown"
    if not step.is_whole:
        yield "the compiler was stopped before its end: --budget gives it more time"
    for part in filter(_is_sparse, step.parts):
        runs = f"{counted(part.runs, 'run')} of {part.name.partition('.')[0]} on SparseCores"
        where = f"of {mebibytes(part.hbm_bytes)}, at {_short(part.line) or _NO_LINE}"
        yield f"{'compiled, ' * step.is_whole}not timed: {runs}, {where}"
    for line in step.undecided:
        yield f"data decide how often the loop at {_short(line)} runs: one turn of it is counted"
    for kernel in step.refused:
        yield f"not simulated: {kernel}"
    if step.alternatives:
        where = counted(step.alternatives, "conditional")
        yield f"of {where} the longest branch is counted"


def _toolchains(before: Step, after: Step) -> str:
    if not before.toolchain or not after.toolchain or before.toolchain == after.toolchain:
        return ""
    return f", {before.toolchain.label} → {after.toolchain.label}"


def _a_step(step: Step) -> str:
    return "a step" + " without its SparseCore kernels" * any(map(_is_sparse, step.parts))


def _is_sparse(part: StepPart) -> bool:
    return part.kind is StepKind.SPARSE


def _less(share: float) -> str:
    return f"{abs(share):.1%} {'less' if share >= 0 else 'more'}"


def _hbm(step: Step) -> str:
    capacity = mebibytes(step.hbm_capacity_bytes)
    return f"{mebibytes(step.hbm_bytes)} of {capacity}" if step.hbm_bytes else f"of {capacity}"


def _table(head: str, step: Step, rows: Sequence[tuple[str, float, float]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(head, no_wrap=True)
    for name in ("time", "share", "hidden"):
        table.add_column(name, justify="right", no_wrap=True)
    worth = [row for row in rows if max(row[1:]) >= _SHOWN_SHARE * step.time_us][:_MOST_SHOWN]
    left = [row for row in rows if row not in worth]
    if any(time_us or hidden_us for _, time_us, hidden_us in left):
        worth.append(("others", sum(row[1] for row in left), sum(row[2] for row in left)))
    for name, time_us, hidden_us in worth:
        hidden = micros(hidden_us) if hidden_us else ""
        table.add_row(name, micros(time_us), f"{time_us / step.time_us:.1%}", hidden)
    return table


def _changes(before: Step, after: Step) -> Table:
    """What costs most, and what saves most."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("", "what", "line", "before", "after", "change"):
        justify: Literal["left", "right"] = "left" if name in ("", "what", "line") else "right"
        table.add_column(name, justify=justify)
    worth = _SHOWN_CHANGE * after.time_us
    shown = [change for change in changes(before, after) if abs(change.more_us) >= worth]
    middle = len(shown) - _MOST_SHOWN
    for change in shown if middle <= 0 else shown[: _MOST_SHOWN // 2] + shown[-_MOST_SHOWN // 2 :]:
        table.add_row(
            change.what,
            " ".join(filter(None, (change.kind, change.scope))),
            _short(change.line) or change.name,
            micros(change.before_us),
            micros(change.after_us),
            f"{'+' if change.more_us > 0 else '−'}{micros(abs(change.more_us))}",
        )
    return table


def _short(line: str) -> str:
    """The file with the folder that it is in."""
    return "/".join(Path(line).parts[-_MOST_DIRECTORIES:])
