"""Between which two releases something became slower."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.bisect import first_slower


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_it_takes_the_logarithm_of_the_releases(case):
    count, first = case
    asked = []

    def is_slower(release):
        asked.append(release)
        return int(release) >= first

    names = [str(number) for number in range(count)]
    assert first_slower(names, is_slower) == (str(first - 1), str(first))
    assert len(asked) <= ceil(log2(count))


@pytest.mark.parametrize("broken", ["1", "2", "3"])
def test_a_release_that_says_nothing_is_passed_over(broken):
    last, first = first_slower([*"01234"], lambda name: None if name == broken else int(name) >= 3)
    assert int(last) < 3 <= int(first)
    assert broken not in (last, first)
