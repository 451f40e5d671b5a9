"""A ``ShapeRule`` of some records: made, judged on problems left out, and verified."""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import gcd, isfinite, log
from statistics import mean, median

from autotune.answering.matching import NEAREST, Index
from autotune.answering.nearest_shape import size_of
from autotune.answering.rule_answers import ruled_config, unshown_config
from autotune.domain.compilers import Compilers, ListChoices, VerifyConfig
from autotune.domain.evidence import Verdict
from autotune.domain.key import KernelRef, KernelSpec, Key
from autotune.domain.outcome import WrongResult
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Record, Trial
from autotune.domain.rule import NoRule, RuleRefusal, ShapeRule
from autotune.domain.store import Store
from autotune.domain.trace import Trace
from autotune.estimating.simulator import MODEL
from autotune.estimating.vmem import vmem_use
from autotune.publishing.publish import wrong_result
from autotune.searching.one_config import ConfigJudge, config_judge, keep_trials, trace_one
from autotune.searching.subject import describe_subject
from autotune.tables import rule_fit

MOST_REGRET = 0.1  # of any problem left out: a rule that is worse anywhere is not published
_MOST_ROUNDS = 3
_BEATS_NOTHING = NoRule(cause=RuleRefusal.BEATS_NOTHING)
_OTHER_PROBLEMS = 8  # of the range, for what is compiled to be shown to be safe


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


def judged(rule: ShapeRule, answers: Sequence[LeftOut]) -> ShapeRule | NoRule:
    """With its regrets, over all the problems that it answers, or why it is not to be published.
    The default and the nearest record are judged where there is one."""
    answered = [(a.rule, a) for a in answers if a.is_answered and a.rule is not None]
    if len(answered) < rule_fit.FEWEST_ANSWERED:
        return NoRule(
            cause=RuleRefusal.FEW_ANSWERED,
            count=len(answered),
            left_out=len(answers),
            needed=rule_fit.FEWEST_ANSWERED,
        )
    regrets = [regret for regret, _ in answered]
    worst, slowest = max(answered, key=lambda pair: pair[0])
    if worst > MOST_REGRET:
        return NoRule(
            cause=RuleRefusal.TOO_SLOW,
            count=len(regrets),
            problem=slowest.key.problem,
            worst_regret=worst,
            median_regret=median(regrets),
            most_regret=MOST_REGRET,
        )
    near = [(regret, a.nearest) for regret, a in answered if a.nearest is not None]
    default = [(regret, a.default) for regret, a in answered if a.default is not None]
    if not near or not all(_beats(pairs) for pairs in (near, default) if pairs):
        return _BEATS_NOTHING
    return replace(
        rule,
        left_out=len(answers),
        problems=len(regrets),
        median_regret=median(regrets),
        worst_regret=worst,
        nearest_regret=median(regret for _, regret in near),
        default_regret=median(regret for _, regret in default) if default else None,
    )


def best_form(
    forms: Iterable[tuple[ShapeRule | None, Sequence[LeftOut]]],
) -> tuple[ShapeRule | NoRule, Sequence[LeftOut]]:
    """The form that lost the least of those that may be published, and what it is judged by; where
    there is none, why the first one may not."""
    each = [(judged(rule, answers) if rule else _BEATS_NOTHING, answers) for rule, answers in forms]
    good = [form for form in each if isinstance(form[0], ShapeRule)]
    return min(good, key=lambda form: _lost(form[1]), default=each[0])


def _lost(answers: Sequence[LeftOut]) -> float:
    """The mean of the logarithms of all times, where there is no answer those of the nearest
    record."""
    regrets = [answer.rule if answer.is_answered else answer.nearest for answer in answers]
    return _mean_log(regret for regret in regrets if regret is not None)


def _beats(pairs: Sequence[tuple[float, float]]) -> bool:
    rules, others = zip(*pairs, strict=True)
    return _mean_log(rules) < _mean_log(others)


def _mean_log(regrets: Iterable[float]) -> float:
    return mean(log(1 + regret) for regret in regrets)


