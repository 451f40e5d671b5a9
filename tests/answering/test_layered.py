"""The mapping that shares what stays, against a dictionary that is copied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.answering import layered
from autotune.answering.layered import Layered

KEYS = st.integers(0, 12)
CHANGES = st.lists(st.tuples(st.dictionaries(KEYS, st.text(max_size=2)), st.lists(KEYS)))


@given(changes=CHANGES, most=st.integers(0, 8))
def test_every_version_stays_what_it_was(
    changes: list[tuple[dict[int, str], list[int]]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered, "_MOST_ABOVE", most)
        expected: list[dict[int, str]] = [{}]
        made: list[Layered[int, str]] = [Layered()]
        for put, take in changes:
            kept = {key: value for key, value in expected[-1].items() if key not in take}
            expected.append(kept | put)
            made.append(made[-1].changed(put, take))
    for mapping, wanted in zip(made, expected, strict=True):
        assert {key: mapping.get(key) for key in range(13)} == {
            key: wanted.get(key) for key in range(13)
        }
        assert len(mapping) == len(wanted)
        assert sorted(mapping.values()) == sorted(wanted.values())


def test_a_small_change_copies_nothing_of_what_is_below() -> None:
    many = Layered[int, int]().changed({number: number for number in range(5_000)})
    newer = many.changed({7: -7})
    assert newer._below is many._below
    assert (many.get(7), newer.get(7)) == (7, -7)
