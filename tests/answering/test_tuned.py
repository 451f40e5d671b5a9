"""The config of a problem in model code: never an exception, the same answer every time."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.answering.generation import GENERATION
from autotune.answering.matching import Index
from autotune.answering.sources import (
    BundleAnswers,
    StoreAnswers,
    configure,
    open_source,
    refresh,
    settings,
)
from autotune.declaring.fingerprint import fingerprint
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.errors import AutotuneError, StoreError, UnknownNameError
from autotune.domain.key import Chip, KernelRef, KernelSpec, Key
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Option, make_config
from autotune.domain.record import Evidence, timed_configs, times_us
from autotune.python.tuned import Tuned
from tests.samples.database import new_store
from tests.samples.records import key as sample_key
from tests.samples.records import record as sample_record
from tests.samples.records import trial as sample_trial
from tests.servers.service import until

TOOLCHAIN = sample_key().toolchain
TUNED_CONFIG = make_config({"block": 32})

KERNEL = Kernel(
    name="scale",
    dims=("rows", "columns"),
    dtypes=("float32", "bfloat16"),
    options=(Option(name="causal", choices=(False, True), default=False),),
    axes=(Axis(name="block", choices=lambda _: (8, 16, 32), dim="rows"),),
    default=lambda _: {"block": 8},
    inputs=lambda p: [Array(name="x", shape=(p["rows"], p["columns"]), dtype=p.dtype)],
    build=lambda _, config: lambda x: x * config["block"],
    reference=lambda _: lambda x: x,
)


class FakeSource:
    """Answers from a dictionary; raises ``error`` where there is one."""

    def __init__(self, *records, error=None):
        self.records = {record.key: record for record in records}
        self.kernels = list[KernelSpec]()
        self.error, self.asked, self.missed = error, list[Key](), list[Key]()

    def match(self, key, accept=()):
        self.asked.append(key)
        if self.error is not None:
            raise self.error
        return Index(self.records.values(), self.kernels).match(key, accept)

    def miss(self, key, kind=None):
        self.missed.append(key)


def key(**changes):
    found = Key(
        kernel="scale",
        fingerprint=fingerprint(KernelRef(path=__file__, attribute="KERNEL")),
        problem=tuned(None).problem(rows=64, columns=128),
        chip=Chip.V5E,
        toolchain=TOOLCHAIN,
    )
    return replace(found, **changes)


def record(*, default=None, **changes):
    found = replace(sample_record(key(**changes)), config=TUNED_CONFIG)
    return replace(found, default=default or found.default)


def tuned(source, **changes):
    settings = {"declared_in": __file__, "chip": "TPU v5 lite", "toolchain": TOOLCHAIN, **changes}
    return Tuned(KERNEL, source=source, **settings)


def test_what_is_published_is_the_answer():
    source = FakeSource(record())
    asked = tuned(source)
    found = asked.answer(asked.problem(rows=64, columns=128))
    assert (found.match, found.config) == ("exact", TUNED_CONFIG)
    assert found.record == record() and source.missed == []


def test_a_miss_is_said_and_counted_once_for_each_problem(caplog):
    source = FakeSource()
    asked = tuned(source)
    with caplog.at_level(logging.WARNING, "autotune"):
        for rows in (64, 64, 32, 64):
            assert asked.config(asked.problem(rows=rows, columns=128))["block"] == 8
    assert len(source.asked) == len(source.missed) == len(caplog.records) == 2
    assert "takes its default, block=8: nothing is published for scale[" in caplog.text


@pytest.mark.parametrize(
    "error", [StoreError("the database is gone"), RuntimeError("odd"), OSError(2, "no file")]
)
def test_a_broken_source_is_a_default_and_one_line(error, caplog):
    asked = tuned(FakeSource(error=error))
    with caplog.at_level(logging.WARNING, "autotune"):
        for _ in range(3):
            assert asked.config(asked.problem(rows=64, columns=128))["block"] == 8
    assert len(caplog.records) == 1
    assert "no config can be looked up" in caplog.text and str(error) in caplog.text


def test_what_is_published_but_not_accepted_is_no_miss():
    source = FakeSource(record(), record(toolchain=replace(TOOLCHAIN, libtpu="0.0.1")))
    asked = tuned(source, accept=["toolchain"])
    for rows in (64, 32):
        asked.config(asked.problem(rows=rows, columns=128))
    assert asked.answer(key().problem).match == "toolchain"
    assert [missed.problem["rows"] for missed in source.missed] == [32]


def test_what_cannot_be_handed_to_the_kernel_leaves_it_to_the_next_answer(caplog):
    toolchain = replace(TOOLCHAIN, libtpu="0.0.1")
    wrong = replace(record(), config=make_config({"blocks": 8}))
    source = FakeSource(wrong, record(toolchain=toolchain))
    asked = tuned(source, accept=None)
    found = asked.answer(asked.problem(rows=64, columns=128))
    assert (found.match, found.config) == ("toolchain", record().config)
    assert "does not fit: it gives blocks" in caplog.text
    asked = tuned(source, accept=None)
    asked.kernel = replace(KERNEL, constraint=lambda _, config: "no" * (config["block"] == 32))
    assert asked.answer(asked.problem(rows=64, columns=128)).match == "default"
    assert source.missed == [key()] * 2
    alone = tuned(FakeSource(wrong)).answer(asked.problem(rows=64, columns=128))
    assert (alone.match, alone.config["block"]) == ("default", 8) and "does not fit" in alone.why


@pytest.mark.parametrize("value", [256, -1, 0, "x", True, 100])
def test_where_an_axis_has_no_choices_only_the_default_fits(value):
    """Of one that cuts sequences any block does: a batch has none that it cuts."""
    published = replace(record(), config=make_config({"block": 32, "lanes": value}))
    for lengths in (None, "x"):
        asked = tuned(FakeSource(published))
        asked.kernel = replace(
            KERNEL,
            axes=(*KERNEL.axes, Axis(name="lanes", choices=lambda _: (), lengths=lengths)),
            default=lambda _: {"block": 8, "lanes": 64},
            default_on=lambda *_: {"block": 8, "lanes": 100},
        )
        fits = value == 100 or (lengths and value == 256)
        match = asked.answer(asked.problem(rows=64, columns=128)).match
        assert match == ("exact" if fits else "default")


def test_a_miss_that_cannot_be_kept_does_not_matter(caplog):
    class Closed(FakeSource):
        def miss(self, key, kind=None):
            raise StoreError("read only")

    asked = tuned(Closed())
    assert asked.config(asked.problem(rows=64, columns=128))["block"] == 8
    assert "a miss could not be recorded (read only)" in caplog.text


@pytest.mark.parametrize(
    "changes", [{"chip": "v99"}, {"chip": None}, {"declared_in": "/no/such/file.py"}]
)
def test_an_unknown_chip_or_file_is_a_default(changes, caplog):
    """The chip None is that of the first device, here a CPU."""
    asked = tuned(FakeSource(record()), **changes)
    assert asked.answer(asked.problem(rows=64, columns=128)).match == "default"
    assert "no config can be looked up" in caplog.text


def test_under_jit_the_first_answer_stays():
    """A function that is traced again, after the source has changed, gets the same config."""
    source = FakeSource()
    asked = tuned(source)

    def scale(x):
        config = asked.config(asked.problem(rows=x.shape[0], columns=x.shape[1], dtype=x.dtype))
        return KERNEL.build(asked.problem(rows=64, columns=128), config)(x)

    x = jnp.ones((64, 128))
    assert float(jax.jit(scale)(x)[0, 0]) == 8
    source.records[key()] = record()
    jax.clear_caches()
    assert float(jax.jit(scale)(x)[0, 0]) == 8
    assert str(jax.make_jaxpr(scale)(x)).count("callback") == 0
    assert len(source.asked) == 1


def test_what_is_configured_or_refreshed_later_counts_for_the_next_trace(request):
    """The order in a notebook: call first, configure then."""
    request.addfinalizer(configure)
    configure()
    asked = tuned(None)
    assert asked.config(key().problem)["block"] == 8
    source = FakeSource()
    configure(source)
    assert asked.config(key().problem)["block"] == 8 and source.asked == [key()]
    source.records[key()] = record()
    assert asked.config(key().problem)["block"] == 8
    refresh()
    assert asked.config(key().problem) == TUNED_CONFIG


def test_a_source_that_failed_is_asked_again_by_itself(monkeypatch, caplog):
    monkeypatch.setattr("autotune.answering.generation.RETRY_AFTER_S", 0.05)
    monkeypatch.setattr(GENERATION, "_waiting", set())  # an earlier test may wait for 40 s
    source = FakeSource(record(), error=StoreError("locked"))
    asked = tuned(source)
    until(lambda: asked.config(key().problem)["block"] == 8 and len(source.asked) > 2)
    assert len(caplog.records) == 1  # the same is not said again
    source.error = None
    until(lambda: asked.config(key().problem) == TUNED_CONFIG)


@pytest.mark.parametrize("how", ["the source", "configured"])
def test_strict_raises_what_is_wrong_with_the_source(how, request):
    request.addfinalizer(configure)
    source = FakeSource(error=StoreError("the database is gone"))
    source.strict = how == "the source"
    configure(source, chip="v5e", strict=how == "configured")
    for asked in (tuned(None), tuned(source)):
        with pytest.raises(StoreError, match="gone"):
            asked.config(key().problem)
    source.error = None
    assert (
        tuned(source).answer(key().problem).match == "default"
    )  # that nothing is there is no error
    for none, why in ((None, "no source is set"), ("http://127.0.0.1:9", "cannot be used")):
        configure(none, strict=True)
        with pytest.raises(AutotuneError, match=why):
            tuned(None).config(key().problem)


def test_a_service_at_a_url_is_kept_on_disk(request, tmp_path, monkeypatch):
    request.addfinalizer(configure)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    configure("http://127.0.0.1:9")
    (place,) = tmp_path.iterdir()
    assert place.stat().st_mode & 0o777 == 0o700
    assert settings().source._cache.parent == place
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    configure("http://127.0.0.1:9")  # nothing can be kept there
    assert settings().source._cache is None


@pytest.mark.parametrize(
    ("today", "tried_us", "is_taken"),
    [(8, 9.0, True), (16, None, False), (16, 9.0, True), (16, 2.0, False), (32, None, True)],
)
def test_a_record_that_was_compared_with_another_default_is_taken_where_it_is_faster(
    today, tried_us, is_taken
):
    compared = Evidence(config=make_config({"block": 8}), time_us=9.0)
    found, now = record(default=compared), make_config({"block": today})  # it takes 5.5
    source = FakeSource(found)
    took = Estimated(estimate=replace(found.estimate, time_us=tried_us or 1), program="p")
    tried = [replace(sample_trial(0, took), config=now)] if tried_us else []
    source.times_us = lambda _, axes: times_us(timed_configs(tried), axes)
    asked = tuned(source)
    asked.kernel = replace(KERNEL, default=lambda _: {"block": today})
    answer = asked.answer(key().problem)
    expected = ("exact", TUNED_CONFIG) if is_taken else ("default", now)
    assert (answer.match, answer.config) == expected
    assert source.missed == ([] if is_taken else [key()])
    assert ("autotune search" in answer.why) != is_taken


def test_threads_that_ask_at_once_ask_once():
    source = FakeSource(record())
    asked = tuned(source)
    problem = asked.problem(rows=64, columns=128)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda _: asked.answer(problem), range(64)))
    assert len(source.asked) == 1 and len({id(answer) for answer in found}) == 1


def test_from_a_bundle_and_its_misses(tmp_path):
    path = tmp_path / "c.bundle"
    path.write_bytes(bundle_to_bytes(new_bundle([record()])))
    source = BundleAnswers(path)
    asked = tuned(source)
    assert asked.config(asked.problem(rows=64, columns=128)) == TUNED_CONFIG
    asked.config(asked.problem(rows=32, columns=128))
    assert [k.problem["rows"] for k in source.misses] == [32]
    assert tuned(BundleAnswers(tmp_path / "none")).answer(key().problem).match == "default"


@pytest.fixture
def store(tmp_path):
    with new_store(tmp_path / "t.db") as opened:
        yield opened


def test_from_a_database_which_keeps_the_misses(store):
    store.save_record(record())
    asked = tuned(StoreAnswers(store))
    assert asked.config(asked.problem(rows=64, columns=128)) == TUNED_CONFIG
    missing = asked.problem(rows=32, columns=128)
    for _ in range(3):
        asked.config(missing)
    tuned(StoreAnswers(store)).config(missing)
    assert [(m.key.problem, m.count) for m in store.misses()] == [(missing, 2)]


@pytest.mark.parametrize("error", [None, OSError(2, "no file")])
def test_the_configured_chip_stays_beside_a_source_of_its_own(error, request):
    request.addfinalizer(configure)
    configure(chip="v5e", accept=("exact",))
    source = FakeSource(error=error)
    asked = tuned(source, chip=None)
    asked.kernel = replace(KERNEL, default_on=lambda _, chip: {"block": 16 if chip == "v5e" else 8})
    assert asked.answer(key().problem).config["block"] == 16
    assert source.asked == [key()]


def test_a_chip_that_does_not_exist_is_refused_at_once(request):
    request.addfinalizer(configure)
    configure(chip="TPU v5 lite", accept=("exact",))
    for wrong in ("v9", 5):
        with pytest.raises(UnknownNameError, match="v5e"):
            configure(chip=wrong)
    assert settings().chip == "TPU v5 lite"  # as before
    configure(chip="")  # an environment variable that is not set: the chip that JAX sees


def test_a_database_without_the_package_that_opens_it_is_a_store_error(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    with pytest.raises(StoreError):
        open_source("sqlite:///results.db")
