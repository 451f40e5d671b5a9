"""A table, row by row: does its library ever find the row, and is it any good here and now?"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from autotune.declaring.discovery import named_kernel
from autotune.domain.comparison import margin
from autotune.domain.compilers import CheckDeclaration, Compilers, DescribeKernel
from autotune.domain.errors import InvalidInputError, KernelImportError, NoLegalConfigError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig, named
from autotune.domain.outcome import Estimate, Estimated, NotEstimated, Outcome
from autotune.domain.problem import Config, OptionValue, Problem, ProblemSpec
from autotune.domain.record import Check, CheckVerdict
from autotune.domain.store import Store
from autotune.estimating.simulator import MODEL
from autotune.publishing.checking.record_check import PriorConfig, RecordChecker
from autotune.publishing.publish import opened, running
from autotune.publishing.task import Plan, TuningObserver, TuningTask
from autotune.publishing.tuning import tune_one
from autotune.searching.one_config import config_judge
from autotune.searching.subject import SearchLimits, Subject, describe_subject
from autotune.tables.asking import LookupAnswer, ask_lookup, ask_tokamax, is_used
from autotune.tables.description import Description
from autotune.tables.formats import FoundTable
from autotune.tables.levels import difference, valued
from autotune.tables.table import TableRow


class Reach(StrEnum):
    """Whether the library's own lookup ever gets to a row."""

    REACHED = "reached"
    OTHER_ROW = "another row is found"
    FALLBACK = "the fallback is taken"
    NOT_USED = "nothing imports the table"
    REFUSED = "the lookup fails"
    NOT_ASKED = "not asked"


class RowStanding(StrEnum):
    """What a row is worth, by estimates."""

    BEST = "best that is known"
    TIE = "tie with the best"
    BEATEN = "beaten"
    NO_ESTIMATE = "compiles, no estimate"
    BROKEN = "does not compile"
    NO_PROBLEM = "not in the catalogue"
    NOT_COMPILED = "not compiled"


class Contest(StrEnum):
    """The best of what a search has tried beside the row, against the row."""

    WIN = "faster by search"
    TIE = "as fast by search"
    LOSS = "slower by search"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAudit:
    """``why``: what the lookup asks for instead, or why it has no standing; ``refused``: what
    became of a row that has no time, which compiles under ``least_limit_bytes`` where that is
    given. Times are estimates in microseconds: of the row, of what the library falls back to, of
    the best config that is known here (``best``), of the best that a search has tried beside the
    row (``searched``), with the ``contest`` of the two; each may not be verified. ``table_us``:
    what the table says."""

    table: str
    place: str
    key: str
    chip: Chip
    reach: Reach
    standing: RowStanding = RowStanding.NOT_COMPILED
    why: str = ""
    problem: str = ""
    config: str = ""
    row_us: float | None = None
    fallback_us: float | None = None
    best: str = ""
    best_us: float | None = None
    best_verified: bool = False
    table_us: float | None = None
    searched: str = ""
    searched_us: float | None = None
    searched_verified: bool = False
    contest: Contest | None = None
    refused: Outcome | None = None
    least_limit_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class _Row:
    """``known``: the config of the first kernel of the catalogue that it is for, or why not."""

    form: Description
    row: TableRow
    known: KnownConfig | str
    answer: LookupAnswer | None
    audit: RowAudit


