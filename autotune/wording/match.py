"""Why an answer fits the question that was asked; checks as people read them, with the one thing to
do; and the command lines that search a key, or estimate a config, again."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import quote, split

from autotune.answering.matching import Match, MatchKind
from autotune.domain.arguments import asked_of, config_text, problem_arguments
from autotune.domain.compiler_options import differing
from autotune.domain.key import Key, Toolchain
from autotune.domain.outcome import Crashed, NotEstimated, TimedOut
from autotune.domain.record import Check, CheckVerdict, RecordCheck, Standing, Trial, Unchecked
from autotune.domain.rule import NoRule, RuleRefusal, ShapeRule
from autotune.domain.visible import visible
from autotune.wording.outcome import in_words as outcome_in_words
from autotune.wording.outcome import kind_and_reason, reason_of, verdict_reason
from autotune.wording.units import mebibytes, micros, ratio


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


def reproduce(key: Key, trial: Trial, asked: str = "") -> str:
    """The command that estimates the config of a trial again. ``asked``: what was searched, as
    ``asked_of`` said it; where that is not known, by the name of the kernel."""
    what = asked or asked_of(key.kernel, problem_arguments(key.problem), key.chip.value)
    again = f"autotune estimate {what} --config {quote(config_text(trial.config))}"
    return again + _flags(key.toolchain)


def retune(check: Check) -> str:
    """The command that searches what was checked, under the JAX that it was checked with."""
    command = f"autotune search {check.asked}" if check.asked else search_command(check.target)
    flags = _flags(check.toolchain) if check.asked else ""
    return f"{command}{flags} --jax {quote(check.toolchain.jax)}"


def search_command(key: Key) -> str:
    """The command that searches a problem; safe to paste, whatever the names are."""
    what = asked_of(key.kernel, problem_arguments(key.problem), key.chip.value)
    return f"autotune search {what}{_flags(key.toolchain)}"


def _flags(toolchain: Toolchain) -> str:
    words = split(toolchain.options)
    return "".join(f" --compiler-option {quote(word)}" for word in words)


_Line = Callable[[Check], str]


def subject_line(check: Check) -> str:
    return f"{place_line(check)}, {check.toolchain.label}"


def place_line(check: Check) -> str:
    """The same, without the toolchain."""
    problem = check.key.problem
    shape = "x".join(str(size) for _, size in problem.dims)
    options = "".join(f" {name}={value}" for name, value in problem.options)
    which = f", {'default' if check.is_default else 'tuned config'}" if check.against else ""
    return f"{check.key.kernel} {shape} {problem.dtype}{options} on {check.chip.value}{which}"


def finding(check: Check) -> str:
    """What became of the config, with its figures."""
    text = _FINDINGS[check.verdict](check) + _vmem_change(check)
    if check.verified:
        return f"{text}; verified{'' if check.against else ', and published for this toolchain'}"
    return f"{text}; {check.detail}" if check.detail and not check.cause else text


def known_finding(check: RecordCheck) -> str:
    """The same of what a record keeps of it."""
    if check.finding:
        return check.finding
    if check.verdict is CheckVerdict.NEEDS_LIMIT:
        text = _memory(check)
    elif check.verdict.compiles:
        text = micros(check.time_us)
    else:
        text = kind_and_reason(check.outcome) if check.outcome else "it cannot be used"
    return f"{text}; {check.detail}" if check.detail else text


def detail_of(check: Check) -> str:
    """What is known of it beside the verdict."""
    if check.before is not None:
        return kind_and_reason(check.before)
    if not check.detail and isinstance(check.winner, NotEstimated):
        return reason_of(check.winner)
    return check.detail


def check_in_words(check: Check) -> Check:
    """The same with the sentences of its outcomes, for readers that know no facts of them."""
    sides = check.winner, check.default
    winner, default = (outcome and outcome_in_words(outcome) for outcome in sides)
    return replace(check, winner=winner, default=default, detail=detail_of(check), before=None)


def action(check: Check) -> str:
    """The one thing to do; empty where there is nothing."""
    if check.verdict is CheckVerdict.NOT_CHECKED:
        return _REMEDIES[check.cause or Unchecked.NO_ANSWER](check)
    if check.verdict is CheckVerdict.NEEDS_LIMIT:
        limit = f"{check.least_limit_bytes:_}"
        if check.passes_limit:
            return f"set vmem_limit_bytes={limit} in the config, or retune: {retune(check)}"
        return f"pass vmem_limit_bytes >= {limit} to pallas_call"
    if check.against:
        return ""
    if check.verdict.wants_retuning or check.chip is not check.key.chip:
        return f"retune: {retune(check)}"
    return ""


def _times(check: Check) -> str:
    before, after = check.before_us, check.after_us
    return f"{micros(before)} before, {micros(after)} now ({ratio(before, after)} as fast)"


def _vmem_change(check: Check) -> str:
    before, now = check.before_vmem_bytes, check.vmem_bytes
    if before is None or now is None or before == now or not check.against:
        return ""
    return f"; VMEM {mebibytes(before)} before, {mebibytes(now)} now"


def _memory(check: Check | RecordCheck) -> str:
    needed, allowed = check.needed_bytes or 0, check.allowed_bytes or 0
    return f"needs {mebibytes(needed)} of VMEM, {mebibytes(allowed)} are allowed"


def _broken(check: Check) -> str:
    return kind_and_reason(check.winner) if check.winner else "it cannot be used"


def _before(check: Check) -> str:
    """What is not known of the other source; empty where it is of this one."""
    is_here = check.winner is None or isinstance(check.winner, (TimedOut, Crashed, NotEstimated))
    return "" if is_here else f"before: {detail_of(check)}"


_FINDINGS: dict[CheckVerdict, _Line] = {
    CheckVerdict.WRONG: _broken,
    CheckVerdict.BROKEN: _broken,
    CheckVerdict.NEEDS_LIMIT: _memory,
    CheckVerdict.SLOWER: _times,
    CheckVerdict.FASTER: _times,
    CheckVerdict.SAME: _times,
    CheckVerdict.DEFAULT_WINS: lambda check: (
        f"{micros(check.after_us)}, the default takes {micros(check.default_us)}"
    ),
    CheckVerdict.NOT_CHECKED: lambda check: _CAUSES[check.cause or Unchecked.NO_ANSWER],
}

_CAUSES: dict[Unchecked, str] = {
    Unchecked.SOURCE_CHANGED: "the source changed since it was tuned",
    Unchecked.NO_KERNEL: "the kernel is not installed here",
    Unchecked.NO_CHIP: "the toolchain does not know the chip",
    Unchecked.NO_ESTIMATE: "it compiles, but no time can be given",
    Unchecked.NO_ANSWER: "the compiler gave no answer",
    Unchecked.NO_PROBLEM: "the kernel does not take the problem",
    Unchecked.NO_BASELINE: "there is nothing to compare with",
    Unchecked.NOT_VERIFIED: "its time is no worse, but it could not be verified",
    Unchecked.OTHER_MODEL: "it compiles, but the record's time is of another version of the model",
}

_REMEDIES: dict[Unchecked, _Line] = {
    Unchecked.SOURCE_CHANGED: lambda check: f"retune: {retune(check)}",
    Unchecked.NO_KERNEL: lambda check: (
        detail_of(check) or "name its file: autotune check path/to/file.py:NAME"
    ),
    Unchecked.NO_CHIP: detail_of,
    Unchecked.NO_ESTIMATE: lambda check: _before(check) or detail_of(check),
    Unchecked.NO_ANSWER: lambda check: (
        _before(check) or f"{detail_of(check)}: a higher --candidate-timeout may do"
    ),
    Unchecked.NO_PROBLEM: detail_of,
    Unchecked.NO_BASELINE: lambda check: (
        detail_of(check) and f"it did not work before: {detail_of(check)}"
    ),
    Unchecked.NOT_VERIFIED: detail_of,
    Unchecked.OTHER_MODEL: lambda check: f"retune: {retune(check)}",
}


def markdown(checks: Sequence[Check]) -> str:
    """A table of all that is not the same, and what was compared with what."""
    changed = [check for check in checks if check.verdict is not CheckVerdict.SAME]
    against = ", ".join(sorted({check.against for check in checks if check.against}))
    head = f"### Pallas kernels{' against ' * bool(against)}{markdown_text(against)}"
    lines = [head, "", "Estimated by compiling for the TPU, without one.", ""]
    if changed:
        lines += ["| verdict | what | finding | to do |", "|---|---|---|---|"]
    for check in changed:
        cells = (check.verdict.value, subject_line(check), finding(check), action(check))
        lines.append("| " + " | ".join(map(markdown_text, cells)) + " |")
    return "\n".join([*lines, *([""] if changed else [])])


def markdown_text(text: str) -> str:
    """On one line, and nothing in it that Markdown or HTML would take for its own, nor GitHub for
    somebody's name. A web address stays a link there."""
    plain = visible(" ".join(text.split()))
    return re.sub(r"[\\`*_|<>\[\]~&]", r"\\\g<0>", plain).replace("@", "@&#8203;")


