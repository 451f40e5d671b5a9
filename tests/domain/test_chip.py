"""Chip names: one place parses every spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.errors import UnknownNameError
from autotune.domain.key import Chip, aliases, parse_chip


@pytest.mark.parametrize(
    ("spelling", "chip"),
    [
        ("TPU v5 lite", Chip.V5E),  # device_kind of JAX
        ("TPU v5", Chip.V5P),  # device_kind on a TPU VM
        ("TPU v5p", Chip.V5P),  # device_kind on Pathways
        ("TPU v6 lite", Chip.V6E),
        ("TPU7x", Chip.V7X),
        ("v7x", Chip.V7X),
        ("Ironwood", Chip.V7X),
        ("trillium", Chip.V6E),
        ("v5litepod-8", Chip.V5E),  # Cloud accelerator type with the size of the slice
        ("tpu7x-16", Chip.V7X),
        ("  tpu_V4 ", Chip.V4),
    ],
)
def test_names_of_jax_pathways_and_marketing(spelling, chip):
    assert parse_chip(spelling) is chip


def test_no_alias_names_two_chips():
    names = [name for chip in Chip for name in (chip.value, *aliases(chip))]
    assert len(names) == len(set(names))


@given(st.sampled_from(list(Chip)), st.data())
def test_case_spaces_and_underscores_do_not_matter(chip, data):
    name = data.draw(st.sampled_from([chip.value, *aliases(chip)]))
    changed = "".join(data.draw(st.sampled_from([c.upper(), c.lower()])) for c in name)
    assert parse_chip(f" {changed.replace(' ', '_')} ") is chip


@pytest.mark.parametrize("text", ["", "v9", "h100", "v5-lite-x", "tpu"])
def test_an_unknown_chip_is_one_sentence_with_the_list(text):
    with pytest.raises(UnknownNameError) as caught:
        parse_chip(text)
    assert "\n" not in str(caught.value)
    assert all(chip.value in str(caught.value) for chip in Chip)
