"""Hashes of programs, of two kinds of listing."""

import pytest

from autotune.domain.compilers import ASSEMBLED, is_another_program


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ("0123", "0123", False),
        ("0123", "4567", True),
        (f"{ASSEMBLED}0123", f"{ASSEMBLED}4567", True),
        (f"{ASSEMBLED}0123", f"{ASSEMBLED}0123", False),
        (f"{ASSEMBLED}0123", "4567", False),  # nobody can say
        ("4567", f"{ASSEMBLED}0123", False),
    ],
)
def test_only_hashes_of_the_same_kind_tell(one, other, differs):
    assert is_another_program(one, other) is differs
