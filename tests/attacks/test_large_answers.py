"""What a service, or who has taken its place, sends to a client."""

import gzip
import tracemalloc

import pytest

from autotune.answering import bundle
from autotune.answering.bundle import bundle_from_bytes
from autotune.domain.errors import InvalidInputError

MIB = 1 << 20


def test_a_gzip_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(bundle, "MOST_BYTES", 4 * MIB)
    bomb = gzip.compress(b'{"format": "' + b" " * (64 * MIB) + b'"}')
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="more than 4 MiB"):
            bundle_from_bytes(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize("spoilt", [lambda whole: whole[:-4], lambda whole: whole * 2])
def test_a_bundle_that_ends_elsewhere_is_none(spoilt):
    whole = gzip.compress(b"{}")
    with pytest.raises(InvalidInputError, match="end is missing"):
        bundle_from_bytes(spoilt(whole))
