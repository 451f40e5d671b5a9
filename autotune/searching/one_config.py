"""One config at a time, as a person gives it: read, made complete, judged; nothing is kept.

And from a config to its outcome and to the trial that counts, and the configs that a search starts
from: what tables of others have for a problem, which it has to beat, and what won for it on other
chips and with other toolchains.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

from autotune.domain import compilers as questions
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.key import ChipInfo, Choices, Key
from autotune.domain.outcome import Failure, Illegal, Outcome, OutOfVmem
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config, make_config
from autotune.domain.record import Record, Trial, default_trial
from autotune.domain.store import Store, TrialStore
from autotune.domain.trace import Trace
from autotune.estimating import legality
from autotune.estimating import space as spaces
from autotune.estimating.cost_model.estimate import estimate
from autotune.searching.subject import Subject, axis_value


def keep_trials(
    store: TrialStore,
    key: Key,
    trials: list[Trial],
    outcomes: Sequence[tuple[Config, Outcome, float]],
    *,
    default: Config | None,
) -> list[Trial]:
    """The trials that count, in the store and in ``trials``, which are those of the key that are
    known here. One is another one's where that one was first with the same config."""
    saved, known = list[Trial](), list(trials)
    while left := outcomes[len(saved) :]:
        new = list[Trial]()
        for config, outcome, seconds in left:
            new.append(
                Trial(
                    number=_next_number([*known, *new], is_default=config == default),
                    config=config,
                    outcome=outcome,
                    seconds=seconds,
                    created_at=datetime.now(UTC),
                )
            )
        count = store.save_trials(key, new)
        saved += new[:count]
        if count < len(new):  # another machine, or thread, on the same key was first
            before, known = known, list(store.trials(key))
            first = [t for t in known if t.config == new[count].config]
            if not (count or first or len(known) > len(before)):
                raise StoreError(f"a damaged trial of {key} is in the way: see `autotune db check`")
            saved += first
    trials += saved
    return saved


def _next_number(trials: Sequence[Trial], *, is_default: bool) -> int:
    """0 is the default's, however late it is compiled."""
    if is_default and default_trial(trials) is None:
        return 0
    return max((trial.number for trial in trials), default=0) + 1


def evaluate(compilers: questions.Compilers, subject: Subject, config: Config) -> Outcome:
    """Compile one config and estimate its time."""
    return outcome_of(compile_config(compilers, subject, config).result(), subject.chip)


def compile_config(
    compilers: questions.Compilers, subject: Subject, config: Config
) -> Future[questions.Attempt]:
    return compilers.submit(subject.question(questions.CompileConfig, config=config))


def outcome_of(attempt: questions.Attempt, chip: ChipInfo) -> Outcome:
    """Its time is estimated where it compiles; the rules are checked on its own trace again."""
    if not isinstance(attempt.answer, tuple):
        return attempt.answer
    trace, compiled = attempt.answer
    broken = legality.violation(trace, chip)
    return legality.illegal(broken) if broken else estimate(trace, compiled, chip)


