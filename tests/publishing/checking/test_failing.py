"""What fails a run, and the exit code."""

from dataclasses import replace

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.outcome import Estimated
from autotune.domain.record import CheckVerdict, Unchecked
from autotune.publishing.checking.fail_on import parse_fail_on
from autotune.wording.match import markdown
from tests.samples.dashboard import checked
from tests.samples.matching import record


def one(verdict=CheckVerdict.SAME, **fields):
    sizes = {"before_vmem_bytes": 1000, "vmem_bytes": 1050}
    return checked(verdict, **{"before_us": 100.0, "after_us": 107.0, **sizes, **fields})


@pytest.mark.parametrize(
    ("text", "verdict", "code"),
    [
        (None, CheckVerdict.SLOWER, 1),
        (None, CheckVerdict.FASTER, 0),
        ("broken", CheckVerdict.NEEDS_LIMIT, 1),
        ("broken", CheckVerdict.SLOWER, 0),
        ("slower,broken", CheckVerdict.SLOWER, 1),
        ("slower:5%", CheckVerdict.SAME, 1),
        ("slower:10%", CheckVerdict.SLOWER, 0),
        ("vmem", CheckVerdict.FASTER, 1),
        ("vmem:4.9%", CheckVerdict.SAME, 1),
        ("vmem:5%", CheckVerdict.SAME, 0),
        ("not-checked", CheckVerdict.NOT_CHECKED, 1),
        ("slower", CheckVerdict.NOT_CHECKED, 3),
        (None, CheckVerdict.WRONG, 1),
        ("slower:5%", CheckVerdict.WRONG, 1),
    ],
)
def test_the_exit_code(text, verdict, code):
    fail_on = parse_fail_on(text)
    assert fail_on.exit_code(fail_on.judged([one(verdict)])) == code


def test_the_verdict_is_by_the_share_that_was_asked_for():
    assert parse_fail_on("slower:5%").judged([one()])[0].verdict is CheckVerdict.SLOWER
    assert parse_fail_on("slower:8%").judged([one(CheckVerdict.SLOWER)])[0].verdict == "same"
    assert parse_fail_on("slower:5%").judged([one(after_us=90.0)])[0].verdict == "faster"


@pytest.mark.parametrize(
    ("text", "before_us", "code"),
    [
        ("slower:5%", 100.0, 1),
        ("slower:8%", 100.0, 0),
        ("slower", 100.0, 0),  # by a tenth is what this estimate can be mistaken by
        ("slower", 90.0, 1),
        ("slower:5%", None, 0),
        ("broken", 90.0, 0),
    ],
)
def test_what_its_default_beats_may_be_slower_too(text, before_us, code):
    estimate = replace(record().estimate, resolution=0.1)
    won = Estimated(estimate=estimate, program="")
    check = one(CheckVerdict.DEFAULT_WINS, winner=won, before_us=before_us)
    fail_on = parse_fail_on(text)
    (judged,) = fail_on.judged([check])
    assert (judged.verdict, fail_on.exit_code([judged])) == (CheckVerdict.DEFAULT_WINS, code)


def test_what_is_new_fails_nothing():
    new = one(CheckVerdict.NOT_CHECKED, cause=Unchecked.NO_BASELINE)
    assert parse_fail_on(None).exit_code([new]) == 0
    assert parse_fail_on(None).exit_code([new, one(CheckVerdict.NOT_CHECKED)]) == 3


@pytest.mark.parametrize("text", ["", "slow", "broken:5%", "slower:5", "slower:-1%", "vmem:nan%"])
def test_what_cannot_be_read_says_what_can(text):
    with pytest.raises(InvalidInputError, match=r"slower"):
        parse_fail_on(text)


def test_no_name_is_markup_in_markdown():
    checks = [one(against="feature/~~x~~"), one(CheckVerdict.SLOWER, against="a&lt;_@team_")]
    assert (
        markdown(checks)
        .splitlines()[0]
        .endswith(r" against a\&lt;\_@&#8203;team\_, feature/\~\~x\~\~")
    )
