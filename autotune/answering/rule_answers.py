"""What the rules that records carry give for a problem."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from autotune.answering import rules
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Record
from autotune.domain.rule import CompiledBlocks, ShapeRule


class AskedRule(NamedTuple):
    """A rule that is ready to be asked, and the record that carries it."""

    record: Record
    rule: ShapeRule
    chooser: rules.Chooser

    def config(self, problem: Problem) -> Config | None:
        """As ``ruled_config`` has it."""
        return _with_sizes(self.chooser.choose(dict(problem.dims)))


def newest_rule(carriers: Iterable[Record]) -> AskedRule | None:
    """None where there is none, or where it cannot be asked: a file may hold anything."""
    ruled = [(carrier, carrier.rule) for carrier in carriers if carrier.rule is not None]
    if not ruled:
        return None
    record, rule = max(ruled, key=lambda pair: pair[1].made_at)
    try:
        return AskedRule(record, rule, rules.Chooser(rule))
    except (ValueError, KeyError, TypeError):
        return None


def ruled_config(rule: ShapeRule, problem: Problem) -> Config | None:
    """The compiled config that shows that they are safe, with the sizes that the rule gives."""
    return _with_sizes(rules.Chooser(rule).choose(dict(problem.dims)))


def unshown_config(rule: ShapeRule, problem: Problem) -> Config | None:
    """What would be faster by the rule, if it were known to be safe."""
    return _with_sizes(rules.Chooser(rule).unshown(dict(problem.dims)))


def _with_sizes(choice: tuple[Mapping[str, int], CompiledBlocks] | None) -> Config | None:
    if choice is None:
        return None
    sizes, compiled = choice
    axes = {**dict(compiled.config.axes), **sizes}
    return replace(compiled.config, axes=tuple(axes.items()))
