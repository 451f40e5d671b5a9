"""What a record proves of a trial."""

from dataclasses import replace

import pytest

from autotune.domain.evidence import Proof, Standard
from autotune.domain.outcome import Estimated
from autotune.domain.record import GateState, Trial, gate_state
from tests.samples.matching import NOON, record

RECORD = record()
TRIAL = Trial(
    number=1,
    config=RECORD.config,
    outcome=Estimated(estimate=RECORD.estimate, program="0a1b"),
    seconds=1.0,
    created_at=NOON,
)


@pytest.mark.parametrize(
    ("pushed_by", "checked_by", "state"),
    [
        ("", "", GateState.VERIFIED),
        ("ci", "", GateState.NOT_VERIFIED),  # its gate is the word of the token
        ("ci", "worker-1", GateState.VERIFIED),
    ],
)
def test_a_claim_does_not_prove_that_a_trial_is_right(pushed_by, checked_by, state):
    published = replace(RECORD, pushed_by=pushed_by, checked_by=checked_by)
    assert gate_state(TRIAL, published) is state
    less = replace(published, proof=Proof(standard=Standard.DEFAULT))
    agrees = state is GateState.VERIFIED
    assert gate_state(TRIAL, less) is (GateState.AGREES if agrees else state)
