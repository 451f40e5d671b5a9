"""A ``ShapeRule`` from all that was compiled of a kernel, judged on problems left out."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, permutations
from math import gcd, log
from statistics import mean, median
from typing import Any, Protocol

import numpy as np
from scipy.optimize import nnls

from autotune.candidates.vmem import vmem_use
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.rule import BlockAxis, CompiledBlocks, CostTerm, ShapeRule
from autotune.domain.trace import Trace
from autotune.domain.trial import Trial
from autotune.lookups import rules
from autotune.lookups.matching import NEAREST, Index, ruled_config
from autotune.ports.compilers import Compilers
from autotune.searching.one_config import ConfigJudge, config_judge, trace_one
from autotune.searching.subject import describe_subject
from autotune.wording import match as words

FEWEST_PROBLEMS = 8
MOST_REGRET = 0.1  # of any problem left out: a rule that is worse anywhere is not published
_MOST_ROUNDS = 3
_NEAR = 1.5  # times the best of its problem: sizes of slower ones are not offered
_MOST_COMPILED = 200  # that a rule carries

Known = Mapping[Key, Sequence[tuple[Config, Estimate]]]
"""What was compiled, by problem; the default first."""


class RuleStore(Protocol):
    """What was tried, and one more trial."""

    def trials(self, key: Key) -> Sequence[Trial]:
        """All trials of a key, by number."""

    def save_trial(self, key: Key, trial: Trial) -> bool:
        """Whether it was new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A problem, and how much longer than the best that is known of it each answer takes, as a
    share; the default's where there is no answer."""

    key: Key
    rule: float
    nearest: float
    default: float
    is_answered: bool


def known_of(found: Sequence[tuple[Key, Sequence[Trial]]]) -> Known:
    """Trials that teach: all but those of others, and those without a time."""
    own = {
        key: [(t.config, t.estimate) for t in trials if t.estimate and not t.pushed_by]
        for key, trials in found
    }
    return {key: pairs for key, pairs in own.items() if pairs}


def make_rule(
    known: Known, cuts: Sequence[tuple[str, str]], grows: Sequence[str] = ()
) -> ShapeRule | None:
    """None where too little is known. It is not judged yet."""
    if len(known) < FEWEST_PROBLEMS:
        return None
    usual = _usual(known)
    rows = [
        (dict(key.problem.dims), config, estimate)
        for key, pairs in known.items()
        for config, estimate in pairs
        if _fixed(config) == usual
    ]
    if not rows:
        return None
    names = [name for name, value in rows[0][1].axes if type(value) is int]
    cut = dict(cuts)
    dims = list(rows[0][0])
    least = {name: min(own[name] for own, _, _ in rows) for name in dims}
    most = {name: max(own[name] for own, _, _ in rows) for name in dims}
    free = [name for name in dims if name not in cut.values() and least[name] < most[name]]
    good = _good(known)
    blank = ShapeRule(
        made_at=datetime.now(UTC),
        least=tuple(least.items()),
        most=tuple(most.items()),
        axes=tuple(_axis(name, cut.get(name, ""), rows, good) for name in names),
        divides=tuple(_divides(rows, names, cut)),
        grows=tuple(grows),
        runs=(),
        inside=(),
        compiled=_compiled(rows, cut),
        costs=(),
    )
    each = [
        _fitted(replace(blank, runs=runs, inside=tuple(n for n in free if n not in runs)), rows)
        for count in range(len(free) + 1)
        for runs in combinations(free, count)
    ]
    return min(each, key=lambda pair: pair[0])[1]


def judged(rule: ShapeRule, found: Sequence[LeftOut]) -> ShapeRule | str:
    """With its regrets, over all the problems that it answers; or why it is not to be published."""
    answered = [one for one in found if one.is_answered]
    if len(answered) < FEWEST_PROBLEMS:
        return words.few_answered(len(answered), len(found), FEWEST_PROBLEMS)
    own = [one.rule for one in answered]
    worst = max(answered, key=lambda one: one.rule)
    if worst.rule > MOST_REGRET:
        return words.too_slow(worst.key.problem, worst.rule, median(own), len(own), MOST_REGRET)
    means = [
        mean(log(1 + getattr(one, name)) for one in answered)
        for name in ("rule", "nearest", "default")
    ]
    if means[0] >= min(means[1:]):
        return words.BEATS_NOTHING
    return replace(
        rule,
        left_out=len(found),
        problems=len(answered),
        median_regret=median(own),
        worst_regret=worst.rule,
        nearest_regret=median(one.nearest for one in answered),
        default_regret=median(one.default for one in answered),
    )


