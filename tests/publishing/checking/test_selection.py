"""Which records are checked."""

from dataclasses import replace
from datetime import timedelta

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Toolchain
from autotune.publishing.checking.selection import parse_version_filter, selected
from tests.samples.records import record

OLD = Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1")
NEW = Toolchain(jax="0.12.0.1", jaxlib="0.12.0.1", libtpu="0.0.50.1")


def made(toolchain, chip=Chip.V5E, days=0):
    own = record()
    return replace(
        own,
        key=replace(own.key, toolchain=toolchain, chip=chip),
        created_at=own.created_at + timedelta(days=days),
    )


def test_the_newest_of_each_problem_and_chip_that_is_of_another_toolchain():
    older = made(replace(OLD, jax="0.9.2"))
    newer = made(OLD, days=1)
    elsewhere = made(OLD, Chip.V6E)
    assert selected([older, newer, elsewhere, made(NEW, days=2)], not_with=NEW) == [
        newer,
        elsewhere,
    ]


def test_only_those_that_were_asked_for():
    old, older = made(OLD), made(replace(OLD, jax="0.9.2"), days=1)
    assert selected([old, older], not_with=NEW, made_with=parse_version_filter("jax=0.10")) == [old]
    assert selected([old, older], not_with=NEW, made_with=parse_version_filter("0.9.2")) == [older]
    assert selected([old], not_with=NEW, kernels=["other"]) == []
    assert selected([old, made(OLD, Chip.V6E)], chips=[Chip.V5E]) == [old]
    assert selected([old], not_with=NEW, kernels=[old.key.kernel]) == [old]


@pytest.mark.parametrize("text", ["", "jax=", "python=3", "jax", "=0.10"])
def test_what_is_no_version_is_a_sentence(text):
    if text == "jax":
        assert parse_version_filter(text).version == "jax"
        return
    with pytest.raises(InvalidInputError, match="write jax="):
        parse_version_filter(text)
