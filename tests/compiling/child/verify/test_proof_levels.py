"""What a JAX cannot run is run with less, one step at a time, and says so."""

from dataclasses import replace

import pytest

from autotune.compiling.child.verify import interpreter
from autotune.domain.evidence import ProofLevel
from autotune.wording.publication import verification
from tests.compiling.child.verify.test_gate_runs import by_hand, checked, doubling, kernel

KERNEL = kernel(by_hand(doubling(right=True)), lambda x: 2 * x)


def lacking(monkeypatch, *levels):
    """A JAX that cannot do these."""
    forced = interpreter._forced

    def refusing(run, devices):
        if run.level in levels:
            raise NotImplementedError(f"no {run.level.name}")
        return forced(run, devices)

    monkeypatch.setattr(interpreter, "_forced", refusing)


def test_all_that_there_is_needs_no_label():
    verdict = checked(KERNEL)
    assert (verdict.ok, verdict.proof.level, verdict.proof.lacks) == (True, ProofLevel.FULL, "")


@pytest.mark.parametrize(
    ("lacks", "level"),
    [
        ([ProofLevel.FULL], ProofLevel.ONE_CORE),
        ([ProofLevel.FULL, ProofLevel.ONE_CORE], ProofLevel.PLAIN),
    ],
)
def test_what_is_missing_is_left_out_and_said(monkeypatch, lacks, level):
    lacking(monkeypatch, *lacks)
    verdict = checked(KERNEL)
    assert verdict.ok, verdict.reason
    assert verdict.proof.level is level
    for missing in lacks:
        assert f"no {missing.name}" in verdict.proof.lacks
    assert "more could not be run: " in verification(verdict)


def test_a_wrong_result_is_wrong_on_one_core_and_not_verified_in_plain_mode(monkeypatch):
    wrong = replace(KERNEL, reference=lambda _: lambda x: x * 3)
    with monkeypatch.context() as patch:
        lacking(patch, ProofLevel.FULL)
        assert checked(wrong).ok is False
    lacking(monkeypatch, ProofLevel.FULL, ProofLevel.ONE_CORE)
    verdict = checked(wrong)
    assert verdict.ok is None
    assert "instead of" in verdict.reason


def test_without_any_of_them_the_first_reason_is_given(monkeypatch):
    lacking(monkeypatch, *ProofLevel)
    verdict = checked(KERNEL)
    assert verdict.ok is None
    assert verdict.not_run
    assert verdict.reason == "interpret mode cannot run it: NotImplementedError: no FULL"
