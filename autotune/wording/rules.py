"""Rules for shapes that nobody tuned: what one is worth, and why there is none."""

from autotune.domain.rule import NoRule, RuleRefusal, ShapeRule
from autotune.wording.outcome import verdict_reason


def by_rule(rule: ShapeRule) -> str:
    """What its answers are worth."""
    plain = "" if rule.default_regret is None else f", the default {rule.default_regret:.1%}"
    return (
        f"by a rule from what was compiled for other shapes; on the {rule.problems} it answered "
        f"of {rule.left_out or rule.problems} problems left out it took {rule.median_regret:.1%} "
        f"longer than the best that is known (median; worst {rule.worst_regret:.1%}){plain}"
        "; no block is larger than one that compiled within VMEM; not "
        "compiled for this shape"
    )


def no_rule(refused: NoRule) -> str:
    """Why there is no rule, and what to do about it."""
    gate = verdict_reason(refused.gate) if refused.gate else ""
    return "no rule: " + _NO_RULE[refused.cause].format(why=refused, gate=gate)


_NO_RULE = {
    RuleRefusal.BEATS_NOTHING: "it does not beat the nearest record and the default",
    RuleRefusal.WRONG_BEFORE: "the gate has called {why.count} configs of these problems wrong, "
    "more may be",
    RuleRefusal.WRONG: "what it answered for {why.problem}, {why.config}, is wrong: {gate}",
    RuleRefusal.UNVERIFIED: "what it answered for {why.problem}, {why.config}, is not verified: "
    "{gate}",
    RuleRefusal.FEW_KNOWN: "{why.count} problems are known, it needs {why.needed}: search more of "
    "them",
    RuleRefusal.FEW_ANSWERED: "it answered {why.count} of {why.left_out} problems left out, and "
    "{why.needed} are needed to judge it: search more problems",
    RuleRefusal.TOO_SLOW: "of {why.count} problems left out that it answered, {why.problem} took "
    "{why.worst_regret:.1%} longer than the best that is known (median {why.median_regret:.1%}), "
    "and none may take more than {why.most_regret:.0%} longer: search more problems that are like "
    "that one",
}
