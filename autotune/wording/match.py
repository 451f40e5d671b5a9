"""Why an answer fits the question that was asked, in one sentence each."""

from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.record_check import RecordCheck
from autotune.domain.rule import ShapeRule
from autotune.domain.toolchain import Toolchain
from autotune.domain.verdict import Verdict
from autotune.wording.command import search_command
from autotune.wording.units import micros

EXACT = "published for exactly this"


def other_toolchain(record: Record, asked: Toolchain) -> str:
    return f"tuned with {record.key.toolchain}, {_known(record, asked)}"


def known_not_to_work(record: Record, asked: Toolchain) -> str:
    """Why a record that is nearer is not the answer."""
    return f"not what was tuned with {record.key.toolchain}, {_known(record, asked)}"


def _known(record: Record, asked: Toolchain) -> str:
    check = record.check(asked)
    return f"not checked again with {asked}" if check is None else checked(check)


def checked(check: RecordCheck) -> str:
    """What is known under the toolchain of a check."""
    when = f"checked on {check.checked_at:%Y-%m-%d} with {check.toolchain}"
    if check.verdict.compiles:
        return f"{when}: compiles, {micros(check.time_us)}, {check.verdict}"
    return f"{when}: {check.verdict}, {check.finding}"


def other_shape(record: Record) -> str:
    return (
        f"tuned for {record.key.problem}: the same blocks fit into this shape, divide what "
        "they divided there, and need no more VMEM than is allowed; not compiled for it"
    )


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


BEATS_NOTHING = "no rule: it does not beat the nearest record and the default"


def wrong_before(configs: int) -> str:
    return f"no rule: the gate has called {configs} configs of these problems wrong, more may be"


def not_passed(problem: Problem, config: Config, verdict: Verdict) -> str:
    said = "wrong" if verdict.ok is False else "not verified"
    return f"no rule: what it answered for {problem}, {config}, is {said}: {verdict.reason}"


def few_known(problems: int, fewest: int) -> str:
    return f"no rule: {problems} problems are known, it needs {fewest}: search more of them"


def few_answered(problems: int, left_out: int, fewest: int) -> str:
    return (
        f"no rule: it answered {problems} of {left_out} problems left out, and {fewest} are needed "
        "to judge it: search more problems"
    )


def too_slow(worst: Problem, regret: float, median: float, problems: int, most: float) -> str:
    """Why a rule is not published although it may beat the default by far."""
    return (
        f"no rule: of {problems} problems left out that it answered, {worst} took {regret:.1%} "
        f"longer than the best that is known (median {median:.1%}), and none may take more than "
        f"{most:.0%} longer: search more problems that are like that one"
    )


def not_accepted(kind: str) -> str:
    """Why the default is the answer although there is a better one."""
    return f"{kind} is not accepted"


def nothing_published(key: Key) -> str:
    return f"nothing is published for {key}, nor anything that is known to be legal for it"


def source_changed(earlier: Record) -> str:
    """What there is for the source that a kernel had before."""
    return (
        f"the source changed: nothing is published for the kernel as it is now; for the earlier "
        f"source ({earlier.key.fingerprint}) it was {earlier.config}, {micros(earlier.time_us)}, "
        f"with {earlier.key.toolchain}: search again, from that config on"
    )


def tried_again(earlier: Record) -> str:
    """As a search of another source of the kernel begins."""
    return (
        f"the source changed: {earlier.config} won for the earlier source "
        f"({earlier.key.fingerprint}), {micros(earlier.time_us)}; it is tried again first"
    )


def earlier_source(key: Key, asked: str) -> str:
    """Of what was found for a source that is not there any more. ``asked``: what was searched, as
    the command line said it."""
    again = f"autotune search {asked}" if asked else search_command(key)
    return (
        f"the source changed: this was found for an earlier source of {key.kernel} "
        f"({key.fingerprint}), and `{again}` starts from it"
    )
