"""What to change in a kernel: each mechanical change is made, compiled, simulated and verified."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from autotune.compiling.protocol import ListChanges, PossibleChanges, ProfileConfig, Profiled
from autotune.declaring.edits import diff, edited
from autotune.domain import compilers as questions
from autotune.domain.change import ChangeKind, Place, SourceChange
from autotune.domain.comparison import Comparison, NamedEstimate, compare
from autotune.domain.evidence import Verdict
from autotune.domain.finding import (
    Advice,
    MissingCost,
    Observation,
    SourceFinding,
    observations,
    sparse_operands,
)
from autotune.domain.outcome import Estimated, Outcome
from autotune.domain.problem import Config
from autotune.domain.profile import SourceLine
from autotune.domain.trace import Trace
from autotune.estimating import legality
from autotune.searching.one_config import outcome_of, trace_one
from autotune.searching.subject import Subject

_FEWER_BYTES = 0.95  # of those that a grid order moves, for another to be tried
_ORDERS = 2
_SMALL = 0.02  # of the time, for a change to go with others

Announce = Callable[[str, int], None]
"""Hears what is done next, and how often."""


def advise(
    compilers: questions.Compilers, subject: Subject, config: Config, announce: Announce
) -> Advice:
    """All that is faster by more than the model can mistake, and right as far as the gate knows."""
    return _Adviser(compilers, subject, config, announce).advice()


@dataclass(frozen=True)
class _Adviser:
    compilers: questions.Compilers
    subject: Subject
    config: Config
    announce: Announce

    def advice(self) -> Advice:
        (base,) = self._compiled([()])
        before = base if isinstance(base, Estimated) else None
        listed = self.compilers.ask(self.subject.question(ListChanges, config=self.config))
        all_changes = listed.changes if isinstance(listed, PossibleChanges) else ()
        traced = trace_one(self.compilers, self.subject, self.config)
        trace = traced if isinstance(traced, Trace) else None
        changes = list(self._worth_trying(all_changes, trace, before))
        best = self._fastest(changes, before)
        clear = [(change, after) for change, after in best if _is_faster(after, before)]
        small = [change for change, after in best if not _is_faster(after, before)]
        self.announce("verify", len(clear))
        findings = [self._finding((change,), before, after) for change, after in clear]
        wrong = [finding for finding in findings if finding.verdict.ok is False]
        right = [finding for finding in findings if finding not in wrong]
        changes_that_pass = [change for finding in right for change in finding.changes]
        together = self._together([*changes_that_pass, *small], before) if small else None
        return Advice(
            time_us=before.estimate.time_us if before else None,
            findings=tuple(right),
            together=together or self._together(changes_that_pass, before),
            wrong=tuple(wrong),
            tried=len(changes),
            reason="" if before else str(getattr(base, "reason", "") or base.kind),
            observations=tuple(self._observed(trace)) if before and trace else (),
            costs=tuple(self._costs(all_changes, before)),
        )

    def _fastest(
        self, changes: Sequence[SourceChange], before: Estimated | None
    ) -> list[tuple[SourceChange, Estimated]]:
        """The fastest first of those that save something; of a place and kind the fastest value."""
        self.announce("compile", len(changes))
        outcomes = self._compiled([(change,) for change in changes])
        timed = [
            (change, outcome)
            for change, outcome in zip(changes, outcomes, strict=True)
            if isinstance(outcome, Estimated) and _saved(outcome, before) >= _SMALL
        ]
        best = dict[tuple[ChangeKind, Place], tuple[SourceChange, Estimated]]()
        for change, outcome in sorted(timed, key=lambda pair: pair[1].estimate.time_us):
            best.setdefault((change.kind, change.place), (change, outcome))
        return list(best.values())

    def _costs(
        self, changes: Sequence[SourceChange], before: Estimated | None
    ) -> Iterator[MissingCost]:
        for change in changes:
            if before and change.kind is ChangeKind.COST_ESTIMATE:
                yield MissingCost(change=change, diff=self._edit((change,), before)[0])

    def _observed(self, trace: Trace) -> Iterator[Observation]:
        """No lines where this libtpu has no profile."""
        yield from sparse_operands(trace)
        answer = self.compilers.ask(self.subject.question(ProfileConfig, config=self.config))
        for profile in answer.profiles if isinstance(answer, Profiled) else ():
            yield from observations(profile)

    def _worth_trying(
        self, changes: Sequence[SourceChange], traced: Trace | None, before: Estimated | None
    ) -> Iterator[SourceChange]:
        if traced is None:
            return
        for kind, alike in groupby(sorted(changes), key=lambda change: change.kind):
            if kind.is_remedy == (before is None) and kind is not ChangeKind.COST_ESTIMATE:
                if kind is ChangeKind.SEMANTICS:
                    yield from self._parallel(traced, list(alike))
                elif kind is ChangeKind.GRID_ORDER:
                    yield from self._orders(traced, list(alike))
                elif kind is ChangeKind.BUFFERS:
                    is_split = self.subject.chip.chip.is_megacore
                    yield from (c for c in alike if c.value.endswith("x2") == is_split)
                else:
                    yield from alike

    def _parallel(self, traced: Trace, changes: Sequence[SourceChange]) -> Iterator[SourceChange]:
        """The most parallel semantics that the trace proves to be legal, where they divide the grid
        between two cores in another way."""
        chip = self.subject.chip.chip
        best = legality.semantics_variants(traced, chip)[0]
        new, old = traced.with_semantics(best), traced
        is_same = [legality.split_axis(each.grid, each.dimension_semantics) for each in (new, old)]
        letters = "".join(kind[0].upper() for kind in best)
        if chip.is_megacore and is_same[0] != is_same[1]:
            yield from (change for change in changes if change.value == letters)

    def _orders(self, traced: Trace, changes: Sequence[SourceChange]) -> Iterator[SourceChange]:
        """Those that are legal and move the fewest bytes."""
        fewer = list[tuple[int, SourceChange]]()
        for change in changes:
            other = trace_one(self.compilers, self._subject((change,)), self.config)
            if not isinstance(other, Trace) or legality.violation(other, self.subject.chip):
                continue
            moved = [sum(call.hbm_bytes for call in each.calls) for each in (traced, other)]
            if moved[1] < _FEWER_BYTES * moved[0]:
                fewer.append((moved[1], change))
        yield from (change for _, change in sorted(fewer)[:_ORDERS])

    def _together(
        self, changes: Sequence[SourceChange], before: Estimated | None
    ) -> SourceFinding | None:
        """As many as make each other faster still, be it by less than can be told apart."""
        chosen: tuple[SourceChange, ...] = ()
        best = before
        for change in changes:
            (outcome,) = self._compiled([(*chosen, change)])
            if isinstance(outcome, Estimated) and _saved(outcome, best) >= _SMALL:
                chosen, best = (*chosen, change), outcome
        if best is None or len(chosen) < 2 or not _is_faster(best, before):
            return None
        both = self._finding(chosen, before, best)
        return both if both.verdict.ok is not False else None

    def _finding(
        self, changes: tuple[SourceChange, ...], before: Estimated | None, after: Estimated
    ) -> SourceFinding:
        text, is_same = self._edit(changes, after)
        return SourceFinding(
            changes=changes,
            lines=tuple(_line(change.place) for change in changes),
            before_us=before.estimate.time_us if before else None,
            after_us=after.estimate.time_us,
            margin=_compared(before, after).margin if before else after.estimate.doubt,
            verdict=self._verified(changes),
            diff=text,
            same_program=is_same,
        )

    def _edit(self, changes: tuple[SourceChange, ...], after: Estimated) -> tuple[str, bool | None]:
        """The diff, and whether it was compiled. None is made of what compiles to another time."""
        files = {change.place.file for change in changes}
        if len(files) > 1:
            return "", None
        (file,) = files
        try:
            before = Path(file).read_text(encoding="utf-8")
            text = edited(before, changes)
        except (OSError, ValueError, SyntaxError):
            return "", None
        if text is None:
            return "", None
        made = diff(file, before, text)
        if self.subject.ref.module or Path(file) != Path(self.subject.ref.path):
            return made, None
        edited_subject = replace(self.subject, ref=replace(self.subject.ref, source=text))
        question = edited_subject.question(questions.CompileConfig, config=self.config)
        outcome = outcome_of(self.compilers.ask(question), self.subject.chip)
        is_same = (
            isinstance(outcome, Estimated) and outcome.estimate.time_us == after.estimate.time_us
        )
        return (made, True) if is_same else ("", False)

    def _compiled(self, changes: Sequence[tuple[SourceChange, ...]]) -> list[Outcome]:
        asked = [
            self._subject(each).question(questions.CompileConfig, config=self.config)
            for each in changes
        ]
        return [outcome_of(each, self.subject.chip) for each in self.compilers.ask_all(asked)]

    def _verified(self, changes: tuple[SourceChange, ...]) -> Verdict:
        """What turns checks off is checked all the same."""
        checked = tuple(c for c in changes if c.kind is not ChangeKind.NO_BOUNDS_CHECKS)
        question = self._subject(checked).question(questions.VerifyConfig, config=self.config)
        return self.compilers.ask(question)

    def _subject(self, changes: tuple[SourceChange, ...]) -> Subject:
        return replace(self.subject, ref=replace(self.subject.ref, changes=changes))


def _compared(before: Estimated, after: Estimated) -> Comparison:
    changed = NamedEstimate(name="changed", estimate=after.estimate)
    return compare(changed, NamedEstimate(name="", estimate=before.estimate))


def _is_faster(after: Estimated, before: Estimated | None) -> bool:
    """By more than the model can mistake; than what does not compile anything is."""
    return before is None or (_saved(after, before) > 0 and not _compared(before, after).tie)


def _saved(after: Estimated, before: Estimated | None) -> float:
    """The share of the time; all of it where there was none."""
    return 1.0 - after.estimate.time_us / before.estimate.time_us if before else 1.0


def _line(place: Place) -> SourceLine:
    try:
        lines = Path(place.file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    text = lines[place.line - 1].strip() if place.line <= len(lines) else ""
    return SourceLine(file=place.file, line=place.line, text=text[:200])