@dataclass(slots=True, kw_only=True)
class TableAudit:
    """``assumed``: parts of problems that no table says. ``limit``: so many random rows of each
    table and chip are compiled; what was compiled before is not compiled again. ``trials``: each of
    their problems is searched first."""

    python: str
    assumed: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0
    seed: int = 0
    trials: int = 0

    def reaches(
        self, tables: Sequence[FoundTable], chips: Sequence[Chip]
    ) -> list[tuple[Chip, list[_Row]]]:
        """Which rows for those chips the libraries find; no compiler is asked."""
        asked = [
            (chip, source, [row for row in source.rows if source.format.is_for(row.key, chip)])
            for source in tables
            for chip in chips
        ]
        caches = {table.path for _, table, rows in asked if rows and _is_cache(table)}
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(caches)}
        answers = ask_tokamax(texts, self.python) if texts else {}
        return [(chip, self._reached(table, chip, rows, answers)) for chip, table, rows in asked]

    def _reached(
        self,
        source: FoundTable,
        chip: Chip,
        rows: Sequence[TableRow],
        caches: Mapping[Path, Mapping[str, LookupAnswer]],
    ) -> list[_Row]:
        answers: Sequence[LookupAnswer | None] = [None] * len(rows)
        if source.format.module and rows:
            answers = ask_lookup(source.format, rows, chip, self.python)
        elif source.path in caches:
            answers = [caches[source.path][row.path[0]] for row in rows]
        paths = {row.path for row in source.rows}
        pairs = zip(rows, answers, strict=True)
        return [_row(source, chip, row, answer, paths) for row, answer in pairs]

    def compiled(
        self,
        rows: Sequence[_Row],
        chip: Chip,
        compilers: Compilers,
        store: Store,
        watching: Callable[[], TuningObserver],
        done: Callable[[RowAudit], None],
    ) -> list[RowAudit]:
        """All of them, with the standing of a sample of those that are in the catalogue."""
        can = [place for place, row in enumerate(rows) if isinstance(row.known, KnownConfig)]
        chosen = set(random.Random(self.seed).sample(can, min(self.limit, len(can))))  # noqa: S311 (no secret)

        def judged(place: int) -> RowAudit:
            row, audit = rows[place], rows[place].audit
            if isinstance(row.known, str):
                return replace(audit, standing=RowStanding.NO_PROBLEM, why=audit.why or row.known)
            if place not in chosen:
                return audit
            try:
                judge = _Judge(compilers, store, row, chip, self.assumed)
                audit = judge.contested(self.trials, watching) if self.trials else judge.audit()
            except (InvalidInputError, KernelImportError, NoLegalConfigError) as error:
                audit = replace(audit, standing=RowStanding.NO_PROBLEM, why=str(error))
                audit = replace(audit, refused=getattr(error, "first", None))
            done(audit)
            return audit

        if self.trials:  # a search has all compilers
            return list(map(judged, range(len(rows))))
        with ThreadPoolExecutor(compilers.size, "audit") as threads:
            return list(threads.map(judged, range(len(rows))))


def _row(
    source: FoundTable,
    chip: Chip,
    row: TableRow,
    answer: LookupAnswer | None,
    paths: Collection[tuple[object, ...]],
) -> _Row:
    form = source.format
    reach, why = _reach(source, row, answer, paths)
    audit = RowAudit(
        table=form.name,
        place=row.place,
        key=named(row.key.items()),
        chip=chip,
        reach=reach,
        why=why,
        config=named(row.value.items()),
        table_us=row.time_us,
    )
    return _Row(form=form, row=row, known=_known(form, row), answer=answer, audit=audit)


def _known(form: Description, row: TableRow) -> KnownConfig | str:
    try:
        configs, why = form.configs(row)
    except ValueError as error:
        return str(error)
    return why or configs[0]


def _reach(
    source: FoundTable,
    row: TableRow,
    answer: LookupAnswer | None,
    paths: Collection[tuple[object, ...]],
) -> tuple[Reach, str]:
    """Whether the lookup gets to the row, and why not. ``paths``: of all rows of the table."""
    form = source.format
    if answer is None:
        return Reach.NOT_ASKED, ""
    if answer.path is None or (answer.error and not answer.is_reached):
        return Reach.REFUSED, answer.error or "its key cannot be asked for"
    if not answer.is_reached:
        reach = Reach.OTHER_ROW if answer.path in paths else Reach.FALLBACK
        return reach, f"its lookup asks for {_asked(form, row, answer.path)}"
    if source.folder is None or not form.module:
        return Reach.REACHED, ""
    is_alive = is_used(form.file, form.lookup, source.folder, form.used_outside)
    return Reach.REACHED if is_alive else Reach.NOT_USED, ""


def _asked(form: Description, row: TableRow, path: tuple[object, ...]) -> str:
    if not path:
        return "nothing: it does not look into its table"
    try:
        return named(difference(form, row, path).items())
    except ValueError:
        return str(path)


def _is_cache(source: FoundTable) -> bool:
    """Not an ``AutotuningResult``, whose calls are found while it is in force only."""
    return source.format.syntax == "cache" and any(row.path for row in source.rows)


