"""One config at a time, as a person gives it: read, made complete, judged; nothing is kept."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.domain.compilers import Compilers, ListChoices, TraceConfig, Traces
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Choices
from autotune.domain.outcome import Failure, Illegal, Outcome, OutOfVmem
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config, make_config
from autotune.domain.trace import Trace
from autotune.estimating import legality
from autotune.estimating.space import PassedOn, default_config, passed_on_of, refusal
from autotune.searching.evaluation import evaluate
from autotune.searching.subject import Subject, axis_value

_KINDS = {"P": PARALLEL, "A": ARBITRARY}
_OWN = "own"
_LIMIT = re.compile(r"(\d+)(B|MiB)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigJudge:
    """Judges configs of one problem, whether they are among the candidates of a search or not.

    ``default``: what a user has without tuning; ``passed_on``: what the kernel takes of a config.
    """

    compilers: Compilers
    subject: Subject
    choices: Choices
    default: Config
    passed_on: PassedOn

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


def config_judge(compilers: Compilers, subject: Subject) -> ConfigJudge:
    """Asks for the default of the problem, and what becomes of its settings."""
    ref, problem, chip = subject.ref, subject.problem, subject.chip
    choices = compilers.ask(subject.question(ListChoices))
    default = default_config(choices)
    passed_on = passed_on_of(compilers, ref, problem, default, chip)
    return ConfigJudge(
        compilers=compilers,
        subject=subject,
        choices=choices,
        default=default,
        passed_on=passed_on,
    )


def trace_one(compilers: Compilers, subject: Subject, config: Config) -> Trace | Failure:
    """A config in its own grid order."""
    answer = compilers.ask(subject.question(TraceConfig, config=config))
    return answer.traces[0] if isinstance(answer, Traces) else answer


def refused_early(
    compilers: Compilers,
    subject: Subject,
    config: Config,
    default: Config,
    passed_on: Callable[[], PassedOn],
) -> Failure | Illegal | OutOfVmem | None:
    """Why it need not be compiled, by trace, rules and arithmetic; None where it may be."""
    traced = trace_one(compilers, subject, config)
    if not isinstance(traced, Trace):
        return traced
    whole = traced if config == default else trace_one(compilers, subject, default)
    return refusal(traced, subject.chip, passed_on, whole if isinstance(whole, Trace) else None)


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