@dataclass(slots=True, kw_only=True)
class RuleMaker:
    """Makes a rule from what was compiled for the problems of some ``records``, and compiles what
    it would have answered for each of them: these trials are kept, and teach the next round."""

    pool: Compilers
    store: RuleStore
    ref: KernelRef
    spec: KernelSpec
    records: Sequence[Record]
    left_out: list[LeftOut] = field(default_factory=list)
    _judges: dict[Key, ConfigJudge] = field(default_factory=dict)
    _trials: dict[Key, list[Trial]] = field(default_factory=dict)

    def make(self) -> ShapeRule | str:
        """Judged by what is in ``left_out`` then; or why there is none."""
        self._trials = {one.key: list(self.store.trials(one.key)) for one in self.records}
        if len(self._known()) < FEWEST_PROBLEMS:
            return words.few_known(len(self._known()), FEWEST_PROBLEMS)
        grows = self._growing()
        for _ in range(_MOST_ROUNDS):
            before = sum(map(len, self._trials.values()))
            self.left_out = [self._leave_out(key, grows) for key in self._known()]
            if sum(map(len, self._trials.values())) == before:
                break
        rule = make_rule(self._known(), self.spec.cuts, grows)
        return judged(rule, self.left_out) if rule else words.BEATS_NOTHING

    def _known(self) -> Known:
        return known_of(list(self._trials.items()))

    def _leave_out(self, key: Key, grows: Sequence[str]) -> LeftOut:
        """The problem answered by a rule, and by an index, of the others."""
        known = self._known()
        rule = make_rule({k: v for k, v in known.items() if k != key}, self.spec.cuts, grows)
        config = ruled_config(rule, key.problem) if rule else None
        others = [replace(one, rule=None) for one in self.records if one.key != key]
        near = Index(others, [self.spec]).match(key, (NEAREST,)).config
        own = next(one for one in self.records if one.key == key)
        default_us = own.default.time_us or float("inf")
        rule_us, near_us = (
            default_us if one is None else self._time_us(key, one) for one in (config, near)
        )
        best_us = min(estimate.time_us for _, estimate in self._known()[key])
        return LeftOut(
            key=key,
            rule=rule_us / best_us - 1,
            nearest=near_us / best_us - 1,
            default=default_us / best_us - 1,
            is_answered=config is not None,
        )

    def _time_us(self, key: Key, config: Config) -> float:
        """Infinite where it does not compile."""
        trials = self._trials[key]
        trial = next((one for one in trials if one.config == config), None)
        if trial is None:
            began = time.monotonic()
            trial = Trial(
                number=max((one.number for one in trials), default=-1) + 1,
                config=config,
                outcome=self._judge(key).outcome(config),
                seconds=time.monotonic() - began,
                created_at=datetime.now(UTC),
            )
            self.store.save_trial(key, trial)
            trials.append(trial)
        return trial.estimate.time_us if trial.estimate else float("inf")

    def _judge(self, key: Key) -> ConfigJudge:
        if key not in self._judges:
            subject = describe_subject(self.pool, self.ref, key.chip, lambda _: key.problem)
            self._judges[key] = config_judge(self.pool, subject)
        return self._judges[key]

    def _growing(self) -> list[str]:
        """The dimensions that VMEM grows with although they are cut: by traces of the blocks that
        cut the most, for the problem and for one that is twice as long."""
        rows = [(key, config) for key, pairs in self._known().items() for config, _ in pairs]
        key, config = max(rows, key=lambda row: len(_cut(row[1], row[0].problem, self.spec)))
        subject = self._judge(key).subject

        def needed(problem: Problem) -> int | None:
            traced = trace_one(self.pool, replace(subject, problem=problem), config)
            if not isinstance(traced, Trace):
                return None
            return sum(vmem_use(call, subject.chip).certain_bytes for call in traced.calls)

        here = needed(key.problem)
        return [
            dim
            for dim in dict.fromkeys(dim for _, dim in self.spec.cuts)
            if here is None
            or dim not in _cut(config, key.problem, self.spec)
            or needed(key.problem.with_dims(**{dim: 2 * key.problem[dim]})) != here
        ]


def _cut(config: Config, problem: Problem, spec: KernelSpec) -> set[str]:
    """The dimensions that are more than one block by each of their axes."""
    whole = {dim for axis, dim in spec.cuts if config[axis] >= problem[dim]}
    return {dim for _, dim in spec.cuts} - whole


def _fixed(config: Config) -> tuple[Any, ...]:
    """What a rule does not choose."""
    others = [(name, value) for name, value in config.axes if type(value) is not int]
    return tuple(others), config.grid_order