_KINDS = {"P": PARALLEL, "A": ARBITRARY}
_OWN = "own"
_LIMIT = re.compile(r"(\d+)(B|MiB)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigJudge:
    """Judges configs of one problem, whether they are among the candidates of a search or not.

    ``default``: what a user has without tuning; ``passed_on``: what the kernel takes of a config.
    """

    compilers: questions.Compilers
    subject: Subject
    choices: Choices
    default: Config
    passed_on: spaces.PassedOn

    def read_all(self, texts: Sequence[str]) -> list[Config]:
        """The default where there are none. Raises as ``read``."""
        return [self.read(text) for text in texts or ("default",)]

    def read(self, text: str) -> Config:
        """``block_m=256,block_n=512``, and where wanted ``order=n>m``, ``semantics=PA`` and
        ``vmem=64MiB``: as a config is printed. *default* is the default. What is left out is as in
        the default, and the semantics the most parallel ones that are legal.

        Raises ``InvalidInputError``."""
        given = parts_of_text(text)
        order = given.pop("order", "")
        semantics, limit = given.pop("semantics", ""), given.pop("vmem", _OWN)
        config = make_config(
            self._axes(given),
            grid_order=self._order(order),
            dimension_semantics=_semantics(semantics, len(self.choices.grid)),
            vmem_limit_bytes=_limit_bytes(limit),
        )
        return self.complete(config)

    def complete(self, given: Config | Mapping[str, AxisValue]) -> Config:
        """A config from values of axes, with the default's for those that are not named; with the
        most parallel semantics that are legal, where it has none. Raises ``InvalidInputError``."""
        whole = given if isinstance(given, Config) else make_config(given)
        config = whole.replace(
            axes=tuple(self._axes({name: str(value) for name, value in whole.axes}).items()),
            grid_order=self._order(">".join(whole.grid_order)),
        )
        _semantics("".join(kind[:1] for kind in config.dimension_semantics), len(config.grid_order))
        if config.dimension_semantics or not self.passed_on.semantics:
            return config
        traced = trace_one(self.compilers, self.subject, config)
        if not isinstance(traced, Trace):
            return config
        semantics = legality.semantics_variants(traced, self.subject.chip.chip)[0]
        return config.replace(dimension_semantics=semantics)

    def outcome(self, config: Config) -> Outcome:
        """By trace, rules and arithmetic where they refuse it, else by the compiler."""
        refused = refused_early(
            self.compilers, self.subject, config, self.default, lambda: self.passed_on
        )
        return refused or evaluate(self.compilers, self.subject, config)

    def _axes(self, given: Mapping[str, str]) -> dict[str, AxisValue]:
        values = {name: axis_value(self.choices, name, value) for name, value in given.items()}
        return {**dict(self.default.axes), **values}

    def _order(self, text: str) -> tuple[str, ...]:
        order = tuple(text.split(">")) if text else self.default.grid_order
        if sorted(order) != sorted(self.choices.grid):
            known = ">".join(self.choices.grid) or "no order that could be changed"
            raise InvalidInputError(f"order={text}: the grid has {known}")
        return order


def config_judge(compilers: questions.Compilers, subject: Subject) -> ConfigJudge:
    """Asks for the default of the problem, and what becomes of its settings."""
    ref, problem, chip = subject.ref, subject.problem, subject.chip
    choices = compilers.ask(subject.question(questions.ListChoices))
    default = spaces.default_config(choices)
    passed_on = spaces.passed_on_of(compilers, ref, problem, default, chip)
    return ConfigJudge(
        compilers=compilers, subject=subject, choices=choices, default=default, passed_on=passed_on
    )


def trace_one(compilers: questions.Compilers, subject: Subject, config: Config) -> Trace | Failure:
    """A config in its own grid order."""
    answer = compilers.ask(subject.question(questions.TraceConfig, config=config))
    return answer.traces[0] if isinstance(answer, questions.Traces) else answer


def refused_early(
    compilers: questions.Compilers,
    subject: Subject,
    config: Config,
    default: Config,
    passed_on: Callable[[], spaces.PassedOn],
) -> Failure | Illegal | OutOfVmem | None:
    """Why it need not be compiled, by trace, rules and arithmetic; None where it may be."""
    traced = trace_one(compilers, subject, config)
    if not isinstance(traced, Trace):
        return traced
    whole = traced if config == default else trace_one(compilers, subject, default)
    return spaces.refusal(
        traced, subject.chip, passed_on, whole if isinstance(whole, Trace) else None
    )


def parts_of_text(text: str) -> dict[str, str]:
    """``a=1,b=2`` by name; nothing for *default*. Raises ``InvalidInputError``."""
    if text.strip() == "default":
        return {}
    values: dict[str, str] = {}
    for part in re.split(r"[,\s]+", text.strip()):
        name, sign, value = part.partition("=")
        if not (name and sign and value) or name in values:
            raise InvalidInputError(
                f"config {text!r}: {part!r} is not NAME=VALUE, or is there twice: give "
                "block_m=256,block_n=512 or default"
            )
        values[name] = value
    return values


def _semantics(text: str, rank: int) -> tuple[str, ...]:
    kinds = tuple(_KINDS.get(letter, "") for letter in text.upper())
    if not all(kinds) or (kinds and rank and len(kinds) != rank):
        raise InvalidInputError(
            f"semantics={text}: give a letter for each grid axis, P for parallel, A for arbitrary"
        )
    return kinds


def _limit_bytes(text: str) -> int | None:
    if text == _OWN:
        return None
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"vmem={text}: give MiB, such as vmem=64MiB, or own")
    return int(match[1]) if match[2] == "B" else int(match[1]) << 20


_MOST_KNOWN = 5
_MOST_WINNERS = 3  # they are often the same


def tuned_elsewhere(
    compilers: questions.Compilers, store: Store, subject: Subject, announce: Callable[[str], None]
) -> list[Config]:
    """The fastest first where their tables have times. ``announce`` hears of each."""
    known = [
        known_config
        for known_config in store.known_configs(subject.spec.name)
        if known_config.serves(subject.problem, subject.chip.chip)
    ]
    if not known:
        return []
    judge, configs = config_judge(compilers, subject), list[Config]()
    for entry in sorted(known, key=lambda entry: entry.time_us or inf)[:_MOST_KNOWN]:
        try:
            configs.append(judge.complete(dict(entry.axes)))
            announce(f"tuned elsewhere, toolchain unknown: {configs[-1]} ({entry.source})")
        except InvalidInputError as error:
            announce(f"{entry.source} has no config of this kernel: {error}")
    return configs


def announce_other_sources(store: Store, subject: Subject, announce: Callable[[str], None]) -> None:
    """What won for an earlier source of the kernel is tried first, where this has no record."""
    records = store.records(subject.spec.name)
    if any(record.key == subject.key for record in records):
        return
    for record in records:
        if replace(record.key, fingerprint=subject.spec.fingerprint) == subject.key:
            announce(
                f"the source changed: {record.config}, which won for the earlier source "
                f"({record.key.fingerprint}), is tried again first"
            )


def winners_elsewhere(records: Sequence[Record], key: Key, space: spaces.Space) -> list[Config]:
    """The candidates with the blocks and the grid order that won for the same problem under other
    toolchains and on other chips, the newest records first."""
    won = [
        record.config
        for record in sorted(records, key=lambda record: record.created_at, reverse=True)
        if record.key.problem == key.problem and not record.is_default and record.key != key
    ]
    by_blocks = {(c.config.axes, c.config.grid_order): c.config for c in space.candidates[::-1]}
    alike = (by_blocks.get((config.axes, config.grid_order)) for config in won)
    return list(dict.fromkeys(filter(None, alike)))[:_MOST_WINNERS]
