"""The contract of ``answering.sources.Source``, which each implementation inherits: a model
gets its configs from a service, a bundle file or a database."""

from dataclasses import replace

import pytest

from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.answering.client import ServiceAnswers
from autotune.answering.sources import BundleAnswers, StoreAnswers
from autotune.domain.key import Chip
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question, record
from tests.servers.service import running, until

OTHERS = [
    pytest.param(question(2048), id="another shape"),
    pytest.param(question(dtype="float32"), id="another dtype"),
    pytest.param(question(causal=True), id="another option"),
    pytest.param(question(chip=Chip.V6E), id="another chip"),
    pytest.param(question(fingerprint="beef"), id="another source"),
    pytest.param(question(kernel="nn"), id="another kernel"),
    pytest.param(question(jax="0.10.1"), id="another JAX"),
    pytest.param(
        replace(question(), toolchain=replace(question().toolchain, libtpu="9")),
        id="another libtpu",
    ),
]


def exactly(source, key):
    return source.match(key, ("exact",)).record


class SourceContract:
    """``store``: a database with the record of ``question()``; ``misses``: what was counted."""

    @pytest.fixture
    def store(self, sqlite_url):
        with new_store(sqlite_url.removeprefix("sqlite:///")) as opened:
            opened.save_kernel(SPEC)
            opened.save_record(record())
            yield opened

    @pytest.fixture
    def source(self):
        raise NotImplementedError

    @pytest.fixture
    def misses(self, store):
        return lambda: {miss.key: miss.count for miss in store.misses()}

    def test_what_is_published_is_found_whole(self, source):
        match = exactly(source, question())
        assert match is not None and match.key == question()
        assert (match.config, match.verified, match.time_us) == (
            record().config,
            True,
            record().time_us,
        )
        assert exactly(source, question()) == match

    @pytest.mark.parametrize("other", OTHERS)
    def test_nothing_else_is_an_answer(self, source, other):
        assert exactly(source, other) is None

    def test_a_miss_is_counted_once_and_a_find_is_none(self, source, misses):
        asked = question(2048)
        assert exactly(source, question()) is not None and exactly(source, asked) is None
        source.miss(asked)
        until(lambda: misses() == {asked: 1})


class TestDatabase(SourceContract):
    @pytest.fixture
    def source(self, store):
        return StoreAnswers(store)


class TestService(SourceContract):
    @pytest.fixture
    def source(self, store, sqlite_url):
        with running(sqlite_url) as service:
            yield ServiceAnswers(service.url, timeout_s=60, strict=True)


class TestBundle(SourceContract):
    @pytest.fixture
    def source(self, store, tmp_path):
        path = tmp_path / "configs.bundle"
        path.write_bytes(bundle_to_bytes(new_bundle(store.records())))
        return BundleAnswers(path)

    @pytest.fixture
    def misses(self, source):
        return lambda: source.misses