_SHOWN = 4
_CLAIM = (
    "; a record for exactly this is claimed, not proven: `accept_claimed=True`, or "
    "`--accept-claimed`, takes it, and `autotune worker` with the database proves it"
)


def why(match: Match, key: Key) -> str:
    """Why this is the answer to ``key``, in one sentence."""
    if match.why:
        return match.why
    if match.unreachable:
        answer = "not known: no snapshot on disk has anything for it"
        if match.record:
            answer = (
                f"{why(replace(match, unreachable=''), key)} when the snapshot was kept on disk"
            )
        return f"{answer}; the service cannot be used now ({match.unreachable})"
    record, asked = match.record, key.toolchain
    text = _answer(match, key) if record else ""
    if record and record.standing is Standing.CLAIMED:
        text += f"; claimed by the token {record.pushed_by}, not proven"
    if match.passed_over:
        other = match.passed_over
        known = other.check(asked)
        vmem = f"which takes {mebibytes(other.estimate.vmem_used_bytes)} of VMEM, more than known"
        why_not = checked(known) if known else f"{vmem} to be allowed with {asked}"
        also = f"not what was tuned with {other.key.toolchain}, {why_not}"
        text = f"{text}; {also}" if text else also
    return (text or _nothing(match, key)) + _CLAIM * match.has_claim


