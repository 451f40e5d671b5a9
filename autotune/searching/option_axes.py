"""Compiler options as axes of a search, behind those that the kernel declares.

A config sets an option where it has its axis; without it the option is as it was asked for. What is
compiled with options is a trial of the key whose toolchain has them: there it is kept, and from
there it is published, so that no lookup under other options takes it for its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice, product

from autotune.domain.compiler_options import VMEM_LIMIT, over, value_text
from autotune.domain.compilers import Compilers, DescribeChip
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.outcome import Outcome
from autotune.domain.problem import Config
from autotune.domain.record import Trial
from autotune.domain.store import TrialStore
from autotune.estimating import vmem
from autotune.estimating.space import MAX_TRACED, Axes, Candidate, Space, widen
from autotune.searching.one_config import keep_trials
from autotune.searching.subject import SearchResult, Subject, explore_space

MOST_SETS = 64
"""Of options that are set together: those of the fewest first."""

_APART = 1_000_000  # numbers of trials: those of another set begin there

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class OptionAxes:
    """``subjects``: what is tuned under each set of options; under none of them first."""

    subjects: Mapping[Options, Subject]
    names: frozenset[str]

    def set_by(self, config: Config) -> Options:
        """The options that a config of the search sets."""
        return tuple((n, str(v)) for n, v in config.axes if n in self.names) if self.names else ()

    def split(self, config: Config) -> tuple[Subject, Config]:
        """What is compiled, and the config that the kernel is given."""
        options = self.set_by(config)
        return self.subjects[options], _without(config, options)

    def chip(self, config: Config) -> ChipInfo:
        """Under its options."""
        return self.split(config)[0].chip

    def first(self, trials: Sequence[Trial]) -> Iterator[Config]:
        """Each value alone, with the config that is the fastest without by then."""
        for options in self.subjects:
            timed = [(t.estimate.time_us, t.config) for t in self.part(trials, ()) if t.estimate]
            if len(options) == 1 and timed:
                yield _with(min(timed, key=lambda pair: pair[0])[1], options)

    def earlier(self, store: TrialStore) -> list[Trial]:
        """All that were made, as those of one search."""
        return [
            trial
            for options, subject in self.subjects.items()
            for trial in self._joined(options, store.trials(subject.key))
        ]

    def keep(
        self,
        store: TrialStore,
        trials: list[Trial],
        judged: Sequence[tuple[Config, Outcome, float]],
        default: Config,
    ) -> list[Trial]:
        """As ``keep_trials``, of each toolchain its own."""
        saved = list[Trial]()
        for options in dict.fromkeys(self.set_by(config) for config, *_ in judged):
            known, key = self.part(trials, options), self.subjects[options].key
            with_these = [
                (_without(config, options), outcome, seconds)
                for config, outcome, seconds in judged
                if self.set_by(config) == options
            ]
            new = keep_trials(store, key, known, with_these, default=default)
            saved += self._joined(options, new)
        trials += saved
        return saved

    def part(self, trials: Sequence[Trial], options: Options) -> list[Trial]:
        """Those with these options set, as their own key has them."""
        with_these = [trial for trial in trials if self.set_by(trial.config) == options]
        if not options:
            return with_these
        return [
            replace(t, number=t.number % _APART, config=_without(t.config, options))
            for t in with_these
        ]

    def widen(self, space: Space, points: Iterable[Axes], enough_s: float) -> list[Candidate]:
        """As ``space.widen``: candidates without options, and with each set that they fit under."""
        new = widen(space, points, enough_s)
        more = [
            replace(candidate, config=_with(candidate.config, options))
            for options, subject in self.subjects.items()
            for candidate in new
            if options and vmem.over_limit(candidate.trace, subject.chip) is None
        ]
        space.candidates += more
        return [*new, *more]

    def result(self, result: SearchResult, options: Options) -> SearchResult:
        """What a search has come to with these options set."""
        candidates = [c for c in result.space.candidates if not self.set_by(c.config)]
        return replace(
            result,
            subject=self.subjects[options],
            space=replace(result.space, candidates=candidates),
            trials=self.part(result.trials, options),
            default=None if options else result.default,
        )

    def _joined(self, options: Options, trials: Sequence[Trial]) -> list[Trial]:
        if not options:
            return list(trials)
        apart = _APART * list(self.subjects).index(options)
        return [
            replace(t, number=t.number + apart, config=_with(t.config, options)) for t in trials
        ]


def no_options(subject: Subject) -> OptionAxes:
    """A search that leaves all options as they are asked for."""
    return OptionAxes({(): subject}, frozenset())


def option_axes(
    compilers: Compilers,
    subject: Subject,
    space: Space,
    wanted: Mapping[str, Sequence[str]],
    announce: Callable[[str], None],
) -> OptionAxes:
    """The options, and in ``space`` its candidates with each set of them. The limit of VMEM is left
    out where the kernel passes its own on. Raises ``InvalidInputError`` for an option or a value
    that the compiler does not take; what is listed is left out."""
    if VMEM_LIMIT in wanted and space.passed_on.limit:
        announce(
            f"{VMEM_LIMIT} is left out: the kernel takes vmem_limit_bytes, which the search sets; "
            "it does the same for this kernel, and nothing to the rest of the program"
        )
        wanted = {name: values for name, values in wanted.items() if name != VMEM_LIMIT}
    asked = subject.toolchain.options
    chips = taken(compilers, subject.chip.chip, asked, wanted, announce)
    subjects = {(): subject, **dict(_subjects(subject, chips))}
    plain = space.candidates[: MAX_TRACED // len(subjects)]
    for options, other in subjects.items():
        if options:
            space.candidates += [
                replace(candidate, config=_with(candidate.config, options))
                for candidate in _candidates(compilers, other, subject, plain)
            ]
    return OptionAxes(subjects, frozenset(name for options in subjects for name, _ in options))


def taken(
    compilers: Compilers,
    chip: Chip,
    asked: str,
    wanted: Mapping[str, Sequence[str]],
    announce: Callable[[str], None],
) -> dict[str, dict[str, ChipInfo]]:
    """Of the values that are wanted those that the compiler takes, each with the chip as it is
    under it alone, beside what was ``asked`` for. Raises as ``option_axes`` does."""
    chips: dict[str, dict[str, ChipInfo]] = {}
    for name, values in sorted(wanted.items()):
        for value in values:
            options = over(asked, {name: value})
            try:
                info = compilers.ask(DescribeChip(chip=chip, options=options))
            except InvalidInputError as error:
                if value not in LISTED.get(name, ()):
                    raise
                announce(f"{name}={value} is left out: {error}")
            else:
                chips.setdefault(name, {})[value] = info
    return chips


def _subjects(
    subject: Subject, chips: Mapping[str, Mapping[str, ChipInfo]]
) -> Iterator[tuple[Options, Subject]]:
    """Under each set, each program once."""
    known, asked = {subject.toolchain}, subject.toolchain.options
    for options in islice(_sets(chips), MOST_SETS - 1):
        toolchain = replace(subject.toolchain, options=over(asked, dict(options)))
        limits = (chips[name][value] for name, value in options if name == VMEM_LIMIT)
        if toolchain not in known:
            known.add(toolchain)
            yield options, replace(subject, toolchain=toolchain, chip=next(limits, subject.chip))


def _sets(wanted: Mapping[str, Iterable[str]]) -> Iterator[Options]:
    pairs = [[(name, value) for value in values] for name, values in wanted.items()]
    sizes = (combinations(pairs, size) for size in range(1, len(pairs) + 1))
    return chain.from_iterable(product(*chosen) for chosen in chain.from_iterable(sizes))


def _candidates(
    compilers: Compilers, subject: Subject, asked: Subject, plain: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Another limit lets others in."""
    if subject.chip == asked.chip:
        return plain
    return explore_space(compilers, subject, lambda _, __: None).candidates[: len(plain)]


