"""What a rule's costs come to, term by term: what the tables of ``answering.rules`` are held to."""

from autotune.answering import rules
from autotune.domain.rule import CostTerm
from autotune.tables.rule_costs import array_us, term_us


def call_us(rule, both):
    """``both``: dimensions and sizes."""
    dim_of = {axis.name: axis.dim for axis in rule.axes}
    core_us, waits_us = (
        sum(term_us(rule, term, both) for term in rule.costs if term.waits == waits)
        for waits in (False, True)
    )
    traffic_us = sum(array_us(term, dim_of, both) for term in rule.hbm)
    steps = term_us(rule, CostTerm(us=1.0, of=(), each_step=True), both)
    return rules.together_us(rule, core_us, traffic_us, steps) + waits_us
