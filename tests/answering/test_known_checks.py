"""What a check has found under a toolchain decides what is answered there."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.answering.bundle import bundle_from_bytes, bundle_to_bytes, new_bundle
from autotune.answering.matching import DEFAULT, EXACT, NEAREST, TOOLCHAIN, Index
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Toolchain
from autotune.domain.record import CheckVerdict, Record, RecordCheck
from autotune.wording.match import why
from autotune_db import open_store
from tests.samples.matching import SPEC, question, record

NEW = Toolchain(jax="9.0", jaxlib="9.0", libtpu="9.0")
OLDER = Toolchain(jax="0.1", jaxlib="0.1", libtpu="0.1")


def known(verdict, toolchain=NEW):
    return RecordCheck(
        toolchain=toolchain,
        verdict=verdict,
        checked_at=datetime(2026, 11, 22, tzinfo=UTC),
        time_us=27.2,
        finding="needs 24.25 MiB of VMEM",
    )


def asked():
    return replace(question(1024), toolchain=NEW)


@pytest.mark.parametrize("verdict", CheckVerdict)
def test_only_what_is_not_known_to_fail_there_is_answered(verdict):
    published = record(question(1024)).with_check(known(verdict))
    answer = Index([published], [SPEC]).match(asked())
    if verdict in (CheckVerdict.WRONG, CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT):
        assert (answer.kind, answer.config, answer.passed_over) == (DEFAULT, None, published)
    else:
        assert (answer.kind, answer.check) == (TOOLCHAIN, known(verdict))


def test_the_last_check_of_a_toolchain_counts():
    mended = record(question(1024)).with_check(known(CheckVerdict.BROKEN))
    mended = mended.with_check(known(CheckVerdict.SAME))
    assert [check.verdict for check in mended.checks] == [CheckVerdict.SAME]


def test_it_travels_with_the_record(tmp_path):
    checked = record(question(1024)).with_check(known(CheckVerdict.BROKEN))
    assert from_data(Record, to_data(checked)) == checked
    assert "checks" not in to_data(record(question(1024)))  # older versions take it
    bundle = new_bundle([checked], 1, [SPEC], datetime(2026, 11, 22, tzinfo=UTC))
    assert bundle_from_bytes(bundle_to_bytes(bundle)).records[0].checks == checked.checks
    with open_store(str(tmp_path / "checks.db"), create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(record(question(1024)))
        store.save_record(checked)
        stored = store.record(checked.key)
        assert stored is not None and stored.checks == checked.checks
        assert store.snapshots(1)[0].number == 2


def test_an_answer_in_the_place_of_what_is_broken_says_so():
    broken = record(question(1024)).with_check(known(CheckVerdict.BROKEN))
    nearby = record(replace(question(2048), toolchain=NEW), bm=128)
    answer = Index([broken, nearby], [SPEC]).match(asked())
    assert (answer.kind, answer.record) == (NEAREST, nearby)
    assert answer.passed_over == broken
    assert f"not what was tuned with {broken.key.toolchain}" in why(answer, asked())


_TOOLCHAINS = (question().toolchain, OLDER, NEW)
_RECORDS = st.lists(
    st.builds(
        lambda toolchain, m, bm, verdicts: replace(
            record(replace(question(m), toolchain=toolchain), bm),
            checks=tuple(
                known(verdict, other)
                for other, verdict in zip(_TOOLCHAINS, verdicts, strict=True)
                if verdict and other != toolchain
            ),
        ),
        st.sampled_from(_TOOLCHAINS),
        st.sampled_from([1024, 2048]),
        st.sampled_from([128, 256]),
        st.tuples(*[st.none() | st.sampled_from(CheckVerdict)] * 3),
    ),
    min_size=2,
    max_size=6,
    unique_by=lambda other: other.key,
)


@given(_RECORDS, st.sampled_from([1024, 2048]))
def test_whatever_is_published_what_is_known_not_to_work_is_no_answer(records, m):
    key = replace(question(m), toolchain=NEW)
    others = [other for other in records if other.key.problem == key.problem and other.key != key]
    checks = [(other.config, other.check(NEW)) for other in others]
    broken = {config for config, check in checks if check and not check.verdict.is_usable}
    answer = Index(records, [SPEC]).match(key)
    if answer.kind == EXACT:
        assert answer.record in records  # it was compiled there
        return
    assert answer.config is None or answer.config not in broken
    usable = [other for other in others if other.config not in broken]
    assert (answer.kind == TOOLCHAIN) is bool(usable)