@dataclass(slots=True, kw_only=True)
class RuleMaker:
    """Makes a rule from what was compiled for the problems of some ``records``, and compiles what
    it would have answered for each of them: these trials are kept, and teach the next round."""

    pool: Compilers
    store: Store
    ref: KernelRef
    spec: KernelSpec
    records: Sequence[Record]
    left_out: Sequence[LeftOut] = ()
    _judges: dict[Key, ConfigJudge] = field(default_factory=dict)
    _trials: dict[Key, list[Trial]] = field(default_factory=dict)
    _most: dict[str, int] = field(default_factory=dict)
    _passed: rule_fit.Passed = ()

    def make(self) -> ShapeRule | NoRule:
        """Judged by what is in ``left_out`` then; or why there is none, as where the gate does not
        pass all that it answers, or has called any config of these problems wrong."""
        self._trials = {record.key: list(self.store.trials(record.key)) for record in self.records}
        all_trials = chain.from_iterable(self._trials.values())
        wrong = sum(isinstance(trial.outcome, WrongResult) for trial in all_trials)
        if wrong:
            return NoRule(cause=RuleRefusal.WRONG_BEFORE, count=wrong)
        if len(self._known()) <= rule_fit.FEWEST_PROBLEMS:  # one of them is left out
            return NoRule(
                cause=RuleRefusal.FEW_KNOWN,
                count=len(self._known()),
                needed=rule_fit.FEWEST_PROBLEMS + 1,
            )
        self._passed, grows = self._passed_first(), self._growing()
        self._show_more(grows)
        for _ in range(_MOST_ROUNDS):
            before = sum(map(len, self._trials.values()))
            answers = [self._leave_out(key, grows) for key in self._known()]
            if sum(map(len, self._trials.values())) == before:
                break
        forms = zip(self._forms(grows), zip(*answers, strict=True), strict=True)
        best, self.left_out = best_form(forms)
        if isinstance(best, NoRule):
            return best
        return next(filter(None, map(self._gate, self.left_out)), None) or best

    def _known(self) -> rule_fit.Known:
        return rule_fit.known_of(list(self._trials.items()))

    def _passed_first(self) -> list[tuple[Key, Config]]:
        """With what need not divide, where the gate passes it."""
        passed = [(r.key, r.config) for r in self.records if r.verified and not r.pushed_by]
        for key, config in (
            rule_fit.undivided(self._known(), passed, self.spec.cuts) if passed else ()
        ):
            if self._verdict(key, config).ok:
                passed.append((key, config))
        return passed

    def _verdict(self, key: Key, config: Config) -> Verdict:
        return self.pool.ask(
            VerifyConfig(ref=self.ref, problem=key.problem, config=config, chip=key.chip)
        )

    def _gate(self, answer: LeftOut) -> NoRule | None:
        """Why an answer is not known to be right; None where it is, or where there is none."""
        key = answer.key
        trial = next((t for t in self._trials[key] if t.config == answer.config), None)
        if trial is None or trial.estimate is None or (key, trial.config) in self._passed:
            return None
        verdict = self._verdict(key, trial.config)
        if verdict.ok:
            return None
        if verdict.ok is False:
            self.store.replace_outcome(key, trial.config, wrong_result(trial.estimate, verdict))
        cause = RuleRefusal.WRONG if verdict.ok is False else RuleRefusal.UNVERIFIED
        return NoRule(cause=cause, problem=key.problem, config=trial.config, gate=verdict)

    def _forms(self, grows: Sequence[str], without: Key | None = None) -> list[ShapeRule | None]:
        """Costs, more of them, and those without traffic, of all problems but one."""
        known = {key: pairs for key, pairs in self._known().items() if key != without}
        passed = [pair for pair in self._passed if pair[0] != without]
        rule = self._costs(known, passed, grows)
        more = self._costs(known, passed, grows, each_block=True)
        plain = self._costs(known, passed, grows, traffic=False) if rule and rule.hbm else None
        return [rule, more, plain]

    def _costs(
        self, known: rule_fit.Known, passed: rule_fit.Passed, grows: Sequence[str], **form: bool
    ) -> ShapeRule | None:
        return rule_fit.make_rule(known, passed, self.spec.cuts, grows, self._most_of(), **form)

    def _show_more(self, grows: Sequence[str]) -> None:
        """What would be given for other problems of the range, if it were known to be safe, is
        compiled for the smallest known one that is no shorter anywhere."""
        draw = random.Random(0)  # noqa: S311 (no secret)
        keys = sorted(self._known(), key=lambda key: size_of(key.problem))
        for _ in range(_OTHER_PROBLEMS):
            rule, key = self._costs(self._known(), self._passed, grows), draw.choice(keys)
            alike = [other for other in keys if self._uncut(other) == self._uncut(key)]
            problem = key.problem
            for dim in dict.fromkeys(dim for _, dim in self.spec.cuts):
                sizes = [other.problem[dim] for other in alike]
                size = min(sizes) * (max(sizes) / min(sizes)) ** draw.random()
                problem = problem.with_dims(**{dim: round(size / gcd(*sizes)) * gcd(*sizes)})
            config = rule and unshown_config(rule, problem)
            larger = (k for k in alike if all(k.problem[n] >= size for n, size in problem.dims))
            if config and (smallest := next(larger, None)):
                self._time_us(smallest, config)

    def _uncut(self, key: Key) -> list[tuple[str, int]]:
        cut = {dim for _, dim in self.spec.cuts}
        return [(name, size) for name, size in key.problem.dims if name not in cut]

    def _most_of(self) -> Mapping[str, int]:
        """The largest value that the kernel declares of each axis, for any of the problems."""
        for key in {} if self._most else self._known():
            for name, values in self.pool.ask(
                ListChoices(ref=self.ref, problem=key.problem, chip=key.chip)
            ).axes.items():
                largest = max((value for value in values if type(value) is int), default=0)
                self._most[name] = max(largest, self._most.get(name, 0))
        return self._most

    def _leave_out(self, key: Key, grows: Sequence[str]) -> list[LeftOut]:
        """The problem answered by each form of a rule, and by an index, of the others."""
        forms = self._forms(grows, without=key)
        configs = [ruled_config(rule, key.problem) if rule else None for rule in forms]
        others = [replace(record, rule=None) for record in self.records if record.key != key]
        nearest = Index(others, [self.spec]).match(key, (NEAREST,)).config
        default = self._default(key)
        # What may be better is tried. At the ends of the range, where no form answers, what a rule
        # of all problems gives is tried too: it proves more blocks to be safe for other problems.
        for rule in filter(None, [*forms, *([] if any(configs) else self._forms(grows))]):
            for config in (ruled_config(rule, key.problem), unshown_config(rule, key.problem)):
                if config is not None:
                    self._time_us(key, config)
        default_us, near_us, *rule_us = (
            None if config is None else self._time_us(key, config)
            for config in (default, nearest, *configs)
        )
        best_us = min(estimate.time_us for _, estimate in self._known()[key])
        plain = None if default_us is None or not isfinite(default_us) else default_us / best_us - 1
        near, *regrets = (plain if us is None else us / best_us - 1 for us in (near_us, *rule_us))
        return [
            LeftOut(key=key, rule=regret, nearest=near, default=plain, config=config)
            for config, regret in zip(configs, regrets, strict=True)
        ]

    def _time_us(self, key: Key, config: Config) -> float:
        """Infinite where it does not compile."""
        trials = self._trials[key]
        trial = next((t for t in trials if t.config == config), None)
        if trial is None:
            began = time.monotonic()
            outcome = self._judge(key).outcome(config)
            seconds = time.monotonic() - began
            new, default = [(config, outcome, seconds)], self._default(key)
            (trial,) = keep_trials(self.store, key, trials, new, default=default)
        elif trial.estimate and trial.estimate.model != MODEL:
            place, outcome = trials.index(trial), self._judge(key).outcome(config)
            self.store.replace_outcome(key, trial.config, outcome)
            trial = trials[place] = replace(trial, outcome=outcome)
        return trial.time_us or float("inf")

    def _default(self, key: Key) -> Config | None:
        return next(record for record in self.records if record.key == key).default.config

    def _judge(self, key: Key) -> ConfigJudge:
        if key not in self._judges:
            subject = describe_subject(self.pool, self.ref, key.chip, key.problem)
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
