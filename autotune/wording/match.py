"""Why an answer fits the question that was asked, in one sentence each."""

from dataclasses import replace

from autotune.answering.matching import Match, MatchKind
from autotune.domain.compiler_options import differing
from autotune.domain.key import Key, Toolchain
from autotune.domain.record import RecordCheck, Standing
from autotune.wording.checks import known_finding, search_command
from autotune.wording.rules import by_rule
from autotune.wording.units import mebibytes, micros

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
        known = f"tuned with {record.key.toolchain}, {_known(match.check, key.toolchain)}"
        return known + _other_options(record.key.toolchain, key.toolchain)
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


def _other_options(tuned: Toolchain, asked: Toolchain) -> str:
    names = differing(tuned.options, asked.options)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; other compiler options: {', '.join(names[:_SHOWN])}{more}" if names else ""


def _known(check: RecordCheck | None, asked: Toolchain) -> str:
    return f"not checked again with {asked}" if check is None else checked(check)


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
