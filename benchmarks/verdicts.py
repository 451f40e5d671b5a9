"""Do our verdicts and VMEM bytes agree with the real compiler's?

    python -m benchmarks verdicts [--points 330] [--seed 0] [--json FILE]

Ours come from the trace alone. Exit code 1 when a candidate that the compiler accepts is called
misaligned or over VMEM, when less than 90 % of the compile time of VMEM-infeasible candidates is
saved, when a difference in VMEM bytes has no cause, or when fewer points than asked for were
compared.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from autotune.compiling.pool import CompilerPool
from autotune.domain.compilers import CompileConfig, Compiled, DescribeChip, DescribeToolchain
from autotune.domain.outcome import CompileFailed, Crashed, Failure, OutOfVmem, TimedOut
from autotune.domain.trace import Trace
from autotune.wording.outcome import kind_and_reason, reason_of
from benchmarks.harness.causes import Cause, cause
from benchmarks.harness.evidence import EvidenceChild
from benchmarks.harness.points import CHIPS, MIB, CandidatePoint, as_they_come, points, subjects

LIMIT_S = 40.0
REQUIRED_SAVED = 0.9
TOLERANCE = 0.1
SHARES = {"misaligned": 0.3, "fits": 0.32, "near the limit": 0.24, "over": 0.09, "far over": 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswer:
    """What the compiler said, and the wall clock that it took."""

    point: CandidatePoint
    outcome: tuple[Trace, Compiled] | Failure
    seconds: float

    @property
    def accepted(self) -> Compiled | None:
        return self.outcome[1] if isinstance(self.outcome, tuple) else None

    @property
    def is_alignment_refusal(self) -> bool:
        return isinstance(self.outcome, CompileFailed) and (
            "Pallas TPU lowering currently requires" in self.outcome.message
        )

    @property
    def is_vmem_infeasible(self) -> bool:
        """Refused for VMEM; or given up on, and too large by our count of what is needed."""
        if isinstance(self.outcome, OutOfVmem):
            return True
        gave_up = isinstance(self.outcome, (TimedOut, Crashed))
        return gave_up and self.point.use.expected_bytes > self.point.limit_bytes


def choose(pool: CompilerPool, count: int, rng: Random) -> list[CandidatePoint]:
    """``count`` different points, spread over kernels and chips, each stratum with its share."""
    chips = [pool.ask(DescribeChip(chip=chip)) for chip in CHIPS]
    cells: dict[tuple[str, str, str], list[CandidatePoint]] = defaultdict(list)
    for subject in subjects(pool):
        for point in points(pool, subject, chips, rng, 14):
            cells[point.stratum, point.subject.kernel, point.chip.chip].append(point)
    chosen: list[CandidatePoint] = []
    for stratum, share in SHARES.items():
        groups = [cell for key, cell in cells.items() if key[0] == stratum]
        chosen += _spread(groups, round(count * share), rng)
    fitting = [cell for key, cell in cells.items() if key[0] in ("fits", "misaligned")]
    chosen += _spread(
        [[p for p in g if p not in chosen] for g in fitting], count - len(chosen), rng
    )
    rng.shuffle(chosen)
    return chosen


def _spread(
    groups: Sequence[list[CandidatePoint]], count: int, rng: Random
) -> list[CandidatePoint]:
    """``count`` of the points, taken in turn from each group."""
    piles = [rng.sample(group, len(group)) for group in groups if group]
    rng.shuffle(piles)
    taken: list[CandidatePoint] = []
    while piles and len(taken) < count:
        taken += [pile.pop() for pile in piles[: count - len(taken)]]
        piles = [pile for pile in piles if pile]
    return taken


def ask(pool: CompilerPool, chosen: Sequence[CandidatePoint]) -> list[PointAnswer]:
    """The compiler's answer to every point, in the order in which they come."""
    pending = {
        pool.submit(
            CompileConfig(
                ref=point.subject.ref,
                problem=point.subject.problem,
                config=point.config,
                chip=point.chip.chip,
            )
        ): point
        for point in chosen
    }
    return [
        PointAnswer(point=point, outcome=attempt.answer, seconds=attempt.seconds)
        for point, attempt in as_they_come(pending, "compiling")
    ]


