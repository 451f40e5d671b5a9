"""What tables of others say is kept once."""

from dataclasses import replace

from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig
from autotune_db import open_store

KNOWN = KnownConfig(
    kernel="matmul",
    problem=(("m", 8), ("dtype", "bfloat16")),
    chips=(Chip.V5E, Chip.V5P),
    axes=(("block_m", 8),),
    source="jax-rpa line 4",
)


def test_kept_once_and_brought_up_to_date(url: str) -> None:
    timed = replace(KNOWN, time_us=2.5, source="jax-rpa line 9")
    other = replace(KNOWN, kernel="rmsnorm")
    with open_store(url, create=True) as store:
        assert store.save_known_configs([KNOWN, other]) == 2
        assert store.save_known_configs([timed, timed]) == 0
        assert store.save_known_configs([KNOWN]) == 0  # says less: the time is kept
        assert store.known_configs("matmul") == [timed]
        assert store.known_configs() == [timed, other]