def _usual(known: Known) -> tuple[Any, ...]:
    """Of the winners; of two that are as frequent the default's."""
    winners = [min(pairs, key=lambda pair: pair[1].time_us)[0] for pairs in known.values()]
    return Counter(map(_fixed, winners)).most_common(1)[0][0]


def _good(known: Known) -> set[Config]:
    return {
        config
        for pairs in known.values()
        for config, estimate in pairs
        if estimate.time_us <= _NEAR * min(own.time_us for _, own in pairs)
    }


def _axis(name: str, dim: str, rows: Sequence[Any], good: set[Config]) -> BlockAxis:
    pairs = [(config[name], dims.get(dim, 0), config in good) for dims, config, _ in rows]
    wholes = [size for size, whole, _ in pairs if size == whole]
    sizes = {size for size, whole, is_good in pairs if is_good and (not dim or size < whole)}
    return BlockAxis(
        name=name,
        dim=dim,
        sizes=tuple(sorted(sizes)),
        whole=gcd(*wholes) if wholes else 0,
        most=max(wholes, default=0),
    )


def _divides(
    rows: Sequence[Any], names: Sequence[str], cut: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Axes of one array may be bound to each other; those of different dimensions are not."""
    pairs = [
        (axis, other)
        for axis, other in permutations(names, 2)
        if cut.get(axis, "") == "" or cut.get(axis) == cut.get(other)
    ]
    pairs += [(axis, dim) for axis in names for dim in rows[0][0]]
    return [
        (axis, other)
        for axis, other in pairs
        if all({**dims, **dict(config.axes)}[other] % config[axis] == 0 for dims, config, _ in rows)
    ]


def _compiled(rows: Sequence[Any], cut: Mapping[str, str]) -> tuple[CompiledBlocks, ...]:
    """Without those that another one shows more than; the largest first."""
    found = [
        CompiledBlocks(
            config=config,
            dims=tuple(dims.items()),
            vmem_used_bytes=estimate.vmem_used_bytes,
            vmem_allowed_bytes=estimate.vmem_allowed_bytes,
        )
        for dims, config, estimate in rows
    ]
    found.sort(key=lambda one: (one.config.vmem_limit_bytes or 0, -one.vmem_used_bytes))
    kept: list[CompiledBlocks] = []
    for one in found:
        if not any(_shows(other, one, cut) for other in kept):
            kept.append(one)
    return tuple(kept[:_MOST_COMPILED])


def _shows(more: CompiledBlocks, less: CompiledBlocks, cut: Mapping[str, str]) -> bool:
    own: dict[str, Any] = dict(more.config.axes)
    its: dict[str, Any] = dict(less.config.axes)
    large, small = dict(more.dims), dict(less.dims)
    return (
        all(its[name] <= value for name, value in own.items() if type(value) is int)
        and all(small[name] <= size for name, size in large.items())
        and all(its[a] >= small[d] or own[a] < large[d] for a, d in cut.items())
    )


def _fitted(blank: ShapeRule, rows: Sequence[Any]) -> tuple[float, ShapeRule]:
    """The costs by least squares of shares, none of them negative, and how far off they are."""
    table, times_us = [], []
    terms = _terms(blank)
    for dims, config, estimate in rows:
        sizes = {axis.name: config[axis.name] for axis in blank.axes}
        steps = rules.grid_steps(blank, dims, sizes)
        table.append([rules.term_us(term, {**dims, **sizes}, steps) for term in terms])
        times_us.append(estimate.time_us)
    costs = np.array(table, dtype=float)
    scale = np.maximum(costs.max(axis=0), 1e-9)
    shares = costs / scale / np.array(times_us)[:, None]
    found, off = nnls(shares, np.ones(len(times_us)), maxiter=100 * costs.shape[1])
    each = zip(terms, found / scale, strict=True)
    return off, replace(
        blank, costs=tuple(replace(term, us=float(us)) for term, us in each if us > 0)
    )


def _terms(rule: ShapeRule) -> list[CostTerm]:
    """Of a microsecond each: for all products of sizes, each step and once, for all problems and
    for those with an array whose edge is a tile's, or is not."""
    names = [*(axis.name for axis in rule.axes), *rule.inside]
    products = [some for n in range(len(names) + 1) for some in combinations(names, n)]
    dims = dict.fromkeys(axis.dim for axis in rule.axes if axis.dim)
    where = [
        ("", True, ""),
        *((dim, aligned, "") for dim in dims for aligned in (True, False)),
        *((axis.dim, True, axis.name) for axis in rule.axes if axis.dim),
    ]
    return [
        CostTerm(us=1.0, of=of, each_step=each_step, dim=dim, aligned=aligned, axis=axis)
        for dim, aligned, axis in where
        for each_step in (True, False)
        for of in products
    ]
