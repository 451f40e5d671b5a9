"""A ``ShapeRule`` from all that was compiled of a kernel, judged on problems left out."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, permutations
from math import ceil, gcd, isfinite, log, prod
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.optimize import nnls

from autotune.candidates.vmem import vmem_use
from autotune.cost_model.estimate import MODEL
from autotune.domain.config import AxisValue, Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate, WrongResult
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.rule import BlockAxis, CompiledBlocks, CostTerm, ShapeRule
from autotune.domain.trace import Trace
from autotune.domain.trial import Trial
from autotune.lookups import rules
from autotune.lookups.matching import NEAREST, Index, ruled_config
from autotune.ports import SearchStore
from autotune.ports.compilers import Compilers
from autotune.publishing.publish import wrong_result
from autotune.searching.evaluation import keep_trial
from autotune.searching.one_config import ConfigJudge, config_judge, trace_one
from autotune.searching.subject import describe_subject
from autotune.wording import match as words

FEWEST_PROBLEMS = 8
MOST_REGRET = 0.1  # of any problem left out: a rule that is worse anywhere is not published
_MOST_ROUNDS = 3
_NEAR = 1.5  # times the best of its problem: sizes of slower ones are not offered
_MOST_NAMES = 3  # in a product that costs: with all of them there are too many products

Known = Mapping[Key, Sequence[tuple[Config, Estimate]]]
"""What was compiled, by problem; the default first."""

Passed = Mapping[Key, Config]
"""What the gate has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A problem, and how much longer than the best that is known of it each answer takes, as a
    share: infinite where the ``config`` of the rule does not compile, the default's where there is
    no answer, None where no default compiles either."""

    key: Key
    rule: float | None
    nearest: float | None
    default: float | None
    config: Config | None = None

    @property
    def is_answered(self) -> bool:
        return self.config is not None


def known_of(found: Sequence[tuple[Key, Sequence[Trial]]]) -> Known:
    """Trials that teach: all but those of others, and those without a time of this model."""
    own = {
        key: [
            (t.config, t.estimate)
            for t in trials
            if t.estimate and t.estimate.model == MODEL and not t.pushed_by
        ]
        for key, trials in found
    }
    return {key: pairs for key, pairs in own.items() if pairs}


def make_rule(
    known: Known, passed: Passed, cuts: Sequence[tuple[str, str]], grows: Sequence[str] = ()
) -> ShapeRule | None:
    """None where too little is known. It is not judged yet.

    What compiled need not be right: it divides what all that ``passed`` divides."""
    if len(known) < FEWEST_PROBLEMS or not passed:
        return None
    usual = _usual(passed)
    rows = [
        (dict(key.problem.dims), config, estimate)
        for key, pairs in known.items()
        for config, estimate in pairs
        if _fixed(config) == usual
    ]
    right = [(dict(k.problem.dims), one) for k, one in passed.items() if _fixed(one) == usual]
    if not rows:
        return None
    names = [name for name, value in rows[0][1].axes if _is_size(value)]
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
        axes=_few([_axis(name, cut.get(name, ""), rows, good) for name in names], rows, good),
        divides=tuple(_divides(right, names, cut)),
        grows=tuple(grows),
        runs=(),
        inside=(),
        compiled=_compiled(rows, cut),
        costs=(),
    )
    each = [
        _fitted(replace(blank, runs=runs, inside=tuple(n for n in free if n not in runs)), rows)
        for count in range(min(len(free), _MOST_NAMES) + 1)
        for runs in combinations(free, count)
    ]
    made = min(each, key=lambda pair: pair[0])[1]
    return made if rules.is_small(made) else None


def judged(rule: ShapeRule, found: Sequence[LeftOut]) -> ShapeRule | str:
    """With its regrets, over all the problems that it answers, or why it is not to be published.
    The default and the nearest record are judged where there is one."""
    answered = [(one.rule, one) for one in found if one.is_answered and one.rule is not None]
    if len(answered) < FEWEST_PROBLEMS:
        return words.few_answered(len(answered), len(found), FEWEST_PROBLEMS)
    own = [regret for regret, _ in answered]
    worst, slowest = max(answered, key=lambda pair: pair[0])
    if worst > MOST_REGRET:
        return words.too_slow(slowest.key.problem, worst, median(own), len(own), MOST_REGRET)
    near = [(regret, one.nearest) for regret, one in answered if one.nearest is not None]
    default = [(regret, one.default) for regret, one in answered if one.default is not None]
    if not near or not all(_beats(pairs) for pairs in (near, default) if pairs):
        return words.BEATS_NOTHING
    return replace(
        rule,
        left_out=len(found),
        problems=len(own),
        median_regret=median(own),
        worst_regret=worst,
        nearest_regret=median(regret for _, regret in near),
        default_regret=median(regret for _, regret in default) if default else None,
    )


def _beats(pairs: Sequence[tuple[float, float]]) -> bool:
    own, other = zip(*pairs, strict=True)
    return mean(log(1 + one) for one in own) < mean(log(1 + one) for one in other)


@dataclass(slots=True, kw_only=True)
class RuleMaker:
    """Makes a rule from what was compiled for the problems of some ``records``, and compiles what
    it would have answered for each of them: these trials are kept, and teach the next round."""

    pool: Compilers
    store: SearchStore
    ref: KernelRef
    spec: KernelSpec
    records: Sequence[Record]
    left_out: list[LeftOut] = field(default_factory=list)
    _judges: dict[Key, ConfigJudge] = field(default_factory=dict)
    _trials: dict[Key, list[Trial]] = field(default_factory=dict)

    def make(self) -> ShapeRule | str:
        """Judged by what is in ``left_out`` then; or why there is none, as where the gate does not
        pass all that it answers, or has called any config of these problems wrong."""
        self._trials = {one.key: list(self.store.trials(one.key)) for one in self.records}
        wrong = sum(
            isinstance(t.outcome, WrongResult) for own in self._trials.values() for t in own
        )
        if wrong:
            return words.wrong_before(wrong)
        if len(self._known()) < FEWEST_PROBLEMS:
            return words.few_known(len(self._known()), FEWEST_PROBLEMS)
        grows = self._growing()
        for _ in range(_MOST_ROUNDS):
            before = sum(map(len, self._trials.values()))
            self.left_out = [self._leave_out(key, grows) for key in self._known()]
            if sum(map(len, self._trials.values())) == before:
                break
        rule = make_rule(self._known(), self._passed(), self.spec.cuts, grows)
        found = judged(rule, self.left_out) if rule else words.BEATS_NOTHING
        if isinstance(found, str):
            return found
        return next(filter(None, map(self._gate, self.left_out)), None) or found

    def _known(self) -> Known:
        return known_of(list(self._trials.items()))

    def _passed(self) -> Passed:
        return {r.key: r.config for r in self.records if r.verified and not r.pushed_by}

    def _gate(self, one: LeftOut) -> str:
        """Why an answer is not known to be right; empty where it is, or where there is none."""
        trial = next((t for t in self._trials[one.key] if t.config == one.config), None)
        if trial is None or trial.estimate is None or self._passed().get(one.key) == trial.config:
            return ""
        problem = one.key.problem
        verdict = self.pool.verify(self.ref, problem, trial.config, one.key.chip)
        if verdict.ok:
            return ""
        if verdict.ok is False:
            self.store.replace_outcome(one.key, trial.number, wrong_result(trial, verdict))
        return words.not_passed(problem, trial.config, verdict)

    def _leave_out(self, key: Key, grows: Sequence[str]) -> LeftOut:
        """The problem answered by a rule, and by an index, of the others."""
        known = {k: pairs for k, pairs in self._known().items() if k != key}
        passed = {k: config for k, config in self._passed().items() if k != key}
        rule = make_rule(known, passed, self.spec.cuts, grows)
        config = ruled_config(rule, key.problem) if rule else None
        others = [replace(one, rule=None) for one in self.records if one.key != key]
        near = Index(others, [self.spec]).match(key, (NEAREST,)).config
        default = next(one for one in self.records if one.key == key).default.config
        default_us, rule_us, near_us = (
            None if one is None else self._time_us(key, one) for one in (default, config, near)
        )
        best_us = min(estimate.time_us for _, estimate in self._known()[key])
        plain = None if default_us is None or not isfinite(default_us) else default_us / best_us - 1
        return LeftOut(
            key=key,
            rule=plain if rule_us is None else rule_us / best_us - 1,
            nearest=plain if near_us is None else near_us / best_us - 1,
            default=plain,
            config=config,
        )

    def _time_us(self, key: Key, config: Config) -> float:
        """Infinite where it does not compile."""
        trials = self._trials[key]
        trial = next((one for one in trials if one.config == config), None)
        if trial is None:
            began = time.monotonic()
            outcome = self._judge(key).outcome(config)
            trial = keep_trial(self.store, key, trials, config, outcome, time.monotonic() - began)
        elif trial.estimate and trial.estimate.model != MODEL:
            place, outcome = trials.index(trial), self._judge(key).outcome(config)
            self.store.replace_outcome(key, trial.number, outcome)
            trial = trials[place] = replace(trial, outcome=outcome)
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
    others = [(name, value) for name, value in config.axes if not _is_size(value)]
    return tuple(others), config.grid_order, config.dimension_semantics


def _is_size(value: AxisValue) -> bool:
    return type(value) is int and value > 0


def _usual(passed: Passed) -> tuple[Any, ...]:
    return Counter(map(_fixed, passed.values())).most_common(1)[0][0]


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


def _few(
    axes: list[BlockAxis], rows: Sequence[Any], good: Collection[Config]
) -> tuple[BlockAxis, ...]:
    """Without the sizes that were good for the fewest problems, where all of them are too many to
    be tried while a model waits."""
    seen = Counter(
        (axis.name, config[axis.name]) for axis in axes for _, config, _ in rows if config in good
    )
    while prod(len(axis.sizes) + bool(axis.whole) for axis in axes) > rules.MOST_SIZES:
        place, axis = max(enumerate(axes), key=lambda pair: len(pair[1].sizes))
        if not axis.sizes:
            break
        least = min(axis.sizes, key=lambda size: (seen[axis.name, size], size))
        axes[place] = replace(axis, sizes=tuple(size for size in axis.sizes if size != least))
    return tuple(axes)


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
        if all({**dims, **dict(config.axes)}[other] % config[axis] == 0 for dims, config in rows)
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
    return tuple(kept[: rules.MOST_COMPILED])


def _shows(more: CompiledBlocks, less: CompiledBlocks, cut: Mapping[str, str]) -> bool:
    own: dict[str, Any] = dict(more.config.axes)
    its: dict[str, Any] = dict(less.config.axes)
    large, small = dict(more.dims), dict(less.dims)
    return (
        all(its[name] <= value for name, value in own.items() if _is_size(value))
        and all(small[name] == size for name, size in large.items() if name not in cut.values())
        and all(small[name] <= size for name, size in large.items())
        and all(its[a] >= small[d] or own[a] < large[d] for a, d in cut.items())
    )


def _fitted(blank: ShapeRule, rows: Sequence[Any]) -> tuple[float, ShapeRule]:
    """The costs by least squares of shares, none of them negative, and how far off they are."""
    table, times_us = [], []
    terms = _terms(blank)
    for dims, config, estimate in rows:
        both = {**dims, **{axis.name: config[axis.name] for axis in blank.axes}}
        table.append([term_us(blank, term, both) for term in terms])
        times_us.append(estimate.time_us)
    costs = np.array(table, dtype=float)
    scale = np.maximum(costs.max(axis=0), 1e-9)
    shares = costs / scale / np.array(times_us)[:, None]
    found, off = nnls(shares, np.ones(len(times_us)), maxiter=100 * costs.shape[1])
    each = zip(terms, found / scale, strict=True)
    return off, replace(
        blank, costs=tuple(replace(term, us=float(us)) for term, us in each if us > 0)
    )


def term_us(rule: ShapeRule, term: CostTerm, both: Mapping[str, int]) -> float:
    """One of the costs of a call; ``both``: dimensions and sizes."""
    if term.axis:
        if both[term.dim] % both[term.axis] == 0:
            return 0.0
    elif term.dim and (both[term.dim] % rules.LANES == 0) != term.aligned:
        return 0.0
    us: float = term.us * prod(both[name] for name in term.of)
    if not term.each_step:
        return us
    blocks = (ceil(both[axis.dim] / both[axis.name]) for axis in rule.axes if axis.dim)
    return us * prod(blocks) * prod(both[name] for name in rule.runs)


def _terms(rule: ShapeRule) -> list[CostTerm]:
    """Of a microsecond each: for products of sizes, each step and once, for all problems and
    for those with an array whose edge is a tile's, or is not."""
    names = [*(axis.name for axis in rule.axes), *rule.inside]
    products = [some for n in range(_MOST_NAMES + 1) for some in combinations(names, n)]
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