def _with(config: Config, options: Options) -> Config:
    return config.replace(axes=(*config.axes, *options))


def _without(config: Config, options: Options) -> Config:
    return config.replace(axes=config.axes[: -len(options)]) if options else config


LISTED: Mapping[str, tuple[str, ...]] = {
    VMEM_LIMIT: ("32768", "65536"),
    "xla_jf_conv_output_fusion": ("false",),
    "xla_tpu_dot_dot_fusion": ("false",),
    "xla_tpu_enable_copy_fusion": ("false",),
}
"""Options that are worth a try: each is set, or chosen among, by a script of MaxText. What it does
is in docs/guides/compiler-options.md."""


def tuned_options(given: Iterable[str], *, listed: bool) -> dict[str, tuple[str, ...]]:
    """``NAME=A,B`` by name, over the list where that is wanted. Raises ``InvalidInputError``."""
    options = dict(LISTED) if listed else {}
    for text in given:
        name, sign, values = text.lstrip("-").partition("=")
        parted = tuple(value_text(value) for value in values.split(","))
        if not (name and sign and all(parted)):
            raise InvalidInputError(
                f"--tune-compiler-option {text!r}: give NAME=A,B, such as {VMEM_LIMIT}=32768,65536"
            )
        options[name] = parted
    return options
