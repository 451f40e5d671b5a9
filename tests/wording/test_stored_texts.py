"""What an older version has stored as a sentence is shown as it is; what is stored as facts now is
sent with its sentence, for readers that know no facts."""

from dataclasses import replace

from autotune.domain.codec import from_data, to_data
from autotune.domain.evidence import Proof
from autotune.domain.outcome import Illegal, OutOfVmem, ParallelAfterArbitrary, Rule
from autotune.domain.record import Decision, Evidence, Record
from autotune.wording.outcome import in_words as outcome_in_words
from autotune.wording.outcome import reason_of
from autotune.wording.publication import in_words
from tests.samples.matching import record


def test_the_texts_of_an_older_version_are_shown_as_they_are():
    old = replace(record(), reason="twice as fast", verification="seen", decision=None)
    assert (in_words(old).reason, in_words(old).verification) == ("twice as fast", "seen")
    refused = OutOfVmem(reason="too big", used_bytes=2, allowed_bytes=1)
    assert reason_of(refused) == reason_of(Illegal(reason="too big")) == "too big"


def test_facts_are_sent_with_their_sentences_and_come_back():
    default = Evidence(config=None, time_us=None, failure=Illegal(reason="no"))
    new = replace(
        record(),
        reason="",
        verification="",
        is_default=False,
        default=default,
        decision=Decision(tied=1),
        proof=Proof(ran="3 runs of m=8"),
    )
    sent = in_words(new)
    assert all((sent.reason, sent.verification, sent.default.note)) and in_words(sent) == sent
    assert from_data(Record, to_data(sent)) == sent
    broken = ParallelAfterArbitrary(axis=1)
    outcome = outcome_in_words(Illegal(rule=Rule.PARALLEL_AFTER_ARBITRARY, violation=broken))
    assert isinstance(outcome, Illegal) and outcome.reason and outcome.violation == broken
