"""The first page: what runs, what was gained, what to do next."""

import re
from dataclasses import replace

import pytest

from autotune.domain.job import Progress
from autotune.domain.workload import TunedEntry, TunedWorkload
from autotune_service.pages.lanes import Gain, Scale, dots
from tests.samples.dashboard import claimed_job, estimated, html, plain, published, trial, wanted
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question
from tests.samples.records import save_trial
from tests.servers.service import publish, running, until


def section(text, name):
    match = re.search(rf'<section aria-labelledby="{name}".*?</section>', text, re.S)
    assert match
    return plain(match[0])


class TestRunning:
    def test_a_search_stands_first_with_how_far_it_is(self, fresh, store):
        said = Progress(done=3, goal=9, note="compiling")
        store.searches.report(question(), "9 points", said, over=False)
        text = html(fresh, "/")
        shown = section(text, "running")
        assert (
            "3 of 9 trials · best so far 9.5 µs, before verification, 10.53× the default" in shown
        )
        assert "about 18.0 s left · compiling" in shown  # six trials, one every three seconds
        assert text.index('class="tiles"') < text.index('id="running"') < text.index('id="next"')
        assert '<progress max="9" value="3"' in text

    def test_an_open_page_asks_for_that_section_only(self, fresh, store):
        store.searches.report(question(), "9 points", Progress(done=3, goal=9), over=False)
        whole, text = html(fresh, "/"), html(fresh, "/running")
        assert 'data-from="/running"' in whole
        assert text.strip() in whole
        assert "<html" not in text

    def test_a_job_and_its_search_are_told_once(self, fresh, store):
        key = question()
        store.jobs.add(wanted(key))
        job = claimed_job(store, key)
        store.jobs.heartbeat(job, Progress(done=1, goal=9, note="begins"))
        assert "mm m=1024 k=128 bfloat16 causal=False" in section(html(fresh, "/"), "running")
        store.searches.report(key, "", Progress(done=2, goal=9, note="goes on"), over=False)
        shown = section(html(fresh, "/"), "running")
        assert (shown.count("of 9 trials"), f"job {job.number}" in shown) == (1, True)


class TestOneNumber:
    """What is served; the best trial beside it, where it is another."""

    def test_the_best_trial_is_told_with_the_reason(self, fresh, store):
        save_trial(store, question(), trial(40, estimated(9.4)))
        assert "9.5 µs ± 5% 10.53× 9.4 µs" in section(html(fresh, "/"), "latest")
        said = section(html(fresh, "/keys/1"), "answer")
        assert "A tie: trial" in said and "is estimated 1.1% faster than what is served" in said

    def test_one_that_is_clearly_faster_could_not_be_served(self, fresh, store):
        save_trial(store, question(), trial(40, estimated(4.75)))
        said = section(html(fresh, "/keys/1"), "answer")
        assert "2.00 times as fast as what is served: it could not be verified" in said


class TestGains:
    def test_dots_at_one_place_are_one(self):
        of = [
            Gain(key=question(m), key_id=m, time_us=m, over_default=times, over_xla=None)
            for m, times in ((1, 2.0), (2, 2.0001), (3, 8.0))
        ]
        scale = Scale(low=0.5, high=16.0)
        made = dots(of, scale, lambda gain: gain.over_default, "its default", "/several")
        assert [(dot.count, dot.link) for dot in made] == [(2, "/several"), (1, "/keys/3")]
        assert made[0].x == pytest.approx(40, abs=1)
        assert dots(of, scale, lambda gain: gain.over_xla, "", "") == []

    def test_kernels_without_a_search_are_named_in_one_line(self, fresh, store):
        """A worker describes all that it has."""
        for name in ("idle_1", "idle_2"):
            store.save_kernel(replace(SPEC, name=name))
        shown = html(fresh, "/")
        assert "Never searched: idle_1 , idle_2 ." in section(shown, "coverage")
        assert len(re.findall('<article class="kernel">', shown)) == 2


class TestNext:
    def test_what_is_broken_comes_before_what_is_missing(self, service):
        shown = section(html(service, "/"), "next")
        assert shown.index(" broken ") < shown.index(" missing v")

    def test_what_is_being_searched_has_no_button(self, fresh, store):
        miss = store.misses()[0].key
        store.searches.report(miss, "9 points", Progress(done=3, goal=9), over=False)
        assert "being searched" in section(html(fresh, "/"), "next")
        unpublished = question(77, 77)
        save_trial(store, unpublished, trial(0, estimated(9.0)))
        number = store.browse.numbers([unpublished])[unpublished]
        page = f"/keys/{number}"
        assert "Nothing is published for this" in section(html(fresh, page), "answer")
        store.searches.report(unpublished, "9", Progress(done=3, goal=9), over=False)
        assert "A search runs" in section(html(fresh, page), "answer")

    def test_what_models_run_is_ranked_by_what_it_saves(self, fresh, store):
        """Also where each call saves less; what is near its bound is not named."""
        for m, time_us in ((5, 9.0), (6, 30.0), (7, 6.1)):
            save_trial(store, question(m, m), trial(0, estimated(time_us)))
            record = published(question(m, m))
            config = trial(0, estimated(time_us)).config
            estimate = replace(record.estimate, time_us=time_us)
            publish(fresh, store, replace(record, config=config, estimate=estimate))
        entries = tuple(
            TunedEntry(key=question(m, m), weight=weight, before_us=50.0)
            for m, weight in ((5, 100.0), (6, 2.0), (7, 1000.0))
        )
        store.workloads.save(TunedWorkload(name="net", entries=entries))
        until(lambda: "300.0 µs a step" in section(html(fresh, "/"), "next"))
        shown = section(html(fresh, "/"), "next")
        assert "can gain" in shown
        assert shown.index("m=5 k=5") < shown.index("m=6 k=6")
        assert "m=7 k=7" not in shown

    def test_what_is_asked_for_already_has_no_button(self, fresh, store):
        miss = store.misses()[0].key
        store.jobs.add(wanted(miss))
        assert "job 2 is open" in section(html(fresh, "/"), "next")

    def test_a_record_of_an_older_source_is_stale(self, fresh, store):
        assert "stale" not in section(html(fresh, "/"), "next").split()
        store.save_kernel(replace(SPEC, fingerprint="newer"))
        publish(fresh, store, published(question(5, 5)))
        shown = section(html(fresh, "/"), "next")
        assert re.search("mm m=5 k=5 [^,]* stale v5e", shown)
        publish(fresh, store, published(question(5, 5, fingerprint="newer")))
        assert "m=5 k=5" not in section(html(fresh, "/"), "next")

    def test_what_was_searched_and_not_published_is_told(self, tmp_path):
        with (
            new_store(tmp_path / "tried.db") as store,
            running(str(tmp_path / "tried.db")) as local,
        ):
            assert "Nothing is missing" in section(html(local, "/"), "next")
            save_trial(store, question(), trial(0, estimated(9.0)))
            assert "Nothing of what was searched" in section(html(local, "/"), "next")