def causes(answers: Sequence[PointAnswer]) -> list[tuple[PointAnswer, Cause]]:
    """Each accepted point whose VMEM bytes differ by more than the tolerance, with its cause."""
    differing = [a for a in answers if a.accepted and abs(_ratio(a) - 1) > TOLERANCE]
    caused = []
    child = EvidenceChild()
    print(f"looking for the causes of {len(differing)} differences", flush=True)
    for answer in differing:
        assert answer.accepted is not None
        used = answer.accepted.vmem_used_bytes
        caused.append((answer, cause(answer.point, used, child.ask(answer.point))))
    child.close()
    return caused


def _ratio(answer: PointAnswer) -> float:
    assert answer.accepted is not None
    return answer.accepted.vmem_used_bytes / max(1, answer.point.use.expected_bytes)


def wrong(answers: Sequence[PointAnswer]) -> list[PointAnswer]:
    """Accepted by the compiler, refused by a rule of ours."""
    return [a for a in answers if a.accepted and (a.point.misaligned or a.point.is_over_vmem)]


def allowed_but_refused(answers: Sequence[PointAnswer]) -> Counter[str]:
    """Reasons of the compiler for points that no rule of ours refuses."""
    reasons: Counter[str] = Counter()
    for a in answers:
        if a.accepted or a.point.misaligned or a.point.is_over_vmem:
            continue
        assert not isinstance(a.outcome, tuple)
        exact = isinstance(a.outcome, CompileFailed) and not a.is_alignment_refusal
        reasons[kind_and_reason(a.outcome)[:170] if exact else a.outcome.kind] += 1
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Compile time of VMEM-infeasible candidates, and what of it is known beforehand."""

    known_s: float
    all_s: float
    known: int
    all: int

    @property
    def share(self) -> float:
        return self.known_s / self.all_s if self.all_s else 1.0

    def __str__(self) -> str:
        return (
            f"{self.share:.1%}: {self.known_s:.0f} s of {self.all_s:.0f} s, {self.known} of "
            f"{self.all} candidates"
        )


def saved(answers: Sequence[PointAnswer]) -> Saved:
    infeasible = [a for a in answers if a.is_vmem_infeasible and not a.point.misaligned]
    known = [a for a in infeasible if a.point.is_spared]
    return Saved(
        known_s=sum(a.seconds for a in known),
        all_s=sum(a.seconds for a in infeasible),
        known=len(known),
        all=len(infeasible),
    )


def report(
    answers: Sequence[PointAnswer], caused: Sequence[tuple[PointAnswer, Cause]], count: int
) -> bool:
    """Print everything; whether every required figure is met."""
    strata = Counter(a.point.stratum for a in answers)
    print(f"points: {len(answers)} ({', '.join(f'{n} {s}' for s, n in strata.most_common())})")
    print("chips: ", dict(Counter(a.point.chip.chip.value for a in answers)))
    print("kernels:", dict(Counter(a.point.subject.kernel for a in answers)))
    outcomes = Counter("accepted" if a.accepted else a.outcome.kind for a in answers)  # type: ignore[union-attr]
    print("compiler:", dict(outcomes))
    mistakes = wrong(answers)
    print(f"\nwrong verdicts: {len(mistakes)} (must be 0)")
    for a in mistakes:
        assert a.accepted is not None
        over = f"certain {a.point.use.certain_bytes}, limit {a.point.limit_bytes}"
        print(f"  {a.point}: {a.point.misaligned or over}; used {a.accepted.vmem_used_bytes}")
    print("\nrefused by the compiler, allowed by our rules:")
    for reason, n in allowed_but_refused(answers).most_common():
        print(f"  {n:4d}  {reason}")
    share = _report_saved(answers)
    explained = _report_bytes(answers, caused)
    return not mistakes and share >= REQUIRED_SAVED and explained and len(answers) >= count


def _report_saved(answers: Sequence[PointAnswer]) -> float:
    """The share over candidates that a search may propose: no block is larger than its array."""
    possible = saved([a for a in answers if not a.point.exceeds_arrays])
    beyond = saved([a for a in answers if a.point.exceeds_arrays])
    timeouts = sum(isinstance(a.outcome, TimedOut) for a in answers)
    print("\ncompile time of VMEM-infeasible candidates saved by knowing them beforehand,")
    print("because they cannot fit, or are expected not to and are asked under a higher limit:")
    print(f"  {possible} (at least {REQUIRED_SAVED:.0%})")
    print(f"  with blocks larger than their arrays, which no search proposes: {beyond}")
    print(f"  {timeouts} points hit the limit of {LIMIT_S:.0f} s, which counts as their time")
    missed = [a for a in answers if a.is_vmem_infeasible and not a.point.is_spared]
    for a in sorted(missed, key=lambda a: -a.seconds)[:8]:
        use = a.point.use
        print(
            f"  not known: {a.seconds:5.1f} s, certain {use.certain_bytes / MIB:.1f}, expected "
            f"{use.expected_bytes / MIB:.1f}, limit {a.point.limit_bytes / MIB:.1f} MiB: {a.point}"
        )
    return possible.share


def _report_bytes(
    answers: Sequence[PointAnswer], caused: Sequence[tuple[PointAnswer, Cause]]
) -> bool:
    ratios = sorted(_ratio(a) for a in answers if a.accepted)
    print(f"\nVMEM bytes, compiler / ours, {len(ratios)} accepted points:")
    for share in (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1):
        print(f"  {share:4.0%} {ratios[min(len(ratios) - 1, int(share * len(ratios)))]:8.3f}")
    print(f"  within 10 %: {sum(abs(r - 1) <= TOLERANCE for r in ratios)} of {len(ratios)}")
    print(f"\ncauses of the {len(caused)} differences above 10 %:")
    for name, n in Counter(c.name for _, c in caused).most_common():
        print(f"  {n:4d}  {name}")
    for answer, why in sorted(caused, key=lambda pair: pair[1].name):
        print(f"  {_ratio(answer):7.3f}  {why}  {answer.point}")
    return all(why.is_known for _, why in caused)


def as_data(
    answers: Sequence[PointAnswer], caused: Sequence[tuple[PointAnswer, Cause]]
) -> list[object]:
    named = {id(answer): why for answer, why in caused}
    return [
        {
            "point": str(a.point),
            "stratum": a.point.stratum,
            "misaligned": a.point.misaligned,
            "over_vmem": a.point.is_over_vmem,
            "expected_bytes": a.point.use.expected_bytes,
            "certain_bytes": a.point.use.certain_bytes,
            "limit_bytes": a.point.limit_bytes,
            "used_bytes": a.accepted.vmem_used_bytes if a.accepted else None,
            "outcome": "accepted" if a.accepted else a.outcome.kind,  # type: ignore[union-attr]
            "reason": "" if a.accepted else reason_of(a.outcome),  # type: ignore[arg-type]
            "seconds": round(a.seconds, 3),
            "cause": str(named[id(a)]) if id(a) in named else None,
        }
        for a in answers
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=330)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compilers", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="also write every point to FILE")
    options = parser.parse_args()
    with CompilerPool(options.compilers, limit_s=LIMIT_S) as pool:
        print(pool.ask(DescribeToolchain()))
        answers = ask(pool, choose(pool, options.points, Random(options.seed)))
    caused = causes(answers)
    met = report(answers, caused, options.points)
    if options.json:
        Path(options.json).write_text(json.dumps(as_data(answers, caused), indent=1))
    print("\nall required figures are met" if met else "\na required figure is MISSED")
    return 0 if met else 1
