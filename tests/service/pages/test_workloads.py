"""The page of a workload."""

from dataclasses import replace

import pytest

from autotune.domain.explanation import OperationTime
from autotune.domain.record import Change
from autotune.wording.units import ratio
from autotune_service.pages.workloads import elsewhere, lines, model_times
from autotune_service.snapshot_cache import EMPTY
from tests.samples.dashboard import html, plain, published, workload
from tests.samples.matching import question
from tests.servers.service import running


def test_each_problem_has_before_after_and_evidence(service):
    page = html(service, "/workloads/model")
    record = published(question())
    assert f"{50.0 / record.estimate.time_us:.2f}×" in page
    assert "proven</span>" in page and 'href="/keys/1"' in page
    assert "interrupted" in page and "What is missing" in page and "line 3" in page
    assert "1 of 2 problems without both times are left out" in page


def test_the_models_step_has_its_kinds_and_lines(service):
    page = plain(html(service, "/workloads/model"))
    assert "The model’s step on 4 v5e 140.0 µs → 100.0 µs ± unknown with tuned configs" in page
    assert "products 60% Pallas kernels 40%" in page
    assert "Pallas kernels 80.0 µs 40.0 µs 40 % more trials" in page


def test_an_unknown_one_is_not_there(service):
    assert "There is no workload other/one." in html(service, "/workloads/other/one", 404)


def test_what_takes_the_model_longest_is_first_and_counts_by_weight():
    shown = lines(workload().entries, EMPTY)
    assert [line.entry.weight for line in shown] == [12.0, 1.0, 2.0]
    times = {(chip, toolchain.jax): rest for chip, toolchain, *rest in model_times(shown)}
    count, sums = times[question().chip, question().toolchain.jax]
    assert (count, sums.timed, sums.before_us) == (2, 0, pytest.approx(0.0))


def test_what_xla_does_around_a_kernel_has_a_share_of_its_own(store):
    """Each as often as it runs. A step is summed up where all of it is served."""
    copied = OperationTime(name="copy", opcode="copy", runs=1, time_us=4.5, hbm_bytes=0)
    with_copy = replace(published(question()).estimate, xla_us=4.5, operations=(copied,))
    store.save_record(replace(published(question()), estimate=with_copy))
    entries = (replace(workload().entries[0], weight=2.0), workload().entries[2])
    store.workloads.save(replace(workload(), entries=entries[:1]))
    with running(store.url) as service:
        page = plain(html(service, "/workloads/model"))
    assert "mm 53% XLA copy 47%" in page and "XLA copy 9.0 µs" in page
    assert "v5e jax 0.10.2 1 of 1 19.0 µs" in page
    snapshot = EMPTY.changed(1, Change(records=[published(question())], removed=[]), [])
    ((*_, served, wanted, us),) = elsewhere(entries, snapshot)
    assert (served, wanted, us) == (1, 2, 19.0)


def test_what_a_model_gained_is_as_uncertain_as_what_it_ran_is_predicted(store):
    predicted, known = (
        replace(workload().entries[0], key=question(size), before_us=us, before_error=error)
        for size, us, error in ((1024, 40.0, 0.25), (2048, 10.0, None))
    )
    for entry in (predicted, known):
        store.save_record(published(entry.key))
    store.workloads.save(replace(workload(), entries=(predicted, known)))
    with running(store.url) as service:
        page = html(service, "/workloads/model")
    times = ratio(50.0, 2 * published(question()).estimate.time_us)
    assert f"{times} ± 20%" in page and "1 of the defaults are predicted" in page


def test_lists_end_and_a_name_in_no_encoding_is_one_everywhere(store):
    odd = replace(workload(), name="mod\udcffel", missing=tuple(f"line {n}" for n in range(203)))
    store.workloads.save(odd)
    stored = store.workloads.find("mod?el")
    assert stored is not None and stored[0].name == "mod?el"
    with running(store.url) as service:
        page = html(service, "/workloads/mod%3Fel")
        assert "And 3 more." in page and "line 199<" in page and "line 200<" not in page
