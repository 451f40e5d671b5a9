"""One config at a time, as a person gives it: read, made complete, judged; nothing is kept."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.candidates import rules
from autotune.candidates.space import PassedOn, default_config, passed_on_of, refusal
from autotune.domain.config import ARBITRARY, PARALLEL, AxisValue, Config, make_config
from autotune.domain.kernel_spec import Choices
from autotune.domain.outcome import Failure, Illegal, Outcome, OutOfVmem
from autotune.domain.trace import Trace
from autotune.errors import InvalidInputError
from autotune.ports.compilers import Compilers, Tracer
from autotune.searching.config_estimate import ConfigEstimate
from autotune.searching.loop import Subject, evaluate

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
        semantics = rules.semantics_variants(traced, self.subject.chip.chip)[0]
        return config.replace(dimension_semantics=semantics)

    def estimate(self, config: Config) -> ConfigEstimate:
        return ConfigEstimate(config=config, outcome=self.outcome(config))

    def outcome(self, config: Config) -> Outcome:
        """By trace, rules and arithmetic where they refuse it, else by the compiler."""
        traced = trace_one(self.compilers, self.subject, config)
        refused = refused_early(traced, self.subject, lambda: self.passed_on)
        return refused or evaluate(self.compilers, self.subject, config)

    def _axes(self, given: Mapping[str, str]) -> dict[str, AxisValue]:
        own = {name: axis_value(self.choices, name, value) for name, value in given.items()}
        return {**dict(self.default.axes), **own}

    def _order(self, text: str) -> tuple[str, ...]:
        order = tuple(text.split(">")) if text else self.default.grid_order
        if sorted(order) != sorted(self.choices.grid):
            known = ">".join(self.choices.grid) or "no order that could be changed"
            raise InvalidInputError(f"order={text}: the grid has {known}")
        return order


def config_judge(compilers: Compilers, subject: Subject) -> ConfigJudge:
    """Asks for the default of the problem, and what becomes of its settings."""
    ref, problem, chip = subject.ref, subject.problem, subject.chip
    choices = compilers.choices(ref, problem, chip.chip)
    default = default_config(choices)
    passed_on = passed_on_of(compilers, ref, problem, default, chip)
    return ConfigJudge(
        compilers=compilers,
        subject=subject,
        choices=choices,
        default=default,
        passed_on=passed_on,
    )


def narrowed(choices: Choices, wanted: Mapping[str, Sequence[str]]) -> Choices:
    """With those values only, for each axis that is named. Raises ``InvalidInputError``."""
    axes = dict(choices.axes)
    for name, values in wanted.items():
        axes[name] = [axis_value(choices, name, value) for value in values]
    return Choices(axes=axes, default=choices.default, grid=choices.grid)


def wanted_values(fixed: Iterable[str], only: Iterable[str]) -> dict[str, list[str]]:
    """``AXIS=VALUE`` and ``AXIS=A,B`` by axis. Raises ``InvalidInputError``."""
    found: dict[str, list[str]] = {}
    for text, values in (*((t, [t.partition("=")[2]]) for t in fixed), *map(_listed, only)):
        name, sign, _ = text.partition("=")
        if not (name and sign and all(values)) or name in found:
            raise InvalidInputError(
                f"{text!r} is not AXIS=VALUE, or its axis is named twice: give --fix block_q=512 "
                "or --only block_q=256,512"
            )
        found[name] = values
    return found


def _listed(text: str) -> tuple[str, list[str]]:
    return text, text.partition("=")[2].split(",")


def trace_one(tracer: Tracer, subject: Subject, config: Config) -> Trace | Failure:
    """A config in its own grid order."""
    chip = subject.chip.chip
    (found,) = tracer.traces(subject.ref, subject.problem, [config], orders=False, chip=chip)
    return found[0] if isinstance(found, list) else found


def refused_early(
    traced: Trace | Failure, subject: Subject, passed_on: Callable[[], PassedOn]
) -> Failure | Illegal | OutOfVmem | None:
    """Why it need not be compiled; None where it may be."""
    if not isinstance(traced, Trace):
        return traced
    return refusal(traced, subject.chip, passed_on)


def parts_of_text(text: str) -> dict[str, str]:
    """``a=1,b=2`` by name; nothing for *default*. Raises ``InvalidInputError``."""
    if text.strip() == "default":
        return {}
    found: dict[str, str] = {}
    for part in re.split(r"[,\s]+", text.strip()):
        name, sign, value = part.partition("=")
        if not (name and sign and value) or name in found:
            raise InvalidInputError(
                f"config {text!r}: {part!r} is not NAME=VALUE, or is there twice: give "
                "block_m=256,block_n=512 or default"
            )
        found[name] = value
    return found


def axis_value(choices: Choices, name: str, text: str) -> AxisValue:
    """A choice of the axis, or another size where it has sizes. Raises ``InvalidInputError``."""
    known = choices.axes.get(name)
    if known is None:
        raise InvalidInputError(
            f"the kernel has no axis {name!r}: it has {', '.join(choices.axes)}"
        )
    for value in (*known, choices.default[name]):
        if str(value).lower() == text.lower():
            return value
    has_sizes = any(isinstance(value, int) and not isinstance(value, bool) for value in known)
    if has_sizes and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    wanted = "a whole number from 1" if has_sizes else f"one of {', '.join(map(str, known))}"
    raise InvalidInputError(f"{name}={text}: it must be {wanted}")


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
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise InvalidInputError(f"vmem={text}: give MiB, such as vmem=64MiB, or own")
    return int(found[1]) if found[2] == "B" else int(found[1]) << 20