@dataclass(slots=True)
class _Judge:
    """One row, compiled."""

    compilers: Compilers
    store: Store
    row: _Row
    chip: Chip
    assumed: Mapping[str, str]

    def contested(self, trials: int, watching: Callable[[], TuningObserver]) -> RowAudit:
        """After a search of so many trials, unless there was one before. It does not know the row,
        but where the kernel's default is what the library's lookup finds."""
        subject = self._subject()
        if self.store.record(subject.key) is None:
            task = TuningTask(ref=subject.ref, chip=self.chip, problem=subject.problem)
            compilers = running(self.compilers)
            plan = Plan(limits=SearchLimits(trials=trials))
            with watching() as watch:
                tuned = tune_one(compilers, opened(self.store), task, plan, watch)
            if tuned.publication is None:
                raise KeyboardInterrupt
        return self.audit(trials)

    def _subject(self) -> Subject:
        known = self.row.known
        assert isinstance(known, KnownConfig)
        ref = named_kernel(known.kernel)
        problem = self._problem(self.compilers.ask(DescribeKernel(ref=ref)).problems, known)
        subject = describe_subject(self.compilers, ref, self.chip, problem)
        self.compilers.ask(subject.question(CheckDeclaration))
        self.store.save_kernel(subject.spec)
        return subject

    def audit(self, searched: int = 0) -> RowAudit:
        """``searched``: so many trials are those of a search."""
        known, subject = self.row.known, self._subject()
        assert isinstance(known, KnownConfig)
        check = self._check(subject, dict(known.axes))
        fallback = self._fallback()
        audit = replace(
            self.row.audit,
            problem=str(subject.problem),
            config=str(check.config),
            row_us=check.after_us,
            fallback_us=check.default_us
            if fallback is None
            else self._check(subject, fallback).after_us,
        )
        audit = self._with_best(audit, subject, check)
        others = [pair for pair in self._estimates(subject, searched) if pair[0] != check.config]
        if not others or not isinstance(check.winner, Estimated):
            return audit
        config, best = min(others, key=lambda pair: pair[1].time_us)
        row = check.winner.estimate
        contest = Contest.WIN if _is_faster(best, row) else Contest.TIE
        if _is_faster(row, best):
            contest = Contest.LOSS
        return replace(
            audit,
            searched=str(config),
            searched_us=best.time_us,
            searched_verified=self._is_verified(subject, config),
            contest=contest,
        )

    def _problem(self, spec: ProblemSpec, known: KnownConfig) -> Problem:
        """Of what is assumed only that which the kernel has; a row has to mean all that it says."""
        names = {"dtype", *spec.dims, *(option.name for option in spec.options)}
        said: dict[str, OptionValue] = {n: v for n, v in self.assumed.items() if n in names}
        said |= dict(known.problem)
        dtype = said.pop("dtype", None)
        shape = ",".join(f"{name}={said.pop(name)}" for name in spec.dims if name in said)
        options = [f"{name}={value}" for name, value in said.items()]
        return spec.parse(shape, None if dtype is None else str(dtype), options)

    def _check(self, subject: Subject, axes: Mapping[str, object]) -> Check:
        config = config_judge(self.compilers, subject).read(named(axes.items()))
        prior = PriorConfig(key=subject.key, config=config, outcome=None)
        return RecordChecker(
            compilers=self.compilers, store=self.store, subject=subject, prior=prior
        ).check()

    def _fallback(self) -> Mapping[str, object] | None:
        """What the library takes for the row's problem where the table has nothing."""
        answer, form = self.row.answer, self.row.form
        if answer is None or answer.fallback is None or not form.module:
            return None
        try:
            value = valued(form, answer.fallback, made=True)
        except ValueError:
            return None
        known = _known(form, replace(self.row.row, value=value))
        return None if isinstance(known, str) else dict(known.axes)

    def _with_best(self, audit: RowAudit, subject: Subject, check: Check) -> RowAudit:
        outcome = check.winner
        if isinstance(outcome, NotEstimated):
            return replace(audit, standing=RowStanding.NO_ESTIMATE, refused=outcome)
        if not isinstance(outcome, Estimated):
            if check.verdict is CheckVerdict.NEEDS_LIMIT:
                audit = replace(audit, least_limit_bytes=check.least_limit_bytes)
            return replace(audit, standing=RowStanding.BROKEN, refused=outcome)
        config, best = min(self._estimates(subject), key=lambda pair: pair[1].time_us)
        is_beaten = _is_faster(best, outcome.estimate)
        worth = RowStanding.BEATEN if is_beaten else RowStanding.TIE
        if config == check.config:
            worth = RowStanding.BEST
        return replace(
            audit,
            standing=worth,
            best=str(config),
            best_us=best.time_us,
            best_verified=self._is_verified(subject, config),
        )

    def _is_verified(self, subject: Subject, config: Config) -> bool:
        record = self.store.record(subject.key)
        return record is not None and record.proves(config)

    def _estimates(
        self, subject: Subject, first: int | None = None
    ) -> Iterator[tuple[Config, Estimate]]:
        """Of the ``first`` trials of the key, of all where that is None."""
        for trial in self.store.trials(subject.key)[:first]:
            if trial.estimate is not None and trial.estimate.model == MODEL:
                yield trial.config, trial.estimate


def _is_faster(estimate: Estimate, other: Estimate) -> bool:
    """By more than the model can mistake."""
    return estimate.time_us < other.time_us * (1 - margin(estimate, other))