def in_words(match: Match, key: Key) -> Match:
    """The same, with its sentence."""
    return replace(match, why=why(match, key))


def _answer(match: Match, key: Key) -> str:
    record = match.record
    assert record is not None
    if match.kind is MatchKind.EXACT:
        return "published for exactly this"
    if match.kind is MatchKind.TOOLCHAIN:
        unknown = f"not checked again with {key.toolchain}"
        known = checked(match.check) if match.check else unknown
        names = differing(record.key.toolchain.options, key.toolchain.options)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        options = f"; other compiler options: {', '.join(names[:_SHOWN])}{more}" if names else ""
        return f"tuned with {record.key.toolchain}, {known}{options}"
    if match.kind is MatchKind.RULE and record.rule:
        return by_rule(record.rule)
    if match.kind is MatchKind.RULE:
        return (
            f"tuned for {record.key.problem} with a whole dimension as one block: a smaller one is "
            "taken whole, a larger one in several such blocks where the default cuts it as well, "
            "with nothing parallel; within VMEM; not compiled for it"
        )
    return (
        f"tuned for {record.key.problem}: the same blocks fit into this shape, divide what they "
        "divided there, and need no more VMEM than is allowed; not compiled for it"
    )


def _nothing(match: Match, key: Key) -> str:
    """Why it is the default."""
    if match.not_accepted:
        return f"{match.not_accepted} is not accepted"
    if match.earlier:
        return (
            "the source changed: nothing is published for the kernel as it is now; for the earlier "
            f"source ({match.earlier.key.fingerprint}) it was {match.earlier.config}, "
            f"{micros(match.earlier.time_us)}, with {match.earlier.key.toolchain}: search again, "
            "from that config on"
        )
    return f"nothing is published for {key}, nor anything that is known to be legal for it"


def checked(check: RecordCheck) -> str:
    """What is known under the toolchain of a check."""
    when = f"checked on {check.checked_at:%Y-%m-%d} with {check.toolchain}"
    if check.verdict.compiles:
        return f"{when}: compiles, {micros(check.time_us)}, {check.verdict}"
    return f"{when}: {check.verdict}, {known_finding(check)}"


def earlier_source(key: Key, asked: str) -> str:
    """Of what was found for a source that is not there any more. ``asked``: what was searched, as
    the command line said it."""
    again = f"autotune search {asked}" if asked else search_command(key)
    return (
        f"the source changed: this was found for an earlier source of {key.kernel} "
        f"({key.fingerprint}), and `{again}` starts from it"
    )
